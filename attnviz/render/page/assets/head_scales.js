/** The scales of heads and of thumbnails: shared by all or each its own, of weights, of changes, or of lift. */

import { page } from "./data.js";
import { highOfAll, topOf } from "./moved.js";
import { pooledCounts, seenBy } from "./seen.js";
import { sideNumber, state } from "./state.js";
import { codedMaxima, largestOfRows } from "./thumbnails.js";
import { quantileOf } from "./values.js";

/** @import { Scale } from "./types.js" */

const LIFT_QUANTILE = 0.99; // of the largest weights of blocks, which the colours of lift reach
const MIN_LIFT_REACH = 1.05;

/** The scale up to a value. @param {number | undefined} high @param {number} low @returns {Scale} */
export function scaleUpTo(high, low = 0, change = state.side === "change") {
  const palette = change ? page.diverging : page.sequential;
  return { low: change ? 0 : low, high: high || 1, palette, steps: state.steps, change };
}

/** The scale of a head, shared by all or its own. @param {number} number @returns {Scale} */
export function scaleOf(number) {
  const head = page.heads[number];
  const own = state.limits === "head";
  if (state.side === "change") return scaleUpTo(own ? head.reach : page.reach);
  if (state.steps === "lift") return liftScale(own ? number : null);
  if (page.fixed && !own) return scaleUpTo(page.fixed[1], page.fixed[0]);
  return scaleUpTo(own ? topOf(number, sideNumber()) : highOfAll());
}

/** @type {Map<string, number>} */
const liftHighs = new Map();

/** Colours of lift: 1 in the middle, as far on both sides as nearly all blocks go, of a head or of all. @param {number | null} number @returns {Scale} */
function liftScale(number) {
  const side = sideNumber();
  const name = `${side} ${number}`;
  const high = number === null ? page.liftHighs[side] : (liftHighs.get(name) ?? liftHigh(number, side));
  liftHighs.set(name, high);
  return { low: 1 / high, high, palette: page.sequential, steps: "lift", change: false };
}

/** @param {number} number @param {number} side */
function liftHigh(number, side) {
  const [rows, columns] = page.heads[number].thumbnail;
  const { codes, weights } = codedMaxima(number, side);
  const seen = pooledCounts(seenBy(number, side), rows);
  const levels = new Float32Array(rows * columns);
  let count = 0;
  for (let place = 0; place < levels.length; place++) {
    const counted = seen[Math.floor(place / columns)];
    if (codes[place] <= page.thumbnailLargest && counted > 1) levels[count++] = weights[codes[place]] * counted;
  }
  return Math.max(MIN_LIFT_REACH, quantileOf(levels.subarray(0, count), LIFT_QUANTILE) ?? 1);
}

/**
 * The scale of some thumbnails: pooled values are smaller than those that they are pooled from.
 *
 * @param {Iterable<number>} numbers
 */
function scaleOfThumbnails(numbers) {
  if (state.side !== "change" && (state.steps === "lift" || (page.fixed && state.limits === "shared"))) return scaleOf(0);
  let high = 0;
  for (const number of numbers) high = Math.max(high, largestTelling(number));
  return scaleUpTo(high);
}

/** The largest value of a thumbnail, rows that see one key left out. @param {number} number */
function largestTelling(number) {
  const seen = pooledCounts(seenBy(number, sideNumber()), page.heads[number].thumbnail[0]);
  const first = seen.findIndex((count) => count > 1);
  return largestOfRows(number, (row) => first <= 0 || seen[row] > 1);
}

/** The scale of all thumbnails. */
export function sharedScale() {
  return scaleOfThumbnails(page.heads.keys());
}

/** The scale of a thumbnail, shared by all or its own. @param {number} number */
export function thumbnailScale(number) {
  if (state.limits !== "head") return sharedScale();
  return state.steps === "lift" && state.side !== "change" ? scaleOf(number) : scaleOfThumbnails([number]);
}
