/**
 * Grids of numbers, and pure functions that make one of others: weights, scores, units, a difference, a mean. Each takes
 * any grid, so that they can follow each other in every order.
 */

import { combinedOf } from "./combining.js";
import { ABSENT, keepLatest, lineOf } from "./values.js";

/** @import { Grid, GridAbout, Mark, Score, Text } from "./types.js" */
/** @import { factorsOf } from "./factors.js" */

const MAX_KEPT_LINES = 6; // of a grid whose cells are computed: text, lists and arcs ask for the same

/** @param {GridAbout} about @param {Pick<Grid, "at" | "line"> & Partial<Grid>} own @returns {Grid} */
function gridOf({ number, title, queries, keys, same, scale, seen }, own) {
  const known = { number, title, queries, keys, same, scale, seen, rows: queries.labels.length, columns: keys.labels.length };
  const alone = { values: null, sides: [], score: () => null, errorAt: () => null, isKnown: () => true };
  const asIs = (/** @type {Mark} */ mark) => mark;
  return { ...known, ...alone, cellOf: asIs, markOf: asIs, ...own };
}

/** A grid whose cells are held. @param {GridAbout} about @param {Float32Array} values @param {Partial<Grid>} [own] */
export function heldGrid(about, values, own) {
  const columns = about.keys.labels.length;
  return gridOf(about, {
    values,
    at: (row, column) => values[row * columns + column],
    line: (axis, place) => lineOf(values, columns, axis, place),
    ...own,
  });
}

/** A grid whose cells are computed where they are looked at. @param {GridAbout} about @param {Pick<Grid, "at" | "line"> & Partial<Grid>} own */
function computedGrid(about, own) {
  /** @type {Map<string, Float32Array>} */
  const kept = new Map();
  return gridOf(about, {
    ...own,
    isKnown: (axis, place) => kept.has(`${axis} ${place}`),
    line: (axis, place) => keepLatest(kept, `${axis} ${place}`, MAX_KEPT_LINES, () => own.line(axis, place)),
  });
}

/**
 * The weights of one head of one recording, as a page keeps them.
 *
 * @param {GridAbout} about
 * @param {object} kept
 * @param {Float32Array} kept.weights
 * @param {number} kept.high what the largest code stands for
 * @param {number} kept.largest code; 0 where weights are kept as they are
 * @param {Float32Array | null} kept.moved what weights were multiplied by, by key, where contributions are shown
 * @param {Float32Array} [kept.scores] of all cells
 * @param {Float32Array} [kept.sums] log-sum-exp of each row
 * @param {Float32Array} [kept.maxima] of blocks
 */
export function keptWeights(about, { weights, high, largest, moved, scores, sums, maxima }) {
  const columns = about.keys.labels.length;
  const factor = (/** @type {number} */ column) => (moved ? moved[column] : 1);

  /** @param {number} row @param {number} column @returns {Score | null} */
  function score(row, column) {
    const shown = weights[row * columns + column];
    if (shown === ABSENT) return null;
    if (scores) return { value: scores[row * columns + column], error: 0 };
    const weight = shown / factor(column);
    const sum = sums?.[row] ?? NaN;
    if (Number.isNaN(sum) || Number.isNaN(weight)) return null;
    if (weight === 0) return { below: sum + Math.log(high) + 2 * Math.log(0.5 / largest) };
    const code = largest * Math.sqrt(weight / high);
    return { value: Math.log(weight) + sum, error: -2 * Math.log(1 - 0.5 / code) };
  }

  // Half a step between codes, of the weight or of what is shown of it.
  const errorAt = (/** @type {number} */ row, /** @type {number} */ column) =>
    largest ? (factor(column) * Math.sqrt((weights[row * columns + column] / factor(column)) * high)) / largest : null;
  return heldGrid(about, weights, { score, errorAt, maxima });
}

