/** Cells from queries and keys: what the page and its worker both compute, by the same rules as attnviz itself. */

import { ABSENT } from "./values.js";

/** @import { GivenFactors } from "./types.js" */

/** Queries that are computed at once. */
export const ROWS = 4;

/** The factors of one head of one recording, and what follows from them. */
export class Factors {
  /** @param {GivenFactors} given */
  constructor(given) {
    this.queries = given.queries;
    this.keys = given.keys;
    this.features = given.features;
    this.unit = given.unit;
    this.rounding = given.rounding;
    this.softcap = given.softcap;
    this.mask = given.mask;
    this.sums = given.sums;
    this.relative = given.relative;
    this.byKey = given.byKey;
    this.real = given.real;
    this.moved = given.moved;
    this.rows = this.queries.length / this.features;
    this.columns = this.keys.length / this.features;
  }

  /** The run of keys that causal, window and chunk leave a query. @param {number} row */
  spanOf(row) {
    const { causal, window, chunk, firstQuery, firstKey } = this.mask;
    const place = row + firstQuery;
    let [start, stop] = [0, Infinity];
    if (causal) stop = place + 1;
    if (window !== null) [start, stop] = [Math.max(start, place - window + 1), Math.min(stop, place + window)];
    if (chunk !== null) {
      const first = Math.floor(place / chunk) * chunk;
      [start, stop] = [Math.max(start, first), Math.min(stop, first + chunk)];
    }
    const within = (/** @type {number} */ key) => Math.min(this.columns, Math.max(0, key - firstKey));
    return [within(start), within(stop)];
  }

  /** True if the query may look at the key. @param {number} row @param {number} column */
  sees(row, column) {
    const [start, stop] = this.spanOf(row);
    const allowed = (column >= start && column < stop) || column + this.mask.firstKey < this.mask.prefix;
    return allowed && (!this.real || this.real[column] > 0);
  }

  /** The score, before the mask. @param {number} row @param {number} column */
  score(row, column) {
    return this.scoreOf(this.product(row, column) * this.unit, row, column);
  }

  /** The query times the key, in no unit. @param {number} row @param {number} column */
  product(row, column) {
    const { queries, keys, features } = this;
    let total = 0;
    let [query, key] = [row * features, column * features];
    for (const stop = query + features; query < stop; ) total += queries[query++] * keys[key++];
    return total;
  }

  /**
   * The score of a product, capped and biased.
   *
   * @param {number} product
   * @param {number} row
   * @param {number} column
   */
  scoreOf(product, row, column) {
    const { softcap, relative, byKey } = this;
    let score = softcap === null ? product : softcap * Math.tanh(product / softcap);
    if (relative) score += relative[column - row + this.rows - 1];
    if (byKey) score += byKey[column];
    return score;
  }

  /**
   * The most by which the score may differ for the rounding of queries and keys.
   *
   * @param {number} row
   * @param {number} column
   */
  errorOf(row, column) {
    const { queries, keys, features } = this;
    let size = 0;
    for (let place = 0; place < features; place++) {
      size += Math.abs(queries[row * features + place] * keys[column * features + place]);
    }
    return size * Math.abs(this.unit) * this.rounding;
  }

  /** The weight; absent where the query may not look. @param {number} row @param {number} column */
  weight(row, column) {
    return this.sees(row, column) ? this.cell(row, column) : ABSENT;
  }

  /**
   * The weights of a query, and of the next three where there are so many, for the keys from start to stop into `out`,
   * ROWS rows of them: a key that is read once for four queries takes half the time.
   *
   * @param {number} row
   * @param {number} start
   * @param {number} stop
   * @param {Float32Array} out
   */
  fillRows(row, start, stop, out) {
    const width = stop - start;
    const rows = Array.from({ length: ROWS }, (_, more) => Math.min(row + more, this.rows - 1));
    const spans = rows.map((each) => this.spanOf(each));
    const prefix = this.mask.prefix - this.mask.firstKey;
    const first = prefix > 0 ? start : Math.max(start, Math.min(...spans.map(([begin]) => begin)));
    const last = Math.min(stop, Math.max(prefix, ...spans.map(([, end]) => end)));
    out.fill(ABSENT);
    this.fillProducts(rows[0], rows[ROWS - 1], start, first, last, out);
    rows.forEach((each, more) => {
      const [begin, end] = spans[more];
      for (let column = first; column < last; column++) {
        const seen = ((column >= begin && column < end) || column < prefix) && (!this.real || this.real[column] > 0);
        const place = more * width + column - start;
        const weight = seen ? Math.min(1, Math.exp(this.scoreOf(out[place], each, column) - this.sums[each])) : ABSENT;
        out[place] = seen && this.moved ? weight * this.moved[column] : weight;
      }
    });
    return out;
  }

