/**
 * The matrix of a long text: its overview at once, and then the part that is seen, pooled to the pixels it has, or
 * cell by cell where these suffice.
 */

import { combinedOf } from "./combining.js";
import { page } from "./data.js";
import { MatrixPicture } from "./matrix.js";
import { askWindow } from "./numbers.js";
import { joined } from "./pooling.js";
import { state } from "./state.js";
import { shownPool, thumbnailValues } from "./thumbnails.js";

/** @import { Area, PaintedPart, Part, Shown, WindowBand } from "./types.js" */

const MAX_COMPUTED_CELLS = 2 ** 25; // cells of a part; a larger one shows the overview alone
const MAX_PIXELS = 900; // of a part, each way

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
