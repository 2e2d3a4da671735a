/** A token in all heads: as a map with a row a head and a column a token, or over the images, an image a head. */

import { keepToken, openHead, pointTo } from "./actions.js";
import { cssOf } from "./colors.js";
import { page } from "./data.js";
import { imageInFile, letters, textAt, textWidth } from "./figure.js";
import { MAX_CELL, MatrixPicture } from "./matrix.js";
import { kindOf, shareOn } from "./patch_runs.js";
import { framePatch, paintImage, sizeCanvas, tokenAt, whenRead } from "./patches.js";
import { levelOf, strengthOf } from "./scales.js";
import { state } from "./state.js";
import { elementOf, h, patch } from "./tree.js";
import { ABSENT } from "./values.js";

/** @import { Area, Figure, Mark, ShownImage } from "./types.js" */
/** @import { TokenLens } from "./lens.js" */
/** @import { Tree } from "./tree.js" */

const MIN_ROW = 13; // pixels
const MAX_ROW = 26;
const MAX_WIDTH = 150; // pixels
const MAX_HEIGHT = 110;
const LENS_GAP = 4; // pixels between the images of a head, in a file
const LENS_FILE_GAP = 14; // pixels between heads, in a file
const LENS_CAPTION = { size: 12, height: 18 }; // pixels, in a file
const OPACITY_RANGE = [0.35, 0.8]; // of the colours of the smallest and the largest weight, as in figures

export class LensPicture extends MatrixPicture {
  /** @param {TokenLens} shown */
  constructor(shown) {
    super(shown);
    this.lens = shown;
    this.names = { rows: "heads ↓", columns: shown.axis === "query" ? this.names.columns : "queries →" };
  }

  /** @override */
  get scale() {
    return this.lens.scale;
  }

  /** @override @param {number} across @param {number} down */
  fitting(across, down) {
    return [Math.min(across, MAX_CELL), letters.scale * Math.min(MAX_ROW, Math.max(MIN_ROW, down / letters.scale))];
  }

  /** Columns alone: a row has one height. @override @param {number[]} sides */
  zoomed([wide, tall]) {
    this.factor = Math.max(1, Math.min(this.factor, MAX_CELL / wide));
    return [wide * this.factor, tall];
  }

  /** @override @param {number} factor */
  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.max(1, Math.min(before * factor, (MAX_CELL * before) / this.wide));
    return this.factor / before;
  }

  /** The rows that are seen: those of heads, and below the gap those of layers. @override @param {Area} area @param {number} density */
  partsIn(area, density) {
    const [left, right] = this.span("key", area);
    const [top, bottom] = this.span("query", area);
    const width = Math.max(1, Math.min(right - left, Math.floor((right - left) * this.wide * density)));
    const gap = this.lens.heads.length;
    const groups = [[top, Math.min(bottom, gap)], [Math.max(top, gap + 1), bottom]].filter(([first, end]) => first < end);
    this.drawnParts = groups.map(([first, end]) => {
      const values = new Float32Array((end - first) * width);
      for (let row = first; row < end; row++) {
        const [line, out] = [this.lens.lineOf(row), values.subarray((row - first) * width, (row - first + 1) * width)];
        if (line) pool(line, left, right, out);
        else out.fill(ABSENT);
      }
      return { top: first, bottom: end, left, right, height: end - first, width, values };
    });
    return this.drawnParts;
  }

  /** @override @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const cell = this.cellAt(x, y, area);
    return cell && (cell.key !== null || this.lens.heads[cell.query ?? -1] !== undefined) ? this.lens.markOf(cell) : null;
  }

  /** A head's name opens it; a cell makes its token the second one, which the heads are sorted by. @param {Mark | null} mark */
  click(mark) {
    if (!mark) return;
    const column = this.lens.columnOf(mark);
    if (column === null) return this.open(mark);
    const same = state.pin !== null && this.lens.columnOf(state.pin) === column;
    keepToken(same ? this.lens.markOf({ query: null, key: null }) : { query: mark.query, key: mark.key });
  }

  /** Opens the head of a row, with the token kept. @param {Mark | null} mark */
  open(mark) {
    if (mark?.head !== undefined) openHead(mark.head, state.view, { query: mark.query, key: mark.key });
  }

  /** Returns the place of a row, which is a head or a layer. @param {number} row */
  rowPlace(row) {
    return { x: this.left, y: this.top + row * this.tall, width: this.wide * this.shown.columns, height: this.tall };
  }
}

/** The largest of each pixel's cells by size. @param {Float32Array} line @param {number} left @param {number} right @param {Float32Array} out */
function pool(line, left, right, out) {
  const count = right - left;
  for (let pixel = 0; pixel < out.length; pixel++) {
    const first = left + Math.floor((pixel * count) / out.length);
    const end = Math.max(first + 1, left + Math.floor(((pixel + 1) * count) / out.length));
    let largest = ABSENT;
    for (let place = first; place < end; place++) {
      const value = line[place];
      if (value !== ABSENT && (largest === ABSENT || Math.abs(value) > Math.abs(largest))) largest = value;
    }
    out[pixel] = largest;
  }
}

