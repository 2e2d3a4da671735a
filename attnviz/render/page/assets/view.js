/** Draws the state: all heads, a head in one of its views, or several heads together. */

import { drawMarks, openHead, refreshInspector } from "./actions.js";
import { ArcsPicture } from "./arcs.js";
import { placeLook } from "./bar.js";
import { computed, effect, untracked } from "./core.js";
import { level, page, textOf } from "./data.js";
import { one, say, scrollingTable, whenIdle } from "./elements.js";
import { focusThumbnail, paintedCanvas } from "./head_grid.js";
import { headTable } from "./head_table.js";
import { drawLegend, hasPalette } from "./legend.js";
import { TokenLens } from "./lens.js";
import { LensPicture } from "./lens_picture.js";
import { listedHeads } from "./listing.js";
import { MatrixPicture, ZoomPicture } from "./matrix.js";
import { METRIC_NAMES } from "./metrics.js";
import { askMovedCodes, dropAll, forgetHeads, loadHead } from "./numbers.js";
import { drawOverImages } from "./over_images.js";
import { drawOverview, isOverImages } from "./overview.js";
import { cellAt } from "./places.js";
import { titleOfView } from "./quantities.js";
import { cellsOf, shownHead, showsScores, unitsNow } from "./shown.js";
import { glide, PictureStage } from "./stage.js";
import { followed, scene, set, sideNumber, state, writeAddress } from "./state.js";
import { askedToken, drawStrip, TextView } from "./strip.js";
import { TableView, tableFigure } from "./table.js";
import { isMovedRead, takeMovedCodes } from "./thumbnails.js";
import { combinedHeads, overlaid, SideBySide, whyNot } from "./together.js";
import { elementOf, h, patch } from "./tree.js";

/** @import { ListName, Mark, Picture, Quantity, Shown, State, View } from "./types.js" */

/** @type {{ id: number, head: number | null | undefined, list: ListName, of: Quantity, interval: State["interval"] }} */
const drawn = { id: 0, head: undefined, list: state.list, of: page.quantity, interval: state.interval }; // number of the latest drawing: one that takes long is let go of when another begins

/** @type {(keyof State)[]} what is shown by effects of its own */
const UNDRAWN = ["size", "noting", "note", "found", "mark", "pin", "pooled", "unknown"];
const NOTICED = 100; // milliseconds, after which a reader wonders whether something happens
const MAX_HELD = 5000; // milliseconds, after which a page that cannot be drawn counts as loaded
const DRAWN = /** @type {(keyof State)[]} */ (Object.keys(state)).filter((name) => !UNDRAWN.includes(name));

/** Another object after each change of what is drawn: not of marks, nor of the kept token unless a view is of it. */
const content = computed(() => {
  for (const name of DRAWN) state[name];
  if (state.head === null && !state.together) state.pin;
  return {};
});

/** Draws the state now and after each change: a mark alone is drawn over what is there. */
export function followState() {
  if (state.head !== null || state.together) holdLoad();
  /** @type {{ content: object | null, address: object | null, kept: Mark | null }} */
  let before = { content: null, address: null, kept: null };
  effect(() => {
    state.mark;
    const now = { content: content.value, address: followed.value, kept: state.pin };
    const { content: same, address, kept } = before;
    before = now;
    untracked(() => {
      if (now.content !== same || now.address !== address) return void draw(now.address === address ? null : now.address.zoom);
      drawMarks();
      if (now.kept && now.kept !== kept) scene.strip?.reveal(now.kept);
    });
  });
}

const load = { release: () => {}, timer: 0 };

/** Holds the load event until what is open is drawn: a browser without a reader prints at that event. */
export function holdLoad() {
  if (document.readyState === "complete" || document.querySelector("iframe")) return;
  const frame = document.createElement("iframe");
  frame.hidden = true;
  document.body.append(frame);
  frame.contentDocument?.open(); // a page is not loaded while a document in it is written
  load.release = () => frame.remove();
  setTimeout(load.release, MAX_HELD);
}

/** Says that something is being drawn, where that takes long enough to be noticed, or no longer. @param {boolean} isBusy */
function sayLoading(isBusy) {
  clearTimeout(load.timer);
  one("main").setAttribute("aria-busy", String(isBusy));
  if (isBusy) load.timer = setTimeout(() => (one("loading").hidden = false), NOTICED);
  else one("loading").hidden = true;
}

