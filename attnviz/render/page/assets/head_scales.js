/** The scales of heads and of thumbnails: shared by all or each its own, of weights, of changes, or of lift. */

import { scaleUpTo } from "./colors.js";
import { page } from "./data.js";
import { highOfAll, topOf } from "./moved.js";
import { pooledCounts, seenBy } from "./seen.js";
import { sideNumber, state } from "./state.js";
import { largestMaxima, thumbnailValues } from "./thumbnails.js";
import { ABSENT, largestOf } from "./values.js";

/** @import { Scale } from "./types.js" */

const LIFT_QUANTILE = 0.99; // of the largest weights of blocks, which the colours of lift reach
const MIN_LIFT_REACH = 1.05;

/** The scale of a head, shared by all or its own. @param {number} number @returns {Scale} */
export function scaleOf(number) {
  const head = page.heads[number];
  const own = state.limits === "head";
  if (state.side === "change") return scaleUpTo(own ? head.reach : page.reach);
  if (state.steps === "lift") return liftScale(own ? [number] : [...page.heads.keys()]);
  if (page.fixed && !own) return scaleUpTo(page.fixed[1], page.fixed[0]);
  return scaleUpTo(own ? topOf(number, sideNumber()) : highOfAll());
}

/** @type {Map<string, number>} */
const liftHighs = new Map();

/** Colours of lift: 1 in the middle, as far on both sides as nearly all blocks go. @param {number[]} numbers @returns {Scale} */
function liftScale(numbers) {
  const side = sideNumber();
  const name = `${side} ${numbers.length === 1 ? numbers[0] : "all"}`;
  const high = liftHighs.get(name) ?? liftHigh(numbers, side);
  liftHighs.set(name, high);
  return { low: 1 / high, high, palette: page.sequential, steps: "lift", change: false };
}

/** @param {number[]} numbers @param {number} side */
function liftHigh(numbers, side) {
  /** @type {number[]} */
  const levels = [];
  for (const number of numbers) {
    const [rows, columns] = page.heads[number].thumbnail;
    const maxima = largestMaxima(number, side);
    const seen = pooledCounts(seenBy(number, side), rows);
    maxima.forEach((value, place) => {
      const count = seen[Math.floor(place / columns)];
      if (value !== ABSENT && count > 1 && Number.isFinite(value)) levels.push(value * count);
    });
  }
  levels.sort((one, two) => one - two);
  return Math.max(MIN_LIFT_REACH, levels[Math.floor((levels.length - 1) * LIFT_QUANTILE)] ?? 1);
}

/**
 * The scale of some thumbnails: pooled values are smaller than those that they are pooled from.
 *
 * @param {Iterable<number>} numbers
 */
function scaleOfThumbnails(numbers) {
  if (state.side !== "change" && (state.steps === "lift" || (page.fixed && state.limits === "page"))) return scaleOf(0);
  let high = 0;
  for (const number of numbers) high = Math.max(high, largestTelling(number));
  return scaleUpTo(high);
}

/** The largest value of a thumbnail, rows that see one key left out. @param {number} number */
function largestTelling(number) {
  const values = thumbnailValues(number);
  const [rows, columns] = page.heads[number].thumbnail;
  const seen = pooledCounts(seenBy(number, sideNumber()), rows);
  const first = seen.findIndex((count) => count > 1);
  if (first <= 0) return largestOf(values);
  let high = 0;
  for (let row = 0; row < rows; row++) {
    if (seen[row] > 1) high = Math.max(high, largestOf(values.subarray(row * columns, (row + 1) * columns)));
  }
  return high;
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
