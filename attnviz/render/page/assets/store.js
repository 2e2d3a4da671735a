/** The worker's store of heads: characters of their pieces as the page sent them, and the latest of what was read of them. */

import { computeLine, factoredSide, piecesOf, piecesOfKeys, readAll, readLine, readSide } from "./reading.js";

/** @import { Factors } from "./factors.js" */
/** @import { Pieces } from "./pieces.js" */
/** @import { GivenSide } from "./reading.js" */
/** @import { Axis } from "./types.js" */

/** @typedef {{ number: number, sides: GivenSide[], keys: Record<number, Record<number, string>> }} GivenHead keys by number, then piece */

const MAX_KEPT_BYTES = 2 ** 27; // of all that a worker holds read

export class HeadStore {
  constructor() {
    /** @type {Map<number, GivenHead>} */
    this.given = new Map();
    /** @type {Map<number, Record<number, string>>} */
    this.keys = new Map();
    /** @type {Map<string, { value: unknown, size: number }>} */
    this.read = new Map();
    this.size = 0;
  }

  /** Takes pieces of a head, besides those that it has. @param {GivenHead} head */
  add(head) {
    const before = this.given.get(head.number)?.sides;
    head.sides.forEach((side, place) => (side.texts = Object.assign(before?.[place].texts ?? {}, side.texts)));
    this.given.set(head.number, head);
    this.read.delete(`factors ${head.number}`); // what keys move may be another
    for (const [number, texts] of Object.entries(head.keys)) {
      this.keys.set(Number(number), Object.assign(this.keys.get(Number(number)) ?? {}, texts));
    }
  }

  /** @param {number} number @returns {GivenSide[]} */
  sidesOf(number) {
    const head = this.given.get(number);
    if (!head) throw new Error(`head ${number} was not given`);
    return head.sides;
  }

  /** All weights of a head, by side. @param {number} number */
  sides(number) {
    return Promise.all(this.sidesOf(number).map((given, side) => readSide(given, this.pieces(`${number} ${side}`, given))));
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
    const keys = this.piecesOfKeys(given);
    return computeLine(about, pieces, keys, axis, place, (some) => this.numbers(some === keys ? `keys ${about.keys}` : name, some), moved);
  }

  /** The factors of a head, by side. @param {number} number @returns {Promise<Factors[]>} */
  factors(number) {
    const all = () => Promise.all(this.sidesOf(number).map((_, side) => this.factorsOfSide(number, side)));
    return this.kept(`factors ${number}`, all, () => 0);
  }

  /** @param {number} number @param {number} side */
  async factorsOfSide(number, side) {
    const { numbers, rest } = await this.queries(number, side);
    return factoredSide(this.sidesOf(number)[side], numbers, await this.keysOf(number, side), rest);
  }

  /** All queries of a head, and what follows them. @param {number} number @param {number} side */
  async queries(number, side) {
    const pieces = this.pieces(`${number} ${side}`, this.sidesOf(number)[side]);
    const rest = await pieces.rest();
    return { numbers: await this.numbers(`${number} ${side}`, pieces), rest };
  }

  /** Reads the keys of a head, which will be asked for. @param {number} number */
  readKeys(number) {
    this.sidesOf(number).forEach((_, side) => this.keysOf(number, side));
  }

  /** All keys of a head. @param {number} number @param {number} side */
  keysOf(number, side) {
    const given = this.sidesOf(number)[side];
    return this.numbers(`keys ${given.about?.keys}`, this.piecesOfKeys(given));
  }

  /** @param {GivenSide} given */
  piecesOfKeys(given) {
    const keys = given.about?.keys ?? 0;
    return this.kept(`keys ${keys}`, () => piecesOfKeys(this.keys.get(keys) ?? {}, given), sizeOf);
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
