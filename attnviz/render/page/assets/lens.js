/** The token lens: one token's row in every listed head, heads below each other, and the layers' means below them. */

import { theComputer } from "./computer.js";
import { haveSameTexts, headName, page, textOf } from "./data.js";
import { scaleOf } from "./head_scales.js";
import { listedHeads, sortMetric } from "./listing.js";
import { noteOf } from "./metrics.js";
import { weightText } from "./quantities.js";
import { seenBy } from "./seen.js";
import { sideNumber, state } from "./state.js";
import { combinedOf } from "./combining.js";
import { sumsOf, unitsNow } from "./units.js";
import { ABSENT, changeOf, largestOf, strongestOf } from "./values.js";

/** @import { Axis, Mark, Shown, Side } from "./types.js" */

const REDRAWN_AFTER = 250; // milliseconds, while lines arrive

/** One token in the listed heads: a row a head, then a row a layer. @implements {Shown} */
export class LensShown {
  /** @param {Mark} token @param {() => void} redraw */
  constructor(token, redraw) {
    /** @type {Axis} */
    this.axis = token.query !== null ? "query" : "key";
    this.place = token.query ?? token.key ?? 0;
    this.number = listedHeads()[0] ?? 0;
    this.redraw = redraw;
    /** @type {Side[]} none: a row is another head */
    this.sides = [];
    this.side = state.side;
    this.of = state.of;
    this.title = "All heads";
    this.same = false;
    /** @type {Float32Array | null} */
    this.values = null;
    /** @type {Map<number, Float32Array>} */
    this.lines = new Map();
    /** @type {WeakMap<Float32Array, Float32Array>} lines by what the columns stand for */
    this.sums = new WeakMap();
    const { number } = this;
    this.token = textOf(number, this.axis, sideNumber());
    this.keys = textOf(number, this.axis === "query" ? "key" : "query", sideNumber());
    this.tokens = this.keys;
    this.units = unitsNow(this.tokens);
    this.keys = this.units?.text ?? this.tokens;
    this.columns = this.keys.labels.length;
    /** @type {number[]} a row each */
    this.heads = [];
    /** @type {number[]} a row each, below the heads */
    this.layers = [];
    /** @type {Map<number, Float32Array>} */
    this.means = new Map();
    this.rows = 0;
    this.queries = { labels: [""], spaces: " " };
    this.arrange();
    this.ask();
  }

  /** The heads in their order now, and the layers below them. */
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

  /** By a metric, by the weight on a second token, or by the largest weight. @param {number[]} listed */
  sorted(listed) {
    if (sortMetric()) return listed;
    const other = this.other;
    if (other === null && state.sort !== "weight") return listed;
    const size = (/** @type {number} */ number) => {
      const line = this.lines.get(number);
      if (!line) return -1;
      return other === null ? largestOf(line) : line[other] === ABSENT ? -0.5 : Math.abs(line[other]);
    };
    return [...listed].sort((one, two) => size(two) - size(one) || one - two);
  }

  /** The place of the second token, where one is chosen. */
  get other() {
    return (this.axis === "query" ? state.pin?.key : state.pin?.query) ?? null;
  }

  /** Asks for every line, those that are seen first. */
  ask() {
    let last = performance.now();
    theComputer().askLines(this.heads, this.axis, this.place, (number, lines) => {
      this.lines.set(number, state.side === "change" ? changeOf(lines[0], lines[1]) : lines[sideNumber()]);
      this.means.clear();
      const whole = this.lines.size === this.heads.length;
      if (!whole && performance.now() - last < REDRAWN_AFTER) return;
      last = performance.now();
      if (whole) this.arrange();
      this.redraw();
    });
  }

  get whole() {
    return this.heads.every((number) => this.lines.has(number));
  }

  get scale() {
    const scale = scaleOf(this.number);
    if (scale.steps === "lift" || page.fixed || this.columns < 2) return scale;
    let high = 0;
    for (const row of this.heads.keys()) high = Math.max(high, largestOf(this.lineOf(row) ?? []));
    return high ? { ...scale, high: Math.min(high, scale.change ? page.reach : 1) } : scale;
  }

