/** A part of a head pooled to lines of pixels, as they are computed. */

import { ROWS } from "./factors.js";
import { ABSENT } from "./values.js";

/** @import { Computed, Part, Pooled } from "./types.js" */

/**
 * A map that is held cell by cell, pooled to so many rows and columns of pixels.
 *
 * @param {Float32Array} values
 * @param {number} rows
 * @param {number} columns
 * @param {number} height
 * @param {number} width
 * @param {boolean} change whether they are changes, of which the largest by size counts
 * @returns {Pooled}
 */
export function pooledCells(values, rows, columns, height, width, change) {
  /** @type {Computed} */
  const held = {
    fillRows: (row, _start, _stop, out) => {
      out.set(values.subarray(row * columns, (row + ROWS) * columns));
      return out;
    },
  };
  const pool = new Pool(held, { top: 0, bottom: rows, left: 0, right: columns, height, width }, change);
  for (let row = 0; row < rows; row += ROWS) pool.add(row);
  return pool.take();
}

/** Lines of pixels of one recording: the mean and the largest of the visible weights of each pixel's block. */
export class Pool {
  /** @param {Computed} side @param {Part} part @param {boolean} change whether the largest by size counts */
  constructor(side, part, change = false) {
    this.side = side;
    this.change = change;
    this.part = part;
    const columns = part.right - part.left;
    this.weights = new Float32Array(ROWS * columns);
    this.single = part.width === columns && part.height === part.bottom - part.top; // a pixel a cell
    this.edges = Int32Array.from({ length: part.width + 1 }, (_, pixel) => Math.floor((pixel * columns) / part.width));
    this.done = 0; // lines that are finished, and of these those that were taken
    this.taken = 0;
    /** @type {Float32Array[]} */
    this.mean = [];
    /** @type {Float32Array[]} */
    this.max = [];
    this.highest = new Float32Array(part.width);
    this.totals = new Float64Array(part.width);
    this.counts = new Uint32Array(part.width);
    this.next = 0;
    this.begin();
  }

  /** Begins a line of pixels, which ends before the query `next`. */
  begin() {
    const { top, bottom, height, width } = this.part;
    this.highest = new Float32Array(width).fill(ABSENT);
    this.totals.fill(0);
    this.counts.fill(0);
    this.next = top + Math.floor(((this.done + 1) * (bottom - top)) / height);
  }

  /** Adds four queries. @param {number} row */
  add(row) {
    const { left, right, bottom } = this.part;
    const columns = right - left;
    this.side.fillRows(row, left, right, this.weights);
    for (let more = 0; more < ROWS && row + more < bottom; more++) {
      if (this.single) this.keepLine(this.weights.slice(more * columns, (more + 1) * columns));
      else this.addLine(this.weights, more * columns);
      if (!this.single && row + more + 1 === this.next) this.finish();
    }
  }

  /** Keeps a line of single cells as it is. @param {Float32Array} weights */
  keepLine(weights) {
    this.mean.push(weights);
    this.max.push(weights);
    this.done++;
  }

  /** Adds a query to the line of pixels. @param {Float32Array} weights @param {number} start */
  addLine(weights, start) {
    const { edges, totals, counts, highest, change } = this;
    for (let pixel = 0; pixel < highest.length; pixel++) {
      for (let place = start + edges[pixel]; place < start + edges[pixel + 1]; place++) {
        const weight = weights[place];
        if (weight === ABSENT) continue;
        totals[pixel] += weight;
        counts[pixel]++;
        const isLess = change ? Math.abs(weight) <= Math.abs(highest[pixel]) : weight <= highest[pixel];
        if (counts[pixel] === 1 || !isLess) highest[pixel] = weight;
      }
    }
  }

  /** Ends the line of pixels. */
  finish() {
    const mean = new Float32Array(this.part.width).fill(ABSENT);
    for (let pixel = 0; pixel < mean.length; pixel++) {
      if (this.counts[pixel]) mean[pixel] = this.totals[pixel] / this.counts[pixel];
    }
    this.mean.push(mean);
    this.max.push(this.highest);
    this.done++;
    this.begin();
  }

  /** The lines since the last time. @returns {Pooled} */
  take() {
    const taken = { mean: joined(this.mean), max: joined(this.max) };
    [this.mean, this.max, this.taken] = [[], [], this.done];
    return taken;
  }
}

/** Lines one after the other. @param {Float32Array[]} lines */
function joined(lines) {
  const all = new Float32Array(lines.length * (lines[0]?.length ?? 0));
  lines.forEach((line, number) => all.set(line, number * line.length));
  return all;
}
