/** The numbers as a table that a screen reader can walk: of all queries where they are few, else of a chosen one. */

import { pin } from "./actions.js";
import { headTitle, page } from "./data.js";
import { make } from "./elements.js";
import { positionOf, scoreText } from "./formatting.js";
import { quantitiesOf, weightText } from "./quantities.js";
import { state } from "./state.js";
import { ABSENT } from "./values.js";

/** @import { Mark, Shown, View } from "./types.js" */

const MAX_TABLE_CELLS = 900;
const NOTE = "Each cell: the weight, and under it the score.";

/** @implements {View} */
export class TableView {
  /** @param {HTMLElement} parent @param {Shown} shown */
  constructor(parent, shown) {
    this.shown = shown;
    this.query = state.pin?.query ?? 0;
    this.element = make("div");
    parent.append(this.element);
    this.draw();
  }

  draw() {
    const { whole } = this;
    const scroll = make("div", { className: "scroll", tabIndex: 0 }, whole ? this.everyQuery() : this.oneQuery());
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Table of the head’s numbers");
    this.element.replaceChildren(...(whole ? [] : [this.chooser()]), scroll);
    const twoNumbers = whole && page.block === 1 && !this.shown.scale.change;
    if (twoNumbers) this.element.append(make("p", { className: "note" }, NOTE));
  }

  get whole() {
    return this.shown.rows * this.shown.columns <= MAX_TABLE_CELLS;
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
    return this.table(head, body);
  }

  /** @param {number} row @param {number} column */
  wholeCell(row, column) {
    const { scale } = this.shown;
    const value = this.shown.at(row, column);
    const cell = make("td", { className: value === ABSENT ? "absent" : "" }, weightText(value, scale.change));
    const score = scale.change ? null : this.shown.score(row, column);
    if (value !== ABSENT && score) cell.append(make("br"), make("small", {}, scoreText(score)));
    return cell;
  }

  chooser() {
    const { queries } = this.shown;
    const choices = queries.labels.map((label, place) => {
      return new Option(`${positionOf(queries, place)} ${label}`, String(place));
    });
    const select = make("select", {}, ...choices);
    select.addEventListener("change", () => this.turn(Number(select.value)));
    select.value = String(this.query);
    return make("label", { className: "choose" }, "Query", select);
  }

  /** @param {number} query */
  turn(query) {
    this.query = query;
    pin({ query, key: null });
    this.draw();
    this.element.querySelector("select")?.focus();
  }

  oneQuery() {
    const { keys, columns } = this.shown;
    const quantities = quantitiesOf(this.shown);
    const names = ["position", "key", ...quantities.map((quantity) => quantity.name)];
    const head = make("tr", {}, ...names.map((name) => headed(name, "col")));
    const body = [];
    for (let key = 0; key < columns; key++) {
      const numbers = quantities.map((quantity) => make("td", {}, quantity.text(this.query, key)));
      body.push(make("tr", {}, make("td", {}, positionOf(keys, key)), headed(keys.labels[key], "row"), ...numbers));
    }
    return this.table(head, body);
  }

  /** @param {HTMLElement} head @param {HTMLElement[]} body */
  table(head, body) {
    const caption = make("caption", {}, `${headTitle(this.shown.number)}: ${page.caption}`);
    return make("table", { className: "cells" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
  }

  drawOver() {}

  /** @param {Mark} mark */
  reveal(mark) {
    if (mark.query === null || this.whole) return;
    this.query = mark.query;
    this.draw();
  }

  fit() {}
}

/** @param {string} text @param {"row" | "col"} scope */
function headed(text, scope) {
  return make("th", { scope }, make("bdi", {}, text));
}
