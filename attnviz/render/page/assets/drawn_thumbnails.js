/** Thumbnails as they are drawn: where a cell has less than a pixel, a pixel is a block of cells. */

import { page, pooledCounts, seenBy, shapeOf, textOf } from "./data.js";
import { largestCode } from "./encoding.js";
import { pooledCells } from "./pooling.js";
import { cellAt } from "./seconds.js";
import { sideNumber, state } from "./state.js";
import { codedThumbnail, thumbnailValues } from "./thumbnails.js";
import { ABSENT, largestOf } from "./values.js";

/** @import { DrawnThumbnail } from "./types.js" */

const MOST_RATIO = 3; // of a thumbnail's width to its height, or the other way around

/** The pixels that a thumbnail is wide, and whether it is as high: else it is as high as its map makes it. */
const room = { pixels: Infinity, square: false };
/** @type {{ look: string, values: Map<number, Float32Array> }} the blocks of heads */
const pooled = { look: "", values: new Map() };

/** Draws thumbnails for so many pixels from now on. @param {number} pixels @param {boolean} square */
export function fitThumbnails(pixels, square = false) {
  Object.assign(room, { pixels, square });
}

/** The sizes in which thumbnails are drawn: others are to be painted again. */
export function drawnSizes() {
  return [...new Set(page.heads.map((_, number) => drawnShape(number).join("×")))].join(" ");
}

/** The first and the last part of a head's text that is shown, from 0 to 1: that within the kept interval of a sound. @param {number} number @param {"query" | "key"} axis */
function shownPart(number, axis) {
  const text = textOf(number, axis, sideNumber());
  if (!state.interval || !text.seconds) return [0, 1];
  const [first, last] = state.interval.map((second) => cellAt(text, second));
  return [first / text.labels.length, (last + 1) / text.labels.length];
}

/** The width of a head's thumbnail for a height of 1. @param {number} number */
export function ratioOf(number) {
  const [rows, columns] = shapeOf(number);
  const [[top, bottom], [left, right]] = [shownPart(number, "query"), shownPart(number, "key")];
  return Math.min(MOST_RATIO, Math.max(1 / MOST_RATIO, (columns * (right - left)) / (rows * (bottom - top))));
}

/** The rows and columns in which a whole thumbnail is drawn. @param {number} number @returns {[number, number]} */
function drawnShape(number) {
  const sides = [room.square ? room.pixels : room.pixels / ratioOf(number), room.pixels];
  const [rows, columns] = page.heads[number].thumbnail.map((cells, axis) => {
    const [first, end] = shownPart(number, axis ? "key" : "query");
    return Math.max(1, Math.min(cells, Math.floor(sides[axis] / (end - first))));
  });
  return [rows, columns];
}

/** The columns of a head's thumbnail that are shown where there is room for all. @param {number} number */
export function cellsAcross(number) {
  const [first, end] = shownPart(number, "key");
  const cells = page.heads[number].thumbnail[1];
  return Math.ceil(end * cells) - Math.floor(first * cells);
}

/** A head's thumbnail in some rows and columns, and those of them that are shown. @param {number} number @returns {DrawnThumbnail} */
export function drawnThumbnail(number, [rows, columns] = drawnShape(number)) {
  const [[top, bottom], [left, right]] = /** @type {const} */ (["query", "key"]).map((axis) => {
    const [first, end] = shownPart(number, axis);
    const cells = axis === "query" ? rows : columns;
    return [Math.floor(first * cells), Math.ceil(end * cells)];
  });
  const [high, wide] = page.heads[number].thumbnail;
  const coded = rows === high && columns === wide ? codedThumbnail(number) : null;
  const seen = pooledCounts(seenBy(number, sideNumber()), rows);
  const part = { rows, columns, top, bottom, left, right, seen };
  return coded ? { ...part, coded, values: null } : { ...part, coded, values: drawnValues(number, rows, columns) };
}

/** @param {number} number @param {number} rows @param {number} columns */
function drawnValues(number, rows, columns) {
  const [high, wide] = page.heads[number].thumbnail;
  if (rows === high && columns === wide) return thumbnailValues(number);
  const look = [state.of, state.side, state.pool, state.interval, room.pixels, room.square].join(" ");
  if (look !== pooled.look) Object.assign(pooled, { look, values: new Map() });
  const values = pooled.values.get(number) ?? pooledCells(thumbnailValues(number), high, wide, rows, columns, state.side === "change")[state.pool];
  pooled.values.set(number, values);
  return values;
}

/** The largest value of a drawn thumbnail, rows that see one key left out. @param {number} number */
export function largestDrawn(number) {
  const { rows, columns, seen, coded, values } = drawnThumbnail(number);
  const isTelling = seen.some((count) => count > 1);
  let high = 0;
  for (let row = 0; row < rows; row++) {
    if (isTelling && seen[row] <= 1) continue;
    const [first, end] = [row * columns, (row + 1) * columns];
    high = Math.max(high, coded ? largestCode(coded.codes.subarray(first, end), page.thumbnailLargest) : largestOf(values.subarray(first, end)));
  }
  return coded ? coded.weights[high] : high;
}

/** The lifts of a thumbnail, rows that see one key left out. @param {DrawnThumbnail} drawn */
export function liftsOf({ rows, columns, seen, coded, values }) {
  const lifts = new Float32Array(rows * columns);
  let count = 0;
  for (let place = 0; place < lifts.length; place++) {
    const weight = coded ? coded.weights[coded.codes[place]] : values[place];
    const counted = seen[Math.floor(place / columns)];
    if (counted > 1 && weight !== ABSENT && !Number.isNaN(weight)) lifts[count++] = weight * counted;
  }
  return lifts.subarray(0, count);
}
