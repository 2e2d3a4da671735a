/** The heads' numbers: read when a head is opened, and kept while it is among the last few that were. */

import { theComputer } from "./computer.js";
import { contentOf, documentRead, givenSide } from "./contents.js";
import { headTitle, page, seenBy, textOf } from "./data.js";
import { factoredWeights, keptWeights } from "./grids.js";
import { scaleOf } from "./head_scales.js";
import { factoredSide, piecesOf, readSide } from "./reading.js";

/** @import { Grid, GridAbout } from "./types.js" */

const MAX_KEPT_HEADS = 8;

/** @type {Map<number, Promise<Grid[]>>} */
const keptHeads = new Map();
/** @type {Map<number, Promise<Float32Array>>} keys, which several heads may share */
const keptKeys = new Map();

/** @param {number} number @param {number} side @returns {Promise<Grid>} */
async function sideOf(number, side) {
  const given = givenSide(number, side);
  const counts = seenBy(number, side);
  /** @type {GridAbout} */
  const about = {
    number,
    title: headTitle(number),
    queries: textOf(number, "query", side),
    keys: textOf(number, "key", side),
    same: page.heads[number].same,
    scale: scaleOf(number),
    seen: (row) => counts[row],
  };
  if (!given.about) {
    given.texts = { ...(await contentOf(`head-${number}-${side}`)).split(" ") };
    return keptWeights(about, await readSide(given, piecesOf(given)));
  }
  await documentRead();
  const { numbers, rest } = await theComputer().askNumbers(number, side, "queries"); // so many that the worker reads them
  return factoredWeights(about, factoredSide(given, numbers, await keysOf(number, side, given.about.keys), rest));
}

/** @param {number} number @param {number} side @param {number} keys which of the page's */
function keysOf(number, side, keys) {
  const reading = keptKeys.get(keys) ?? theComputer().askNumbers(number, side, "keys").then(({ numbers }) => numbers);
  keep(keptKeys, keys, reading);
  return reading;
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
