/** Computes contributions from weights and the norms that keys move, on a page that has both. */

import { page, shapeOf } from "./data.js";
import { bytesOf } from "./encoding.js";
import { state } from "./state.js";

/** @type {{ norms: Float32Array[], codes: Uint8Array }[]} what was read, once it was asked for */
const read = [];

/** Reads the norms of keys and the thumbnails' codes. @param {string} content characters */
export function readMoved(content) {
  const bytes = bytesOf(content);
  let place = 0;
  const norms = page.heads.map((_, number) => {
    const [, columns] = shapeOf(number);
    place += 4 * columns;
    return new Float32Array(bytes.slice(place - 4 * columns, place).buffer);
  });
  read.push({ norms, codes: bytes.subarray(place) });
}

/** True if contributions are shown that a page of weights holds besides. */
export function showsMoved() {
  return state.of !== page.quantity;
}

/** True if what is shown now was read. */
export function isMovedRead() {
  return read.length > 0 || !showsMoved();
}

/** The norms of a head's keys where they are shown. @param {number} number */
export function normsOf(number) {
  return showsMoved() ? (read[0]?.norms[number] ?? null) : null;
}

/** The codes of all thumbnails of contributions. */
export function movedCodes() {
  return read[0]?.codes ?? new Uint8Array(0);
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