  /** The line of a row by what the columns stand for; nothing before it is known. @param {number} row */
  lineOf(row) {
    const line = this.tokenLine(row);
    if (!line || !this.units) return line;
    const known = this.sums.get(line) ?? sumsOf(line, this.units);
    this.sums.set(line, known);
    return known;
  }

  /** The line of a row, token by token. @param {number} row */
  tokenLine(row) {
    const number = this.heads[row];
    if (number !== undefined) return this.lines.get(number) ?? null;
    const layer = this.layers[row - this.heads.length - 1];
    return layer === undefined ? null : this.meanOf(layer);
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

  /** @param {number} layer */
  meanOf(layer) {
    const known = this.means.get(layer);
    if (known) return known;
    const lines = this.heads.flatMap((number) => (page.heads[number].layer === layer ? (this.lines.get(number) ?? []) : []));
    if (!lines.length) return null;
    const mean = combinedOf(/** @type {Float32Array[]} */ (lines), "mean");
    this.means.set(layer, mean);
    return mean;
  }

  /** The mean over all listed heads. */
  get average() {
    const lines = this.heads.flatMap((number) => this.lines.get(number) ?? []);
    return lines.length ? combinedOf(lines, "mean") : null;
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

  score() {
    return null;
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    return this.at(row, column);
  }

  /** @param {number} row @param {number} column */
  seen(row, column) {
    const number = this.heads[row] ?? this.number;
    return seenBy(number, sideNumber())[this.axis === "query" ? this.place : column] ?? 1;
  }

  /** The row of a mark's head. @param {Mark} mark */
  rowOf(mark) {
    return mark.head === undefined ? null : this.heads.indexOf(mark.head);
  }

  /** @param {number} row @param {number} column @returns {Mark} */
  markAt(row, column) {
    const head = this.heads[row];
    column = this.units ? this.units.starts[column] : column;
    const pair = this.axis === "query" ? { query: this.place, key: column } : { query: column, key: this.place };
    return head === undefined ? pair : { ...pair, head };
  }

  /** The column of a mark's second token. @param {Mark} mark */
  columnOf(mark) {
    return this.columnOfToken(this.axis === "query" ? mark.key : mark.query);
  }

  /** @param {number | null} token */
  columnOfToken(token) {
    return token === null || !this.units ? token : this.units.unitOf(token);
  }

  /** @param {Mark} mark @returns {string[]} */
  said(mark) {
    const column = this.columnOf(mark);
    const row = this.rowOf(mark);
    if (column === null) return [];
    const pair = [this.token.labels[this.place], this.keys.labels[column]];
    const words = (this.axis === "query" ? pair : pair.reverse()).join(" → ");
    const average = this.average;
    const mean = average && this.units ? sumsOf(average, this.units) : average;
    const value = row === null ? mean?.[column] : this.at(row, column);
    const number = weightText(value ?? ABSENT, state.side === "change");
    return [row === null ? "mean of the heads" : this.queries.labels[row], words, number];
  }

  /** @param {Mark | null} mark */
  shades(mark) {
    const row = mark ? this.rowOf(mark) : null;
    const values = row === null ? this.average : this.tokenLine(row);
    const what = row === null ? "on average over these heads" : `in head ${this.queries.labels[row]}`;
    const token = `“${this.token.labels[this.place]}”`;
    return this.axis === "query"
      ? { query: null, key: values, said: `what ${token} attends to, ${what}` }
      : { query: values, key: null, said: `what attends to ${token}, ${what}` };
  }

  /** @param {Mark} mark @param {number} down @param {number} right @returns {Mark} */
  moved(mark, down, right) {
    const row = Math.min(this.heads.length - 1, Math.max(0, (this.rowOf(mark) ?? -1) + down));
    const column = Math.min(this.columns - 1, Math.max(0, (this.columnOf(mark) ?? 0) + right));
    return this.markAt(row, column);
  }
}
