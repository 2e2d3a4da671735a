/** The page's side of the store of numbers: it asks workers for heads, windows, one token's lines, and several heads as one. */

import { headTitle, level, page, seenBy, shapeOf, textOf } from "./data.js";
import { factorsOf } from "./factors.js";
import { factoredWeights, keptWeights } from "./grids.js";
import { scaleOf } from "./shown.js";
import { showsMoved } from "./state.js";
import { keepLatest } from "./values.js";

/** @import { Axis, Grid, OfHeads, Part, ScoreFactors, StoredPage, WindowBand } from "./types.js" */

const MAX_WORKERS = 3;
const MAX_KEPT_HEADS = 8;
const MAX_READ_AHEAD = 2 ** 23; // numbers of keys

/** What a worker knows of the page, whose numbers are of tokens or of turns. @returns {StoredPage} */
function storedPage() {
  return {
    precision: page.precision,
    block: page.block,
    heads: page.heads.map(({ layer, highs, factors }, number) => ({ layer, highs, factors, shapes: page.sides.map((_, side) => shapeOf(number, side)) })),
  };
}

const asked = { last: 0 }; // the number of the latest question
/** @type {Map<number, { kind: string, receive: (found: any, number: number) => void }>} who waits for answers, by the question */
const questions = new Map();

/** The workers of each level, with the elements that they were given. @type {Record<string, { worker: Worker, given: Set<string> }[]>} */
const workersOf = { tokens: [], turns: [] };

// The script stands before the heads' numbers, so that the first view is drawn while they are still read.
/** @returns {Promise<unknown>} */
function documentRead() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
}

/** True if the browser has read an element, of which it keeps the characters as they are. @param {string} id */
const isRead = (id) => document.readyState !== "loading" || Boolean(document.getElementById(id)?.nextSibling);

/** The element that holds a head at the level that is shown. @param {string} id */
const idNow = (id) => (level.name === "turns" ? `turns-${id}` : id);

/** @param {string} id */
const contentOf = (id) => document.getElementById(id)?.textContent ?? "";

