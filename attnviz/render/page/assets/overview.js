/** All heads as thumbnails: layers down, heads across, or in the order of a metric; each opens its head. */

import { openHead } from "./actions.js";
import { contextOf, imageOf, imageOfCodes, theme } from "./colors.js";
import { comparing, headTitle, itemName, page, shapeOf, textOf } from "./data.js";
import { make, one, say } from "./elements.js";
import { quoted } from "./formatting.js";
import { sharedScale, thumbnailScale } from "./head_scales.js";
import { listedHeads, sortMetric } from "./listing.js";
import { effectOf, metricText, numbersOf, patternOf, shortNoteOf } from "./metrics.js";
import { peakOf } from "./moved.js";
import { weightText } from "./quantities.js";
import { faded } from "./scales.js";
import { pooledCounts, seenBy } from "./seen.js";
import { set, sideNumber, state } from "./state.js";
import { codedThumbnail, thumbnailValues } from "./thumbnails.js";

const MAX_THUMB = 200; // pixels a side
const MAX_ACROSS = 20; // thumbnails of a single layer, which goes on below
const MIN_NAMED_THUMB = 64; // pixels of a thumbnail that has room for what its head does
const MIN_SPREAD = 6; // thumbnails across, from which on columns are wider than they, for names
const MIN_NAMED_COLUMN = 92; // pixels
const MIN_TOUCHED_THUMB = 24; // pixels that a finger hits
export const EFFECT_FRAME = 3; // pixels of the colour of what is lost without a head
const MIN_FRAME_OPACITY = 0.15; // of a loss that is not zero, so that its sign is seen

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

/** Draws the thumbnails where they belong: large, or beside what is open. @param {boolean} open */
export function drawOverview(open) {
  const overview = one("overview");
  overview.hidden = page.heads.length === 1 || (!open && state.list !== "maps");
  const home = open ? one("side") : one("main");
  if (overview.parentElement !== home) home.prepend(overview);
  const order = listedHeads();
  const name = [order.join(), sortMetric(), state.of, state.side, state.pool, state.limits, state.steps, theme().paper].join(" ");
  const changed = name !== built.name;
  if (changed) buildOverview(order);
  built.name = name;
  markCurrent();
  sizeThumbnails();
  if (changed) drawThumbnails();
}

/** Listens to keys that walk among heads. */
export function listenToOverview() {
  one("overview").addEventListener("keydown", moveAmongHeads);
}

/** @param {number[]} order */
function buildOverview(order) {
  const overview = one("overview");
  const focused = overview.contains(document.activeElement) ? document.activeElement : null;
  const kept = focused instanceof HTMLElement ? focused.dataset.number : undefined;
  overview.replaceChildren();
  for (const [name, numbers] of groupsOf(order)) {
    if (name) overview.append(make("h3", {}, name));
    overview.append(buildGrid(numbers));
  }
  if (!order.length) overview.append(make("p", { className: "note" }, "No head is left; other words leave some."));
  const [first] = thumbs();
  if (first) first.tabIndex = 0;
  if (kept !== undefined) focusThumbnail(Number(kept));
}

/** @param {number[]} numbers */
function buildGrid(numbers) {
  const whole = numbers.length === page.heads.length || !state.filter;
  const { layers, regular } = layersOf(numbers);
  if (sortMetric() || !whole) return buildRun(numbers);
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
      grid.append(buildThumb(number, !regular));
    });
    for (let place = row.length; place % most; place++) grid.append(make("span"));
  }
  return grid;
}

