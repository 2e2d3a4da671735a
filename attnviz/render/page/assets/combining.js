/** Several heads to one map: the mean, the maximum, the difference of two, and attention rollout. */

import { ABSENT, changeOf } from "./values.js";

/** @import { Rows } from "./types.js" */

const RESIDUAL = 0.5; // of a row, that the residual connection passes on

/** Adds heads one by one; what is left at the end is their mean over those that see a cell, or their maximum. */
export class Combined {
  /** @param {"mean" | "max"} how @param {number} cells */
  constructor(how, cells) {
    this.how = how;
    this.values = new Float32Array(cells).fill(how === "max" ? ABSENT : 0);
    this.counts = how === "max" ? null : new Uint16Array(cells);
  }

  /** @param {Float32Array} weights */
  add(weights) {
    const { values, counts } = this;
    for (let place = 0; place < values.length; place++) {
      const weight = weights[place];
      if (weight === ABSENT) continue;
      if (!counts) values[place] = weight > values[place] || Number.isNaN(weight) ? weight : values[place];
      else {
        values[place] += weight;
        counts[place]++;
      }
    }
  }

  done() {
    const { values, counts } = this;
    if (counts) for (let place = 0; place < values.length; place++) values[place] = counts[place] ? values[place] / counts[place] : ABSENT;
    return values;
  }
}

/** Several heads as one whose cells are computed. */
export class CombinedRows {
  /** @param {Rows[]} heads @param {"mean" | "max" | "difference"} how */
  constructor(heads, how) {
    this.heads = heads;
    this.how = how;
  }

  /** @param {number} row @param {number} start @param {number} stop @param {Float32Array} out */
  fillRows(row, start, stop, out) {
    out.set(combinedOf(this.heads.map((head) => head.fillRows(row, start, stop, new Float32Array(out.length))), this.how));
    return out;
  }
}

/** Lines or maps of several heads as one. @param {Float32Array[]} all @param {"mean" | "max" | "difference"} how */
export function combinedOf(all, how) {
  if (how === "difference") return changeOf(all[0], all[1]);
  const combined = new Combined(how, all[0].length);
  for (const weights of all) combined.add(weights);
  return combined.done();
}

/**
 * How much of each input token every last token is made of: the layers' means over heads with their residual,
 * multiplied from the last to the first (Abnar and Zuidema 2020, section 3, equation 1).
 */
export class Rollout {
  /** @param {number} tokens */
  constructor(tokens) {
    this.tokens = tokens;
    /** @type {Float64Array | null} */
    this.product = null;
  }

  /** Multiplies the next layer from the left. @param {Float32Array[]} heads */
  add(heads) {
    const layer = layerWithResidual(heads, this.tokens);
    this.product = this.product ? multiplied(layer, this.product, this.tokens) : layer;
  }

  done() {
    return Float32Array.from(this.product ?? [], (value) => (value > 0 ? value : ABSENT));
  }
}

/** A layer's mean over heads with its residual; rows sum to one. @param {Float32Array[]} heads @param {number} tokens */
function layerWithResidual(heads, tokens) {
  const mean = new Float64Array(tokens * tokens);
  for (const weights of heads) {
    for (let place = 0; place < mean.length; place++) if (weights[place] !== ABSENT) mean[place] += weights[place];
  }
  for (let row = 0; row < tokens; row++) {
    const line = mean.subarray(row * tokens, (row + 1) * tokens);
    let total = 0;
    for (const value of line) total += value;
    const share = total > 0 ? RESIDUAL : 1;
    for (let column = 0; column < tokens; column++) line[column] *= (1 - share) / heads.length;
    line[row] += share;
    total = (total / heads.length) * (1 - share) + share;
    for (let column = 0; column < tokens; column++) line[column] /= total;
  }
  return mean;
}

/** @param {Float64Array} left @param {Float64Array} right @param {number} tokens */
function multiplied(left, right, tokens) {
  const product = new Float64Array(tokens * tokens);
  for (let row = 0; row < tokens; row++) {
    const out = product.subarray(row * tokens, (row + 1) * tokens);
    for (let middle = 0; middle < tokens; middle++) {
      const factor = left[row * tokens + middle];
      if (!factor) continue;
      const line = right.subarray(middle * tokens, (middle + 1) * tokens);
      for (let column = 0; column < tokens; column++) out[column] += factor * line[column];
    }
  }
  return product;
}
