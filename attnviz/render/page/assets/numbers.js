/** The heads' numbers: inflated when a head is opened, and kept while it is among the last few that were. */

import { page, shapeOf } from "./data.js";
import { bytesOf, inflate, readHalves } from "./encoding.js";
import { DenseSide, factorsOf, FactoredSide } from "./sides.js";

/** @import { Side } from "./types.js" */

const MAX_KEPT_HEADS = 8;

/** @type {Map<number, Promise<Side[]>>} */
const keptHeads = new Map();
/** @type {Map<number, Promise<Float32Array>>} keys, which several heads may share */
const keptKeys = new Map();

// The script stands before the heads' numbers, so that the first view is drawn while they are still read.
/** @returns {Promise<unknown>} */
function documentRead() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
}

/** What an element with deflated content holds. @param {string} id */
async function contentOf(id) {
  if (!document.getElementById(id)?.nextSibling) await documentRead();
  return inflate(bytesOf(document.getElementById(id)?.textContent ?? ""));
}

/** @param {number} number @param {number} side @returns {Promise<Side>} */
async function readSide(number, side) {
  const head = page.heads[number];
  if (head.factors.length) return readFactors(number, side);
  return new DenseSide(await contentOf(`head-${number}-${side}`), shapeOf(number), head.highs[side], page);
}

/** @param {number} number @param {number} side */
async function readFactors(number, side) {
  const about = page.heads[number].factors[side];
  const [rows, columns] = shapeOf(number, side);
  const bytes = new Uint8Array(await contentOf(`head-${number}-${side}`));
  return new FactoredSide(factorsOf(bytes, rows, await readKeys(about.keys, columns * about.features), about));
}

/** @param {number} number @param {number} count */
async function readKeys(number, count) {
  const read = () => contentOf(`keys-${number}`).then((buffer) => readHalves(new Uint8Array(buffer), 0, count));
  const keys = keptKeys.get(number) ?? read();
  keep(keptKeys, number, keys);
  return keys;
}

/** A head's sides. @param {number} number */
export function loadHead(number) {
  const loading = keptHeads.get(number) ?? Promise.all(page.sides.map((_, side) => readSide(number, side)));
  keep(keptHeads, number, loading);
  return loading;
}

/**
 * Keeps a value as the latest, and lets go of the oldest where there are too many.
 *
 * @template Value
 * @param {Map<number, Value>} kept
 * @param {number} number
 * @param {Value} value
 */
function keep(kept, number, value) {
  kept.delete(number);
  kept.set(number, value);
  for (const oldest of kept.keys()) {
    if (kept.size <= MAX_KEPT_HEADS) return;
    kept.delete(oldest);
  }
}
