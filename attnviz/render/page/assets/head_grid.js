/** Heads as thumbnails in a grid that fills its room: a row for each layer, in as many blocks side by side as make the thumbnails largest. */

import { contextOf, newCanvas, theme } from "./colors.js";
import { itemName, page } from "./data.js";
import { one, whenIdle } from "./elements.js";
import { textWidth } from "./figure.js";
import { state } from "./state.js";
import { h, patch } from "./tree.js";
import { kept } from "./values.js";

/** @import { Given, Tree } from "./tree.js" */

const MIN_USED = 0.8; // of a thumbnail's place, that whole pixels for each cell leave
const MAX_THUMB = 200; // pixels a side
const MIN_NAMED_THUMB = 64; // pixels of a thumbnail that has room for what its head does
const MIN_NAMED_COLUMN = 92; // pixels
const GRID_GAP = 0.1; // between thumbnails, of their side
const MIN_GAP = 2; // pixels
const SPREAD = 2; // times a thumbnail's side that its column is wide at most
const NAMES_HEIGHT = 18; // pixels under a thumbnail
const NAMES_SIZE = 0.72; // of the page's letters, as in the style sheet
const MAX_TOP = 320; // pixels above the grid that are counted: a page that begins lower is scrolled
const SIDE_PART = 0.22; // of the window's height, beside what is open
const LONG_TOUCH = 450; // milliseconds
const PAINTED_AT_ONCE = 24; // thumbnails beyond the window, between which the browser answers a reader
const MANY_NAMED = 200; // thumbnails, of which those beyond the window are not laid out
const MIN_TOUCHED_THUMB = 24; // pixels that a finger hits
const EASY_TOUCHED_THUMB = 44; // pixels that it hits at once, and whose pattern is seen at arm's length
const MANY_TOUCHED = 144; // thumbnails, of which that would be too long a way down

/**
 * What stands in the grid for a head.
 *
 * @typedef {object} GridParts
 * @property {(number: number) => number} ratioOf width of a thumbnail for a height of 1
 * @property {(number: number) => number} cellsAcross
 * @property {(number: number, named: boolean, first: number, fits: (text: string) => boolean) => ThumbAbout} aboutThumb with its head's name where no row or column says it
 * @property {(number: number) => boolean} [hasNote] true if its thumbnail has more under it than the name
 * @property {(number: number) => void} open what a click does
 * @property {((number: number, shows?: boolean) => void) | null} toggle what chooses a head, and shows those that are chosen
 * @property {(numbers: number[]) => void} paint their canvases
 * @property {(context: CanvasRenderingContext2D, number: number, box: Box) => void} [paintOn] paints a head without a canvas of its own
 * @property {(pixels: number) => boolean} [fit] takes the pixels that the narrowest thumbnail has; true if all are to be painted again
 *
 * @typedef {{ title: string, label: string, names: Given[], frame?: string, isOut?: boolean, isOther?: boolean }} ThumbAbout that may be pale, or of other tokens than the first
 * @typedef {{ width: number, height: number, em: number, least: number, isCompact: boolean }} Room in pixels, the size of letters, and the least side of a thumbnail
 * @typedef {{ x: number, y: number, width: number, height: number }} Box in pixels of a canvas
 * @typedef {{ name: string, numbers: number[] }} Row heads beside each other, and what stands left of them
 */

const grid = {
  name: "",
  /** @type {number[]} */
  order: [],
  isRun: false,
  /** @type {GridParts | null} */
  parts: null,
  walked: -1, // the head that Tab reaches
  sheets: "", // what the sheets were drawn of
  painted: /** @type {Set<number>} */ (new Set()), // what is painted of it
  onSheets: /** @type {Set<number>} */ (new Set()), // what is painted there and has no canvas of its own
};

/** @type {Map<number, HTMLCanvasElement>} */
const canvases = new Map();

/**
 * Draws heads into the overview, and paints them where they show something else than before.
 *
 * @param {string} name of everything that the thumbnails show
 * @param {number[]} order
 * @param {boolean} isRun whether they stand one after the other, and not by layers
 * @param {GridParts} parts
 */
export function drawGrid(name, order, isRun, parts) {
  const isOther = name !== grid.name;
  if (isOther || !order.includes(grid.walked)) grid.walked = order[0] ?? -1;
  if (state.head !== null && order.includes(state.head)) grid.walked = state.head;
  Object.assign(grid, { name, order, isRun, parts });
  fitGrid(isOther);
}

