/** Queries and keys of short texts, from which a score is explained: all are read when the first one is asked for. */

import { contentOf } from "./contents.js";
import { page, shapeOf } from "./data.js";
import { bytesOf, inflate, readHalves } from "./encoding.js";

/** @import { ScoreFactors } from "./types.js" */

/** @type {{ heads: ScoreFactors[][] | null }} by head, then by side */
const scoreFactors = { heads: null };

/** True if the page holds queries and keys besides weights. */
export function hasScores() {
  return Boolean(page.scores);
}

/** Returns the queries and keys of a head; null until `readScores` has read them. @param {number} number @param {number} side */
export function scoreFactorsOf(number, side) {
  return scoreFactors.heads?.[number][side] ?? null;
}

/** Reads the queries and keys of all heads. */
export async function readScores() {
  if (scoreFactors.heads || !page.scores) return;
  const bytes = await inflate(bytesOf(await contentOf("scores")));
  const numbers = readHalves(bytes);
  let place = 0;
  const next = (/** @type {number} */ count) => numbers.subarray(place, (place += count));
  scoreFactors.heads = page.scores.map((sides, number) =>
    sides.map((about, side) => {
      const [rows, columns] = shapeOf(number, side);
      return { ...about, queries: next(rows * about.features), keys: next(columns * about.features) };
    }),
  );
}
