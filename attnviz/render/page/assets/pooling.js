/** A part of a map pooled to pixels: of each pixel's block the mean and the largest of the cells that are visible. */

import { ROWS } from "./factors.js";
import { ABSENT } from "./values.js";

/** @import { Part, Pooled, Rows } from "./types.js" */

/** Rows of cells that are held. @param {Float32Array} values @param {number} columns @returns {Rows} */
export function heldRows(values, columns) {
  return {
    values,
    fillRows: (row, start, stop, out) => {
      for (let more = 0; more < ROWS; more++) {
        out.set(values.subarray((row + more) * columns + start, (row + more) * columns + stop), more * (stop - start));
      }
      return out;
    },
  };
}

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
  const pool = new Pool(heldRows(values, columns), { top: 0, bottom: rows, left: 0, right: columns, height, width }, change);
  for (let row = 0; row < rows; row += ROWS) pool.add(row);
  return pool.take();
}

/** Pools a part of a map whose rows are added from top to bottom. */
export class Pool {
  /** @param {Rows} source @param {Part} part @param {boolean} change whether the largest by size counts */
  constructor(source, part, change = false) {
    const columns = part.right - part.left;
    this.source = source;
    this.part = part;
    this.change = change;
    this.isWhole = part.width === columns && part.height === part.bottom - part.top; // a pixel a cell
    this.edges = new Int32Array(part.width + 1);
    for (let pixel = 0; pixel <= part.width; pixel++) this.edges[pixel] = Math.floor((pixel * columns) / part.width);
    this.cells = new Float32Array(ROWS * columns);
    this.done = this.taken = 0; // lines of pixels that are finished, and of these those that were taken
    this.mean = new Float32Array(part.width * part.height);
    this.max = new Float32Array(part.width * part.height);
    this.totals = new Float64Array(part.width); // of the line that is not finished
    this.counts = new Uint32Array(part.width);
    this.largest = new Float32Array(part.width).fill(ABSENT);
  }

  /** Adds four rows. @param {number} row */
  add(row) {
    const { top, bottom, left, right, height } = this.part;
    const columns = right - left;
    this.source.fillRows(row, left, right, this.cells);
    for (let more = 0; more < ROWS && row + more < bottom; more++) {
      if (this.isWhole) {
        this.finish(this.cells.subarray(more * columns, (more + 1) * columns));
        continue;
      }
      this.addRow(more * columns);
      if (row + more + 1 === top + Math.floor(((this.done + 1) * (bottom - top)) / height)) this.finish();
    }
  }

  /** Adds a row to the line of pixels. @param {number} start of its cells */
  addRow(start) {
    const { cells, edges, totals, counts, largest, change } = this;
    for (let pixel = 0; pixel < largest.length; pixel++) {
      for (let place = start + edges[pixel]; place < start + edges[pixel + 1]; place++) {
        const cell = cells[place];
        if (cell === ABSENT) continue;
        totals[pixel] += cell;
        counts[pixel]++;
        const isLess = change ? Math.abs(cell) <= Math.abs(largest[pixel]) : cell <= largest[pixel];
        if (counts[pixel] === 1 || !isLess) largest[pixel] = cell;
      }
    }
  }

  /** Ends a line of pixels. @param {Float32Array} [cells] where each is a pixel */
  finish(cells) {
    const { totals, counts, largest, mean, max } = this;
    const first = this.done * largest.length;
    this.done++;
    if (cells) {
      mean.set(cells, first);
      max.set(cells, first);
      return;
    }
    for (let pixel = 0; pixel < largest.length; pixel++) mean[first + pixel] = counts[pixel] ? totals[pixel] / counts[pixel] : ABSENT;
    max.set(largest, first);
    totals.fill(0);
    counts.fill(0);
    largest.fill(ABSENT);
  }

  /** The lines since the last time. @returns {Pooled} */
  take() {
    const [first, end] = [this.taken, this.done].map((line) => line * this.part.width);
    this.taken = this.done;
    const isWhole = end - first === this.mean.length;
    return isWhole ? { mean: this.mean, max: this.max } : { mean: this.mean.slice(first, end), max: this.max.slice(first, end) };
  }
}

/** Numbers one after the other in an array of their own. @param {Float32Array[]} parts */
export function joined(parts) {
  const whole = new Float32Array(parts.reduce((total, part) => total + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}
