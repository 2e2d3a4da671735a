/** The matrix: a row for each query, a column for each key, labels that stay while the cells scroll. */

import { paintCells, rgbOf, theme } from "./colors.js";
import { drawEnvelope, drawHeardWords, drawSeconds } from "./envelope.js";
import { cellText, decimalsOf } from "./formatting.js";
import { page } from "./data.js";
import { liftScaleOf } from "./head_scales.js";
import { pooledCells } from "./pooling.js";
import { inkOn } from "./scales.js";
import { cellAt, extentOf, startOf, secondTicks } from "./seconds.js";
import { state } from "./state.js";
import { fitText, letters, longest, textWidth } from "./surface.js";
import { ABSENT } from "./values.js";

/** @import { Area, Axis, Mark, PaintedPart, Picture, Pooled, Scale, Shown, Surface, Text } from "./types.js" */

const MAX_CELL = 96;
const MIN_CELL = 0.004;
const MAX_RATIO = 1.8; // of a cell's width to its height, either way
const MIN_NUMBER_HEIGHT = 17; // pixels from which on a cell may show its number
const MIN_NUMBER_WIDTH = 24;
const MAX_WRITTEN_ZEROS = 100; // cells, above which a number that rounds to 0 is left out, so that the others stand out
export const LABEL_STEP = 12; // pixels that a label needs
const MAX_ZOOMED_CELL = 96;
const MIN_SOUND_ROW = 9; // pixels of a row over a sound, whose cells are narrow
const MAX_SOUND_ROW = 26;
const ENVELOPE = 34; // pixels of the envelope above a map
const SECONDS = 16; // pixels of the line of seconds

/** @implements {Picture} */
export class MatrixPicture {
  /** @param {Shown} shown @param {() => void} redraw called when other pixels, or another scale, are to be drawn */
  constructor(shown, redraw = () => {}) {
    this.shown = shown;
    this.redraw = redraw;
    /** @type {MatrixPicture[]} pictures side by side, which share a scale */
    this.peers = [this];
    this.factor = 1;
    this.wide = this.tall = 1; // pixels of a cell
    this.left = this.top = this.margin = 0;
    this.across = false; // whether column labels are written across
    this.size = { queries: 0, keys: 0 }; // pixels of the widest labels, measured once
    /** @type {PaintedPart | null} each cell, or where they are more than pixels each pixel's block */
    this.cells = null;
    /** @type {Pooled | null} the blocks */
    this.blocks = null;
    /** @type {{ values: Float32Array | null, count: number, scale: Scale }} the scale of the lifts of the parts that begin with these values */
    this.lifted = { values: null, count: 0, scale: shown.scale };
    this.names = { rows: "queries ↓", columns: shown.keys.seconds ? "keys, in seconds →" : "keys →" };
    /** @type {[number, number] | null} the seconds that are dragged over, to be kept */
    this.dragged = null;
  }

  get dimmed() {
    return false;
  }

  /** True if the columns are frames of a sound. */
  get timed() {
    return this.shown.keys.seconds !== undefined;
  }

  /** The smaller side of a cell. */
  get cell() {
    return Math.min(this.wide, this.tall);
  }

  /** True if cells are so large that they show their numbers. */
  get numbered() {
    return this.tall >= MIN_NUMBER_HEIGHT && this.wide >= MIN_NUMBER_WIDTH;
  }

  /** @param {number} width @param {number} most */
  measure(width, most) {
    const { queries, keys, rows, columns } = this.shown;
    if (!this.size.queries) this.size = { queries: longest(queries.labels), keys: longest(keys.labels) };
    const side = Math.min(150 * letters.scale, width * 0.28);
    const [widestQuery, widestKey] = [this.size.queries * letters.scale, this.size.keys * letters.scale];
    this.left = Math.ceil(Math.max(Math.min(side, widestQuery) + 14, textWidth(this.names.rows, 11 * letters.scale) + 12));
    const forLabels = this.timed ? SECONDS * letters.scale + ENVELOPE - 10 : Math.min(110 * letters.scale, widestKey, Math.max(40, most * 0.3));
    const [wide, tall] = this.fitting((width - this.left - 2) / columns, (most - forLabels - 34) / rows);
    this.factor = Math.min(Math.max(this.factor, 1), Math.max(1, MAX_ZOOMED_CELL / Math.min(wide, tall)));
    [this.wide, this.tall] = [wide * this.factor, tall * this.factor];
    this.across = !this.timed && this.wide >= widestKey + 6;
    this.top = Math.ceil((this.across ? 14 * letters.scale : forLabels) + 12 + 14 * letters.scale);
    this.margin = Math.max(0, Math.floor((width - this.left - columns * this.wide) / 2));
    this.margin = this.factor === 1 ? Math.min(this.margin, 40) : 0;
    this.left += this.margin;
    return { width: this.left + columns * this.wide + 2, height: this.top + rows * this.tall + 2 };
  }

