/** Places on an axis: the token that a name stands for and the name that finds it, by the rules of `attnviz/text/places.py`; and in a sound the seconds, the words said there and the kept interval. */

/** @import { Axis, Text } from "./types.js" */

const UNCLEAR_NAME = /^(@?\d+|@\d+,\d+|-.*|\s.*|.*\s)$/s;
const PART_OF_CHARACTER = /^(.+) (\d+)\/\d+$/s; // the label of a token that is some of its bytes
const SIGNS = new Map([[" ", "␣"], ["\n", "⏎"], ["\t", "⇥"]]);
const CHARACTERS = new Map([...SIGNS].map(([character, sign]) => [sign, character]));
const DOTTED_CIRCLE = "◌"; // before a mark at the start of a label

/** The place of the token with a name, of several the last one as a query, the first one as a key; null if there is none. @param {Text} text @param {string | null} name @param {Axis} [axis] */
export function placeNamed(text, name, axis = "query") {
  if (name === null) return null;
  const first = axis === "query" ? -1 : 0;
  const { labels, images = [] } = text;
  const [, x, y] = images.length ? (name.match(/^@(\d{1,6}),(\d{1,6})$/) ?? []) : [];
  if (y !== undefined) return patchAt(text, Number(x), Number(y));
  if (/^@\d{1,12}$/.test(name)) return placeOfNumber(text, Number(name.slice(1)));
  const [whole, bared] = placesLabelled(labels, name);
  const labelled = (whole.length ? whole : bared).at(first);
  if (labelled !== undefined) return labelled;
  const written = writtenTokens(text);
  const exact = lastOfRun(written, name, "gu", first);
  if (exact !== null) return exact;
  if (/^\d{1,12}$/.test(name)) return placeOfNumber(text, Number(name));
  return lastOfRun(written, name, "giu", first) ?? placeOfSpokenWord(text, name, first);
}

/** A name of a token that `placeNamed` understands: a label that no other token has, else `@4`. @param {Text} text @param {number} place */
export function nameOfPlace(text, place) {
  const label = text.labels[place];
  const names = text.edges || text.cut ? [] : [bare(label), label];
  const known = names.find((name) => {
    const [first, second] = placesLabelled(text.labels, name).flat();
    return name && !UNCLEAR_NAME.test(name) && first === place && second === undefined;
  });
  return known ?? `@${text.edges ? text.edges[place] : (text.first ?? 0) + place}`;
}

/** A label without the spaces around it. @param {string} label */
function bare(label) {
  return label.replace(/^[␣ ]+|[␣ ]+$/g, "");
}

/** The tokens with a label as a whole, then those with spaces around it. @param {string[]} labels @param {string} name */
function placesLabelled(labels, name) {
  const signed = [...name].map((character) => SIGNS.get(character) ?? character).join("");
  const visible = /^\p{M}/u.test(signed) ? DOTTED_CIRCLE + signed : signed;
  const isExact = (/** @type {string} */ label) => label === name || label === visible;
  const places = [...labels.keys()];
  const exact = places.filter((place) => isExact(labels[place]));
  return [exact, name.trim() ? places.filter((place) => !isExact(labels[place]) && bare(labels[place]) === name) : []];
}

/** @param {Text} text @param {number} number */
function placeOfNumber({ labels, first, edges }, number) {
  const place = edges ? edges.findIndex((edge, at) => edge <= number && number < (edges[at + 1] ?? -1)) : number - (first ?? 0);
  return place >= 0 && place < labels.length ? place : null;
}

/** The patch of the first image that holds a pixel. @param {Text} text @param {number} x @param {number} y */
function patchAt({ images = [] }, x, y) {
  const holding = images[0].tokens.filter((_, number) => {
    const [left, top, right, bottom] = images[0].boxes[number];
    return left <= x && x < right && top <= y && y < bottom;
  });
  return holding.length ? Math.min(...holding) : null;
}

