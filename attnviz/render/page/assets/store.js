/** The store of numbers: it reads what the page holds of heads when it is asked for, and keeps the latest. The worker's alone. */

import { Combined, CombinedRows, Rollout } from "./combining.js";
import { bytesOf, inflate, ITEM_SIZES, readHalves, readWeights } from "./encoding.js";
import { factorsOf, ROWS } from "./factors.js";
import { heldRows, joined, Pool } from "./pooling.js";
import { timesMoved } from "./values.js";

/** @import { AboutFactors, Axis, FactorParts, OfHeads, Rows, StoredPage } from "./types.js" */

/**
 * @typedef {object} StoredSide one head of one recording
 * @property {(axis: Axis, place: number) => Promise<Float32Array>} line of which as little is read as holds it
 * @property {() => Promise<Rows>} rows from which windows are pooled
 * @property {() => Promise<object>} numbers what a grid of it is made of
 */

const MIN_PIECE_BYTES = 32_768; // of a piece, unless it is the last
const MAX_PIECES = 16;
const MAX_KEPT_BYTES = 2 ** 27; // of all that a worker holds read

/** Rows of numbers in pieces, as encoding.py wrote them, each of which is read when one of its rows is looked at. */
class Pieces {
  /** @param {string} text @param {number} rows @param {number} bytesOfRow */
  constructor(text, rows, bytesOfRow) {
    this.texts = text.split(" ");
    this.rows = rows;
    this.bytesOfRow = bytesOfRow;
    this.each = Math.max(1, Math.ceil(rows / MAX_PIECES), Math.ceil(MIN_PIECE_BYTES / bytesOfRow)); // rows
    this.count = Math.ceil(rows / this.each);
    /** @type {Map<number, Promise<Uint8Array<ArrayBuffer>>>} */
    this.read = new Map();
  }

  /** The bytes of a piece. @param {number} number */
  piece(number) {
    const bytes = this.read.get(number) ?? inflate(bytesOf(this.texts[number]));
    this.read.set(number, bytes);
    return bytes;
  }

  /** The piece of a row, and which of its rows that is. @param {number} row @returns {Promise<[Uint8Array<ArrayBuffer>, number]>} */
  async row(row) {
    return [await this.piece(Math.floor(row / this.each)), row % this.each];
  }

  /** All pieces of rows. */
  all() {
    return Promise.all(Array.from({ length: this.count }, (_, number) => this.piece(number)));
  }

  /** The piece that follows those of the rows. */
  rest() {
    return this.piece(this.count);
  }
}

export class Store {
  /** @type {Map<string, string>} characters of the page's elements, by their ids */
  texts = new Map();
  /** @type {Map<unknown, { value: unknown, size: number }>} what was read, by its name; the latest last */
  kept = new Map();
  size = 0;

  /** @param {StoredPage} page */
  constructor(page) {
    this.page = page;
  }

  /** One head of one recording: its weights, or its contributions. @param {number} number @param {number} side @param {boolean} moved */
  async side(number, side, moved) {
    const norms = moved ? (await this.moved()).norms[number] : null;
    const { factors: { [side]: about }, shapes: { [side]: [bottom, right] } } = this.page.heads[number];
    const own = about ? this.factoredSide(number, side, about, norms) : this.keptSide(number, side, norms);
    const mean = async () => {
      const pool = new Pool(await own.rows(), { top: 0, bottom, left: 0, right, height: 1, width: right });
      for (let row = 0; row < bottom; row += ROWS) pool.add(row);
      return pool.take().mean;
    };
    /** @type {StoredSide["line"]} */
    const line = (axis, place) => (place < 0 ? mean() : own.line(axis, place)); // no query: the mean of all
    return { ...own, line };
  }

