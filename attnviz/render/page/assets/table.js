/** The numbers as a table that a screen reader can walk: of all queries where they are few, else of a chosen one. */

import { pin } from "./actions.js";
import { page } from "./data.js";
import { scrollingTable } from "./elements.js";
import { fitText, moved, rectangle, textAt, textWidth } from "./figure.js";
import { positionOf, scoreText } from "./formatting.js";
import { cellNumber, quantitiesOf } from "./quantities.js";
import { state } from "./state.js";
import { h, patch, textIn } from "./tree.js";
import { ABSENT } from "./values.js";

/** @import { Figure, Mark, Shown, View } from "./types.js" */
/** @import { TableAbout } from "./elements.js" */
/** @import { Tree } from "./tree.js" */

const MAX_TABLE_CELLS = 900;
const MAX_DRAWN_KEYS = 60; // rows that are all drawn; of more, those that are seen
const MAX_SAVED_ROWS = 200;
const MAX_CELL_WIDTH = 190; // pixels of a cell in a file
const HEADER = 600; // the weight of its letters
const CELL = { size: 11, line: 15, gap: 12 }; // pixels of letters, lines and between columns there

/** @implements {View} */
export class TableView {
  /** @param {HTMLElement} parent @param {Shown} shown */
  constructor(parent, shown) {
    this.parent = parent;
    this.shown = shown;
    const telling = shown.seen(0, 0) > 1 ? 0 : shown.rows - 1; // the first of a causal head sees itself alone
    const kept = state.pin && shown.cellOf(state.pin);
    this.query = kept?.query ?? (shown.same ? kept?.key : null) ?? telling;
    this.sorted = true; // by weight, the largest first
    this.about = this.draw();
  }

  get whole() {
    return this.shown.rows * this.shown.columns <= MAX_TABLE_CELLS;
  }

  /** Draws the table, and returns what it is of. @returns {TableAbout} */
  draw() {
    const { shown, whole } = this;
    const rowOf = (/** @type {number} */ row) => h("tr", {}, headed(shown.queries.labels[row], "row"), ...shown.keys.labels.map((_, column) => this.cell(row, column)));
    const header = [h("tr", {}, ...["query \\ key", ...shown.keys.labels].map((label) => headed(label, "col")))];
    const rows = whole ? { header, count: shown.rows, rowOf } : this.keysOfQuery();
    this.about = { label: "Table of the head’s numbers", name: "", caption: `${shown.title}: ${page.caption}`, ...rows };
    const hasScores = whole && page.block === 1 && !shown.scale.change && (shown.source ?? shown).sides.length > 0;
    const note = hasScores && h("p", { class: "note" }, `Each cell: the ${state.of}, and under it the score.`);
    patch(this.parent, h("div", {}, whole ? null : this.chooser(), scrollingTable(this.about), note).children);
    return this.about;
  }

  /** @param {number} width */
  figure(width) {
    return tableFigure(this.about, width);
  }

  /** @param {number} row @param {number} column */
  cell(row, column) {
    const isMasked = this.shown.at(row, column) === ABSENT;
    const score = this.shown.scale.change || isMasked ? null : this.shown.score(row, column);
    return h("td", { class: isMasked ? "absent" : "" }, cellNumber(this.shown, row, column), score && [h("br"), h("small", {}, scoreText(score))]);
  }

  chooser() {
    const { queries, rows } = this.shown;
    const first = queries.edges ? 0 : (queries.first ?? 0);
    const turn = (/** @type {Event} */ { target }) => {
      const query = Number(/** @type {HTMLInputElement} */ (target).value) - first;
      this.query = Math.min(rows - 1, Math.max(0, query));
      pin(this.shown.markOf({ query: this.query, key: null }));
      this.draw();
    };
    const reorder = () => {
      this.sorted = !this.sorted;
      this.draw();
    };
    return h(
      "p",
      { class: "choose" },
      h("label", {}, "Query ", h("input", { type: "number", min: first, max: first + rows - 1, value: first + this.query, onchange: turn })),
      h("b", {}, h("bdi", {}, queries.labels[this.query])),
      h("button", { type: "button", class: "plain", onclick: reorder }, this.sorted ? "In the order of the text" : "Largest first"),
    );
  }

