/** The arcs: queries in a column at the left, keys at the right, a line for each weight worth seeing. */

import { theme } from "./colors.js";
import { scaleUpTo } from "./head_scales.js";
import { highOfAll, topOf } from "./moved.js";
import { hueOf, strengthOf } from "./scales.js";
import { sideNumber, state } from "./state.js";
import { fitText, letters, longest } from "./surface.js";
import { strongestCells } from "./values.js";

/** @import { Area, Axis, Mark, Picture, Scale, Shown, Surface } from "./types.js" */

/** @typedef {{ query: number, key: number, value: number }} Line */

const MAX_ARCS = 1200;
const MAX_ARC_WIDTH = 3.5;
const MIN_ARC_WIDTH = 0.6;
const MIN_ZOOM = 0.6;
const MAX_ZOOM = 2.5;

/** @implements {Picture} */
export class ArcsPicture {
  /** @param {Shown} shown */
  constructor(shown) {
    this.shown = shown;
    this.factor = 1;
    this.lines = linesOfHead(shown);
    this.top = 30;
    this.step = this.wide = this.margin = 0; // pixels from token to token, of all, and beside it
    this.from = this.to = 0; // where the lines begin and end
  }

  get dimmed() {
    return Boolean(state.mark || state.pin);
  }

  /** @param {number} width @param {number} most */
  measure(width, most) {
    const { queries, keys, rows, columns } = this.shown;
    const tallest = Math.max(rows, columns);
    const fitting = letters.scale * Math.min(30, Math.max(17, (most - this.top - 10) / tallest / letters.scale));
    this.factor = Math.min(Math.max(this.factor, MIN_ZOOM), MAX_ZOOM);
    this.step = fitting * this.factor;
    this.wide = Math.min(width, 760);
    this.margin = Math.floor((width - this.wide) / 2);
    const side = this.wide * 0.34;
    this.from = this.margin + Math.min(side, Math.max(letters.scale * longest(queries.labels) + 22, 70));
    this.to = this.margin + this.wide - Math.min(side, Math.max(letters.scale * longest(keys.labels) + 22, 70));
    return { width, height: this.top + tallest * this.step + 8 };
  }

  get fixed() {
    return { left: 0, top: this.top };
  }

