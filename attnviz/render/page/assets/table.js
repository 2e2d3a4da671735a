"use strict";
// The numbers as a table that a screen reader can walk: of all queries where they are few, else of a chosen one.

const MOST_TABLE_CELLS = 900;

class TableView {
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
    const note = "Each cell: the weight, and under it the score.";
    this.element.replaceChildren(...(whole ? [] : [this.chooser()]), scroll);
    if (whole && page.block === 1 && !this.shown.scale.change) this.element.append(make("p", { className: "note" }, note));
  }

  get whole() {
    return this.shown.rows * this.shown.columns <= MOST_TABLE_CELLS;
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

  wholeCell(row, column) {
    const { scale } = this.shown;
    const value = this.shown.at(row, column);
    const cell = make("td", { className: value === ABSENT ? "absent" : "" }, weightText(value, scale.change));
    const score = scale.change ? null : this.shown.score(row, column);
    if (value !== ABSENT && score) cell.append(document.createElement("br"), make("small", {}, scoreText(score)));
    return cell;
  }

  chooser() {
    const { queries } = this.shown;
    const choices = queries.labels.map((label, place) => new Option(`${nameOf(queries, place)} ${label}`, place));
    const select = make("select", { onchange: () => this.turn(Number(select.value)) }, ...choices);
    select.value = this.query;
    return make("label", { className: "choose" }, "Query", select);
  }

  turn(query) {
    this.query = query;
    pin({ query, key: null });
    this.draw();
    this.element.querySelector("select").focus();
  }

  oneQuery() {
    const { keys, columns } = this.shown;
    const names = ["position", "key", ...this.quantities().map((quantity) => quantity.name)];
    const head = make("tr", {}, ...names.map((name) => headed(name, "col")));
    const body = [];
    for (let key = 0; key < columns; key++) {
      const numbers = this.quantities().map((quantity) => make("td", {}, quantity.text(this.query, key)));
      body.push(make("tr", {}, make("td", {}, nameOf(keys, key)), headed(keys.labels[key], "row"), ...numbers));
    }
    return this.table(head, body);
  }

  quantities() {
    return quantitiesOf(this.shown);
  }

  table(head, body) {
    const caption = make("caption", {}, `${headTitle(this.shown.number)}: ${page.caption}`);
    return make("table", { className: "cells" }, caption, make("thead", {}, head), make("tbody", {}, ...body));
  }

  drawOver() {}
  reveal(mark) {
    if (mark.query === null || this.whole) return;
    this.query = mark.query;
    this.draw();
  }
  fit() {}
}

// The numbers that a cell has, each with its name and how it is written.
function quantitiesOf(shown) {
  const weights = shown.sides.map((side, number) => ({
    name: comparing ? `weight ${page.sides[number]}` : page.block > 1 ? "mean weight" : "weight",
    text: (row, column) => weightText(side.weight(row, column), false, side.weightError?.(row, column)),
  }));
  const rest = shown.sides.map((side, number) => ({
    name: (page.block > 1 ? "largest weight" : "score") + (comparing ? ` ${page.sides[number]}` : ""),
    text: (row, column) => {
      if (side.weight(row, column) === ABSENT) return "masked";
      return page.block > 1 ? weightText(side.maxima[row * shown.columns + column]) : scoreText(side.score(row, column));
    },
  }));
  const change = { name: "change", text: (row, column) => weightText(shown.changeAt(row, column), true) };
  return comparing ? [...weights, change, ...rest] : [...weights, ...rest];
}

function headed(text, scope) {
  return make("th", { scope }, make("bdi", {}, text));
}

// A token's position, or those of its block.
function nameOf(text, place) {
  if (!text.edges) return String(text.first + place);
  const [first, last] = [text.edges[place], text.edges[place + 1] - 1];
  return first === last ? String(first) : `${first}–${last}`;
}
