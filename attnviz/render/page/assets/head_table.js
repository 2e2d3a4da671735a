/** The list of heads: a row a head, a column a number, shaded; a number opens its head, a name sorts. */

import { theme } from "./colors.js";
import { headName, page } from "./data.js";
import { emptyRow, fadeBeyond, make } from "./elements.js";
import { histogramCell } from "./histograms.js";
import { currentOrder } from "./listing.js";
import { highOf, isChange, meaningOf, metricText, numberOf, patternOf } from "./metrics.js";
import { orderedBy, sortTurned } from "./ordering.js";
import { faded } from "./scales.js";
import { set, state } from "./state.js";

const MAX_DRAWN_HEADS = 150; // heads whose rows are all drawn; of more, those that are seen
const ROWS_AROUND = 10; // drawn above and below those that are seen
const HEAD_ROW = 27; // pixels of a row, before one is measured

/**
 * Some heads in numbers, in a frame of its own that scrolls.
 *
 * @param {number[]} heads in their order
 * @param {string[]} names of the numbers
 * @param {string} caption
 * @param {(head: number) => void} open what a click on a head does
 */
export function headTable(heads, names, caption, open) {
  const header = make("tr", {}, make("th", { scope: "col" }, "head"), make("th", { scope: "col", className: "does" }, "what it does"));
  header.append(...names.map(headerOf));
  const bars = make("tr", { className: "histograms", ariaHidden: "true" }, make("td"), make("td"), ...names.map(histogramCell));
  const body = make("tbody");
  const table = make("table", { className: "cells numbers-table" }, make("caption", {}, caption), make("thead", {}, header, ...(page.heads.length > 1 ? [bars] : [])), body);
  const scroll = make("div", { className: "scroll tall", tabIndex: 0 }, table);
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Every head in numbers");
  fadeBeyond(scroll);
  body.addEventListener("click", ({ target }) => {
    const row = target instanceof Element && target.closest("button") ? target.closest("tr") : null;
    if (row) open(Number(row.dataset.head));
  });
  if (heads.length <= MAX_DRAWN_HEADS) body.append(...heads.map((head) => rowOfHead(head, names)));
  else drawSeenRows(scroll, body, heads, names);
  return scroll;
}

/**
 * Draws the rows that are seen, between two empty ones as high as all others; on paper all of them.
 *
 * @param {HTMLElement} scroll
 * @param {HTMLElement} body
 * @param {number[]} heads
 * @param {string[]} names
 */
function drawSeenRows(scroll, body, heads, names) {
  scroll.classList.add("fixed-rows");
  const drawn = { first: -1, step: HEAD_ROW };
  const draw = (whole = false) => {
    const first = whole ? 0 : Math.max(0, Math.floor(scroll.scrollTop / drawn.step) - ROWS_AROUND);
    const count = whole ? heads.length : Math.ceil((scroll.clientHeight || window.innerHeight) / drawn.step) + 2 * ROWS_AROUND;
    if (first === drawn.first && !whole) return;
    drawn.first = whole ? -1 : first;
    const end = Math.min(heads.length, first + count);
    const rows = heads.slice(first, end).map((head, place) => {
      const row = rowOfHead(head, names);
      row.setAttribute("aria-rowindex", String(first + place + 2));
      return row;
    });
    body.replaceChildren(emptyRow(first * drawn.step), ...rows, emptyRow((heads.length - end) * drawn.step));
  };
  scroll.querySelector("table")?.setAttribute("aria-rowcount", String(heads.length + 1));
  draw();
  requestAnimationFrame(() => {
    drawn.step = body.querySelector("tr[data-head]")?.getBoundingClientRect().height || HEAD_ROW;
    drawn.first = -1; // the empty rows take the height of real ones
    draw();
  });
  scroll.addEventListener("scroll", () => draw());
  const print = () => (scroll.isConnected ? draw(true) : removeEventListener("beforeprint", print));
  addEventListener("beforeprint", print);
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

/** @param {number} head @param {string[]} names */
function rowOfHead(head, names) {
  const opener = (/** @type {string} */ text, label = "") => {
    const button = make("button", { type: "button", className: "plain", tabIndex: label ? -1 : 0 }, text);
    if (label) button.setAttribute("aria-label", label);
    return button;
  };
  const title = headName(head);
  const row = make("tr", {}, make("th", { scope: "row" }, opener(title)), make("td", { className: "pattern" }, patternOf(head)));
  row.dataset.head = String(head);
  if (head === state.head) row.setAttribute("aria-current", "true");
  for (const name of names) {
    const value = numberOf(head, name);
    const text = metricText(name, value);
    const cell = make("td", {}, opener(text, `${title} ${name} ${text}`));
    const part = Number.isNaN(value) ? 0 : Math.max(-1, Math.min(1, value / highOf(name)));
    if (part) cell.style.backgroundColor = faded(theme()[part < 0 ? "less" : isChange(name) ? "more" : "arc"], 0.4 * Math.abs(part));
    row.append(cell);
  }
  return row;
}
