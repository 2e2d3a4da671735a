/** A text that is shaded by what a token attends to or what attends to it: only the lines that are seen are drawn. */

import { contextOf, theme } from "./colors.js";
import { whenIdle } from "./elements.js";
import { textAt, textWidth } from "./figure.js";
import { lineWith, linesOf } from "./formatting.js";
import { hueOf, inkOn, mixed, partsOf, strengthOf } from "./scales.js";
import { elementOf, h } from "./tree.js";
import { ABSENT, kept } from "./values.js";

/** @import { Figure, Scale, Text } from "./types.js" */
/** @import { Tree } from "./tree.js" */
/** @import { Heard, Interval } from "./places.js" */

/**
 * What a reader does with the tokens, and which of them are marked.
 *
 * @typedef {object} Marking
 * @property {(place: number | null) => void} point at a token, or at none
 * @property {(place: number, beside: boolean) => void} choose a token, or one besides that which is chosen
 * @property {(place: number) => boolean} isChosen
 * @property {(place: number) => boolean} isMarked
 * @property {(token: number) => void} [openToken] of a turn, which is another row
 * @property {() => Interval | null} [interval] of a sound, the one that is kept
 * @property {(interval: Interval | null) => void} [keepInterval]
 * @property {() => Heard | null} [heard] the word that is pointed at, and the seconds in which it is said
 */

/** @typedef {{ values: Float32Array | null, scale: Scale, colors?: string[], row?: Float32Array | null }} Shading of tokens; null shades nothing; colours where not the scale's; the row of weights whose shares are said */
/** @typedef {{ element: HTMLElement, place: number, x: number, width: number, look: string }} DrawnToken */
/** @typedef {{ element: HTMLElement, tokens: DrawnToken[], measured: boolean }} DrawnLine */

const MARGIN_LINES = 2; // drawn above and below those that are seen
const PADDING = 0.3; // of a token, beside it, in parts of the size of its letters
const MAX_SAVED_LINES = 400;
const MAX_SHADES_SIDE = 32_000; // pixels of a canvas that every browser has
const SPACE = 0.28; // of a space, in parts of the size of letters
const MEASURED_SIZE = 16; // pixels of the letters that are measured
const OPACITY = 0.78; // of the strongest shade
const CORNER = 4; // pixels of a shade's corner
const SHADE_MARGIN = 2; // pixels between the shades of two lines
/** @type {Shading} */
const UNSHADED = { values: null, scale: { low: 0, high: 1, palette: "", steps: "linear", change: false } };

