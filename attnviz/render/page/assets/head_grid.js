/** Heads as thumbnails in a grid: layers down, heads across, or one after the other; keys walk among them. */

import { itemName, page } from "./data.js";
import { make, one, whenIdle } from "./elements.js";
import { state } from "./state.js";

const MIN_USED = 0.8; // of a thumbnail's place, that whole pixels for each cell leave
const MAX_THUMB = 200; // pixels a side
const MAX_ACROSS = 20; // thumbnails of a single layer, which goes on below
const MIN_NAMED_THUMB = 64; // pixels of a thumbnail that has room for what its head does
const MIN_SPREAD = 6; // thumbnails across, from which on columns are wider than they, for names
const MIN_NAMED_COLUMN = 92; // pixels
const LONG_TOUCH = 450; // milliseconds
const MIN_TOUCHED_THUMB = 24; // pixels that a finger hits

/**
 * What stands in the grid for a head.
 *
 * @typedef {object} GridParts
 * @property {(number: number, named: boolean) => HTMLElement} thumbOf a thumbnail, with its head's name where no row or column says it
 * @property {(thumbs: HTMLElement[]) => void} paint
 * @property {(pixels: number) => boolean} [fit] takes the pixels that the narrowest thumbnail has; true if all are to be painted again
 */

/** Heads by what sets them apart: cross-attention, and the text of a batch. @param {number[]} numbers */
function groupsOf(numbers) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (const number of numbers) {
    const { kind } = page.heads[number];
    const name = [kind === "cross" ? "cross-attention" : "", itemName(number)].filter(Boolean).join(", ");
    groups.set(name, [...(groups.get(name) ?? []), number]);
  }
  return groups;
}

/**
 * The heads of a group by their layers, in the order given; and whether every layer has the same ones.
 *
 * @param {number[]} numbers
 */
function layersOf(numbers) {
  /** @type {Map<number, number[]>} */
  const layers = new Map();
  for (const number of numbers) {
    const { layer } = page.heads[number];
    layers.set(layer, [...(layers.get(layer) ?? []), number]);
  }
  const names = [...layers.values()].map((row) => row.map((number) => page.heads[number].head).join());
  return { layers, regular: names.every((name) => name === names[0]) && layers.size > 1 };
}

const built = { name: "" };

/**
 * Draws heads into the overview: what is there already stays where its name is the same.
 *
 * @param {string} name of everything that the thumbnails show
 * @param {number[]} order
 * @param {boolean} run whether they stand one after the other, and not by layers
 * @param {GridParts} parts
 */
export function drawGrid(name, order, run, parts) {
  const changed = name !== built.name;
  if (changed) buildOverview(order, run, parts);
  built.name = name;
  markCurrent();
  fitGrid(parts, changed);
}

/** Gives thumbnails the size that there is room for, and paints them where they are new or have other pixels. @param {GridParts} parts */
export function fitGrid(parts, isNew = false) {
  const isOther = parts.fit?.(sizeThumbnails());
  if (isNew || isOther) drawThumbnails(parts);
}

/** Listens to keys that walk among heads, and to what chooses them. @param {((number: number) => void) | null} toggle what Space does */
export function listenToGrid(toggle) {
  one("overview").addEventListener("keydown", (event) => moveAmongHeads(event, toggle));
  if (!toggle) return;
  listenToTick(toggle);
  listenToLongTouch(toggle);
}

/** The head of the thumbnail that an event is on; none beside them. @param {Event} event */
export function headAt({ target }) {
  const thumb = target instanceof Element ? target.closest(".thumb") : null;
  return thumb instanceof HTMLElement ? Number(thumb.dataset.number) : null;
}

/** Shows a tick on the thumbnail under the mouse, which chooses its head: one element for all of them. @param {(number: number) => void} toggle */
function listenToTick(toggle) {
  const tick = make("span", { className: "tick", title: "Choose, to show several heads together" }, "✓");
  one("overview").addEventListener("pointerover", ({ target, pointerType }) => {
    const thumb = target instanceof Element ? target.closest(".grid:not(.tiny) .thumb") : null;
    if (thumb === tick.parentElement) return; // to move what is pressed would lose the click
    if (thumb && pointerType === "mouse") thumb.append(tick);
    else tick.remove();
  });
  one("overview").addEventListener("pointerleave", () => tick.remove());
  one("overview").addEventListener("click", (event) => event.target === tick && chooseInstead(event, toggle), { capture: true });
}

