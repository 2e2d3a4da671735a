/** Numbers as they are written, percentages with no more digits than are known and scores with their error; and a text in lines. */

import { ABSENT } from "./values.js";

/** @import { Scale, Score, Text } from "./types.js" */

const CODE = /```[^\n`]*\n([\s\S]*?)(?:```|$)/g;
const MOST_DIGITS = 6; // of a number under a legend

/**
 * A weight in percent, with no more digits than it was kept with, or than its error leaves it.
 *
 * @param {number} weight
 * @param {{ largest: number, high: number }} kept the largest code, or 0, and the weight that it stands for
 * @param {boolean} signed
 * @param {number | null} error where it is known
 */
export function percentText(weight, { largest, high }, signed = false, error = null) {
  if (weight === ABSENT) return "masked";
  if (Number.isNaN(weight)) return "NaN";
  const percent = 100 * weight;
  const sign = percent < 0 ? "−" : signed && percent > 0 ? "+" : "";
  if (percent === 0 && largest && !signed) return `< ${Number((100 * high * (0.5 / largest) ** 2).toPrecision(1))}%`;
  const known = error !== null ? Math.max(100 * error, 1e-6) : keptError(weight, largest, high);
  const digits = Math.min(6, Math.max(0, Math.floor(-Math.log10(Math.abs(known) || 1e-4))));
  return `${sign}${Math.abs(percent).toFixed(percent === 0 ? 0 : digits)}%`;
}

/**
 * How far a kept weight may be from its own, in percentage points.
 *
 * @param {number} weight
 * @param {number} largest
 * @param {number} high
 */
function keptError(weight, largest, high) {
  const size = Math.abs(weight);
  return largest ? (100 * Math.sqrt(size * high)) / largest : Math.min(0.01, size / Math.sqrt(10) || 0.01); // of exact ones as many digits as are read
}

/** A score with its error. @param {Score | null} score */
export function scoreText(score) {
  if (!score) return "not kept";
  if ("below" in score) return `below ${withMinus(score.below.toFixed(1))}`;
  const { value, error } = score;
  if (Number.isNaN(value)) return "not kept";
  if (!Number.isFinite(value)) return withMinus(String(value));
  if (!error) return withMinus(value.toFixed(4));
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10(error))));
  return `${withMinus(value.toFixed(digits))} ± ${error.toFixed(digits)}`;
}

/** The decimals of a percentage with which numbers up to the largest show two digits of it. @param {number} largest */
export function decimalsOf(largest) {
  const percent = 100 * Math.abs(largest);
  return percent > 0 && percent < 10 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(percent)))) : 0;
}

/** A percentage, as it stands in a cell. @param {number} value @param {Scale} scale @param {number} decimals */
export function cellText(value, scale, decimals = 0) {
  if (scale.scores) return withMinus(value.toFixed(1));
  if (value === 0) return "0";
  const percent = (100 * value).toFixed(decimals).replace(/^-(0\.?0*)$/, "$1").replace(/^(-?)0\./, "$1.");
  return scale.change && Number(percent) > 0 ? `+${percent}` : withMinus(percent);
}

/** The numbers under a legend, with the fewest digits with which all differ. @param {number[]} values @param {Scale} scale */
export function tickTexts(values, scale) {
  const candidates = Array.from({ length: MOST_DIGITS - 1 }, (_, more) => values.map((value) => tickText(value, scale, 2 + more)));
  const differ = (/** @type {string[]} */ texts) => new Set(texts).size === texts.length;
  return candidates.find(differ) ?? candidates[0];
}

/** A percentage under the legend. @param {number} value @param {Scale} scale @param {number} digits significant ones, at least 2 */
function tickText(value, scale, digits = 2) {
  if (scale.steps === "lift" && !scale.change) return `${Number(value.toPrecision(digits))}×`;
  if (scale.scores) return withMinus(value.toFixed(digits - (scale.high - scale.low < 1 ? 0 : 1)));
  const percent = Math.abs(100 * value);
  const decimals = percent === 0 ? 0 : Math.min(8, Math.max(0, digits - 1 - Math.floor(Math.log10(percent))));
  const sign = value < 0 ? "−" : scale.change && value > 0 ? "+" : "";
  // A scale that ends just below 100% has the numbers of one that ends there.
  return `${sign}${Number(Number(percent.toPrecision(digits + 2)).toFixed(decimals))}%`;
}

/** An amount with its sign, in two decimals. @param {number} value @param {boolean} signed */
export function amountText(value, signed = true) {
  const text = value.toFixed(2).replace(/^-(0\.00)$/, "$1");
  return signed && Number(text) > 0 ? `+${text}` : withMinus(text);
}

/** A token's position, or those of its block. @param {Text} text @param {number} place */
export function positionOf(text, place) {
  if (!text.edges) return String((text.first ?? 0) + place);
  const [first, last] = [text.edges[place], text.edges[place + 1] - 1];
  return first === last ? String(first) : `${first}–${last}`;
}

/** A label in quotation marks. @param {Text} text @param {number} place */
export function quoted(text, place) {
  return `“${text.labels[place]}”`;
}

/** Digits with a typographic minus. @param {string} digits */
function withMinus(digits) {
  return digits.replace("-", "−");
}

/**
 * The first token of each line, and the end of the text.
 *
 * @param {Float32Array} widths of tokens, in pixels
 * @param {string} spaces what stands before each: a line end, a space, or nothing
 * @param {number} space the width of a space
 * @param {number} room the width of a line
 */
export function linesOf(widths, spaces, space, room) {
  const starts = [0];
  let used = 0;
  for (let place = 0; place < widths.length; place++) {
    const gap = spaces[place] === " " ? space : 0;
    const ends = spaces[place] === "\n" && place > 0;
    if (place > starts[starts.length - 1] && (ends || used + gap + widths[place] > room)) {
      starts.push(place);
      used = 0;
    }
    used += widths[place] + (used ? gap : 0);
  }
  return [...starts, widths.length];
}

/** The line that a token stands in. @param {number[]} starts @param {number} place */
export function lineWith(starts, place) {
  let [low, high] = [0, starts.length - 2];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (starts[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** @typedef {{ text: string, start: number, isCode: boolean }} TurnPart of what is written in a turn, and where it begins there */

/** What is written in a turn in paragraphs and blocks of code, without the signs around these. @param {string} written @returns {TurnPart[]} */
export function partsOfTurn(written) {
  /** @type {TurnPart[]} */
  const parts = [];
  let end = 0;
  for (const match of written.matchAll(CODE)) {
    const start = match.index + match[0].indexOf("\n") + 1;
    parts.push({ text: written.slice(end, match.index), start: end, isCode: false }, { text: match[1], start, isCode: true });
    end = match.index + match[0].length;
  }
  parts.push({ text: written.slice(end), start: end, isCode: false });
  return parts.flatMap(({ text, start, isCode }) => {
    const shown = text.trimEnd().replace(isCode ? "" : /^\s+/, "");
    return shown ? [{ text: shown, start: start + text.indexOf(shown), isCode }] : [];
  });
}

/** The token at a character of a turn. @param {[number[], number[]]} pieces its tokens, and where they begin @param {number} character */
export function tokenOfCharacter([tokens, starts], character) {
  const next = starts.findIndex((start) => start > character);
  return tokens[(next < 0 ? starts.length : next) - 1] ?? null;
}
