/** What figures are made of: texts, frames and images as elements, for the screen and for files, and the measures of texts. */

import { contextOf, newCanvas, paintPalette } from "./colors.js";
import { h } from "./tree.js";

/** @import { Area, Scale } from "./types.js" */
/** @import { Given, Tree } from "./tree.js" */

/** The size of a reader's letters relative to the browser's usual 16 pixels; the layout of pictures uses it. */
export const letters = { scale: 1 };

/** Reads how large a reader's letters are. */
export function measureLetters() {
  letters.scale = Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
}

export const FONT = getComputedStyle(document.body).fontFamily;
const MAX_MEASURED_LABELS = 1_500;
const MAX_VECTOR_CELLS = 2_500;
const ruler = contextOf(newCanvas(1, 1));
const segmenter = new Intl.Segmenter();

/** @param {string} text @param {number} size @param {number} weight */
export function textWidth(text, size, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

/** The text, cut with an ellipsis where it is wider than allowed. @param {string} text @param {number} size @param {number} width @param {number} weight */
export function fitText(text, size, width, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  const characters = Array.from(segmenter.segment(text), (part) => part.segment);
  let [low, high] = [0, characters.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${characters.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${characters.slice(0, low).join("")}…`;
}

/** The width of the widest label; of very many only the last are measured. @param {string[]} labels */
export function longest(labels) {
  const measured = labels.length > MAX_MEASURED_LABELS ? labels.slice(-200) : labels;
  return measured.reduce((width, label) => Math.max(width, textWidth(label, 13)), 0);
}

/** A text in lines of so many pixels. @param {string} text @param {number} size @param {number} width @param {number} [weight] */
export function wrapped(text, size, width, weight = 400) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (!lines[lines.length - 1] || widthInFile(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => fitText(line, size, width, weight));
}

/** The width of a text as a file draws it: at a small size letters are moved to whole pixels. @param {string} text @param {number} size @param {number} weight */
export function widthInFile(text, size, weight) {
  return textWidth(text, 10 * size, weight) / 10;
}

/** A number in an attribute of several. @param {number} number */
export function short(number) {
  return String(Math.round(number * 100) / 100);
}

/**
 * A text, of which y is the middle.
 *
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {{ size?: number, color?: string, align?: "start" | "middle" | "end", weight?: number | string, turned?: number, key?: unknown }} style
 */
export function textAt(text, x, y, { size = 12, color = "var(--ink)", align = "start", weight = 400, turned = 0, key } = {}) {
  const transform = turned ? `rotate(${turned} ${short(x)} ${short(y)})` : null;
  return h("text", { key, x, y, transform, fill: color, "font-size": size, "font-weight": weight, "text-anchor": align, "dominant-baseline": "central" }, text);
}

/** The names of axes, and other words beside a figure. */
export const FAINT = { size: 11, color: "var(--soft)" };

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {string} color @param {number} [opacity] */
export function rectangle(x, y, width, height, color, opacity = 1) {
  return h("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), fill: color, "fill-opacity": opacity < 1 ? opacity : null });
}

/** A frame in a colour between two lines of paper: one of both is seen on any cell. @param {number} x @param {number} y @param {number} width @param {number} height @param {string} color @param {number} thick */
export function doubleFrame(x, y, width, height, color, thick) {
  const around = { x, y, width, height, fill: "none" };
  return [h("rect", { ...around, stroke: "var(--paper)", "stroke-width": thick + 2 }), h("rect", { ...around, stroke: color, "stroke-width": thick })];
}

/** Elements whose origin is elsewhere. @param {number} x @param {number} y @param {...Given} children */
export function moved(x, y, ...children) {
  return h("g", { transform: x || y ? `translate(${short(x)} ${short(y)})` : null }, ...children);
}

/** Elements of which a box is seen. Its name is what it is, so that equal ones need not be told apart. @param {Area} area @param {...Given} children */
export function clipped({ x, y, width, height }, ...children) {
  const id = `clip_${[x, y, width, height].map(short).join("_")}`;
  return h("g", { "clip-path": `url(#${id})` }, h("clipPath", { id }, rectangle(x, y, width, height, "none")), ...children);
}

/** The pixels of a canvas in a file: cells as boxes where they are few, which stay sharp in every program. @param {HTMLCanvasElement} canvas @param {Area} area @param {"cells" | "pixels" | "photo"} [kind] */
export function imageInFile(canvas, { x, y, width, height }, kind = "cells") {
  const { width: across, height: down } = canvas;
  if (kind !== "cells" || across * down > MAX_VECTOR_CELLS) {
    const sharp = kind === "photo" || width < across ? null : "pixelated";
    return h("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": sharp, href: canvas.toDataURL("image/png") });
  }
  const context = /** @type {CanvasRenderingContext2D} */ (newCanvas(across, down).getContext("2d", { willReadFrequently: true })); // a canvas that is drawn would be slower afterwards
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, across, down);
  /** @type {Tree[]} */
  const cells = [];
  for (let place = 0; place < data.length; place += 4) {
    if (!data[place + 3]) continue;
    const [row, column] = [Math.floor(place / 4 / across), (place / 4) % across];
    cells.push(rectangle(x + (column * width) / across, y + (row * height) / down, width / across, height / down, `rgb(${data.slice(place, place + 3).join(", ")})`));
  }
  return h("g", { "shape-rendering": "crispEdges" }, cells);
}

/** The colours of a scale from one end to the other, with what stands under them: the legend of every picture. @param {Scale} scale @param {string[]} ticks @param {number | null} [grey] of an image under them */
export function scaleBar(scale, ticks, grey = null) {
  return h("span", { class: "scale" }, paintPalette(scale, grey), h("span", { class: "ticks" }, ticks.map((text) => h("span", {}, text))));
}
