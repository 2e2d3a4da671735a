/** Lists the heads that the filter's words leave, sorted by a metric or in the order of the recording. */

import { page } from "./data.js";
import { parseFilter } from "./filter.js";
import { described, METRIC_NAMES, numbersOf } from "./metrics.js";
import { inOrder, orderedBy } from "./ordering.js";
import { state } from "./state.js";

/** The filter as it is now, and what is wrong with it. */
export function currentFilter() {
  return parseFilter(state.filter, METRIC_NAMES);
}

/** The order of the heads: that which was asked for, else by the number across where they are points. */
export function currentOrder() {
  return state.sort || state.across;
}

/** The metric that heads are sorted by; "" where they stand in their own order. */
export function sortMetric() {
  const name = orderedBy(currentOrder());
  return METRIC_NAMES.includes(name) ? name : "";
}

/** The listed heads in their order. @returns {number[]} */
export function listedHeads() {
  const { keeps } = currentFilter();
  const all = [...page.heads.keys()];
  const brushed = all.filter((number) => state.brushed?.has(number) ?? true);
  const left = state.filter ? brushed.filter((number) => keeps(described(number))) : brushed;
  const metric = sortMetric();
  return metric ? inOrder(left, currentOrder(), (number) => numbersOf(number)[metric]) : left;
}
