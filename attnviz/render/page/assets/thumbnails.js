/** The thumbnails' numbers: means and maxima of every head. */

import { page, shapeOf } from "./data.js";
import { bytesOf, decode, weightsOfCodes } from "./encoding.js";
import { movedCodes, showsMoved } from "./moved.js";
import { sideNumber, state } from "./state.js";
import { changeOf } from "./values.js";

/** @import { Pooled } from "./types.js" */

/** One head's, as codes until they are shown. */
class Thumbnail {
  /** @param {Uint8Array} codes of means, then of maxima @param {[number, number]} highs */
  constructor(codes, highs) {
    this.codes = codes;
    this.highs = highs;
    /** @type {(Float32Array | undefined)[]} */
    this.read = [];
  }

  get mean() {
    return this.part(0);
  }

  get largest() {
    return this.part(1);
  }

  /** @param {number} which */
  part(which) {
    const half = this.codes.length / 2;
    const codes = this.codes.subarray(which * half, (which + 1) * half);
    const values = this.read[which] ?? decode(codes, weightsOfCodes(page.thumbnailLargest, this.highs[which]));
    this.read[which] = values;
    return values;
  }
}

/** @type {Map<boolean, Pooled[][]>} of weights, and of the contributions that a page holds besides */
const thumbnails = new Map([[false, readThumbnails(bytesOf(page.thumbnails), (number) => page.heads[number].thumbnailHighs)]]);

/** Those that are shown now. */
function shownThumbnails() {
  const moved = showsMoved();
  const found = thumbnails.get(moved) ?? readThumbnails(movedCodes(), (number) => [page.moved?.thumbnailHighs[number] ?? [1, 1]]);
  thumbnails.set(moved, found);
  return found;
}

/**
 * Means and maxima by head and side, each read when it is shown.
 *
 * @param {Uint8Array} codes
 * @param {(number: number) => [number, number][]} highsOf a head's sides
 * @returns {Pooled[][]}
 */
function readThumbnails(codes, highsOf) {
  let place = 0;
  return page.heads.map((head, number) => {
    const cells = head.thumbnail[0] * head.thumbnail[1];
    return highsOf(number).map((highs) => {
      place += 2 * cells;
      return new Thumbnail(codes.subarray(place - 2 * cells, place), highs);
    });
  });
}

/** The means or the maxima that are shown: of one recording, or what changed. @param {Pooled[]} pooled */
export function shownPool(pooled) {
  const sides = pooled.map((side) => side[state.pool]);
  return state.side === "change" ? changeOf(sides[0], sides[1]) : sides[sideNumber()];
}

/** The maxima of a thumbnail. @param {number} number @param {number} side */
export function largestMaxima(number, side) {
  return shownThumbnails()[number][side].largest;
}

/** @param {number} number */
export function thumbnailValues(number) {
  return shownPool(shownThumbnails()[number]);
}

/** Whether a thumbnail has fewer cells than its head has tokens. */
export function poolsThumbnails() {
  return page.heads.some((head, number) => {
    const [rows, columns] = shapeOf(number);
    return head.thumbnail[0] < rows || head.thumbnail[1] < columns || page.block > 1;
  });
}
