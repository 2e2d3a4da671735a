/** Many heads beside what is open, as one canvas: a thumbnail each would be painted again whenever the pointer moves. */

import { openHead, step } from "./actions.js";
import { contextOf, newCanvas, theme } from "./colors.js";
import { headTitle, page } from "./data.js";
import { fitThumbnails } from "./thumbnails.js";
import { make, one } from "./elements.js";
import { state } from "./state.js";

const MANY_HEADS = 200;
const HEAD_GAP = 1; // pixels between heads
const MAX_SIDE = 24; // pixels of a head

/** @typedef {{ number: number, x: number, y: number }} PlacedHead */
/** @typedef {(number: number) => HTMLCanvasElement} PaintHead */

const small = {
  /** @type {PlacedHead[]} */
  placed: [],
  /** @type {HTMLCanvasElement | null} heads alone, without the frame of the open one */
  painted: null,
  canvas: make("canvas", { className: "small-overview", tabIndex: 0 }),
  side: 0,
  name: "",
};

/** True if the heads beside what is open are one canvas. */
export function isOneCanvas() {
  return page.heads.length > MANY_HEADS;
}

/** Draws heads beside what is open, or nothing. @param {boolean} open @param {string} name of everything that they show @param {number[]} order @param {() => PaintHead} painter */
export function drawSmallOverview(open, name, order, painter) {
  if (!small.canvas.onclick) listen();
  small.canvas.hidden = !open;
  if (!open) return;
  if (small.canvas.parentElement !== one("side")) one("side").prepend(small.canvas);
  const width = one("side").clientWidth || 240;
  if (small.name !== `${name} ${width}`) paintHeads(order, width, painter);
  small.name = `${name} ${width}`;
  frameHeads();
}

/** @param {number[]} order @param {number} width @param {() => PaintHead} painter */
function paintHeads(order, width, painter) {
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
  const paint = painter();
  for (const { number, x, y } of small.placed) context.drawImage(paint(number), x, y, small.side, small.side);
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
    if (head !== null) openHead(head);
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
