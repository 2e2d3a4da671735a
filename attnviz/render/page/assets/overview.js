/** The overview: layers down, heads across, each head a thumbnail that opens it. */

import { openHead } from "./actions.js";
import { contextOf, paintCells } from "./colors.js";
import { comparing, headTitle, itemName, page, shapeOf, textOf } from "./data.js";
import { make, one } from "./elements.js";
import { quoted } from "./formatting.js";
import { weightText } from "./quantities.js";
import { state } from "./state.js";
import { sharedScale, thumbnailScale, thumbnailValues } from "./thumbnails.js";

const MAX_THUMB = 168; // pixels a side
const MAX_ACROSS = 20; // thumbnails of a single layer, which goes on below
const MIN_NAMED_THUMB = 32; // pixels of a thumbnail that has room for its name

/** Heads by what sets them apart: cross-attention, and the text of a batch. */
function groupsOf() {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  page.heads.forEach(({ kind }, number) => {
    const name = [kind === "cross" ? "cross-attention" : "", itemName(number)].filter(Boolean).join(", ");
    groups.set(name, [...(groups.get(name) ?? []), number]);
  });
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

/** Builds the thumbnails of all heads. */
export function buildOverview() {
  const overview = one("overview");
  overview.replaceChildren();
  for (const [name, numbers] of groupsOf()) {
    if (name) overview.append(make("h3", {}, name));
    overview.append(buildGrid(numbers));
  }
  overview.addEventListener("keydown", moveAmongHeads);
  drawThumbnails();
  sizeThumbnails();
}

/** @param {number[]} numbers */
function buildGrid(numbers) {
  const { layers, regular } = layersOf(numbers);
  const longest = Math.max(...[...layers.values()].map((row) => row.length));
  const most = layers.size > 1 ? longest : Math.min(longest, MAX_ACROSS);
  const grid = make("div", { className: "grid" });
  grid.dataset.most = String(most);
  grid.dataset.rows = String(Math.max(layers.size, Math.ceil(longest / most)));
  grid.style.gridTemplateColumns = `auto repeat(${most}, var(--thumb))`;
  if (regular) {
    grid.append(make("span", { className: "name across corner" }, "layer \\ head"));
    for (const number of [...layers.values()][0]) {
      grid.append(make("span", { className: "name across" }, String(page.heads[number].head)));
    }
  }
  for (const [layer, row] of layers) {
    row.forEach((number, place) => {
      if (place % most === 0) grid.append(make("span", { className: "name" }, rowName(layer, place, regular)));
      grid.append(buildThumb(number, !regular));
    });
    for (let place = row.length; place < most; place++) grid.append(make("span"));
  }
  return grid;
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

/** @param {number} number @param {boolean} named */
function buildThumb(number, named) {
  const head = page.heads[number];
  const canvas = make("canvas", { width: head.thumbnail[1], height: head.thumbnail[0] });
  const thumb = make("button", { type: "button", className: "thumb", tabIndex: number ? -1 : 0 }, canvas);
  const [rows, columns] = shapeOf(number);
  canvas.style.aspectRatio = String(Math.min(3, Math.max(1 / 3, columns / rows)));
  thumb.dataset.number = String(number);
  thumb.title = headTitle(number);
  thumb.setAttribute("aria-label", `${headTitle(number)}${peakSaid(number)}`);
  thumb.addEventListener("click", () => openHead(number));
  if (named) thumb.append(make("span", {}, head.name));
  return thumb;
}

/** What a thumbnail says of its head. @param {number} number */
function peakSaid(number) {
  if (comparing) return `, changes by at most ${weightText(page.heads[number].reach)}`;
  const peak = page.heads[number].peaks[0];
  if (!peak) return ", nothing visible";
  const [query, key] = [quoted(textOf(number, "query"), peak[0]), quoted(textOf(number, "key"), peak[1])];
  return `, largest weight ${weightText(peak[2])} from ${query} to ${key}`;
}

/** Paints every thumbnail in its colours. */
export function drawThumbnails() {
  const shared = state.limits === "head" ? null : sharedScale();
  for (const thumb of thumbs()) {
    const number = Number(thumb.dataset.number);
    const canvas = canvasOf(thumb);
    const scale = shared ?? thumbnailScale(number);
    const painted = paintCells(thumbnailValues(number), canvas.height, canvas.width, scale);
    const context = contextOf(canvas);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(painted, 0, 0);
  }
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
  thumbs().find((thumb) => Number(thumb.dataset.number) === number)?.focus();
}

/** Gives thumbnails the size that there is room for. */
export function sizeThumbnails() {
  for (const grid of one("overview").querySelectorAll(".grid")) if (grid instanceof HTMLElement) sizeGrid(grid);
}

/** @param {HTMLElement} grid */
function sizeGrid(grid) {
  const most = Number(grid.dataset.most);
  const room = one("overview").clientWidth - widthOfNames(grid) - 8;
  const gap = Math.max(2, Math.min(12, Math.round(room / most / 12)));
  const inWidth = Math.floor((room - gap * most) / most);
  const inHeight = Math.floor((window.innerHeight - 330) / Number(grid.dataset.rows)) - gap;
  const compact = state.head !== null;
  const fitting = Math.min(MAX_THUMB, inWidth, compact ? inWidth : Math.max(inHeight, 44));
  const side = Math.max(compact ? 5 : 16, fitting);
  grid.classList.toggle("tiny", side < MIN_NAMED_THUMB);
  grid.style.setProperty("--thumb", `${side}px`);
  grid.style.setProperty("--gap", `${gap}px`);
}

/** @param {HTMLElement} grid */
function widthOfNames(grid) {
  const names = [...grid.querySelectorAll(".name:not(.across), .corner")];
  return Math.max(0, ...names.map((name) => (name instanceof HTMLElement ? name.offsetWidth : 0)));
}

/** Marks the open head's thumbnail. */
export function markCurrent() {
  for (const thumb of thumbs()) {
    const current = Number(thumb.dataset.number) === state.head;
    thumb.setAttribute("aria-current", String(current));
    if (state.head !== null) thumb.tabIndex = current ? 0 : -1;
  }
}

/** Arrows walk the grid; left and right also from row to row. @param {KeyboardEvent} event */
function moveAmongHeads(event) {
  const all = thumbs();
  const here = all.findIndex((thumb) => thumb === document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = neighbour(all, here, event.key);
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  for (const thumb of all) thumb.tabIndex = thumb === next ? 0 : -1;
  next.focus();
}

/** @param {HTMLElement[]} all @param {number} here @param {string} key */
function neighbour(all, here, key) {
  const { offsetLeft } = all[here];
  const inColumn = (/** @type {HTMLElement} */ thumb) => Math.abs(thumb.offsetLeft - offsetLeft) < 4;
  if (key === "ArrowRight") return all[here + 1];
  if (key === "ArrowLeft") return all[here - 1];
  if (key === "ArrowDown") return all.slice(here + 1).find(inColumn);
  if (key === "ArrowUp") return all.slice(0, here).reverse().find(inColumn);
  return { Home: all[0], End: all[all.length - 1] }[key];
}
