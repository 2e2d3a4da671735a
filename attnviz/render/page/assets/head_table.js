/** The list of heads: a row a head, a column a number, shaded; a number opens its head, a name sorts, and a drag over the histogram of a column keeps the heads within. */

import { theme } from "./colors.js";
import { headName, page } from "./data.js";
import { orderedBy, sortTurned } from "./filter.js";
import { currentOrder } from "./listing.js";
import { highOf, isChange, meaningOf, metricText, numberOf, patternOf } from "./metrics.js";
import { faded } from "./scales.js";
import { set, state } from "./state.js";
import { elementOf, h, patch } from "./tree.js";
import { endsOf } from "./values.js";

/** @import { TableAbout } from "./elements.js" */
/** @import { Child } from "./tree.js" */

const MAX_DRAWN_HEADS = 150; // heads whose rows are all drawn; of more, those that are seen
const HISTOGRAM_BINS = 24;
const [WIDE, HIGH] = [72, 22]; // pixels of a histogram
const MIN_DRAG_PIXELS = 3; // less is a click, which lets go of the metric

/**
 * The table of some heads in numbers.
 *
 * @param {number[]} heads in their order
 * @param {string[]} names of the numbers
 * @param {string} caption
 * @param {(head: number) => void} open what a click on a head does
 * @returns {TableAbout}
 */
export function headTable(heads, names, caption, open) {
  const order = currentOrder();
  const headers = names.map((name) => {
    const direction = orderedBy(order) !== name ? null : order.startsWith("-") ? "ascending" : "descending";
    const mark = direction === null ? "" : direction === "ascending" ? " ↑" : " ↓";
    const sort = () => set({ sort: sortTurned(order, name) });
    return h("th", { scope: "col", "aria-sort": direction }, h("button", { type: "button", class: "plain", title: meaningOf(name), onclick: sort }, name + mark));
  });
  const header = [
    h("tr", {}, h("th", { scope: "col" }, "head"), h("th", { scope: "col", class: "does" }, "what it does"), ...headers),
    ...(page.heads.length > 1 ? [h("tr", { class: "histograms", "aria-hidden": "true" }, h("td"), h("td"), ...names.map(histogramCell))] : []),
  ];
  const rowOf = (/** @type {number} */ place) => {
    const [head, title] = [heads[place], headName(heads[place])];
    const opener = (/** @type {string} */ text, /** @type {string | null} */ label = null) =>
      h("button", { type: "button", class: "plain", tabindex: label ? -1 : 0, "aria-label": label, onclick: () => open(head) }, text);
    const cells = names.map((name) => {
      const value = numberOf(head, name);
      const text = metricText(name, value);
      const part = Number.isNaN(value) ? 0 : Math.max(-1, Math.min(1, value / highOf(name)));
      const color = part ? faded(theme()[part < 0 ? "less" : isChange(name) ? "more" : "arc"], 0.4 * Math.abs(part)) : "";
      return h("td", { style: color && `background-color: ${color}` }, opener(text, `${title} ${name} ${text}`));
    });
    return h("tr", { "data-head": head, "aria-current": head === state.head || null }, h("th", { scope: "row" }, opener(title)), h("td", { class: "pattern" }, patternOf(head)), ...cells);
  };
  return { label: "Every head in numbers", name: "numbers-table", caption, header, count: heads.length, rowOf, most: MAX_DRAWN_HEADS };
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

/** The cell over a metric's column, a histogram of which a drag keeps a part; empty where all heads are alike. @param {string} name */
function histogramCell(name) {
  const values = page.heads.map((_, head) => numberOf(head, name)).filter((value) => !Number.isNaN(value));
  const [low, high] = endsOf(values);
  if (low === high || !values.length) return h("td", { class: "histogram" });
  const counts = new Uint32Array(HISTOGRAM_BINS);
  for (const value of values) counts[Math.min(HISTOGRAM_BINS - 1, Math.floor((HISTOGRAM_BINS * (value - low)) / (high - low)))]++;
  const most = Math.max(...counts);

  const partAt = (/** @type {PointerEvent} */ { clientX }) => Math.min(1, Math.max(0, (clientX - picture.getBoundingClientRect().left) / WIDE));
  /** @type {number | null} */
  let from = null;
  const brushed = (/** @type {PointerEvent} */ event) => [from ?? 0, partAt(event)].sort((one, two) => one - two);
  const draw = (/** @type {number[] | null} */ brush) => {
    const bars = Array.from(counts, (count, bin) => {
      const height = count ? Math.max(1, (HIGH - 2) * Math.sqrt(count / most)) : 0;
      const middle = (bin + 0.5) / HISTOGRAM_BINS;
      const isOut = brush && (middle < brush[0] || middle > brush[1]);
      return h("rect", { x: (bin * WIDE) / HISTOGRAM_BINS, y: HIGH - height, width: WIDE / HISTOGRAM_BINS - 0.5, height, fill: `var(--${isOut ? "line" : "arc"})` });
    });
    const frame = brush && h("rect", { x: brush[0] * WIDE, y: 0.5, width: Math.max(1, (brush[1] - brush[0]) * WIDE - 1), height: HIGH - 1, fill: "none", stroke: "var(--accent)" });
    /** @type {Child[]} */
    const tree = [h("title", {}, `Drag over a part to keep only heads whose ${name} is in it`), ...bars, ...(frame ? [frame] : [])];
    patch(picture, tree);
  };
  const listeners = {
    onpointerdown: (/** @type {PointerEvent} */ event) => {
      from = partAt(event);
      picture.setPointerCapture(event.pointerId);
      event.preventDefault();
    },
    onpointermove: (/** @type {PointerEvent} */ event) => from !== null && draw(brushed(event)),
    onpointerup: (/** @type {PointerEvent} */ event) => {
      if (from === null) return;
      const [left, right] = brushed(event);
      from = null;
      const kept = (right - left) * WIDE < MIN_DRAG_PIXELS ? "" : testsOf(name, low + left * (high - low), low + right * (high - low));
      set({ filter: [withoutTests(state.filter, name), kept].filter(Boolean).join(" ") });
    },
  };
  const picture = elementOf(h("svg", { width: WIDE, height: HIGH, role: "img", "aria-label": `Histogram of ${name}, from ${low.toFixed(2)} to ${high.toFixed(2)}`, ...listeners }));
  draw(brushOf(name, low, high));
  return h("td", { class: "histogram" }, picture);
}

/** The part of the width that the filter leaves; null where it does not test the metric by both ends. @param {string} name @param {number} low @param {number} high */
function brushOf(name, low, high) {
  const [first, last] = [">=", "<="].map((sign) => state.filter.match(new RegExp(`(?:^|\\s)${name}${sign}(-?[\\d.]+)`))?.[1]);
  if (first === undefined || last === undefined) return null;
  return [first, last].map((value) => Math.min(1, Math.max(0, (Number(value) - low) / (high - low))));
}
