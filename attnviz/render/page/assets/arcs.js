/** The arcs: queries in a column at the left, keys at the right, a line for each weight worth seeing, of several heads each in its hue. */

import { clipped, FAINT, fitText, letters, longest, moved, short, textAt } from "./figure.js";
import { hueOf, strengthOf } from "./scales.js";
import { highOfAll, scaleUpTo, topOf } from "./shown.js";
import { sideNumber, state } from "./state.js";
import { HUES } from "./together.js";
import { h } from "./tree.js";
import { strongestCells } from "./values.js";

/** @import { Area, Axis, Mark, Picture, Scale, Shown } from "./types.js" */
/** @import { Tree } from "./tree.js" */

/** @typedef {{ query: number, key: number, value: number }} Line */

const MAX_ARCS = 1200;
const MANY_LINES = 300; // of a token, which are drawn in so many steps of strength
const STRENGTHS = 32;
const MAX_ARC_WIDTH = 3.5;
const MIN_ARC_WIDTH = 0.6;
const MIN_ZOOM = 0.6;
const MAX_ZOOM = 2.5;

/** @implements {Picture} */
export class ArcsPicture {
  /** @param {Shown} shown */
  constructor(shown) {
    this.shown = shown;
    this.overlaid = shown.all ?? [];
    this.factor = 1;
    /** @type {Line[][]} the strongest lines of each head; none where weights are computed */
    this.linesOfAll = (shown.all ?? [shown]).map(({ values, columns }) => {
      const cells = values ? strongestCells(values, MAX_ARCS) : [];
      return cells.map((cell) => ({ query: Math.floor(cell / columns), key: cell % columns, value: values?.[cell] ?? 0 }));
    });
    this.top = 30;
    this.step = this.wide = this.margin = 0; // pixels from token to token, of all, and beside it
    this.from = this.to = 0; // where the lines begin and end
    /** @type {{ look: string, lines: Tree[] }} as they were laid out last */
    this.laidOut = { look: "", lines: [] };
  }

