/** The thumbnails' numbers: means and maxima of every head, and the colours that they are shown in. */

import { scaleOf, scaleUpTo } from "./colors.js";
import { page, shapeOf } from "./data.js";
import { bytesOf, decode, weightsOfCodes } from "./encoding.js";
import { sideNumber, state } from "./state.js";
import { changeOf, largestOf } from "./values.js";

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

/** @param {number} number */
export function thumbnailValues(number) {
  return shownPool(thumbnails[number]);
}

/**
 * The scale of some thumbnails: pooled values are smaller than those that they are pooled from.
 *
 * @param {Iterable<number>} numbers
 */
function scaleOfThumbnails(numbers) {
  if (page.fixed && state.limits === "page" && state.side !== "change") return scaleOf(0);
  let high = 0;
  for (const number of numbers) high = Math.max(high, largestOf(thumbnailValues(number)));
  return scaleUpTo(high);
}

/** The scale of all thumbnails. */
export function sharedScale() {
  return scaleOfThumbnails(page.heads.keys());
}

/** The scale of a thumbnail, shared by all or its own. @param {number} number */
export function thumbnailScale(number) {
  return state.limits === "head" ? scaleOfThumbnails([number]) : sharedScale();
}

/** Whether a thumbnail has fewer cells than its head has tokens. */
export function poolsThumbnails() {
  return page.heads.some((head, number) => {
    const [rows, columns] = shapeOf(number);
    return head.thumbnail[0] < rows || head.thumbnail[1] < columns || page.block > 1;
  });
}
