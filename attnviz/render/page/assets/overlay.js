/** Two to four heads over each other: arcs and text in a hue for each head. */

import { combined } from "./grids.js";
import { cellNumber } from "./quantities.js";
import { titleOfHeads } from "./titles.js";
import { ABSENT, averageOfKeys } from "./values.js";

/** @import { Grid, Mark, Shades } from "./types.js" */

/** Hues that are told apart also by colour-blind readers, on light paper and on dark (Okabe and Ito 2008). */
export const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/** Heads over each other: of each cell the largest weight. @param {Grid[]} all @param {number[]} numbers of the heads @returns {Grid} */
export function overlaid(all, numbers) {
  const [first] = all;
  const about = { ...first, title: titleOfHeads(numbers, "overlay") };
  return { ...combined(about, all, "max"), all, shades: (mark) => shadesOfAll(all, mark), said: (mark) => saidOfAll(all, mark) };
}

/** A token's weights in every head; of each token the largest shades it, in the hue of its head. @param {Grid[]} all @param {Mark | null} mark @returns {Shades} */
function shadesOfAll(all, mark) {
  const [{ queries, keys }] = all;
  const asKey = mark !== null && mark.query === null;
  const place = (asKey ? mark.key : mark?.query) ?? 0;
  const lines = all.map((shown) => (mark ? shown.line(asKey ? "key" : "query", place) : averageOfKeys(shown)));
  const { values, heads } = largestOfEach(lines);
  const colors = heads.map((head) => HUES[head]);
  const label = `“${(asKey ? keys : queries).labels[place]}”`;
  const what = mark ? (asKey ? `what attends to ${label}` : `what ${label} attends to`) : "how much each token is attended to on average";
  const said = `${what}, in the hue of the head with the largest weight`;
  return asKey ? { query: values, key: null, said, colors } : { query: null, key: values, said, colors };
}

/** @param {Grid[]} all @param {Mark} mark @returns {string[]} */
function saidOfAll(all, { query, key }) {
  if (query === null || key === null) return [];
  const weights = all.map((shown) => `${shown.title.replace(/^Head /, "")} ${cellNumber(shown, query, key)}`);
  return ["heads overlaid", `${all[0].queries.labels[query]} → ${all[0].keys.labels[key]}`, weights.join(" · ")];
}

/** The largest of several lines at each place, and which line that is. @param {Float32Array[]} lines */
function largestOfEach(lines) {
  const values = Float32Array.from(lines[0]);
  const heads = Array.from(values, () => 0);
  lines.forEach((line, head) => line.forEach((value, place) => {
    if (value === ABSENT || value <= values[place]) return;
    [values[place], heads[place]] = [value, head];
  }));
  return { values, heads };
}
