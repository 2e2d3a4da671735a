/** Charts of numbers as trees of SVG, drawn in the pixels that they take, so that letters keep their size. */

import { roundStep } from "./scales.js";
import { h } from "./tree.js";
import { endsOf } from "./values.js";

/** @import { Child, Tree } from "./tree.js" */

const LETTER = 7; // pixels of a digit beside an axis
const LEAST_LEFT = 44;

/**
 * @typedef {{ name: string, low: number, high: number, ticks: number[] }} ChartAxis numbers along a side
 *
 * @typedef {object} Ground what points, arrows or bars are drawn over
 * @property {(value: number) => number} x
 * @property {(value: number) => number} y
 * @property {{ left: number, right: number, top: number, bottom: number }} sides
 * @property {Child[]} tree
 */

const MARGIN = 0.04; // of an axis, beyond its outermost points

/** An axis over some numbers, with about so many round ones beside it. @param {string} name @param {[number, number]} ends of the numbers @param {number} wanted @returns {ChartAxis} */
export function axisAround(name, [least, most], wanted) {
  const beyond = (most - least || 1) * MARGIN;
  return chartAxis(name, least - beyond, most + beyond, wanted);
}

/** An axis from one number to another. @param {string} name @param {number} low @param {number} high @param {number} wanted @returns {ChartAxis} */
function chartAxis(name, low, high, wanted) {
  const step = roundStep((high - low) / wanted || 1);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(Number(tick.toPrecision(10)));
  return { name, low, high, ticks };
}

/**
 * A ground with rules, the numbers of its axes and their names. Without numbers across, its bottom has them from elsewhere.
 *
 * @param {number} width
 * @param {number} height
 * @param {ChartAxis} across
 * @param {ChartAxis} up
 * @param {{ top?: number, bottom?: number, back?: boolean }} [room] pixels above and below, and whether it has a frame
 * @returns {Ground}
 */