/** Draws everything; a zoom as the address writes it is taken at the end. @param {string | null} zoom */
export async function draw(zoom = null) {
  const id = ++drawn.id;
  sayLoading(true);
  dropAll("window");
  if (drawn.of !== state.of) await turnTo(state.of);
  if (id !== drawn.id) return;
  const mapBefore = scene.current?.stage?.cellsInWindow;
  const thumbBefore = thumbOf(state.head)?.getBoundingClientRect();
  scene.pointed = null;
  const whole = isOfWhy() ? page.why?.head : undefined; // whose text has all sources
  const first = state.head ?? (state.together ? state.chosen[0] : null) ?? whole ?? listedHeads()[0] ?? 0; // its text stands on top
  drawStrip(first); // before all else, since it measures: there is little to lay out yet
  drawFrame();
  if (state.together) await drawTogether(id);
  else if (state.head === null) drawList();
  else await drawHead(state.head, id);
  if (id !== drawn.id) return;
  scene.strip?.drawOver();
  drawLegend();
  set({ pooled: Boolean(scene.current?.stage?.picture.pooled) });
  refreshInspector();
  if (state.pin) for (const view of [scene.current, scene.strip]) view?.reveal(state.pin);
  if (zoom) takeZoom(zoom);
  const left = state.head === null ? drawn.head : null;
  const thumbAfter = thumbOf(left)?.getBoundingClientRect();
  const stage = state.view === "matrix" ? scene.current?.stage : null;
  if (drawn.head === null && state.head !== null && thumbBefore && stage) glide(paintedCanvas(state.head), thumbBefore, stage.cellsInWindow);
  if (typeof left === "number" && mapBefore && thumbAfter) glide(paintedCanvas(left), mapBefore, thumbAfter);
  focusAfter();
  sayLoading(false);
  load.release();
}

/** The thumbnail of a head among all; nothing where they are beside what is open, or hidden. @param {number | null | undefined} number */
function thumbOf(number) {
  const picture = one("overview").querySelector(`.thumb[data-number="${number}"] .picture`);
  return picture instanceof HTMLElement && picture.offsetWidth && one("main").contains(picture) ? picture : null;
}

/** Reads what weights are multiplied by where contributions are shown. @param {Quantity} of */
async function turnTo(of) {
  if (!isMovedRead()) takeMovedCodes(await askMovedCodes());
  drawn.of = of;
  forgetHeads();
}

/** Puts the focus where a reader expects it: on what was opened, or on the head that was left. */
function focusAfter() {
  const before = drawn.head;
  const leftLens = drawn.list === "lens" && state.list === "maps" && state.head === null && document.activeElement === document.body;
  drawn.head = state.head;
  drawn.list = state.list;
  if (leftLens) return focusThumbnail(listedHeads()[0] ?? 0);
  const typing = document.activeElement?.matches("input, select, textarea, [aria-pressed]");
  if (before === undefined || before === state.head || typing || page.heads.length === 1) return;
  if (state.head !== null && before === null) one("head-title").focus({ preventScroll: true });
  if (state.head === null && !state.together && before !== null && state.list === "maps") focusThumbnail(before);
}

/** Puts the focus on what the buttons are about: the open picture, or the first head. */
export function focusPicture() {
  const stage = scene.current?.stage;
  if (stage) stage.element.focus();
  else if (state.head === null && state.list === "maps") focusThumbnail(listedHeads()[0] ?? 0);
  else one("view").querySelector("button")?.focus();
}

/** Draws what stands around the numbers. */
function drawFrame() {
  const open = state.head !== null || state.together !== null || (state.list === "lens" && (state.pin !== null || !isOverImages()));
  const frame = document.querySelector(".page");
  frame?.classList.toggle("open", open);
  frame?.classList.toggle("turns", level.name === "turns");
  frame?.classList.toggle("of-why", isOfWhy());
  document.title = `${titleOfView() || "All heads"} · ${page.title}`;
  one("legend").hidden = !hasPalette();
  drawOverview(open);
  if (open) one("side").insertBefore(one("legend"), one("inspector"));
  else one("maps-head").append(one("legend"));
  placeLook();
}

