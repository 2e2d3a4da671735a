/** A page without a browser: what an address may name on it, and how it begins. */

/** @param {{ heads: string[], queries: string[], keys: string[] }} of */
export function placesOf({ heads, queries, keys }) {
  return {
    heads: heads.map((name) => ({ name, queries: [0], keys: [1] })),
    texts: [{ labels: queries, first: 0 }, { labels: keys, first: 0 }],
    sides: [""],
    quantity: "weight",
    moved: null,
  };
}

/** @param {ReturnType<typeof placesOf>} places @param {object} [other] */
export function begunOn(places, other = {}) {
  return {
    head: null, view: "matrix", side: "", of: places.quantity, limits: "shared", steps: "sqrt", size: "", list: "maps",
    chosen: [], together: null, filter: "", sort: "", noting: false, note: 0, pool: "mean", direction: "to", mark: null,
    pin: null, found: { text: "", place: -1 }, ...other,
  };
}