export function groundOf(width, height, across, up, { top = 12, bottom = 44, back = true } = {}) {
  const longest = Math.max(0, ...up.ticks.map((tick) => String(tick).length));
  const sides = { left: Math.max(LEAST_LEFT, (up.name ? 28 : 10) + LETTER * longest), right: width - 16, top, bottom: height - bottom };
  const x = (/** @type {number} */ value) => sides.left + ((value - across.low) / (across.high - across.low)) * (sides.right - sides.left);
  const y = (/** @type {number} */ value) => sides.bottom - ((value - up.low) / (up.high - up.low)) * (sides.bottom - sides.top);
  const rule = { class: "rule", "pointer-events": "none" };
  const middle = (sides.top + sides.bottom) / 2;
  return {
    x,
    y,
    sides,
    tree: [
      ...(back ? [h("rect", { class: "back", x: sides.left, y: top, width: sides.right - sides.left, height: sides.bottom - top, rx: 6 })] : []),
      ...across.ticks.flatMap((tick) => [
        h("line", { ...rule, x1: x(tick), x2: x(tick), y1: top, y2: sides.bottom }),
        h("text", { x: x(tick), y: sides.bottom + 16, "text-anchor": "middle" }, tick),
      ]),
      ...up.ticks.flatMap((tick) => [
        h("line", { ...rule, x1: sides.left, x2: sides.right, y1: y(tick), y2: y(tick) }),
        h("text", { x: sides.left - 6, y: y(tick) + 4, "text-anchor": "end" }, tick),
      ]),
      h("text", { class: "axis", x: (sides.left + sides.right) / 2, y: height - 8, "text-anchor": "middle" }, across.name),
      h("text", { class: "axis", transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, up.name),
    ],
  };
}

/** A chart of so many pixels. @param {number} width @param {number} height @param {string} label @param {Child[]} children @param {string} [name] of its class */
function chartOf(width, height, label, children, name = "chart") {
  return h("svg", { class: name, viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);
}

/**
 * Bars of numbers by bins, zero among their ends.
 *
 * @param {number} width
 * @param {Float32Array} values
 * @param {[number, number][]} bins first and last of each
 * @param {string} below what the bins are
 * @param {string} label
 * @returns {Tree}
 */
export function barsOf(width, values, bins, below, label) {
  const height = 150;
  const [least, most] = endsOf(values);
  const [low, high] = [Math.min(0, least), Math.max(0, most) || 1];
  const { y, sides, tree } = groundOf(width, height, { name: below, low: 0, high: values.length, ticks: [] }, chartAxis("", low, high, 3), { top: 8, bottom: 40, back: false });
  const wide = (sides.right - sides.left) / values.length;
  const every = Math.max(1, Math.ceil(34 / wide)); // bins from one name to the next
  const origin = Math.max(0, bins.findIndex(([first]) => first === 0));
  const bars = [...values].flatMap((value, place) => {
    if (Number.isNaN(value)) return [];
    const [first, last] = bins[place];
    const title = h("title", {}, `${below} ${first === last ? first : `${first}…${last}`}: ${value.toPrecision(3)}`);
    const [top, foot] = [Math.min(y(value), y(0)), Math.max(y(value), y(0))];
    return [h("rect", { class: "fill", x: sides.left + place * wide, y: top, width: Math.max(0.5, wide - Math.min(1, wide / 5)), height: Math.max(0.6, foot - top) }, title)];
  });
  const names = bins.flatMap(([first, last], place) => ((place - origin) % every ? [] : [h("text", { x: sides.left + (place + 0.5) * wide, y: sides.bottom + 15, "text-anchor": "middle" }, first < 0 ? last : first)]));
  return chartOf(width, height, label, [...tree, ...bars, ...names]);
}

/**
 * Shares by name, each with the interval of its mean.
 *
 * @param {number} width
 * @param {{ name: string, mean: number, margin: number, text: string, said: string }[]} rows
 * @param {string} label
 */
export function sharesOf(width, rows, label) {
  const [left, right, high] = [104, width - 52, 20];
  const x = (/** @type {number} */ share) => left + Math.min(1, Math.max(0, share)) * (right - left);
  const lines = rows.flatMap(({ name, mean, margin, text, said }, row) => {
    const middle = row * high + high / 2;
    return [
      h("text", { x: left - 6, y: middle + 4, "text-anchor": "end" }, name),
      h("line", { class: "rule", x1: left, x2: right, y1: middle, y2: middle }),
      h("rect", { class: "fill", x: left, y: middle - 6, width: Math.max(0.6, x(mean) - left), height: 12 }, h("title", {}, said)),
      h("line", { class: "reach", x1: x(mean - margin), x2: x(mean + margin), y1: middle, y2: middle }),
      h("text", { x: right + 6, y: middle + 4 }, text),
    ];
  });
  return chartOf(width, rows.length * high + 4, label, lines);
}

/** Deciles on a strip: from the first to the ninth, the median, and the ends. @param {Float32Array} deciles @param {[number, number]} ends @param {string} said */
export function stripOf(deciles, [low, high], said) {
  const width = 120;
  const x = (/** @type {number} */ value) => 2 + ((value - low) / (high - low || 1)) * (width - 4);
  const line = (/** @type {string} */ kind, /** @type {number} */ from, /** @type {number} */ to) =>
    h("line", { class: kind, x1: x(deciles[from]), x2: Math.max(x(deciles[to]), x(deciles[from]) + 0.8), y1: 7, y2: 7 });
  const middle = h("line", { class: "middle", x1: x(deciles[5]), x2: x(deciles[5]), y1: 2, y2: 12 });
  return chartOf(width, 14, said, [h("title", {}, said), ...(Number.isNaN(deciles[5]) ? [] : [line("ends", 0, 10), line("tenths", 1, 9), middle])], "strip");
}
