/** A stage: a part of a large picture that scrolls by itself, drawn only where it is seen, and zooms. */

import { pin, pointTo } from "./actions.js";
import { contextOf, newCanvas, theme } from "./colors.js";
import { isPrinting, openHeight } from "./elements.js";
import { measureLetters } from "./figure.js";
import { set, state } from "./state.js";
import { elementOf, h, patch } from "./tree.js";
import { strongestOf } from "./values.js";

/** @import { Area, Mark, Picture, Shown, Stage } from "./types.js" */
/** @import { Tree } from "./tree.js" */

const MIN_DRAG = 5; // pixels from which a press that moves is a drag
const ROOM_BELOW = 12; // pixels left under it
const MIN_HEIGHT = 280;
const FLIGHT = 300; // milliseconds
const READABLE_CELL = 30; // pixels of a cell whose number is read
const MAX_PRINTED = 12_000; // pixels of a picture that is printed whole
export const DIMMED = 0.16; // opacity of what a marked token's own lines stand out from
const GLIDE = 180; // milliseconds

/** @typedef {(event: { clientX: number, clientY: number }) => [number, number]} PlaceOf */

/** Shows a picture. @implements {Stage} */
export class PictureStage {
  /**
   * @param {HTMLElement} parent
   * @param {Picture} picture
   * @param {string} label
   * @param {Stage | null} before whose place and zoom it takes
   */
  constructor(parent, picture, label, before = null) {
    this.picture = picture;
    this.view = state.view;
    /** @type {number | undefined} the height that it has at most, where not the window's */
    this.most = undefined;
    /** @type {() => void} called after it moved or zoomed */
    this.moved = () => {};
    this.width = this.height = this.requested = 0;
    /** @type {Tree[]} what lies over the cells, besides the marks */
    this.base = [];
    this.whole = { width: 0, height: 0 };
    this.last = { x: 0, y: 0, width: 0, height: 0 };
    this.dragged = false;
    this.canvas = /** @type {HTMLCanvasElement} */ (elementOf(h("canvas", { class: "stage-base", "aria-hidden": "true" })));
    this.viewport = elementOf(h("div", { class: "stage-view" }, this.canvas, h("svg", { class: "stage-over", "aria-hidden": "true" })));
    this.over = /** @type {SVGElement} */ (this.viewport.lastChild);
    this.space = elementOf(h("div", { class: "stage-space" }, this.viewport));
    this.element = elementOf(h("div", { class: "stage", tabindex: 0, role: "application", "aria-label": label }, this.space));
    this.tip = elementOf(h("div", { class: "tip", hidden: true }));
    parent.append(this.element, this.tip);
    this.element.addEventListener("scroll", () => {
      this.request();
      this.moved();
    });
    this.listen();
    if (before) picture.factor = before.picture.factor;
    this.fit();
    if (before) this.scrollTo(before.last);
  }

  /**
   * Whether another head, or the same in other colours, is seen at the place and zoom of this one.
   *
   * @param {Shown} shown
   */
  keptFor({ queries, keys }) {
    const { shown } = this.picture;
    return this.picture.factor !== 1 && shown.queries === queries && shown.keys === keys && state.view === this.view;
  }

  /** @param {{ x: number, y: number }} place */
  scrollTo({ x, y }) {
    this.element.scrollLeft = x;
    this.element.scrollTop = y;
    this.draw();
  }

