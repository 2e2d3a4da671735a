/** What the reader's choices make of a head's numbers: a side of it or what changed, its scores, words or all but special tokens. */

import { comparing, headTitle, page } from "./data.js";
import { byUnits, combined, eachToken, hiddenTokens, scoresOf, unitsOf } from "./grids.js";
import { scaleOf } from "./head_scales.js";
import { isWithin } from "./seconds.js";
import { hidesSpecial, sideNumber, state } from "./state.js";
import { ABSENT, largestOf } from "./values.js";

/** @import { Grid, Scale, Text } from "./types.js" */

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
  const known = knownUnits.get(text) ?? new Map();
  knownUnits.set(text, known);
  if (!known.has(name)) known.set(name, unitsOf(text, { words: state.by === "words", special: !hidesSpecial(), keeps: tokensWithin(text) }));
  return known.get(name) ?? null;
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
  return { ...units, scale: { ...scale, high: Math.min(scale.high, largestOf(units.values ?? [])) || scale.high } };
}
