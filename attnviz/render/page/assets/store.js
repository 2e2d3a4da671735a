/** The worker's store of heads: their characters as the page sent them, and the latest of what was read of them. */

import { computeLine, piecesOf, piecesOfKeys, readAll, readLine, readSide } from "./reading.js";

/** @import { Pieces } from "./pieces.js" */
/** @import { GivenSide } from "./reading.js" */
/** @import { Axis, Side } from "./types.js" */

/** @typedef {{ number: number, sides: GivenSide[], keys: Record<number, string> }} GivenHead */

const MAX_KEPT_BYTES = 2 ** 27; // of all that a worker holds read

export class HeadStore {
  constructor() {
    /** @type {Map<number, GivenHead>} */
    this.given = new Map();
    /** @type {Map<number, string>} */
    this.keys = new Map();
    /** @type {Map<string, { value: unknown, size: number }>} */
    this.read = new Map();
    this.size = 0;
  }

  /** @param {GivenHead} head */
  add(head) {
    this.given.set(head.number, head);
    for (const [number, content] of Object.entries(head.keys)) this.keys.set(Number(number), content);
  }

  /** @param {number} number @returns {GivenSide[]} */
  sidesOf(number) {
    const head = this.given.get(number);
    if (!head) throw new Error(`head ${number} was not given`);
    return head.sides;
  }

  /** All weights of a head, by side. @param {number} number @returns {Promise<Side[]>} */
  sides(number) {
    return Promise.all(this.sidesOf(number).map((given, side) => readSide(given, this.pieces(`${number} ${side}`, given), null)));
  }

  /** A token's line of a head, by side. @param {number} number @param {Axis} axis @param {number} place */
  lines(number, axis, place) {
    return Promise.all(this.sidesOf(number).map((given, side) => this.line(`${number} ${side}`, given, axis, place)));
  }

  /** @param {string} name @param {GivenSide} given @param {Axis} axis @param {number} place */
  line(name, given, axis, place) {
    const pieces = this.pieces(name, given);
    const { about, moved } = given;
    if (!about) return readLine(given, pieces, axis, place);
    const keys = this.kept(`keys ${about.keys}`, () => piecesOfKeys(this.keys.get(about.keys) ?? "", given), sizeOf);
    return computeLine(about, pieces, keys, axis, place, (some) => this.numbers(some === keys ? `keys ${about.keys}` : name, some), moved);
  }

  /** @param {string} name @param {GivenSide} given */
  pieces(name, given) {
    return this.kept(name, () => piecesOf(given), sizeOf);
  }

  /** All numbers of pieces, whose bytes are let go of. @param {string} name @param {Pieces} pieces */
  numbers(name, pieces) {
    const read = async () => {
      const numbers = await readAll(pieces);
      pieces.read.clear();
      return numbers;
    };
    return this.kept(`numbers ${name}`, read, () => 2 * sizeOf(pieces));
  }

  /**
   * What was read under a name, or is read now; the oldest makes room for it.
   *
   * @template Value
   * @param {string} name
   * @param {() => Value} read
   * @param {(value: Value) => number} size in bytes
   * @returns {Value}
   */
  kept(name, read, size) {
    const known = /** @type {{ value: Value, size: number } | undefined} */ (this.read.get(name));
    const value = known ? known.value : read();
    const kept = known ?? { value, size: size(value) };
    this.read.delete(name);
    this.read.set(name, kept);
    if (!known) this.size += kept.size;
    for (const [oldest, { size: freed }] of this.read) {
      if (this.size <= MAX_KEPT_BYTES || oldest === name) break;
      this.read.delete(oldest);
      this.size -= freed;
    }
    return value;
  }
}

/** @param {Pieces} pieces */
function sizeOf(pieces) {
  return pieces.rows * pieces.bytesOfRow;
}