/** Heads one after the other, in their order. @param {number[]} numbers */
function buildRun(numbers) {
  const grid = newGrid(1, numbers.length, "");
  grid.dataset.run = String(numbers.length);
  for (const number of numbers) grid.append(buildThumb(number, true));
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

/** @param {number} number @param {boolean} named */
function buildThumb(number, named) {
  const head = page.heads[number];
  const canvas = make("canvas", { width: head.thumbnail[1], height: head.thumbnail[0] });
  const thumb = make("button", { type: "button", className: "thumb", tabIndex: -1 }, canvas);
  const [rows, columns] = shapeOf(number);
  canvas.style.aspectRatio = String(Math.min(3, Math.max(1 / 3, columns / rows)));
  thumb.dataset.number = String(number);
  const metric = sortMetric();
  const effect = effectOf(number);
  const lost = effect ? `${effect.name} ${effect.text}` : "";
  const measured = metric && metric !== effect?.name ? metricText(metric, numbersOf(number)[metric]) : "";
  const said = measured && `${metric} ${measured}`;
  thumb.title = [headTitle(number), patternOf(number), said, lost].filter(Boolean).join(" · ");
  thumb.setAttribute("aria-label", [headTitle(number) + peakSaid(number), said, patternOf(number), lost].filter(Boolean).join(", "));
  const color = effectColor(number);
  if (color) canvas.style.boxShadow = `0 0 0 ${EFFECT_FRAME}px ${color}`;
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

/** What a head does and its number apart, since words may be cut and a number never. @param {string} note */
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

/** What a thumbnail says of its head. @param {number} number */
function peakSaid(number) {
  if (comparing) return `, changes by at most ${weightText(page.heads[number].reach)}`;
  const peak = peakOf(number);
  if (!peak) return ", nothing visible";
  const [query, key] = [quoted(textOf(number, "query"), peak[0]), quoted(textOf(number, "key"), peak[1])];
  return `, largest ${state.of} ${weightText(peak[2])} from ${query} to ${key}`;
}

/** Paints every thumbnail in its colours: those that are seen at once, and the others a moment later. */
function drawThumbnails() {
  const [all, count] = [thumbs(), countSeen()];
  paintThumbnails(all.slice(0, count));
  const name = built.name;
  if (count < all.length) setTimeout(() => name === built.name && paintThumbnails(all.slice(count)));
}

/** How many thumbnails the window shows at most. */
function countSeen() {
  const grids = one("overview").querySelectorAll(".grid");
  const [grid] = grids;
  if (grids.length !== 1 || !(grid instanceof HTMLElement)) return Infinity;
  const [side, gap] = ["--thumb", "--gap"].map((property) => parseFloat(grid.style.getPropertyValue(property)));
  return Math.ceil(window.innerHeight / (side + gap)) * Number(grid.dataset.most);
}

/** @param {HTMLElement[]} some */
function paintThumbnails(some) {
  const shared = state.limits === "head" ? null : sharedScale();
  for (const thumb of some) {
    const number = Number(thumb.dataset.number);
    const canvas = canvasOf(thumb);
    const scale = shared ?? thumbnailScale(number);
    const counts = pooledCounts(seenBy(number, sideNumber()), canvas.height);
    const coded = codedThumbnail(number);
    const [rows, columns, seen] = [canvas.height, canvas.width, (/** @type {number} */ row) => counts[row]];
    const image = coded ? imageOfCodes(coded, rows, columns, scale, seen) : imageOf(thumbnailValues(number), rows, columns, scale, seen);
    contextOf(canvas).putImageData(image, 0, 0);
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
  thumbs().find((thumb) => Number(thumb.dataset.number) === number)?.focus({ preventScroll: true });
}

/** Gives thumbnails the size that there is room for. */
export function sizeThumbnails() {
  for (const grid of one("overview").querySelectorAll(".grid")) if (grid instanceof HTMLElement) sizeGrid(grid);
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
  const top = Math.min(320, one("overview").getBoundingClientRect().top + window.scrollY);
  const inHeight = Math.floor((window.innerHeight - top - 76) / Number(grid.dataset.rows)) - gap - 18;
  const fitting = Math.min(MAX_THUMB, inWidth, compact ? inWidth : Math.max(inHeight, Math.min(inWidth, MIN_NAMED_THUMB + 8)));
  const least = compact ? 5 : window.innerWidth < 760 ? MIN_TOUCHED_THUMB : 16;
  const side = Math.max(least, fitting);
  grid.classList.toggle("tiny", side < MIN_NAMED_THUMB || compact);
  grid.style.setProperty("--thumb", `${wholeBlocks(grid, side, least)}px`);
  grid.style.setProperty("--gap", `${gap}px`);
  grid.style.setProperty("--column", compact || most < MIN_SPREAD ? "max-content" : `${Math.min(column, Math.max(MIN_NAMED_COLUMN, Math.round(1.25 * side)))}px`);
}

/** The side with which every cell has as many pixels, where cells have a pixel each. @param {HTMLElement} grid @param {number} side @param {number} least */
function wholeBlocks(grid, side, least) {
  const canvas = grid.querySelector("canvas");
  const cells = canvas?.width ?? 1;
  const density = window.devicePixelRatio || 1;
  const pixels = Math.floor((side * density) / cells);
  grid.classList.toggle("smooth", pixels < 1);
  return pixels < 1 ? side : Math.max(least, (pixels * cells) / density);
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

/** Arrows walk the grid; left and right also from row to row; Space chooses. @param {KeyboardEvent} event */
function moveAmongHeads(event) {
  const all = thumbs();
  const here = all.findIndex((thumb) => thumb === document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey || state.noting) return;
  const next = event.key === " " ? all[here] : neighbour(all, here, event.key);
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  if (event.key === " ") return toggleChosen(Number(next.dataset.number));
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