  /** Weights that are kept. @param {number} number @param {number} side @param {Float32Array | null} moved @returns {StoredSide} */
  keptSide(number, side, moved) {
    const { heads, precision, block } = this.page;
    const { shapes, highs } = heads[number];
    const [[rows, columns], high] = [shapes[side], highs[side]];
    const size = ITEM_SIZES[precision.dtype];
    const pieces = this.pieces(`head-${number}-${side}`, rows, columns * size);
    const read = (/** @type {Uint8Array<ArrayBuffer>} */ bytes) => readWeights(bytes, precision, high);
    const weights = async () => timesMoved(joined((await pieces.all()).map(read)), moved);

    /** @type {StoredSide["line"]} */
    async function line(axis, place) {
      if (axis === "query") {
        const [piece, row] = await pieces.row(place);
        return timesMoved(read(piece.slice(row * pieces.bytesOfRow, (row + 1) * pieces.bytesOfRow)), moved);
      }
      const cells = (await pieces.all()).map((piece) => {
        const cellsOfPiece = new Uint8Array((piece.length / pieces.bytesOfRow) * size);
        for (let byte = 0; byte < cellsOfPiece.length; byte++) {
          cellsOfPiece[byte] = piece[Math.floor(byte / size) * pieces.bytesOfRow + place * size + (byte % size)];
        }
        return read(cellsOfPiece);
      });
      return timesMoved(joined(cells), moved && moved.subarray(place, place + 1));
    }

    async function numbers() {
      const rest = await pieces.rest();
      const name = block > 1 ? "maxima" : precision.dtype === "float32" ? "scores" : "sums";
      const more = { [name]: block > 1 ? read(rest) : new Float32Array(rest.buffer) };
      return { weights: await weights(), high, largest: precision.largest, moved, ...more };
    }

    return { line, numbers, rows: async () => heldRows(await weights(), columns) };
  }

  /** Weights that are computed of queries and keys. @param {number} number @param {number} side @param {AboutFactors} about @param {Float32Array | null} moved @returns {StoredSide} */
  factoredSide(number, side, about, moved) {
    const [rows, columns] = this.page.heads[number].shapes[side];
    const queries = this.pieces(`head-${number}-${side}`, rows, 2 * about.features);
    const keys = this.pieces(`keys-${about.keys}`, columns, 2 * about.features);
    const parts = async () => partsOfRest(await queries.rest(), about);

    /** @type {StoredSide["line"]} of a query its own row alone is read, of a key its own */
    const line = async (axis, place) => {
      const { sums, relative, byKey, real } = await parts();
      const only = (/** @type {Float32Array | null | undefined} */ part) => part?.subarray(place, place + 1);
      if (axis === "query") {
        const mask = { ...about.mask, firstQuery: about.mask.firstQuery + place };
        const own = { mask, sums: sums.subarray(place, place + 1), relative: relative?.subarray(rows - 1 - place), byKey, real, moved };
        return factorsOf({ ...about, ...own, queries: await rowOf(queries, place), keys: await this.halves(keys) }).row(0);
      }
      const mask = { ...about.mask, firstKey: about.mask.firstKey + place };
      const own = { mask, sums, relative: relative?.subarray(place), byKey: only(byKey), real: only(real), moved: only(moved) };
      return factorsOf({ ...about, ...own, queries: await this.halves(queries), keys: await rowOf(keys, place) }).column(0);
    };
    const own = async () => ({ ...about, ...(await parts()), moved, queries: await this.halves(queries) });
    return { line, numbers: own, rows: async () => factorsOf({ ...(await own()), keys: await this.halves(keys) }) };
  }

  /** All keys of a head whose weights are computed. @param {number} number @param {number} side */
  keys(number, side) {
    const { factors, shapes } = this.page.heads[number];
    return this.halves(this.pieces(`keys-${factors[side].keys}`, shapes[side][1], 2 * factors[side].features));
  }

  /** What windows of heads are pooled of: each side of one, or several as one. @param {OfHeads} of @returns {Promise<Rows[]>} */
  async rows({ numbers, how, side, moved }) {
    const rowsOf = async (/** @type {number} */ number, /** @type {number} */ place) => (await this.side(number, place, moved)).rows();
    if (!how || how === "rollout") return Promise.all(this.page.heads[numbers[0]].highs.map((_, place) => rowsOf(numbers[0], place)));
    return [new CombinedRows(await Promise.all(numbers.map((number) => rowsOf(number, side))), how)];
  }

