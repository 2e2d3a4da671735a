/** The matrix: a row for each query, a column for each key, labels that stay while the cells scroll. */

import { paintCells, rgbOf, theme } from "./colors.js";
import { cellText } from "./formatting.js";
import { inkOn } from "./scales.js";
import { state } from "./state.js";
import { fitText, longest, textWidth } from "./surface.js";
import { ABSENT } from "./values.js";

/** @import { Area, Axis, Mark, Picture, Shown, Surface, Text } from "./types.js" */

const MAX_CELL = 72;
const MIN_CELL = 0.004;
export const MIN_NUMBER_CELL = 38; // pixels from which on a cell shows its number
export const LABEL_STEP = 13; // pixels that a label needs
const MAX_ZOOMED_CELL = 96;

/** @implements {Picture} */
export class MatrixPicture {
  /** @param {Shown} shown */
  constructor(shown) {
    this.shown = shown;
    this.factor = 1;
    this.cell = 1; // pixels a side
    this.left = this.top = this.margin = 0;
    this.across = false; // whether column labels are written across
    /** @type {HTMLCanvasElement | null} */
    this.canvas = null;
  }

  get dimmed() {
    return false;
  }

  /** @param {number} width @param {number} most */
  measure(width, most) {
    const { queries, keys, rows, columns } = this.shown;
    const side = Math.min(150, width * 0.28);
    this.left = Math.ceil(Math.max(Math.min(side, longest(queries.labels)) + 14, textWidth("queries ↓", 11) + 12));
    const forLabels = Math.min(130, longest(keys.labels));
    const room = [(width - this.left - 2) / columns, (most - forLabels - 40) / rows, MAX_CELL];
    const fitting = Math.max(Math.min(...room), MIN_CELL);
    this.factor = Math.min(Math.max(this.factor, 1), Math.max(1, MAX_ZOOMED_CELL / fitting));
    this.cell = fitting * this.factor;
    this.across = this.cell >= forLabels + 8;
    this.top = Math.ceil((this.across ? 16 : forLabels) + 30);
    this.margin = Math.max(0, Math.floor((width - this.left - columns * this.cell) / 2));
    this.margin = this.factor === 1 ? Math.min(this.margin, 40) : 0;
    this.left += this.margin;
    return { width: this.left + columns * this.cell + 2, height: this.top + rows * this.cell + 2 };
  }

  get fixed() {
    return { left: this.left, top: this.top };
  }

