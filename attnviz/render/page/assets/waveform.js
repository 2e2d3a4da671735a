/** A sound over the weights of one token: its envelope, the words that are said, and seconds; dragging keeps an interval. */

import { contextOf, theme } from "./colors.js";
import { make } from "./elements.js";
import { drawEnvelope, drawHeardWords, drawSeconds } from "./envelope.js";
import { hueOf, strengthOf } from "./scales.js";
import { cellAt, extentOf, heardWords, intervalOf, startOf } from "./seconds.js";
import { CanvasSurface, letters, textWidth } from "./surface.js";

/** @import { Surface, Text } from "./types.js" */
/** @import { Interval } from "./seconds.js" */
/** @import { Marking, Shading } from "./words.js" */

const MIN_INTERVAL = 4; // pixels from which a press that moves keeps an interval
const HEIGHTS = { strip: [34, 14], large: [110, 40] }; // pixels of envelope and weights
const DIMMED = 0.72; // opacity of the paper over what is outside of the interval

export class Waveform {
  /**
   * @param {HTMLElement} parent
   * @param {Pick<Text, "labels" | "spaces" | "sound" | "seconds" | "words" | "first" | "edges">} text
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, text, label, marking) {
    this.text = text;
    this.marking = marking;
    /** @type {Shading | null} */
    this.shading = null;
    /** @type {Interval | null} the seconds between the press and the pointer */
    this.dragged = null;
    this.width = 0;
    this.canvas = make("canvas", { className: "waveform-canvas" });
    this.element = make("div", { className: "waveform", tabIndex: 0 }, this.canvas);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `${label}; drag to keep an interval`);
    parent.append(this.element);
    const [tall, low] = HEIGHTS[parent.className.startsWith("text-large") ? "large" : "strip"];
    this.tall = tall; // pixels of the envelope
    this.low = low; // pixels of the weights below it
    this.listen();
    this.fit();
  }

  /** Pixels of a line of letters. */
  get line() {
    return Math.round(14 * letters.scale);
  }

  get wholeHeight() {
    return 2 * this.line + this.tall + this.low + 4;
  }

  listen() {
    const { point, choose, keepInterval } = this.marking;
    const { canvas } = this;
    /** @type {number | null} */
    let pressed = null;
    canvas.addEventListener("pointerdown", ({ offsetX, button }) => (pressed = button ? null : offsetX));
    canvas.addEventListener("pointermove", (event) => {
      if (pressed === null || !event.buttons || !keepInterval) return event.pointerType === "touch" ? undefined : point(this.placeAt(event.offsetX));
      if (!this.dragged && Math.abs(event.offsetX - pressed) < MIN_INTERVAL) return;
      if (!this.dragged) canvas.setPointerCapture(event.pointerId);
      const ends = [this.secondAt(pressed), this.secondAt(event.offsetX)].sort((one, two) => one - two);
      this.dragged = [ends[0], ends[1]];
      this.paint();
    });
    canvas.addEventListener("pointerup", ({ offsetX, shiftKey }) => {
      const { dragged } = this;
      this.dragged = null;
      if (dragged) keepInterval?.(dragged[1] > dragged[0] ? dragged : null);
      else if (pressed !== null) choose(this.placeAt(offsetX), shiftKey);
      pressed = null;
    });
    canvas.addEventListener("pointercancel", () => {
      pressed = this.dragged = null;
      this.paint();
    });
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("dblclick", ({ offsetX }) => {
      const second = this.secondAt(offsetX);
      const word = heardWords(this.text).find(({ start, end }) => second >= start && second < end);
      if (word) keepInterval?.(intervalOf(word));
    });
  }

  /** The second at a pixel. @param {number} x */
  secondAt(x) {
    const [from, to] = extentOf(this.text);
    return from + Math.min(1, Math.max(0, x / this.width)) * (to - from);
  }

  /** The frame at a pixel. @param {number} x */
  placeAt(x) {
    return cellAt(this.text, this.secondAt(x));
  }

  fit() {
    const density = window.devicePixelRatio || 1;
    this.width = Math.max(60, this.element.clientWidth);
    [this.canvas.width, this.canvas.height] = [this.width, this.wholeHeight].map((side) => Math.round(side * density));
    this.canvas.style.height = `${this.wholeHeight}px`;
    contextOf(this.canvas).setTransform(density, 0, 0, density, 0, 0);
    this.paint();
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
  }

  paint() {
    const context = contextOf(this.canvas);
    context.clearRect(0, 0, this.width, this.wholeHeight);
    this.drawOn(new CanvasSurface(context));
  }

  /** @param {Surface} surface */
  drawOn(surface) {
    const { text, width, line, tall, low } = this;
    const size = 11 * letters.scale;
    drawEnvelope(surface, text, { x: 0, y: line, width, height: tall });
    drawHeardWords(surface, text, { x: 0, y: 0, width, height: line + tall }, size);
    this.drawWeights(surface, line + tall + 2);
    this.drawInterval(surface);
    this.drawHeard(surface);
    this.drawMarks(surface);
    const y = tall + low + line + 2 + line / 2;
    const [words, second] = this.wordsNow();
    const half = textWidth(words, size, 650) / 2 + 4;
    const middle = Math.max(half, Math.min(width - half, this.xOf(second)));
    drawSeconds(surface, text, 0, y, width, size, words ? [middle - half, middle + half] : [0, 0]);
    surface.text(words, middle, y, { size, color: theme().accent, align: "center", weight: 650 });
  }

  /** The words in the line of seconds, and the second that they stand at: of a drag, a frame or a word. @returns {[string, number]} */
  wordsNow() {
    const { dragged, text } = this;
    const middle = (/** @type {number} */ from, /** @type {number} */ to) => (from + to) / 2;
    if (dragged) return [`${dragged[0].toFixed(2)}–${dragged[1].toFixed(2)} s`, middle(...dragged)];
    const marked = this.marks().pop();
    if (marked !== undefined) {
      const second = middle(startOf(text, marked), startOf(text, marked + 1));
      return [`${second.toFixed(2)} s`, second];
    }
    const heard = this.marking.heard?.();
    return heard ? [`${heard.label} ${heard.start.toFixed(2)}–${heard.end.toFixed(2)} s`, middle(heard.start, heard.end)] : ["", 0];
  }

  /** The frames that are chosen, and last the one that is pointed at. */
  marks() {
    const { isChosen, isMarked } = this.marking;
    const places = [...this.text.labels.keys()].filter((place) => isChosen(place) || isMarked(place));
    return places.sort((one, two) => Number(isMarked(one)) - Number(isMarked(two)));
  }

  /** The weights under the envelope: of each pixel the frame with the largest. @param {Surface} surface @param {number} y */
  drawWeights(surface, y) {
    const { text, width, low, shading } = this;
    surface.rect(0, y, width, low, theme().line, 0.5);
    if (!shading?.values) return;
    const { values, scale } = shading;
    const [from, to] = extentOf(text);
    const at = (/** @type {number} */ cell) => ((startOf(text, cell) - from) / (to - from)) * width;
    for (let cell = 0, end = 0; cell < values.length; cell = end) {
      const x = at(cell);
      let largest = cell;
      for (end = cell + 1; end < values.length && at(end) - x < 1; end++) {
        if (Math.abs(values[end]) > Math.abs(values[largest])) largest = end;
      }
      const strength = strengthOf(values[largest], scale);
      if (strength > 0.004) surface.rect(x, y, at(end) - x + 0.3, low, theme()[hueOf(values[largest], scale)], strength);
    }
  }

  /** A frame around the word that is pointed at elsewhere. @param {Surface} surface */
  drawHeard(surface) {
    const heard = this.marking.heard?.();
    if (!heard) return;
    const [x, end] = [heard.start, heard.end].map((second) => this.xOf(second));
    surface.rect(x, 0, end - x, this.line + this.tall, theme().accent, 0.16);
    surface.frame(x, 1, Math.max(2, end - x), this.line + this.tall, theme().accent, 1.5);
  }

  /** Pales what is outside of the interval. @param {Surface} surface */
  drawInterval(surface) {
    const interval = this.dragged ?? this.marking.interval?.();
    if (!interval) return;
    const [x, end] = interval.map((second) => this.xOf(second));
    const height = this.line + this.tall + this.low + 2;
    surface.rect(0, 0, x, height, theme().paper, DIMMED);
    surface.rect(end, 0, this.width - end, height, theme().paper, DIMMED);
    for (const side of [x, end]) surface.rect(side - 1, 0, 2, height, theme().accent);
  }

  /** A line at the frames that are chosen and pointed at. @param {Surface} surface */
  drawMarks(surface) {
    for (const place of this.marks()) {
      const [x, end] = [place, place + 1].map((edge) => this.xOf(startOf(this.text, edge)));
      const color = this.marking.isChosen(place) ? theme().accent : theme().ink;
      surface.rect(x, 0, Math.max(1.5, end - x), this.line + this.tall + this.low + 2, color, 0.8);
    }
  }

  /** The pixel of a second. @param {number} second */
  xOf(second) {
    const [from, to] = extentOf(this.text);
    return Math.min(1, Math.max(0, (second - from) / (to - from))) * this.width;
  }

  /** All of a sound is seen, so that nothing needs to scroll. */
  reveal() {}
}
