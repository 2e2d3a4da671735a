/** Values to colours: the palettes are the page's, which are those of every other picture; the theme is its style's. */

import { page } from "./data.js";
import { bytesOf } from "./encoding.js";
import { fractionOf, fractionsOf, levelOf, partsOf, valueAt } from "./scales.js";
import { ABSENT, kept } from "./values.js";

/** @import { Scale, Seen } from "./types.js" */

const SHADES = 256;
const [FADED, ABSENT_FADED] = [0.65, 0.5]; // shares by which an image fades under colours, and again without them, as in figures
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

/** The colour in which a value is seen: that of the scale, or as over an image of one grey. @param {number} level @param {Scale} scale @param {number | null} grey */
export function seenOver(level, scale, grey) {
  const color = cssOf(level, scale);
  if (grey === null) return color;
  const ground = groundColor(scale);
  const under = FADED * ground + (1 - FADED) * grey;
  const parts = (color.match(/\d+/g) ?? []).map((part) => Math.round(ground ? (Number(part) * under) / 255 : 255 - ((255 - Number(part)) * (255 - under)) / 255));
  return `rgb(${parts.join(", ")})`;
}

/** The brightness to which an image fades under the colours of a scale: 255, or 0 if the colour of zero is dark. @param {Scale} scale */
export function groundColor({ palette, change }) {
  return [...shadeOf(palette, change ? SHADES / 2 : 0)].reduce((sum, part) => sum + part) >= 3 * 128 ? 255 : 0;
}

/**
 * Fades what is on a canvas, an image, and lays colours on it: as ink, or as light on a dark ground.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLCanvasElement} colors of the same size, transparent where the image fades further; it is overwritten
 * @param {number} ground
 */
export function layOver(canvas, colors, ground) {
  const [context, contextOfColors] = [contextOf(canvas), contextOf(colors)];
  const everywhere = /** @type {[number, number, number, number]} */ ([0, 0, canvas.width, canvas.height]);
  context.fillStyle = contextOfColors.fillStyle = ground ? "#fff" : "#000";
  context.globalAlpha = FADED;
  context.fillRect(...everywhere);
  context.globalAlpha = 1;
  context.globalCompositeOperation = ground ? "multiply" : "screen";
  context.drawImage(colors, 0, 0);
  contextOfColors.globalCompositeOperation = "source-out"; // the ground, where there was no colour
  contextOfColors.fillRect(...everywhere);
  context.globalCompositeOperation = "source-over";
  context.globalAlpha = ABSENT_FADED;
  context.drawImage(colors, 0, 0);
  context.globalAlpha = 1;
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