/** Gives thumbnails the room that there is, and paints them where they are new or have other pixels. */
export function fitGrid(isOther = false) {
  const { order, parts } = grid;
  if (!parts) return;
  const overview = one("overview");
  const focused = overview.contains(document.activeElement) ? document.activeElement : null;
  const plans = plansOf(parts);
  const isRepainted = parts.fit?.(Math.min(...plans.map(({ side }) => side)) * (window.devicePixelRatio || 1));
  const nothing = h("p", { class: "note" }, "No head passes the filter; change its words.");
  patch(overview, plans.length ? plans.flatMap((plan) => [...(plan.title ? [h("h3", {}, plan.title)] : []), gridTree(plan, parts)]) : [nothing]);
  if (focused instanceof HTMLElement && document.activeElement !== focused) focusThumbnail(Number(focused.dataset.number)); // it was moved
  const onSheetsBefore = grid.onSheets;
  grid.onSheets = new Set(parts.paintOn ? plans.filter(({ isNamed }) => !isNamed).flatMap(({ numbers }) => numbers) : []);
  if (!isOther && !isRepainted) {
    parts.paint([...grid.painted].filter((number) => onSheetsBefore.has(number) && !grid.onSheets.has(number)));
    return paintSheets(plans);
  }
  const top = overview.getBoundingClientRect().top;
  const seen = plans.flatMap(({ numbers, side, ratio, gap, placeOf }) =>
    numbers.filter((number) => plans.length > 1 || placeOf(number).row * (side / ratio + gap) < window.innerHeight - top));
  Object.assign(grid, { sheets: "", painted: new Set() });
  const paint = (/** @type {number[]} */ numbers) => {
    parts.paint(numbers.filter((number) => !grid.onSheets.has(number)));
    for (const number of numbers) grid.painted.add(number);
    paintSheets(plans, numbers);
  };
  paint(seen);
  const isSeen = new Set(seen);
  const rest = order.filter((number) => !isSeen.has(number));
  const { name } = grid;
  const paintSome = () => {
    if (name !== grid.name) return;
    paint(rest.splice(0, PAINTED_AT_ONCE));
    if (rest.length) whenIdle(paintSome);
  };
  if (rest.length) whenIdle(paintSome);
}

/** The pixels of the screen that a box takes. @param {DOMRect} box */
function onPixels({ left, top, right, bottom }) {
  const [x, y, endX, endY] = [left, top, right, bottom].map((edge) => Math.round(edge * (window.devicePixelRatio || 1)));
  return { x, y, width: endX - x, height: endY - y };
}

/**
 * Paints thumbnails without names on one canvas behind them: each canvas in the window takes part of every frame.
 *
 * @param {ReturnType<typeof planOf>[]} plans
 * @param {number[]} [numbers] of the heads that are new, where the canvas is not
 */
function paintSheets(plans, numbers = []) {
  if (plans.every(({ isNamed }) => isNamed)) return;
  const density = window.devicePixelRatio || 1;
  const grids = [...one("overview").querySelectorAll(".grid")];
  const boxes = grids.map((element) => element.getBoundingClientRect());
  const drawn = [grid.name, density, ...plans.map(({ side }) => side), ...boxes.map(({ width, height }) => `${width}×${height}`)].join(" ");
  const isSame = drawn === grid.sheets;
  grid.sheets = drawn;
  grids.forEach((element, place) => {
    const sheet = element.querySelector(".sheet");
    if (!(sheet instanceof HTMLCanvasElement)) return;
    const whole = onPixels(boxes[place]);
    if (!isSame) [sheet.width, sheet.height] = [whole.width, whole.height];
    const context = contextOf(sheet);
    context.fillStyle = theme().absent;
    context.imageSmoothingEnabled = plans[place].isSmooth;
    for (const thumb of thumbsIn(element)) {
      const number = Number(thumb.dataset.number);
      if (isSame && !numbers.includes(number)) continue;
      const { x, y, width, height } = onPixels(/** @type {Element} */ (thumb.firstElementChild).getBoundingClientRect());
      const box = { x: x - whole.x, y: y - whole.y, width, height };
      context.fillRect(box.x, box.y, width, height);
      if (!grid.painted.has(number)) continue;
      if (grid.parts?.paintOn) grid.parts.paintOn(context, number, box);
      else context.drawImage(canvasOf(number), box.x, box.y, width, height);
    }
  });
}

/** How all heads stand, in groups of a kind and a text, each in so much room. @param {GridParts} [parts] @param {Room} [room] */
export function plansOf(parts = grid.parts ?? undefined, room = roomNow()) {
  const titleOf = (/** @type {number} */ number) => [page.heads[number].kind === "cross" ? "cross-attention" : "", itemName(number)].filter(Boolean).join(", ");
  return parts ? [...Map.groupBy(grid.order, titleOf)].map(([title, numbers]) => ({ title, saidOf: parts.aboutThumb, ...planOf(numbers, parts, room) })) : [];
}