/** The weights of one head of one recording, from its queries and keys. @param {GridAbout} about @param {ReturnType<typeof factorsOf>} factors */
export function factoredWeights(about, factors) {
  return computedGrid(about, {
    factors,
    at: (row, column) => factors.weight(row, column),
    line: (axis, place) => (axis === "query" ? factors.row(place) : factors.column(place)),
    errorAt: (row, column) => factors.weight(row, column) * Math.expm1(factors.errorOf(row, column)),
    score: (row, column) => (factors.sees(row, column) ? { value: factors.score(row, column), error: factors.errorOf(row, column) } : null),
  });
}

/**
 * Grids of the same tokens as one: their mean or largest, or the second less the first.
 *
 * @param {GridAbout} about
 * @param {Grid[]} grids
 * @param {"mean" | "max" | "difference"} how
 */
export function combined(about, grids, how) {
  const errorAt = (/** @type {number} */ row, /** @type {number} */ column) => {
    const error = sumOfErrors(grids, row, column); // of a maximum or a difference at most the sum of the errors
    return error !== null && how === "mean" ? error / grids.length : error;
  };
  const all = grids.flatMap(({ values }) => (values ? [values] : []));
  if (all.length === grids.length) return heldGrid(about, combinedOf(all, how), { errorAt });
  return computedGrid(about, {
    errorAt,
    at: (row, column) => combinedOf(grids.map((grid) => Float32Array.of(grid.at(row, column))), how)[0],
    line: (axis, place) => combinedOf(grids.map((grid) => grid.line(axis, place)), how),
  });
}

/** The error of a sum or a difference of several cells; a masked one has none. @param {Grid[]} grids @param {number} row @param {number} column */
export function sumOfErrors(grids, row, column) {
  let total = 0;
  for (const grid of grids) {
    if (grid.at(row, column) === ABSENT) continue;
    const error = grid.errorAt(row, column);
    if (error === null) return null;
    total += error;
  }
  return total;
}

/** The scores of a grid's cells; of one that is only known to be below a bound the bound, NaN where none is kept. @param {Grid} grid */
export function scoresOf(grid) {
  const { columns } = grid;
  const values = Float32Array.from({ length: grid.rows * columns }, (_, place) => {
    const [row, column] = [Math.floor(place / columns), place % columns];
    if (grid.at(row, column) === ABSENT) return ABSENT;
    const score = grid.score(row, column);
    const number = !score ? NaN : "below" in score ? score.below : score.value;
    return number === ABSENT ? number + 1e-6 : number; // a score may be the number that stands for a masked cell
  });
  return heldGrid(grid, values, { sides: grid.sides, score: grid.score });
}

/** The groups of tokens along an axis, each a row or a column, and their labels. */
class Units {
  /** @param {Text} text @param {number[]} starts the first token of each unit @param {number[]} ends @param {string[]} labels */
  constructor(text, starts, ends, labels) {
    this.starts = starts;
    this.ends = ends;
    const isPart = starts.every((start, unit) => start === starts[0] + unit && ends[unit] === start + 1);
    /** @type {Text} */
    this.text = { ...text, labels, spaces: " ".repeat(labels.length), ...(isPart ? partOfAxis(text, starts) : { seconds: undefined }) };
  }

  get count() {
    return this.starts.length;
  }

  /** The unit of a token; of one that is hidden the unit before it, or the first. @param {number} token */
  unitOf(token) {
    let unit = 0;
    while (unit + 1 < this.count && this.starts[unit + 1] <= token) unit++;
    return unit;
  }
}

/**
 * The units of a text: its words or its tokens, some of them left out; null where each token is one.
 *
 * @param {Text} text
 * @param {object} which
 * @param {boolean} which.words whether words are joined
 * @param {boolean} which.special whether special tokens are units
 * @param {(start: number, end: number) => boolean} which.keeps
 */
export function unitsOf(text, { words, special, keeps }) {
  const count = text.labels.length;
  const starts = words && text.words ? text.words.starts : [...Array(count).keys()];
  const ends = [...starts.slice(1), count];
  const hidden = new Set(special ? [] : hiddenTokens(text));
  const kept = [...starts.keys()].filter((unit) => !hidden.has(starts[unit]) && keeps(starts[unit], ends[unit]));
  if (!kept.length || (kept.length === count && starts.length === count)) return null;
  const label = (/** @type {number} */ unit) => (words && text.words?.labels[unit]) || text.labels[starts[unit]];
  return new Units(text, kept.map((unit) => starts[unit]), kept.map((unit) => ends[unit]), kept.map(label));
}

