/** The head whose thumbnail is pointed at: it shades the text, and its numbers stand under the text. */

import { drawHint } from "./controls.js";
import { headTitle, page } from "./data.js";
import { one } from "./elements.js";
import { headAt } from "./head_grid.js";
import { METRIC_NAMES, metricText, numbersOf, patternOf } from "./metrics.js";
import { loadHead } from "./numbers.js";
import { ShownHead } from "./shown.js";
import { scene, state } from "./state.js";

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
  hint.textContent = spoken(heads);
  if (page.heads[heads].factors.length) return; // of a long text the average of all rows is not known
  const sides = await loadHead(heads);
  if (pointed.number === heads) shadeBy(new ShownHead(heads, sides));
}

/** Shades the text by a head, or as before. @param {ShownHead | null} shown */
function shadeBy(shown) {
  scene.pointed = shown;
  scene.strip?.drawOver();
}

/** A head's name, what it does, and its numbers. @param {number} number */
function spoken(number) {
  const numbers = METRIC_NAMES.map((name) => [name, numbersOf(number)[name]]).filter(([, value]) => !Number.isNaN(value));
  const said = numbers.map(([name, value]) => `${name} ${metricText(String(name), Number(value))}`);
  return [headTitle(number), patternOf(number), said.join(", ")].filter(Boolean).join(" · ");
}