  /** Heads whose weights are kept as one map; null once it is no longer wanted. @param {OfHeads} of @param {() => Promise<boolean>} isWanted */
  async map({ numbers, how, side, moved }, isWanted) {
    const { heads } = this.page;
    const weightsOf = async (/** @type {number} */ number) => (await (await this.side(number, side, moved)).rows()).values ?? new Float32Array(0);
    const [rows, columns] = heads[numbers[0]].shapes[side];
    if (how === "rollout") {
      const rollout = new Rollout(rows);
      const layers = [...new Set(numbers.map((number) => heads[number].layer))].sort((one, two) => one - two);
      for (const layer of layers) {
        rollout.add(await Promise.all(numbers.filter((number) => heads[number].layer === layer).map(weightsOf)));
        if (!(await isWanted())) return null;
      }
      return rollout.done();
    }
    const all = new Combined(how === "max" ? "max" : "mean", rows * columns);
    for (const number of numbers) {
      all.add(await weightsOf(number));
      if (!(await isWanted())) return null;
    }
    return all.done();
  }

  /** The norms that each head's keys move, and the codes of the thumbnails of contributions. */
  moved() {
    return this.keep("moved", 0, async () => {
      const bytes = bytesOf(this.texts.get("moved") ?? "");
      let place = 0;
      const norms = this.page.heads.map(({ shapes: [[, columns]] }) => {
        place += 4 * columns;
        return new Float32Array(bytes.slice(place - 4 * columns, place).buffer);
      });
      return { norms, codes: bytes.slice(place) };
    });
  }

  /** All queries and keys of short texts, from which scores are explained. */
  async scores() {
    return readHalves(await inflate(bytesOf(this.texts.get("scores") ?? "")));
  }

  /** @param {string} id of the page's element @param {number} rows @param {number} bytesOfRow */
  pieces(id, rows, bytesOfRow) {
    return this.keep(id, rows * bytesOfRow, () => new Pieces(this.texts.get(id) ?? "", rows, bytesOfRow));
  }

  /** All queries, or all keys; the bytes of their pieces are let go of. @param {Pieces} pieces */
  halves(pieces) {
    return this.keep(pieces.texts, 2 * pieces.rows * pieces.bytesOfRow, async () => {
      const whole = new Float32Array((pieces.rows * pieces.bytesOfRow) / 2);
      const parts = await pieces.all();
      parts.forEach((bytes, number) => readHalves(bytes, 0, bytes.length / 2, whole.subarray((number * pieces.each * pieces.bytesOfRow) / 2)));
      pieces.read.clear();
      return whole;
    });
  }

  /**
   * What was read under a name, or is read now; the oldest makes room for it.
   *
   * @template Value
   * @param {unknown} name
   * @param {number} size in bytes
   * @param {() => Value} read
   * @returns {Value}
   */
  keep(name, size, read) {
    const kept = /** @type {{ value: Value, size: number } | undefined} */ (this.kept.get(name)) ?? { value: read(), size };
    if (!this.kept.delete(name)) this.size += size;
    this.kept.set(name, kept);
    for (const [oldest, { size: freed }] of this.kept) {
      if (this.size <= MAX_KEPT_BYTES || oldest === name) break;
      this.kept.delete(oldest);
      this.size -= freed;
    }
    return kept.value;
  }
}

/** The arrays that follow a head's queries, in 32 bits. @param {Uint8Array<ArrayBuffer>} rest @param {AboutFactors} about */
function partsOfRest(rest, { parts }) {
  const found = /** @type {FactorParts} */ ({});
  let place = 0;
  for (const [name, count] of /** @type {[keyof FactorParts, number][]} */ (Object.entries(parts))) {
    found[name] = new Float32Array(rest.buffer, place, count);
    place += 4 * count;
  }
  return found;
}

/** The numbers of one query or key. @param {Pieces} pieces @param {number} place */
async function rowOf(pieces, place) {
  const [piece, row] = await pieces.row(place);
  const features = pieces.bytesOfRow / 2;
  return readHalves(piece, row * features, (row + 1) * features);
}
