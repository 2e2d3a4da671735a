/** All heads in numbers: a row a head, a column a metric, shaded; a number opens its head, a name sorts. */

import { openHead } from "./actions.js";
import { headTitle, page } from "./data.js";
import { theme } from "./colors.js";
import { make } from "./elements.js";
import { listedHeads } from "./listing.js";
import { highOf, meaningOf, isChange, METRIC_NAMES, metricText, numbersOf, patternOf } from "./metrics.js";
import { orderedBy, sortTurned } from "./ordering.js";
import { faded } from "./scales.js";
import { set, state } from "./state.js";

/** @import { View } from "./types.js" */

/** @implements {View} */
export class NumbersView {
  /** @param {HTMLElement} parent */
  constructor(parent) {
    const head = make("tr", {}, make("th", { scope: "col" }, "head"), make("th", { scope: "col" }, "what it does"));
    for (const name of METRIC_NAMES) head.append(this.header(name));
    const rows = listedHeads().map((number) => this.row(number));
    const caption = make("caption", {}, `What ${rows.length} of ${page.heads.length} heads do: a number opens its head, a metric’s name sorts by it`);
    const table = make("table", { className: "cells numbers-table" }, caption, make("thead", {}, head), make("tbody", {}, ...rows));
    const scroll = make("div", { className: "scroll tall", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Every head in numbers");
    parent.append(METRIC_NAMES.length ? scroll : make("p", { className: "note" }, "No number of these heads is known: single cells of pooled maps are not."));
  }

  /** @param {string} name */
  header(name) {
    const sorted = orderedBy(state.sort) === name;
    const mark = sorted ? (state.sort.startsWith("-") ? " ↑" : " ↓") : "";
    const button = make("button", { type: "button", className: "plain", title: meaningOf(name) }, name + mark);
    button.addEventListener("click", () => set({ sort: sortTurned(state.sort, name) }));
    const cell = make("th", { scope: "col" }, button);
    if (sorted) cell.setAttribute("aria-sort", state.sort.startsWith("-") ? "ascending" : "descending");
    return cell;
  }

  /** @param {number} number */
  row(number) {
    const open = (/** @type {string} */ text, label = "") => {
      const button = make("button", { type: "button", className: "plain", tabIndex: label ? -1 : 0 }, text);
      if (label) button.setAttribute("aria-label", label);
      button.addEventListener("click", () => openHead(number));
      return button;
    };
    const title = headTitle(number).replace(/^Head /, "");
    const row = make("tr", {}, make("th", { scope: "row" }, open(title)), make("td", { className: "pattern" }, patternOf(number)));
    for (const name of METRIC_NAMES) {
      const value = numbersOf(number)[name];
      const cell = make("td", {}, open(metricText(name, value), `${title} ${name} ${metricText(name, value)}`));
      const part = Number.isNaN(value) ? 0 : Math.max(-1, Math.min(1, value / highOf(name)));
      cell.style.backgroundColor = part ? faded(theme()[part < 0 ? "less" : isChange(name) ? "more" : "arc"], 0.4 * Math.abs(part)) : "";
      row.append(cell);
    }
    return row;
  }

  drawOver() {}

  reveal() {}

  fit() {}
}
