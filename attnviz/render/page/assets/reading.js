/** The sides of a head, or one token's line of it, from the characters of the page: what the page and its worker do. */

import { ITEM_SIZES, readHalves, readWeights } from "./encoding.js";
import { Factors, partsOfRest } from "./factors.js";
import { inOne, Pieces } from "./pieces.js";
import { timesMoved } from "./values.js";

/** @import { AboutFactors, Axis, Precision } from "./types.js" */

/**
 * @typedef {object} GivenSide one head of one recording, as the page holds it
 * @property {Record<number, string>} texts characters, of each piece that is at hand
 * @property {[number, number]} shape rows and columns
 * @property {number} high
 * @property {Precision} precision
 * @property {number} block
 * @property {AboutFactors | null} about its factors, where it has them
 * @property {Float32Array | null} moved what weights are multiplied by, by key, where contributions are shown
 */

/** The pieces of a head: its weights, or its queries. @param {GivenSide} given */
export function piecesOf({ texts, shape: [rows, columns], precision, about }) {
  return new Pieces(texts, rows, about ? 2 * about.features : columns * ITEM_SIZES[precision.dtype]);
}

/** The pieces of keys. @param {Record<number, string>} texts @param {GivenSide} given */
export function piecesOfKeys(texts, { shape: [, columns], about }) {
  return new Pieces(texts, columns, 2 * (about?.features ?? 1));
}

/**
 * Which pieces of a head, and which of its keys, a token's line is read from.
 *
 * @param {GivenSide} given
 * @param {Axis} axis
 * @param {number} place
 * @returns {{ own: number[], keys: number[] }}
 */
export function piecesOfLine(given, axis, place) {
  const [own, keys] = [piecesOf(given), piecesOfKeys({}, given)];
  const rows = axis === "query" ? [own.numberOf(place)] : own.numbers;
  if (!given.about) return { own: rows, keys: [] };
  return { own: [...rows, own.count], keys: axis === "query" ? keys.numbers : [keys.numberOf(place)] };
}

/** The factors of a side whose weights are computed. @param {GivenSide} given @param {Float32Array} queries @param {Float32Array} keys @param {Uint8Array<ArrayBuffer>} rest what follows the queries */
export function factoredSide({ about, moved }, queries, keys, rest) {
  if (!about) throw new Error("a side without factors");
  return new Factors({ ...about, ...partsOfRest(rest, about), queries, keys, moved });
}

/** What is kept of a side with its weights. @param {GivenSide} given @param {Pieces} pieces */
export async function readSide({ high, precision, block, moved }, pieces) {
  const rest = await pieces.rest();
  const weights = inOne((await pieces.all()).map((piece) => readWeights(piece, precision, high)));
  const more = block > 1 ? { maxima: readWeights(rest, precision, high) } : { [precision.dtype === "float32" ? "scores" : "sums"]: new Float32Array(rest.buffer) };
  return { weights: timesMoved(weights, moved), high, largest: precision.largest, moved, ...more };
}

/** All queries, or all keys: each piece's at once where they belong. @param {Pieces} pieces */
export async function readAll(pieces) {
  const whole = new Float32Array((pieces.rows * pieces.bytesOfRow) / 2);
  const read = async (/** @type {number} */ number) => {
    const bytes = await pieces.piece(number);
    const first = (number * pieces.each * pieces.bytesOfRow) / 2;
    readHalves(bytes, 0, bytes.length / 2, whole.subarray(first));
  };
  await Promise.all(pieces.numbers.map(read));
  return whole;
}

/**
 * A token's line of kept weights, of which as little is read as holds it.
 *
 * @param {GivenSide} given
 * @param {Pieces} pieces
 * @param {Axis} axis
 * @param {number} place
 */
export async function readLine({ high, precision, moved }, pieces, axis, place) {
  const { bytesOfRow } = pieces;
  const size = ITEM_SIZES[precision.dtype];
  if (axis === "query") {
    const [piece, row] = await pieces.pieceOf(place);
    return timesMoved(readWeights(piece.slice(row * bytesOfRow, (row + 1) * bytesOfRow), precision, high), moved);
  }
  const cells = (await pieces.all()).map((piece) => {
    const line = new Uint8Array((piece.length / bytesOfRow) * size);
    for (let row = 0; row * size < line.length; row++) {
      const first = row * bytesOfRow + place * size;
      for (let byte = 0; byte < size; byte++) line[row * size + byte] = piece[first + byte];
    }
    return readWeights(line, precision, high);
  });
  return timesMoved(inOne(cells), moved && moved.subarray(place, place + 1));
}

/**
 * A token's line of weights that are computed: of a query its own row alone is read, of a key its own.
 *
 * @param {AboutFactors} about
 * @param {Pieces} queries
 * @param {Pieces} keys
 * @param {Axis} axis
 * @param {number} place
 * @param {(pieces: Pieces) => Promise<Float32Array>} whole all numbers of pieces
 * @param {Float32Array | null} [moved] what weights are multiplied by, by key
 */
export async function computeLine(about, queries, keys, axis, place, whole, moved = null) {
  const parts = partsOfRest(await queries.rest(), about);
  const { sums, relative, byKey, real } = parts;
  const { firstQuery, firstKey } = about.mask;
  if (axis === "query") {
    const mask = { ...about.mask, firstQuery: firstQuery + place };
    const own = { ...parts, moved, sums: sums.subarray(place, place + 1), relative: relative?.subarray(queries.rows - 1 - place) };
    return new Factors({ ...about, mask, ...own, queries: await rowOf(queries, place), keys: await whole(keys) }).row(0);
  }
  const mask = { ...about.mask, firstKey: firstKey + place };
  const [ownBias, ownReal] = [byKey, real].map((part) => part?.subarray(place, place + 1));
  const ownMoved = moved && moved.subarray(place, place + 1);
  const own = { sums, relative: relative?.subarray(place), byKey: ownBias, real: ownReal, moved: ownMoved };
  return new Factors({ ...about, mask, ...own, queries: await whole(queries), keys: await rowOf(keys, place) }).column(0);
}

/** The numbers of one query or key. @param {Pieces} pieces @param {number} place */
async function rowOf(pieces, place) {
  const [piece, row] = await pieces.pieceOf(place);
  const features = pieces.bytesOfRow / 2;
  return readHalves(piece, row * features, (row + 1) * features);
}
