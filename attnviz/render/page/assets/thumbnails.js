/** The thumbnails' numbers: means and maxima of every head. */

import { page, shapeOf } from "./data.js";
import { decode, someBytesOf, weightsOfCodes } from "./encoding.js";
import { movedCodes, showsMoved } from "./moved.js";
import { sideNumber, state } from "./state.js";
import { changeOf } from "./values.js";

/** @import { Coded, Pool, Pooled } from "./types.js" */

/** @typedef {(first: number, count: number) => Uint8Array} ReadCodes some of all codes */

/** One head's, as characters until they are shown. */
class Thumbnail {
  /** @param {ReadCodes} read @param {number} first @param {number} cells of means, and of maxima after them @param {[number, number]} highs */
  constructor(read, first, cells, highs) {
    this.readCodes = read;
    this.first = first;
    this.cells = cells;
    this.highs = highs;
    /** @type {Map<Pool, Coded>} */
    this.codes = new Map();
    /** @type {Map<Pool, Float32Array>} */
    this.read = new Map();
  }

  get mean() {
    return this.values("mean");
  }

  get max() {
    return this.values("max");
  }

  /** @param {Pool} pool */
  values(pool) {
    const { codes, weights } = this.coded(pool);
    const values = this.read.get(pool) ?? decode(codes, weights);
    this.read.set(pool, values);
    return values;
  }

  /** Codes, and the weights that they stand for. @param {Pool} pool @returns {Coded} */
  coded(pool) {
    const which = pool === "mean" ? 0 : 1;
    const coded = this.codes.get(pool) ?? {
      codes: this.readCodes(this.first + which * this.cells, this.cells),
      weights: weightsOfCodes(page.thumbnailLargest, this.highs[which]),
    };
    this.codes.set(pool, coded);
    return coded;
  }
}

/** @type {Map<boolean, Thumbnail[][]>} of weights, and of the contributions that a page holds besides */
const thumbnails = new Map([[false, readThumbnails((first, count) => someBytesOf(page.thumbnails, first, count), (number) => page.heads[number].thumbnailHighs)]]);

/** Returns the thumbnails of the quantity that is shown now, weights or contributions. */
function shownThumbnails() {
  const moved = showsMoved();
  const codes = movedCodes();
  const found = thumbnails.get(moved) ?? readThumbnails((first, count) => codes.subarray(first, first + count), (number) => [page.moved?.thumbnailHighs[number] ?? [1, 1]]);
  thumbnails.set(moved, found);
  return found;
}

/**
 * Means and maxima by head and side, each read when it is shown.
 *
 * @param {ReadCodes} read
 * @param {(number: number) => [number, number][]} highsOf a head's sides
 * @returns {Thumbnail[][]}
 */
function readThumbnails(read, highsOf) {
  let place = 0;
  return page.heads.map((head, number) => {
    const cells = head.thumbnail[0] * head.thumbnail[1];
    return highsOf(number).map((highs) => {
      place += 2 * cells;
      return new Thumbnail(read, place - 2 * cells, cells, highs);
    });
  });
}

/** The means or the maxima that are shown: of one recording, or what changed. @param {Pooled[]} pooled */
export function shownPool(pooled) {
  const sides = pooled.map((side) => side[state.pool]);
  return state.side === "change" ? changeOf(sides[0], sides[1]) : sides[sideNumber()];
}

/** @param {number} number */
export function thumbnailValues(number) {
  return shownPool(shownThumbnails()[number]);
}

/** Returns a head's thumbnail as codes; null if changes are shown, which have no codes. @param {number} number */
export function codedThumbnail(number) {
  return state.side === "change" ? null : shownThumbnails()[number][sideNumber()].coded(state.pool);
}

/** True if a thumbnail has fewer cells than its head has tokens. */
export function poolsThumbnails() {
  return page.heads.some((head, number) => {
    const [rows, columns] = shapeOf(number);
    return head.thumbnail[0] < rows || head.thumbnail[1] < columns || page.block > 1;
  });
}
