/** The scales of heads and of thumbnails: shared by all or each its own, of weights, of changes, or of lift. */

import { page } from "./data.js";
import { drawnThumbnail, largestDrawn, liftsOf } from "./thumbnails.js";
import { highOfAll, topOf } from "./moved.js";
import { sideNumber, state } from "./state.js";
import { quantileOf } from "./values.js";

/** @import { Scale } from "./types.js" */

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
export function liftScaleOf(lifts) {
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
