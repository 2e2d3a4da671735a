/** The token lens: one token's row in every listed head, heads below each other, and the layers' means below them. */

import { combinedOf } from "./combining.js";
import { haveSameTexts, headName, page, seenBy, textOf } from "./data.js";
import { lineByUnits } from "./grids.js";
import { listedHeads, sortMetric } from "./listing.js";
import { noteOf } from "./metrics.js";
import { askLines } from "./numbers.js";
import { weightText } from "./quantities.js";
import { leastHigh, scaleOf, unitsNow } from "./shown.js";
import { sideNumber, state } from "./state.js";
import { ABSENT, changeOf, kept, largestOf, strongestOf } from "./values.js";

/** @import { Axis, Grid, Mark } from "./types.js" */

const MOST_NAMED = 3; // heads that look most at a token
const REDRAWN_AFTER = 250; // milliseconds, while lines arrive

/** One token in the listed heads: a row a head, then a row a layer; cells are known as their lines arrive. @implements {Grid} */
export class TokenLens {
  title = "All heads";
  same = false;
  values = null;
  /** @type {Grid[]} none: a row is another head */
  sides = [];
  score = () => null;
  errorAt = () => null;
  isKnown = () => true;
  /** @type {number[]} a row each */
  heads = [];
  /** @type {number[]} a row each, below the heads */
  layers = [];
  /** @type {Map<number, Float32Array>} of heads, token by token */
  lines = new Map();
  /** @type {Map<number, Float32Array>} of layers */
  means = new Map();
  /** @type {WeakMap<Float32Array, Float32Array>} lines by what the columns stand for */
  sums = new WeakMap();
  rows = 0;
  queries = { labels: [""], spaces: " " };

  /** @param {Mark} token @param {() => void} redraw called while lines arrive */
  constructor(token, redraw) {
    /** @type {Axis} */
    this.axis = token.query !== null ? "query" : "key";
    this.place = token.query ?? token.key ?? 0;
    this.number = listedHeads()[0] ?? 0;
    this.side = state.side;
    this.of = state.of;
    this.token = textOf(this.number, this.axis, sideNumber());
    this.tokens = textOf(this.number, this.axis === "query" ? "key" : "query", sideNumber());
    this.units = unitsNow(this.tokens);
    this.keys = this.units?.text ?? this.tokens;
    this.columns = this.keys.labels.length;
    this.arrange();

    let last = performance.now();
    askLines(this.heads, this.axis, this.place, (lines, number) => {
      this.lines.set(number, this.side === "change" ? changeOf(lines[0], lines[1]) : lines[sideNumber()]);
      this.means.clear();
      if (!this.whole && performance.now() - last < REDRAWN_AFTER) return;
      last = performance.now();
      if (this.whole) this.arrange();
      redraw();
    });
  }

  /** Takes the heads in their order now, and the layers below them. */
  arrange() {
    const listed = listedHeads().filter((number) => haveSameTexts(number, this.number));
    this.heads = this.sorted(listed);
    const layers = [...new Set(listed.map((number) => page.heads[number].layer))].sort((one, two) => one - two);
    this.layers = layers.length > 1 || this.heads.length > 1 ? layers : [];
    const labels = [
      ...this.heads.map((number) => [headName(number), noteOf(number)].filter(Boolean).join(" · ")),
      ...(this.layers.length ? [""] : []),
      ...this.layers.map((layer) => `layer ${layer}, mean`),
    ];
    this.queries = { labels, spaces: " ".repeat(labels.length) };
    this.rows = labels.length;
    this.means.clear();
  }

  /** By a metric, by the weight on the column of a second token, or by the largest weight of those shown. @param {number[]} listed */
  sorted(listed) {
    const column = state.pin && this.columnOf(state.pin);
    if (sortMetric() || (column === null && state.sort !== "weight")) return listed;
    const size = (/** @type {number} */ number) => {
      const tokens = this.lines.get(number);
      if (!tokens) return -1;
      const line = this.inUnits(tokens);
      return column === null ? largestOf(line) : line[column] === ABSENT ? -0.5 : Math.abs(line[column]);
    };
    return [...listed].sort((one, two) => size(two) - size(one) || one - two);
  }

  get whole() {
    return this.heads.every((number) => this.lines.has(number));
  }

  get scale() {
    const scale = scaleOf(this.number);
    if (scale.steps === "lift" || page.fixed || this.columns < 2) return scale;
    let high = 0;
    for (const row of this.heads.keys()) high = Math.max(high, largestOf(this.lineOf(row) ?? []));
    return high ? { ...scale, high: scale.change ? Math.min(high, page.reach) : Math.min(Math.max(high, leastHigh()), 1) } : scale;
  }

  /** The line of a row by what the columns stand for; nothing before it is known. @param {number} row */
  lineOf(row) {
    const line = this.tokenLine(row);
    return line && this.inUnits(line);
  }