/** @param {number} number @param {number} id */
async function drawHead(number, id) {
  const sides = await loadHead(number);
  if (id !== drawn.id) return;
  scene.shown = shownHead(number, sides);
  const parent = one("view");
  const before = drawn.interval === state.interval ? (scene.current?.stage ?? null) : null;
  parent.replaceChildren();
  scene.current = newView(parent, scene.shown, before);
  if (!scene.shown.values && !before) zoomToInterval(scene.current.stage);
  drawn.interval = state.interval;
  if (!scene.shown.values) warm(scene.shown);
}

/** Enlarges a map whose cells are computed, until the kept interval of its sound fills it. @param {View["stage"]} stage */
function zoomToInterval(stage) {
  const { interval } = state;
  const { keys, same } = stage?.picture.shown ?? {};
  if (!stage || !interval || !keys?.seconds) return;
  const [first, last] = interval.map((second) => cellAt(keys, second));
  stage.picture.factor = keys.labels.length / (last + 1 - first);
  stage.fit();
  const { left, top } = stage.picture.fixed;
  const { x, y } = stage.picture.placeOf({ query: same ? first : null, key: first });
  stage.element.scrollTo(x - left, same ? y - top : 0);
  stage.draw();
}

/** Computes a row and a column before they are pointed at: the first ones take several times as long. @param {Shown} shown */
function warm(shown) {
  whenIdle(() => {
    if (scene.shown !== shown) return;
    shown.line("query", shown.rows - 1);
    whenIdle(() => shown.line("key", 0));
  });
}

/** @param {HTMLElement} parent @param {Shown} shown @param {View["stage"] | null} before @returns {View} */
function newView(parent, shown, before) {
  if (state.view === "text") return new TextView(parent, shown.number, true);
  if (state.view === "table") return new TableView(parent, cellsOf([shown])[0]);
  return stageView(parent, newPicture(shown), state.view, before);
}

/** @param {HTMLElement} parent @param {Picture} picture @param {string} name @param {View["stage"] | null} before @returns {View} */
function stageView(parent, picture, name, before) {
  const { shown } = picture;
  const label = `${shown.title}: ${name}. Arrows move, slash finds a token.`;
  const stage = new PictureStage(parent, picture, label, before?.keptFor(shown) ? before : null);
  stage.moved = () => {
    clearTimeout(writing.timer); // the address is written when the picture stands still
    writing.timer = setTimeout(() => writeAddress(), 300);
  };
  if (picture.note) parent.append(elementOf(h("p", { class: "note" }, picture.note)));
  return { stage, drawOver: () => stage.drawOver(), reveal: (mark) => stage.reveal(mark), fit: () => stage.fit() };
}

const writing = { timer: 0 };

/** @param {Shown} shown @returns {Picture} */
function newPicture(shown) {
  if (shown.all) return new ArcsPicture(shown);
  const redraw = () => redrawStages(picture);
  const [cells] = shown.source || shown.scale.scores ? [shown] : cellsOf([shown]); // several were made before, over one scale
  if (state.view === "arcs" && !state.together) return new ArcsPicture(cells);
  /** @type {Picture} */
  const picture = cells.values ? new MatrixPicture(cells, redraw) : new ZoomPicture(cells, redraw);
  if (showsScores() && !(cells.source ?? cells).scale.scores) picture.note = "This page keeps no scores of this head: cells are weights.";
  return picture;
}

/** Draws a picture again after what it shows changed, and those beside it, whose scale it shares. @param {Picture} picture */
function redrawStages(picture) {
  const stages = scene.current?.stages ?? (scene.current?.stage ? [scene.current.stage] : []);
  if (!stages.some((stage) => stage.picture === picture)) return; // not shown yet, or no longer
  for (const stage of stages) stage.request();
  drawLegend();
  set({ pooled: Boolean(scene.current?.stage?.picture.pooled) });
}

/** True if the answer to why the model predicts a token is shown. */
function isOfWhy() {
  return state.head === null && !state.together && state.list === "why";
}

