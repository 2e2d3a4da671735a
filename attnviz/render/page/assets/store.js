/** The worker's store of heads: their characters as the page sent them, and the latest ones that were read. */

import { readKeys, readSide } from "./reading.js";

/** @import { GivenSide } from "./reading.js" */
/** @import { Side } from "./types.js" */

/** @typedef {{ number: number, sides: GivenSide[], keys: Record<number, string> }} GivenHead */

const MAX_KEPT_NUMBERS = 2 ** 26; // of all heads that are held read: 256 MB

export class HeadStore {
  constructor() {
    /** @type {Map<number, GivenHead>} */
    this.given = new Map();
    /** @type {Map<number, string>} */
    this.keys = new Map();
    /** @type {Map<string, { value: Promise<unknown>, size: number }>} */
    this.read = new Map();
    this.size = 0;
  }

  /** @param {GivenHead} head */
  add(head) {
    this.given.set(head.number, head);
    for (const [number, content] of Object.entries(head.keys)) this.keys.set(Number(number), content);
  }

  /** A head's sides, read now or before. @param {number} number @returns {Promise<Side[]>} */
  sides(number) {
    const head = this.given.get(number);
    if (!head) throw new Error(`head ${number} was not given`);
    return Promise.all(head.sides.map((given, side) => this.side(`${number} ${side}`, given)));
  }

  /** @param {string} name @param {GivenSide} given @returns {Promise<Side>} */
  side(name, given) {
    const { about, shape } = given;
    const count = about ? shape[1] * about.features : 0;
    const size = about ? shape[0] * about.features : shape[0] * shape[1];
    const keys = about ? () => this.kept(`keys ${about.keys}`, count, () => readKeys(this.keys.get(about.keys) ?? "", count)) : null;
    return this.kept(name, size, () => readSide(given, keys ? keys() : null));
  }

  /**
   * What was read under a name, or is read now; the oldest makes room for it.
   *
   * @template Value
   * @param {string} name
   * @param {number} size
   * @param {() => Promise<Value>} read
   * @returns {Promise<Value>}
   */
  kept(name, size, read) {
    const known = this.read.get(name);
    const value = /** @type {Promise<Value>} */ (known?.value ?? read());
    this.read.delete(name);
    this.read.set(name, { value, size });
    if (!known) this.size += size;
    for (const [oldest, { size: freed }] of this.read) {
      if (this.size <= MAX_KEPT_NUMBERS || oldest === name) break;
      this.read.delete(oldest);
      this.size -= freed;
    }
    return value;
  }
}
