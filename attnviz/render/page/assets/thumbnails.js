/** The thumbnails' numbers: means and maxima of every head. */

import { page, shapeOf } from "./data.js";
import { bytesOf, decode, weightsOfCodes } from "./encoding.js";
import { sideNumber, state } from "./state.js";
import { changeOf } from "./values.js";

/** @import { Pooled } from "./types.js" */

const thumbnails = readThumbnails();

/** Means and maxima by head and side. @returns {Pooled[][]} */
function readThumbnails() {
  const codes = bytesOf(page.thumbnails);
  let place = 0;
  return page.heads.map((head) => {
    const cells = head.thumbnail[0] * head.thumbnail[1];
    return head.thumbnailHighs.map((highs) => {
      const [mean, largest] = highs.map((high) => {
        const start = place;
        place += cells;
        return decode(codes.subarray(start, place), weightsOfCodes(page.thumbnailLargest, high));
      });
      return { mean, largest };
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
  return thumbnails[number][side].largest;
}

/** @param {number} number */
export function thumbnailValues(number) {
  return shownPool(thumbnails[number]);
}

/** Whether a thumbnail has fewer cells than its head has tokens. */
export function poolsThumbnails() {
  return page.heads.some((head, number) => {
    const [rows, columns] = shapeOf(number);
    return head.thumbnail[0] < rows || head.thumbnail[1] < columns || page.block > 1;
  });
}
