/** Why a weight is what it is: the score of a kept pair, feature by feature, of queries and keys that the page holds. */

import { make } from "./elements.js";
import { state } from "./state.js";

/** @import { Shown } from "./types.js" */
/** @import { Factors } from "./factors.js" */

const LISTED = 12; // features with the largest shares

/**
 * The section of a pair: q, k and q·k of the features with the largest shares, and how these make the score.
 *
 * @param {Shown} shown
 * @param {number} query
 * @param {number} key
 */
export function whySection(shown, query, key) {
  const side = shown.sides[state.side === "B" ? 1 : 0];
  if (!side || state.side === "change") return [];
  const heading = make("h3", {}, "why this weight");
  if (!side.factors) {
    const note = "This page holds weights, and no queries and keys: recordings of long texts hold those; attnviz explain --pair shows them of the seeded and the trained model.";
    return [make("section", {}, make("details", {}, make("summary", {}, "Why this weight"), make("p", { className: "hint" }, note)))];
  }
  const factors = /** @type {Factors} */ (side.factors);
  const { features, unit, rounding } = factors;
  const [q, k] = [factors.queries.subarray(query * features, (query + 1) * features), factors.keys.subarray(key * features, (key + 1) * features)];
  const shares = Float64Array.from(q, (number, feature) => number * k[feature] * unit);
  const order = [...shares.keys()].sort((one, two) => Math.abs(shares[two]) - Math.abs(shares[one]));
  const product = shares.reduce((total, share) => total + share, 0);
  const root = Math.sqrt(Math.abs(unit));
  const rows = order.slice(0, LISTED).map((feature) => featureRow(feature, q[feature] * root, k[feature] * root, shares[feature], Math.abs(shares[order[0]])));
  const rest = order.slice(LISTED).reduce((total, feature) => total + shares[feature], 0);
  if (order.length > LISTED) rows.push(sumRow(`${order.length - LISTED} more`, rest));
  rows.push(sumRow("q·k, scaled", product));
  const score = factors.score(query, key);
  if (Math.abs(score - product) > 1e-6) rows.push(sumRow("bias and cap", score - product), sumRow("score", score));
  const head = make("tr", {}, ...["feature", "q", "k", "q·k"].map((name) => make("th", { scope: "col" }, name)));
  const table = make("table", { className: "why" }, make("thead", {}, head), make("tbody", {}, ...rows));
  const exact = rounding ? "q and k in float16; each is scaled so that products are shares of the score." : "q and k are scaled so that products are shares of the score.";
  return [make("section", {}, heading, table, make("p", { className: "hint" }, exact))];
}

/** @param {number} feature @param {number} q @param {number} k @param {number} share @param {number} largest */
function featureRow(feature, q, k, share, largest) {
  const bar = make("b", { className: share < 0 ? "less" : "more" });
  bar.style.width = `${largest ? (100 * Math.abs(share)) / largest : 0}%`;
  const cells = [q, k].map((number) => make("td", {}, written(number)));
  return make("tr", {}, make("th", { scope: "row" }, String(feature)), ...cells, make("td", {}, make("i", {}, bar), written(share)));
}

/** @param {string} name @param {number} value */
function sumRow(name, value) {
  return make("tr", { className: "sum" }, make("th", { scope: "row", colSpan: 3 }, name), make("td", {}, written(value)));
}

/** @param {number} value */
function written(value) {
  return value.toFixed(3).replace("-", "−");
}