/** Asks a worker that has the elements it needs; answers come until they are let go of. @param {number} place of the worker @param {string[]} ids @param {object} message */
function send(place, ids, message) {
  const workers = workersOf[level.name];
  if (!workers[place]) {
    const worker = new Worker(URL.createObjectURL(new Blob([contentOf("worker")], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => questions.get(data.id)?.receive(data.found, data.number);
    worker.postMessage({ page: storedPage(), texts: {} });
    workers[place] = { worker, given: new Set() };
  }
  const { worker, given } = workers[place];
  const missing = ids.filter((id) => !given.has(id));
  for (const id of missing) given.add(id);
  worker.postMessage({ ...message, texts: Object.fromEntries(missing.map((id) => [id, contentOf(idNow(id))])) });
}

/** The elements that hold a head. @param {number} number */
function elementsOf(number) {
  const { factors } = page.heads[number];
  const keys = factors.map((about) => `keys-${about.keys}`);
  return [...page.sides.map((_, side) => `head-${number}-${side}`), ...keys, ...(showsMoved() ? ["moved"] : [])];
}

/** The one answer to what is asked of the first worker. @param {string[]} ids @param {{ ask: string, [name: string]: unknown }} question @returns {Promise<any>} */
async function answerTo(ids, question) {
  if (!["worker", ...ids.map(idNow)].every(isRead)) await documentRead();
  const id = ++asked.last;
  return new Promise((resolve) => {
    questions.set(id, { kind: question.ask, receive: (found) => questions.delete(id) && resolve(found) });
    send(0, ids, { ...question, id });
  });
}

/** Lets go of a question. @param {number} id */
function drop(id) {
  if (questions.delete(id)) for (const { worker } of Object.values(workersOf).flat()) worker.postMessage({ dropped: id, texts: {} });
}

/** Lets go of all questions of a kind. @param {"window" | "lines" | "map"} wanted */
export function dropAll(wanted) {
  for (const [id, { kind }] of questions) if (kind === wanted) drop(id);
}

/** @type {Map<string, Promise<Grid[]>>} */
const keptHeads = new Map();
/** @type {Map<number, Promise<Float32Array>>} keys, which several heads may share */
const keptKeys = new Map();

/** A head's weights, by side. @param {number} number */
export function loadHead(number) {
  return keepLatest(keptHeads, `${level.name} ${number}`, MAX_KEPT_HEADS, () => Promise.all(page.sides.map((_, side) => readSide(number, side))));
}

/** Lets go of what was read of heads: something else is shown of them. */
export function forgetHeads() {
  keptHeads.clear();
}

/** @param {number} number @param {number} side @returns {Promise<Grid>} */
async function readSide(number, side) {
  const counts = seenBy(number, side);
  const about = {
    number,
    title: headTitle(number),
    queries: textOf(number, "query", side),
    keys: textOf(number, "key", side),
    same: page.heads[number].same,
    scale: scaleOf(number),
    seen: (/** @type {number} */ row) => counts[row],
  };
  const factors = page.heads[number].factors[side];
  const of = { number, side, moved: showsMoved() };
  const found = await answerTo(elementsOf(number), { ask: "side", ...of });
  if (!factors) return keptWeights(about, found);
  const keys = await keepLatest(keptKeys, factors.keys, MAX_KEPT_HEADS, () => answerTo(elementsOf(number), { ask: "keys", ...of }));
  return factoredWeights(about, factorsOf({ ...found, keys }));
}

/**
 * Calls `receive` with each band of a window of heads until it is let go of; returns its number.
 *
 * @param {Omit<OfHeads, "moved">} of
 * @param {Part} part
 * @param {(band: WindowBand) => void} receive
 * @param {number} before the window that is no longer waited for
 */
export function askWindow(of, part, receive, before = 0) {
  const id = ++asked.last;
  drop(before);
  questions.set(id, { kind: "window", receive });
  send(0, of.numbers.flatMap(elementsOf), { ask: "window", ...of, moved: showsMoved(), part, id });
  return id;
}

/**
 * Calls `receive` with a token's line in one head after the other, until other lines are asked for.
 *
 * @param {number[]} numbers of heads, in the order in which they are wanted
 * @param {Axis} axis
 * @param {number} place
 * @param {(lines: Float32Array[], number: number) => void} receive lines, by side
 */
export async function askLines(numbers, axis, place, receive) {
  dropAll("lines");
  const id = ++asked.last;
  questions.set(id, { kind: "lines", receive });
  await documentRead();
  for (const number of numbers) {
    if (questions.has(id)) send(workerOf(number), elementsOf(number), { ask: "lines", id, number, axis, place, moved: showsMoved() });
  }
}

/** The worker that computes a head's lines: heads that share keys are one worker's. @param {number} number */
function workerOf(number) {
  const count = Math.max(1, Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 1));
  return (page.heads[number].factors[0]?.keys ?? number) % count;
}

/** The mean, the largest, or the rollout of heads whose weights are kept, as one map. @param {Omit<OfHeads, "moved">} of @returns {Promise<Float32Array>} */
export function askMap(of) {
  dropAll("map");
  return answerTo(of.numbers.flatMap(elementsOf), { ask: "map", ...of, moved: showsMoved() });
}

/** The codes of the thumbnails of contributions. @returns {Promise<Uint8Array>} */
export function askMovedCodes() {
  return answerTo(["moved"], { ask: "moved" });
}

/** @type {{ heads: ScoreFactors[][] | null }} by head, then by side */
const scoreFactors = { heads: null };

/** Returns the queries and keys of a head whose weights are kept; null until `readScores` has read them. @param {number} number @param {number} side */
export function scoreFactorsOf(number, side) {
  return scoreFactors.heads?.[number][side] ?? null;
}

/** Reads the queries and keys from which scores of short texts are explained. */
export async function readScores() {
  if (scoreFactors.heads || !page.scores) return;
  /** @type {Float32Array} */
  const numbers = await answerTo(["scores"], { ask: "scores" });
  let place = 0;
  const next = (/** @type {number} */ count) => numbers.subarray(place, (place += count));
  scoreFactors.heads = page.scores.map((sides, number) =>
    sides.map((about, side) => {
      const [rows, columns] = shapeOf(number, side);
      return { ...about, queries: next(rows * about.features), keys: next(columns * about.features) };
    }),
  );
}

/** Starts the first worker; of long texts each, which reads the keys of the first head that it will be asked for. */
export async function startWorkers() {
  await documentRead();
  send(0, [], {});
  const begun = new Set();
  page.heads.forEach(({ factors: [about] }, number) => {
    const place = workerOf(number);
    if (!about || begun.has(place)) return;
    begun.add(place);
    if (shapeOf(number)[1] * about.features <= MAX_READ_AHEAD) send(place, elementsOf(number), { ahead: number });
  });
}
