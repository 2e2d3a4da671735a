/** What is shown of a survey, in a store as that of the heads' page: its axes, the head, and the heads that are listed. */

import { parseFilter } from "./filter.js";
import { linkOf } from "./links.js";
import { inOrder, orderedBy } from "./ordering.js";
import { Store } from "./state_store.js";
import { survey } from "./survey_data.js";

/** @import { DescribedHead, SurveyNumbers, SurveyState } from "./types.js" */

export const LAYER = "layer";
export const NOTHING = "";

const NAMES = /** @type {const} */ (["across", "up", "size", "colour"]);
const isHead = (/** @type {number} */ head) => survey.heads[head] !== undefined;

/** @type {SurveyState} */
const begun = {
  across: survey.axes[0],
  up: survey.axes[1],
  size: survey.axes[2] ?? NOTHING,
  colour: survey.axes[3] ?? LAYER,
  head: 0,
  brushed: null,
  filter: "",
  sort: "",
};

/** @type {Store<SurveyState>} */
const store = new Store(
  begun,
  {
    head: isHead,
    across: isNumber,
    up: isNumber,
    colour: isNumber,
    size: (name) => name === NOTHING || isNumber(name),
    brushed: (heads) => heads === null || [...heads].every(isHead),
    sort: (sort) => !sort || isNumber(orderedBy(sort)),
  },
  [],
);

/** The values, to be read; `show` changes them. @type {Readonly<SurveyState>} */
export const shown = store.values;

/** Changes values: see `Store.set`. @type {typeof store.set} */
export const show = (changes, setting) => store.set(changes, setting);

/** Has a listener told of every change. @type {typeof store.subscribe} */
export const listenToSurvey = (listener) => store.subscribe(listener);

/** Whether it is the name of a number. @param {string} name */
export function isNumber(name) {
  return name === LAYER || survey.metrics.some((metric, place) => metric.name === name && survey.known[place]);
}

/** Shows what the address says, as far as it is of this survey; what it does not say is as the page begins. */
export function followSurveyAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  /** @type {Partial<SurveyState>} */
  const changes = { filter: said.get("filter") ?? "", brushed: brushedOf(said.get("brushed")) };
  for (const name of NAMES) {
    const value = said.get(name);
    if (value !== null && (isNumber(value) || (name === "size" && value === NOTHING))) changes[name] = value;
  }
  const [head, sort] = [survey.heads.indexOf(said.get("head") ?? ""), said.get("sort") ?? ""];
  if (head >= 0) changes.head = head;
  changes.sort = isNumber(orderedBy(sort)) ? sort : "";
  return show(changes, { written: false, anyway: true });
}

/** @param {string | null} names */
function brushedOf(names) {
  const heads = (names ?? "").split(",").map((name) => survey.heads.indexOf(name)).filter((head) => head >= 0);
  return heads.length ? new Set(heads) : null;
}

/** Writes what is shown into the address. */
export function writeSurveyAddress() {
  /** @type {[string, string][]} */
  const parts = [["head", survey.heads[shown.head]], ...NAMES.map((name) => /** @type {[string, string]} */ ([name, shown[name]]))];
  if (shown.filter) parts.push(["filter", shown.filter]);
  if (shown.sort) parts.push(["sort", shown.sort]);
  if (shown.brushed) parts.push(["brushed", [...shown.brushed].map((head) => survey.heads[head]).join(",")]);
  try {
    history.replaceState(null, "", linkOf(parts));
  } catch {
    // A frame without an origin has no address to write: its state is kept all the same.
  }
}

store.write = writeSurveyAddress;

/** The heads that are brushed and that the filter leaves, in their order, and what is wrong with the filter. @param {SurveyNumbers} numbers */
export function listedOfSurvey(numbers) {
  const { keeps, wrong } = parseFilter(shown.filter, survey.metrics.map(({ name }) => name).filter(isNumber));
  const all = [...survey.heads.keys()].filter((head) => (shown.brushed?.has(head) ?? true) && keeps(describedHead(numbers, head)));
  const sort = shown.sort || shown.across;
  return { heads: inOrder(all, sort, (head) => numberOf(numbers, head, orderedBy(sort))), wrong };
}

/** @param {SurveyNumbers} numbers @param {number} head @returns {DescribedHead} */
function describedHead(numbers, head) {
  const [layer, number] = survey.heads[head].split(".").map(Number);
  const found = survey.metrics.map(({ name }) => [name, numberOf(numbers, head, name)]);
  return { layer, head: number, kind: "self", pattern: survey.patterns[head], numbers: Object.fromEntries(found) };
}

/** The number of a head by its name. @param {SurveyNumbers} numbers @param {number} head @param {string} name */
export function numberOf(numbers, head, name) {
  if (name === LAYER) return survey.layers[head];
  return numbers.means[head * survey.metrics.length + placeOf(name)];
}

/** Where a metric stands. @param {string} name */
export function placeOf(name) {
  return survey.metrics.findIndex((metric) => metric.name === name);
}

/** A number as it is written. @param {number} value @param {string} name */
export function written(value, name) {
  if (Number.isNaN(value)) return "–";
  if (name === LAYER) return String(value);
  const { unit } = survey.metrics[placeOf(name)];
  return unit === "tokens" ? value.toFixed(1) : value.toFixed(unit === "share" ? 3 : 2);
}
