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
/** @type {Float32Array[]} the numbers of all 65,536 codes of 16 bits, once they were asked for */
const halves = [];

/** Bytes from their characters, four for five; a last group may be shorter. @param {string} text */
export function bytesOf(text) {
  const characters = new TextEncoder().encode(text.padEnd(5 * Math.ceil(text.length / 5), "~"));
  const groups = new Uint32Array(characters.length / 5);
  for (let group = 0, place = 0; group < groups.length; group++, place += 5) {
    const first = DIGITS[characters[place]] * 85 + DIGITS[characters[place + 1]];
    const middle = DIGITS[characters[place + 2]] * 85 + DIGITS[characters[place + 3]];
    const bits = (Math.imul(first, 85 ** 3) + middle * 85 + DIGITS[characters[place + 4]]) | 0;
    groups[group] = (bits >>> 24) | ((bits >>> 8) & 0xff00) | ((bits << 8) & 0xff0000) | (bits << 24); // the highest byte first
  }
  return new Uint8Array(groups.buffer, 0, Math.floor((4 * text.length) / 5));
}

/** Some of the bytes that characters stand for. @param {string} text @param {number} first @param {number} count */
export function someBytesOf(text, first, count) {
  const start = Math.floor(first / 4);
  return bytesOf(text.slice(5 * start, 5 * Math.ceil((first + count) / 4))).subarray(first - 4 * start, first - 4 * start + count);
}

/** The bytes that were deflated. @param {Uint8Array<ArrayBuffer>} bytes */
export async function inflate(bytes) {
  const { writable, readable } = new DecompressionStream("deflate");
  const writer = writable.getWriter(); // a stream of a blob or a response would go by way of other processes
  writer.write(bytes).catch(() => {}); // what is wrong with the bytes is said where they are read
  writer.close().catch(() => {});
  const reader = readable.getReader();
  const parts = [];
  for (let part = await reader.read(); !part.done; part = await reader.read()) parts.push(part.value);
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  parts.reduce((place, part) => (whole.set(part, place), place + part.length), 0);
  return whole;
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
 * Some of the numbers of 16 bits that bytes hold: all high bytes, then all low ones.
 *
 * @param {Uint8Array} bytes
 * @param {number} first
 * @param {number} last
 * @param {Float32Array} numbers where they are written
 */
export function readHalves(bytes, first = 0, last = bytes.length / 2, numbers = new Float32Array(last - first)) {
  const low = bytes.length / 2;
  if (!halves.length) halves.push(halvesOfCodes());
  const [table] = halves;
  for (let place = first; place < last; place++) numbers[place - first] = table[(bytes[place] << 8) | bytes[low + place]];
  return numbers;
}

/** The number of each code: a sign, five bits of exponent and ten of fraction. */
function halvesOfCodes() {
  const numbers = new Float32Array(2 ** 16);
  const bits = new Uint32Array(numbers.buffer);
  for (let code = 0; code < bits.length; code++) {
    const infinite = (code & 0x7c00) === 0x7c00 ? 0x70000000 : 0;
    bits[code] = ((code & 0x8000) << 16) | ((code & 0x7fff) << 13) | infinite;
    numbers[code] *= EXPONENTS;
  }
  return numbers;
}
