/** The head whose thumbnail is pointed at: it shades the text, and its numbers stand under the text. */

import { drawHint } from "./controls.js";
import { headTitle, page } from "./data.js";
import { one } from "./elements.js";
import { headAt } from "./head_grid.js";
import { METRIC_NAMES, metricText, numbersOf, patternOf } from "./metrics.js";
import { loadHead } from "./numbers.js";
import { shownHead } from "./shown.js";
import { scene, state } from "./state.js";
import { textWidth } from "./figure.js";

/** @import { Grid } from "./types.js" */

const pointed = { number: /** @type {number | null} */ (null) };

/** Listens to the pointer and to the focus among all heads. */
export function listenToPointedHead() {
  const overview = one("overview");
  overview.addEventListener("pointerover", (event) => event.pointerType !== "touch" && pointAtHead(headAt(event)));
  overview.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) pointAtHead(headAt(event));
  });
  for (const name of ["pointerleave", "focusout"]) overview.addEventListener(name, () => pointAtHead(null));
}

/** Lets a head speak, or none. @param {number | null} number */
async function pointAtHead(number) {
  const heads = state.head === null && !state.together && state.list === "maps" ? number : null;
  if (heads === pointed.number) return;
  pointed.number = heads;
  const hint = one("keys-hint");
  hint.style.minHeight = heads === null ? "" : `${hint.offsetHeight}px`; // what is pointed at stays where it is
  hint.classList.toggle("speaking", heads !== null);
  if (heads === null) {
    drawHint(one("keys-hint").hidden);
    return shadeBy(null);
  }
  hint.textContent = spoken(heads, hint);
  if (page.heads[heads].factors.length) return; // of a long text the average of all rows is not known
  const sides = await loadHead(heads);
  if (pointed.number === heads) shadeBy(shownHead(heads, sides));
}

/** Shades the text by a head, or as before. @param {Grid | null} shown */
function shadeBy(shown) {
  scene.pointed = shown;
  scene.strip?.drawOver();
}

/** Returns a head's name, what it does, and as many of its numbers as the line has room for. @param {number} number @param {HTMLElement} line */
function spoken(number, line) {
  const names = METRIC_NAMES.filter((name) => !Number.isNaN(numbersOf(number)[name]));
  const numbers = names.map((name) => `${name} ${metricText(name, numbersOf(number)[name])}`);
  const size = parseFloat(getComputedStyle(line).fontSize);
  for (let count = numbers.length; count >= 0; count--) {
    const left = numbers.length - count;
    const listed = [...numbers.slice(0, count), ...(left ? [`${left} more in Numbers`] : [])].join(", ");
    const words = [headTitle(number), patternOf(number), listed].filter(Boolean).join(" · ");
    if (!count || textWidth(words, size) <= line.clientWidth) return words;
  }
  return "";
}
