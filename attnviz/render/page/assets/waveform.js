/** A sound over the weights of one token: its envelope, the words that are said, and seconds; dragging keeps an interval. Maps show its envelope too. */

import { bytesOf } from "./encoding.js";
import { letters, rectangle, short, textAt, textWidth } from "./figure.js";
import { amplitudesOf, cellAt, extentOf, heardWords, intervalOf, secondTicks, startOf } from "./places.js";
import { hueOf, strengthOf } from "./scales.js";
import { elementOf, h, patch } from "./tree.js";
import { kept } from "./values.js";

/** @import { Area, Figure, Text } from "./types.js" */
/** @import { Marking, Shading } from "./words.js" */
/** @import { Tree } from "./tree.js" */
/** @import { Interval } from "./places.js" */

const MIN_INTERVAL = 4; // pixels from which a press that moves keeps an interval
const HEIGHTS = { strip: [34, 14], large: [110, 40] }; // pixels of envelope and weights
const SHADES_OF_BARS = 60;
const PALED = 0.72; // opacity of the paper over what is outside of the interval
const BAR = 2; // pixels of a bar of the envelope
const LABEL_SPACE = 10; // pixels between two labels

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
    const about = { class: "waveform", tabindex: 0, role: "group", "aria-label": `${label}; drag to keep an interval` };
    this.element = elementOf(h("div", about, h("svg", { class: "waveform-canvas" })));
    this.picture = /** @type {SVGElement} */ (this.element.firstChild);
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

  listen() {
    const { point, choose, keepInterval } = this.marking;
    const { picture } = this;
    const at = (/** @type {MouseEvent} */ { clientX }) => clientX - picture.getBoundingClientRect().left;
    /** @type {number | null} */
    let pressed = null;
    picture.addEventListener("pointerdown", (event) => (pressed = event.button ? null : at(event)));
    picture.addEventListener("pointermove", (event) => {
      if (pressed === null || !event.buttons || !keepInterval) return event.pointerType === "touch" ? undefined : point(this.placeAt(at(event)));
      if (!this.dragged && Math.abs(at(event) - pressed) < MIN_INTERVAL) return;
      if (!this.dragged) picture.setPointerCapture(event.pointerId);
      const ends = [this.secondAt(pressed), this.secondAt(at(event))].sort((one, two) => one - two);
      this.dragged = [ends[0], ends[1]];
      this.paint();
    });
    picture.addEventListener("pointerup", (event) => {
      const { dragged } = this;
      this.dragged = null;
      if (dragged) keepInterval?.(dragged[1] > dragged[0] ? dragged : null);
      else if (pressed !== null) choose(this.placeAt(at(event)), event.shiftKey);
      pressed = null;
    });
    picture.addEventListener("pointercancel", () => {
      pressed = this.dragged = null;
      this.paint();
    });
    picture.addEventListener("pointerleave", () => point(null));
    picture.addEventListener("dblclick", (event) => {
      const second = this.secondAt(at(event));
      const word = heardWords(this.text).find(({ start, end }) => second >= start && second < end);
      if (word) keepInterval?.(intervalOf(word));
    });
  }

  /** The second at a pixel. @param {number} x */
  secondAt(x) {
    return secondAt(this.text, x, this.width);
  }

  /** The frame at a pixel. @param {number} x */
  placeAt(x) {
    return cellAt(this.text, this.secondAt(x));
  }

  fit() {
    this.width = Math.max(60, this.element.clientWidth);
    this.paint();
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
  }

  paint() {
    const { tree, height } = this.figure(this.width);
    this.picture.style.height = `${height}px`;
    patch(this.picture, tree);
  }

  /** The envelope with its words, weights below it, what is kept and marked, and seconds. @param {number} width @returns {Figure} */
  figure(width) {
    const { text, line, tall, low, marking } = this;
    const size = 11 * letters.scale;
    const whole = line + tall + low + 2;
    const x = (/** @type {number} */ second) => xOf(text, second, width);
    const tree = [
      envelopeOf(text, { x: 0, y: line, width, height: tall }),
      ...wordsHeard(text, { x: 0, y: 0, width, height: line + tall }, size),
      rectangle(0, line + tall + 2, width, low, "var(--line)", 0.5),
      ...this.weights(line + tall + 2, width),
    ].filter((part) => part !== null);

    const interval = this.dragged ?? marking.interval?.();
    if (interval) { // what is outside of it is paled
      const [from, end] = interval.map(x);
      tree.push(rectangle(0, 0, from, whole, "var(--paper)", PALED), rectangle(end, 0, width - end, whole, "var(--paper)", PALED));
      tree.push(...[from, end].map((side) => rectangle(side - 1, 0, 2, whole, "var(--accent)")));
    }
    const heard = marking.heard?.();
    if (heard) { // the word that is pointed at elsewhere
      const [from, end] = [heard.start, heard.end].map(x);
      tree.push(rectangle(from, 0, end - from, line + tall, "var(--accent)", 0.16));
      tree.push(h("rect", { x: from, y: 1, width: Math.max(2, end - from), height: line + tall, fill: "none", stroke: "var(--accent)", "stroke-width": 1.5 }));
    }
    for (const place of this.marks()) {
      const [from, end] = [place, place + 1].map((edge) => x(startOf(text, edge)));
      tree.push(rectangle(from, 0, Math.max(1.5, end - from), whole, marking.isChosen(place) ? "var(--accent)" : "var(--ink)", 0.8));
    }

    const y = tall + low + line + 2 + line / 2;
    const [words, second] = this.wordsNow();
    const half = textWidth(words, size, 650) / 2 + 4;
    const middle = Math.max(half, Math.min(width - half, x(second)));
    tree.push(...secondsAlong(text, 0, y, width, size, words ? [middle - half, middle + half] : [0, 0]));
    tree.push(textAt(words, middle, y, { size, color: "var(--accent)", align: "middle", weight: 650 }));
    return { tree, width, height: 2 * line + tall + low + 4 };
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

  /** The weights under the envelope: of each pixel the frame with the largest. @param {number} y @param {number} width */
  weights(y, width) {
    const { text, low, shading } = this;
    if (!shading?.values) return [];
    const { values, scale } = shading;
    const at = (/** @type {number} */ cell) => xOf(text, startOf(text, cell), width);
    /** @type {Map<string, { hue: string, opacity: number, path: string }>} one path for all bars of a shade */
    const shades = new Map();
    for (let cell = 0, end = 0; cell < values.length; cell = end) {
      const x = at(cell);
      let largest = cell;
      for (end = cell + 1; end < values.length && at(end) - x < 1; end++) {
        if (Math.abs(values[end]) > Math.abs(values[largest])) largest = end;
      }
      const [hue, opacity] = [hueOf(values[largest], scale), Math.ceil(SHADES_OF_BARS * strengthOf(values[largest], scale) - 0.2) / SHADES_OF_BARS];
      if (opacity <= 0) continue;
      const shade = shades.get(`${hue} ${opacity}`) ?? { hue, opacity, path: "" };
      shade.path += `M${short(x)} ${y}h${short(at(end) - x + 0.3)}v${low}h${short(x - at(end) - 0.3)}z`;
      shades.set(`${hue} ${opacity}`, shade);
    }
    return Array.from(shades.values(), ({ hue, opacity, path }) => h("path", { d: path, fill: `var(--${hue})`, "fill-opacity": opacity }));
  }

  /** All of a sound is seen, so that nothing needs to scroll. */
  reveal() {}
}

