/** Provides the weights that shade the text: a token's row or column, in the open head or averaged over the list. */

import { averageOfKeys } from "./values.js";

/** @import { Mark, Shades, Shown } from "./types.js" */

/** @type {WeakMap<Shown, Float32Array>} */
const averages = new WeakMap();

/**
 * What a mark shades; without one how much each key is attended to on average.
 *
 * @param {Shown} shown
 * @param {Mark | null} mark
 * @returns {Shades}
 */
export function shadesOf(shown, mark) {
  if (shown.shades) return shown.shades(mark);
  if (mark?.query !== null && mark?.query !== undefined) {
    return { query: null, key: shown.line("query", mark.query), said: `what ${labelOf(shown, mark)} attends to` };
  }
  if (mark) return { query: shown.line("key", mark.key ?? 0), key: null, said: `what attends to ${labelOf(shown, mark)}` };
  if (!shown.values) return { query: null, key: null, said: "" };
  const average = averages.get(shown) ?? averageOfKeys(shown);
  averages.set(shown, average);
  return { query: null, key: average, said: "how much each token is attended to on average" };
}

/** @param {Shown} shown @param {Mark} mark */
function labelOf(shown, { query, key }) {
  return `“${query !== null ? shown.queries.labels[query] : shown.keys.labels[key ?? 0]}”`;
}
