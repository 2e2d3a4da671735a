/** A histogram over each metric's column: a drag over some of it keeps the heads within, as words of the filter. */

import { contextOf, theme } from "./colors.js";
import { page } from "./data.js";
import { make } from "./elements.js";
import { numberOf } from "./metrics.js";
import { set, state } from "./state.js";

const HISTOGRAM_BINS = 24;
const [WIDE, HIGH] = [72, 22]; // pixels
const MIN_DRAG_PIXELS = 3; // less is a click, which lets go of the metric

/** Returns the smallest and the largest value of a metric among all heads; null unless two values differ. @param {string} name */
function rangeOf(name) {
  const values = page.heads.map((_, head) => numberOf(head, name)).filter((value) => !Number.isNaN(value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return high > low ? { low, high, values } : null;
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
export function histogramCell(name) {
  const range = rangeOf(name);
  const cell = make("td", { className: "histogram" });
  if (!range) return cell;
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