/** The last token of a spoken word, whose tokens are frames of a sound. @param {Text} text @param {string} name @param {number} first */
function placeOfSpokenWord({ seconds, words, labels }, name, first) {
  if (!seconds || !words) return null;
  const numbers = [...words.labels.keys()].filter((number) => bare(words.labels[number]).toLowerCase() === name.toLowerCase());
  const number = numbers.at(first);
  return number === undefined ? null : (words.starts[number + 1] ?? labels.length) - 1;
}

/** @typedef {{ text: string, spans: [number, number][] }} Written tokens, and the first and the end of the visible characters of each */

/** The tokens written one after another. @param {Text} text @returns {Written} */
function writtenTokens({ labels, spaces }) {
  let text = "";
  /** @type {[number, number][]} */
  const spans = [];
  labels.forEach((label, place) => {
    const [, whole, part] = label.match(PART_OF_CHARACTER) ?? [];
    if (part !== undefined && part !== "1" && place) {
      spans.push(spans[place - 1]);
      return;
    }
    const shown = whole ?? label;
    const piece = [...(shown.startsWith(DOTTED_CIRCLE) ? shown.slice(1) : shown)].map((sign) => CHARACTERS.get(sign) ?? sign).join("");
    const space = spaces?.[place] ?? " ";
    text += (space === "-" ? "" : space) + piece;
    spans.push([text.length - piece.trimStart().length, text.length - piece.length + piece.trimEnd().length]);
  });
  return { text, spans };
}

/** The last token of the first (0) or last (-1) place where a name is written: as whole words, or else between borders of tokens. @param {Written} written @param {string} name @param {string} flags @param {number} first */
function lastOfRun({ text, spans }, name, flags, first) {
  const words = name.trim().split(/\s+/);
  if (!words[0]) return null;
  const pattern = new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("\\s+"), flags);
  /** @type {[number, number][]} */
  const found = [];
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    found.push([match.index, match.index + match[0].length]);
    pattern.lastIndex = match.index + (Number(text.codePointAt(match.index)) > 0xffff ? 2 : 1); // places may overlap
  }
  const [starts, ends] = [0, 1].map((side) => new Set(spans.map((span) => span[side])));
  const wholeWords = found.filter(([start, end]) => isBorder(text, start) && isBorder(text, end));
  const wholeTokens = found.filter(([start, end]) => (starts.has(start) || isBorder(text, start)) && (ends.has(end) || isBorder(text, end)));
  const runs = wholeWords.length ? wholeWords : wholeTokens;
  const lasts = runs.map(([start, end]) => spans.map(([from, stop]) => from < Math.min(stop, end) && stop > start).lastIndexOf(true));
  return lasts.filter((last) => last >= 0).at(first) ?? null;
}

/** True if no word goes on from the character before a place to the one after it. @param {string} text @param {number} at */
function isBorder(text, at) {
  return !(/[\p{L}\p{M}\p{N}_]$/u.test(text.slice(Math.max(0, at - 2), at)) && /^[\p{L}\p{M}\p{N}_]/u.test(text.slice(at, at + 2)));
}

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

/** Returns for each token of a transcript the weight on the seconds in which its word is said; null if these are not known. @param {Text} queries @param {Text} frames @param {Float32Array} line of weights on the frames */
export function weightsOfWords({ spoken, labels }, frames, line) {
  if (!spoken || !frames.seconds) return null;
  const weights = new Float32Array(labels.length);
  for (const [first, end, from, to] of spoken) weights.fill(shareWithin(line, frames, [from, to]), Math.max(0, first), end);
  return weights;
}

/** Returns the sum of a line's weights within an interval. @param {Float32Array} line @param {Text} text @param {Interval} interval */
export function shareWithin(line, text, interval) {
  let share = 0;
  line.forEach((weight, cell) => (share += weight > 0 && isWithin(text, cell, interval) ? weight : 0));
  return share;
}