  /** @param {Float32Array} line */
  inUnits(line) {
    const { units } = this;
    return units ? kept(this.sums, line, () => lineByUnits(line, units)) : line;
  }

  /** The line of a row, token by token. @param {number} row */
  tokenLine(row) {
    const number = this.heads[row];
    if (number !== undefined) return this.lines.get(number) ?? null;
    const layer = this.layers[row - this.heads.length - 1];
    if (layer === undefined) return null;
    const mean = this.means.get(layer) ?? this.meanOf((head) => page.heads[head].layer === layer);
    if (mean) this.means.set(layer, mean);
    return mean;
  }

  /** The mean of the listed heads that are kept, of those that are known; nothing before one is. @param {(number: number) => boolean} [keeps] */
  meanOf(keeps = () => true) {
    const lines = this.heads.flatMap((number) => (keeps(number) ? (this.lines.get(number) ?? []) : []));
    return lines.length ? combinedOf(lines, "mean") : null;
  }

  /** The heads with the largest weights on a token, and these. @param {number} token @param {number} most */
  headsOn(token, most) {
    const weights = Float32Array.from(this.heads, (number) => this.lines.get(number)?.[token] ?? ABSENT);
    return strongestOf(weights, most).map((row) => ({ number: this.heads[row], value: weights[row] }));
  }

  /** The rows of the layers' means, each with the column of its largest weight. */
  layerRows() {
    return this.layers.map((layer, place) => {
      const row = this.heads.length + 1 + place;
      const line = this.lineOf(row);
      const [column] = line ? strongestOf(line, 1) : [];
      return { layer, row, column, value: line?.[column] ?? ABSENT };
    });
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    return this.lineOf(row)?.[column] ?? ABSENT;
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    if (axis === "query") return this.lineOf(place) ?? new Float32Array(this.columns).fill(ABSENT);
    return Float32Array.from({ length: this.rows }, (_, row) => this.at(row, place));
  }

  /** @param {number} row @param {number} column */
  seen(row, column) {
    return seenBy(this.heads[row] ?? this.number, sideNumber())[this.axis === "query" ? Math.max(0, this.place) : column] ?? 1;
  }

  /** The column of a mark's second token. @param {Mark} mark */
  columnOf(mark) {
    const other = this.axis === "query" ? mark.key : mark.query;
    return other === null || !this.units ? other : this.units.unitOf(other);
  }

  /** The row of a mark's head, and the column of its second token; of one that is pointed at in the text its own. @param {Mark} mark @returns {Mark} */
  cellOf(mark) {
    const row = mark.head === undefined ? -1 : this.heads.indexOf(mark.head);
    const turned = { query: mark.key, key: mark.query };
    return { query: row < 0 ? null : row, key: this.columnOf(mark) ?? (mark === state.pin ? null : this.columnOf(turned)) };
  }

  /** The token with that of a column, or alone, in the head of a row. @param {Mark} cell @returns {Mark} */
  markOf({ query: row, key: column }) {
    const other = column !== null && this.units ? this.units.starts[column] : column;
    const place = this.place < 0 ? null : this.place;
    const pair = this.axis === "query" ? { query: place, key: other } : { query: other, key: place };
    const head = this.heads[row ?? -1];
    return head === undefined ? pair : { ...pair, head };
  }

  /** @param {Mark} mark @returns {string[]} */
  said(mark) {
    const column = this.columnOf(mark);
    if (column === null) return [];
    const { query: row } = this.cellOf(mark);
    const pair = [this.place < 0 ? "mean of all queries" : this.token.labels[this.place], this.keys.labels[column]];
    const words = (this.axis === "query" ? pair : pair.reverse()).join(" → ");
    const mean = this.meanOf();
    const value = row !== null ? this.at(row, column) : mean ? this.inUnits(mean)[column] : ABSENT;
    return [row === null ? "mean of the heads" : this.queries.labels[row], words, weightText(value, this.side === "change")];
  }

  /** @param {Mark | null} mark */
  shades(mark) {
    const row = mark ? this.cellOf(mark).query : null;
    const values = row === null ? this.meanOf() : this.tokenLine(row);
    const what = row === null ? "on average over these heads" : `in head ${this.queries.labels[row]}`;
    const token = this.place < 0 ? "the mean of all queries" : `“${this.token.labels[this.place]}”`;
    const heads = row === null ? (/** @type {number} */ place) => this.headsOn(place, MOST_NAMED) : undefined;
    return this.axis === "query"
      ? { query: null, key: values, heads, said: `what ${token} attends to, ${what}` }
      : { query: values, key: null, heads, said: `what attends to ${token}, ${what}` };
  }

  /** @param {Mark} mark @param {number} down @param {number} right @returns {Mark} */
  moved(mark, down, right) {
    const query = Math.min(this.heads.length - 1, Math.max(0, (this.cellOf(mark).query ?? -1) + down));
    return this.markOf({ query, key: Math.min(this.columns - 1, Math.max(0, (this.columnOf(mark) ?? 0) + right)) });
  }
}
