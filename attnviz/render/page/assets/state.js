/** Holds the state of the page, which every action of a reader changes, and the address that encodes it. */

import { AXES, readAddress, writtenAddress } from "./address.js";
import { firstHeadOf, leavesOut, valueNow } from "./choices.js";
import { batch, computed, signal } from "./core.js";
import { comparing, haveSameTexts, page, takeLevel, textAtLevel } from "./data.js";
import { LAYER } from "./filter.js";
import { METRIC_NAMES } from "./metrics.js";
import { placeNamed } from "./places.js";

/** @import { Axis, Choice, Scene, State, Text } from "./types.js" */

const MAX_TOGETHER = 6; // heads that begin side by side
const MANY_TOKENS = 64; // of a text with more, most weights are small

const [across, up, sized = "", colour = LAYER] = page.survey?.axes ?? ["", "", "", ""];
const isHead = (/** @type {number | null} */ head) => head === null || page.heads[head] !== undefined;

/** The heads that stand side by side at first: all, where they are few and over the same tokens. */
const few = beginsTogether() ? [...page.heads.keys()] : [];

function beginsTogether() {
  const count = page.heads.length;
  const asked = page.query !== null || page.sort || page.view !== "matrix" || page.survey || page.turns || page.overview !== "maps"; // for another beginning
  return !asked && count > 1 && count <= MAX_TOGETHER && page.heads.every((_, number) => haveSameTexts(0, number));
}

/** The state in which the page begins. @type {Readonly<State>} */
const begun = {
  head: null,
  view: page.view,
  side: comparing ? "change" : "",
  of: page.quantity,
  limits: page.limits,
  steps: page.steps ?? (page.texts.some(({ labels }) => labels.length > MANY_TOKENS) ? "sqrt" : "linear"),
  size: "",
  share: page.why?.routes?.begun ?? "2",
  list: page.survey ? "points" : page.overview,
  chosen: few,
  together: few.length ? "side" : null,
  by: page.turns && page.overview === "maps" ? "turns" : "tokens", // a picture is seen before its turns
  special: "",
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
  pooled: false,
  unknown: "",
};

/** @typedef {keyof State} StateName */
const NAMES = /** @type {StateName[]} */ (Object.keys(begun));
/** @type {Set<StateName>} the values that the address does not hold, and that are no step of a reader */
const PASSING = new Set(["mark", "noting", "note", "found", "pooled", "unknown"]);

const signals = /** @type {Record<StateName, { value: any }>} */ (Object.fromEntries(NAMES.map((name) => [name, signal(begun[name])])));

/** What was chosen, also where it means nothing now: the address keeps it. @type {Readonly<State>} */
const chosen = readableValues(signals);

/** The values that hold now, to be read; `set` changes them. A choice that means nothing here is as the page begins. @type {Readonly<State>} */
export const state = readableValues({ ...signals, ...Object.fromEntries(page.table.choices.map((choice) => [choice.name, holding(choice)])) });

/** @param {Record<string, { readonly value: any }>} values @returns {Readonly<State>} */
function readableValues(values) {
  const getters = NAMES.map((name) => [name, { enumerable: true, get: () => values[name].value }]);
  return Object.defineProperties(/** @type {State} */ ({}), Object.fromEntries(getters));
}

/** The value of a choice that holds now; a place is where the reader is. @param {Choice} choice */
function holding(choice) {
  const name = /** @type {StateName} */ (choice.name);
  if (choice.group === "place") return signals[name];
  return computed(() => {
    signals.by.value; // what the page's numbers are of
    const value = valueNow(choice, signals[name].value, String(begun[name]), state, page);
    return name === "special" && !value ? (leavesOut(state, page) ? "hidden" : "shown") : value;
  });
}

