/** The keyboard: which key does what, and the search for a token. */

import { choose, headsTogether, isSameMark, letGo, openHead, openLens, pin, showTogether, step } from "./actions.js";
import { hasDirections, hasSpecial, hasWords, LISTS, VIEWS } from "./controls.js";
import { comparing, page, textOf } from "./data.js";
import { one, say } from "./elements.js";
import { stepNotes } from "./notes.js";
import { placeNamed } from "./places.js";
import { spokenOf } from "./quantities.js";
import { heardOf, intervalOf, intervalText, startOf, withMovedEnd } from "./seconds.js";
import { hasScoreMap, showsScores } from "./shown.js";
import { firstHead, hidesSpecial, scene, set, state } from "./state.js";
import { fitView } from "./view.js";

/** @import { Mark, Shown } from "./types.js" */

const ZOOM_STEP = 1.5;

/** @type {Record<string, [number, number]>} how far an arrow moves, down and right */
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Zooms in or out by a step. @param {1 | -1} direction */
export function zoomByStep(direction) {
  scene.current?.stage?.zoom(ZOOM_STEP ** direction);
}

/**
 * What a key does; nothing if it does nothing here.
 *
 * @param {string} key
 * @param {HTMLElement} target
 * @returns {(() => void) | null | undefined}
 */
export function actionOf(key, target) {
  if (comparing && key === "c") return () => choose("side", nextSide());
  if (state.noting && (key === "ArrowLeft" || key === "ArrowRight")) return () => stepNotes(key === "ArrowLeft" ? -1 : 1);
  const { shown } = scene;
  const list = state.head === null && !state.together ? LISTS[Number(key) - 1] : undefined;
  if (list) return () => choose("list", list[0]);
  const view = state.head === null ? undefined : VIEWS[Number(key) - 1];
  if (view) return () => openHead(state.head, view[0]);
  const inView = target.closest(".stage, .words, .patches, .waveform") || target === document.body || target.id === "head-title";
  if (shown && key in ARROWS && inView && (state.view !== "table" || state.head === null)) {
    return () => moveTo(shown, movedMark(shown, key));
  }
  if (key === "Enter" && inView && !target.closest(".token") && state.mark) return () => pin(state.mark);
  return {
    "Shift+ArrowLeft": () => moveEnd(-1),
    "Shift+ArrowRight": () => moveEnd(1),
    "/": () => one("find").focus(),
    f: () => one("filter").focus(),
    a: openLens,
    r: () => hasDirections() && choose("direction", state.direction === "to" ? "from" : "to"),
    t: () => hasSpecial() && choose("special", hidesSpecial() ? "shown" : "hidden"),
    w: () => hasWords() && choose("by", state.by === "tokens" ? "words" : "tokens"),
    v: () => hasScoreMap() && choose("scores", showsScores() ? "hidden" : "shown"),
    d: () => showTogether("difference"),
    m: () => showTogether("mean"),
    "[": () => step(-1),
    "]": () => step(1),
    "+": () => zoomByStep(1),
    "=": () => (headsTogether().length > 1 ? showTogether("side") : zoomByStep(1)),
    "-": () => zoomByStep(-1),
    0: fitView,
    Escape: letGo,
  }[key];
}

/** Moves the end of the kept interval of a sound; without one, it begins at the chosen frame, or is that of the chosen word. @param {number} direction 1 or -1 */
function moveEnd(direction) {
  const [queries, frames] = [textOf(firstHead(), "query"), textOf(firstHead(), "key")];
  if (!frames.seconds) return;
  const { query = null, key = null } = state.mark ?? state.pin ?? {};
  const heard = key === null ? heardOf(queries, query) : null;
  const start = startOf(frames, key ?? 0);
  const interval = heard && !state.interval ? intervalOf(heard) : withMovedEnd(frames, state.interval ?? [start, start], direction);
  set({ interval, mark: null });
  say(interval ? `${intervalText(interval).replace("-", " to ")} s` : "the whole sound");
}

/** The side after the one that is shown. */
function nextSide() {
  return state.side === "A" ? "B" : state.side === "B" ? "change" : "A";
}

/** @param {Shown} shown @param {Mark} mark */
function moveTo(shown, mark) {
  scene.current?.stage?.showTip(null);
  set({ mark });
  scene.current?.reveal(mark);
  scene.strip?.reveal(mark);
  say(spokenOf(shown, mark));
}

/**
 * Where an arrow moves the cell of the matrix, or the token of the other views.
 *
 * @param {Shown} shown
 * @param {string} arrow
 * @returns {Mark}
 */
function movedMark(shown, arrow) {
  const { query, key, head } = state.mark ?? state.pin ?? { query: null, key: null, head: undefined };
  const [down, right] = ARROWS[arrow];
  if (shown.moved) return shown.moved({ query, key, head }, down, right);
  if (state.view === "matrix" || state.together) {
    const isFresh = query === null && key === null;
    const moved = (/** @type {number | null} */ place, /** @type {number} */ by) =>
      isFresh || place === null ? 0 : place + by;
    const grid = scene.current?.stage?.picture.shown ?? shown;
    const cell = grid.cellOf({ query, key });
    return grid.markOf({ query: within(moved(cell.query, down), grid.rows), key: within(moved(cell.key, right), grid.columns) });
  }
  if (state.view === "arcs" && right) {
    const place = query ?? key ?? 0;
    if (right > 0) return { query: null, key: within(place, shown.columns) };
    return { query: within(place, shown.rows), key: null };
  }
  const place = (query ?? key ?? -1) + (down || right);
  if (query === null && key !== null) return { query: null, key: within(place, shown.columns) };
  return { query: within(place, shown.rows), key: null };
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
 * @param {boolean} typing whether the text may go on, and not Enter was pressed
 */
export function findToken(text, typing = false) {
  const { found } = state;
  const texts = textsShown();
  const matches = text ? matchesOf(texts, text) : [];
  const stays = typing && state.head === null && !state.together && state.list !== "lens";
  const place = !matches.length || stays ? -1 : found.text === text ? (found.place + 1) % matches.length : 0;
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
    const [named, { labels }] = [placeNamed(text, wanted), text];
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