  /** The keys of the chosen query, a row each. */
  keysOfQuery() {
    const { shown, query } = this;
    const quantities = quantitiesOf(shown);
    const order = [...Array(shown.columns).keys()];
    if (this.sorted) {
      const values = shown.line("query", query);
      const size = (/** @type {number} */ key) => (values[key] === ABSENT ? -1 : Math.abs(values[key]) || 0);
      order.sort((one, two) => size(two) - size(one) || one - two);
    }
    const rowOf = (/** @type {number} */ place) => {
      const key = order[place];
      const numbers = quantities.map((quantity) => h("td", {}, quantity.text(query, key)));
      return h("tr", {}, h("td", {}, positionOf(shown.keys, key)), headed(shown.keys.labels[key], "row"), ...numbers);
    };
    const header = [h("tr", {}, ...["position", "key", ...quantities.map(({ name }) => name)].map((name) => headed(name, "col")))];
    return { header, count: order.length, rowOf, most: MAX_DRAWN_KEYS };
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
  return h("th", { scope }, h("bdi", {}, text));
}

/**
 * A table in so many pixels, in letters that can be read: columns that have no room stand in further parts below, each
 * with the names of the rows.
 *
 * @param {TableAbout} about
 * @param {number} width
 * @returns {Figure}
 */
export function tableFigure({ header: [header], count, rowOf }, width) {
  const shown = Math.min(MAX_SAVED_ROWS, count);
  const rows = [header, ...Array.from({ length: shown }, (_, place) => rowOf(place))].map(({ children }) => /** @type {Tree[]} */ (children).map((cell) => {
    const [, color, opacity] = /rgba\((.*), ([\d.]+)\)/.exec(cell.properties.style) ?? [];
    const lines = textIn(cell).trim().split("\n").map((line) => fitText(line, CELL.size, MAX_CELL_WIDTH));
    return { lines, color, opacity: Number(opacity), isFirst: cell.properties.scope === "row" || ["does", "pattern"].includes(cell.properties.class) };
  }));
  const widths = rows[0].map((_, column) => Math.max(...rows.flatMap((cells, row) => cells[column].lines.map((line) => textWidth(line, CELL.size, row ? 400 : HEADER)))));
  /** @type {Tree[]} */
  const tree = [];
  let [y, first] = [0, 1];
  while (first < widths.length) {
    let [last, right] = [first, widths[0]];
    while (last === first || (last < widths.length && right + CELL.gap + widths[last] <= width)) right += CELL.gap + widths[last++];
    for (const [row, cells] of rows.entries()) {
      const high = CELL.line * Math.max(...cells.map(({ lines }) => lines.length)) + 3;
      let x = 0;
      for (const column of [0, ...Array.from({ length: last - first }, (_, more) => first + more)]) {
        const { lines, color, opacity, isFirst } = cells[column];
        const style = { size: CELL.size, weight: row ? 400 : HEADER, align: /** @type {"start" | "end"} */ (isFirst || !column ? "start" : "end") };
        if (color) tree.push(rectangle(x - CELL.gap / 2, y, widths[column] + CELL.gap, high, `rgb(${color})`, opacity));
        lines.forEach((line, place) => tree.push(textAt(line, style.align === "end" ? x + widths[column] : x, y + (place + 0.5) * CELL.line + 1, style)));
        x += widths[column] + CELL.gap;
      }
      y += high;
    }
    [y, first] = [y + CELL.line, last];
  }
  if (shown < count) tree.push(textAt(`… and ${count - shown} more rows`, 0, y + 4, { size: CELL.size, color: "var(--soft)" }));
  return { tree: [moved(CELL.gap / 2, 0, ...tree)], width, height: y + (shown < count ? CELL.line : 0) };
}
