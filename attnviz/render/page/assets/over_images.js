/** All heads over the images: what a token looks at in each, or what looks at it, on one colour scale. */

import { openHead, pointTo } from "./actions.js";
import { contextOf, cssOf, groundColor, newCanvas } from "./colors.js";
import { headTitle, page } from "./data.js";
import { one } from "./elements.js";
import { canvasOf, drawGrid, headAt } from "./head_grid.js";
import { sortMetric } from "./listing.js";
import { toggleChosen } from "./overview.js";
import { kindOf, shareOn } from "./patch_runs.js";
import { framePatch, paintImage, tokenAt, whenRead } from "./patches.js";
import { levelOf } from "./scales.js";
import { state } from "./state.js";
import { h } from "./tree.js";
import { ABSENT } from "./values.js";

/** @import { Mark, ShownImage } from "./types.js" */
/** @import { TokenLens } from "./lens.js" */
/** @import { ThumbAbout } from "./head_grid.js" */

const IMAGES_GAP = 0.04; // between two images of a head, of their height

/** What stands in the grid. @type {{ lens: TokenLens | null, listens: boolean }} */
const over = { lens: null, listens: false };

/** Draws the heads of a lens over the images of its tokens, and paints them again as their lines arrive. @param {TokenLens} lens */
export function drawOverImages(lens) {
  const images = lens.tokens.images ?? [];
  if (over.lens !== lens) for (const image of images) whenRead(image, () => paintAllOver(lens));
  over.lens = lens;
  if (!over.listens) listenToPatches();
  over.listens = true;
  const isRun = sortMetric() !== "" || lens.heads.some((number, place) => number < (lens.heads[place - 1] ?? 0)) || lens.heads.length < page.heads.length;
  drawGrid(`images ${lens.heads.join()} ${lens.lines.size}`, lens.heads, isRun, {
    ratioOf: () => widthsOfImages(images).reduce((sum, width) => sum + width + IMAGES_GAP, -IMAGES_GAP),
    cellsAcross: () => 1,
    aboutThumb: (number, named) => aboutOver(lens, number, named),
    open: openHead,
    toggle: toggleChosen,
    paint: (numbers) => paintAllOver(lens, numbers),
    fit: () => true,
  });
}

/** The widths of images of one height, of that height. @param {ShownImage[]} images */
function widthsOfImages(images) {
  return images.map(({ width, height }) => width / height);
}

/** @param {TokenLens} lens @param {number} number @param {boolean} named @returns {ThumbAbout} */
function aboutOver(lens, number, named) {
  const line = lens.lines.get(number);
  const share = line ? shareText(lens, line) : "";
  const label = [headTitle(number), share].filter(Boolean).join(", ");
  return { title: label, label, names: [named && h("b", {}, page.heads[number].name), share && h("span", {}, share)].filter(Boolean) };
}

/** The share of a query's row on the images; "" if the line is no such row. @param {TokenLens} lens @param {Float32Array} line */
function shareText({ axis, tokens: { images = [] } }, line) {
  if (axis === "key" || state.side === "change" || state.of !== "weight" || page.block > 1) return "";
  const share = images.reduce((sum, { tokens }) => sum + shareOn(line, tokens), 0);
  return `${Math.round(100 * share)}% on ${kindOf(images[0])}${images.length > 1 ? "s" : ""}`;
}

/** @param {TokenLens} lens @param {number[]} numbers */
function paintAllOver(lens, numbers = lens.heads) {
  if (over.lens !== lens || state.list !== "lens" || state.head !== null || state.together) return;
  for (const number of numbers) paintOver(lens, canvasOf(number), lens.heads.indexOf(number));
}

/** @param {TokenLens} lens @param {HTMLCanvasElement} canvas @param {number} row of the lens */
function paintOver(lens, canvas, row) {
  const { scale, tokens: { images = [] } } = lens;
  const line = lens.tokenLine(row);
  const widths = widthsOfImages(images);
  const whole = widths.reduce((sum, width) => sum + width + IMAGES_GAP, -IMAGES_GAP);
  const height = Math.max(1, Math.round(((canvas.clientWidth || 1) * (window.devicePixelRatio || 1)) / whole));
  [canvas.width, canvas.height] = [Math.round(whole * height), height];
  let left = 0;
  images.forEach((image, place) => {
    const part = newCanvas(Math.round(widths[place] * height), height);
    const colorOf = (/** @type {number} */ token) => {
      const value = line ? line[token] : ABSENT;
      return value === ABSENT || Number.isNaN(value) ? "" : cssOf(levelOf(value, scale, lens.seen(row, token)), scale);
    };
    paintImage(part, image, colorOf, groundColor(scale));
    const patch = lens.token === lens.tokens ? image.tokens.indexOf(lens.place) : -1;
    if (patch >= 0) framePatch(part, image, patch);
    contextOf(canvas).drawImage(part, left, 0);
    left += part.width + IMAGES_GAP * height;
  });
}

/** Points at the patch under the pointer, in its head. */
function listenToPatches() {
  one("overview").addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch" && over.lens && state.list === "lens" && state.head === null && !state.together) pointTo(markUnder(over.lens, event));
  });
  one("overview").addEventListener("pointerleave", () => state.list === "lens" && state.head === null && pointTo(null));
}

/** @param {TokenLens} lens @param {MouseEvent} event @returns {Mark | null} */
function markUnder(lens, event) {
  const { target, offsetX, offsetY } = event;
  const [head, { images = [] }] = [headAt(event), lens.tokens];
  if (head === null || !(target instanceof HTMLCanvasElement)) return null;
  let left = 0;
  for (const [place, width] of widthsOfImages(images).entries()) {
    const clientWidth = width * target.clientHeight;
    const token = offsetX >= left && offsetX < left + clientWidth ? tokenAt(images[place], { target: { clientWidth }, offsetX: offsetX - left, offsetY }) : null;
    if (token !== null) return { ...(lens.axis === "query" ? { query: lens.place < 0 ? null : lens.place, key: token } : { query: token, key: lens.place }), head };
    left += clientWidth + IMAGES_GAP * target.clientHeight;
  }
  return null;
}
