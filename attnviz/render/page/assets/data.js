/** The data that Python wrote into the page, and what follows from it at once. */

/** @import { Axis, Page } from "./types.js" */

/** @type {Page} */
export const page = JSON.parse(document.getElementById("page-data")?.textContent ?? "");
export const comparing = page.sides.length > 1;

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

/** True if the weights are so many that most are small. */
export function hasManyTokens() {
  return page.texts.some((text) => text.labels.length > 64);
}