  /** @param {number} factor */
  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.max(1, before * factor);
    const unit = this.cell / before;
    this.factor = Math.min(this.factor, Math.max(1, MAX_ZOOMED_CELL / unit));
    return this.factor / before;
  }

  /** The picture of the cells, painted once and only stretched afterwards. */
  painted() {
    const { values, rows, columns, scale } = this.shown;
    this.canvas ??= paintCells(values ?? new Float32Array(0), rows, columns, scale);
    return this.canvas;
  }

  /** @param {Surface} surface @param {Area} area */
  draw(surface, area) {
    const { rows, columns } = this.shown;
    const { left, top, cell } = this;
    surface.clip(left, top, area.width - left, area.height - top, () => {
      const [x, y] = [left - area.x, top - area.y];
      surface.rect(x, y, columns * cell, rows * cell, theme().absent);
      surface.image(this.painted(), x, y, columns * cell, rows * cell);
      if (cell >= MIN_NUMBER_CELL) this.drawNumbers(surface, area);
    });
    this.drawLabels(surface, area);
  }

  /** The first and the end of the cells that are seen. @param {Axis} axis @param {Area} area */
  span(axis, area) {
    const [scroll, room, count, fixed] =
      axis === "query"
        ? [area.y, area.height, this.shown.rows, this.top]
        : [area.x, area.width, this.shown.columns, this.left];
    const first = Math.max(0, Math.floor(scroll / this.cell));
    return [first, Math.min(count, Math.ceil((scroll + room - fixed) / this.cell))];
  }

  /** @param {Surface} surface @param {Area} area */
  drawNumbers(surface, area) {
    const { scale } = this.shown;
    const [firstRow, lastRow] = this.span("query", area);
    const [firstColumn, lastColumn] = this.span("key", area);
    const size = Math.min(15, this.cell * 0.27);
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        const value = this.shown.at(row, column);
        if (value === ABSENT) continue;
        const text = Number.isNaN(value) ? "NaN" : cellText(value, scale);
        const [x, y] = [this.left + (column + 0.5) * this.cell - area.x, this.top + (row + 0.5) * this.cell - area.y];
        surface.text(text, x, y, { size, align: "center", color: inkOn(rgbOf(value, scale)) });
      }
    }
  }

  /** @param {Surface} surface @param {Area} area */
  drawLabels(surface, area) {
    const { queries, keys } = this.shown;
    const faint = { size: 11, color: theme().soft };
    surface.text("keys →", this.left, 9, faint);
    surface.text("queries ↓", this.left - 10, 9, { ...faint, align: "right" });
    const { every } = this;
    const [firstRow, lastRow] = this.span("query", area);
    surface.clip(0, this.top - 7, this.left, area.height - this.top + 7, () => {
      for (let row = Math.ceil(firstRow / every) * every; row < lastRow; row += every) {
        this.drawRowLabel(surface, area, row, this.labelOf(queries, row, every), theme().ink);
      }
    });
    const [firstColumn, lastColumn] = this.span("key", area);
    surface.clip(this.left - 7, 16, area.width - this.left + 7, this.top - 16, () => {
      for (let column = Math.ceil(firstColumn / every) * every; column < lastColumn; column += every) {
        this.drawColumnLabel(surface, area, column, this.labelOf(keys, column, every), theme().ink);
      }
    });
  }

  /** Tokens from one label to the next. */
  get every() {
    return Math.ceil(LABEL_STEP / this.cell);
  }

  /** @param {Text} text @param {number} place @param {number} _every @returns {string} */
  labelOf(text, place, _every) {
    return text.labels[place];
  }

  get size() {
    return Math.min(13, Math.max(10, this.cell * 0.7));
  }

  /**
   * @param {Surface} surface
   * @param {Area} area
   * @param {number} row
   * @param {string} label
   * @param {string} color
   * @param {number} weight
   */
  drawRowLabel(surface, area, row, label, color, weight = 400) {
    const y = this.top + (row + 0.5) * this.cell - area.y;
    const text = fitText(label, this.size, this.left - this.margin - 12);
    surface.text(text, this.left - 8, y, { size: this.size, align: "right", color, weight });
  }

  /**
   * @param {Surface} surface
   * @param {Area} area
   * @param {number} column
   * @param {string} label
   * @param {string} color
   * @param {number} weight
   */
  drawColumnLabel(surface, area, column, label, color, weight = 400) {
    const x = this.left + (column + 0.5) * this.cell - area.x;
    const style = { size: this.size, color, weight };
    if (this.across) surface.text(label, x, this.top - 12, { ...style, align: "center" });
    else surface.text(fitText(label, this.size, this.top - 24), x, this.top - 7, { ...style, turned: -90 });
  }

  /**
   * The chosen token's row and column, and the cell that is pointed at.
   *
   * @param {Surface} surface
   * @param {Area} area
   */
  drawOver(surface, area) {
    if (state.pin) this.drawMark(surface, area, state.pin, theme().accent);
    if (state.mark) this.drawMark(surface, area, state.mark, theme().ink);
  }

  /** @param {Surface} surface @param {Area} area @param {Mark} mark @param {string} color */
  drawMark(surface, area, mark, color) {
    const { rows, columns, queries, keys } = this.shown;
    const { left, top, cell } = this;
    const thick = Math.max(cell, 2);
    const [x, y] = [left + (mark.key ?? 0) * cell - area.x, top + (mark.query ?? 0) * cell - area.y];
    surface.clip(left - 2, top - 2, area.width - left + 2, area.height - top + 2, () => {
      const [asQuery, asKey] = [mark.query !== null, mark.key !== null];
      if (asQuery) this.drawBand(surface, left - area.x, y, columns * cell, thick, color, !asKey);
      if (asKey) this.drawBand(surface, x, top - area.y, thick, rows * cell, color, !asQuery);
      if (asQuery && asKey) surface.frame(x, y, thick, thick, color, 2.5);
    });
    if (mark.query !== null && y + cell > top - 1 && y < area.height) {
      const middle = y + cell / 2;
      surface.rect(0, middle - 9, left - 3, 18, theme().paper);
      this.drawRowLabel(surface, area, mark.query, queries.labels[mark.query], theme().accent, 650);
    }
    if (mark.key !== null && x + cell > left - 1 && x < area.width) {
      const middle = x + cell / 2;
      const half = this.across ? Math.min(cell, textWidth(keys.labels[mark.key], this.size, 650) + 8) / 2 : 9;
      surface.rect(middle - half, 17, 2 * half, top - 19, theme().paper);
      this.drawColumnLabel(surface, area, mark.key, keys.labels[mark.key], theme().accent, 650);
    }
  }

  /**
   * A row or a column: framed where cells are large, a veil where they are small.
   *
   * @param {Surface} surface
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {string} color
   * @param {boolean} alone
   */
  drawBand(surface, x, y, width, height, color, alone) {
    if (this.cell >= 6) surface.frame(x, y, width, height, color, alone ? 2 : 1);
    else surface.rect(x, y, width, height, color, alone ? 0.8 : 0.45);
  }

  /** @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const row = Math.floor((y - this.top + area.y) / this.cell);
    const column = Math.floor((x - this.left + area.x) / this.cell);
    const query = y >= this.top && row >= 0 && row < this.shown.rows ? row : null;
    const key = x >= this.left && column >= 0 && column < this.shown.columns ? column : null;
    const beyond = x > this.left + this.shown.columns * this.cell || y > this.top + this.shown.rows * this.cell;
    return beyond || (query === null && key === null) ? null : { query, key };
  }

  /** @param {Mark} mark */
  placeOf(mark) {
    const { cell, left, top } = this;
    return { x: left + (mark.key ?? 0) * cell, y: top + (mark.query ?? 0) * cell, width: cell, height: cell };
  }
}
