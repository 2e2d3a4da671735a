/** All heads as thumbnails: layers down, heads across, or in the order of a metric; each opens its head. Many beside what is open are one canvas. A thumbnail that is pointed at shades the text and says its numbers; a word lights its row in every thumbnail. */

import { choose, openHead, step } from "./actions.js";
import { drawHint } from "./bar.js";
import { isOfMaps } from "./choices.js";
import { contextOf, imageOf, newCanvas, theme } from "./colors.js";
import { effect } from "./core.js";
import { comparing, haveSameTexts, headTitle, page, textOf } from "./data.js";
import { one, say } from "./elements.js";
import { textWidth } from "./figure.js";
import { quoted } from "./formatting.js";
import { canvasOf, drawGrid, headAt } from "./head_grid.js";
import { listedHeads, sortMetric } from "./listing.js";
import { effectOf, METRIC_NAMES, metricText, numbersOf, patternOf, shortNoteOf } from "./metrics.js";
import { loadHead } from "./numbers.js";
import { weightText } from "./quantities.js";
import { faded } from "./scales.js";
import { peakOf, sharedScale, shownHead, thumbnailScale } from "./shown.js";
import { hidesSpecial, scene, set, state } from "./state.js";
import { cellsAcross, drawnSizes, drawnThumbnail, fitThumbnails, meanLine, ratioOf, tokenPart } from "./thumbnails.js";
import { whyNot } from "./together.js";
import { elementOf, h, patch } from "./tree.js";
import { strongestOf } from "./values.js";

/** @import { Axis, Grid, Scale } from "./types.js" */
/** @import { Box, ThumbAbout } from "./head_grid.js" */

export const EFFECT_FRAME = 3; // pixels of the colour of what is lost without a head
const MIN_FRAME_OPACITY = 0.15; // of a loss that is not zero, so that its sign is seen
const MANY_HEADS = 200;
const HEAD_GAP = 1; // pixels between heads
const MAX_SIDE = 24; // pixels of a head
const MAX_NAMED = 3; // tokens that a word looks at most

/** The heads whose thumbnails are painted: another order moves them, and other colours and sizes empty this. */
const painted = { look: "", sizes: "", numbers: /** @type {Set<number>} */ (new Set()), shared: /** @type {Scale | null} */ (null) };

/** True if all heads stand over the images, instead of beside the rows of one token. */
export function isOverImages() {
  return state.head === null && !state.together && state.list === "lens" && Boolean(textOf(listedHeads()[0] ?? 0, "key").images ?? textOf(listedHeads()[0] ?? 0, "query").images);
}

/** Draws the thumbnails where they belong: large, or beside what is open; heads over images are drawn with their lines. @param {boolean} open */
export function drawOverview(open) {
  drawLeftOut();
  if (isOverImages()) {
    small.canvas.hidden = true;
    one("maps-head").after(one("overview"));
    one("overview").hidden = false;
    return void Object.assign(painted, { look: "", numbers: new Set() });
  }
  const overview = one("overview");
  const asCanvas = open && isOneCanvas();
  overview.hidden = page.heads.length === 1 || asCanvas || (!open && state.list !== "maps");
  const isBeside = open && !asCanvas;
  if (isBeside && overview.parentElement !== one("side")) one("side").prepend(overview);
  if (!isBeside && overview.parentElement !== one("main")) one("maps-head").after(overview);
  const order = listedHeads();
  const look = [state.by, state.of, hidesSpecial(), state.side, state.pool, state.limits, state.steps, state.interval, theme().paper].join(" ");
  if (look !== painted.look) Object.assign(painted, { look, numbers: new Set(), shared: null });
  const name = [order.join(), sortMetric(), look].join(" ");
  if (isOneCanvas()) drawSmallOverview(open, name, order);
  if (overview.hidden) return;
  const run = sortMetric() !== "" || order.length < page.heads.length;
  drawGrid(name, order, run, PARTS);
}

/** Says over the maps which keys they leave out, beside the switch that brings these back. */
function drawLeftOut() {
  const hides = hidesSpecial();
  one("over-maps").hidden = !page.leftOut || !isOfMaps(state);
  const button = h("button", { type: "button", class: "plain", title: "t", onclick: () => choose("special", hides ? "shown" : "hidden") }, hides ? "Show all" : "Leave out");
  patch(one("over-maps"), [h("span", {}, hides ? page.leftOut : page.leftOut?.replace(" left out:", " shown:")), " ", button]);
}

const PARTS = { ratioOf, cellsAcross, aboutThumb, hasNote, open: openHead, toggle: toggleChosen, paint: paintThumbnails, paintOn: paintHeadOn, fit: fitPainted };

