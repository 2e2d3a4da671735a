/** Provides the number of keys that each query can see, with which lift compares a weight. */

import { page, textOf } from "./data.js";

/** @import { Counts } from "./types.js" */

/** @type {Map<string, Float32Array>} */
const counted = new Map();

/** The counts of a head's queries. @param {number} number @param {number} side @returns {Float32Array} */
export function seenBy(number, side = 0) {
  const length = textOf(number, "query", side).labels.length;
  const which = page.heads[number].seen[side];
  const name = `${which} ${length}`;
  const counts = counted.get(name) ?? countsOf(page.seen[which], length);
  counted.set(name, counts);
  return counts;
}

/** @param {Counts} given @param {number} length */
function countsOf(given, length) {
  if ("counts" in given) return Float32Array.from(given.counts);
  const counts = new Float32Array(length);
  for (let row = 0; row < length; row++) counts[row] = given.first + given.step * row; // one by one, since texts are long
  return counts;
}

/** @type {WeakMap<Float32Array, Map<number, Float32Array>>} */
const pooledBefore = new WeakMap();

/** The counts of queries pooled to so many rows: of each block the mean. @param {Float32Array} counts @param {number} rows */
export function pooledCounts(counts, rows) {
  if (rows === counts.length) return counts;
  /** @type {Map<number, Float32Array>} */
  const known = pooledBefore.get(counts) ?? new Map();
  pooledBefore.set(counts, known);
  if (!known.has(rows)) known.set(rows, meansOfBlocks(counts, rows));
  return known.get(rows) ?? counts;
}

/** @param {Float32Array} counts @param {number} rows */
function meansOfBlocks(counts, rows) {
  return Float32Array.from({ length: rows }, (_, row) => {
    const first = Math.floor((row * counts.length) / rows);
    const end = Math.max(first + 1, Math.floor(((row + 1) * counts.length) / rows));
    let total = 0;
    for (let place = first; place < end; place++) total += counts[place];
    return total / (end - first);
  });
}
