/**
 * The matrix of a long text: its overview at once, and then the part that is seen, pooled to the pixels it has, or
 * cell by cell where these suffice.
 */

import { theme } from "./colors.js";
import { combinedOf } from "./combining.js";
import { page } from "./data.js";
import { positionOf } from "./formatting.js";
import { LABEL_STEP, MatrixPicture } from "./matrix.js";
import { askWindow } from "./numbers.js";
import { state } from "./state.js";
import { letters } from "./surface.js";
import { shownPool, thumbnailValues } from "./thumbnails.js";

/** @import { Area, Axis, PaintedPart, Part, Scale, Shown, Surface, Text, WindowBand } from "./types.js" */

const MAX_COMPUTED_CELLS = 2 ** 25; // cells of a part; a larger one shows the overview alone
const MAX_LABEL_DISTANCE = 4; // tokens from one label to the next; farther apart, their positions are written
const MAX_PIXELS = 900; // of a part, each way

export class ZoomPicture extends MatrixPicture {
  /** @param {Shown} shown @param {() => void} redraw called after each band that was computed */
  constructor(shown, redraw) {
    super(shown, redraw);
    this.overview = this.wholeOf(shown);
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
  get drawnParts() {
    return this.bands.length ? this.bands : [this.overview];
  }

  /** @override */
  get pooled() {
    if (!this.part) return true;
    const { top, bottom, left, right, height, width } = this.part;
    return height < bottom - top || width < right - left;
  }

  /** The whole as Python pooled it, of several heads their blocks as one. @param {Shown} shown @returns {PaintedPart} */
  wholeOf({ number, rows, columns, partOf }) {
    const [height, width] = page.heads[number].thumbnail;
    const values = partOf?.how && partOf.how !== "rollout" ? combinedOf(partOf.numbers.map((head) => thumbnailValues(head)), partOf.how) : thumbnailValues(number);
    return { top: 0, bottom: rows, left: 0, right: columns, height, width, values };
  }

  /** The part that an area shows: whole cells, and no more pixels than it has. @param {Area} area */
  partOf(area) {
    const [top, bottom] = this.span("query", area);
    const [left, right] = this.span("key", area);
    const pixels = (/** @type {number} */ count, /** @type {number} */ side) =>
      Math.max(1, Math.min(count, MAX_PIXELS, Math.round(count * side)));
    return { top, bottom, left, right, height: pixels(bottom - top, this.tall), width: pixels(right - left, this.wide) };
  }

  /** Asks for what is seen at the end of this frame. @param {Area} area */
  askSoon(area) {
    if (!this.wanted) requestAnimationFrame(() => this.askNow());
    this.wanted = area;
  }

  askNow() {
    const { wanted } = this;
    this.wanted = null;
    if (wanted) this.ask(wanted);
  }

  /** @param {Area} area */
  ask(area) {
    const part = this.partOf(area);
    if (part.bottom <= part.top || part.right <= part.left) return;
    if (this.part && isSamePart(part, this.part)) return;
    this.before = this.whole ? this.bands : this.before;
    [this.part, this.bands, this.whole] = [part, [], false];
    if ((part.bottom - part.top) * (part.right - part.left) > MAX_COMPUTED_CELLS) return;
    const of = this.shown.partOf ?? { numbers: [this.shown.number], how: null, side: 0 };
    this.asked = askWindow(of, part, (answer) => this.receive(part, answer), this.asked);
  }

  /** @param {Part} part @param {WindowBand} band */
  receive(part, { first, last, pooled }) {
    if (first === last) return;
    const count = part.bottom - part.top;
    const place = (/** @type {number} */ pixel) => part.top + Math.floor((pixel * count) / part.height);
    const lines = { top: place(first), bottom: place(last), height: last - first };
    this.bands.push({ ...part, ...lines, values: this.shown.partOf ? pooled[0][state.pool] : shownPool(pooled) });
    this.whole = last === part.height;
    if (this.whole) this.before = [];
    this.redraw();
  }

  /** @override @param {Surface} surface @param {Area} area */
  draw(surface, area) {
    this.askSoon(area);
    const { left, top } = this;
    surface.clip(left, top, area.width - left, area.height - top, () => {
      const { scale } = this;
      const bands = [this.overview, ...this.before, ...this.bands];
      for (const band of bands) this.drawBandOfCells(surface, area, band, scale);
      if (this.numbered) this.drawNumbers(surface, area);
    });
    this.drawLabels(surface, area);
  }

  /** @param {Surface} surface @param {Area} area @param {PaintedPart} band @param {Scale} scale */
  drawBandOfCells(surface, area, band, scale) {
    const [x, right] = [band.left, band.right].map((key) => Math.round(this.left + key * this.wide - area.x));
    const [y, bottom] = [band.top, band.bottom].map((query) => Math.round(this.top + query * this.tall - area.y));
    const [width, height] = [right - x, bottom - y];
    if (x + width < 0 || y + height < 0 || x > area.width || y > area.height) return;
    surface.rect(x, y, width, height, theme().absent);
    surface.image(this.paint(band, scale), x, y, width, height, true);
  }

  /** @override @param {Axis} axis */
  every(axis) {
    const least = (LABEL_STEP * letters.scale) / (axis === "query" ? this.tall : this.wide);
    if (least <= MAX_LABEL_DISTANCE) return Math.ceil(least);
    const ten = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5].map((times) => times * ten).find((step) => step >= least) ?? 10 * ten;
  }

  /**
   * Tokens far apart say little; their positions do.
   *
   * @override
   * @param {Text} text
   * @param {number} place
   * @param {number} every
   */
  labelOf(text, place, every) {
    return every > MAX_LABEL_DISTANCE ? positionOf(text, place) : text.labels[place];
  }
}

/** @param {Part} one @param {Part} other */
function isSamePart(one, other) {
  const names = /** @type {const} */ (["top", "bottom", "left", "right", "height", "width"]);
  return names.every((name) => one[name] === other[name]);
}
