/** Carries out a reader's actions: pointing, keeping, letting go, choosing, opening another head, finding a token. */

import { changesOf, choiceOf, headsTogether } from "./choices.js";
import { haveSameTexts, level, page, placeAtOtherLevel, textOf } from "./data.js";
import { one, say } from "./elements.js";
import { drawInspector } from "./inspector.js";
import { listedHeads } from "./listing.js";
import { heardOf, intervalOf, intervalText, placeNamed, startOf, withMovedEnd } from "./places.js";
import { spokenOf, tipOf } from "./quantities.js";
import { firstHead, scene, set, state } from "./state.js";

/** @import { Axis, ChoiceName, Mark, Shown, Stage, State, Together, ViewName } from "./types.js" */

const ZOOM_STEP = 1.5;

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
 * Points at a mark, or at nothing; the tip stands beside x and y. Of heads side by side, numbers and shades are from then
 * on of the one that was pointed at, or of all if a token of the text was.
 *
 * @param {Mark | null} mark
 * @param {number} [x]
 * @param {number} [y]
 * @param {Stage} [pointed]
 */
export function pointTo(mark, x, y, pointed) {
  const stage = pointed ?? scene.current?.stage;
  const head = pointed ? (pointed.picture.shown.source ?? pointed.picture.shown) : scene.current?.all;
  const isBeside = (scene.current?.stages?.length ?? 0) > 1;
  if (mark && isBeside && head?.queries === scene.shown?.queries && head?.keys === scene.shown?.keys) scene.shown = head ?? null;
  const { shown } = scene;
  if (!isSameMark(mark, state.mark)) set({ mark });
  if (!shown) return;
  const tip = mark && x !== undefined ? tipOf(stage?.picture.shown ?? shown, mark, stage?.picture) : null;
  stage?.showTip(mark, tip, x, y);
}

/** Keeps a token chosen; the same one again lets go of it. @param {Mark | null} mark */
export function pin(mark) {
  return keepToken(isSameMark(mark, state.pin) ? null : mark);
}

/** Keeps a token, or none. @param {Mark | null} kept */
export function keepToken(kept) {
  if (state.head !== null || state.together) return set({ pin: kept, mark: null });
  const list = state.list === "why" ? "why" : kept ? "lens" : state.list === "lens" ? "maps" : state.list;
  const { direction } = state; // which no button shows in maps: what was chosen elsewhere does not turn the token here
  return set({ pin: kept, mark: null, list, direction }, { step: list !== state.list });
}

