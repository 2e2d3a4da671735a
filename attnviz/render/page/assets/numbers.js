/** The heads' numbers: inflated when a head is opened, and kept while it is among the last few that were. */

import { page, shapeOf } from "./data.js";
import { normsOf } from "./moved.js";
import { piecesOf, piecesOfKeys, readAll, readSide } from "./reading.js";

/** @import { GivenSide } from "./reading.js" */
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

/** The characters of an element that the browser keeps as they are. @param {string} id */
export async function contentOf(id) {
  if (!document.getElementById(id)?.nextSibling) await documentRead();
  return document.getElementById(id)?.textContent ?? "";
}

/** One head of one recording as the page holds it. @param {number} number @param {number} side @returns {Promise<GivenSide>} */
export async function givenSide(number, side) {
  const head = page.heads[number];
  return {
    content: await contentOf(`head-${number}-${side}`),
    shape: shapeOf(number, side),
    high: head.highs[side],
    precision: page.precision,
    block: page.block,
    about: head.factors[side] ?? null,
    moved: normsOf(number),
  };
}

/** @param {number} number @param {number} side @returns {Promise<Side>} */
async function sideOf(number, side) {
  const given = await givenSide(number, side);
  return readSide(given, piecesOf(given), given.about && keysOf(given.about.keys, given));
}

/** @param {number} number @param {GivenSide} given */
function keysOf(number, given) {
  const keys = keptKeys.get(number) ?? contentOf(`keys-${number}`).then((content) => readAll(piecesOfKeys(content, given)));
  keep(keptKeys, number, keys);
  return keys;
}

/** Lets go of what was read of heads: something else is shown of them. */
export function forgetHeads() {
  keptHeads.clear();
}

/** A head's sides. @param {number} number */
export function loadHead(number) {
  const loading = keptHeads.get(number) ?? Promise.all(page.sides.map((_, side) => sideOf(number, side)));
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
