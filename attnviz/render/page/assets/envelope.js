/** Draws the envelope of a sound over its seconds, with the words that are said: above maps, and on top of the page. */

import { theme } from "./colors.js";
import { bytesOf } from "./encoding.js";
import { amplitudesOf, extentOf, heardWords, secondTicks } from "./seconds.js";
import { textWidth } from "./surface.js";

/** @import { Area, Surface, Text } from "./types.js" */

const BAR = 2; // pixels
const LABEL_SPACE = 10; // pixels between two labels

/** @type {WeakMap<object, Uint8Array>} */
const envelopes = new WeakMap();

/** Draws the envelope of an axis in a box; a bar is as high as the largest amplitude of its part. @param {Surface} surface @param {Text} text @param {Area} box */
export function drawEnvelope(surface, text, { x, y, width, height }) {
  const { sound } = text;
  if (!sound) return;
  const envelope = envelopes.get(sound) ?? bytesOf(sound.envelope);
  envelopes.set(sound, envelope);
  const bars = Math.max(1, Math.floor(width / BAR));
  amplitudesOf(envelope, sound.length, extentOf(text), bars).forEach((amplitude, bar) => {
    const high = Math.max(1, amplitude * height);
    surface.rect(x + (bar * width) / bars, y + (height - high) / 2, width / bars, high, theme().soft, 0.75);
  });
}

/** Draws round seconds along an axis, without those under other words. @param {Surface} surface @param {Text} text @param {number} x @param {number} y @param {number} width of the whole axis @param {number} size of letters @param {[number, number]} [covered] pixels of the other words */
export function drawSeconds(surface, text, x, y, width, size, covered = [0, 0]) {
  const [from, to] = extentOf(text);
  const widest = textWidth(`${to.toFixed(1)} s`, size) + LABEL_SPACE;
  const style = { size, color: theme().soft };
  // the first label stands half a label further right
  for (const { second, label } of secondTicks(text, (1.5 * widest * text.labels.length) / width)) {
    const at = x + ((second - from) / (to - from)) * width;
    const half = textWidth(label, size) / 2;
    const middle = Math.max(at, x + half);
    if (middle + half > x + width || (middle + half > covered[0] && middle - half < covered[1])) continue;
    surface.text(label, middle, y, { ...style, align: "center" });
    surface.rect(at, y + size * 0.62, 1, 3, theme().soft);
  }
}

/** Draws a line at the ends of each word that is said, and the words that have room between them. @param {Surface} surface @param {Text} text @param {Area} box @param {number} size of letters; 0 for lines alone */
export function drawHeardWords(surface, text, { x, y, width, height }, size) {
  const [from, to] = extentOf(text);
  const at = (/** @type {number} */ second) => x + ((second - from) / (to - from)) * width;
  for (const { start, end, label } of heardWords(text)) {
    for (const second of [start, end]) surface.rect(at(second) - 0.5, y, 1, height, theme().accent, 0.45);
    if (!size || textWidth(label, size) > at(end) - at(start) - 2) continue;
    surface.text(label, (at(start) + at(end)) / 2, y + size / 2, { size, color: theme().ink, align: "center" });
  }
}