export class Words {
  /**
   * @param {HTMLElement} parent
   * @param {Pick<Text, "labels" | "spaces">} text
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, text, label, marking) {
    this.text = text;
    this.marking = marking;
    // Shades are painted under the tokens: to give each a style would cost more than everything else that pointing does.
    this.shades = /** @type {HTMLCanvasElement} */ (elementOf(h("canvas", { class: "words-shades", "aria-hidden": "true" })));
    this.space = elementOf(h("div", { class: "words-space" }, this.shades));
    this.element = elementOf(h("div", { class: "words", tabindex: 0, role: "group", "aria-label": label }, this.space));
    /** @type {number[]} */
    this.starts = [0, 0];
    /** @type {Map<number, DrawnLine>} */
    this.lines = new Map();
    /** @type {Shading | null} */
    this.shading = null;
    this.step = 24; // pixels from line to line
    this.room = 60; // pixels of a line
    parent.append(this.element);
    this.element.addEventListener("scroll", () => this.drawLines());
    this.listen();
    this.fit();
  }

  listen() {
    const placeAt = (/** @type {Event} */ { target }) => {
      const token = /** @type {Element} */ (target).closest?.(".token");
      return token instanceof HTMLElement ? Number(token.dataset.place) : null;
    };
    const { point, choose } = this.marking;
    this.element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(placeAt(event)));
    this.element.addEventListener("pointerleave", () => point(null));
    this.element.addEventListener("click", (event) => {
      const place = placeAt(event);
      if (place !== null) choose(place, event.shiftKey);
    });
  }

  /** Breaks the lines anew for the width that there is. */
  fit() {
    const style = getComputedStyle(this.element);
    const size = parseFloat(style.fontSize);
    this.step = Math.round(size * 1.72);
    this.room = Math.max(60, this.element.clientWidth - 4);
    this.starts = linesOf(widthsOf(this.text, size), this.text.spaces, size * SPACE, this.room);
    const height = (this.starts.length - 1) * this.step;
    this.space.style.height = `${height}px`;
    this.element.style.setProperty("--line", `${this.step}px`);
    this.clear();
    this.drawLines();
  }

  clear() {
    for (const { element } of this.lines.values()) element.remove();
    this.lines.clear();
  }

  /** Draws the lines that are seen, and lets go of those that are not. */
  drawLines() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.step) - MARGIN_LINES);
    const count = Math.min(this.starts.length - 1, first + Math.ceil(clientHeight / this.step) + 2 * MARGIN_LINES + 1);
    for (const [number, { element }] of this.lines) {
      if (number >= first && number < count) continue;
      element.remove();
      this.lines.delete(number);
    }
    const before = this.lines.size;
    for (let number = first; number < count; number++) if (!this.lines.has(number)) this.drawLine(number);
    if (this.lines.size > before) this.paint();
    whenIdle(() => this.measureLines()); // so that the first pointing need not
  }

  measureLines() {
    if (this.element.isConnected) for (const line of this.lines.values()) if (!line.measured) measure(line);
  }

  /** @param {number} number */
  drawLine(number) {
    const { labels, spaces } = this.text;
    const places = Array.from({ length: this.starts[number + 1] - this.starts[number] }, (_, more) => this.starts[number] + more);
    const parts = places.flatMap((place, at) => [
      at > 0 && spaces[place] === " " && " ",
      h("button", { type: "button", class: "token", tabindex: -1, "data-place": place }, labels[place]),
    ]);
    const element = elementOf(h("div", { class: "words-line", dir: "auto", style: `top: ${number * this.step}px` }, ...parts));
    const tokens = Array.from(element.children, (token, at) => ({ element: /** @type {HTMLElement} */ (token), place: places[at], x: 0, width: 0, look: "" }));
    this.lines.set(number, { element, tokens, measured: false });
    this.space.append(element);
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
  }

  /** Paints the shades of all lines that are drawn, and marks their tokens. */
  paint() {
    if (!this.shading) return;
    const { values } = this.shading;
    const numbers = [...this.lines.keys()];
    const first = Math.min(...numbers);
    const most = Math.floor(MAX_SHADES_SIDE / this.step / (window.devicePixelRatio || 1));
    const context = this.cleared(first, Math.min(most, Math.max(...numbers) + 1 - first));
    for (const [number, line] of this.lines) {
      if (values && !line.measured) measure(line);
      for (const token of line.tokens) this.paintToken(context, token, (number - first) * this.step, this.shading);
    }
    context.globalAlpha = 1;
  }

  /** The canvas under so many lines, empty. @param {number} first @param {number} count */
  cleared(first, count) {
    const density = window.devicePixelRatio || 1;
    const [width, height] = [this.room, count * this.step];
    const size = [Math.round(width * density), Math.round(height * density)];
    if (this.shades.width !== size[0] || this.shades.height !== size[1]) {
      [this.shades.width, this.shades.height] = size;
      this.shades.style.width = `${width}px`;
      this.shades.style.height = `${height}px`;
    }
    const top = `${first * this.step}px`;
    if (this.shades.style.top !== top) this.shades.style.top = top;
    const context = contextOf(this.shades);
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  /** @param {CanvasRenderingContext2D} context @param {DrawnToken} token @param {number} y of its line @param {Shading} shading */
  paintToken(context, token, y, { values, scale, colors }) {
    const value = values ? values[token.place] : 0;
    const opacity = OPACITY * strengthOf(value, scale);
    const hue = hueOf(value, scale);
    if (opacity > 0.004) {
      context.globalAlpha = opacity;
      context.fillStyle = colors?.[token.place] ?? theme()[hue];
      context.beginPath();
      context.roundRect(token.x, y + SHADE_MARGIN, token.width, this.step - 2 * SHADE_MARGIN, CORNER);
      context.fill();
    }
    const [chosen, marked] = [this.marking.isChosen(token.place), this.marking.isMarked(token.place)];
    const kind = value === ABSENT ? " absent" : Number.isNaN(value) ? " nan" : "";
    const look = `token${kind}${chosen ? " chosen" : ""}${marked ? " marked" : ""}${turnsInk(hue, opacity) ? " turned" : ""}`;
    if (token.look === look) return;
    token.look = token.element.className = look;
  }

  /** All lines with their shades in so many pixels, of very many the first ones. @param {number} width @returns {Figure} */
  figure(width = this.room) {
    const size = parseFloat(getComputedStyle(this.element).fontSize);
    const widths = widthsOf(this.text, size);
    const starts = linesOf(widths, this.text.spaces, size * SPACE, width);
    const { values, scale, colors } = this.shading ?? UNSHADED;
    const lines = Math.min(MAX_SAVED_LINES, starts.length - 1);
    /** @type {Tree[]} */
    const tree = [];
    for (let line = 0; line < lines; line++) {
      let x = 0;
      for (let place = starts[line]; place < starts[line + 1]; place++) {
        if (x && this.text.spaces[place] === " ") x += size * SPACE;
        const value = values ? values[place] : 0;
        const [opacity, hue] = [OPACITY * strengthOf(value, scale), hueOf(value, scale)];
        const chosen = this.marking.isChosen(place);
        const shade = { x, y: line * this.step + SHADE_MARGIN, width: widths[place], height: this.step - 2 * SHADE_MARGIN, rx: CORNER };
        if (opacity > 0.004 || chosen) {
          tree.push(h("rect", { ...shade, fill: colors?.[place] ?? `var(--${hue})`, "fill-opacity": opacity, stroke: chosen ? "var(--accent)" : null, "stroke-width": chosen ? 2 : null }));
        }
        const color = `var(--${turnsInk(hue, opacity) ? "paper" : value === ABSENT ? "soft" : "ink"})`;
        tree.push(textAt(this.text.labels[place], x + (PADDING * size) / 2, (line + 0.5) * this.step, { size, color }));
        x += widths[place];
      }
    }
    const left = starts.length - 1 - lines;
    if (left > 0) tree.push(textAt(`… and ${left} more lines`, 0, (lines + 0.5) * this.step, { size, color: "var(--soft)" }));
    return { tree, width, height: (lines + Math.sign(left)) * this.step };
  }

  /** Scrolls to a token. @param {number} place */
  reveal(place) {
    const top = lineWith(this.starts, place) * this.step;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.step > scrollTop + clientHeight) this.element.scrollTop = top + this.step - clientHeight;
    this.drawLines();
  }
}

