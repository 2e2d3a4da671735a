/** Lists the heads that the filter's words leave, in their order, and listens to the field in which these are typed. */

import { page } from "./data.js";
import { one } from "./elements.js";
import { inOrder, orderedBy, parseFilter, sortTurned } from "./filter.js";
import { described, METRIC_NAMES, numbersOf, patternOf } from "./metrics.js";
import { set, state } from "./state.js";

/** The filter as it is now, and what is wrong with it. */
function currentFilter() {
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

/** Sorts by the metric so many further on, or by none. @param {number} by */
export function sortNext(by) {
  const orders = ["", ...METRIC_NAMES];
  set({ sort: orders[(orders.indexOf(orderedBy(state.sort)) + by + orders.length) % orders.length] });
}

/** Turns the order of the heads round. */
export function turnOrder() {
  set({ sort: sortTurned(currentOrder(), sortMetric()) });
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

/** Takes what is typed, and offers words when the field is first used. */
export function listenToFilter() {
  one("filter").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && set({ filter: target.value }));
  one("filter").addEventListener("focus", offerWords, { once: true });
}

/** Offers words that a filter may be made of. */
function offerWords() {
  const patterns = page.heads.map((_, number) => patternOf(number).replace(/[:\d.,].*$/, "").trim());
  const words = [...METRIC_NAMES.map((name) => `${name}>0.5`), ...new Set(patterns.filter(Boolean)), "layer:0-3"];
  one("words").replaceChildren(...words.map((word) => new Option(word)));
}

/** Draws the filter, and what is wrong with it or with the link that was followed. */
export function drawFilter() {
  const filter = one("filter");
  if (filter instanceof HTMLInputElement && document.activeElement !== filter) filter.value = state.filter;
  const wrong = state.unknown || currentFilter().wrong;
  one("wrong").hidden = !wrong;
  one("wrong").textContent = wrong;
}
