/** Explains a weight: the score of a kept pair, feature by feature, from queries and keys. */

import { page } from "./data.js";
import { make } from "./elements.js";
import { readScores, scoreFactorsOf } from "./numbers.js";
import { state } from "./state.js";

/** @import { Grid, ScoreFactors, Shown } from "./types.js" */

const LISTED = 12; // features with the largest shares
const SMALL = 5e-4; // a difference that three decimals do not show
const RECORD = "attnviz show TEXT --model MODEL --set dense=false -o run.safetensors";

/**
 * The section of a pair: q, k and q·k of the features with the largest shares, and how these make the score; or the
 * command that writes a page with them.
 *
 * @param {Shown} shown
 * @param {number} query
 * @param {number} key
 * @param {() => void} redraw called when queries and keys were read
 */
export function whySection(shown, query, key, redraw) {
  const place = state.side === "B" ? 1 : 0;
  const side = shown.sides[place];
  if (!side || state.side === "change") return [];
  const factors = side.factors ?? scoreFactorsOf(shown.number, place);
  if (factors) return [make("section", {}, make("h3", {}, "why this weight"), ...explained(side, factors, query, key))];
  if (!page.scores) return [elsewhere(shown.number)];
  readScores().then(redraw);
  return [];
}

/** The table of a pair, and how exact it is. @param {Grid} side @param {ScoreFactors} factors @param {number} query @param {number} key */
function explained(side, { queries, keys, features, unit, rounding }, query, key) {
  const [q, k] = [queries.subarray(query * features, (query + 1) * features), keys.subarray(key * features, (key + 1) * features)];
  const shares = Float64Array.from(q, (number, feature) => number * k[feature] * unit);
  const order = [...shares.keys()].sort((one, two) => Math.abs(shares[two]) - Math.abs(shares[one]));
  const product = shares.reduce((total, share) => total + share, 0);
  const root = Math.sqrt(Math.abs(unit));
  const rows = order.slice(0, LISTED).map((feature) => featureRow(feature, q[feature] * root, k[feature] * root, shares[feature], Math.abs(shares[order[0]])));
  const rest = order.slice(LISTED).reduce((total, feature) => total + shares[feature], 0);
  if (order.length > LISTED) rows.push(sumRow(`${order.length - LISTED} more`, rest));
  rows.push(sumRow("q·k, scaled", product), ...scoreRows(side, product, shares, rounding, query, key));
  const head = make("tr", {}, ...["feature", "q", "k", "q·k"].map((name) => make("th", { scope: "col" }, name)));
  const table = make("table", { className: "why" }, make("thead", {}, head), make("tbody", {}, ...rows));
  const exact = rounding ? `q·k is right to ${(100 * rounding).toPrecision(1)} %, since q and k are rounded. ` : "";
  return [table, make("p", { className: "hint" }, `${exact}q and k are scaled so that products are shares of the score.`)];
}

/**
 * The score as the page knows it, and what stands between it and the product.
 *
 * @param {Grid} side
 * @param {number} product
 * @param {Float64Array} shares
 * @param {number} rounding
 * @param {number} query
 * @param {number} key
 */
function scoreRows(side, product, shares, rounding, query, key) {
  const score = side.score(query, key);
  if (!score || !("value" in score) || !Number.isFinite(score.value)) return [];
  const difference = score.value - product;
  if (Math.abs(difference) < SMALL) return [];
  const bound = score.error + rounding * shares.reduce((total, share) => total + Math.abs(share), 0);
  return [sumRow(Math.abs(difference) <= bound ? "rounding" : "bias and cap", difference), sumRow("score", score.value)];
}

/** The command that writes a page which explains a head's scores. @param {number} number */
function elsewhere(number) {
  const { name } = page.heads[number];
  const [note, line] = page.command.compares
    ? ["The page of a comparison holds no queries and keys; that of one run does:", "attnviz show TEXT --model MODEL -o page.html"]
    : page.command.remark
      ? ["This page holds no queries and keys: there are none, or too many. Record them, and write a page of few heads:", RECORD]
      : ["This page holds no queries and keys: there are none, or too many. This writes a page of the head alone:", `${page.command.input} --heads ${name} -o head-${name}.html`];
  return make("section", {}, make("h3", {}, "why this weight"), make("p", { className: "hint" }, note), make("code", { className: "line" }, line));
}

/** @param {number} feature @param {number} q @param {number} k @param {number} share @param {number} largest */
function featureRow(feature, q, k, share, largest) {
  const bar = make("b", { className: share < 0 ? "less" : "more" });
  bar.style.width = `${largest ? (100 * Math.abs(share)) / largest : 0}%`;
  const cells = [q, k].map((number) => make("td", {}, shownNumber(number)));
  return make("tr", {}, make("th", { scope: "row" }, String(feature)), ...cells, make("td", {}, make("i", {}, bar), shownNumber(share)));
}

/** @param {string} name @param {number} value */
function sumRow(name, value) {
  return make("tr", { className: "sum" }, make("th", { scope: "row", colSpan: 3 }, name), make("td", {}, shownNumber(value)));
}

/** @param {number} value */
function shownNumber(value) {
  return value.toFixed(3).replace("-", "−");
}
