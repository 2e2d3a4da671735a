/** A head's numbers in pieces of some rows each, as encoding.py wrote them: each is read when it is looked at. */

import { bytesOf, inflate } from "./encoding.js";

const MIN_BYTES = 32_768; // of a piece, unless it is the last
const MAX_PIECES = 16;

export class Pieces {
  /** @param {Record<number, string>} texts the characters of those that are at hand @param {number} rows @param {number} bytesOfRow */
  constructor(texts, rows, bytesOfRow) {
    this.texts = texts;
    this.rows = rows;
    this.bytesOfRow = bytesOfRow;
    this.each = Math.max(1, Math.ceil(rows / MAX_PIECES), Math.ceil(MIN_BYTES / bytesOfRow)); // rows
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

  /** The number of a row's piece. @param {number} row */
  numberOf(row) {
    return Math.floor(row / this.each);
  }

  /** The piece of a row, and which of its rows that is. @param {number} row @returns {Promise<[Uint8Array<ArrayBuffer>, number]>} */
  async pieceOf(row) {
    return [await this.piece(this.numberOf(row)), row % this.each];
  }

  /** The numbers of all pieces of rows. */
  get numbers() {
    return Array.from({ length: this.count }, (_, number) => number);
  }

  /** All pieces of rows. */
  all() {
    return Promise.all(this.numbers.map((number) => this.piece(number)));
  }

  /** Returns the piece that follows those of the rows. */
  rest() {
    return this.piece(this.count);
  }
}

/** Arrays in one. @param {Float32Array[]} parts */
export function inOne(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new Float32Array(parts.reduce((total, part) => total + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}