  /**
   * The products of four queries (fewer at the end of the text: the last again) with the keys from first to last.
   *
   * @param {number} row
   * @param {number} lastRow
   * @param {number} start
   * @param {number} first
   * @param {number} last
   * @param {Float32Array} out
   */
  fillProducts(row, lastRow, start, first, last, out) {
    const { queries, keys, features, unit } = this;
    const width = out.length / ROWS;
    const [one, two, three, four] = [0, 1, 2, 3].map((more) => Math.min(row + more, lastRow) * features);
    for (let column = first; column < last; column++) {
      const key = column * features;
      let sum1 = 0;
      let sum2 = 0;
      let sum3 = 0;
      let sum4 = 0;
      for (let place = 0; place < features; place++) {
        const number = keys[key + place];
        sum1 += queries[one + place] * number;
        sum2 += queries[two + place] * number;
        sum3 += queries[three + place] * number;
        sum4 += queries[four + place] * number;
      }
      const place = column - start;
      out[place] = sum1 * unit;
      out[place + width] = sum2 * unit;
      out[place + 2 * width] = sum3 * unit;
      out[place + 3 * width] = sum4 * unit;
    }
  }

  /** The weights of a query. @param {number} row */
  row(row) {
    const line = new Float32Array(this.columns).fill(ABSENT);
    const [start, stop] = this.spanOf(row);
    const prefix = Math.max(0, Math.min(this.columns, this.mask.prefix - this.mask.firstKey));
    const query = this.queries.subarray(row * this.features, (row + 1) * this.features);
    for (const [first, last] of [[0, prefix], [Math.max(start, prefix), stop]]) {
      const products = productsOf(query, this.keys, first, last);
      for (let column = first; column < last; column++) line[column] = this.cellOf(products[column - first], row, column);
    }
    return line;
  }

  /** The first row whose run of keys has come so far: its ends never go back. @param {(start: number, stop: number) => boolean} hasCome */
  firstRow(hasCome) {
    let [low, high] = [0, this.rows];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const [start, stop] = this.spanOf(middle);
      if (hasCome(start, stop)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The weights of a key. @param {number} column */
  column(column) {
    const line = new Float32Array(this.rows).fill(ABSENT);
    const prefixed = column + this.mask.firstKey < this.mask.prefix;
    const first = prefixed ? 0 : this.firstRow((_, stop) => stop > column);
    const last = prefixed ? this.rows : this.firstRow((start) => start > column);
    const products = productsOf(this.keys.subarray(column * this.features, (column + 1) * this.features), this.queries, first, last);
    for (let row = first; row < last; row++) line[row] = this.cellOf(products[row - first], row, column);
    return line;
  }

  /** The weight where the mask lets the query look, if the key is no padding. @param {number} row @param {number} column */
  cell(row, column) {
    return this.cellOf(this.product(row, column), row, column);
  }

  /** Returns the weight of a cell, given the product of its query and key before scaling. @param {number} product @param {number} row @param {number} column */
  cellOf(product, row, column) {
    if (this.real && !this.real[column]) return ABSENT;
    const weight = Math.min(1, Math.exp(this.scoreOf(product * this.unit, row, column) - this.sums[row]));
    return this.moved ? weight * this.moved[column] : weight;
  }
}

/**
 * One query or key times the rows of others from first to last: four at once, which do not wait for each other's sums.
 *
 * @param {Float32Array} one features
 * @param {Float32Array} others rows of features
 * @param {number} first
 * @param {number} last
 */
function productsOf(one, others, first, last) {
  const features = one.length;
  const products = new Float64Array(Math.max(0, last - first));
  const fours = products.length - (products.length % 4);
  let place1 = first * features;
  for (let place = 0; place < fours; place += 4) {
    const place2 = place1 + features;
    const place3 = place2 + features;
    const place4 = place3 + features;
    let sum1 = 0;
    let sum2 = 0;
    let sum3 = 0;
    let sum4 = 0;
    for (let feature = 0; feature < features; feature++) {
      const number = one[feature];
      sum1 += number * others[place1 + feature];
      sum2 += number * others[place2 + feature];
      sum3 += number * others[place3 + feature];
      sum4 += number * others[place4 + feature];
    }
    products[place] = sum1;
    products[place + 1] = sum2;
    products[place + 2] = sum3;
    products[place + 3] = sum4;
    place1 = place4 + features;
  }
  for (let place = fours; place < products.length; place++) {
    for (let feature = 0; feature < features; feature++) products[place] += one[feature] * others[place1 + feature];
    place1 += features;
  }
  return products;
}
