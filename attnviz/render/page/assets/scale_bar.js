/** The colours of a scale from one end to the other, with what stands under them: the legend of every picture. */

import { paintPalette } from "./colors.js";
import { make } from "./elements.js";

/** @import { Scale } from "./types.js" */

/** @param {Scale} scale @param {string[]} ticks */
export function scaleBar(scale, ticks) {
  const texts = ticks.map((text) => make("span", {}, text));
  return make("span", { className: "scale" }, paintPalette(scale), make("span", { className: "ticks" }, ...texts));
}