/** What is wrong with a value that is to be set; "" for nothing. @param {StateName} name @param {any} value */
function whyNotAllowed(name, value) {
  if (!NAMES.includes(name)) return `nothing is called ${name}`;
  const choice = page.table.choices.find((one) => one.name === name);
  let isAllowed = true;
  if (name === "head") isAllowed = isHead(value);
  if (name === "chosen" || name === "brushed") isAllowed = [...(value ?? [])].every(isHead);
  if (AXES.some(([axis]) => axis === name)) isAllowed = ["", LAYER, ...METRIC_NAMES].includes(value);
  if (choice) isAllowed = value === null || value === begun[name] || choice.values.some(({ word }) => word === value);
  return isAllowed ? "" : `${name} cannot be ${JSON.stringify(value)}`;
}

/** The zoom that the address followed last says, in an object of its own for each address that was followed. */
export const followed = signal({ zoom: /** @type {string | null} */ (null) });

/**
 * Changes values as one change, and writes the address if it holds one of them.
 *
 * @param {Partial<State>} changes
 * @param {{ step?: boolean, written?: boolean }} [setting] `step` if Back undoes the change; not `written` if the address says it already
 * @throws {RangeError} if a value is none of those that are allowed: nothing is changed then
 */
export function set(changes, { step = false, written = true } = {}) {
  const given = /** @type {[StateName, any][]} */ (Object.entries(changes));
  for (const [name, value] of given) {
    const wrong = whyNotAllowed(name, value);
    if (wrong) throw new RangeError(wrong);
  }
  const moves = given.some(([name, value]) => !PASSING.has(name) && !Object.is(chosen[name], value));
  batch(() => {
    if ("by" in changes) takeLevel(changes.by ?? "");
    if (moves && !("unknown" in changes)) signals.unknown.value = ""; // a reader who goes on has read what a link lacked
    for (const [name, value] of given) signals[name].value = value;
    if (moves && written) writeAddress(step);
  });
}

/** The drawn objects of the state. @type {Scene} */
export const scene = { shown: null, current: null, strip: null, pointed: null, asked: null, drawWhy: null };

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

/** The address of what is shown now. */
export function addressOfView() {
  return writtenAddress(chosen, begun, page, zoomOf());
}

/** Opens what an address names, the browser's where no other is given. */
export function followAddress(address = location.hash) {
  const named = new URLSearchParams(address.replace(/^#/, ""));
  if (page.turns && !named.has("by")) {
    const [first, other] = begun.by === "turns" ? /** @type {const} */ (["turns", "tokens"]) : /** @type {const} */ (["tokens", "turns"]);
    const isNamed = (/** @type {Axis} */ axis) => !named.has(axis) || placeNamed(/** @type {Text} */ (textAtLevel(first, 0, axis)), named.get(axis)) !== null;
    if (!(isNamed("query") && isNamed("key"))) address += `&by=${other}`;
  }
  takeLevel(new URLSearchParams(address).get("by") ?? begun.by);
  const { changes, zoom } = readAddress(address, chosen, begun, page);
  batch(() => {
    set(changes, { written: false });
    followed.value = { zoom };
  });
}

/** The zoom, and the cell in the middle, where a picture is enlarged. */
function zoomOf() {
  const stage = scene.current?.stage;
  if (!stage || stage.picture.factor <= 1.01) return "";
  const { width, height } = stage;
  const mark = stage.picture.pointAt(width / 2, height / 2, stage.area);
  return `${Number(stage.picture.factor.toPrecision(3))}@${mark?.query ?? 0},${mark?.key ?? 0}`;
}

/** True if contributions are shown that a page of weights holds besides. */
export function showsMoved() {
  return state.of !== page.quantity;
}

/** True if special tokens are left out of what is shown, and others that take most of the weight. */
export function hidesSpecial() {
  return state.special === "hidden";
}

/** The head whose texts tokens are looked for in. */
export function firstHead() {
  return firstHeadOf(state, page);
}

/** The number of the recording that is shown; of a change the first. */
export function sideNumber() {
  return state.side === "B" ? 1 : 0;
}
