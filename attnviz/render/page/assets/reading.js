/** The sides of a head from the characters of the page: what the page and its worker both do. */

import { bytesOf, inflate, readHalves } from "./encoding.js";
import { DenseSide, factorsOf, FactoredSide } from "./sides.js";

/** @import { AboutFactors, Precision, Side } from "./types.js" */

/**
 * @typedef {object} GivenSide one head of one recording, as the page holds it
 * @property {string} content characters
 * @property {[number, number]} shape rows and columns
 * @property {number} high
 * @property {Precision} precision
 * @property {number} block
 * @property {AboutFactors | null} about its factors, where it has them
 */

/** @param {GivenSide} given @param {Promise<Float32Array> | null} keys @returns {Promise<Side>} */
export async function readSide(given, keys) {
  const buffer = await inflate(bytesOf(given.content));
  if (!given.about || !keys) return new DenseSide(buffer, given.shape, given.high, given);
  return new FactoredSide(factorsOf(new Uint8Array(buffer), given.shape[0], await keys, given.about));
}

/** Keys that heads share. @param {string} content @param {number} count */
export async function readKeys(content, count) {
  return readHalves(new Uint8Array(await inflate(bytesOf(content))), 0, count);
}
