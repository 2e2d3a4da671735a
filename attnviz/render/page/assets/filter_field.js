/** The field in which a reader types which heads are listed: every page has it. */

import { page } from "./data.js";
import { one } from "./elements.js";
import { currentFilter } from "./listing.js";
import { METRIC_NAMES, patternOf } from "./metrics.js";
import { set, state } from "./state.js";

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
