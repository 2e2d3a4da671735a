/** The list of heads: a row a head, a column a number, shaded; a number opens its head, a name sorts. */

import { theme } from "./colors.js";
import { headTitle } from "./data.js";
import { make } from "./elements.js";
import { currentOrder } from "./listing.js";
import { highOf, isChange, meaningOf, metricText, numberOf, patternOf } from "./metrics.js";
import { orderedBy, sortTurned } from "./ordering.js";
import { faded } from "./scales.js";
import { set, state } from "./state.js";

/**
 * Some heads in numbers, in a frame of its own that scrolls.
 *
 * @param {number[]} heads in their order
 * @param {string[]} names of the numbers
 * @param {string} caption
 * @param {(head: number) => void} open what a click on a head does
 */
export function headTable(heads, names, caption, open) {
  const header = make("tr", {}, make("th", { scope: "col" }, "head"), make("th", { scope: "col" }, "what it does"));
  header.append(...names.map(headerOf));
  const rows = heads.map((head) => rowOfHead(head, names, open));
  const table = make("table", { className: "cells numbers-table" }, make("caption", {}, caption), make("thead", {}, header), make("tbody", {}, ...rows));
  const scroll = make("div", { className: "scroll tall", tabIndex: 0 }, table);
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Every head in numbers");
  return scroll;
}

/** @param {string} name */
function headerOf(name) {
  const order = currentOrder();
  const sorted = orderedBy(order) === name;
  const mark = sorted ? (order.startsWith("-") ? " ↑" : " ↓") : "";
  const button = make("button", { type: "button", className: "plain", title: meaningOf(name) }, name + mark);
  button.addEventListener("click", () => set({ sort: sortTurned(order, name) }));
  const cell = make("th", { scope: "col" }, button);
  if (sorted) cell.setAttribute("aria-sort", order.startsWith("-") ? "ascending" : "descending");
  return cell;
}

/** @param {number} head @param {string[]} names @param {(head: number) => void} open */
function rowOfHead(head, names, open) {
  const opener = (/** @type {string} */ text, label = "") => {
    const button = make("button", { type: "button", className: "plain", tabIndex: label ? -1 : 0 }, text);
    if (label) button.setAttribute("aria-label", label);
    button.addEventListener("click", () => open(head));
    return button;
  };
  const title = headTitle(head).replace(/^Head /, "");
  const row = make("tr", {}, make("th", { scope: "row" }, opener(title)), make("td", { className: "pattern" }, patternOf(head)));
  if (head === state.head) row.setAttribute("aria-current", "true");
  for (const name of names) {
    const value = numberOf(head, name);
    const cell = make("td", {}, opener(metricText(name, value), `${title} ${name} ${metricText(name, value)}`));
    const part = Number.isNaN(value) ? 0 : Math.max(-1, Math.min(1, value / highOf(name)));
    cell.style.backgroundColor = part ? faded(theme()[part < 0 ? "less" : isChange(name) ? "more" : "arc"], 0.4 * Math.abs(part)) : "";
    row.append(cell);
  }
  return row;
}