/** @type {WeakMap<object, Float32Array>} */
const measured = new WeakMap();

/** The widths of a text's tokens in letters of a size: measured once, since they grow with it. @param {Pick<Text, "labels">} text @param {number} size */
function widthsOf(text, size) {
  return kept(measured, text, () => widthsOfLabels(text.labels)).map((width) => width * size);
}

/** Widths in parts of the size of letters, each label measured once. @param {string[]} labels */
function widthsOfLabels(labels) {
  /** @type {Map<string, number>} */
  const widths = new Map();
  return Float32Array.from(labels, (label) => kept(widths, label, () => textWidth(label, MEASURED_SIZE) / MEASURED_SIZE + PADDING));
}

/** Measures the places and widths of the tokens of a line. @param {DrawnLine} line */
function measure(line) {
  for (const token of line.tokens) [token.x, token.width] = [token.element.offsetLeft, token.element.offsetWidth];
  line.measured = true;
}

/** @type {Map<string, number>} */
const turns = new Map();

/** True if letters on a shade are better in the other ink. @param {string} hue @param {number} opacity */
function turnsInk(hue, opacity) {
  if (opacity <= 0.2) return false;
  const [paper, color] = [theme().paper, theme()[hue]];
  const name = `${paper} ${color}`;
  const isOther = (/** @type {number} */ part) => inkOn(mixed(paper, color, part / 100)) !== inkOn(partsOf(paper));
  return 100 * opacity >= kept(turns, name, () => [...Array(101).keys()].find(isOther) ?? 101);
}
