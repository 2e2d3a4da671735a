/** An axis of frames of a sound: where seconds are on it, which words are said there, and the interval that is kept. */

import { bare } from "./places.js";

/** @import { Text } from "./types.js" */

/** @typedef {[number, number]} Interval the second at which it begins, and the second at which it ends */
/** @typedef {{ start: number, end: number, label: string }} Heard a word, and the seconds in which it is said */

const ROUND_SECONDS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600]; // seconds from label to label
const PAUSE = "(pause)"; // as Python calls the frames between two words

/** Returns the second at which a cell of an axis begins; the end of the axis for the number of cells. @param {Text} text @param {number} cell */
export function startOf({ seconds = [0, 1], first = 0, edges }, cell) {
  const token = edges ? edges[Math.min(cell, edges.length - 1)] : first + cell;
  return Math.max(0, seconds[0] + (token - 0.5) * seconds[1]); // the middle of frame 0 is at the first number
}

/** Returns the seconds of a whole axis. @param {Text} text @returns {Interval} */
export function extentOf(text) {
  return [startOf(text, 0), startOf(text, text.labels.length)];
}

/** Returns the cell at a second, the first or the last for a second outside. @param {Text} text @param {number} second */
export function cellAt(text, second) {
  let [low, high] = [0, text.labels.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (startOf(text, middle) <= second) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** True if the middle of a cell is in an interval. @param {Text} text @param {number} cell @param {Interval} interval */
export function isWithin(text, cell, [from, to]) {
  const middle = (startOf(text, cell) + startOf(text, cell + 1)) / 2;
  return middle >= from && middle <= to;
}

/** Returns round seconds with their cells, at least so many cells apart. @param {Text} text @param {number} cells */
export function secondTicks(text, cells) {
  const [from, to] = extentOf(text);
  const least = (cells * (to - from)) / text.labels.length;
  const step = ROUND_SECONDS.find((seconds) => seconds >= least) ?? 3600;
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const ticks = [];
  for (let number = Math.ceil(from / step - 1e-6); number * step < to; number++) {
    ticks.push({ second: number * step, label: `${(number * step).toFixed(digits)} s` });
  }
  return ticks;
}

/** Returns the words that are said, without pauses. @param {Text} text @returns {Heard[]} */
export function heardWords(text) {
  const { starts, labels } = text.words ?? { starts: [], labels: [] };
  return starts.flatMap((start, number) => {
    const label = labels[number];
    if (!label || label === PAUSE) return [];
    return [{ start: startOf(text, start), end: startOf(text, starts[number + 1] ?? text.labels.length), label }];
  });
}

/** Returns the seconds in which the word of a token is said; null if they are not known. @param {Text} text @param {number | null} token @returns {Heard | null} */
export function heardOf({ spoken = [], labels, words }, token) {
  const word = token === null ? undefined : spoken.find(([first, end]) => token >= first && token < end);
  if (!word) return null;
  const [first, , start, end] = word;
  const number = words?.starts.indexOf(Math.max(0, first)) ?? -1;
  const label = (number >= 0 && words?.labels[number]) || labels[Math.max(0, first)];
  return { start, end, label: bare(label) };
}

/** Returns the interval in which a word is said. @param {Heard} heard @returns {Interval} */
export function intervalOf({ start, end }) {
  return [start, end];
}

/** Returns an interval with its end moved by a frame, or by a hundredth of the sound if that is more; null if nothing is left. @param {Text} text @param {Interval} interval @param {number} direction 1 or -1 */
export function withMovedEnd(text, [from, to], direction) {
  const [first, last] = extentOf(text);
  const step = Math.max(text.seconds?.[1] ?? 1, (last - first) / 100);
  const end = Math.min(last, to + direction * step);
  return end - from < step / 2 ? null : /** @type {Interval} */ ([from, end]);
}

/** Returns an interval as it is written, in an address and on the page. @param {Interval} interval */
export function intervalText([from, to]) {
  return `${from.toFixed(2)}-${to.toFixed(2)}`;
}

/** Returns the interval that an address writes; null if it writes none. @param {string | null} written @returns {Interval | null} */
export function readInterval(written) {
  const [, from, to] = written?.match(/^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/) ?? [];
  return from !== undefined && Number(from) < Number(to) ? [Number(from), Number(to)] : null;
}

/** Returns the largest amplitude of each of some equal parts of an interval, from 0 to 1. @param {Uint8Array} envelope @param {number} length seconds of the whole sound @param {Interval} interval @param {number} parts */
export function amplitudesOf(envelope, length, [from, to], parts) {
  return Float32Array.from({ length: parts }, (_, part) => {
    const at = (/** @type {number} */ number) => ((from + ((to - from) * number) / parts) / length) * envelope.length;
    const first = Math.max(0, Math.floor(at(part)));
    let largest = 0;
    for (let point = first; point < Math.max(first + 1, at(part + 1)); point++) largest = Math.max(largest, envelope[point] ?? 0);
    return largest / 255;
  });
}

/** Returns the sum of a line's weights within an interval. @param {Float32Array} line @param {Text} text @param {Interval} interval */
export function shareWithin(line, text, interval) {
  let share = 0;
  line.forEach((weight, cell) => (share += weight > 0 && isWithin(text, cell, interval) ? weight : 0));
  return share;
}
