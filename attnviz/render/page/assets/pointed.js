/** What is pointed at among all heads: a thumbnail shades the text and says its numbers; a word lights its row in every thumbnail. */

import { drawHint } from "./bar.js";
import { effect } from "./core.js";
import { haveSameTexts, headTitle, page, textOf } from "./data.js";
import { one } from "./elements.js";
import { headAt } from "./head_grid.js";
import { listedHeads } from "./listing.js";
import { METRIC_NAMES, metricText, numbersOf, patternOf } from "./metrics.js";
import { loadHead } from "./numbers.js";
import { weightText } from "./quantities.js";
import { shownHead } from "./shown.js";
import { scene, state } from "./state.js";
import { textWidth } from "./figure.js";
import { meanLine, tokenPart } from "./thumbnails.js";
import { strongestOf } from "./values.js";

/** @import { Axis, Grid } from "./types.js" */

const MAX_NAMED = 3; // tokens that a word looks at most

/** @type {{ head: number | null, isLit: boolean }} */
const pointed = { head: null, isLit: false };

/** Listens to the pointer and to the focus among all heads, and to marks of words. */
export function listenToPointed() {
  const overview = one("overview");
  overview.addEventListener("pointerover", (event) => event.pointerType !== "touch" && pointAtHead(headAt(event)));
  overview.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) pointAtHead(headAt(event));
  });
  for (const name of ["pointerleave", "focusout"]) overview.addEventListener(name, () => pointAtHead(null));
  effect(() => lightRows());
}

/** True if all heads are seen as maps. */
function showsMaps() {
  return state.head === null && !state.together && state.list === "maps";
}

/** Lets a head speak, or none. @param {number | null} number */
async function pointAtHead(number) {
  const head = showsMaps() ? number : null;
  if (head === pointed.head) return;
  pointed.head = head;
  speak(head === null ? "" : spoken(head, one("keys-hint")));
  if (head === null) return shadeBy(null);
  if (page.heads[head].factors.length) return; // of a long text the average of all rows is not known
  const sides = await loadHead(head);
  if (pointed.head === head) shadeBy(shownHead(head, sides));
}

/** Lights the row of the word that is pointed at in every thumbnail, or its column, and shades what it looks at on average. */
function lightRows() {
  const mark = showsMaps() ? state.mark : null;
  const overview = one("overview");
  overview.classList.toggle("lit", mark !== null);
  if (!mark) {
    if (pointed.isLit) {
      speak("");
      shadeBy(null);
    }
    pointed.isLit = false;
    return;
  }
  /** @type {[Axis, number]} */
  const [axis, place] = mark.query !== null ? ["query", mark.query] : ["key", mark.key ?? 0];
  const heads = listedHeads();
  const alike = heads.filter((number) => haveSameTexts(heads[0], number));
  const [from, to] = tokenPart(heads[0], axis, place);
  overview.classList.toggle("columns", axis === "key");
  overview.style.setProperty("--from", `${100 * from}%`);
  overview.style.setProperty("--to", `${100 * to}%`);

  const line = meanLine(alike, axis, place);
  const labels = textOf(heads[0], axis === "query" ? "key" : "query").labels;
  const most = strongestOf(line, MAX_NAMED).map((other) => `“${labels[other]}” ${weightText(line[other])}`);
  const does = axis === "query" ? "looks at" : "is seen by";
  speak(`“${textOf(heads[0], axis).labels[place]}” ${does} ${most.join(", ")}, mean of ${alike.length} heads · click: a row for each head`);
  const shades = () => (axis === "query" ? { query: null, key: line, said: "" } : { query: line, key: null, said: "" });
  pointed.isLit = true;
  shadeBy(/** @type {Grid} */ (/** @type {unknown} */ ({ shades, scale: { change: state.side === "change" } })));
}

/** Says something in the line under the text, or again what a reader can do. @param {string} words */
function speak(words) {
  const hint = one("keys-hint");
  hint.style.minHeight = words ? `${hint.offsetHeight}px` : ""; // what is pointed at stays where it is
  hint.classList.toggle("speaking", words !== "");
  if (words) hint.textContent = words;
  else drawHint();
}

/** Shades the text by a head or a word, or as before. @param {Grid | null} shown */
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