  /** @param {number} factor */
  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, before * factor));
    return this.factor / before;
  }

  /** The middle of a token. @param {number} number @param {Area} area */
  height(number, area) {
    return this.top + (number + 0.5) * this.step - area.y;
  }

  /** Of weights, also where colours are of lift: a line is as wide as its weight. @returns {Scale} */
  get scale() {
    const { scale, number } = this.shown;
    if (scale.steps !== "lift" || scale.change) return scale;
    return { ...scale, low: 0, high: state.limits === "head" ? topOf(number, sideNumber()) : highOfAll(), steps: "sqrt" };
  }

  /** The strongest last, over the others. @param {Surface} surface @param {Area} area */
  draw(surface, area) {
    surface.clip(0, this.top, area.width, area.height - this.top, () => {
      for (let place = this.lines.length - 1; place >= 0; place--) {
        this.drawLine(surface, area, this.lines[place], this.scale, 0.75);
      }
    });
  }

  /**
   * @param {Surface} surface
   * @param {Area} area
   * @param {Line} line
   * @param {Scale} scale
   * @param {number} strongest
   * @param {string} hue
   */
  drawLine(surface, area, { query, key, value }, scale, strongest, hue = "") {
    const [start, stop] = [this.height(query, area), this.height(key, area)];
    if (Math.max(start, stop) < 0 || Math.min(start, stop) > area.height) return;
    const part = strengthOf(value, scale);
    const color = hue || theme()[hueOf(value, scale)];
    const thick = MIN_ARC_WIDTH + (MAX_ARC_WIDTH - MIN_ARC_WIDTH) * part;
    surface.arc(this.from + 4, start, this.to - 4, stop, color, thick, strongest * part);
  }

  /** @param {Surface} surface @param {Area} area */
  drawOver(surface, area) {
    surface.clip(0, this.top, area.width, area.height - this.top, () => {
      for (const mark of [state.pin, state.mark]) {
        if (mark) this.drawLinesOf(surface, area, mark);
      }
      this.drawColumn(surface, area, "query", this.from, "right");
      this.drawColumn(surface, area, "key", this.to, "left");
    });
    const faint = { size: 11, color: theme().soft };
    surface.text("queries", this.from, 10, { ...faint, align: "right" });
    surface.text("keys", this.to, 10, faint);
  }

  /** Draws the lines of a token alone. @param {Surface} surface @param {Area} area @param {Mark} mark */
  drawLinesOf(surface, area, mark) {
    const lines = linesOfToken(this.shown, mark).filter(({ value }) => strengthOf(value, this.scale) > 0);
    const { steps } = this.scale;
    const scale = { ...scaleUpTo(lines.length ? Math.abs(lines[0].value) : 0), steps };
    for (const line of lines) this.drawLine(surface, area, line, scale, 1);
  }

  /**
   * @param {Surface} surface
   * @param {Area} area
   * @param {Axis} axis
   * @param {number} x
   * @param {"left" | "right"} align
   */
  drawColumn(surface, area, axis, x, align) {
    const { labels } = axis === "query" ? this.shown.queries : this.shown.keys;
    const size = letters.scale * Math.min(14, Math.max(11, (this.step * 0.58) / letters.scale));
    const room = (align === "right" ? this.from - this.margin : this.margin + this.wide - this.to) - 10;
    const first = Math.max(0, Math.floor(area.y / this.step) - 1);
    const last = Math.min(labels.length, Math.ceil((area.y + area.height) / this.step));
    for (let place = first; place < last; place++) {
      const chosen = state.pin?.[axis] === place || state.mark?.[axis] === place;
      const style = { size, align, color: chosen ? theme().accent : theme().ink, weight: chosen ? 650 : 400 };
      surface.text(fitText(labels[place], size, room), x, this.height(place, area), style);
    }
  }

  /** @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const place = Math.floor((y - this.top + area.y) / this.step);
    const middle = (this.from + this.to) / 2;
    const axis = x < middle ? "query" : "key";
    const count = axis === "query" ? this.shown.rows : this.shown.columns;
    if (y < this.top || place < 0 || place >= count) return null;
    return axis === "query" ? { query: place, key: null } : { query: null, key: place };
  }

  /** @param {Mark} mark */
  placeOf(mark) {
    const number = mark.query ?? mark.key ?? 0;
    return { x: 0, y: this.top + number * this.step, width: 1, height: this.step };
  }

  get note() {
    if (!this.shown.values) return "For a text this long, only the arcs of one token are drawn: point at a token, or find it.";
    const all = this.shown.values.length;
    if (this.lines.length < MAX_ARCS) {
      return "The wider and stronger a line, the larger its weight. Point at a token for its own lines alone, the widest for its largest weight.";
    }
    const counts = `The ${MAX_ARCS.toLocaleString("en")} strongest of ${all.toLocaleString("en")} weights`;
    return `${counts}, wider and stronger the larger they are; point at a token for all of its lines, the widest for its largest weight.`;
  }
}

/**
 * The strongest lines of a head; none where its weights are computed.
 *
 * @param {Shown} shown
 * @returns {Line[]}
 */
export function linesOfHead({ values, columns }) {
  if (!values) return [];
  return strongestCells(values, MAX_ARCS).map((cell) => {
    return { query: Math.floor(cell / columns), key: cell % columns, value: values[cell] };
  });
}

/**
 * The strongest lines of a token, as a query or as a key.
 *
 * @param {Shown} shown
 * @param {Mark} mark
 * @returns {Line[]}
 */
export function linesOfToken(shown, { query, key }) {
  if (query !== null && key !== null) return [{ query, key, value: shown.at(query, key) }];
  const place = query ?? key ?? 0;
  const values = shown.line(query !== null ? "query" : "key", place);
  return strongestCells(values, MAX_ARCS).map((other) => {
    const line = query !== null ? { query, key: other } : { query: other, key: place };
    return { ...line, value: values[other] };
  });
}
