/** Numbers from the characters of the page, as encoding.py wrote them. */

import { ABSENT } from "./values.js";

/** @import { Precision } from "./types.js" */

/** Bytes that a number takes, by its type. */
export const ITEM_SIZES = { float32: 4, uint16: 2, uint8: 1 };

const DIGITS = new Uint8Array(128); // the number that each of 85 characters stands for
"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
  .split("")
  .forEach((character, digit) => (DIGITS[character.charCodeAt(0)] = digit));
const EXPONENTS = 2 ** 112; // the exponent of 32 bits begins so much lower than that of 16

/** Bytes from their characters, four for five; a last group may be shorter. @param {string} text */
export function bytesOf(text) {
  const whole = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  const padded = text.padEnd(1.25 * whole.byteLength, "~");
  for (let place = 0, byte = 0; byte < whole.byteLength; place += 5, byte += 4) {
    const first = DIGITS[padded.charCodeAt(place)] * 85 + DIGITS[padded.charCodeAt(place + 1)];
    const middle = DIGITS[padded.charCodeAt(place + 2)] * 85 + DIGITS[padded.charCodeAt(place + 3)];
    whole.setInt32(byte, (Math.imul(first, 85 ** 3) + middle * 85 + DIGITS[padded.charCodeAt(place + 4)]) | 0);
  }
  return new Uint8Array(whole.buffer, 0, Math.floor((4 * text.length) / 5));
}

/** The bytes that were deflated. @param {Uint8Array<ArrayBuffer>} bytes */
export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
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
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {Precision} precision
 * @param {number} high
 */
export function readWeights({ buffer, byteOffset, byteLength }, { dtype, largest }, high) {
  const count = byteLength / ITEM_SIZES[dtype];
  if (dtype === "float32") return new Float32Array(buffer, byteOffset, count);
  const codes = dtype === "uint16" ? new Uint16Array(buffer, byteOffset, count) : new Uint8Array(buffer, byteOffset, count);
  return decode(codes, weightsOfCodes(largest, high));
}

/**
 * Some of the numbers of 16 bits that bytes hold: all high bytes, then all low ones; each has a sign, five bits of
 * exponent and ten of fraction.
 *
 * @param {Uint8Array} bytes
 * @param {number} first
 * @param {number} last
 */
export function readHalves(bytes, first = 0, last = bytes.length / 2) {
  const low = bytes.length / 2;
  const bits = new Uint32Array(last - first);
  for (let place = first; place < last; place++) {
    const high = bytes[place];
    const infinite = (high & 0x7c) === 0x7c ? 0x70000000 : 0;
    bits[place - first] = ((high & 0x80) << 24) | ((((high & 0x7f) << 8) | bytes[low + place]) << 13) | infinite;
  }
  const numbers = new Float32Array(bits.buffer);
  for (let place = 0; place < numbers.length; place++) numbers[place] *= EXPONENTS;
  return numbers;
}