/** The tokens that can be left out: special ones, and others that take most of the weight. @param {Text} text */
export function hiddenTokens({ special = [], leftOut = [] }) {
  return [...special, ...leftOut];
}

/** @param {Text} text */
export function eachToken(text) {
  return new Units(text, [...text.labels.keys()], text.labels.map((_, place) => place + 1), text.labels);
}

/** What differs on an axis of which some tokens one after the other are left. @param {Text} text @param {number[]} kept @returns {Partial<Text>} */
function partOfAxis({ edges, first = 0, words }, kept) {
  const [start, end] = [kept[0], kept[0] + kept.length];
  if (edges) return { edges: edges.slice(start, end + 1) };
  const numbers = words ? [...words.starts.keys()].filter((number) => words.starts[number] < end && (words.starts[number + 1] ?? Infinity) > start) : [];
  const part = words && { starts: numbers.map((number) => Math.max(0, words.starts[number] - start)), labels: numbers.map((number) => words.labels[number]) };
  return { first: first + start, words: part };
}

/** A line by units: sums along it, of scores their means. @param {Float32Array} line @param {Units} units @param {boolean} [scores] */
export function lineByUnits(line, { starts, ends }, scores = false) {
  return Float32Array.from(starts, (start, unit) => {
    let [total, count] = [0, 0];
    for (let place = start; place < ends[unit]; place++) {
      if (line[place] === ABSENT) continue;
      total += line[place];
      count++;
    }
    return count ? total / (scores ? count : 1) : ABSENT;
  });
}

/**
 * A grid whose rows and columns are units of another's: weights are summed over keys and averaged over queries, scores
 * are averaged over both.
 *
 * @param {Grid} source
 * @param {Units} rows
 * @param {Units} columns
 */
export function byUnits(source, rows, columns) {
  const scores = source.scale.scores ?? false;
  const values = new Float32Array(rows.count * columns.count);
  rows.starts.forEach((start, row) => {
    const lines = Array.from({ length: rows.ends[row] - start }, (_, more) => lineByUnits(source.line("query", start + more), columns, scores));
    for (let column = 0; column < columns.count; column++) {
      let [total, count] = [0, 0];
      for (const line of lines) {
        if (line[column] === ABSENT) continue;
        total += line[column];
        count++;
      }
      values[row * columns.count + column] = count ? total / (scores ? count : lines.length) : ABSENT;
    }
  });

  // Errors as weights: their sum over keys, and the mean over queries.
  const errorAt = (/** @type {number} */ row, /** @type {number} */ column) => {
    let total = 0;
    for (let query = rows.starts[row]; query < rows.ends[row]; query++) {
      for (let key = columns.starts[column]; key < columns.ends[column]; key++) {
        if (source.at(query, key) === ABSENT) continue;
        const error = source.errorAt(query, key);
        if (error === null) return null;
        total += error;
      }
    }
    return total / (rows.ends[row] - rows.starts[row]);
  };
  const isSingle = (/** @type {Units} */ units, /** @type {number} */ unit) => units.ends[unit] === units.starts[unit] + 1;
  return heldGrid({ ...source, queries: rows.text, keys: columns.text, seen: (row, column) => source.seen(rows.starts[row], columns.starts[column]) }, values, {
    source,
    errorAt,
    score: (row, column) => (isSingle(rows, row) && isSingle(columns, column) ? source.score(rows.starts[row], columns.starts[column]) : null),
    cellOf: ({ query, key }) => ({ query: query === null ? null : rows.unitOf(query), key: key === null ? null : columns.unitOf(key) }),
    markOf: ({ query, key }) => ({ query: query === null ? null : rows.starts[query], key: key === null ? null : columns.starts[key] }),
  });
}
