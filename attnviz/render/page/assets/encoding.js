/** Numbers from the characters of the page, as encoding.py wrote them. */

import { ABSENT } from "./values.js";

/** @import { Precision } from "./types.js" */

/** Bytes that a number takes, by its type. */
export const ITEM_SIZES = { float32: 4, uint16: 2, uint8: 1 };

const DIGITS = new Uint8Array(128); // the number that each of 85 characters stands for
"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
  .split("")
  .forEach((character, digit) => (DIGITS[character.charCodeAt(0)] = digit));

// Numbers of 16 bits, by their codes: sign, five bits of exponent, ten of fraction.
const HALVES = Float32Array.from({ length: 65_536 }, (_, code) => {
  const [sign, exponent, fraction] = [code >> 15 ? -1 : 1, (code >> 10) & 31, code & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
});

/** Bytes from their characters, four for five; a last group may be shorter. @param {string} text */
export function bytesOf(text) {
  const whole = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let group = 0; 5 * group < text.length; group++) {
    let word = 0;
    for (let place = 5 * group; place < 5 * group + 5; place++) {
      word = word * 85 + (place < text.length ? DIGITS[text.charCodeAt(place)] : 84);
    }
    whole.setUint32(4 * group, word);
  }
  return new Uint8Array(whole.buffer, 0, Math.floor((4 * text.length) / 5));
}

/** The bytes that were deflated. @param {Uint8Array<ArrayBuffer>} bytes */
export function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/**
 * What each code stands for: high · (code / largest)², then absent, then NaN.
 *
 * @param {number} largest
 * @param {number} high
 */
export function weightsOfCodes(largest, high) {
  const weights = new Float32Array(largest + 3);
  for (let code = 0; code <= largest; code++) weights[code] = high * (code / largest) ** 2;
  weights[largest + 1] = ABSENT;
  weights[largest + 2] = NaN;
  return weights;
}

/** The weights of codes. @param {Uint8Array | Uint16Array} codes @param {Float32Array} table */
export function decode(codes, table) {
  const weights = new Float32Array(codes.length);
  for (let place = 0; place < codes.length; place++) weights[place] = table[codes[place]];
  return weights;
}

/**
 * Weights as they are kept: themselves, or codes of which the largest stands for `high`.
 *
 * @param {ArrayBuffer} buffer
 * @param {number} start
 * @param {number} count
 * @param {Precision} precision
 * @param {number} high
 */
export function readWeights(buffer, start, count, { dtype, largest }, high) {
  if (dtype === "float32") return new Float32Array(buffer, start, count);
  const codes = dtype === "uint16" ? new Uint16Array(buffer, start, count) : new Uint8Array(buffer, start, count);
  return decode(codes, weightsOfCodes(largest, high));
}

/**
 * Numbers of 16 bits from their high bytes, then their low ones.
 *
 * @param {Uint8Array} bytes
 * @param {number} start
 * @param {number} count
 */
export function readHalves(bytes, start, count) {
  const numbers = new Float32Array(count);
  const low = start + count;
  for (let place = 0; place < count; place++) numbers[place] = HALVES[(bytes[start + place] << 8) | bytes[low + place]];
  return numbers;
}