/** Lets thumbnails be painted for so many pixels; true if they have to be again. @param {number} pixels */
function fitPainted(pixels) {
  fitThumbnails(pixels);
  const sizes = drawnSizes();
  if (sizes === painted.sizes) return false;
  Object.assign(painted, { sizes, numbers: new Set(), shared: null });
  return true;
}

/** @param {number} number @param {boolean} named @param {number} first of all that are listed @param {(text: string) => boolean} fits @returns {ThumbAbout} */
function aboutThumb(number, named, first, fits) {
  const metric = sortMetric();
  const effect = effectOf(number);
  const lost = effect ? `${effect.name} ${effect.text}` : "";
  const measured = metric && metric !== effect?.name ? metricText(metric, numbersOf(number)[metric]) : "";
  const said = measured && `${metric} ${measured}`;
  const color = effectColor(number);
  const name = named ? page.heads[number].name : "";
  const note = measured || effect ? { words: "", number: measured } : patternNote(number, named, (text) => fits(`${name} ${text}`.trim())); // no room for both
  return {
    title: [headTitle(number), patternOf(number), said, lost].filter(Boolean).join(" · "),
    label: [headTitle(number) + peakSaid(number), said, patternOf(number), lost].filter(Boolean).join(", "),
    isOther: !haveSameTexts(first, number),
    frame: color && `0 0 0 ${EFFECT_FRAME}px ${color}`,
    names: [
      name && h("b", {}, name),
      effect && h("span", { class: effect.part < 0 ? "less" : "more" }, effect.text),
      note.words && h("span", { class: "does" }, note.words),
      note.number && h("span", {}, note.number),
    ].filter(Boolean),
  };
}

/** The note on what a head does, beside a sink that is said over the maps. @param {number} number @param {boolean} named @param {(text: string) => boolean} fits */
function patternNote(number, named, fits) {
  const { labels, leftOut = [] } = textOf(number, "key");
  const isSaid = (/** @type {string} */ does, /** @type {string} */ token) => does === "sink" && leftOut.some((place) => labels[place] === token);
  return shortNoteOf(number, fits, !named && hidesSpecial() ? isSaid : undefined);
}

/** True if a thumbnail has something under it, in a row or column that names its head. @param {number} number */
function hasNote(number) {
  return Boolean(sortMetric() || effectOf(number) || patternNote(number, false, () => true).words);
}

/** The colour of what is lost without a head, as strong as that is; "" where nothing is. @param {number} number */
export function effectColor(number) {
  const part = effectOf(number)?.part;
  return part ? faded(theme()[part < 0 ? "less" : "more"], Math.max(MIN_FRAME_OPACITY, Math.min(1, Math.abs(part)))) : "";
}

/** Chooses a head to be shown with others, or no longer; beside an open one, both stand side by side at once. @param {number} number @param {boolean} shows them at once, too */
export function toggleChosen(number, shows = false) {
  const { head, together } = state;
  const before = head === null ? state.chosen : [head];
  const chosen = before.includes(number) ? before.filter((other) => other !== number) : [...before, number];
  const isOpen = shows || head !== null || together !== null;
  const how = together && !whyNot(chosen, together) ? together : "side";
  set(isOpen && chosen.length > 1 ? { chosen, head: null, together: how } : { chosen, together: null }, { step: isOpen });
  say(`${chosen.length} heads chosen`);
}

/** Returns the words of a thumbnail's label on the largest weight or change of its head. @param {number} number */
function peakSaid(number) {
  if (page.quantity === "implicit") return `, of a size up to ${weightText(page.heads[number].reach)}`;
  if (comparing) return `, changes by at most ${weightText(page.heads[number].reach)}`;
  const peak = peakOf(number);
  if (!peak) return ", nothing visible";
  const [query, key] = [quoted(textOf(number, "query"), peak[0]), quoted(textOf(number, "key"), peak[1])];
  return `, largest ${state.of} ${weightText(peak[2])} from ${query} to ${key}`;
}

/** Paints canvases of thumbnails, a pixel for each cell that is drawn. @param {number[]} numbers */
function paintThumbnails(numbers) {
  for (const number of numbers) {
    if (painted.numbers.has(number)) continue;
    painted.numbers.add(number);
    const { image, left, top, width, height } = paintedImage(number);
    const canvas = canvasOf(number);
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    contextOf(canvas).putImageData(image, -left, -top); // what is outside of the canvas is cut
  }
}

/** The image of a thumbnail, and the part of it that is shown. @param {number} number */
function paintedImage(number) {
  const scale = state.limits === "head" ? thumbnailScale(number) : (painted.shared ??= sharedScale());
  const { rows, columns, top, bottom, left, right, seen, values } = drawnThumbnail(number);
  const image = imageOf(values, rows, columns, scale, (row) => seen[row]);
  return { image, left, top, width: right - left, height: bottom - top };
}

