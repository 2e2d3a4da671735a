/** What is shown of a survey: its axes, the head, and the heads that are brushed; kept in the page's address. */

import { survey } from "./survey_data.js";

/** @import { SurveyNumbers } from "./types.js" */

export const LAYER = "layer";
export const NOTHING = "";

export const shown = {
  across: survey.axes[0],
  up: survey.axes[1],
  size: survey.axes[2] ?? NOTHING,
  colour: survey.axes[3] ?? LAYER,
  head: 0,
  /** @type {Set<number> | null} */
  brushed: null,
};
const NAMES = /** @type {const} */ (["across", "up", "size", "colour"]);

/** Whether it is the name of a number. @param {string} name */
export function isNumber(name) {
  return name === LAYER || survey.metrics.some((metric, place) => metric.name === name && survey.known[place]);
}

/** Reads what the address says, as far as it is of this survey. */
export function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const name of NAMES) {
    const value = said.get(name);
    if (value !== null && (isNumber(value) || (name === "size" && value === NOTHING))) shown[name] = value;
  }
  const place = survey.heads.indexOf(said.get("head") ?? "");
  if (place >= 0) shown.head = place;
}

/** Writes into the address what is shown. */
export function writeAddress() {
  const said = new URLSearchParams({ head: survey.heads[shown.head] });
  for (const name of NAMES) said.set(name, shown[name]);
  history.replaceState(null, "", `#${said}`);
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
