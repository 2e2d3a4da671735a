/** All heads of a page in all numbers that are known of them. */

import { openHead } from "./actions.js";
import { page } from "./data.js";
import { make } from "./elements.js";
import { headTable } from "./head_table.js";
import { listedHeads } from "./listing.js";
import { METRIC_NAMES } from "./metrics.js";

/** @import { View } from "./types.js" */

/** @implements {View} */
export class NumbersView {
  /** @param {HTMLElement} parent */
  constructor(parent) {
    const heads = listedHeads();
    const caption = `What ${heads.length} of ${page.heads.length} heads do: a number opens its head, a metric’s name sorts by it`;
    const none = "These heads have no numbers: no metric applies to them, or their maps are pooled.";
    parent.append(METRIC_NAMES.length ? headTable(heads, METRIC_NAMES, caption, openHead) : make("p", { className: "note" }, none));
  }

  drawOver() {}

  reveal() {}

  fit() {}
}
