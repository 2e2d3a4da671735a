/** The data that Python wrote into the page, and what follows from it at once. */

import { kept } from "./values.js";

/** @import { Axis, Counts, Page, Text } from "./types.js" */

/** @type {Page} */
export const page = JSON.parse(document.getElementById("page-data")?.textContent ?? "");
export const comparing = page.sides.length > 1;

/** @typedef {"tokens" | "turns"} LevelName */

/** What the page of a chat has twice, of tokens and of turns. @type {Record<LevelName, Partial<Page>>} */
const levels = { tokens: Object.fromEntries(Object.entries(page).filter(([name]) => name in (page.turns ?? {}))), turns: page.turns ?? {} };

/** What the page's numbers and texts are of now. @type {{ name: LevelName }} */
export const level = { name: "tokens" };

/** Lets the page's numbers and texts be of tokens or of turns. @param {string} by what rows and columns stand for */
export function takeLevel(by) {
  level.name = page.turns && by === "turns" ? "turns" : "tokens";
  Object.assign(page, levels[level.name]);
}

/** Text that a head's queries or keys have when its rows are tokens, or turns. @param {LevelName} name @param {number} number @param {Axis} axis @returns {Text | undefined} */
export function textAtLevel(name, number, axis) {
  const { heads, texts } = /** @type {Page} */ (levels[name]);
  return page.turns && texts[(axis === "query" ? heads[number].queries : heads[number].keys)[0]];
}

/** A token's turn, or the last token of a turn: in a causal model it has read all of it. @param {number} number of a head @param {Axis} axis @param {number | null} place @param {LevelName} name of the level that is left */
export function placeAtOtherLevel(number, axis, place, name) {
  const pieces = textAtLevel("turns", number, axis)?.pieces ?? [];
  if (place === null) return null;
  if (name === "turns") return pieces[place][0].at(-1) ?? 0;
  return Math.max(0, pieces.findIndex(([tokens]) => tokens.includes(place)));
}

const severalItems = new Set(page.heads.map((head) => head.item)).size > 1;

/**
 * The text that a head's queries or keys belong to.
 *
 * @param {number} number
 * @param {Axis} axis
 * @param {number} side
 */
export function textOf(number, axis, side = 0) {
  const head = page.heads[number];
  return page.texts[(axis === "query" ? head.queries : head.keys)[side]];
}

/** Rows and columns of a head. @param {number} number @param {number} side @returns {[number, number]} */
export function shapeOf(number, side = 0) {
  return [textOf(number, "query", side).labels.length, textOf(number, "key", side).labels.length];
}

/** True if two heads are of the same tokens. @param {number} first @param {number} second */
export function haveSameTexts(first, second) {
  return textOf(first, "query") === textOf(second, "query") && textOf(first, "key") === textOf(second, "key");
}

/** True if rows and columns of a head are units of several words, which have no score. @param {number} number */
export function joinsWords(number) {
  return Boolean(textOf(number, "query").written ?? textOf(number, "key").written);
}

/** Returns the name of the text that a head belongs to; "" if all heads have the same text. @param {number} number */
export function itemName(number) {
  return severalItems ? `text ${page.heads[number].item}` : "";
}

/** Returns the name of a head with its kind and text, and its tower if the model has two. @param {number} number */
export function headTitle(number) {
  return `${page.tower ? `${page.tower} head` : "Head"} ${headName(number)}`;
}

/** Returns the name of a head with its kind and text. @param {number} number */
export function headName(number) {
  const { name, kind } = page.heads[number];
  const item = itemName(number);
  return `${name}${kind === "cross" ? " cross" : ""}${item && `, ${item}`}`;
}

/** @type {WeakMap<Counts, Float32Array>} the numbers of keys that each query can see, with which lift compares a weight */
const counted = new WeakMap();

/** The counts of a head's queries. @param {number} number @param {number} side @returns {Float32Array} */
export function seenBy(number, side = 0) {
  const length = textOf(number, "query", side).labels.length;
  const given = page.seen[page.heads[number].seen[side]];
  const known = counted.get(given);
  const counts = known?.length === length ? known : countsOf(given, length);
  counted.set(given, counts);
  return counts;
}

/** @param {Counts} given @param {number} length */
function countsOf(given, length) {
  if ("counts" in given) return Float32Array.from(given.counts);
  const counts = new Float32Array(length);
  for (let row = 0; row < length; row++) counts[row] = given.first + given.step * row; // one by one, since texts are long
  return counts;
}

/** @type {WeakMap<Float32Array, Map<number, Float32Array>>} */
const pooledBefore = new WeakMap();

/** The counts of queries pooled to so many rows: of each block the mean. @param {Float32Array} counts @param {number} rows */
export function pooledCounts(counts, rows) {
  if (rows === counts.length) return counts;
  return kept(kept(pooledBefore, counts, () => new Map()), rows, () => meansOfBlocks(counts, rows));
}

/** @param {Float32Array} counts @param {number} rows */
function meansOfBlocks(counts, rows) {
  return Float32Array.from({ length: rows }, (_, row) => {
    const first = Math.floor((row * counts.length) / rows);
    const end = Math.max(first + 1, Math.floor(((row + 1) * counts.length) / rows));
    let total = 0;
    for (let place = first; place < end; place++) total += counts[place];
    return total / (end - first);
  });
}