/** A finger that stays on a thumbnail chooses its head; then a touch chooses further ones, until none is left. @param {(number: number) => void} toggle */
function listenToLongTouch(toggle) {
  const touch = { timer: 0, chose: false, touched: false };
  const overview = one("overview");
  overview.addEventListener("pointerdown", (event) => {
    const number = headAt(event);
    Object.assign(touch, { chose: false, touched: event.pointerType === "touch" });
    clearTimeout(touch.timer);
    if (!touch.touched || number === null) return;
    touch.timer = setTimeout(() => {
      touch.chose = true;
      toggle(number);
    }, LONG_TOUCH);
  });
  for (const name of ["pointerup", "pointercancel", "pointermove"]) overview.addEventListener(name, () => clearTimeout(touch.timer));
  overview.addEventListener("contextmenu", (event) => touch.touched && event.preventDefault());
  overview.addEventListener("click", (event) => {
    if (touch.chose) event.stopPropagation(); // the finger that chose goes up
    else if (touch.touched && state.chosen.length && state.head === null && !state.together) chooseInstead(event, toggle);
  }, { capture: true });
}

/** Chooses the head that a click would open. @param {Event} event @param {(number: number) => void} toggle */
function chooseInstead(event, toggle) {
  const number = headAt(event);
  if (number === null) return;
  event.stopPropagation();
  toggle(number);
}

/**
 * A thumbnail: its picture, which is painted later, and what is said of its head.
 *
 * @param {number} number
 * @param {number} cells from left to right
 * @param {number} ratio of its width to its height
 * @param {string} title
 * @param {string} label
 * @param {HTMLCanvasElement} canvas
 */
export function newThumb(number, cells, ratio, title, label, canvas = make("canvas", { width: 1, height: 1 })) {
  const thumb = make("button", { type: "button", className: "thumb", tabIndex: -1, title }, canvas);
  canvas.style.aspectRatio = String(ratio);
  canvas.dataset.cells = String(cells);
  thumb.dataset.number = String(number);
  thumb.setAttribute("aria-label", label);
  return thumb;
}

/** @param {number[]} order @param {boolean} run @param {GridParts} parts */
function buildOverview(order, run, parts) {
  const overview = one("overview");
  const focused = overview.contains(document.activeElement) ? document.activeElement : null;
  const kept = focused instanceof HTMLElement ? focused.dataset.number : undefined;
  overview.replaceChildren();
  overview.classList.add("unsized"); // thumbnails are laid out once, after their size is known
  for (const [name, numbers] of groupsOf(order)) {
    if (name) overview.append(make("h3", {}, name));
    overview.append(run ? buildRun(numbers, parts) : buildGrid(numbers, parts));
  }
  if (!order.length) overview.append(make("p", { className: "note" }, "No head passes the filter; change its words."));
  sizeThumbnails();
  overview.classList.remove("unsized");
  const [first] = thumbs();
  if (first) first.tabIndex = 0;
  if (kept !== undefined) focusThumbnail(Number(kept));
}

/** Heads by layers: layers down, heads across. @param {number[]} numbers @param {GridParts} parts */
function buildGrid(numbers, { thumbOf }) {
  const { layers, regular } = layersOf(numbers);
  const longest = Math.max(...[...layers.values()].map((row) => row.length));
  const most = layers.size > 1 ? longest : Math.min(longest, MAX_ACROSS);
  const grid = newGrid(most, Math.max(layers.size, Math.ceil(longest / most)), "auto ");
  if (regular) {
    grid.append(make("span", { className: "name across corner" }, "layer \\ head"));
    for (const number of [...layers.values()][0]) {
      grid.append(make("span", { className: "name across" }, String(page.heads[number].head)));
    }
  }
  for (const [layer, row] of layers) {
    row.forEach((number, place) => {
      if (place % most === 0) grid.append(make("span", { className: "name" }, rowName(layer, place, regular)));
      grid.append(thumbOf(number, !regular));
    });
    for (let place = row.length; place % most; place++) grid.append(make("span"));
  }
  return grid;
}

