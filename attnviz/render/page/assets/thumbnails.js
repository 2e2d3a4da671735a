/** The small maps of all heads: means and maxima that the page holds, pooled to the pixels that there are. */

import { level, page, pooledCounts, seenBy, shapeOf, textOf } from "./data.js";
import { decode, someBytesOf, weightsOfCodes } from "./encoding.js";
import { cellAt } from "./places.js";
import { pooledCells } from "./pooling.js";
import { hidesSpecial, showsMoved, sideNumber, state } from "./state.js";
import { ABSENT, changeOf, kept, largestOf } from "./values.js";

/** @import { Axis, DrawnThumbnail, Pooled } from "./types.js" */

const MOST_RATIO = 3; // of a thumbnail's width to its height, or the other way around

/** The pixels that a thumbnail is wide, and whether it is as high: else it is as high as its map makes it. */
const room = { pixels: Infinity, square: false };

/** The values of thumbnails that were read or pooled, by name. @type {Map<string, Float32Array>} */
const heldThumbnails = new Map();

/** The codes of the thumbnails of contributions, once they were asked for. @type {Uint8Array} */
let movedCodes = new Uint8Array(0);

/** Takes the codes of the thumbnails of contributions. @param {Uint8Array} codes */
export function takeMovedCodes(codes) {
  movedCodes = codes;
}

/** True if the thumbnails of what is shown now were read. */
export function isMovedRead() {
  return movedCodes.length > 0 || !showsMoved();
}

/** @type {WeakMap<object, number[]>} by the heads of each level */
const firstsOf = new WeakMap();

/** The first code of each head: of every side all means, then all maxima. */
function firstCodes() {
  const { heads, sides } = page;
  const firsts = firstsOf.get(heads) ?? [0];
  for (const { thumbnail: [rows, columns] } of heads.slice(firsts.length - 1)) firsts.push(firsts[firsts.length - 1] + 2 * rows * columns * sides.length);
  firstsOf.set(heads, firsts);
  return firsts;
}

/** The block that holds a token. @param {number} token @param {number} blocks @param {number} tokens */
function blockOf(token, blocks, tokens) {
  return Math.floor(((token + 1) * blocks - 1) / tokens);
}

/** The values of a head's thumbnail in a recording. @param {number} number @param {number} side @param {boolean} hides whether keys that overviews leave out are absent */
function heldValues(number, side, hides) {
  const [moved, { pool }] = [showsMoved(), state];
  return kept(heldThumbnails, ["whole", level.name, moved, number, side, pool, hides].join(" "), () => {
    const [rows, columns] = page.heads[number].thumbnail;
    const first = firstCodes()[number] + (2 * side + Number(pool === "max")) * rows * columns;
    const codes = moved ? movedCodes.subarray(first, first + rows * columns) : someBytesOf(page.thumbnails, first, rows * columns);
    const highs = moved ? (page.moved?.thumbnailHighs[number] ?? [1, 1]) : page.heads[number].thumbnailHighs[side];
    const values = decode(codes, weightsOfCodes(page.thumbnailLargest, highs[Number(pool === "max")]));
    const keys = textOf(number, "key", side);
    for (const key of hides ? (keys.leftOut ?? []) : []) {
      const column = blockOf(key, columns, keys.labels.length);
      for (let row = 0; row < rows; row++) values[row * columns + column] = ABSENT; // as if masked
    }
    return values;
  });
}

/** The means or the maxima that are shown: of one recording, or what changed. @param {Pooled[]} pooled */
export function shownPool(pooled) {
  const sides = pooled.map((side) => side[state.pool]);
  return state.side === "change" ? changeOf(sides[0], sides[1]) : sides[sideNumber()];
}

/** The cells of a head's thumbnail, as many as the page holds. @param {number} number @param {boolean} hides whether keys that overviews leave out are absent */
export function thumbnailValues(number, hides = false) {
  const [first, second] = (state.side === "change" ? [0, 1] : [sideNumber()]).map((side) => heldValues(number, side, hides));
  return second ? changeOf(first, second) : first;
}

/** The part of a drawn thumbnail that a token has, from 0 to 1. @param {number} number @param {Axis} axis @param {number} place */
export function tokenPart(number, axis, place) {
  const [first, end] = shownPart(number, axis);
  const count = textOf(number, axis, sideNumber()).labels.length;
  return [place, place + 1].map((edge) => Math.min(1, Math.max(0, (edge / count - first) / (end - first))));
}

/**
 * A token's row or column on average over heads of the same tokens, as precisely as their thumbnails hold it.
 *
 * @param {number[]} numbers
 * @param {Axis} axis
 * @param {number} place
 */
export function meanLine(numbers, axis, place) {
  const [rows, columns] = page.heads[numbers[0]].thumbnail;
  const [queries, keys] = shapeOf(numbers[0], sideNumber());
  const own = axis === "query" ? blockOf(place, rows, queries) : blockOf(place, columns, keys);
  const all = numbers.map((number) => thumbnailValues(number, hidesSpecial()));
  return Float32Array.from({ length: axis === "query" ? keys : queries }, (_, other) => {
    const cell = axis === "query" ? own * columns + blockOf(other, columns, keys) : blockOf(other, rows, queries) * columns + own;
    return all[0][cell] === ABSENT ? ABSENT : all.reduce((total, values) => total + values[cell], 0) / all.length;
  });
}

/** Draws thumbnails for so many pixels from now on. @param {number} pixels @param {boolean} square */
export function fitThumbnails(pixels, square = false) {
  Object.assign(room, { pixels, square });
  if (heldThumbnails.size > 8 * page.heads.length) heldThumbnails.clear();
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
  const [[high, wide], change] = [page.heads[number].thumbnail, state.side === "change"];
  const isWhole = rows === high && columns === wide;
  const name = [level.name, number, rows, columns, state.of, state.side, state.pool, hidesSpecial()].join(" ");
  const cells = () => thumbnailValues(number, hidesSpecial());
  const values = kept(heldThumbnails, name, () => (isWhole ? cells() : pooledCells(cells(), high, wide, rows, columns, change)[state.pool]));
  return { rows, columns, top, bottom, left, right, seen: pooledCounts(seenBy(number, sideNumber()), rows), values };
}

/** The largest value of a drawn thumbnail, rows that see one key left out. @param {number} number */
export function largestDrawn(number) {
  const { rows, columns, seen, values } = drawnThumbnail(number);
  const isTelling = seen.some((count) => count > 1);
  let high = 0;
  for (let row = 0; row < rows; row++) {
    if (isTelling && seen[row] <= 1) continue;
    high = Math.max(high, largestOf(values.subarray(row * columns, (row + 1) * columns)));
  }
  return high;
}

/** The lifts of a thumbnail, rows that see one key left out. @param {DrawnThumbnail} drawn */
export function liftsOf({ rows, columns, seen, values }) {
  const lifts = new Float32Array(rows * columns);
  let count = 0;
  for (let place = 0; place < lifts.length; place++) {
    const weight = values[place];
    const counted = seen[Math.floor(place / columns)];
    if (counted > 1 && weight !== ABSENT && !Number.isNaN(weight)) lifts[count++] = weight * counted;
  }
  return lifts.subarray(0, count);
}
