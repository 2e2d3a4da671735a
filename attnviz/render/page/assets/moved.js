/** Which numbers are shown where a page has contributions besides weights. */

import { page } from "./data.js";
import { state } from "./state.js";

/** @type {{ codes: Uint8Array | null }} of the thumbnails of contributions, once they were asked for */
const read = { codes: null };

/** Takes the codes of the thumbnails of contributions. @param {Uint8Array} codes */
export function takeMovedCodes(codes) {
  read.codes = codes;
}

/** True if contributions are shown that a page of weights holds besides. */
export function showsMoved() {
  return state.of !== page.quantity;
}

/** True if the thumbnails of what is shown now were read. */
export function isMovedRead() {
  return read.codes !== null || !showsMoved();
}

/** The codes of the thumbnails of contributions. */
export function movedCodes() {
  return read.codes ?? new Uint8Array(0);
}

/** The largest number of all heads. */
export function highOfAll() {
  return showsMoved() && page.moved ? page.moved.high : page.high;
}

/** The largest number of a head. @param {number} number @param {number} side */
export function topOf(number, side) {
  return showsMoved() && page.moved ? page.moved.tops[number] : page.heads[number].tops[side];
}

/** Returns the row, the column and the value of a head's largest weight or contribution. @param {number} number */
export function peakOf(number) {
  return showsMoved() && page.moved ? page.moved.peaks[number] : page.heads[number].peaks[0];
}
