/** The numbers as a table that a screen reader can walk: of all queries where they are few, else of a chosen one. */

import { pin } from "./actions.js";
import { page } from "./data.js";
import { emptyRow, fadeBeyond, make } from "./elements.js";
import { positionOf, scoreText } from "./formatting.js";
import { cellNumber, quantitiesOf } from "./quantities.js";
import { state } from "./state.js";
import { ABSENT } from "./values.js";

/** @import { Mark, Shown, View } from "./types.js" */

const MAX_TABLE_CELLS = 900;
const ROW_STEP = 29; // pixels of a row of many
const ROWS_BEYOND = 12; // drawn above and below those that are seen

/** @implements {View} */
export class TableView {
  /** @param {HTMLElement} parent @param {Shown} shown */
  constructor(parent, shown) {
    this.shown = shown;
    const telling = shown.seen(0, 0) > 1 ? 0 : shown.rows - 1; // the first of a causal head sees itself alone
    const kept = state.pin && shown.cellOf(state.pin);
    this.query = kept?.query ?? (shown.same ? kept?.key : null) ?? telling;
    this.sorted = true; // by weight, the largest first
    /** @type {number[]} keys in the order of their rows */
    this.order = [];
    this.first = -1;
    this.body = make("tbody");
    this.scroll = make("div", { className: "scroll", tabIndex: 0 });
    this.scroll.setAttribute("role", "region");
    this.scroll.setAttribute("aria-label", "Table of the head’s numbers");
    this.scroll.addEventListener("scroll", () => this.whole || this.drawRows());
    fadeBeyond(this.scroll);
    this.element = make("div");
    parent.append(this.element);
    this.draw();
  }

  get whole() {
    return this.shown.rows * this.shown.columns <= MAX_TABLE_CELLS;
  }

  draw() {
    const { whole, scroll } = this;
    const twoNumbers = whole && page.block === 1 && !this.shown.scale.change && (this.shown.source ?? this.shown).sides.length > 0;
    const note = twoNumbers ? [make("p", { className: "note" }, `Each cell: the ${state.of}, and under it the score.`)] : [];
    this.element.replaceChildren(...(whole ? [] : [this.chooser()]), scroll, ...note);
    scroll.replaceChildren(whole ? this.everyQuery() : this.oneQuery());
    if (!whole) this.drawRows();
  }

  everyQuery() {
    const { queries, keys, rows, columns } = this.shown;
    const head = make("tr", {}, headed("query \\ key", "col"), ...keys.labels.map((label) => headed(label, "col")));
    const body = [];
    for (let row = 0; row < rows; row++) {
      const line = make("tr", {}, headed(queries.labels[row], "row"));
      for (let column = 0; column < columns; column++) line.append(this.wholeCell(row, column));
      body.push(line);
    }
    this.body.replaceChildren(...body);
    return this.table(head);
  }

  /** @param {number} row @param {number} column */
  wholeCell(row, column) {
    const { scale } = this.shown;
    const value = this.shown.at(row, column);
    const cell = make("td", { className: value === ABSENT ? "absent" : "" }, cellNumber(this.shown, row, column));
    const score = scale.change ? null : this.shown.score(row, column);
    if (value !== ABSENT && score) cell.append(make("br"), make("small", {}, scoreText(score)));
    return cell;
  }

  chooser() {
    const { queries, rows } = this.shown;
    const first = queries.edges ? 0 : (queries.first ?? 0);
    const input = make("input", { type: "number", min: String(first), max: String(first + rows - 1) });
    input.value = String(first + this.query);
    input.addEventListener("change", () => this.turn(Number(input.value) - first));
    const order = make("button", { type: "button", className: "plain" }, this.sorted ? "In the order of the text" : "Largest first");
    order.addEventListener("click", () => {
      this.sorted = !this.sorted;
      this.draw();
    });
    const label = make("label", {}, "Query ", input);
    return make("p", { className: "choose" }, label, make("b", {}, make("bdi", {}, queries.labels[this.query])), order);
  }

  /** @param {number} query */
  turn(query) {
    this.query = Math.min(this.shown.rows - 1, Math.max(0, query));
    pin(this.shown.markOf({ query: this.query, key: null }));
    this.draw();
    this.element.querySelector("input")?.focus();
  }

  oneQuery() {
    const { shown } = this;
    const names = ["position", "key", ...quantitiesOf(shown).map((quantity) => quantity.name)];
    const head = make("tr", {}, ...names.map((name) => headed(name, "col")));
    this.order = [...Array(shown.columns).keys()];
    if (this.sorted) {
      const values = shown.line("query", this.query);
      const size = (/** @type {number} */ key) => (values[key] === ABSENT ? -1 : Math.abs(values[key]) || 0);
      this.order.sort((one, two) => size(two) - size(one) || one - two);
    }
    this.first = -1;
    this.scroll.scrollTop = 0;
    const table = this.table(head);
    table.setAttribute("aria-rowcount", String(shown.columns + 1));
    return table;
  }

  /** Draws the rows that are seen, between two empty ones as high as all others. */
  drawRows() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_STEP) - ROWS_BEYOND);
    if (first === this.first) return;
    this.first = first;
    const count = Math.ceil((this.scroll.clientHeight || 600) / ROW_STEP) + 2 * ROWS_BEYOND;
    const end = Math.min(this.order.length, first + count);
    const rows = this.order.slice(first, end).map((key, place) => this.keyRow(key, first + place));
    this.body.replaceChildren(emptyRow(first * ROW_STEP), ...rows, emptyRow((this.order.length - end) * ROW_STEP));
  }

  /** @param {number} key @param {number} place */
  keyRow(key, place) {
    const { keys } = this.shown;
    const numbers = quantitiesOf(this.shown).map((quantity) => make("td", {}, quantity.text(this.query, key)));
    const row = make("tr", {}, make("td", {}, positionOf(keys, key)), headed(keys.labels[key], "row"), ...numbers);
    row.setAttribute("aria-rowindex", String(place + 2));
    row.style.height = `${ROW_STEP}px`;
    return row;
  }

  /** @param {HTMLElement} head */
  table(head) {
    const caption = make("caption", {}, `${this.shown.title}: ${page.caption}`);
    return make("table", { className: "cells" }, caption, make("thead", {}, head), this.body);
  }

  drawOver() {}

  /** @param {Mark} mark */
  reveal(mark) {
    const cell = this.shown.cellOf(mark);
    const query = cell.query ?? (this.shown.same ? cell.key : null);
    if (query === null || this.whole || query === this.query) return;
    this.query = query;
    this.draw();
  }

  fit() {}
}

/** @param {string} text @param {"row" | "col"} scope */
function headed(text, scope) {
  return make("th", { scope }, make("bdi", {}, text));
}
