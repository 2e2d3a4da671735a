/** Values to colours: the palettes are the page's, which are those of every other picture; the theme is its style's. */

import { page } from "./data.js";
import { bytesOf } from "./encoding.js";
import { fractionOf, fractionsOf, levelOf, partsOf, strengthOf, valueAt } from "./scales.js";
import { ABSENT, kept } from "./values.js";

/** @import { Scale, Seen } from "./types.js" */

const SHADES = 256;
const OPACITIES = [0.35, 0.8]; // of the colours of the smallest and the largest weight over an image, as in figures
const OPACITIES_ON_DARK_PAPER = [0.7, 0.9];
const palettes = Object.fromEntries(Object.entries(page.palettes).map(([name, table]) => [name, bytesOf(table)]));

/** @type {Record<string, string>} the page's own colours, while they are as its style has them */
const themeColors = {};
const THEME_NAMES = ["paper", "card", "ink", "soft", "line", "accent", "accent-paper", "absent", "arc", "less", "more"];

/** True if the colours of a palette are those for dark paper. @param {string} palette */
function isOnDarkPaper(palette) {
  return isDark() && `${palette}-dark` in palettes;
}

/** @param {string} palette @param {number} shade */
function shadeOf(palette, shade) {
  const colors = palettes[isOnDarkPaper(palette) ? `${palette}-dark` : palette];
  return colors.subarray(3 * shade, 3 * shade + 3);
}

/** True if the page's paper is dark. */
function isDark() {
  return partsOf(theme().paper).reduce((total, part) => total + part) < 3 * 128;
}

/** @param {number} value @param {Scale} scale @param {number} seen @returns {Iterable<number>} */
export function rgbOf(value, scale, seen) {
  if (Number.isNaN(value)) return page.nanColor;
  return shadeOf(scale.palette, Math.round((SHADES - 1) * fractionOf(levelOf(value, scale, seen), scale)));
}

/** The colour of a value of the scale itself. @param {number} level @param {Scale} scale */
export function cssOf(level, scale) {
  return `rgb(${[...shadeOf(scale.palette, Math.round((SHADES - 1) * fractionOf(level, scale)))].join(", ")})`;
}

/**
 * An image of a pixel a cell; masked cells are transparent.
 *
 * @param {Float32Array} values
 * @param {number} rows
 * @param {number} columns
 * @param {Scale} scale
 * @param {Seen} seen
 */
export function imageOf(values, rows, columns, scale, seen) {
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const table = pixelsOf(scale.palette);
  const nan = pixelOf(page.nanColor);
  const lifted = scale.steps === "lift" && !scale.change;
  const fraction = fractionsOf(scale);
  for (let row = 0, place = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, place++) {
      const value = values[place];
      if (value === ABSENT) continue;
      const level = lifted ? value * seen(row, column) : value;
      pixels[place] = Number.isNaN(value) ? nan : table[Math.round((SHADES - 1) * fraction(level))];
    }
  }
  return image;
}

/** Returns the image of cells as a canvas. @type {(...given: Parameters<typeof imageOf>) => HTMLCanvasElement} */
export function paintCells(...given) {
  const image = imageOf(...given);
  const canvas = newCanvas(image.width, image.height);
  contextOf(canvas).putImageData(image, 0, 0);
  return canvas;
}

/** @type {Map<string, Uint32Array>} */
const pixelTables = new Map();

/** The pixels of all shades. @param {string} palette */
function pixelsOf(palette) {
  return kept(pixelTables, palette, () => Uint32Array.from({ length: SHADES }, (_, shade) => pixelOf(shadeOf(palette, shade))));
}

/** The colours of a scale from one end to the other, a pixel each; over an image, as they are seen over a grey of it. @param {Scale} scale @param {number | null} [grey] */
export function paintPalette(scale, grey = null) {
  const canvas = newCanvas(SHADES, 1);
  const context = contextOf(canvas);
  for (let shade = 0; shade < SHADES; shade++) {
    context.fillStyle = seenOver(valueAt(shade / (SHADES - 1), scale), scale, grey);
    context.fillRect(shade, 0, 1, 1);
  }
  return canvas;
}

/** The colour in which a value is seen: that of the scale, or mixed with the grey of an image under it. @param {number} level @param {Scale} scale @param {number | null} grey */
export function seenOver(level, scale, grey) {
  if (grey === null) return cssOf(level, scale);
  const { color, opacity } = overImage(level, scale);
  const parts = (color.match(/\d+/g) ?? []).map((part) => Math.round(opacity * Number(part) + (1 - opacity) * grey));
  return `rgb(${parts.join(", ")})`;
}

/** The colour of a value over an image, and how much of it covers the grey, as in figures. @param {number} level @param {Scale} scale */
export function overImage(level, scale) {
  const [low, high] = isOnDarkPaper(scale.palette) ? OPACITIES_ON_DARK_PAPER : OPACITIES;
  return { color: cssOf(level, scale), opacity: low + (high - low) * strengthOf(level, scale) };
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

/** Lets the theme, and the colours that follow from it, be read again. */
export function forgetTheme() {
  delete themeColors.paper;
  pixelTables.clear();
}
