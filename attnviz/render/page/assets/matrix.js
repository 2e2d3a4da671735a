/** The matrix: a row for each query, a column for each key, labels that stay while the cells scroll. */

import { paintCells, rgbOf } from "./colors.js";
import { combinedOf } from "./combining.js";
import { page } from "./data.js";
import { clipped, FAINT, fitText, doubleFrame, letters, longest, moved, rectangle, textAt, textWidth } from "./figure.js";
import { cellText, decimalsOf, positionOf } from "./formatting.js";
import { askWindow } from "./numbers.js";
import { cellAt, extentOf, startOf, secondTicks } from "./places.js";
import { joined, pooledCells } from "./pooling.js";
import { inkOn, roundStep } from "./scales.js";
import { scaleOfParts } from "./shown.js";
import { state } from "./state.js";
import { shownPool, thumbnailValues } from "./thumbnails.js";
import { ABSENT } from "./values.js";
import { envelopeOf, secondAt, secondsAlong, wordsHeard, xOf } from "./waveform.js";

/** @import { Area, Axis, CellImage, Mark, PaintedPart, Part, Picture, Scale, Shown, WindowBand } from "./types.js" */
/** @import { Tree } from "./tree.js" */

export const MAX_CELL = 96; // pixels
const MIN_CELL = 0.004;
const MAX_RATIO = 1.8; // of a cell's width to its height, either way
const MIN_NUMBER_HEIGHT = 17; // pixels from which on a cell may show its number
const MIN_NUMBER_WIDTH = 24;
const MAX_WRITTEN_ZEROS = 100; // cells, above which a number that rounds to 0 is left out, so that the others stand out
const LABEL_STEP = 13; // pixels that a label needs
const MAX_LABEL_DISTANCE = 4; // tokens from one label to the next; farther apart, their positions are written
const MIN_SOUND_ROW = 9; // pixels of a row over a sound, whose cells are narrow
const MAX_SOUND_ROW = 26;
const ENVELOPE = 34; // pixels of the envelope above a map
const SECONDS = 16; // pixels of the line of seconds
const MAX_COMPUTED_CELLS = 2 ** 25; // cells of a part; a larger one shows the overview alone
const MAX_PIXELS = 900; // of a part, each way

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
    /** @type {PaintedPart[]} all cells, or where they are more than pixels the block of each pixel */
    this.drawnParts = [];
    this.names = { rows: "queries ↓", columns: shown.keys.seconds ? "keys, in seconds →" : "keys →" };
    /** @type {[number, number] | null} the seconds that are dragged over, to be kept */
    this.dragged = null;
  }

  /** A copy that is laid out for a file, which leaves the screen as it is. @returns {MatrixPicture} */
  inFile() {
    const copy = Object.assign(Object.create(Object.getPrototypeOf(this)), this, { redraw: () => {} });
    return Object.assign(copy, { peers: [copy] });
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

  /** True if a pixel is more than a cell. */
  get pooled() {
    return this.drawnParts.some(({ top, bottom, left, right, height, width }) => height < bottom - top || width < right - left);
  }

  /** Takes the room that there is. @param {number} width @param {number} most */
  measure(width, most) {
    const { queries, keys, rows, columns } = this.shown;
    if (!this.size.queries) this.size = { queries: longest(queries.labels), keys: longest(keys.labels) };
    const side = Math.min(150 * letters.scale, width * 0.28);
    const [widestQuery, widestKey] = [this.size.queries * letters.scale, this.size.keys * letters.scale];
    this.left = Math.ceil(Math.max(Math.min(side, widestQuery) + 14, textWidth(this.names.rows, 11 * letters.scale) + 12));
    const forLabels = this.timed ? SECONDS * letters.scale + ENVELOPE - 10 : Math.min(110 * letters.scale, widestKey, Math.max(40, most * 0.3));
    [this.wide, this.tall] = this.zoomed(this.fitting((width - this.left - 2) / columns, (most - forLabels - 34) / rows));
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
    return [across, down].map((room) => Math.max(MIN_CELL, Math.min(room, MAX_CELL, MAX_RATIO * least)));
  }

  /** The sides of an enlarged cell. @param {number[]} sides */
  zoomed([wide, tall]) {
    this.factor = Math.max(1, Math.min(this.factor, MAX_CELL / Math.min(wide, tall)));
    return [wide * this.factor, tall * this.factor];
  }

  get fixed() {
    return { left: this.left, top: this.top };
  }

  /** @param {number} factor */
  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.max(1, Math.min(before * factor, (MAX_CELL * before) / this.cell));
    return this.factor / before;
  }

  /** Lays the picture out so that in so many pixels the same cells are seen. @param {Area} area @param {number} width @param {number} most @returns {Area} */
  partFor(area, width, most) {
    const { wide, tall } = this;
    const [across, down] = [(area.width - this.left) / wide, (area.height - this.top) / tall];
    this.factor = 1;
    this.measure(width, most);
    this.factor = Math.max(1.02, (width - this.left + this.margin) / across / this.wide);
    this.measure(width, most);
    return { x: (area.x / wide) * this.wide, y: (area.y / tall) * this.tall, width, height: this.top + down * this.tall };
  }

  /** The scale of what is drawn: means of blocks are smaller than the weights that they are means of. @returns {Scale} */
  get scale() {
    return scaleOfParts(this, this.peers);
  }

  /** What is drawn of the cells, for a screen or file that has so many pixels in one of the layout. @param {Area} _area @param {number} density @returns {PaintedPart[]} */
  partsIn(_area, density) {
    const { values, rows, columns, scale } = this.shown;
    const pixels = (/** @type {number} */ count, /** @type {number} */ side) => Math.max(1, Math.min(count, Math.floor(count * side * density)));
    const [height, width] = [pixels(rows, this.tall), pixels(columns, this.wide)];
    const [before] = this.drawnParts;
    if (!values || (before?.height === height && before.width === width)) return this.drawnParts;
    const isPooled = height < rows || width < columns;
    const blocks = isPooled ? pooledCells(values, rows, columns, height, width, scale.change) : null;
    this.drawnParts = [{ top: 0, bottom: rows, left: 0, right: columns, height, width, values: blocks?.[state.pool] ?? values }];
    this.redraw();
    return this.drawnParts;
  }

  /** The images of the cells, each painted once for each scale. @param {Area} area @param {number} density @returns {CellImage[]} */
  images(area, density) {
    const parts = this.partsIn(area, density);
    const { scale, left, top, wide, tall } = this;
    const name = `${scale.low} ${scale.high}`;
    const whole = parts.length > 1 ? Math.round : (/** @type {number} */ side) => side; // no line of paper between two of them
    return parts.flatMap((part) => {
      const [x, right] = [part.left, part.right].map((key) => whole(left + key * wide - area.x));
      const [y, bottom] = [part.top, part.bottom].map((query) => whole(top + query * tall - area.y));
      if (right < 0 || bottom < 0 || x > area.width || y > area.height) return [];
      if (!part.canvas || part.painted !== name) {
        const [tokensDown, tokensAcross] = [(part.bottom - part.top) / part.height, (part.right - part.left) / part.width];
        const place = (/** @type {number} */ first, /** @type {number} */ pixel, /** @type {number} */ tokens) => first + Math.floor((pixel + 0.5) * tokens);
        part.canvas = paintCells(part.values, part.height, part.width, scale, (row, column) =>
          this.shown.seen(place(part.top, row, tokensDown), place(part.left, column, tokensAcross)));
        part.painted = name;
      }
      return [{ canvas: part.canvas, x, y, width: right - x, height: bottom - y }];
    });
  }

  /** Where the cells are seen. @param {Area} area */
  window(area) {
    return { x: this.left, y: this.top, width: area.width - this.left, height: area.height - this.top };
  }

  /** What lies over the cells, and around them. @param {Area} area */
  base(area) {
    const { left, top, names } = this;
    const style = { ...FAINT, size: 11 * letters.scale };
    return [
      clipped(this.window(area), moved(-area.x, -area.y, this.numbered ? this.numbers(area) : null, this.spokenWords())),
      textAt(names.columns, left, 9, style),
      textAt(names.rows, left - 10, 9, { ...style, align: "end" }),
      clipped({ x: 0, y: top - 7, width: left, height: area.height - top + 7 }, moved(0, -area.y, this.rowLabels(area))),
      this.timed ? this.sound(area) : clipped({ x: left - 7, y: 16, width: area.width - left + 7, height: top - 16 }, moved(-area.x, 0, this.columnLabels(area))),
    ];
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

  /** @param {Area} area */
  numbers(area) {
    const { scale } = this;
    const [firstRow, lastRow] = this.span("query", area);
    const [firstColumn, lastColumn] = this.span("key", area);
    const digits = decimalsOf(scale.steps === "lift" ? 1 : scale.high);
    const size = Math.min(15, this.tall * 0.6, this.wide / ((scale.change || scale.scores ? 2.9 : 2.2) + digits * 0.6));
    const many = this.shown.rows * this.shown.columns > MAX_WRITTEN_ZEROS;
    /** @type {Tree[]} */
    const found = [];
    for (let row = firstRow; row < lastRow; row++) {
      for (let column = firstColumn; column < lastColumn; column++) {
        const value = this.shown.at(row, column);
        if (value === ABSENT) continue;
        const text = Number.isNaN(value) ? "NaN" : cellText(value, scale, digits);
        if (many && !scale.scores && Number(text) === 0) continue;
        const [x, y] = [this.left + (column + 0.5) * this.wide, this.top + (row + 0.5) * this.tall];
        const color = inkOn(rgbOf(value, scale, this.shown.seen(row, column)));
        found.push(textAt(text, x, y, { size, align: "middle", color, key: row * this.shown.columns + column }));
      }
    }
    return found;
  }

  /** Frames the cells of each word that is said: the rows of its tokens, over its seconds. */
  spokenWords() {
    const { keys, queries, scale } = this.shown;
    if (!this.timed || !queries.spoken) return null;
    const stroke = inkOn(rgbOf(scale.change ? 0 : scale.low, scale, 1));
    return queries.spoken.flatMap(([first, end, from, to]) => {
      // The row before a token predicts it, and looks at its sound.
      const [row, last] = [first - 1, end - 2].map((query) => this.shown.cellOf({ query: Math.max(0, query), key: null }).query ?? 0);
      const [x, right] = [from, to].map((second) => this.xOf(second));
      if (end < 2 || right <= this.xOf(extentOf(keys)[0]) || right <= x) return [];
      const [, frame] = doubleFrame(x, this.top + row * this.tall, right - x, (last + 1 - row) * this.tall, stroke, 0.8);
      return [frame];
    });
  }

  /** The pixel of a second, before scrolling. @param {number} second */
  xOf(second) {
    return this.left + xOf(this.shown.keys, second, this.shown.columns * this.wide);
  }

  /** The second at a pixel of the stage. @param {number} x @param {Area} area */
  secondAt(x, area) {
    return secondAt(this.shown.keys, x + area.x - this.left, this.shown.columns * this.wide);
  }

  /** True if a place is on the envelope, where a drag keeps an interval. @param {number} x @param {number} y */
  isSound(x, y) {
    return this.timed && y > 16 && y < this.top && x >= this.left;
  }

  /** The envelope of the sound over the columns, and seconds above it. @param {Area} area */
  sound(area) {
    const { keys, columns } = this.shown;
    const size = 11 * letters.scale;
    const [x, y, width] = [this.left, 18 + SECONDS * letters.scale, columns * this.wide];
    const height = this.top - y - 2;
    return clipped(
      { x: this.left - 1, y: 14, width: area.width - this.left + 1, height: this.top - 14 },
      moved(-area.x, 0, ...secondsAlong(keys, x, 16 + size / 2, width, size), envelopeOf(keys, { x, y, width, height }), ...wordsHeard(keys, { x, y, width, height: height + 2 }, 0)),
    );
  }

  /** The labels of the rows that are seen: of frames round seconds, else as many as there is room for. @param {Area} area */
  rowLabels(area) {
    const { queries } = this.shown;
    if (!queries.seconds) return this.places("query", area).map(({ place, text }) => this.rowLabel(place, text));
    const least = (1.6 * LABEL_STEP * letters.scale) / this.tall;
    return secondTicks(queries, least).map(({ second, label }) => this.rowLabel(cellAt(queries, second), label));
  }

  /** @param {Area} area */
  columnLabels(area) {
    return this.places("key", area).map(({ place, text }) => this.columnLabel(place, text));
  }

  /** The labels along an axis, in round steps. Tokens far apart say little; their positions do. @param {Axis} axis @param {Area} area */
  places(axis, area) {
    const text = axis === "query" ? this.shown.queries : this.shown.keys;
    const step = roundStep((LABEL_STEP * letters.scale) / (axis === "query" ? this.tall : this.wide) - 0.02);
    const every = Math.max(1, step);
    const [first, last] = this.span(axis, area);
    const found = [];
    for (let place = Math.ceil(first / every) * every; place < last; place += every) {
      found.push({ place, text: every > MAX_LABEL_DISTANCE && !this.shown.source ? positionOf(text, place) : text.labels[place] });
    }
    return found;
  }

  /** Of labels, in pixels. @param {number} side */
  labelSize(side) {
    return letters.scale * Math.min(13, Math.max(11, (side * 0.72) / letters.scale));
  }

  /** @param {number} row @param {string} label */
  rowLabel(row, label, color = "var(--ink)", weight = 400) {
    const size = this.labelSize(this.tall);
    const text = fitText(label, size, this.left - this.margin - 12, weight);
    return textAt(text, this.left - 8, this.top + (row + 0.5) * this.tall, { size, align: "end", color, weight, key: row });
  }

  /** @param {number} column @param {string} label */
  columnLabel(column, label, color = "var(--ink)", weight = 400) {
    const x = this.left + (column + 0.5) * this.wide;
    const style = { size: this.labelSize(this.wide), color, weight, key: column };
    if (this.across) return textAt(label, x, this.top - 10, { ...style, align: "middle" });
    return textAt(fitText(label, style.size, this.top - 24, weight), x, this.top - 6, { ...style, turned: -90 });
  }

  /** The chosen token's row and column, and the cell that is pointed at. @param {Area} area */
  marks(area) {
    const marks = [
      ...(state.pin ? this.markOf(state.pin, "var(--accent)", area) : []),
      ...(state.mark && !this.dragged ? this.markOf(state.mark, "var(--ink)", area) : []),
    ];
    if (!this.dragged) return marks;
    const [from, to] = this.dragged;
    const [x, end] = [from, to].map((second) => this.xOf(second) - area.x);
    const said = textAt(`${from.toFixed(2)}–${to.toFixed(2)} s`, end + 4, 24, { size: 11 * letters.scale, color: "var(--accent)", weight: 650 });
    return [...marks, rectangle(x, 16, end - x, area.height - 16, "var(--accent)", 0.2), said];
  }

  /** A cell, a row or a column: framed where cells are large, a veil where they are small. @param {Mark} mark @param {string} color @param {Area} area */
  markOf(mark, color, area) {
    const { query, key } = this.shown.cellOf(mark);
    const { rows, columns, queries, keys } = this.shown;
    const { left, top, wide, tall } = this;
    const [width, height] = [Math.max(wide, 2), Math.max(tall, 2)];
    const [x, y] = [left + (key ?? 0) * wide, top + (query ?? 0) * tall];
    const band = (/** @type {number} */ atX, /** @type {number} */ atY, /** @type {number} */ across, /** @type {number} */ down, /** @type {boolean} */ alone) =>
      Math.min(across, down) >= 6 ? doubleFrame(atX, atY, across, down, color, alone ? 2 : 1) : [rectangle(atX, atY, across, down, color, alone ? 0.8 : 0.45)];
    const parts = [
      clipped(
        { x: left - 2, y: top - 2, width: area.width - left + 2, height: area.height - top + 2 },
        moved(
          -area.x,
          -area.y,
          ...(query !== null ? band(left, y, columns * wide, height, key === null) : []),
          ...(key !== null ? band(x, top, width, rows * tall, query === null) : []),
          ...(query !== null && key !== null ? doubleFrame(x, y, width, height, color, 2.5) : []),
        ),
      ),
    ];
    const [seenX, seenY] = [x - area.x, y - area.y];
    if (query !== null && seenY + tall > top - 1 && seenY < area.height) {
      const up = Math.min(0, area.height - 9 - seenY - tall / 2); // of a last row, whose label would be cut
      parts.push(rectangle(0, seenY + tall / 2 - 9 + up, left - 3, 18, "var(--paper)"), moved(0, up - area.y, this.rowLabel(query, queries.labels[query], "var(--accent)", 650)));
    }
    if (key !== null && this.timed) parts.push(...this.secondOf(key, seenX, area));
    else if (key !== null && seenX + wide > left - 1 && seenX < area.width) {
      const half = this.across ? Math.min(wide, textWidth(keys.labels[key], this.labelSize(wide), 650) + 8) / 2 : 9;
      const back = Math.min(0, area.width - half - seenX - wide / 2);
      parts.push(rectangle(seenX + wide / 2 - half + back, 17, 2 * half, top - 19, "var(--paper)"), moved(back - area.x, 0, this.columnLabel(key, keys.labels[key], "var(--accent)", 650)));
    }
    return parts;
  }

  /** The second of a frame, over the line of seconds. @param {number} column @param {number} x @param {Area} area */
  secondOf(column, x, area) {
    const size = 11 * letters.scale;
    const { keys } = this.shown;
    const text = `${((startOf(keys, column) + startOf(keys, column + 1)) / 2).toFixed(2)} s`;
    const half = textWidth(text, size, 650) / 2 + 4;
    const middle = Math.min(area.width - half, Math.max(this.left + half, x + this.wide / 2));
    return [
      rectangle(middle - half, 16, 2 * half, size + 4, "var(--paper)"),
      textAt(text, middle, 16 + size / 2, { size, color: "var(--accent)", weight: 650, align: "middle" }),
    ];
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

  /** @param {Mark} mark */
  placeOf(mark) {
    const { query, key } = this.shown.cellOf(mark);
    const { wide, tall, left, top } = this;
    return { x: left + (key ?? 0) * wide, y: top + (query ?? 0) * tall, width: key === null ? wide * this.shown.columns : wide, height: tall };
  }
}

/**
 * The matrix of a long text: its overview at once, and then the part that is seen, pooled to the pixels it has, or
 * cell by cell where these suffice.
 */
export class ZoomPicture extends MatrixPicture {
  /** @param {Shown} shown @param {() => void} redraw called after each band that was computed */
  constructor(shown, redraw) {
    super(shown, redraw);
    const { number, rows, columns, partOf } = shown;
    const [height, width] = page.heads[number].thumbnail;
    const values = partOf?.how && partOf.how !== "rollout" ? combinedOf(partOf.numbers.map((head) => thumbnailValues(head)), partOf.how) : thumbnailValues(number);
    /** @type {PaintedPart} the whole as Python pooled it, of several heads their blocks as one */
    this.overview = { top: 0, bottom: rows, left: 0, right: columns, height, width, values };
    this.drawnParts = [this.overview];
    /** @type {PaintedPart[]} bands of the part that is seen */
    this.bands = [];
    /** @type {PaintedPart[]} bands of the part that was seen until this one is whole */
    this.before = [];
    /** @type {Part | null} the part that is seen */
    this.part = null;
    /** @type {Area | null} what is asked for at the end of this frame */
    this.wanted = null;
    this.whole = false; // whether the part is computed
    this.asked = 0; // the number of the part that was asked for last
  }

  /** @override */
  get pooled() {
    return !this.part || this.part.height < this.part.bottom - this.part.top || this.part.width < this.part.right - this.part.left;
  }

  /** @override */
  inFile() {
    const parts = this.whole ? this.bands : [this.overview, ...this.before, ...this.bands];
    return Object.assign(super.inFile(), { partsIn: () => parts }); // what is there, and nothing is asked for
  }

  /** @override @param {Area} area @param {number} _density */
  partsIn(area, _density) {
    if (!this.wanted) {
      requestAnimationFrame(() => {
        const { wanted } = this;
        this.wanted = null;
        if (wanted) this.ask(wanted);
      });
    }
    this.wanted = area;
    return [this.overview, ...this.before, ...this.bands];
  }

  /** Asks for the part that an area shows: whole cells, and no more pixels than it has. @param {Area} area */
  ask(area) {
    const [top, bottom] = this.span("query", area);
    const [left, right] = this.span("key", area);
    const pixels = (/** @type {number} */ count, /** @type {number} */ side) => Math.max(1, Math.min(count, MAX_PIXELS, Math.round(count * side)));
    /** @type {Part} */
    const part = { top, bottom, left, right, height: pixels(bottom - top, this.tall), width: pixels(right - left, this.wide) };
    if (bottom <= top || right <= left || JSON.stringify(part) === JSON.stringify(this.part)) return;
    this.before = this.whole ? this.bands : this.before;
    [this.part, this.bands, this.whole] = [part, [], false];
    this.drawnParts = [this.overview];
    if ((bottom - top) * (right - left) > MAX_COMPUTED_CELLS) return;
    const of = this.shown.partOf ?? { numbers: [this.shown.number], how: null, side: 0 };
    this.asked = askWindow(of, part, (answer) => this.receive(part, answer), this.asked);
  }

  /** @param {Part} part @param {WindowBand} band */
  receive(part, { first, last, pooled }) {
    if (first === last) return;
    const place = (/** @type {number} */ pixel) => part.top + Math.floor((pixel * (part.bottom - part.top)) / part.height);
    const lines = { top: place(first), bottom: place(last), height: last - first };
    this.bands.push({ ...part, ...lines, values: this.shown.partOf ? pooled[0][state.pool] : shownPool(pooled) });
    this.whole = last === part.height;
    if (this.whole) [this.before, this.bands] = [[], [{ ...part, values: joined(this.bands.map(({ values }) => values)) }]]; // in a file two images would show a line between them
    this.drawnParts = this.bands;
    this.redraw();
  }
}