/** Leaves a turn for one of its tokens. @param {number} token */
export function openToken(token) {
  const pin = state.direction === "from" ? { query: null, key: token } : { query: token, key: null };
  const list = state.head === null && !state.together ? "lens" : state.list;
  return set({ ...changesOf(choiceOf("by", page), "tokens"), pin, mark: null, list }, { step: true });
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

/** Shows the chosen heads together. @param {Together} together */
function showTogether(together) {
  const chosen = headsTogether(state);
  if (chosen.length > 1) set({ head: null, together, chosen }, { step: true });
}

/** Chooses a value, and what follows from it. @param {ChoiceName} name @param {string} word */
export function choose(name, word) {
  if (name === "view") return openHead(state.head, /** @type {ViewName} */ (word));
  if (name === "together") return showTogether(/** @type {Together} */ (word));
  /** @type {Partial<State>} */
  const changes = changesOf(choiceOf(name, page), word);
  if (name === "by" && page.turns && (word === "turns") !== (level.name === "turns") && state.pin) {
    const at = (/** @type {Axis} */ axis) => placeAtOtherLevel(firstHead(), axis, state.pin?.[axis] ?? null, level.name);
    changes.pin = { query: at("query"), key: at("key") };
    changes.mark = null;
  }
  if (name === "direction" && state.pin && page.heads[firstHead()].same) changes.pin = { query: state.pin.key, key: state.pin.query };
  return set(changes);
}

/** Opens the listed head so many further on, if there is one. @param {number} by */
export function step(by) {
  const order = listedHeads();
  const here = order.indexOf(state.head ?? -1);
  const next = here < 0 ? (state.head ?? 0) + by : order[here + by];
  if (next !== undefined && page.heads[next]) openHead(next);
}

/** Zooms in or out by steps. @param {number} steps */
export function zoomBy(steps) {
  scene.current?.stage?.zoom(ZOOM_STEP ** steps);
}

/** Shows the whole of a picture. */
export function fitView() {
  const stage = scene.current?.stage;
  if (!stage) return;
  stage.picture.factor = 1;
  stage.fit();
  stage.moved();
}

/** Moves the end of the kept interval of a sound; without one, it begins at the chosen frame, or is that of the chosen word. @param {number} direction 1 or -1 */
export function moveEnd(direction) {
  const [queries, frames] = [textOf(firstHead(), "query"), textOf(firstHead(), "key")];
  if (!frames.seconds) return;
  const { query = null, key = null } = state.mark ?? state.pin ?? {};
  const heard = key === null ? heardOf(queries, query) : null;
  const start = startOf(frames, key ?? 0);
  const interval = heard && !state.interval ? intervalOf(heard) : withMovedEnd(frames, state.interval ?? [start, start], direction);
  set({ interval, mark: null });
  say(interval ? `${intervalText(interval).replace("-", " to ")} s` : "the whole sound");
}

/** Moves the mark by cells, or by tokens where no cells are. @param {number} down @param {number} right */
export function moveMark(down, right) {
  const { shown } = scene;
  if (!shown) return;
  const mark = movedMark(shown, down, right);
  scene.current?.stage?.showTip(null);
  set({ mark });
  scene.current?.reveal(mark);
  scene.strip?.reveal(mark);
  say(spokenOf(shown, mark));
}

/** @param {Shown} shown @param {number} down @param {number} right @returns {Mark} */
function movedMark(shown, down, right) {
  const mark = state.mark ?? state.pin ?? { query: null, key: null };
  if (shown.moved) return shown.moved(mark, down, right);
  const grid = scene.current?.stage?.picture.shown ?? shown;
  const { query, key } = grid.cellOf(mark);
  const isFresh = query === null && key === null;
  if (state.view === "matrix" || state.together) {
    const moved = (/** @type {number | null} */ place, /** @type {number} */ by) => (isFresh || place === null ? 0 : place + by);
    return grid.markOf({ query: within(moved(query, down), grid.rows), key: within(moved(key, right), grid.columns) });
  }
  const turns = state.view === "arcs" && right !== 0;
  const place = (query ?? key ?? (turns ? 0 : -1)) + (turns ? 0 : down || right);
  const asKey = turns ? right > 0 : query === null && key !== null;
  return grid.markOf(asKey ? { query: null, key: within(place, grid.columns) } : { query: within(place, grid.rows), key: null });
}

/** @param {number} place @param {number} count */
function within(place, count) {
  return Math.min(count - 1, Math.max(0, place));
}

/**
 * Finds the next token with the text in its label, queries first, and chooses it; while a reader types in the list of all
 * heads, which choosing a token would leave, it is only named.
 *
 * @param {string} text
 * @param {{ typing?: boolean, by?: number }} [how] `typing` if the text may go on and Enter was not pressed; how many matches further on
 */
export function findToken(text, { typing = false, by = 1 } = {}) {
  const { found } = state;
  const texts = textsShown();
  const matches = text ? matchesOf(texts, text) : [];
  const stays = typing && state.head === null && !state.together && state.list !== "lens";
  const place = !matches.length || stays ? -1 : found.text === text ? (found.place + by + matches.length) % matches.length : 0;
  const mark = matches[Math.max(0, place)] ?? null;
  set({ found: { text, place, mark: place < 0 ? null : mark } });
  if (!mark) {
    if (found.mark && isSameMark(found.mark, state.pin)) pin(state.pin); // it has not what was typed since
    return sayFound(text ? `No token has “${text}”.` : "");
  }
  const label = mark.query !== null ? texts.queries.labels[mark.query] : texts.keys.labels[mark.key ?? 0];
  sayFound(`“${label}”, ${Math.max(0, place) + 1} of ${matches.length}${stays ? "; Enter shows it" : ""}`);
  if (stays) return;
  const focused = document.activeElement;
  if (!isSameMark(mark, state.pin)) pin(mark);
  scene.current?.reveal(mark);
  scene.strip?.reveal(mark);
  if (focused instanceof HTMLElement) focused.focus();
}

/** Tells a reader beside the field what was found, and a screen reader. @param {string} text */
function sayFound(text) {
  one("found").textContent = text;
  say(text);
}

/** The texts that tokens are looked for in. */
function textsShown() {
  const number = firstHead();
  const { same } = page.heads[number];
  return { queries: textOf(number, "query"), keys: textOf(number, "key"), same };
}

/** The token that a text names, then those with the text in their label. @param {ReturnType<typeof textsShown>} texts @param {string} wanted @returns {Mark[]} */
function matchesOf({ queries, keys, same }, wanted) {
  const places = (/** @type {import("./types.js").Text} */ text) => {
    const [named, { labels }] = [placeNamed(text, wanted, "key"), text];
    const others = [...labels.keys()].filter((place) => place !== named && lower(labels[place]).includes(lower(wanted)));
    return [...(named === null ? [] : [named]), ...byNearness(labels, lower(wanted), others)];
  };
  const asQueries = places(queries).map((query) => ({ query, key: null }));
  if (same) return state.direction === "to" ? asQueries : asQueries.map(({ query }) => ({ query: null, key: query }));
  return [...asQueries, ...places(keys).map((key) => ({ query: null, key }))];
}

/** The whole labels first, then those that begin so. @param {string[]} labels @param {string} wanted @param {number[]} places */
function byNearness(labels, wanted, places) {
  const far = (/** @type {number} */ place) => {
    const label = lower(labels[place]).trim();
    return label === wanted.trim() ? 0 : label.startsWith(wanted) ? 1 : 2;
  };
  return places.sort((one, two) => far(one) - far(two) || one - two);
}

/** @param {string} text */
function lower(text) {
  return text.toLocaleLowerCase();
}
