/** A page without a browser: what can be chosen and what an address may name on it, and how it begins. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const PRINTING = "import json; from attnviz.report.words.choices import page_table; print(json.dumps(page_table()))";
const ROOT = fileURLToPath(new URL("../../../..", import.meta.url));

/** The table of choices, as Python gives it to a page. */
export const table = JSON.parse(execFileSync(process.env.PYTHON ?? "python3", ["-c", PRINTING], { cwd: ROOT, encoding: "utf-8" }));

/** The places of a survey's page: the numbers that its heads have. @param {string[]} names */
export function placesOfSurvey(names) {
  const heads = ["0.0", "0.1", "1.0"].map((name) => ({ name }));
  return { heads, texts: [], sides: [""], quantity: "weight", moved: null, metrics: { names }, survey: {}, leftOut: null, block: 1, table };
}

/** @param {{ heads: string[], queries: string[], keys: string[] }} of */
export function placesOf({ heads, queries, keys }) {
  return {
    heads: heads.map((name) => ({ name, queries: [0], keys: [1] })),
    texts: [{ labels: queries, first: 0 }, { labels: keys, first: 0 }],
    sides: [""],
    quantity: "weight",
    moved: null,
    leftOut: null, block: 1,
    table,
  };
}

/** @param {ReturnType<typeof placesOf>} places @param {object} [other] */
export function begunOn(places, other = {}) {
  return {
    head: null, view: "matrix", side: "", of: places.quantity, limits: "shared", steps: "sqrt", size: "", list: "maps",
    chosen: [], together: null, by: "tokens", special: "", share: "2", scores: "hidden", filter: "", sort: "", noting: false, note: 0, pool: "mean", direction: "to", interval: null, mark: null,
    across: "", up: "", sized: "", colour: "", textsBy: "", brushed: null, pin: null, found: { text: "", place: -1 }, pooled: false, unknown: "", ...other,
  };
}