/** Heads one after the other, in their order. @param {number[]} numbers @param {GridParts} parts */
function buildRun(numbers, { thumbOf }) {
  const grid = newGrid(1, numbers.length, "");
  grid.dataset.run = String(numbers.length);
  for (const number of numbers) grid.append(thumbOf(number, true));
  return grid;
}

/** @param {number} most @param {number} rows @param {string} before columns before the thumbnails */
function newGrid(most, rows, before) {
  const grid = make("div", { className: "grid" });
  for (const [name, value] of [["--thumb", "5px"], ["--gap", "2px"], ["--column", "max-content"]]) grid.style.setProperty(name, value);
  setAcross(grid, most, rows, before);
  return grid;
}

/** @param {HTMLElement} grid @param {number} most @param {number} rows @param {string} before columns before the thumbnails */
function setAcross(grid, most, rows, before) {
  grid.dataset.most = String(most);
  grid.dataset.rows = String(rows);
  grid.style.gridTemplateColumns = `${before}repeat(${most}, minmax(var(--thumb), var(--column)))`;
}

/** Gives a run of heads as many columns as leave room for their names. @param {HTMLElement} grid @param {boolean} compact */
function arrangeRun(grid, compact) {
  const count = Number(grid.dataset.run);
  const wanted = Math.max(4, Math.ceil(Math.sqrt(1.6 * count)));
  const named = compact ? wanted : Math.max(1, Math.floor((one("overview").clientWidth - 8) / (MIN_NAMED_THUMB + 8)));
  const most = Math.min(count, wanted, named);
  setAcross(grid, most, Math.ceil(count / most), "");
}

/**
 * What stands left of a row: its layer; nothing where it goes on with a layer.
 *
 * @param {number} layer
 * @param {number} place
 * @param {boolean} regular
 */
function rowName(layer, place, regular) {
  if (place) return "";
  return regular ? String(layer) : `layer ${layer}`;
}

/** Paints every thumbnail in its colours: those that are seen at once, and the others after they are shown. @param {GridParts} parts */
function drawThumbnails({ paint }) {
  const [all, count] = [thumbs(), countSeen()];
  paint(all.slice(0, count));
  const name = built.name;
  if (count < all.length) whenIdle(() => name === built.name && paint(all.slice(count)));
}

/** Returns the largest number of thumbnails that the window can show. */
function countSeen() {
  const grids = one("overview").querySelectorAll(".grid");
  const [grid] = grids;
  return grids.length === 1 && grid instanceof HTMLElement ? Number(grid.dataset.seen) : Infinity;
}

/** @returns {HTMLElement[]} */
function thumbs() {
  return [...one("overview").querySelectorAll(".thumb")].filter((thumb) => thumb instanceof HTMLElement);
}

/** @param {HTMLElement} thumb */
export function canvasOf(thumb) {
  return /** @type {HTMLCanvasElement} */ (thumb.firstChild);
}

/** @param {number} number */
export function focusThumbnail(number) {
  thumbs().find((thumb) => Number(thumb.dataset.number) === number)?.focus({ preventScroll: true });
}

/** Gives thumbnails the size that there is room for; returns the pixels that the narrowest have. */
export function sizeThumbnails() {
  const grids = [...one("overview").querySelectorAll(".grid")].filter((grid) => grid instanceof HTMLElement);
  return Math.min(...grids.map(sizeGrid)) * (window.devicePixelRatio || 1);
}

