/** The charts of a head's card: bars by offset, shares by class of token, entropy by position, and strips of deciles. */

import { meaningOf, metricText, numberOf } from "./metrics.js";
import { besideMean, decilesOf, survey } from "./survey_data.js";
import { endsOf, shape, ticksOf } from "./survey_drawing.js";

/** @import { SurveyNumbers } from "./types.js" */

const [WIDTH_OF_CHART, HEIGHT_OF_CHART] = [420, 150];
const EDGES = { left: 44, right: 8, top: 8, bottom: 32 };
const ROW = 20; // of a class
const STRIP = 120;

/** @typedef {[number, number]} FirstAndLast */

/** A number or a range. @param {FirstAndLast} bin */
function nameOf([first, last]) {
  return first === last ? String(first) : `${first}…${last}`;
}

/**
 * Bars of numbers by bins, zero among their ends.
 *
 * @param {Float32Array} values
 * @param {FirstAndLast[]} bins
 * @param {string} below what the bins are
 * @param {string} label
 */
export function barsOf(values, bins, below, label) {
  const [least, most] = endsOf(values);
  const [low, high] = [Math.min(0, least), Math.max(0, most) || 1];
  const [right, bottom] = [WIDTH_OF_CHART - EDGES.right, HEIGHT_OF_CHART - EDGES.bottom];
  const wide = (right - EDGES.left) / values.length;
  const y = (/** @type {number} */ value) => bottom - ((value - low) / (high - low)) * (bottom - EDGES.top);
  const picture = shape("svg", { class: "chart", viewBox: `0 0 ${WIDTH_OF_CHART} ${HEIGHT_OF_CHART}`, role: "img", "aria-label": label });
  for (const tick of ticksOf(low, high, 3)) {
    picture.append(shape("line", { class: "line", x1: EDGES.left, x2: right, y1: y(tick), y2: y(tick) }));
    picture.append(shape("text", { x: EDGES.left - 5, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  values.forEach((value, place) => {
    if (Number.isNaN(value)) return;
    const [x, top, foot] = [EDGES.left + place * wide, Math.min(y(value), y(0)), Math.max(y(value), y(0))];
    const gap = Math.min(1, wide / 5);
    const size = { width: Math.max(0.5, wide - gap), height: Math.max(0.6, foot - top) };
    const title = shape("title", {}, `${below} ${nameOf(bins[place])}: ${value.toPrecision(3)}`);
    picture.append(shape("rect", { class: "fill", x, y: top, ...size }, title));
  });
  picture.append(...namesBelow(bins, wide, bottom));
  picture.append(shape("text", { x: (EDGES.left + right) / 2, y: HEIGHT_OF_CHART - 4, "text-anchor": "middle" }, below));
  return picture;
}

/** The names of as many bins as fit. @param {FirstAndLast[]} bins @param {number} wide @param {number} bottom */
function namesBelow(bins, wide, bottom) {
  const every = Math.max(1, Math.ceil(34 / wide));
  const origin = Math.max(0, bins.findIndex(([first]) => first === 0));
  return bins.flatMap((bin, place) => {
    if ((place - origin) % every) return [];
    const x = EDGES.left + (place + 0.5) * wide;
    return [shape("text", { x, y: bottom + 14, "text-anchor": "middle" }, String(bin[0] < 0 ? bin[1] : bin[0]))];
  });
}

/** The share of each class of tokens, with the interval of its mean. @param {SurveyNumbers} numbers @param {number} head */
export function classesOf(numbers, head) {
  const rows = survey.classes.filter((name) => besideMean(numbers.counts, head, name) > 0);
  const [left, right] = [104, WIDTH_OF_CHART - 52];
  const x = (/** @type {number} */ share) => left + Math.min(1, Math.max(0, share)) * (right - left);
  const picture = shape("svg", { class: "chart", viewBox: `0 0 ${WIDTH_OF_CHART} ${rows.length * ROW + 4}`, role: "img", "aria-label": "Share of the weight by class of token" });
  rows.forEach((name, row) => {
    const [mean, margin] = [numberOf(head, name), besideMean(numbers.margins, head, name) || 0];
    const middle = row * ROW + ROW / 2;
    const said = `${metricText(name, mean, 1)} ± ${metricText(name, margin, 1)} over ${besideMean(numbers.counts, head, name)} ${survey.noun}`;
    const title = shape("title", {}, `${meaningOf(name)}: ${said}`);
    picture.append(
      shape("text", { x: left - 6, y: middle + 4, "text-anchor": "end" }, name),
      shape("line", { class: "line", x1: left, x2: right, y1: middle, y2: middle }),
      shape("rect", { class: "fill", x: left, y: middle - 6, width: Math.max(0.6, x(mean) - left), height: 12 }, title),
      shape("line", { class: "reach", x1: x(mean - margin), x2: x(mean + margin), y1: middle, y2: middle }),
      shape("text", { x: right + 6, y: middle + 4 }, metricText(name, mean, 1)),
    );
  });
  return picture;
}

/** The deciles of a number on a strip: from the first to the ninth, the median, and the ends. @param {SurveyNumbers} numbers @param {number} head @param {string} name @param {FirstAndLast} ends */
export function stripOf(numbers, head, name, ends) {
  const deciles = decilesOf(numbers, head, name);
  const x = (/** @type {number} */ value) => 2 + ((value - ends[0]) / (ends[1] - ends[0] || 1)) * (STRIP - 4);
  const said = [1, 5, 9].map((tenth) => `${10 * tenth} % below ${metricText(name, deciles[tenth], 1)}`).join(", ");
  const picture = shape("svg", { class: "strip", viewBox: `0 0 ${STRIP} 14`, width: STRIP, height: 14, role: "img", "aria-label": said }, shape("title", {}, said));
  if (Number.isNaN(deciles[5])) return picture;
  const line = (/** @type {string} */ kind, /** @type {number} */ from, /** @type {number} */ to) =>
    shape("line", { class: kind, x1: x(deciles[from]), x2: Math.max(x(deciles[to]), x(deciles[from]) + 0.8), y1: 7, y2: 7 });
  picture.append(line("ends", 0, 10), line("tenths", 1, 9));
  picture.append(shape("line", { class: "middle", x1: x(deciles[5]), x2: x(deciles[5]), y1: 2, y2: 12 }));
  return picture;
}
