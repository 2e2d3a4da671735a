/** What the reader’s choices make of a head’s numbers: a side of it or what changed, its scores, words or all but special tokens; and the scales of heads and thumbnails. */

import { comparing, headTitle, page } from "./data.js";
import { byUnits, combined, eachToken, hiddenTokens, scoresOf, unitsOf } from "./grids.js";
import { isWithin } from "./places.js";
import { hidesSpecial, showsMoved, sideNumber, state } from "./state.js";
import { drawnThumbnail, largestDrawn, liftsOf } from "./thumbnails.js";
import { ABSENT, kept, largestOf, quantileOf } from "./values.js";

/** @import { Grid, PaintedPart, Scale, Shown, Text } from "./types.js" */

/** One head, of the side that is chosen. @param {number} number @param {Grid[]} sides @returns {Grid} */
export function shownHead(number, sides) {
  const side = sides[sideNumber()];
  const grid = comparing && state.side === "change" ? combined(side, sides, "difference") : side;
  return { ...grid, sides, title: headTitle(number), scale: scaleOf(number) };
}

/** True if scores are shown instead of weights. */
export function showsScores() {
  return state.scores === "shown";
}

/** Grids as a matrix shows them: their scores over one scale, where these are chosen and kept, by the chosen units. @param {Grid[]} grids @returns {Grid[]} */
export function cellsOf(grids) {
  const maps = showsScores() ? grids.map(scoresOf) : [];
  const scale = scaleOfScores(maps);
  const chosen = scale ? maps.map((map) => ({ ...map, scale })) : grids;
  return chosen.map((grid) => inUnits(grid));
}

/** The scale from the smallest to the largest of some maps of scores; null where no score is kept. @param {Grid[]} maps @returns {Scale | null} */
function scaleOfScores(maps) {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of maps) {
    for (const value of values ?? []) {
      if (value === ABSENT || !Number.isFinite(value)) continue;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
  }
  if (low === Infinity) return null;
  if (low === high) [low, high] = [low - 1, low + 1];
  return { low, high, palette: page.sequential, steps: "linear", change: false, scores: true };
}

/** @type {WeakMap<Text, Map<string, ReturnType<typeof unitsOf>>>} */
const knownUnits = new WeakMap();

/** The units of a text as the reader chose them; null where each token is one. @param {Text} text */
export function unitsNow(text) {
  const name = `${state.by} ${hidesSpecial()} ${text.seconds ? state.interval : ""}`;
  return kept(kept(knownUnits, text, () => new Map()), name, () => unitsOf(text, { words: state.by === "words", special: !hidesSpecial(), keeps: tokensWithin(text) }));
}

/** Returns a function that is true for tokens of which one is in the kept interval, or all if none is kept. @param {Text} text @returns {(start: number, end: number) => boolean} */
function tokensWithin(text) {
  const { interval } = state;
  if (!interval || !text.seconds) return () => true;
  return (start, end) => {
    for (let token = start; token < end; token++) if (isWithin(text, token, interval)) return true;
    return false;
  };
}

/** A line without its special tokens where these are hidden, and without what is outside of the kept interval. @param {Float32Array} line @param {Text} text */
export function withoutHidden(line, text) {
  const special = new Set(hidesSpecial() ? hiddenTokens(text) : []);
  const keeps = tokensWithin(text);
  if (!special.size && !(state.interval && text.seconds)) return line;
  return line.map((value, place) => (special.has(place) || !keeps(place, place + 1) ? ABSENT : value));
}

/** A grid by words, or without special tokens, where these are chosen. @param {Grid} grid */
function inUnits(grid) {
  const [rows, columns] = [unitsNow(grid.queries), unitsNow(grid.keys)];
  if (!grid.values || (!rows && !columns)) return grid;
  const units = byUnits(grid, rows ?? eachToken(grid.queries), columns ?? eachToken(grid.keys));
  const { scale } = grid;
  if (!hidesSpecial() || state.together || scale.scores || scale.steps === "lift" || page.fixed) return units;
  // Without special tokens, which take most, the colours of a single head end at what is left.
  return { ...units, scale: { ...scale, high: Math.min(scale.high, Math.max(largestOf(units.values ?? []), leastHigh())) || scale.high } };
}

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
  return scaleUpTo(state.side === "change" ? high : Math.max(high, leastHigh()));
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

/** The largest number of all heads. */
export function highOfAll() {
  return showsMoved() && page.moved ? page.moved.high : page.high;
}

/** Where a scale of weights ends at the earliest, so that what is even looks even; who asks for a head's own scale gets it. */
export function leastHigh() {
  return showsMoved() || state.limits === "head" ? 0 : page.leastHigh;
}

/** Where the own scale of a head ends. @param {number} number @param {number} side */
export function topOf(number, side) {
  return showsMoved() && page.moved ? page.moved.tops[number] : page.heads[number].tops[side];
}

/** Returns the row, the column and the value of a head's largest weight or contribution. @param {number} number */
export function peakOf(number) {
  return showsMoved() && page.moved ? page.moved.peaks[number] : page.heads[number].peaks[0];
}