  /** A copy that is laid out for a file, which leaves the screen as it is. @returns {ArcsPicture} */
  inFile() {
    return Object.assign(Object.create(ArcsPicture.prototype), this);
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

  /** Lays the lines out so that in so many pixels the same tokens are seen. @param {Area} area @param {number} width @param {number} most @returns {Area} */
  partFor(area, width, most) {
    const { step } = this;
    this.measure(width, most);
    return { x: 0, y: (area.y / step) * this.step, width, height: this.top + ((area.height - this.top) / step) * this.step };
  }

  /** Of weights, also where colours are of lift: a line is as wide as its weight. @returns {Scale} */
  get scale() {
    const { scale, number } = this.shown;
    if (scale.steps !== "lift" || scale.change) return scale;
    return { ...scale, low: 0, high: state.limits === "head" ? topOf(number, sideNumber()) : highOfAll(), steps: "sqrt" };
  }

  images() {
    return [];
  }

  /** The lines of all tokens, the strongest last, over the others. @param {Area} area */
  base(area) {
    const { scale } = this;
    const look = JSON.stringify([scale, this.step, this.from, this.to]);
    if (look !== this.laidOut.look) this.laidOut = { look, lines: this.linesOf(this.linesOfAll, scale, 0.75) };
    return [clipped({ x: 0, y: this.top, width: area.width, height: area.height - this.top }, moved(0, -area.y, ...this.laidOut.lines))];
  }

  /** Lines as elements, of several heads in turn, so that no head lies over all others. @param {Line[][]} linesOfAll each with the strongest first @param {Scale} scale @param {number} strongest opacity @param {number} [steps] of strength, if the lines of one are an element */
  linesOf(linesOfAll, scale, strongest, steps = 0) {
    const middle = short((this.from + this.to) / 2);
    const y = (/** @type {number} */ place) => short(this.top + (place + 0.5) * this.step);
    /** @type {Tree[]} */
    const found = [];
    const last = { part: -1, stroke: "" };
    for (let place = Math.max(...linesOfAll.map((lines) => lines.length)) - 1; place >= 0; place--) {
      linesOfAll.forEach((lines, head) => {
        if (!lines[place]) return;
        const { query, key, value } = lines[place];
        const strength = strengthOf(value, scale);
        const part = steps ? Math.ceil(steps * strength) / steps : strength;
        const stroke = this.overlaid.length ? HUES[head] : `var(--${hueOf(value, scale)})`;
        const d = `M${short(this.from + 4)} ${y(query)}C${middle} ${y(query)} ${middle} ${y(key)} ${short(this.to - 4)} ${y(key)}`;
        if (steps && part === last.part && stroke === last.stroke) {
          found[found.length - 1].properties.d += d;
          return;
        }
        Object.assign(last, { part, stroke });
        found.push(h("path", {
          d,
          fill: "none",
          stroke,
          "stroke-width": MIN_ARC_WIDTH + (MAX_ARC_WIDTH - MIN_ARC_WIDTH) * part,
          "stroke-opacity": Math.round(1000 * strongest * part) / 1000,
        }));
      });
    }
    return found;
  }

  /** The lines of what is marked, and the tokens: those that are marked stand out. @param {Area} area */
  marks(area) {
    const lines = [state.pin, state.mark].flatMap((mark) => (mark ? this.linesOfMark(mark) : []));
    return [
      clipped({ x: 0, y: this.top, width: area.width, height: area.height - this.top }, moved(0, -area.y, ...lines, ...this.column("query", area), ...this.column("key", area))),
      textAt("queries", this.from, 10, { ...FAINT, align: "end" }),
      textAt("keys", this.to, 10, FAINT),
    ];
  }

  /** The lines of a token alone, up to its largest weight in any head. @param {Mark} mark */
  linesOfMark(mark) {
    const { scale } = this;
    const linesOfAll = (this.shown.all ?? [this.shown]).map((shown) => linesOfToken(shown, mark).filter(({ value }) => strengthOf(value, scale) > 0));
    const high = Math.max(0, ...linesOfAll.map(([strongest]) => Math.abs(strongest?.value ?? 0)));
    const isMany = linesOfAll.some((lines) => lines.length > MANY_LINES);
    return this.linesOf(linesOfAll, { ...scaleUpTo(high), steps: scale.steps }, 1, isMany ? STRENGTHS : 0);
  }

  /** The tokens of an axis that are seen. @param {Axis} axis @param {Area} area */
  column(axis, area) {
    const { labels } = axis === "query" ? this.shown.queries : this.shown.keys;
    const size = letters.scale * Math.min(14, Math.max(11, (this.step * 0.58) / letters.scale));
    const [x, room] = axis === "query" ? [this.from, this.from - this.margin - 10] : [this.to, this.margin + this.wide - this.to - 10];
    const first = Math.max(0, Math.floor(area.y / this.step) - 1);
    const marked = [state.pin, state.mark].map((mark) => mark && this.shown.cellOf(mark)[axis]);
    return labels.slice(first, Math.ceil((area.y + area.height) / this.step)).map((label, place) => {
      const isMarked = marked.includes(first + place);
      /** @type {"start" | "end"} */
      const align = axis === "query" ? "end" : "start";
      const style = { size, align, color: `var(--${isMarked ? "accent" : "ink"})`, weight: isMarked ? 650 : 400 };
      return textAt(fitText(label, size, room), x, this.top + (first + place + 0.5) * this.step, { ...style, key: `${axis} ${first + place}` });
    });
  }

  /** @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const place = Math.floor((y - this.top + area.y) / this.step);
    const axis = x < (this.from + this.to) / 2 ? "query" : "key";
    const count = axis === "query" ? this.shown.rows : this.shown.columns;
    if (y < this.top || place < 0 || place >= count) return null;
    return this.shown.markOf(axis === "query" ? { query: place, key: null } : { query: null, key: place });
  }

  /** @param {Mark} mark */
  placeOf(mark) {
    const { query, key } = this.shown.cellOf(mark);
    const number = query ?? key ?? 0;
    return { x: 0, y: this.top + number * this.step, width: 1, height: this.step };
  }

  get note() {
    if (this.overlaid.length) {
      return `The wider and stronger a line, the larger its weight, in the hue of its head. ${state.pin ? "The widest is this token’s largest weight." : "Point at a token for its own lines alone."}`;
    }
    if (!this.shown.values) return "For a text this long, only the arcs of one token are drawn: point at a token, or find it.";
    if (this.linesOfAll[0].length < MAX_ARCS) {
      return "The wider and stronger a line, the larger its weight. Point at a token for its own lines alone, the widest for its largest weight.";
    }
    const counts = `The ${MAX_ARCS.toLocaleString("en")} strongest of ${this.shown.values.length.toLocaleString("en")} weights`;
    return `${counts}, wider and stronger the larger they are; point at a token for all of its lines, the widest for its largest weight.`;
  }
}

/** The strongest lines of a token, as a query or as a key. @param {Shown} shown @param {Mark} mark @returns {Line[]} */
function linesOfToken(shown, mark) {
  const { query, key } = shown.cellOf(mark);
  if (query !== null && key !== null) return [{ query, key, value: shown.at(query, key) }];
  const place = query ?? key ?? 0;
  const values = shown.line(query !== null ? "query" : "key", place);
  return strongestCells(values, MAX_ARCS).map((other) => {
    const line = query !== null ? { query, key: other } : { query: other, key: place };
    return { ...line, value: values[other] };
  });
}