/** The room of the window. @returns {Room} */
function roomNow() {
  const overview = one("overview");
  const isCompact = overview.parentElement === one("side");
  const { top } = overview.getBoundingClientRect();
  const below = window.innerHeight - Math.min(MAX_TOP, top + window.scrollY) - 12;
  return {
    width: overview.clientWidth - 8,
    height: isCompact ? SIDE_PART * window.innerHeight - 8 : below,
    em: parseFloat(getComputedStyle(overview).fontSize) / 15,
    least: isCompact ? 5 : window.innerWidth >= 760 ? 16 : grid.order.length > MANY_TOUCHED ? MIN_TOUCHED_THUMB : EASY_TOUCHED_THUMB,
    isCompact,
  };
}

/**
 * How heads stand so that all are seen and as large as can be: layers under each other, in blocks side by side or each
 * in several rows; heads in an order of their own as those of one layer.
 *
 * @param {number[]} numbers
 * @param {GridParts} parts
 * @param {Room} room
 */
function planOf(numbers, parts, { width, height: whole, em, least: leastOfAll, isCompact }) {
  const ratio = parts.ratioOf(numbers[0]);
  const layers = Map.groupBy(numbers, (number) => (grid.isRun ? 0 : page.heads[number].layer));
  const byLayer = layers.size > 1;
  const heads = [...layers.values()].map((row) => row.map((number) => page.heads[number].head).join());
  const isAlike = byLayer && heads.every((row) => row === heads[0]);
  const longest = Math.max(...[...layers.values()].map((row) => row.length));

  const noted = [...layers.values()].filter((row) => !isAlike || row.some((number) => parts.hasNote?.(number) ?? true)).length;
  const height = whole - (isAlike && !isCompact ? 22 * em : 0);
  const longestName = Math.max(...[...layers.keys()].map((layer) => String(layer).length));
  const namesWidth = grid.isRun ? 0 : Math.ceil((7 * (isAlike ? Math.max(5, longestName) : 6 + longestName) + 8) * em);

  // Blocks of layers side by side, or rows that one layer takes: those of the largest thumbnails.
  const counts = (/** @type {number} */ most) => Array.from({ length: most }, (_, place) => place + 1);
  const shapes = [
    ...(byLayer ? counts(layers.size).map((blocks) => ({ blocks, wraps: 1 })) : []),
    ...counts(longest).slice(byLayer ? 1 : 0).map((wraps) => ({ blocks: 1, wraps })),
  ];
  const sizes = shapes.map(({ blocks, wraps }) => {
    const across = blocks * Math.ceil(longest / wraps);
    const down = Math.ceil(layers.size / blocks) * wraps;
    const place = (width - blocks * namesWidth) / across;
    const spread = isCompact ? 0 : GRID_GAP;
    const sideWith = (/** @type {number} */ names) => Math.floor(Math.min(MAX_THUMB, place / (1 + spread), (height - names) / down / (1 / ratio + spread)) - (isCompact ? MIN_GAP : 0));
    const namedRows = wraps > 1 ? down : Math.min(down, noted);
    const named = isCompact ? 0 : sideWith(NAMES_HEIGHT * em * namedRows);
    const isNamed = named >= MIN_NAMED_THUMB || (grid.isRun && !isCompact); // nothing else tells which heads these are
    const side = isNamed ? named : sideWith(0);
    return { blocks, wraps, across, down, gap: Math.max(MIN_GAP, Math.floor(spread * side)), place, isNamed, side };
  });
  const least = grid.isRun && !isCompact ? MIN_NAMED_THUMB : leastOfAll;
  const inWidth = sizes.filter(({ place }) => place >= least * (1 + GRID_GAP));
  const best = (inWidth.length ? inWidth : sizes.slice(0, 1)).reduce((first, second) => (second.side > first.side ? second : first));
  const { side, isSmooth } = wholeBlocks(Math.max(least, best.side), parts.cellsAcross(numbers[0]), least);
  const wide = isCompact ? side : Math.max(best.isNamed ? MIN_NAMED_COLUMN : 0, side < MAX_THUMB ? Math.round(SPREAD * side) : side); // room for what heads do
  const column = Math.max(side, Math.min(wide, Math.floor(best.place - best.gap)));

  const isRegular = isAlike && best.wraps === 1;
  const inRow = best.across / best.blocks;
  /** @type {Row[]} */
  const rows = [];
  for (const [layer, row] of layers) {
    const name = grid.isRun ? "" : isRegular ? String(layer) : `layer ${layer}`;
    for (let first = 0; first < row.length; first += inRow) rows.push({ name: first ? "" : name, numbers: row.slice(first, first + inRow) });
  }
  const blockWidth = best.across / best.blocks + (namesWidth ? 1 : 0);
  const firstColumn = (/** @type {number} */ row) => 1 + Math.floor(row / best.down) * blockWidth;
  /** @type {Map<number, { row: number, column: number }>} */
  const places = new Map();
  rows.forEach((row, place) => row.numbers.forEach((number, index) => places.set(number, { row: place % best.down, column: firstColumn(place) + (namesWidth ? 1 : 0) + index })));
  const placeOf = (/** @type {number} */ number) => places.get(number) ?? { row: 0, column: 1 };
  return { ...best, numbers, rows, ratio, side, isSmooth, column, namesWidth, isRegular, isCompact, firstColumn, placeOf };
}