/** The second at a pixel, where the axis takes so many. @param {Text} text @param {number} x @param {number} width */
export function secondAt(text, x, width) {
  const [from, to] = extentOf(text);
  return from + Math.min(1, Math.max(0, x / width)) * (to - from);
}

/** The pixel of a second. @param {Text} text @param {number} second @param {number} width */
export function xOf(text, second, width) {
  const [from, to] = extentOf(text);
  return Math.min(1, Math.max(0, (second - from) / (to - from))) * width;
}

/** @type {WeakMap<object, Uint8Array>} */
const envelopes = new WeakMap();

/** The envelope of an axis in a box; a bar is as high as the largest amplitude of its part. @param {Text} text @param {Area} area */
export function envelopeOf(text, { x, y, width, height }) {
  const { sound } = text;
  if (!sound) return null;
  const envelope = kept(envelopes, sound, () => bytesOf(sound.envelope));
  const bars = Math.max(1, Math.floor(width / BAR));
  const steps = Array.from(amplitudesOf(envelope, sound.length, extentOf(text), bars), (amplitude, bar) => {
    const high = Math.max(1, amplitude * height);
    return `M${short(x + (bar * width) / bars)} ${short(y + (height - high) / 2)}h${short(width / bars)}v${short(high)}h${short(-width / bars)}z`;
  });
  return h("path", { d: steps.join(""), fill: "var(--soft)", "fill-opacity": 0.75 });
}

/** Round seconds along an axis, without those under other words. @param {Text} text @param {number} x @param {number} y @param {number} width of the whole axis @param {number} size of letters @param {[number, number]} [covered] pixels of the other words */
export function secondsAlong(text, x, y, width, size, covered = [0, 0]) {
  const [from, to] = extentOf(text);
  const widest = textWidth(`${to.toFixed(1)} s`, size) + LABEL_SPACE;
  // the first label stands half a label further right
  return secondTicks(text, (1.5 * widest * text.labels.length) / width).flatMap(({ second, label }) => {
    const at = x + ((second - from) / (to - from)) * width;
    const half = textWidth(label, size) / 2;
    const middle = Math.max(at, x + half);
    if (middle + half > x + width || (middle + half > covered[0] && middle - half < covered[1])) return [];
    return [textAt(label, middle, y, { size, color: "var(--soft)", align: "middle" }), rectangle(at, y + size * 0.62, 1, 3, "var(--soft)")];
  });
}

/** A line at the ends of each word that is said, and the words that have room between them. @param {Text} text @param {Area} area @param {number} size of letters; 0 for lines alone */
export function wordsHeard(text, { x, y, width, height }, size) {
  const [from, to] = extentOf(text);
  const at = (/** @type {number} */ second) => x + ((second - from) / (to - from)) * width;
  /** @type {Tree[]} */
  const parts = [];
  for (const { start, end, label } of heardWords(text)) {
    for (const second of [start, end]) parts.push(rectangle(at(second) - 0.5, y, 1, height, "var(--accent)", 0.45));
    if (!size || textWidth(label, size) > at(end) - at(start) - 2) continue;
    parts.push(textAt(label, (at(start) + at(end)) / 2, y + size / 2, { size, align: "middle" }));
  }
  return parts;
}
