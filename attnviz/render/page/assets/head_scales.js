/** The scales of heads and of thumbnails: shared by all or each its own, of weights, of changes, or of lift. */

import { page } from "./data.js";
import { drawnThumbnail, largestDrawn, liftsOf } from "./thumbnails.js";
import { highOfAll, topOf } from "./moved.js";
import { sideNumber, state } from "./state.js";
import { ABSENT, quantileOf } from "./values.js";

/** @import { PaintedPart, Scale, Shown } from "./types.js" */

/** @typedef {{ shown: Shown, drawnParts: PaintedPart[], pooled: boolean }} Drawn a map, and what is drawn of it */

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
  if (state.steps === "lift") return own ? liftScaleOf(liftsOf(drawnThumbnail(number, page.heads[number].thumbnail))) : liftScaleUpTo(page.liftHighs[sideNumber()]);
  if (page.fixed && !own) return scaleUpTo(page.fixed[1], page.fixed[0]);
  return scaleUpTo(own ? topOf(number, sideNumber()) : highOfAll());
}

/** Colours of lift: 1 in the middle, as far on both sides as nearly all of these go. @param {Float32Array} lifts @returns {Scale} */
function liftScaleOf(lifts) {
  return liftScaleUpTo(Math.max(page.minLiftReach, quantileOf(lifts, page.liftQuantile) ?? 1));
}

/** @param {number} high @returns {Scale} */
function liftScaleUpTo(high) {
  return { low: 1 / high, high, palette: page.sequential, steps: "lift", change: false };
}

/**
 * The scale of some thumbnails: pooled values are smaller than those that they are pooled from.
 *
 * @param {Iterable<number>} numbers
 */
function scaleOfThumbnails(numbers) {
  if (state.side !== "change" && (state.steps === "lift" || (page.fixed && state.limits === "shared"))) return scaleOf(0);
  let high = 0;
  for (const number of numbers) high = Math.max(high, largestDrawn(number));
  return scaleUpTo(high);
}

/** The scale of all thumbnails. */
export function sharedScale() {
  return scaleOfThumbnails(page.heads.keys());
}

/** The scale of a thumbnail, shared by all or its own. @param {number} number */
export function thumbnailScale(number) {
  if (state.limits !== "head") return sharedScale();
  return state.steps === "lift" && state.side !== "change" ? liftScaleOf(liftsOf(drawnThumbnail(number))) : scaleOfThumbnails([number]);
}

/** The scale of what is drawn of a map and of those beside it: means of blocks are smaller than the weights that they are means of. @param {Drawn} map @param {Drawn[]} peers @returns {Scale} */
export function scaleOfParts(map, peers) {
  const { scale } = map.shown;
  const isLift = scale.steps === "lift" && !scale.change;
  const isOwn = state.limits === "head";
  if (isLift && isOwn && map.drawnParts.length) return liftScaleOfParts(map);
  if (!map.pooled || state.pool === "max" || isLift || (page.fixed && !isOwn && !scale.scores)) return scale;
  const spans = (isOwn ? [map] : peers).flatMap(({ drawnParts, shown }) => drawnParts.map((part) => (part.span ??= spanOf(part, shown))));
  const [low, high] = [Math.min(...spans.map(([least]) => least)), Math.max(...spans.map(([, most]) => most))];
  if (!Number.isFinite(high) || (scale.scores && high === low)) return scale;
  return scale.scores ? { ...scale, low, high } : { ...scale, low: 0, high: Math.max(high, -low) || 1 };
}

/** @type {WeakMap<Float32Array, { count: number, scale: Scale }>} by the values of the first of so many parts */
const liftScales = new WeakMap();

/** The scale of the lifts of what is drawn, rows that see one key left out. @param {Drawn} map */
function liftScaleOfParts({ drawnParts, shown }) {
  const known = liftScales.get(drawnParts[0].values);
  if (known?.count === drawnParts.length) return known.scale;
  const lifts = new Float32Array(drawnParts.reduce((total, { values }) => total + values.length, 0));
  let count = 0;
  for (const { values, top, bottom, left, right, height, width } of drawnParts) {
    for (let place = 0; place < values.length; place++) {
      const query = top + Math.floor(((Math.floor(place / width) + 0.5) * (bottom - top)) / height);
      const seen = shown.seen(query, left + Math.floor((((place % width) + 0.5) * (right - left)) / width));
      if (seen > 1 && values[place] !== ABSENT && !Number.isNaN(values[place])) lifts[count++] = values[place] * seen;
    }
  }
  const scale = liftScaleOf(lifts.subarray(0, count));
  liftScales.set(drawnParts[0].values, { count: drawnParts.length, scale });
  return scale;
}

/**
 * The least and the largest value of a part; but for scores without the rows that see no more keys than a pixel has,
 * whose means are large at the beginning of every causal map.
 *
 * @param {PaintedPart} part
 * @param {Shown} shown
 * @returns {[number, number]}
 */
function spanOf({ values, top, bottom, left, right, height, width }, shown) {
  let [low, high] = [Infinity, -Infinity];
  for (let row = 0; row < height; row++) {
    const query = top + Math.floor(((row + 0.5) * (bottom - top)) / height);
    if (!shown.scale.scores && shown.seen(query, left) <= (right - left) / width) continue;
    for (let place = row * width; place < (row + 1) * width; place++) {
      const value = values[place];
      if (value === ABSENT || !Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}
