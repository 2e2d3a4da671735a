/** A token in all heads as a map: a row for each head, a column for each token. */

import { keepToken, openHead } from "./actions.js";
import { letters } from "./figure.js";
import { MAX_CELL, MatrixPicture } from "./matrix.js";
import { state } from "./state.js";
import { ABSENT } from "./values.js";

/** @import { Area, Mark } from "./types.js" */
/** @import { TokenLens } from "./lens.js" */

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
