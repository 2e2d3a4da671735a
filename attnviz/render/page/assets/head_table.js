/** The list of heads: a row a head, a column a number, shaded; a number opens its head, a name sorts, and a drag over the histogram of a column keeps the heads within. */

import { contextOf, theme } from "./colors.js";
import { headName, page } from "./data.js";
import { emptyRow, fadeBeyond, make } from "./elements.js";
import { orderedBy, sortTurned } from "./filter.js";
import { currentOrder } from "./listing.js";
import { highOf, isChange, meaningOf, metricText, numberOf, patternOf } from "./metrics.js";
import { faded } from "./scales.js";
import { set, state } from "./state.js";

const MAX_DRAWN_HEADS = 150; // heads whose rows are all drawn; of more, those that are seen
const ROWS_AROUND = 10; // drawn above and below those that are seen
const HEAD_ROW = 27; // pixels of a row, before one is measured
const HISTOGRAM_BINS = 24;
const [WIDE, HIGH] = [72, 22]; // pixels of a histogram
const MIN_DRAG_PIXELS = 3; // less is a click, which lets go of the metric

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

/** The words of a filter without those that test a metric. @param {string} filter @param {string} name */
function withoutTests(filter, name) {
  const spaced = filter.replace(/\s*(>=|<=|>|<|=)\s*/g, "$1");
  return spaced.split(/\s+/).filter((word) => word && !word.startsWith(`${name}>`) && !word.startsWith(`${name}<`)).join(" ");
}

/** The words that keep a metric between two numbers. @param {string} name @param {number} low @param {number} high */
function testsOf(name, low, high) {
  const [first, last] = [Math.floor(1000 * low) / 1000, Math.ceil(1000 * high) / 1000]; // outwards, so that no end is lost
  return `${name}>=${first} ${name}<=${last}`;
}

/** The cell over a metric's column; empty where all heads are alike. @param {string} name */
function histogramCell(name) {
  const values = page.heads.map((_, head) => numberOf(head, name)).filter((value) => !Number.isNaN(value));
  const range = { low: Math.min(...values), high: Math.max(...values), values };
  const cell = make("td", { className: "histogram" });
  if (!(range.high > range.low)) return cell;
  const canvas = make("canvas", { title: `Drag over a part to keep only heads whose ${name} is in it` });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Histogram of ${name}, from ${range.low.toFixed(2)} to ${range.high.toFixed(2)}`);
  [canvas.width, canvas.height] = [2 * WIDE, 2 * HIGH];
  [canvas.style.width, canvas.style.height] = [`${WIDE}px`, `${HIGH}px`];
  drawBars(canvas, name, range, null);
  listenToBrush(canvas, name, range);
  cell.append(canvas);
  return cell;
}

/** @param {HTMLCanvasElement} canvas @param {string} name @param {{ low: number, high: number, values: number[] }} range @param {[number, number] | null} brush parts of the width */
function drawBars(canvas, name, { low, high, values }, brush) {
  const counts = new Uint32Array(HISTOGRAM_BINS);
  for (const value of values) counts[Math.min(HISTOGRAM_BINS - 1, Math.floor((HISTOGRAM_BINS * (value - low)) / (high - low)))]++;
  const most = Math.max(...counts);
  const context = contextOf(canvas);
  context.setTransform(2, 0, 0, 2, 0, 0);
  context.clearRect(0, 0, WIDE, HIGH);
  const shown = brush ?? brushOf(name, low, high);
  counts.forEach((count, bin) => {
    const height = count ? Math.max(1, (HIGH - 2) * Math.sqrt(count / most)) : 0;
    const middle = (bin + 0.5) / HISTOGRAM_BINS;
    context.fillStyle = shown && (middle < shown[0] || middle > shown[1]) ? theme().line : theme().arc;
    context.fillRect((bin * WIDE) / HISTOGRAM_BINS, HIGH - height, WIDE / HISTOGRAM_BINS - 0.5, height);
  });
  if (!shown) return;
  context.strokeStyle = theme().accent;
  context.lineWidth = 1;
  context.strokeRect(shown[0] * WIDE, 0.5, Math.max(1, (shown[1] - shown[0]) * WIDE - 1), HIGH - 1);
}

/** The part of the width that the filter leaves; null where it does not test the metric by both ends. @param {string} name @param {number} low @param {number} high @returns {[number, number] | null} */
function brushOf(name, low, high) {
  const [, first] = state.filter.match(new RegExp(`(?:^|\\s)${name}>=(-?[\\d.]+)`)) ?? [];
  const [, last] = state.filter.match(new RegExp(`(?:^|\\s)${name}<=(-?[\\d.]+)`)) ?? [];
  if (first === undefined || last === undefined) return null;
  const part = (/** @type {string} */ value) => Math.min(1, Math.max(0, (Number(value) - low) / (high - low)));
  return [part(first), part(last)];
}

/** @param {HTMLCanvasElement} canvas @param {string} name @param {{ low: number, high: number, values: number[] }} range */
function listenToBrush(canvas, name, range) {
  /** @type {number | null} */
  let from = null;
  const partAt = (/** @type {PointerEvent} */ { clientX }) => Math.min(1, Math.max(0, (clientX - canvas.getBoundingClientRect().left) / WIDE));
  const brushed = (/** @type {PointerEvent} */ event) => /** @type {[number, number]} */ ([Math.min(from ?? 0, partAt(event)), Math.max(from ?? 0, partAt(event))]);
  canvas.addEventListener("pointerdown", (event) => {
    from = partAt(event);
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => from !== null && drawBars(canvas, name, range, brushed(event)));
  canvas.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [left, right] = brushed(event);
    from = null;
    const rest = withoutTests(state.filter, name);
    const valueAtPart = (/** @type {number} */ part) => range.low + part * (range.high - range.low);
    const kept = (right - left) * WIDE < MIN_DRAG_PIXELS ? "" : testsOf(name, valueAtPart(left), valueAtPart(right));
    set({ filter: [rest, kept].filter(Boolean).join(" ") });
  });
}