const scratch = newCanvas(1, 1); // between an image and pixels of another size

/** Paints a head into a box of a canvas of many. @param {CanvasRenderingContext2D} context @param {number} number @param {Box} box */
function paintHeadOn(context, number, { x, y, width, height }) {
  const { image, left, top, width: across, height: down } = paintedImage(number);
  if (scratch.width !== across || scratch.height !== down) [scratch.width, scratch.height] = [across, down];
  contextOf(scratch).putImageData(image, -left, -top);
  context.drawImage(scratch, x, y, width, height);
}

/** @typedef {{ number: number, x: number, y: number }} PlacedHead */

const small = {
  /** @type {PlacedHead[]} */
  placed: [],
  /** @type {HTMLCanvasElement | null} heads alone, without the frame of the open one */
  painted: null,
  canvas: /** @type {HTMLCanvasElement} */ (elementOf(h("canvas", { class: "small-overview", tabindex: 0 }))),
  side: 0,
  name: "",
};

/** True if the heads beside what is open are one canvas. */
function isOneCanvas() {
  return page.heads.length > MANY_HEADS;
}

/** Draws heads beside what is open, or nothing. @param {boolean} open @param {string} name of everything that they show @param {number[]} order */
function drawSmallOverview(open, name, order) {
  if (!small.canvas.onclick) listen();
  small.canvas.hidden = !open;
  if (!open) return;
  if (small.canvas.parentElement !== one("side")) one("side").prepend(small.canvas);
  const width = one("side").clientWidth || 240;
  if (small.name !== `${name} ${width}`) paintHeads(order, width);
  small.name = `${name} ${width}`;
  frameHeads();
}

/** @param {number[]} order @param {number} width */
function paintHeads(order, width) {
  const rows = rowsOf(order);
  const longest = Math.max(1, ...rows.map((row) => row.length));
  small.side = Math.max(2, Math.min(MAX_SIDE, Math.floor(width / longest) - HEAD_GAP));
  const density = window.devicePixelRatio || 1;
  const pitch = small.side + HEAD_GAP;
  const canvas = newCanvas(Math.ceil(longest * pitch * density), Math.ceil(rows.length * pitch * density));
  const context = contextOf(canvas);
  context.scale(density, density);
  small.placed = rows.flatMap((row, place) => row.map((number, column) => ({ number, x: column * pitch, y: place * pitch })));
  fitThumbnails(small.side * density, true);
  context.imageSmoothingEnabled = false; // a head has no more cells than pixels
  painted.shared = null; // a scale of what is drawn in so few pixels
  for (const { number, x, y } of small.placed) paintHeadOn(context, number, { x, y, width: small.side, height: small.side });
  painted.shared = null;
  small.painted = canvas;
  [small.canvas.width, small.canvas.height] = [canvas.width, canvas.height];
  [small.canvas.style.width, small.canvas.style.height] = [`${longest * pitch}px`, `${rows.length * pitch}px`];
}

/** Heads in rows: of one layer each, or filled one after the other where they are in another order. @param {number[]} order */
function rowsOf(order) {
  /** @type {number[][]} */
  const rows = [];
  const across = Math.ceil(Math.sqrt(order.length));
  const recorded = order.every((number, place) => !place || number > order[place - 1]);
  order.forEach((number, place) => {
    const begins = recorded ? page.heads[number].layer !== page.heads[order[place - 1]]?.layer : place % across === 0;
    if (begins || !rows.length) rows.push([]);
    rows[rows.length - 1].push(number);
  });
  return rows;
}

/** Frames the open head and the chosen ones. */
function frameHeads() {
  const context = contextOf(small.canvas);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, small.canvas.width, small.canvas.height);
  if (small.painted) context.drawImage(small.painted, 0, 0);
  const density = window.devicePixelRatio || 1;
  context.scale(density, density);
  for (const { number, x, y } of small.placed) {
    context.strokeStyle = number === state.head ? theme().ink : theme().accent;
    context.lineWidth = number === state.head ? 3 : 2;
    if (number === state.head || state.chosen.includes(number)) context.strokeRect(x, y, small.side, small.side);
  }
  const named = state.head === null ? "" : `, ${headTitle(state.head)} is open`;
  small.canvas.setAttribute("role", "application");
  small.canvas.setAttribute("aria-label", `${small.placed.length} heads, layers down${named}. Left and right open the previous and the next.`);
}