/** @param {HTMLElement} grid */
function sizeGrid(grid) {
  const compact = one("overview").parentElement === one("side");
  if (grid.dataset.run) arrangeRun(grid, compact);
  const most = Number(grid.dataset.most);
  const room = one("overview").clientWidth - widthOfNames(grid) - 8;
  const gap = compact ? 2 : Math.max(2, Math.min(14, Math.round(room / most / 12)));
  const inWidth = Math.floor((room - gap * most) / most);
  const column = Math.min(inWidth, Math.max(MIN_NAMED_COLUMN, MAX_THUMB));
  const { top } = one("overview").getBoundingClientRect();
  const inHeight = Math.floor((window.innerHeight - Math.min(320, top + window.scrollY) - 76) / Number(grid.dataset.rows)) - gap - 18;
  const ratio = Math.max(1, Number(grid.querySelector("canvas")?.style.aspectRatio.split("/")[0]) || 1); // of width to height
  const fitting = Math.min(MAX_THUMB, inWidth, compact ? inWidth : Math.max(ratio * inHeight, Math.min(inWidth, MIN_NAMED_THUMB + 8)));
  const least = compact ? 5 : window.innerWidth < 760 ? MIN_TOUCHED_THUMB : 16;
  const side = Math.max(least, fitting);
  const whole = wholeBlocks(grid, side, least);
  grid.dataset.seen = String(Math.ceil((window.innerHeight - top) / (whole / ratio + gap)) * most);
  grid.classList.toggle("tiny", side < MIN_NAMED_THUMB || compact);
  grid.style.setProperty("--thumb", `${whole}px`);
  grid.style.setProperty("--gap", `${gap}px`);
  grid.style.setProperty("--column", compact || most < MIN_SPREAD ? "max-content" : `${Math.min(column, Math.max(MIN_NAMED_COLUMN, Math.round(1.25 * side)))}px`);
  return whole;
}

/** The side with which every cell has as many pixels, where that uses most of the place. @param {HTMLElement} grid @param {number} side @param {number} least */
function wholeBlocks(grid, side, least) {
  const cells = Number(grid.querySelector("canvas")?.dataset.cells ?? 1);
  const density = window.devicePixelRatio || 1;
  const pixels = Math.floor((side * density) / cells);
  const whole = (pixels * cells) / density;
  const wasteful = whole < MIN_USED * side; // cells of one and of two pixels then cost less than the place
  grid.classList.toggle("smooth", wasteful && pixels === 1);
  return pixels < 1 || wasteful ? side : Math.max(least, whole);
}

/** @param {HTMLElement} grid */
function widthOfNames(grid) {
  const names = [...grid.querySelectorAll(".name:not(.across), .corner")];
  return Math.max(0, ...names.map((name) => (name instanceof HTMLElement ? name.offsetWidth : 0)));
}

/** Marks the open head's thumbnail, and those that are chosen. */
function markCurrent() {
  for (const thumb of thumbs()) {
    const number = Number(thumb.dataset.number);
    const current = number === state.head;
    thumb.setAttribute("aria-current", String(current));
    thumb.classList.toggle("taken", state.chosen.includes(number));
    if (state.head !== null) thumb.tabIndex = current ? 0 : -1;
  }
}

/** Arrows walk the grid; left and right also from row to row; Space chooses. @param {KeyboardEvent} event @param {((number: number) => void) | null} toggle */
function moveAmongHeads(event, toggle) {
  const all = thumbs();
  const here = all.findIndex((thumb) => thumb === document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey || state.noting) return;
  const next = event.key === " " && toggle ? all[here] : thumbBeside(all, here, event.key);
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  if (event.key === " ") return toggle?.(Number(next.dataset.number));
  for (const thumb of all) thumb.tabIndex = thumb === next ? 0 : -1;
  next.focus();
}

/** @param {HTMLElement[]} all @param {number} here @param {string} key */
function thumbBeside(all, here, key) {
  const { offsetLeft } = all[here];
  const inColumn = (/** @type {HTMLElement} */ thumb) => Math.abs(thumb.offsetLeft - offsetLeft) < 4;
  if (key === "ArrowRight") return all[here + 1];
  if (key === "ArrowLeft") return all[here - 1];
  if (key === "ArrowDown") return all.slice(here + 1).find(inColumn);
  if (key === "ArrowUp") return all.slice(0, here).reverse().find(inColumn);
  return { Home: all[0], End: all[all.length - 1] }[key];
}
