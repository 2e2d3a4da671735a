/** The map of a head's scores, instead of its weights. */

import { joinsWords, page } from "./data.js";
import { sideNumber, state } from "./state.js";
import { hasUnits } from "./units.js";
import { ABSENT, lineOf } from "./values.js";

/** @import { Axis, Scale, Score, Shown, Side } from "./types.js" */

/** True if scores can be shown here: of maps that are held cell by cell, as they are and not as a change. */
export function hasScoreMap() {
  return hasUnits() && !joinsWords(state.head ?? state.chosen[0] ?? 0) && (state.head !== null || state.together === "side") && state.side !== "change";
}

/** True if scores are shown instead of weights; a word has none. */
export function showsScores() {
  return state.scores === "shown" && state.by === "tokens" && hasScoreMap();
}

/** A score as a number: of one that is only known to be below a bound the bound, NaN where none is kept. @param {Score | null} score */
function scoreNumber(score) {
  if (!score) return NaN;
  const number = "below" in score ? score.below : score.value;
  return number === ABSENT ? number + 1e-6 : number; // a score may be the number that stands for a masked cell
}

/** The scores of all cells. @param {Side} side @param {number} rows @param {number} columns */
function scoresOfCells(side, rows, columns) {
  return Float32Array.from({ length: rows * columns }, (_, place) => {
    const [row, column] = [Math.floor(place / columns), place % columns];
    return side.weight(row, column) === ABSENT ? ABSENT : scoreNumber(side.score(row, column));
  });
}

/** The scale from the smallest to the largest of some maps of scores. @param {Float32Array[]} maps @returns {Scale} */
function scaleOfScores(maps) {
  let [low, high] = [Infinity, -Infinity];
  for (const values of maps) {
    for (const value of values) {
      if (value === ABSENT || !Number.isFinite(value)) continue;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
  }
  if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 1, low + 1] : [0, 1];
  return { low, high, palette: page.sequential, steps: "linear", change: false, scores: true };
}

/** A head whose cells are scores. @implements {Shown} */
class ScoreShown {
  /** @param {Shown} source the head with its weights */
  constructor(source) {
    const { number, title, sides, queries, keys, rows, columns, same } = source;
    this.number = number;
    this.title = title;
    this.sides = sides;
    this.queries = queries;
    this.keys = keys;
    this.rows = rows;
    this.columns = columns;
    this.same = same;
    this.seen = source.seen;
    this.values = scoresOfCells(sides[sideNumber()], rows, columns);
    this.scale = scaleOfScores([this.values]);
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    return this.values[row * this.columns + column];
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    return this.at(row, column);
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    return lineOf(this.values, this.columns, axis, place);
  }

  /** @param {number} row @param {number} column */
  score(row, column) {
    return this.sides[sideNumber()].score(row, column);
  }
}

/** Heads with their scores as cells, over one scale; as they are where the page keeps no score of them. @param {Shown[]} heads @returns {Shown[]} */
export function scoreMaps(heads) {
  const maps = heads.map((head) => new ScoreShown(head));
  if (!maps.some(({ values }) => values.some((value) => value !== ABSENT && Number.isFinite(value)))) return heads;
  const scale = scaleOfScores(maps.map(({ values }) => values));
  for (const map of maps) map.scale = scale;
  return maps;
}
