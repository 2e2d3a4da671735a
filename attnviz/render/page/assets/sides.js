/** One head of one recording: its weights as they are kept, or its factors, from which they are computed. */

import { readWeights } from "./encoding.js";
import { Factors } from "./factors.js";
import { ABSENT, lineOf, timesMoved } from "./values.js";

/** @import { AboutFactors, Axis, GivenFactors, Precision, Score } from "./types.js" */

/** Weights that are kept, and what gives their scores or, where they are pooled, their maxima. */
export class DenseSide {
  /**
   * @param {Float32Array} weights
   * @param {Uint8Array<ArrayBuffer>} rest what follows them
   * @param {number} columns
   * @param {number} high what the largest code stands for
   * @param {{ precision: Precision, block: number, moved?: Float32Array | null }} page
   */
  constructor(weights, rest, columns, high, { precision, block, moved }) {
    this.weights = timesMoved(weights, moved);
    this.moved = moved;
    this.columns = columns;
    this.high = high;
    this.largest = precision.largest;
    if (block > 1) this.maxima = readWeights(rest, precision, high);
    else if (precision.dtype === "float32") this.scores = new Float32Array(rest.buffer);
    else this.sums = new Float32Array(rest.buffer);
  }

  /** @param {number} row @param {number} column */
  weight(row, column) {
    return this.weights[row * this.columns + column];
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    return lineOf(this.weights, this.columns, axis, place);
  }

  /** Half a step between codes, of the weight or of what is shown of it. @param {number} row @param {number} column */
  weightError(row, column) {
    if (!this.largest) return null;
    const moved = this.moved ? this.moved[column] : 1;
    return moved * Math.sqrt((this.weight(row, column) / moved) * this.high) / this.largest;
  }

  /** @param {number} row @param {number} column @returns {Score | null} */
  score(row, column) {
    const shown = this.weight(row, column);
    if (shown === ABSENT) return null;
    const weight = this.moved ? shown / this.moved[column] : shown;
    if (this.scores) return { value: this.scores[row * this.columns + column], error: 0 };
    const sum = this.sums?.[row] ?? NaN;
    if (Number.isNaN(sum) || Number.isNaN(weight)) return null;
    if (weight === 0) return { below: sum + Math.log(this.high) + 2 * Math.log(0.5 / this.largest) };
    const code = this.largest * Math.sqrt(weight / this.high);
    return { value: Math.log(weight) + sum, error: -2 * Math.log(1 - 0.5 / code) };
  }
}

/** Weights that are computed where they are looked at: heads of long texts. */
export class FactoredSide {
  /** @param {Factors} factors */
  constructor(factors) {
    this.factors = factors;
  }

  /** @param {number} row @param {number} column */
  weight(row, column) {
    return this.factors.weight(row, column);
  }

  /** Returns a bound of the weight's error. @param {number} row @param {number} column */
  weightError(row, column) {
    return this.weight(row, column) * Math.expm1(this.factors.errorOf(row, column));
  }

  /** @param {number} row @param {number} column @returns {Score | null} */
  score(row, column) {
    if (!this.factors.sees(row, column)) return null;
    return { value: this.factors.score(row, column), error: this.factors.errorOf(row, column) };
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    return axis === "query" ? this.factors.row(place) : this.factors.column(place);
  }
}

/**
 * The factors of a head, or of one of its queries or keys.
 *
 * @param {AboutFactors} about
 * @param {Float32Array} queries
 * @param {Float32Array} keys
 * @param {object} parts
 */
export function factorsOf({ features, unit, rounding, softcap, mask }, queries, keys, parts) {
  const given = { queries, keys, features, unit, rounding, softcap, mask, ...parts };
  return new Factors(/** @type {GivenFactors} */ (/** @type {unknown} */ (given)));
}

/** The arrays that follow a head's queries, in 32 bits. @param {Uint8Array<ArrayBuffer>} rest @param {AboutFactors} about */
export function partsOfRest(rest, { parts }) {
  /** @type {Record<string, Float32Array>} */
  const found = {};
  let place = 0;
  for (const [name, count] of Object.entries(parts)) {
    found[name] = new Float32Array(rest.buffer, place, count);
    place += 4 * count;
  }
  return found;
}