  /** The sides of a cell where there is so much room. @param {number} across @param {number} down */
  fitting(across, down) {
    if (this.timed && !this.shown.queries.seconds) return [Math.min(across, MAX_CELL), letters.scale * Math.min(MAX_SOUND_ROW, Math.max(MIN_SOUND_ROW, down / letters.scale))];
    const least = Math.max(MIN_CELL, Math.min(across, down));
    const [wide, tall] = [across, down].map((room) => Math.max(MIN_CELL, Math.min(room, MAX_CELL, MAX_RATIO * least)));
    return [wide, tall];
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

  /** True if a pixel is more than a cell. */
  get pooled() {
    return this.blocks !== null;
  }

  /** What is drawn. @returns {PaintedPart[]} */
  get drawnParts() {
    return this.cells ? [this.cells] : [];
  }

  /** The scale of what is drawn: means of blocks are smaller than the weights that they are means of. @returns {Scale} */
  get scale() {
    const { scale } = this.shown;
    if (scale.steps === "lift" && !scale.change && state.limits === "head") return this.liftScale();
    const isGiven = (page.fixed && state.limits === "shared" && !scale.scores) || (scale.steps === "lift" && !scale.change);
    if (!this.pooled || state.pool === "max" || isGiven) return scale;
    const sharing = state.limits === "head" ? [this] : this.peers;
    const spans = sharing.flatMap((picture) => picture.drawnParts.map((part) => (part.span ??= spanOf(part, picture.shown))));
    const [low, high] = [Math.min(...spans.map(([least]) => least)), Math.max(...spans.map(([, most]) => most))];
    if (!Number.isFinite(high) || (scale.scores && high === low)) return scale;
    return scale.scores ? { ...scale, low, high } : { ...scale, low: 0, high: Math.max(high, -low) || 1 };
  }

  /** The scale of the lifts of what is drawn. @returns {Scale} */
  liftScale() {
    const parts = this.drawnParts;
    if (!parts.length) return this.shown.scale;
    if (this.lifted.values !== parts[0].values || this.lifted.count !== parts.length) {
      const lifts = parts.map((part) => liftsOfPart(part, this.shown));
      const all = new Float32Array(lifts.reduce((total, some) => total + some.length, 0));
      lifts.reduce((place, some) => (all.set(some, place), place + some.length), 0);
      this.lifted = { values: parts[0].values, count: parts.length, scale: liftScaleOf(all) };
    }
    return this.lifted.scale;
  }

  /** Takes the cells, or pools them, for a surface that has so many pixels in one of the layout. @param {number} density */
  takeCells(density) {
    const { values, rows, columns, scale } = this.shown;
    const pixels = (/** @type {number} */ count, /** @type {number} */ side) => Math.max(1, Math.min(count, Math.floor(count * side * density)));
    const [height, width] = [pixels(rows, this.tall), pixels(columns, this.wide)];
    if (!values || (this.cells?.height === height && this.cells.width === width)) return;
    const isPooled = height < rows || width < columns;
    this.blocks = isPooled ? pooledCells(values, rows, columns, height, width, scale.change) : null;
    this.cells = { top: 0, bottom: rows, left: 0, right: columns, height, width, values: this.blocks?.[state.pool] ?? values };
    this.redraw();
  }

  /** Painted once for each scale. @param {PaintedPart} part @param {Scale} scale */
  paint(part, scale) {
    const name = `${scale.low} ${scale.high}`;
    if (!part.canvas || part.painted !== name) {
      const [tokensDown, tokensAcross] = [(part.bottom - part.top) / part.height, (part.right - part.left) / part.width];
      const place = (/** @type {number} */ first, /** @type {number} */ pixel, /** @type {number} */ tokens) => first + Math.floor((pixel + 0.5) * tokens);
      part.canvas = paintCells(part.values, part.height, part.width, scale, (row, column) =>
        this.shown.seen(place(part.top, row, tokensDown), place(part.left, column, tokensAcross)));
    }
    part.painted = name;
    return part.canvas;
  }

  /** @param {Surface} surface @param {Area} area */
  draw(surface, area) {
    const { left, top } = this;
    surface.clip(left, top, area.width - left, area.height - top, () => {
      this.drawCells(surface, area);
      if (this.numbered) this.drawNumbers(surface, area);
      this.drawSpoken(surface, area);
    });
    this.drawLabels(surface, area);
  }

  /** Frames the cells of each word that is said: the rows of its tokens, over its seconds. @param {Surface} surface @param {Area} area */
  drawSpoken(surface, area) {
    const { keys, queries, scale } = this.shown;
    if (!this.timed || !queries.spoken) return;
    const color = inkOn(rgbOf(scale.change ? 0 : scale.low, scale, 1));
    for (const [first, end, from, to] of queries.spoken) {
      // The row before a token predicts it, and looks at its sound.
      const [top, last] = [first - 1, end - 2].map((query) => this.shown.cellOf({ query: Math.max(0, query), key: null }).query ?? 0);
      const [x, right] = [from, to].map((second) => this.xOf(second) - area.x);
      if (end < 2 || right <= this.xOf(extentOf(keys)[0]) - area.x || right <= x) continue;
      surface.frame(x, this.top + top * this.tall - area.y, right - x, (last + 1 - top) * this.tall, color, 0.8);
    }
  }

  /** The pixel of a second, before scrolling. @param {number} second */
  xOf(second) {
    const [from, to] = extentOf(this.shown.keys);
    const part = Math.min(1, Math.max(0, (second - from) / (to - from)));
    return this.left + part * this.shown.columns * this.wide;
  }

  /** The second at a pixel of the stage. @param {number} x @param {Area} area */
  secondAt(x, area) {
    const [from, to] = extentOf(this.shown.keys);
    const part = (x + area.x - this.left) / (this.shown.columns * this.wide);
    return from + Math.min(1, Math.max(0, part)) * (to - from);
  }

  /** True if a place is on the envelope, where a drag keeps an interval. @param {number} x @param {number} y */
  isSound(x, y) {
    return this.timed && y > 16 && y < this.top && x >= this.left;
  }

  /** @param {Surface} surface @param {Area} area */
  drawCells(surface, area) {
    const [width, height] = [this.shown.columns * this.wide, this.shown.rows * this.tall];
    const [x, y] = [this.left - area.x, this.top - area.y];
    surface.rect(x, y, width, height, theme().absent);
    this.takeCells(surface.density);
    if (this.cells) surface.image(this.paint(this.cells, this.scale), x, y, width, height);
  }

  /** The first and the end of the cells that are seen. @param {Axis} axis @param {Area} area */
  span(axis, area) {
    const [scroll, room, count, fixed, side] =
      axis === "query"
        ? [area.y, area.height, this.shown.rows, this.top, this.tall]
        : [area.x, area.width, this.shown.columns, this.left, this.wide];
    const first = Math.max(0, Math.floor(scroll / side));
    return [first, Math.min(count, Math.ceil((scroll + room - fixed) / side))];
  }

  /** @param {Surface} surface @param {Area} area */
  drawNumbers(surface, area) {
    const { scale } = this.shown;
    const [firstRow, lastRow] = this.span("query", area);
    const [firstColumn, lastColumn] = this.span("key", area);
    const digits = decimalsOf(scale.steps === "lift" ? 1 : scale.high);
    const size = Math.min(15, this.tall * 0.6, this.wide / ((scale.change || scale.scores ? 2.9 : 2.2) + digits * 0.6));
    const many = this.shown.rows * this.shown.columns > MAX_WRITTEN_ZEROS;
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        const value = this.shown.at(row, column);
        if (value === ABSENT) continue;
        const text = Number.isNaN(value) ? "NaN" : cellText(value, scale, digits);
        if (many && !scale.scores && Number(text) === 0) continue;
        const [x, y] = [this.left + (column + 0.5) * this.wide - area.x, this.top + (row + 0.5) * this.tall - area.y];
        const color = inkOn(rgbOf(value, scale, this.shown.seen(row, column)));
        surface.text(text, x, y, { size, align: "center", color });
      }
    }
  }

  /** @param {Surface} surface @param {Area} area */
  drawLabels(surface, area) {
    const { keys } = this.shown;
    const faint = { size: 11 * letters.scale, color: theme().soft };
    surface.text(this.names.columns, this.left, 9, faint);
    surface.text(this.names.rows, this.left - 10, 9, { ...faint, align: "right" });
    const along = this.every("key");
    surface.clip(0, this.top - 7, this.left, area.height - this.top + 7, () => {
      for (const { row, label } of this.rowLabels(area)) this.drawRowLabel(surface, area, row, label, theme().ink);
    });
    if (this.timed) return this.drawSound(surface, area);
    const [firstColumn, lastColumn] = this.span("key", area);
    surface.clip(this.left - 7, 16, area.width - this.left + 7, this.top - 16, () => {
      for (let column = Math.ceil(firstColumn / along) * along; column < lastColumn; column += along) {
        this.drawColumnLabel(surface, area, column, this.labelOf(keys, column, along), theme().ink);
      }
    });
  }

  /** The rows that have a label: of frames round seconds, else as many as there is room for. @param {Area} area */
  rowLabels(area) {
    const { queries } = this.shown;
    if (queries.seconds) {
      const least = (1.6 * LABEL_STEP * letters.scale) / this.tall;
      return secondTicks(queries, least).map(({ second, label }) => ({ row: cellAt(queries, second), label }));
    }
    const down = this.every("query");
    const [first, last] = this.span("query", area);
    const labels = [];
    for (let row = Math.ceil(first / down) * down; row < last; row += down) labels.push({ row, label: this.labelOf(queries, row, down) });
    return labels;
  }

  /** The envelope of the sound over the columns, and seconds above it. @param {Surface} surface @param {Area} area */
  drawSound(surface, area) {
    const { keys, columns } = this.shown;
    const size = 11 * letters.scale;
    const [x, y, width] = [this.left - area.x, 18 + SECONDS * letters.scale, columns * this.wide];
    const height = this.top - y - 2;
    surface.clip(this.left - 1, 14, area.width - this.left + 1, this.top - 14, () => {
      drawSeconds(surface, keys, x, 16 + size / 2, width, size);
      drawEnvelope(surface, keys, { x, y, width, height });
      drawHeardWords(surface, keys, { x, y, width, height: height + 2 }, 0);
    });
  }

  /** Tokens from one label to the next. @param {Axis} axis */
  every(axis) {
    return Math.ceil((LABEL_STEP * letters.scale) / (axis === "query" ? this.tall : this.wide) - 0.02);
  }

  /** @param {Text} text @param {number} place @param {number} _every @returns {string} */
  labelOf(text, place, _every) {
    return text.labels[place];
  }

  /** Of labels, in pixels. @param {number} side */
  labelSize(side) {
    return letters.scale * Math.min(13, Math.max(10, (side * 0.72) / letters.scale));
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
    const y = this.top + (row + 0.5) * this.tall - area.y;
    const size = this.labelSize(this.tall);
    const text = fitText(label, size, this.left - this.margin - 12);
    surface.text(text, this.left - 8, y, { size, align: "right", color, weight });
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
    const x = this.left + (column + 0.5) * this.wide - area.x;
    const size = this.labelSize(this.wide);
    const style = { size, color, weight };
    if (this.across) surface.text(label, x, this.top - 10, { ...style, align: "center" });
    else surface.text(fitText(label, size, this.top - 24), x, this.top - 6, { ...style, turned: -90 });
  }

  /**
   * The chosen token's row and column, and the cell that is pointed at.
   *
   * @param {Surface} surface
   * @param {Area} area
   */
  drawOver(surface, area) {
    if (state.pin) this.drawMark(surface, area, state.pin, theme().accent);
    if (state.mark && !this.dragged) this.drawMark(surface, area, state.mark, theme().ink);
    if (!this.dragged) return;
    const [x, end] = this.dragged.map((second) => this.xOf(second) - area.x);
    surface.rect(x, 16, end - x, area.height - 16, theme().accent, 0.2);
    surface.text(`${this.dragged[0].toFixed(2)}–${this.dragged[1].toFixed(2)} s`, end + 4, 24, { size: 11 * letters.scale, color: theme().accent, weight: 650 });
  }

  /** @param {Surface} surface @param {Area} area @param {Mark} marked @param {string} color */
  drawMark(surface, area, marked, color) {
    const mark = this.shown.cellOf(marked);
    const { rows, columns, queries, keys } = this.shown;
    const { left, top, wide, tall } = this;
    const [width, height] = [Math.max(wide, 2), Math.max(tall, 2)];
    const [x, y] = [left + (mark.key ?? 0) * wide - area.x, top + (mark.query ?? 0) * tall - area.y];
    surface.clip(left - 2, top - 2, area.width - left + 2, area.height - top + 2, () => {
      const [asQuery, asKey] = [mark.query !== null, mark.key !== null];
      if (asQuery) this.drawBand(surface, left - area.x, y, columns * wide, height, color, !asKey);
      if (asKey) this.drawBand(surface, x, top - area.y, width, rows * tall, color, !asQuery);
      if (asQuery && asKey) doubleFrame(surface, x, y, width, height, color, 2.5);
    });
    if (mark.query !== null && y + tall > top - 1 && y < area.height) {
      surface.rect(0, y + tall / 2 - 9, left - 3, 18, theme().paper);
      this.drawRowLabel(surface, area, mark.query, queries.labels[mark.query], theme().accent, 650);
    }
    if (mark.key !== null && this.timed) this.drawSecond(surface, area, mark.key, x);
    else if (mark.key !== null && x + wide > left - 1 && x < area.width) {
      const size = this.labelSize(wide);
      const half = this.across ? Math.min(wide, textWidth(keys.labels[mark.key], size, 650) + 8) / 2 : 9;
      surface.rect(x + wide / 2 - half, 17, 2 * half, top - 19, theme().paper);
      this.drawColumnLabel(surface, area, mark.key, keys.labels[mark.key], theme().accent, 650);
    }
  }

  /** The second of a frame, over the line of seconds. @param {Surface} surface @param {Area} area @param {number} column @param {number} x */
  drawSecond(surface, area, column, x) {
    const size = 11 * letters.scale;
    const { keys } = this.shown;
    const label = `${((startOf(keys, column) + startOf(keys, column + 1)) / 2).toFixed(2)} s`;
    const half = textWidth(label, size, 650) / 2 + 4;
    const middle = Math.min(area.width - half, Math.max(this.left + half, x + this.wide / 2));
    surface.rect(middle - half, 16, 2 * half, size + 4, theme().paper);
    surface.text(label, middle, 16 + size / 2, { size, color: theme().accent, weight: 650, align: "center" });
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
    if (Math.min(width, height) >= 6) doubleFrame(surface, x, y, width, height, color, alone ? 2 : 1);
    else surface.rect(x, y, width, height, color, alone ? 0.8 : 0.45);
  }

  /** The row and the column at a place, each null beside the cells; null beyond them. @param {number} x @param {number} y @param {Area} area */
  cellAt(x, y, area) {
    const row = Math.floor((y - this.top + area.y) / this.tall);
    const column = Math.floor((x - this.left + area.x) / this.wide);
    const query = y >= this.top && row >= 0 && row < this.shown.rows ? row : null;
    const key = x >= this.left && column >= 0 && column < this.shown.columns ? column : null;
    const beyond = x > this.left + this.shown.columns * this.wide || y > this.top + this.shown.rows * this.tall;
    return beyond || (query === null && key === null) ? null : { query, key };
  }

  /** @param {number} x @param {number} y @param {Area} area @returns {Mark | null} */
  pointAt(x, y, area) {
    const cell = this.cellAt(x, y, area);
    return cell && this.shown.markOf(cell);
  }

  /** @param {Mark} marked */
  placeOf(marked) {
    const mark = this.shown.cellOf(marked);
    const { wide, tall, left, top } = this;
    const width = mark.key === null ? wide * this.shown.columns : wide;
    return { x: left + (mark.key ?? 0) * wide, y: top + (mark.query ?? 0) * tall, width, height: tall };
  }
}

