/** The picture of a token lens: a row a head, a column a token; where columns are narrower than a pixel, their largest. */

import { keepToken, openHead } from "./actions.js";
import { paintCells, theme } from "./colors.js";
import { MatrixPicture } from "./matrix.js";
import { state } from "./state.js";
import { letters } from "./surface.js";
import { ABSENT } from "./values.js";

/** @import { TokenLens } from "./lens.js" */
/** @import { Area, Mark, Surface } from "./types.js" */

const MIN_ROW = 13; // pixels
const MAX_ROW = 26;

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
    return [Math.min(across, 96), letters.scale * Math.min(MAX_ROW, Math.max(MIN_ROW, down / letters.scale))];
  }

  /** @override @param {number} width @param {number} most */
  measure(width, most) {
    const factor = this.factor;
    this.factor = 1;
    super.measure(width, most);
    this.factor = Math.max(1, Math.min(factor, 96 / this.wide));
    this.wide *= this.factor;
    return { width: this.left + this.shown.columns * this.wide + 2, height: this.top + this.shown.rows * this.tall + 2 };
  }

  /** @override @param {number} factor */
  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.max(1, Math.min(before * factor, (96 * before) / this.wide));
    return this.factor / before;
  }

  /** @override @param {Surface} surface @param {Area} area */
  drawCells(surface, area) {
    const [top, bottom] = this.span("query", area);
    const [left, right] = this.span("key", area);
    const width = Math.max(1, Math.min(right - left, Math.floor((right - left) * this.wide)));
    const values = new Float32Array((bottom - top) * width);
    for (let row = top; row < bottom; row++) {
      const line = this.lens.lineOf(row);
      const out = values.subarray((row - top) * width, (row - top + 1) * width);
      if (line) pool(line, left, right, out);
      else out.fill(ABSENT);
    }
    const seen = (/** @type {number} */ row, /** @type {number} */ pixel) =>
      this.shown.seen(top + row, left + Math.floor((pixel * (right - left)) / width));
    const canvas = paintCells(values, bottom - top, width, this.scale, seen);
    const [x, y] = [this.left + left * this.wide - area.x, this.top + top * this.tall - area.y];
    const [across, down] = [(right - left) * this.wide, (bottom - top) * this.tall];
    const gap = this.lens.heads.length - top;
    surface.rect(x, y, across, Math.min(down, gap * this.tall), theme().absent);
    if (bottom - top > gap + 1) surface.rect(x, y + (gap + 1) * this.tall, across, down - (gap + 1) * this.tall, theme().absent);
    surface.image(canvas, x, y, across, down, true);
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
    if (mark?.head === undefined) return;
    openHead(mark.head, state.view, { query: mark.query, key: mark.key });
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