/** The side with which every cell has as many pixels, where that uses most of the place; if not, cells of a pixel are smoothed. @param {number} side @param {number} cells @param {number} least */
function wholeBlocks(side, cells, least) {
  const density = window.devicePixelRatio || 1;
  const pixels = Math.floor((side * density) / cells);
  const whole = (pixels * cells) / density;
  const isWasteful = whole < MIN_USED * side; // cells of one and of two pixels then cost less than the place
  return { side: pixels < 1 || isWasteful ? side : Math.max(least, whole), isSmooth: isWasteful && pixels === 1 };
}

/** @param {ReturnType<typeof planOf>} plan @param {GridParts} parts @returns {Tree} */
function gridTree(plan, parts) {
  const { rows, blocks, across, down, gap, side, ratio, column, namesWidth, isRegular, isNamed, isCompact, isSmooth, firstColumn, placeOf } = plan;
  const template = `${namesWidth ? `${namesWidth}px ` : ""}repeat(${across / blocks}, ${column}px)`;
  const header = isRegular && !isCompact ? 1 : 0;
  /** @type {Given} */
  const names = [];
  const size = NAMES_SIZE * parseFloat(getComputedStyle(document.documentElement).fontSize);
  for (let block = 0; header && block < blocks && block * down < rows.length; block++) {
    const first = firstColumn(block * down);
    names.push(h("span", { class: "name corner", style: `grid-area: 1 / ${first}` }, "layer"));
    rows[0].numbers.forEach((number, index) => names.push(h("span", { class: "name across", style: `grid-area: 1 / ${first + 1 + index}` }, headLabel(number, index, size, column + gap))));
  }
  const fits = (/** @type {string} */ text) => !isNamed || textWidth(text, size) <= column; // without names nothing is measured
  const thumbs = rows.flatMap(({ name, numbers }, row) => [
    name && h("span", { key: `row ${row}`, class: "name", style: `grid-area: ${(row % down) + 1 + header} / ${firstColumn(row)}` }, name),
    ...numbers.map((number) => {
      const place = placeOf(number);
      return thumbTree(number, isNamed, parts, parts.aboutThumb(number, !isRegular, grid.order[0], fits), `grid-area: ${place.row + 1 + header} / ${place.column}`);
    }),
  ]);
  const className = ["grid", isNamed ? "" : "tiny", isSmooth ? "smooth" : "", isNamed && thumbs.length > MANY_NAMED ? "many" : ""].filter(Boolean).join(" ");
  if (!isNamed) names.unshift(h("canvas", { key: "sheet", class: "sheet", "aria-hidden": true }));
  return h("div", { class: className, style: `--thumb: ${side}px; --tall: ${side / ratio}px; --gap: ${gap}px; grid-template-columns: ${Array(blocks).fill(template).join(" ")}` }, ...names, ...thumbs);
}

/** What stands above a column of heads: the first says what the numbers are, where there is room. @param {number} number @param {number} index of the column @param {number} size of letters @param {number} room in pixels, up to the next label */
export function headLabel(number, index, size, room) {
  const { head } = page.heads[number];
  return index || textWidth(`head ${head} `, size) > room ? `${head}` : `head ${head}`;
}

