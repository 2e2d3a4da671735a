/** The envelope of a sound over its seconds, with the words that are said: above maps, and on top of the page. */

import { bytesOf } from "./encoding.js";
import { rectangle, short, textAt, textWidth } from "./figure.js";
import { amplitudesOf, extentOf, heardWords, secondTicks } from "./seconds.js";
import { h } from "./tree.js";

/** @import { Area, Text } from "./types.js" */
/** @import { Tree } from "./tree.js" */

const BAR = 2; // pixels
const LABEL_SPACE = 10; // pixels between two labels

/** @type {WeakMap<object, Uint8Array>} */
const envelopes = new WeakMap();

/** The envelope of an axis in a box; a bar is as high as the largest amplitude of its part. @param {Text} text @param {Area} area */
export function envelopeOf(text, { x, y, width, height }) {
  const { sound } = text;
  if (!sound) return null;
  const envelope = envelopes.get(sound) ?? bytesOf(sound.envelope);
  envelopes.set(sound, envelope);
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
