/** One head of one recording: its weights as they are kept, or its factors, from which they are computed. */

import { ITEM_SIZES, readHalves, readWeights } from "./encoding.js";
import { Factors } from "./factors.js";
import { ABSENT, lineOf } from "./values.js";

/** @import { AboutFactors, Axis, GivenFactors, Precision, Score } from "./types.js" */

/** Weights that are kept, and what gives their scores or, where they are pooled, their maxima. */
export class DenseSide {
  /**
   * @param {ArrayBuffer} buffer
   * @param {[number, number]} shape rows and columns
   * @param {number} high what the largest code stands for
   * @param {{ precision: Precision, block: number }} page
   */
  constructor(buffer, [rows, columns], high, { precision, block }) {
    const cells = rows * columns;
    const stop = cells * ITEM_SIZES[precision.dtype];
    this.columns = columns;
    this.high = high;
    this.largest = precision.largest;
    this.weights = readWeights(buffer, 0, cells, precision, high);
    if (block > 1) this.maxima = readWeights(buffer, stop, cells, precision, high);
    else if (precision.dtype === "float32") this.scores = new Float32Array(buffer, stop, cells);
    else this.sums = new Float32Array(buffer.slice(stop), 0, rows);
  }

  /** @param {number} row @param {number} column */
  weight(row, column) {
    return this.weights[row * this.columns + column];
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    return lineOf(this.weights, this.columns, axis, place);
  }

  /** @param {number} row @param {number} column @returns {Score | null} */
  score(row, column) {
    const weight = this.weight(row, column);
    if (weight === ABSENT) return null;
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

  /** How far the weight may be from its own. @param {number} row @param {number} column */
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
 * The factors that a head's bytes hold: its queries in 16 bits, then its other arrays in 32.
 *
 * @param {Uint8Array} bytes
 * @param {number} rows
 * @param {Float32Array} keys
 * @param {AboutFactors} about
 */
export function factorsOf(bytes, rows, keys, about) {
  const { features, unit, rounding, softcap, mask } = about;
  /** @type {Record<string, Float32Array>} */
  const parts = {};
  let place = 2 * rows * features;
  for (const [name, count] of Object.entries(about.parts)) {
    parts[name] = new Float32Array(bytes.slice(place, place + 4 * count).buffer);
    place += 4 * count;
  }
  const queries = readHalves(bytes, 0, rows * features);
  const given = { queries, keys, features, unit, rounding, softcap, mask, ...parts };
  return new Factors(/** @type {GivenFactors} */ (/** @type {unknown} */ (given)));
}
