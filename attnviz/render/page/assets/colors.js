/** Values to colours: the palettes are the page's, which are those of every other picture; the theme is its style's. */

import { page } from "./data.js";
import { bytesOf } from "./encoding.js";
import { fractionOf } from "./scales.js";
import { sideNumber, state } from "./state.js";
import { ABSENT } from "./values.js";

/** @import { Scale } from "./types.js" */

const SHADES = 256;
const palettes = Object.fromEntries(Object.entries(page.palettes).map(([name, table]) => [name, bytesOf(table)]));

/** @type {Record<string, string>} the page's own colours, while they are as its style has them */
const themeColors = {};
const THEME_NAMES = ["paper", "card", "ink", "soft", "line", "accent", "accent-paper", "absent", "arc", "less", "more"];

/** The scale up to a value. @param {number | undefined} high @param {number} low @returns {Scale} */
export function scaleUpTo(high, low = 0) {
  const change = state.side === "change";
  const palette = change ? page.diverging : page.sequential;
  return { low: change ? 0 : low, high: high || 1, palette, steps: state.steps, change };
}

/** The scale of a head, shared by all or its own. @param {number} number */
export function scaleOf(number) {
  const head = page.heads[number];
  const own = state.limits === "head";
  if (state.side === "change") return scaleUpTo(own ? head.reach : page.reach);
  if (page.fixed && !own) return scaleUpTo(page.fixed[1], page.fixed[0]);
  return scaleUpTo(own ? head.peaks[sideNumber()]?.[2] : page.high);
}

/** @param {string} palette @param {number} shade */
function shadeOf(palette, shade) {
  return palettes[palette].subarray(3 * shade, 3 * shade + 3);
}

/** @param {number} value @param {Scale} scale @returns {Iterable<number>} */
export function rgbOf(value, scale) {
  if (Number.isNaN(value)) return page.nanColor;
  return shadeOf(scale.palette, Math.round((SHADES - 1) * fractionOf(value, scale)));
}

/** @param {number} value @param {Scale} scale */
export function cssOf(value, scale) {
  return `rgb(${[...rgbOf(value, scale)].join(", ")})`;
}

/**
 * A canvas of a pixel a cell; masked cells are transparent.
 *
 * @param {Float32Array} values
 * @param {number} rows
 * @param {number} columns
 * @param {Scale} scale
 */
export function paintCells(values, rows, columns, scale) {
  const canvas = newCanvas(columns, rows);
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const table = Uint32Array.from({ length: SHADES }, (_, shade) => pixelOf(shadeOf(scale.palette, shade)));
  const nan = pixelOf(page.nanColor);
  for (let place = 0; place < pixels.length; place++) {
    const value = values[place];
    if (value === ABSENT) continue;
    pixels[place] = Number.isNaN(value) ? nan : table[Math.round((SHADES - 1) * fractionOf(value, scale))];
  }
  contextOf(canvas).putImageData(image, 0, 0);
  return canvas;
}

/** The colours of a scale from one end to the other, a pixel each. @param {Scale} scale */
export function paintPalette(scale) {
  const canvas = newCanvas(SHADES, 1);
  const context = contextOf(canvas);
  for (let shade = 0; shade < SHADES; shade++) {
    context.fillStyle = `rgb(${shadeOf(scale.palette, shade).join(" ")})`;
    context.fillRect(shade, 0, 1, 1);
  }
  return canvas;
}

/** @param {number} width @param {number} height */
export function newCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/** @param {Iterable<number>} rgb */
function pixelOf(rgb) {
  return new Uint32Array(new Uint8ClampedArray([...rgb, 255]).buffer)[0];
}

/** The page's own colours, as its style has them now. */
export function theme() {
  if (!("paper" in themeColors)) {
    const style = getComputedStyle(document.documentElement);
    for (const name of THEME_NAMES) themeColors[name] = style.getPropertyValue(`--${name}`).trim();
  }
  return themeColors;
}

/** Lets the theme be read again. */
export function forgetTheme() {
  delete themeColors.paper;
}
