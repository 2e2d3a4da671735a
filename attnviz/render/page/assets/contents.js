/** The characters in which the page holds numbers, and what it says of each head's. */

import { page, shapeOf } from "./data.js";
import { normsOf } from "./moved.js";

/** @import { GivenSide } from "./reading.js" */

// The script stands before the heads' numbers, so that the first view is drawn while they are still read.
/** @returns {Promise<unknown>} */
export function documentRead() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
}

/** The characters of an element that the browser keeps as they are. @param {string} id */
export async function contentOf(id) {
  if (!document.getElementById(id)?.nextSibling) await documentRead();
  return readContent(id);
}

/** Returns the text of an element of data of the loaded document. @param {string} id */
export function readContent(id) {
  return document.getElementById(id)?.textContent ?? "";
}

/** Returns the description of one head of one recording, without the numbers of its cells. @param {number} number @param {number} side @returns {GivenSide} */
export function givenSide(number, side) {
  const head = page.heads[number];
  return {
    texts: {},
    shape: shapeOf(number, side),
    high: head.highs[side],
    precision: page.precision,
    block: page.block,
    about: head.factors[side] ?? null,
    moved: normsOf(number),
  };
}