/** A token over the images in every head: what it looks at, or what looks at it, on one colour scale. */
export class LensImages {
  /** @param {HTMLElement} parent @param {TokenLens} lens of an axis with images */
  constructor(parent, lens) {
    this.lens = lens;
    /** @type {ShownImage[]} */
    this.images = lens.tokens.images ?? [];
    /** @type {Map<number, HTMLCanvasElement[]>} by head, one for each image */
    this.canvases = new Map();
    /** @type {string[]} what is said of each head, in the order of the lens */
    this.captions = [];
    this.element = elementOf(h("div", { class: "lens-images" }));
    parent.append(this.element);
    for (const image of this.images) whenRead(image, () => this.draw());
  }

  /** Paints every head in the order of the lens. */
  draw() {
    this.captions = this.lens.heads.map((number, row) => this.paint(number, row));
    patch(this.element, this.lens.heads.map((number, row) =>
      h("button", { key: number, type: "button", onclick: () => openHead(number) }, h("span", { class: "patches-images" }, ...this.canvasesOf(number)), h("span", {}, this.captions[row]))));
  }

  /** @param {number} number */
  canvasesOf(number) {
    const known = this.canvases.get(number) ?? this.images.map((image) => {
      const point = (/** @type {PointerEvent} */ event) => event.pointerType !== "touch" && pointTo(this.markOf(number, tokenAt(image, event)));
      const canvas = /** @type {HTMLCanvasElement} */ (elementOf(h("canvas", { class: "patches-image", onpointermove: point, onpointerleave: () => pointTo(null) })));
      const width = Math.min(MAX_WIDTH, (MAX_HEIGHT * image.width) / image.height);
      sizeCanvas(canvas, width, (width * image.height) / image.width);
      return canvas;
    });
    this.canvases.set(number, known);
    return known;
  }

  /** The mark of a patch in a head; null beside the patches. @param {number} number @param {number | null} token @returns {Mark | null} */
  markOf(number, token) {
    if (token === null) return null;
    const { axis, place } = this.lens;
    return axis === "query" ? { query: place, key: token, head: number } : { query: token, key: place, head: number };
  }

  /** Paints the images of a head; returns what is said of it. @param {number} number @param {number} row of the lens */
  paint(number, row) {
    const { lens } = this;
    const { scale } = lens;
    const line = lens.tokenLine(row);
    this.canvasesOf(number).forEach((canvas, place) => {
      const image = this.images[place];
      paintImage(canvas, image, (token) => {
        const value = line ? line[token] : ABSENT;
        if (value === ABSENT || Number.isNaN(value)) return { color: "", opacity: 0 };
        const level = levelOf(value, scale, lens.seen(row, token));
        return { color: cssOf(level, scale), opacity: OPACITY_RANGE[0] + (OPACITY_RANGE[1] - OPACITY_RANGE[0]) * strengthOf(level, scale) };
      });
      const own = lens.token === lens.tokens ? image.tokens.indexOf(lens.place) : -1;
      if (own >= 0) framePatch(canvas, image, own);
    });
    return [page.heads[number].name, line ? this.shareText(line) : ""].filter(Boolean).join(" · ");
  }

  /** All heads in rows of so many pixels, those too that are scrolled away. @param {number} width @returns {Figure} */
  figure(width) {
    /** @type {Tree[]} */
    const tree = [];
    let [x, y, next] = [0, 0, 0];
    this.lens.heads.forEach((number, row) => {
      const [said, canvases] = [this.captions[row], this.canvasesOf(number)];
      const sizes = canvases.map(({ style }) => [parseFloat(style.width), parseFloat(style.height)]);
      const across = Math.max(sizes.reduce((sum, [wide]) => sum + wide + LENS_GAP, -LENS_GAP), textWidth(said, LENS_CAPTION.size));
      const down = Math.max(...sizes.map(([, high]) => high));
      if (x && x + across > width) [x, y] = [0, next];
      let left = x;
      canvases.forEach((canvas, place) => {
        tree.push(imageInFile(canvas, { x: left, y, width: sizes[place][0], height: sizes[place][1] }, "photo"));
        left += sizes[place][0] + LENS_GAP;
      });
      tree.push(textAt(said, x, y + down + LENS_CAPTION.height / 2, { size: LENS_CAPTION.size, color: "var(--soft)" }));
      x += across + LENS_FILE_GAP;
      next = Math.max(next, y + down + LENS_CAPTION.height + LENS_FILE_GAP);
    });
    return { tree, width, height: next };
  }

  /** The share of a query's row on the images; "" if the line is no such row. @param {Float32Array} line */
  shareText(line) {
    if (this.lens.axis === "key" || state.side === "change" || state.of !== "weight" || page.block > 1) return "";
    const share = this.images.reduce((sum, { tokens }) => sum + shareOn(line, tokens), 0);
    return `${Math.round(100 * share)}% on ${kindOf(this.images[0])}${this.images.length > 1 ? "s" : ""}`;
  }
}
