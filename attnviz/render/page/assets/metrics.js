/** Provides the metrics of each head, and its patterns in plain words. */

import { page } from "./data.js";
import { bytesOf } from "./encoding.js";
import { LAYER } from "./filter.js";

/** @import { DescribedHead } from "./types.js" */

const LARGEST_CODE = 65_534;
const { metrics } = page;
const numbers = readNumbers();

/** The metrics' names, in their order. */
export const METRIC_NAMES = metrics?.names ?? [];

/** By head, then by metric. @returns {Record<string, number>[]} */
function readNumbers() {
  if (!metrics) return page.heads.map(() => ({}));
  const codes = new Uint16Array(bytesOf(metrics.codes).slice().buffer);
  const valueOf = (/** @type {number} */ code, /** @type {number} */ low, /** @type {number} */ high) =>
    code > LARGEST_CODE ? NaN : low + ((high - low) * code) / LARGEST_CODE;
  return page.heads.map((_, head) =>
    Object.fromEntries(
      metrics.names.map((name, place) => [name, valueOf(codes[head * metrics.names.length + place], metrics.lows[place], metrics.highs[place])]),
    ),
  );
}

/** @param {number} number */
export function numbersOf(number) {
  return numbers[number];
}

/** A number of a head by its name: a metric, or its layer. @param {number} number @param {string} name */
export function numberOf(number, name) {
  return name === LAYER ? page.heads[number].layer : (numbers[number][name] ?? NaN);
}

/** Returns the given name and the patterns of a head, such as “previous token 0.98”; "" if it has none. @param {number} number */
export function patternOf(number) {
  return [givenName(number), ...patternsOf(number)].filter(Boolean).join(", ");
}

/** The name that a person gave a head, in quotation marks; "" where none did. @param {number} number */
function givenName(number) {
  const { given } = page.heads[number];
  return given ? `“${given}”` : "";
}

/** Its given name, and the clearest thing that a head does, nothing where that is mixed. @param {number} number */
export function noteOf(number) {
  const [first = "", ...others] = patternsOf(number);
  const sink = others.filter((pattern) => pattern.startsWith("sink "));
  return [givenName(number), first === "mixed" ? "" : first, ...sink].filter(Boolean).join(", ");
}

/**
 * Returns the words and the number of a note on a head for its thumbnail: the given name, or else the clearest pattern
 * in the longest form that fits. A form without a word that can be read is none.
 *
 * @param {number} number
 * @param {(text: string) => boolean} fits
 * @param {(name: string, token: string) => boolean} isSaid elsewhere, so that no thumbnail needs to
 */
export function shortNoteOf(number, fits, isSaid = () => false) {
  const given = givenName(number);
  const patterns = (metrics?.of[number] ?? []).map((place) => metrics?.patterns[place] ?? ["mixed", ""]);
  const rank = patterns.findIndex(([name, token]) => !isSaid(name, token));
  if (given || rank < 0 || patterns[rank][0] === "mixed") return { words: given, number: "" };
  const [name, token] = patterns[rank];
  const value = metrics?.values[number][rank]?.toFixed(2) ?? "";
  const words = name.replace(/ token$/, "");
  const word = words.replace("own sentence", "sentence").replace("other sentence", "other"); // “own” alone is the own token
  const forms = [{ words: token ? `${words}: ${token}` : words, number: value }, { words: word, number: value }, { words: word, number: "" }];
  return forms.find((form) => fits(`${form.words} ${form.number}`.trim())) ?? forms[2];
}

/** The label of a token in quotes, those of special tokens as they are. @param {string} label */
function quotedWord(label) {
  const text = label.replace(/^[␣ ]+|[␣ ]+$/g, "") || label;
  return /^(\[.*\]|<.*>|first token)$/s.test(text) ? text : `“${text}”`;
}

/** Each thing that a head does. @param {number} number */
function patternsOf(number) {
  if (!metrics) return [];
  const { of, patterns, values } = metrics;
  return of[number].map((place, rank) => {
    const [name, token] = patterns[place];
    const value = values[number][rank];
    const share = value === null ? "" : ` ${value.toFixed(2)}`;
    if (rank > 0 && name === "sink") return `${name}${share}${token ? ` on ${quotedWord(token)}` : ""}`; // beside what the head does
    return `${name}${token ? `: ${token}` : ""}${share}`;
  });
}

/** @param {number} number @returns {DescribedHead} */
export function described(number) {
  const { name, layer, head, kind, item } = page.heads[number];
  return { name, layer, head, kind, pattern: patternOf(number), numbers: numbers[number], text: item };
}

/** A number as it is written: shares and bits with two decimals, or with more. @param {string} name @param {number} value @param {number} more */
export function metricText(name, value, more = 0) {
  if (Number.isNaN(value)) return "–";
  if (name === LAYER) return String(value);
  const unit = unitOf(name);
  if (unit === "change") return `${value > 0 ? "+" : ""}${value.toFixed(4).replace("-", "−")}`;
  return value.toFixed((unit === "tokens" ? 1 : 2) + more);
}

/** @param {string} name */
export function unitOf(name) {
  return metrics?.units[metrics.names.indexOf(name)];
}

/** Returns the meaning of a metric in a phrase; "" for an unknown one. @param {string} name */
export function meaningOf(name) {
  return metrics?.meanings[metrics.names.indexOf(name)] ?? "";
}

/** The largest number of a metric by size. @param {string} name */
export function highOf(name) {
  const place = metrics?.names.indexOf(name) ?? -1;
  if (!metrics || place < 0) return 1;
  return metrics.units[place] === "share" ? 1 : Math.max(metrics.highs[place], -metrics.lows[place]);
}

/**
 * What is lost without a head: in words, and as a part of the largest loss; nothing where that was not measured.
 *
 * @param {number} number
 */
export function effectOf(number) {
  const name = METRIC_NAMES.find(isChange) ?? "";
  const value = numbers[number][name] ?? NaN;
  return Number.isNaN(value) ? null : { name, text: metricText(name, value), part: value / highOf(name) };
}

/** True if a metric is a change, which goes both ways. @param {string} name */
export function isChange(name) {
  return unitOf(name) === "change";
}
