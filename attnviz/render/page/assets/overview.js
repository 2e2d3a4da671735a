/** All heads as thumbnails: layers down, heads across, or in the order of a metric; each opens its head. */

import { choose, openHead } from "./actions.js";
import { contextOf, imageOf, imageOfCodes, newCanvas, theme } from "./colors.js";
import { comparing, haveSameTexts, headTitle, page, textOf } from "./data.js";
import { h, patch } from "./tree.js";
import { cellsAcross, drawnSizes, drawnThumbnail, fitThumbnails, ratioOf } from "./thumbnails.js";
import { one, say } from "./elements.js";
import { quoted } from "./formatting.js";
import { canvasOf, drawGrid, fitGrid } from "./head_grid.js";
import { sharedScale, thumbnailScale } from "./head_scales.js";
import { listedHeads, sortMetric } from "./listing.js";
import { effectOf, metricText, numbersOf, patternOf, shortNoteOf } from "./metrics.js";
import { peakOf } from "./moved.js";
import { weightText } from "./quantities.js";
import { faded } from "./scales.js";
import { drawSmallOverview, isOneCanvas } from "./small_overview.js";
import { hidesSpecial, set, state } from "./state.js";

/** @import { ThumbAbout } from "./head_grid.js" */
/** @import { Scale } from "./types.js" */

export const EFFECT_FRAME = 3; // pixels of the colour of what is lost without a head
const MIN_FRAME_OPACITY = 0.15; // of a loss that is not zero, so that its sign is seen

/** The heads whose thumbnails are painted: another order moves them, and other colours and sizes empty this. */
const painted = { look: "", sizes: "", numbers: /** @type {Set<number>} */ (new Set()) };

/** Draws the thumbnails where they belong: large, or beside what is open. @param {boolean} open */
export function drawOverview(open) {
  const overview = one("overview");
  const asCanvas = open && isOneCanvas();
  overview.hidden = page.heads.length === 1 || asCanvas || (!open && state.list !== "maps");
  const isBeside = open && !asCanvas;
  if (isBeside && overview.parentElement !== one("side")) one("side").prepend(overview);
  if (!isBeside && overview.parentElement !== one("main")) one("maps-head").after(overview);
  const order = listedHeads();
  const look = [state.of, hidesSpecial(), state.side, state.pool, state.limits, state.steps, state.interval, theme().paper].join(" ");
  if (look !== painted.look) Object.assign(painted, { look, numbers: new Set() });
  const name = [order.join(), sortMetric(), look].join(" ");
  if (isOneCanvas()) drawSmallOverview(open, name, order, paintedHead);
  drawLeftOut(!open && state.list === "maps" && Boolean(page.leftOut));
  if (overview.hidden) return;
  const run = sortMetric() !== "" || order.length < page.heads.length;
  drawGrid(name, order, run, PARTS);
}

/** Says over the maps which keys they leave out, beside the switch that brings these back. @param {boolean} isShown */
function drawLeftOut(isShown) {
  one("over-maps").hidden = !isShown;
  if (!isShown) return;
  const hides = hidesSpecial();
  const button = h("button", { type: "button", class: "plain", title: "t", onclick: () => choose("special", hides ? "shown" : "hidden") }, hides ? "Show them" : "Leave them out");
  patch(one("over-maps"), [h("span", {}, hides ? page.leftOut : page.leftOut?.replace(" left out:", " shown:")), " ", button]);
}

const PARTS = { ratioOf, cellsAcross, aboutThumb, open: openHead, toggle: toggleChosen, paint: paintThumbnails, fit: fitPainted };

/** Takes the room that there is now. */
export function fitOverview() {
  if (!one("overview").hidden) fitGrid();
}

/** Lets thumbnails be painted for so many pixels; true if they have to be again. @param {number} pixels */
function fitPainted(pixels) {
  fitThumbnails(pixels);
  const sizes = drawnSizes();
  if (sizes === painted.sizes) return false;
  Object.assign(painted, { sizes, numbers: new Set() });
  return true;
}

