/** Carries out a reader's actions: pointing at a mark, keeping it, letting go of it, and opening another head. */

import { startingSteps } from "./address.js";
import { haveSameTexts, page } from "./data.js";
import { drawInspector } from "./inspector.js";
import { listedHeads } from "./listing.js";
import { tipOf } from "./quantities.js";
import { begun, firstHead, scene, set, state } from "./state.js";

/** @import { Mark, Stage, State, Together, ViewName } from "./types.js" */

/** True if two marks are of the same cell or token. @param {Mark | null} first @param {Mark | null} second */
export function isSameMark(first, second) {
  return (
    first?.query === second?.query && first?.key === second?.key && first?.head === second?.head && !first === !second
  );
}

/** Draws the inspector of the open head. */
export function refreshInspector() {
  drawInspector(scene.shown, chooseListed);
}

/** Draws what is marked. */
export function drawMarks() {
  scene.current?.drawOver();
  scene.strip?.drawOver();
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
export function pointTo(mark, x, y, stage = scene.current?.stage) {
  const { shown } = scene;
  if (!isSameMark(mark, state.mark)) set({ mark });
  if (!shown) return;
  const tip = mark && x !== undefined ? tipOf(stage?.picture.shown ?? shown, mark, stage?.picture) : null;
  stage?.showTip(mark, tip, x, y); // last, since it measures: the browser lays out once
}

/** Keeps a token chosen; the same one again lets go of it. @param {Mark | null} mark */
export function pin(mark) {
  return keepToken(isSameMark(mark, state.pin) ? null : mark);
}

/** Keeps a token, or none. @param {Mark | null} kept */
export function keepToken(kept) {
  if (state.head !== null || state.together) return set({ pin: kept, mark: null });
  const list = kept ? "lens" : state.list === "lens" ? "maps" : state.list;
  return set({ pin: kept, mark: null, list }, { step: list !== state.list });
}

/** @param {Mark} mark */
function chooseListed(mark) {
  pin(mark);
  scene.current?.reveal(mark);
}

/** Lets go of a token, then of the heads that are shown. */
export function letGo() {
  if (state.noting) return set({ noting: false });
  if (state.pin) return pin(state.pin);
  if (state.mark) return set({ mark: null });
  if (state.interval) return set({ interval: null });
  if (state.head === null && !state.together && state.chosen.length) return set({ chosen: [] });
  return openHead(null);
}

/** Opens a head, or all of them, with a token kept. @param {number | null} head @param {ViewName} view @param {Mark | null} kept */
export function openHead(head, view = state.view, kept = state.pin) {
  const before = state.head ?? (state.together ? state.chosen[0] : null);
  const elsewhere = head !== null && before !== null && !haveSameTexts(before, head);
  const pin = elsewhere || (head === null && state.list !== "lens") ? null : kept;
  const list = head === null && state.list === "lens" && !pin ? "maps" : state.list;
  return set({ head, view, together: null, pin, list }, { step: true });
}

/** Opens all heads as rows of the chosen token, or of the one pointed at. */
export function openLens() {
  const mark = state.pin ?? state.mark;
  if (!mark) return;
  const { query, key } = mark;
  const pin = query !== null && key !== null && state.head !== null ? { query, key: null } : { query, key };
  set({ pin, head: null, together: null, list: "lens" }, { step: true });
}

/** The heads that are shown together: those that are chosen, with the open one. */
export function headsTogether() {
  const { head, chosen } = state;
  return head === null || chosen.includes(head) ? chosen : [...chosen, head];
}

/** Shows the chosen heads together. @param {Together} together */
export function showTogether(together) {
  const chosen = headsTogether();
  if (chosen.length > 1) set({ head: null, together, chosen }, { step: true });
}

/**
 * Changes one choice, and what follows from it.
 *
 * @template {keyof State} Name
 * @param {Name} name
 * @param {State[Name]} value
 */
export function choose(name, value) {
  /** @type {Partial<State>} */
  const changes = { [name]: value };
  if (name === "of") changes.steps = stepsTurned(/** @type {State["of"]} */ (value));
  if (name === "scores" && value === "shown") changes.by = "tokens"; // a word has no score
  if (name === "by" && value === "words") changes.scores = "hidden";
  if (name === "direction" && state.pin && page.heads[firstHead()].same) changes.pin = { query: state.pin.key, key: state.pin.query };
  return set(changes);
}

/** The steps of the colours of another quantity: lift is of weights alone. @param {State["of"]} of */
function stepsTurned(of) {
  const turned = startingSteps(of, begun);
  return [startingSteps(state.of, begun), "lift"].includes(state.steps) ? turned : state.steps;
}

/** Opens the listed head so many further on, if there is one. @param {number} by */
export function step(by) {
  const order = listedHeads();
  const here = order.indexOf(state.head ?? -1);
  const next = here < 0 ? (state.head ?? 0) + by : order[here + by];
  if (next !== undefined && page.heads[next]) openHead(next);
}