/** @param {number} number @param {boolean} isNamed @param {GridParts} parts @param {ThumbAbout} about @param {string} style @returns {Tree} */
function thumbTree(number, isNamed, parts, { title, label, names, frame, isOut, isOther }, style) {
  const isOpen = number === state.head;
  const className = ["thumb", state.chosen.includes(number) && parts.toggle ? "taken" : "", isOut ? "out" : "", isOther ? "other" : ""];
  return h(
    "button",
    {
      key: number,
      type: "button",
      class: className.filter(Boolean).join(" "),
      title,
      style,
      tabindex: number === grid.walked ? 0 : -1,
      "aria-label": label,
      "aria-current": isOpen,
      "data-number": number,
      onclick: (/** @type {MouseEvent} */ event) => (parts.toggle && (event.shiftKey || event.ctrlKey || event.metaKey) ? parts.toggle(number) : parts.open(number)),
    },
    h("span", { class: "picture", style: `aspect-ratio: ${parts.ratioOf(number)}; ${frame ? `box-shadow: ${frame}` : ""}` }, (isNamed || !parts.paintOn) && canvasOf(number)),
    parts.toggle && h("span", { class: "tick", title: "Choose, to show several heads together" }),
    names.length > 0 && h("span", { class: "names" }, ...names.flatMap((name) => [name, " "])),
  );
}

/** The canvas of a head's thumbnail, for those who paint it. @param {number} number */
export function canvasOf(number) {
  return kept(canvases, number, () => newCanvas(1, 1));
}

/** The canvas of a head's thumbnail as it is seen. @param {number} number */
export function paintedCanvas(number) {
  grid.parts?.paint([number]);
  return canvasOf(number);
}

/** The head of the thumbnail that an event is on; none beside them. @param {Pick<Event, "target">} event */
export function headAt({ target }) {
  const thumb = target instanceof Element ? target.closest(".thumb") : null;
  return thumb instanceof HTMLElement ? Number(thumb.dataset.number) : null;
}

/** @param {Element} element @returns {HTMLElement[]} */
function thumbsIn(element) {
  return [.../** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll(".thumb"))];
}

/** @param {number} number */
export function focusThumbnail(number) {
  thumbsIn(one("overview")).find((thumb) => Number(thumb.dataset.number) === number)?.focus({ preventScroll: true });
}

/**
 * Listens to keys that walk among heads, and to what chooses them: a tick under the mouse, and a finger that stays on a
 * thumbnail; a touch then shows another one with those that are chosen.
 */
export function listenToGrid() {
  const overview = one("overview");
  const touch = { timer: 0, chose: false, touched: false };
  const toggle = (/** @type {number | null} */ number, shows = false) => number !== null && grid.parts?.toggle?.(number, shows);
  overview.addEventListener("keydown", moveAmongHeads);
  overview.addEventListener("pointerdown", (event) => {
    const number = headAt(event);
    Object.assign(touch, { chose: false, touched: event.pointerType === "touch" });
    clearTimeout(touch.timer);
    if (!touch.touched || number === null || !grid.parts?.toggle) return;
    touch.timer = setTimeout(() => {
      touch.chose = true;
      toggle(number);
    }, LONG_TOUCH);
  });
  for (const name of ["pointerup", "pointercancel", "pointermove"]) overview.addEventListener(name, () => clearTimeout(touch.timer));
  overview.addEventListener("contextmenu", (event) => touch.touched && event.preventDefault());
  overview.addEventListener("click", (event) => {
    const chooses = touch.touched && state.chosen.length > 0 && state.head === null && !state.together;
    const isTick = event.target instanceof Element && event.target.matches(".tick");
    if (touch.chose || chooses || isTick) event.stopPropagation(); // the finger that chose goes up
    if (!touch.chose && (chooses || isTick)) toggle(headAt(event), chooses);
  }, { capture: true });
}

/** Arrows walk the grid; left and right also from row to row; Space chooses. @param {KeyboardEvent} event */
function moveAmongHeads(event) {
  const all = thumbsIn(one("overview"));
  const here = all.findIndex((thumb) => thumb === document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey || state.noting) return;
  const toggle = grid.parts?.toggle;
  const inColumn = (/** @type {HTMLElement} */ thumb) => Math.abs(thumb.offsetLeft - all[here].offsetLeft) < 4;
  const next = {
    ArrowRight: all[here + 1],
    ArrowLeft: all[here - 1],
    ArrowDown: all.slice(here + 1).find(inColumn),
    ArrowUp: all.slice(0, here).reverse().find(inColumn),
    Home: all[0],
    End: all[all.length - 1],
    ...(toggle ? { " ": all[here] } : {}),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  grid.walked = Number(next.dataset.number);
  if (event.key === " ") return toggle?.(grid.walked);
  for (const thumb of all) thumb.tabIndex = thumb === next ? 0 : -1;
  next.focus();
}
