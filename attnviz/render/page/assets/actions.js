/** What a reader does: points at a mark, keeps it, lets go of it, opens another head. */

import { page } from "./data.js";
import { drawInspector } from "./inspector.js";
import { tipOf } from "./quantities.js";
import { state } from "./state.js";

/** @import { Mark } from "./types.js" */

/** @param {Mark | null} first @param {Mark | null} second */
function isSameMark(first, second) {
  return first?.query === second?.query && first?.key === second?.key && !first === !second;
}

/** Draws the inspector of the open head. */
export function refreshInspector() {
  if (state.shown) drawInspector(state.shown, chooseListed);
}

/** Draws what is marked. */
export function drawMarks() {
  state.current?.drawOver();
  refreshInspector();
}

/**
 * Points at a mark, or at nothing; the tip stands beside x and y.
 *
 * @param {Mark | null} mark
 * @param {number} [x]
 * @param {number} [y]
 */
export function pointTo(mark, x, y) {
  const { current, shown } = state;
  if (!current || !shown) return;
  if (!isSameMark(mark, state.mark)) {
    state.mark = mark;
    drawMarks();
  }
  current.stage?.showTip(mark, tipOf(shown, mark), x, y); // last, since it measures: the browser lays out once
}

/** Keeps a token chosen; the same one again lets go of it. @param {Mark | null} mark */
export function pin(mark) {
  state.pin = isSameMark(mark, state.pin) ? null : mark;
  drawMarks();
}

/** @param {Mark} mark */
function chooseListed(mark) {
  pin(mark);
  state.current?.reveal(mark);
}

/** Lets go of a token, then of the head. */
export function letGo() {
  if (!state.pin && !state.mark) return openHead(null);
  state.pin = state.mark = null;
  drawMarks();
}

/** Opens a head, or all of them, by the page's address. @param {number | null} number */
export function openHead(number, view = state.view) {
  const address = number === null ? "#" : `#head=${page.heads[number].name}&number=${number}&view=${view}`;
  const isOpen = location.hash === address || (number === null && !location.hash);
  if (isOpen) window.dispatchEvent(new Event("hashchange"));
  else location.hash = address;
}

/** Opens the head so many further on, if there is one. @param {number} by */
export function step(by) {
  const next = (state.head ?? 0) + by;
  if (page.heads[next]) openHead(next);
}