/** Draws all heads: their thumbnails, their numbers, or one token of each. */
function drawList() {
  const parent = one("view");
  const { shown } = scene;
  parent.replaceChildren();
  const stageBefore = scene.current?.stage ?? null;
  scene.shown = scene.current = null;
  if (isOfWhy()) return void (scene.current = scene.drawWhy?.(parent) ?? null);
  if (state.list === "numbers") {
    const heads = listedHeads();
    const caption = `What ${heads.length} of ${page.heads.length} heads do: a number opens its head, a metric’s name sorts by it`;
    const none = "These heads have no numbers: no metric applies to them, or their maps are pooled.";
    if (!METRIC_NAMES.length) return patch(parent, [h("p", { class: "note" }, none)]);
    const table = headTable(heads, METRIC_NAMES, caption, openHead);
    patch(parent, [scrollingTable(table)]);
    scene.current = { drawOver() {}, reveal() {}, fit() {}, figure: (width) => tableFigure(table, width) };
  }
  const first = listedHeads()[0] ?? 0;
  const token = state.pin ?? (textOf(first, "query", sideNumber()).asked === undefined ? null : (askedToken(first) ?? MEAN));
  const before = shown ?? scene.asked;
  scene.asked = null;
  if (state.list === "lens" && !token) return patch(parent, [h("p", { class: "note lead" }, "Click a token: every head shows what it looks at.")]);
  if (!token || state.list === "numbers") return;
  const lens = before instanceof TokenLens && isOf(before, token) ? before : new TokenLens(token, () => redrawLens(lens));
  lens.arrange();
  if (state.list !== "lens") return void (scene.asked = lens);
  scene.shown = lens;
  const images = lens.tokens.images ? { draw: () => drawOverImages(lens) } : undefined;
  scene.current = { ...stageView(parent, new LensPicture(lens), "one token in all heads", stageBefore), images };
  images?.draw();
}

/** @type {Mark} all queries: no token is one of them */
const MEAN = { query: -1, key: null };

/** @param {TokenLens} lens */
function redrawLens(lens) {
  if (scene.asked === lens) scene.strip?.drawOver();
  const stage = scene.current?.stage;
  if (stage?.picture.shown !== lens) return;
  if (lens.whole) stage.fit();
  else stage.draw();
  scene.current?.images?.draw();
  scene.strip?.drawOver();
  refreshInspector();
  drawLegend();
}

/** True if a lens is of a token, over the heads that are listed now. @param {TokenLens} lens @param {Mark} token */
function isOf(lens, token) {
  const place = lens.axis === "query" ? token.query : token.key;
  const axis = token.query !== null && (token.key === null || lens.axis === "query") ? "query" : "key";
  const heads = listedHeads();
  return place === lens.place && axis === lens.axis && textOf(lens.number, axis, sideNumber()) === lens.token && lens.side === state.side && lens.of === state.of && lens.units === unitsNow(lens.tokens) && heads.every((number) => lens.lines.has(number));
}

/** @param {number} id */
async function drawTogether(id) {
  const how = state.together;
  const numbers = state.chosen;
  if (!how) return;
  const refused = whyNot(numbers, how);
  if (refused) {
    scene.shown = scene.current = null;
    patch(one("view"), [h("p", { class: "note lead" }, refused)]);
    return say(refused);
  }
  /** @type {Shown[]} each head, or one that is made of them */
  let shown;
  if (how === "side") shown = await sideBySide(numbers);
  else if (how === "overlay") shown = [overlaid(await sideBySide(numbers), numbers)];
  else shown = [await combinedHeads(numbers, how, loadHead)];
  if (id !== drawn.id) return;
  const parent = one("view");
  parent.replaceChildren();
  // Beside each other, the text and the lists are of all these heads, until one of them is pointed at.
  const isOfAll = shown.length > 1 && state.scores === "hidden" && !page.heads[numbers[0]].factors.length;
  const all = isOfAll ? await combinedHeads(numbers, "mean", loadHead) : null;
  if (id !== drawn.id) return;
  scene.shown = all ?? shown[0];
  scene.current = null;
  const cells = how === "side" ? cellsOf(shown) : shown;
  scene.current = shown.length > 1 ? new SideBySide(parent, cells, newPicture, all) : stageView(parent, newPicture(shown[0]), "matrix", null);
}

/** @param {number[]} numbers */
async function sideBySide(numbers) {
  return Promise.all(numbers.map(async (number) => shownHead(number, await loadHead(number))));
}

/** Takes the zoom and the place that an address names. @param {string} zoom */
function takeZoom(zoom) {
  const [, factor, query, key] = zoom.match(/^([\d.]+)@(\d+),(\d+)$/) ?? [];
  const stage = scene.current?.stage;
  if (!stage || !factor) return;
  stage.showAt({ query: Number(query), key: Number(key) }, Number(factor), [stage.width / 2, stage.height / 2]);
}
