/** All heads as thumbnails: layers down, heads across, or in the order of a metric; each opens its head. */

import { openHead } from "./actions.js";
import { contextOf, imageOf, imageOfCodes, newCanvas, theme } from "./colors.js";
import { comparing, headTitle, page, shapeOf, textOf } from "./data.js";
import { make, one, say } from "./elements.js";
import { quoted } from "./formatting.js";
import { canvasOf, drawGrid, listenToGrid, newThumb } from "./head_grid.js";
import { sharedScale, thumbnailScale } from "./head_scales.js";
import { listedHeads, sortMetric } from "./listing.js";
import { effectOf, metricText, numbersOf, patternOf, shortNoteOf } from "./metrics.js";
import { peakOf } from "./moved.js";
import { weightText } from "./quantities.js";
import { faded } from "./scales.js";
import { cellAt } from "./seconds.js";
import { pooledCounts, seenBy } from "./seen.js";
import { drawSmallOverview, isOneCanvas } from "./small_overview.js";
import { set, sideNumber, state } from "./state.js";
import { codedThumbnail, thumbnailValues } from "./thumbnails.js";

/** @import { Scale } from "./types.js" */

export const EFFECT_FRAME = 3; // pixels of the colour of what is lost without a head
const MIN_FRAME_OPACITY = 0.15; // of a loss that is not zero, so that its sign is seen

/** Painted thumbnails by head: another order of the heads moves them, and other colours empty this. */
const painted = { look: "", canvases: /** @type {Map<number, HTMLCanvasElement>} */ (new Map()) };

/** Draws the thumbnails where they belong: large, or beside what is open. @param {boolean} open */
export function drawOverview(open) {
  const overview = one("overview");
  const asCanvas = open && isOneCanvas();
  overview.hidden = page.heads.length === 1 || asCanvas || (!open && state.list !== "maps");
  const home = open && !asCanvas ? one("side") : one("main");
  if (overview.parentElement !== home) home.prepend(overview);
  const order = listedHeads();
  const look = [state.of, state.side, state.pool, state.limits, state.steps, state.interval, theme().paper].join(" ");
  if (look !== painted.look) Object.assign(painted, { look, canvases: new Map() });
  const name = [order.join(), sortMetric(), look].join(" ");
  if (isOneCanvas()) drawSmallOverview(open, name, order, paintedHead());
  if (overview.hidden) return;
  const run = sortMetric() !== "" || order.length < page.heads.length;
  drawGrid(name, order, run, { thumbOf: buildThumb, paint: paintThumbnails });
}

/** Listens to keys that walk among heads. */
export function listenToOverview() {
  listenToGrid(toggleChosen);
}

/** @param {number} number @param {boolean} named */
function buildThumb(number, named) {
  const head = page.heads[number];
  const [rows, columns] = shapeOf(number);
  const metric = sortMetric();
  const effect = effectOf(number);
  const lost = effect ? `${effect.name} ${effect.text}` : "";
  const measured = metric && metric !== effect?.name ? metricText(metric, numbersOf(number)[metric]) : "";
  const said = measured && `${metric} ${measured}`;
  const title = [headTitle(number), patternOf(number), said, lost].filter(Boolean).join(" · ");
  const label = [headTitle(number) + peakSaid(number), said, patternOf(number), lost].filter(Boolean).join(", ");
  const [across, down] = shownSpans(number);
  const cells = /** @type {[number, number]} */ ([down[1] - down[0], across[1] - across[0]]);
  const [high, wide] = head.thumbnail;
  const thumb = newThumb(number, cells, (columns * cells[1] * high) / (rows * cells[0] * wide), title, label, painted.canvases.get(number));
  const color = effectColor(number);
  if (color) canvasOf(thumb).style.boxShadow = `0 0 0 ${EFFECT_FRAME}px ${color}`;
  thumb.addEventListener("click", (event) => (event.shiftKey || event.ctrlKey || event.metaKey ? toggleChosen(number) : openHead(number)));
  const [does, value] = measured ? ["", measured] : effect ? ["", ""] : wordsAndNumber(shortNoteOf(number)); // no room for both
  const words = [
    named ? make("b", {}, head.name) : "",
    effect ? make("span", { className: effect.part < 0 ? "less" : "more" }, effect.text) : "",
    does ? make("span", { className: "does" }, does) : "",
    value ? make("span", {}, value) : "",
  ].filter(Boolean);
  if (words.length) thumb.append(make("span", { className: "names" }, ...words.flatMap((word) => [word, " "])));
  return thumb;
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

/** Returns the columns and the rows of a head's thumbnail that are shown: those within the kept interval of a sound. @param {number} number @returns {[number, number][]} */
function shownSpans(number) {
  const { interval } = state;
  const { thumbnail } = page.heads[number];
  return /** @type {const} */ (["key", "query"]).map((axis) => {
    const text = textOf(number, axis, sideNumber());
    const cells = thumbnail[axis === "key" ? 1 : 0];
    if (!interval || !text.seconds) return [0, cells];
    const part = cells / text.labels.length;
    return [Math.floor(cellAt(text, interval[0]) * part), Math.ceil((cellAt(text, interval[1]) + 1) * part)];
  });
}

/** @param {HTMLElement[]} some */
function paintThumbnails(some) {
  const shared = state.limits === "head" ? null : sharedScale();
  for (const thumb of some) {
    const [number, canvas] = [Number(thumb.dataset.number), canvasOf(thumb)];
    if (painted.canvases.get(number) !== canvas) paintHead(number, canvas, shared);
    painted.canvases.set(number, canvas);
  }
}

/** Paints the thumbnail of a head on a canvas of its cells. @param {number} number @param {HTMLCanvasElement} canvas @param {Scale | null} shared */
function paintHead(number, canvas, shared) {
  const scale = shared ?? thumbnailScale(number);
  const [rows, columns] = page.heads[number].thumbnail;
  const counts = pooledCounts(seenBy(number, sideNumber()), rows);
  const coded = codedThumbnail(number);
  const seen = (/** @type {number} */ row) => counts[row];
  const image = coded ? imageOfCodes(coded, rows, columns, scale, seen) : imageOf(thumbnailValues(number), rows, columns, scale, seen);
  const [[left], [top]] = shownSpans(number);
  contextOf(canvas).putImageData(image, -left, -top); // what is outside of the canvas is cut
}

/** Returns a function that paints a head; heads of one size are painted on one canvas, one after the other. @returns {(number: number) => HTMLCanvasElement} */
function paintedHead() {
  const shared = state.limits === "head" ? null : sharedScale();
  let canvas = newCanvas(1, 1);
  return (number) => {
    const [columns, rows] = shownSpans(number).map(([first, end]) => end - first);
    if (canvas.width !== columns || canvas.height !== rows) canvas = newCanvas(columns, rows);
    paintHead(number, canvas, shared);
    return canvas;
  };
}