/** The lifts of a part, rows that see one key left out. @param {PaintedPart} part @param {Shown} shown */
function liftsOfPart({ values, top, bottom, left, right, height, width }, shown) {
  const lifts = new Float32Array(values.length);
  let count = 0;
  for (let place = 0; place < values.length; place++) {
    const query = top + Math.floor(((Math.floor(place / width) + 0.5) * (bottom - top)) / height);
    const seen = shown.seen(query, left + Math.floor((((place % width) + 0.5) * (right - left)) / width));
    if (seen > 1 && values[place] !== ABSENT && !Number.isNaN(values[place])) lifts[count++] = values[place] * seen;
  }
  return lifts.subarray(0, count);
}

/**
 * The least and the largest value of a part; but for scores without the rows that see no more keys than a pixel has,
 * whose means are large at the beginning of every causal map.
 *
 * @param {PaintedPart} part
 * @param {Shown} shown
 * @returns {[number, number]}
 */
function spanOf({ values, top, bottom, left, right, height, width }, shown) {
  let [low, high] = [Infinity, -Infinity];
  for (let row = 0; row < height; row++) {
    const query = top + Math.floor(((row + 0.5) * (bottom - top)) / height);
    if (!shown.scale.scores && shown.seen(query, left) <= (right - left) / width) continue;
    for (let place = row * width; place < (row + 1) * width; place++) {
      const value = values[place];
      if (value === ABSENT || !Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}

/**
 * A frame in a colour between two lines of paper: one of both is seen on any cell.
 *
 * @param {Surface} surface
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {string} color
 * @param {number} thick
 */
function doubleFrame(surface, x, y, width, height, color, thick) {
  surface.frame(x, y, width, height, theme().paper, thick + 2);
  surface.frame(x, y, width, height, color, thick);
}
