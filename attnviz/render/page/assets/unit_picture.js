/** The matrix of units: it is pointed at by units, and what is marked are their tokens. */

import { MatrixPicture } from "./matrix.js";
import { cellNumber } from "./quantities.js";

/** @import { UnitShown } from "./units.js" */
/** @import { Area, Mark, Surface } from "./types.js" */

export class UnitPicture extends MatrixPicture {
  /** @param {UnitShown} shown @param {() => void} redraw */
  constructor(shown, redraw) {
    super(shown, redraw);
    this.units = shown;
    this.source = shown.source;
  }

  /** @override @param {number} query */
  rowOf(query) {
    return this.units.rowUnits.unitOf(query);
  }

  /** @override @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const cell = this.cellAt(x, y, area);
    return cell && this.units.marked(cell);
  }

  /** @override @param {Surface} surface @param {Area} area @param {Mark} mark @param {string} color */
  drawMark(surface, area, mark, color) {
    super.drawMark(surface, area, this.units.cellOf(mark), color);
  }

  /** @override @param {Mark} mark */
  placeOf(mark) {
    return super.placeOf(this.units.cellOf(mark));
  }

  /** Returns the mark to which an arrow key moves a mark. @param {Mark} mark @param {number} down @param {number} right @returns {Mark} */
  moved(mark, down, right) {
    const { query, key } = this.units.cellOf(mark);
    const within = (/** @type {number} */ place, /** @type {number} */ count) => Math.min(count - 1, Math.max(0, place));
    return this.units.marked({ query: within((query ?? 0) + down, this.units.rows), key: within((key ?? 0) + right, this.units.columns) });
  }

  /** Returns the lines of the tip on a mark. @param {Mark} mark */
  tells(mark) {
    const { query, key } = this.units.cellOf(mark);
    if (mark.query === null || mark.key === null || query === null || key === null) return [];
    const pair = `${this.units.queries.labels[query]} → ${this.units.keys.labels[key]}`;
    return [pair, cellNumber(this.units, query, key)];
  }
}
