/** What a reader does: points at a mark, keeps it, lets go of it, opens another head. */

import { readAddress, writtenAddress } from "./address.js";
import { haveSameTexts, page } from "./data.js";
import { drawInspector } from "./inspector.js";
import { listedHeads } from "./listing.js";
import { tipOf } from "./quantities.js";
import { state } from "./state.js";

/** @import { Mark, Stage, Together, ViewName } from "./types.js" */

/** What draws everything anew: the page gives it when it starts. @type {{ draw: (zoom?: string | null) => void }} */
export const drawing = { draw: () => {} };

/** What ends the story of notes: they give it. @type {{ story: () => void }} */
export const endings = { story: () => {} };

const framed = window.parent !== window;

/** @param {Mark | null} first @param {Mark | null} second */
function isSameMark(first, second) {
  return (
    first?.query === second?.query && first?.key === second?.key && first?.head === second?.head && !first === !second
  );
}

/** Draws the inspector of the open head. */
export function refreshInspector() {
  drawInspector(state.shown, chooseListed);
}

/** Draws what is marked. */
export function drawMarks() {
  state.current?.drawOver();
  state.strip?.drawOver();
  refreshInspector();
}

/**
 * Points at a mark, or at nothing; the tip stands beside x and y.
 *
 * @param {Mark | null} mark
 * @param {number} [x]
 * @param {number} [y]
 * @param {Stage | undefined} [stage]
 */
export function pointTo(mark, x, y, stage = state.current?.stage) {
  const { shown } = state;
  if (!shown) return;
  if (!isSameMark(mark, state.mark)) {
    state.mark = mark;
    drawMarks();
  }
  const tip = mark && x !== undefined ? tipOf(stage?.picture.shown ?? shown, mark, stage?.picture) : null;
  stage?.showTip(mark, tip, x, y); // last, since it measures: the browser lays out once
}

/** Keeps a token chosen; the same one again lets go of it. @param {Mark | null} mark */
export function pin(mark) {
  state.pin = isSameMark(mark, state.pin) ? null : mark;
  state.mark = null;
  if (state.head !== null || state.together) {
    drawMarks();
    if (state.pin) state.strip?.reveal(state.pin);
    return writeAddress();
  }
  const before = state.list;
  state.list = state.pin ? "lens" : state.list === "lens" ? "maps" : state.list;
  if (before !== state.list) return go();
  writeAddress();
  drawing.draw();
}

/** @param {Mark} mark */
function chooseListed(mark) {
  pin(mark);
  state.current?.reveal(mark);
}

/** Lets go of a token, then of the heads that are shown. */
export function letGo() {
  if (state.noting) return endings.story();
  if (!state.pin && !state.mark) return openHead(null);
  state.mark = null;
  if (state.pin) pin(state.pin);
  else drawMarks();
}

/** Opens a head, or all of them. @param {number | null} number @param {ViewName} view */
export function openHead(number, view = state.view) {
  const before = state.head ?? (state.together ? state.chosen[0] : null);
  if (number !== null && before !== null && !haveSameTexts(before, number)) state.pin = null;
  if (number === null && state.list !== "lens") state.pin = null;
  if (number === null && state.list === "lens" && !state.pin) state.list = "maps";
  [state.head, state.view, state.together] = [number, view, null];
  go();
}

/** Opens all heads as rows of the chosen token, or of the one pointed at. */
export function openLens() {
  const mark = state.pin ?? state.mark;
  if (!mark) return;
  state.pin = { query: mark.query, key: mark.key };
  if (mark.query !== null && mark.key !== null && state.head !== null) state.pin.key = null;
  [state.head, state.together, state.list] = [null, null, "lens"];
  go();
}

/** Shows the chosen heads together. @param {Together} together */
export function showTogether(together) {
  if (state.chosen.length < 2) return;
  [state.head, state.together] = [null, together];
  go();
}

/** Goes where the state says: a new place of the browser's history, which a frame has none of. */
function go() {
  keepAddress(framed ? "replaceState" : "pushState");
  drawing.draw();
}

/** Writes what is shown into the address, as the same place of the history. */
export function writeAddress() {
  keepAddress("replaceState");
}

/** @param {"pushState" | "replaceState"} method */
function keepAddress(method) {
  const address = writtenAddress();
  if (address === (location.hash || "#")) return;
  try {
    history[method](null, "", address);
  } catch {
    // A frame without an origin has no address to write: its state is kept all the same.
  }
}

/** Opens what an address names, the browser's where no other is given. */
export function followAddress(address = location.hash) {
  drawing.draw(readAddress(address));
}

/** Opens the listed head so many further on, if there is one. @param {number} by */
export function step(by) {
  const order = listedHeads();
  const here = order.indexOf(state.head ?? -1);
  const next = here < 0 ? (state.head ?? 0) + by : order[here + by];
  if (next !== undefined && page.heads[next]) openHead(next);
}