/** @param {number} number @param {boolean} named @param {number} first of all that are listed @returns {ThumbAbout} */
function aboutThumb(number, named, first) {
  const metric = sortMetric();
  const effect = effectOf(number);
  const lost = effect ? `${effect.name} ${effect.text}` : "";
  const measured = metric && metric !== effect?.name ? metricText(metric, numbersOf(number)[metric]) : "";
  const said = measured && `${metric} ${measured}`;
  const color = effectColor(number);
  const [does, value] = measured ? ["", measured] : effect ? ["", ""] : wordsAndNumber(shortNoteOf(number)); // no room for both
  return {
    title: [headTitle(number), patternOf(number), said, lost].filter(Boolean).join(" · "),
    label: [headTitle(number) + peakSaid(number), said, patternOf(number), lost].filter(Boolean).join(", "),
    isOther: !haveSameTexts(first, number),
    frame: color && `0 0 0 ${EFFECT_FRAME}px ${color}`,
    names: [
      named && h("b", {}, page.heads[number].name),
      effect && h("span", { class: effect.part < 0 ? "less" : "more" }, effect.text),
      does && h("span", { class: "does" }, does),
      value && h("span", {}, value),
    ].filter(Boolean),
  };
}

/** Returns the words and the number of a note separately: only the words may be cut. @param {string} note */
function wordsAndNumber(note) {
  const [, words, number] = note.match(/^(.*) (\d[\d.]*)$/) ?? [null, note, ""];
  return [words, number];
}

/** The colour of what is lost without a head, as strong as that is; "" where nothing is. @param {number} number */
export function effectColor(number) {
  const part = effectOf(number)?.part;
  return part ? faded(theme()[part < 0 ? "less" : "more"], Math.max(MIN_FRAME_OPACITY, Math.min(1, Math.abs(part)))) : "";
}

/** Chooses a head to be shown with others, or no longer. @param {number} number */
function toggleChosen(number) {
  const { chosen } = state;
  set({ chosen: chosen.includes(number) ? chosen.filter((other) => other !== number) : [...chosen, number] });
  say(`${state.chosen.length} heads chosen`);
}

/** Returns the words of a thumbnail's label on the largest weight or change of its head. @param {number} number */
function peakSaid(number) {
  if (comparing) return `, changes by at most ${weightText(page.heads[number].reach)}`;
  const peak = peakOf(number);
  if (!peak) return ", nothing visible";
  const [query, key] = [quoted(textOf(number, "query"), peak[0]), quoted(textOf(number, "key"), peak[1])];
  return `, largest ${state.of} ${weightText(peak[2])} from ${query} to ${key}`;
}

/** @param {number[]} numbers */
function paintThumbnails(numbers) {
  const shared = state.limits === "head" ? null : sharedScale();
  for (const number of numbers) {
    if (!painted.numbers.has(number)) paintHead(number, canvasOf(number), shared);
    painted.numbers.add(number);
  }
}

/** Paints the thumbnail of a head on a canvas, a pixel for each cell that is drawn. @param {number} number @param {HTMLCanvasElement} canvas @param {Scale | null} shared */
function paintHead(number, canvas, shared) {
  const scale = shared ?? thumbnailScale(number);
  const { rows, columns, top, bottom, left, right, seen, coded, values } = drawnThumbnail(number);
  const seenIn = (/** @type {number} */ row) => seen[row];
  const image = coded ? imageOfCodes(coded, rows, columns, scale, seenIn) : imageOf(values, rows, columns, scale, seenIn);
  if (canvas.width !== right - left || canvas.height !== bottom - top) [canvas.width, canvas.height] = [right - left, bottom - top];
  contextOf(canvas).putImageData(image, -left, -top); // what is outside of the canvas is cut
}

/** Returns a function that paints a head, on one canvas after the other heads. @returns {(number: number) => HTMLCanvasElement} */
function paintedHead() {
  const shared = state.limits === "head" ? null : sharedScale();
  const canvas = newCanvas(1, 1);
  return (number) => {
    paintHead(number, canvas, shared);
    return canvas;
  };
}
