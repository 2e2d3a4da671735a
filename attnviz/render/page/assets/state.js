/** What is shown now: the one place that changes while the page is read. */

import { comparing, hasManyTokens, page } from "./data.js";

/** @import { State } from "./types.js" */

/** @type {State} */
export const state = {
  head: null,
  view: page.view,
  side: comparing ? "change" : "",
  of: page.quantity,
  limits: page.limits,
  steps: page.steps ?? (hasManyTokens() ? "sqrt" : "linear"),
  size: "",
  list: "maps",
  chosen: [],
  together: null,
  filter: "",
  sort: page.sort,
  noting: false,
  note: 0,
  pool: "mean",
  direction: "to",
  mark: null,
  pin: page.query === null ? null : { query: page.query, key: null },
  shown: null,
  current: null,
  strip: null,
  found: { text: "", place: -1 },
};

/** The number of the recording that is shown; of a change the first. */
export function sideNumber() {
  return state.side === "B" ? 1 : 0;
}
