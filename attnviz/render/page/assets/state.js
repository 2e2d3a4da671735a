/** Holds the state of the page, which every action of a reader changes, and the address that encodes it. */

import { firstHeadOf, readAddress, WORDS, writtenAddress } from "./address.js";
import { comparing, hasManyTokens, haveSameTexts, page } from "./data.js";
import { METRIC_NAMES } from "./metrics.js";
import { LAYER } from "./ordering.js";
import { Store } from "./state_store.js";

/** @import { Scene, State } from "./types.js" */

const MAX_TOGETHER = 6; // heads that begin side by side

const [across, up, sized = "", colour = LAYER] = page.survey?.axes ?? ["", "", "", ""];
const isNumber = (/** @type {string} */ name) => name === "" || name === LAYER || METRIC_NAMES.includes(name);
const isHead = (/** @type {number | null} */ head) => head === null || page.heads[head] !== undefined;
const among = (/** @type {string[]} */ names) => (/** @type {string | null} */ name) => name === null || names.includes(name);

/** The heads that stand side by side at first: all, where they are few and over the same tokens. */
const few = beginsTogether() ? [...page.heads.keys()] : [];

function beginsTogether() {
  const count = page.heads.length;
  const asked = page.query !== null || page.sort || page.view !== "matrix" || page.survey; // for another beginning
  return !asked && count > 1 && count <= MAX_TOGETHER && page.heads.every((_, number) => haveSameTexts(0, number));
}

/** The state in which the page begins. @type {Readonly<State>} */
export const begun = {
  head: null,
  view: page.view,
  side: comparing ? "change" : "",
  of: page.quantity,
  limits: page.limits,
  steps: page.steps ?? (hasManyTokens() ? "sqrt" : "linear"),
  size: "",
  list: page.survey ? "points" : "maps",
  chosen: few,
  together: few.length ? "side" : null,
  by: "tokens",
  special: "shown",
  scores: "hidden",
  filter: "",
  sort: page.sort,
  across,
  up,
  sized,
  colour,
  textsBy: "",
  brushed: null,
  noting: false,
  note: 0,
  pool: "mean",
  direction: "to",
  interval: null,
  mark: null,
  pin: page.query === null ? null : { query: page.query, key: null },
  found: { text: "", place: -1, mark: null },
  unknown: "",
};

/** @type {Store<State>} */
const store = new Store(
  begun,
  {
    head: isHead,
    chosen: (heads) => heads.every(isHead),
    view: among(WORDS.view),
    side: among(WORDS.side),
    limits: among(WORDS.limits),
    steps: among(WORDS.steps),
    size: among(WORDS.size),
    list: among(WORDS.list),
    together: among(WORDS.together),
    pool: among(WORDS.pool),
    by: among(WORDS.by),
    special: among(WORDS.special),
    scores: among(WORDS.scores),
    direction: among(WORDS.direction),
    across: isNumber,
    up: isNumber,
    sized: isNumber,
    colour: isNumber,
    textsBy: isNumber,
    brushed: (heads) => heads === null || [...heads].every(isHead),
  },
  ["mark", "noting", "note", "found", "unknown"],
);

/** The values, to be read; `set` changes them. @type {Readonly<State>} */
export const state = store.values;

/** Changes values: see `Store.set`. @type {typeof store.set} */
export const set = (changes, setting) => {
  const moves = Object.keys(changes).some((name) => name !== "mark" && name !== "noting" && name !== "note");
  return store.set(moves ? { unknown: "", ...changes } : changes, setting); // a reader who goes on has read what a link lacked
};

/** Has a listener told of every change. @type {typeof store.subscribe} */
export const subscribe = (listener) => store.subscribe(listener);

/** The drawn objects of the state. @type {Scene} */
export const scene = { shown: null, current: null, strip: null, pointed: null };

const framed = window.parent !== window;

/** Writes what is shown into the address: a step of the browser's history, which a frame has none of, or the same place. */
export function writeAddress(step = false) {
  const address = addressOfView();
  if (address === (location.hash || "#")) return;
  try {
    history[step && !framed ? "pushState" : "replaceState"](null, "", address);
  } catch {
    // A frame without an origin has no address to write: its state is kept all the same.
  }
}

store.write = writeAddress;

/** The address of what is shown now. */
export function addressOfView() {
  return writtenAddress(state, begun, page, zoomOf());
}

/** Opens what an address names, the browser's where no other is given. */
export function followAddress(address = location.hash) {
  const { changes, zoom } = readAddress(address, state, begun, page);
  return set(changes, { written: false, anyway: true, zoom });
}

/** The zoom, and the cell in the middle, where a picture is enlarged. */
function zoomOf() {
  const stage = scene.current?.stage;
  if (!stage || stage.picture.factor <= 1.01) return "";
  const { width, height } = stage;
  const mark = stage.picture.pointAt(width / 2, height / 2, stage.area);
  return `${Number(stage.picture.factor.toPrecision(3))}@${mark?.query ?? 0},${mark?.key ?? 0}`;
}

/** The head whose texts tokens are looked for in. */
export function firstHead() {
  return firstHeadOf(state);
}

/** The number of the recording that is shown; of a change the first. */
export function sideNumber() {
  return state.side === "B" ? 1 : 0;
}
