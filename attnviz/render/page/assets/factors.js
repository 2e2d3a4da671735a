/** Cells from queries and keys: what the page and its worker both compute, by the same rules as attnviz itself. */

import { ABSENT } from "./values.js";

/** @import { GivenFactors } from "./types.js" */

/** Queries that are computed at once: a key that is read once for four of them takes half the time. */
export const ROWS = 4;

const sums = new Float64Array(ROWS); // the latest products of four rows

/**
 * Multiplies a row of features by four others, whose sums do not wait for each other.
 *
 * @param {Float32Array} one
 * @param {number} place of its first feature
 * @param {Float32Array} others
 * @param {number} first place of the first feature of each
 * @param {number} second
 * @param {number} third
 * @param {number} fourth
 * @param {number} features
 */
function multiply(one, place, others, first, second, third, fourth, features) {
  let sum1 = 0;
  let sum2 = 0;
  let sum3 = 0;
  let sum4 = 0;
  for (let feature = 0; feature < features; feature++) {
    const number = one[place + feature];
    sum1 += number * others[first + feature];
    sum2 += number * others[second + feature];
    sum3 += number * others[third + feature];
    sum4 += number * others[fourth + feature];
  }
  sums[0] = sum1;
  sums[1] = sum2;
  sums[2] = sum3;
  sums[3] = sum4;
}

/** The weights and scores of one head of one recording. @param {GivenFactors} given */
export function factorsOf({ queries, keys, features, unit, rounding, softcap, mask, sums: logSums, relative, byKey, real, moved }) {
  const [rows, columns] = [queries.length / features, keys.length / features];
  const prefix = Math.max(0, Math.min(columns, mask.prefix - mask.firstKey)); // keys that every query may see
  const tail = Math.max(prefix, Math.min(columns, (mask.tail ?? Infinity) - mask.firstKey)); // and those from here on
  const isOpen = (/** @type {number} */ column) => column < prefix || column >= tail;

  /** The run of keys that causal, window and chunk leave a query. @param {number} row */
  function spanOf(row) {
    const { causal, window, chunk, firstQuery, firstKey } = mask;
    const place = row + firstQuery;
    let [start, stop] = [0, Infinity];
    if (causal) stop = place + 1;
    if (window !== null) [start, stop] = [Math.max(start, place - window + 1), Math.min(stop, place + window)];
    if (chunk !== null) {
      const first = Math.floor(place / chunk) * chunk;
      [start, stop] = [Math.max(start, first), Math.min(stop, first + chunk)];
    }
    const within = (/** @type {number} */ key) => Math.min(columns, Math.max(0, key - firstKey));
    return [within(start), within(stop)];
  }

  /** True if the query may look at the key. @param {number} row @param {number} column */
  function sees(row, column) {
    const [start, stop] = spanOf(row);
    return ((column >= start && column < stop) || isOpen(column)) && (!real || real[column] > 0);
  }

  /** @param {number} row @param {number} column */
  function product(row, column) {
    let total = 0;
    for (let feature = 0; feature < features; feature++) total += queries[row * features + feature] * keys[column * features + feature];
    return total;
  }

  /** The score of a product, capped and biased, before the mask. @param {number} product @param {number} row @param {number} column */
  function scoreOf(product, row, column) {
    const scaled = product * unit;
    let score = softcap === null ? scaled : softcap * Math.tanh(scaled / softcap);
    if (relative) score += relative[column - row + rows - 1];
    if (byKey) score += byKey[column];
    return score;
  }

  /** The weight of a product where the mask lets the query look, if the key is no padding. @param {number} product @param {number} row @param {number} column */
  function weightOf(product, row, column) {
    if (real && !real[column]) return ABSENT;
    const weight = Math.min(1, Math.exp(scoreOf(product, row, column) - logSums[row]));
    return moved ? weight * moved[column] : weight;
  }

  /** The most by which the score may differ for the rounding of queries and keys. @param {number} row @param {number} column */
  function errorOf(row, column) {
    let size = 0;
    for (let feature = 0; feature < features; feature++) size += Math.abs(queries[row * features + feature] * keys[column * features + feature]);
    return size * Math.abs(unit) * rounding;
  }

  /**
   * Calls `take` with the product of one row of features and each of others.
   *
   * @param {Float32Array} one
   * @param {number} row
   * @param {Float32Array} others
   * @param {number} first
   * @param {number} last
   * @param {(product: number, other: number) => void} take
   */
  function multiplyAll(one, row, others, first, last, take) {
    for (let four = first; four < last; four += ROWS) {
      const [first1, second, third, fourth] = [0, 1, 2, 3].map((more) => Math.min(four + more, last - 1) * features);
      multiply(one, row * features, others, first1, second, third, fourth, features);
      for (let more = 0; more < ROWS && four + more < last; more++) take(sums[more], four + more);
    }
  }

  /** The weights of a query. @param {number} row */
  function rowAt(row) {
    const line = new Float32Array(columns).fill(ABSENT);
    const [start, stop] = spanOf(row);
    for (const [first, last] of [[0, prefix], [Math.max(start, prefix), Math.min(stop, tail)], [tail, columns]]) {
      multiplyAll(queries, row, keys, first, last, (product, column) => (line[column] = weightOf(product, row, column)));
    }
    return line;
  }

  /** The first row whose run of keys has come so far: its ends never go back. @param {(start: number, stop: number) => boolean} hasCome */
  function firstRow(hasCome) {
    let [low, high] = [0, rows];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const [start, stop] = spanOf(middle);
      if (hasCome(start, stop)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The weights of a key. @param {number} column */
  function columnAt(column) {
    const line = new Float32Array(rows).fill(ABSENT);
    const first = isOpen(column) ? 0 : firstRow((_, stop) => stop > column);
    const last = isOpen(column) ? rows : firstRow((start) => start > column);
    multiplyAll(keys, column, queries, first, last, (product, row) => (line[row] = weightOf(product, row, column)));
    return line;
  }

  /**
   * The weights of a query, and of the next three where there are so many, for the keys from start to stop.
   *
   * @param {number} row
   * @param {number} start
   * @param {number} stop
   * @param {Float32Array} out ROWS rows
   */
  function fillRows(row, start, stop, out) {
    const four = [0, 1, 2, 3].map((more) => Math.min(row + more, rows - 1));
    const spans = four.map(spanOf);
    const first = prefix ? start : Math.max(start, Math.min(...spans.map(([begin]) => begin)));
    const last = Math.min(stop, Math.max(prefix, ...spans.map(([, end]) => end)));
    const [first1, second, third, fourth] = four.map((each) => each * features);
    out.fill(ABSENT);
    const next = (/** @type {number} */ column) => (column + 1 < last ? column + 1 : Math.max(column + 1, tail));
    for (let column = first < last ? first : Math.max(start, tail); column < stop; column = next(column)) {
      multiply(keys, column * features, queries, first1, second, third, fourth, features);
      for (let more = 0; more < ROWS; more++) {
        const seen = (column >= spans[more][0] && column < spans[more][1]) || isOpen(column);
        if (seen) out[more * (stop - start) + column - start] = weightOf(sums[more], four[more], column);
      }
    }
    return out;
  }

  return {
    queries, keys, features, unit, rounding, sees, errorOf, fillRows,
    row: rowAt,
    column: columnAt,
    score: (/** @type {number} */ row, /** @type {number} */ column) => scoreOf(product(row, column), row, column),
    weight: (/** @type {number} */ row, /** @type {number} */ column) => (sees(row, column) ? weightOf(product(row, column), row, column) : ABSENT),
  };
}