  /**
   * Takes the size that there is, and the picture's at its present zoom.
   *
   * A picture that fits, but for a pixel of rounding, has no scroll bars: each would take room and need the other one.
   */
  fit() {
    const width = this.element.parentElement?.clientWidth ?? 0;
    const above = this.element.getBoundingClientRect().top + window.scrollY;
    const most = this.most ?? Math.max(MIN_HEIGHT, openHeight() - Math.min(above, 300) - ROOM_BELOW);
    measureLetters();
    const size = this.picture.measure(width, most);
    this.whole = size;
    this.width = width;
    this.height = Math.min(size.height, isPrinting() ? MAX_PRINTED : most);
    this.element.style.height = `${this.height}px`;
    this.element.classList.toggle("whole", size.width <= width + 1 && size.height <= this.height);
    this.space.style.width = `${Math.max(size.width, width)}px`;
    this.space.style.height = `${Math.max(size.height, this.height)}px`;
    this.width = this.element.clientWidth;
    this.height = this.element.clientHeight;
    this.viewport.style.width = `${this.width}px`;
    this.viewport.style.height = `${this.height}px`;
    const density = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * density);
    this.canvas.height = Math.round(this.height * density);
    this.draw();
  }

  /** @returns {Area} */
  get area() {
    return { x: this.element.scrollLeft, y: this.element.scrollTop, width: this.width, height: this.height };
  }

  /** Draws at the next frame. */
  request() {
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => {
      this.requested = 0;
      if (this.element.isConnected) this.draw();
    });
  }

  draw() {
    const { area, picture, canvas } = this;
    this.last = area;
    const density = window.devicePixelRatio || 1;
    const context = contextOf(canvas);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.setTransform(density, 0, 0, density, 0, 0);
    context.save();
    context.beginPath();
    context.rect(picture.fixed.left, picture.fixed.top, area.width, area.height);
    context.clip();
    for (const { canvas: cells, x, y, width, height } of picture.images(area, density)) {
      context.fillStyle = theme().absent;
      context.fillRect(x, y, width, height);
      context.imageSmoothingEnabled = width < cells.width;
      context.drawImage(cells, x, y, width, height);
    }
    context.restore();
    this.base = picture.base(area);
    this.drawOver();
  }

  /** Draws the marks; what lies below them stays as it is. */
  drawOver() {
    const { picture, last: area } = this; // as the cells were drawn: to ask where it is scrolled to would lay out the page
    patch(this.over, [h("g", { opacity: picture.dimmed ? DIMMED : null }, ...this.base), h("g", {}, ...picture.marks(area))]);
  }

  /**
   * Zooms around a place: that of the cell in question where it is seen, else the middle.
   *
   * @param {number} factor
   * @param {[number, number]} place
   */
  zoom(factor, [x, y] = this.centre()) {
    const { left, top } = this.picture.fixed;
    const [inX, inY] = [Math.max(0, x - left), Math.max(0, y - top)];
    const before = this.area;
    const grown = this.picture.zoomBy(factor);
    this.fit();
    const now = this.picture.fixed;
    this.scrollTo({
      x: (before.x + inX) * grown - Math.max(0, x - now.left),
      y: (before.y + inY) * grown - Math.max(0, y - now.top),
    });
  }

  /** Enlarges the picture so that the middle of what is marked stands at a place. @param {Mark} mark @param {number} factor @param {[number, number]} place */
  showAt(mark, factor, [atX, atY]) {
    this.picture.factor = factor;
    this.fit();
    const { x, y, width, height } = this.picture.placeOf(mark);
    this.scrollTo({ x: x + width / 2 - atX, y: y + height / 2 - atY });
  }

  /** Flies to a cell that is too small to be read; false where it is not. @param {Mark} mark */
  fly(mark) {
    const { picture, area } = this;
    const grown = READABLE_CELL / (picture.cell ?? READABLE_CELL);
    if (mark.query === null || mark.key === null || grown <= 1 || !picture.pooled) return false;
    const { x, y, width, height } = picture.placeOf(mark);
    const from = [x + width / 2 - area.x, y + height / 2 - area.y];
    const to = [(picture.fixed.left + this.width) / 2, (picture.fixed.top + this.height) / 2];
    const [{ factor }, start] = [picture, performance.now()];
    const step = () => {
      if (!this.element.isConnected) return;
      const part = isStill() ? 1 : Math.min(1, (performance.now() - start) / FLIGHT);
      this.showAt(mark, factor * grown ** part, [from[0] + (to[0] - from[0]) * part, from[1] + (to[1] - from[1]) * part]);
      if (part < 1) requestAnimationFrame(step);
      else this.moved();
    };
    step();
    return true;
  }

  /** Where the cells are in the window. */
  get cellsInWindow() {
    const { left, top } = this.viewport.getBoundingClientRect();
    const { left: inX, top: inY } = this.picture.fixed;
    return new DOMRect(left + inX, top + inY, Math.min(this.whole.width, this.width) - inX, Math.min(this.whole.height, this.height) - inY);
  }

  /** The middle of the cell in question where it is seen, else of the stage. @returns {[number, number]} */
  centre() {
    const mark = this.cellInQuestion();
    const { left, top } = this.picture.fixed;
    if (mark) {
      const { x, y, width, height } = this.picture.placeOf(mark);
      const [across, down] = [x + width / 2 - this.area.x, y + height / 2 - this.area.y];
      if (across > left && across < this.width && down > top && down < this.height) return [across, down];
    }
    return [this.width / 2, this.height / 2];
  }

  /** What is marked; of a whole row or column its strongest cell, since its middle may be masked. @returns {Mark | null} */
  cellInQuestion() {
    const mark = state.mark ?? state.pin;
    const shown = this.picture.shown.source ?? this.picture.shown;
    if (!mark || shown.said || (mark.query !== null) === (mark.key !== null)) return mark;
    const axis = mark.query !== null ? "query" : "key";
    const [strongest] = strongestOf(shown.line(axis, mark[axis] ?? 0), 1);
    return { query: mark.query ?? strongest ?? null, key: mark.key ?? strongest ?? null };
  }

  /** Scrolls as little as shows what is marked. @param {Mark} mark */
  reveal(mark) {
    const place = this.picture.placeOf(mark);
    const { left, top } = this.picture.fixed;
    const { x, y } = this.area;
    const isWide = place.width > this.width - left; // a whole row, of which any part will do
    if (place.x < x + left && !isWide) this.element.scrollLeft = place.x - left;
    else if (place.x + place.width > x + this.width && !isWide) this.element.scrollLeft = place.x + place.width - this.width;
    if (place.y < y + top) this.element.scrollTop = place.y - top;
    else if (place.y + place.height > y + this.height) this.element.scrollTop = place.y + place.height - this.height;
    this.draw();
  }

  /** Scrolls to a row of the picture. @param {number} row */
  revealRow(row) {
    const mark = this.picture.rowPlace?.(row);
    if (!mark) return;
    this.element.scrollTop = mark.y + mark.height - this.height / 2;
    this.draw();
  }

  /** @type {Stage["showTip"]} */
  showTip(mark, content = null, x = 0, y = 0) {
    this.tip.hidden = !mark || !content;
    if (!mark || !content) return;
    patch(this.tip, content);
    // Percentages are of the tip itself: to measure it would lay out the page at each move.
    const left = x > this.width / 2 ? `max(0px, ${x - 14}px - 100%)` : `min(${x + 18}px, ${this.width}px - 100%)`;
    this.tip.style.transform = `translate(${left}, max(0px, ${y - 12}px - 100%))`;
  }

  listen() {
    const { over } = this;
    /** @type {PlaceOf} */
    const at = (event) => {
      const bounds = this.viewport.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    over.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") pointTo(this.markAt(at(event)), ...at(event), this);
    });
    over.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && pointTo(null, 0, 0, this));
    this.listenToDrag(over, at);
    over.addEventListener("click", (event) => {
      if (this.dragged) return;
      const mark = this.markAt(at(event));
      if (event.pointerType === "touch") pointTo(mark, undefined, undefined, this);
      this.element.focus({ preventScroll: true });
      if (this.picture.click) this.picture.click(mark);
      else pin(mark);
    });
    over.addEventListener("dblclick", (event) => {
      if (this.picture.open) this.picture.open(this.markAt(at(event)));
      else this.zoom(2, at(event));
    });
    this.element.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 300), at(event));
      },
      { passive: false },
    );
    this.listenToPinch(at);
  }

  /** @param {[number, number]} place */
  markAt([x, y]) {
    return this.picture.pointAt(x, y, this.area);
  }

  /** A mouse that is pressed and moved takes the picture along, or keeps seconds of the sound that it was pressed on. @param {SVGElement} over @param {PlaceOf} at */
  listenToDrag(over, at) {
    const { picture } = this;
    /** @type {{ place: [number, number], area: Area, isSound: boolean } | null} where the drag began */
    let from = null;
    over.addEventListener("pointerdown", (event) => {
      const [x, y] = at(event);
      const isSound = picture.isSound?.(x, y) ?? false;
      this.dragged = false;
      from = !event.button && (isSound || event.pointerType === "mouse") ? { place: [x, y], area: this.area, isSound } : null;
    });
    over.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [x, y] = at(event);
      const [byX, byY] = [from.place[0] - x, from.place[1] - y];
      if (!this.dragged && (from.isSound ? Math.abs(byX) : Math.hypot(byX, byY)) < MIN_DRAG) return;
      if (!this.dragged) over.setPointerCapture(event.pointerId);
      this.dragged = true;
      if (!from.isSound || !picture.secondAt) return this.element.scrollTo(from.area.x + byX, from.area.y + byY);
      const [first, last] = [from.place[0], x].map((pixel) => picture.secondAt?.(pixel, this.area) ?? 0).sort((one, two) => one - two);
      picture.dragged = first < last ? [first, last] : null;
      this.drawOver();
    });
    over.addEventListener("pointerup", () => {
      const { dragged: interval } = picture;
      picture.dragged = from = null;
      if (interval) set({ interval, mark: null });
    });
  }

  /** @param {PlaceOf} at */
  listenToPinch(at) {
    const spread = (/** @type {TouchList} */ [first, second]) =>
      Math.hypot(first.clientX - second.clientX, first.clientY - second.clientY);
    let last = 0;
    this.element.addEventListener("touchstart", (event) => {
      last = event.touches.length === 2 ? spread(event.touches) : 0;
    });
    this.element.addEventListener(
      "touchmove",
      (event) => {
        if (event.touches.length !== 2 || !last) return;
        event.preventDefault();
        const now = spread(event.touches);
        const [first, second] = [at(event.touches[0]), at(event.touches[1])];
        this.zoom(now / last, [(first[0] + second[0]) / 2, (first[1] + second[1]) / 2]);
        last = now;
      },
      { passive: false },
    );
  }
}

/** True if nothing is to move. */
function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Shows a picture on its way from one place of the window to another. @param {HTMLCanvasElement} picture @param {DOMRect} from @param {DOMRect} to */
export function glide(picture, from, to) {
  if (isStill() || !from.width || !to.width || !picture.width) return;
  const ghost = newCanvas(picture.width, picture.height);
  contextOf(ghost).drawImage(picture, 0, 0);
  ghost.className = "gliding";
  Object.assign(ghost.style, { left: `${to.x}px`, top: `${to.y}px`, width: `${to.width}px`, height: `${to.height}px` });
  document.body.append(ghost);
  const start = `translate(${from.x - to.x}px, ${from.y - to.y}px) scale(${from.width / to.width}, ${from.height / to.height})`;
  const way = [{ transform: start, opacity: 1 }, { opacity: 1, offset: 0.7 }, { transform: "none", opacity: 0 }];
  ghost.animate(way, { duration: GLIDE, easing: "ease-out" }).finished.finally(() => ghost.remove());
}
