/** The colours of a scale from one end to the other, with what stands under them: the legend of every picture. */

import { paintPalette } from "./colors.js";
import { h } from "./tree.js";

/** @import { Scale } from "./types.js" */

/** @param {Scale} scale @param {string[]} ticks */
export function scaleBar(scale, ticks) {
  return h("span", { class: "scale" }, paintPalette(scale), h("span", { class: "ticks" }, ticks.map((text) => h("span", {}, text))));
}