function listen() {
  small.canvas.onclick = (event) => {
    const head = headUnder(event);
    if (head !== null) (event.shiftKey || event.ctrlKey || event.metaKey ? toggleChosen : openHead)(head);
  };
  small.canvas.onpointermove = (event) => {
    const head = headUnder(event);
    small.canvas.title = head === null ? "" : headTitle(head);
  };
  small.canvas.onkeydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    step(by);
  };
}

/** @param {MouseEvent} event */
function headUnder({ offsetX, offsetY }) {
  const pitch = small.side + HEAD_GAP;
  const found = small.placed.find(({ x, y }) => offsetX >= x && offsetX < x + pitch && offsetY >= y && offsetY < y + pitch);
  return found ? found.number : null;
}

/** @type {{ head: number | null, isLit: boolean }} */
const pointed = { head: null, isLit: false };

/** Listens to the pointer and to the focus among all heads, and to marks of words. */
export function listenToPointed() {
  const overview = one("overview");
  overview.addEventListener("pointerover", (event) => event.pointerType !== "touch" && pointAtHead(headAt(event)));
  overview.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) pointAtHead(headAt(event));
  });
  for (const name of ["pointerleave", "focusout"]) overview.addEventListener(name, () => pointAtHead(null));
  effect(() => lightRows());
}

/** Lets a head speak, or none. @param {number | null} number */
async function pointAtHead(number) {
  const head = isOfMaps(state) ? number : null;
  if (head === pointed.head) return;
  pointed.head = head;
  speak(head === null ? "" : spoken(head, one("keys-hint")));
  if (head === null) return shadeBy(null);
  if (page.heads[head].factors.length) return; // of a long text the average of all rows is not known
  const sides = await loadHead(head);
  if (pointed.head === head) shadeBy(shownHead(head, sides));
}

/** Lights the row of the word that is pointed at in every thumbnail, or its column, and shades what it looks at on average. */
function lightRows() {
  const mark = isOfMaps(state) ? state.mark : null;
  const overview = one("overview");
  overview.classList.toggle("lit", mark !== null);
  if (!mark && !pointed.isLit) return;
  pointed.isLit = mark !== null;
  if (!mark) {
    speak("");
    return shadeBy(null);
  }
  /** @type {[Axis, number]} */
  const [axis, place] = mark.query !== null ? ["query", mark.query] : ["key", mark.key ?? 0];
  const heads = listedHeads();
  const alike = heads.filter((number) => haveSameTexts(heads[0], number));
  const [from, to] = tokenPart(heads[0], axis, place);
  overview.classList.toggle("columns", axis === "key");
  overview.style.setProperty("--from", `${100 * from}%`);
  overview.style.setProperty("--to", `${100 * to}%`);

  const line = meanLine(alike, axis, place);
  const labels = textOf(heads[0], axis === "query" ? "key" : "query").labels;
  const most = strongestOf(line, MAX_NAMED).map((other) => `“${labels[other]}” ${weightText(line[other])}`);
  const does = axis === "query" ? "looks at" : "is seen by";
  speak(`“${textOf(heads[0], axis).labels[place]}” ${does} ${most.join(", ")}, mean of ${alike.length} heads · click: a row for each head`);
  const shades = () => (axis === "query" ? { query: null, key: line, said: "" } : { query: line, key: null, said: "" });
  shadeBy(/** @type {Grid} */ (/** @type {unknown} */ ({ shades, scale: { change: state.side === "change" } })));
}

/** Says something in the line under the text, or again what a reader can do. @param {string} words */
function speak(words) {
  const hint = one("keys-hint");
  hint.style.minHeight = words ? `${hint.offsetHeight}px` : ""; // what is pointed at stays where it is
  hint.classList.toggle("speaking", words !== "");
  if (words) hint.textContent = words;
  else drawHint();
}

/** Shades the text by a head or a word, or as before. @param {Grid | null} shown */
function shadeBy(shown) {
  scene.pointed = shown;
  scene.strip?.drawOver();
}

/** Returns a head's name, what it does, and as many of its numbers as the line has room for. @param {number} number @param {HTMLElement} line */
function spoken(number, line) {
  const names = METRIC_NAMES.filter((name) => !Number.isNaN(numbersOf(number)[name]));
  const numbers = names.map((name) => `${name} ${metricText(name, numbersOf(number)[name])}`);
  const size = parseFloat(getComputedStyle(line).fontSize);
  for (let count = numbers.length; count >= 0; count--) {
    const left = numbers.length - count;
    const listed = [...numbers.slice(0, count), ...(left ? [`${left} more in Numbers`] : [])].join(", ");
    const words = [headTitle(number), patternOf(number), listed].filter(Boolean).join(" · ");
    if (!count || textWidth(words, size) <= line.clientWidth) return words;
  }
  return "";
}
