/** The worker: the numbers of long heads, parts of them, one token's lines in many heads, and several heads in one map. */

import { Combined, CombinedFactors, combinedOf, Rollout } from "./combining.js";
import { ROWS } from "./factors.js";
import { Pool } from "./pooling.js";
import { HeadStore } from "./store.js";

/** @import { Answer, CombineRequest, Computed, LinesRequest, NumbersRequest, Part, PartOf } from "./types.js" */

const BAND_TIME = 24; // milliseconds after which what is done is sent

const store = new HeadStore();
const work = {
  /** @type {Set<number>} numbers of the parts that are waited for */
  parts: new Set(),
  latest: { lines: 0, combine: 0 }, // numbers of the latest requests
  lines: Promise.resolve(), // until the lines that were asked for before are sent
};

onmessage = ({ data }) => {
  if (data.before) work.parts.delete(data.before);
  if (data.given) store.add(data.given);
  else if (data.numbers) answerNumbers(data.numbers);
  else if (data.ahead !== undefined) store.readKeys(data.ahead);
  else if (data.lines) {
    work.latest.lines = data.lines.id;
    work.lines = work.lines.then(() => answerLines(data.lines));
  } else if (data.combine) answerCombine(data.combine);
  else if (data.part) {
    work.parts.add(data.part.id);
    answer(data.part);
  }
};

const turns = new MessageChannel(); // a timer would wait four milliseconds each time
/** @type {((value?: unknown) => void)[]} what waits: several answers may be under way */
const waiting = [];
turns.port1.onmessage = () => waiting.shift()?.();

/** Lets messages in between. */
function pause() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    turns.port2.postMessage(null);
  });
}

/** Sends all numbers of a head's queries, or of its keys. @param {NumbersRequest} request */
async function answerNumbers({ id, number, side, which }) {
  const queries = which === "queries" ? await store.queries(number, side) : { numbers: await store.keysOf(number, side), rest: null };
  postMessage({ numbers: { id, ...queries } });
}

/** Returns the factors from which the cells of a part are computed: of a head's sides, or of several heads as one. @param {PartOf} of @returns {Promise<Computed[]>} */
async function computedOf({ numbers, how, side }) {
  if (!how) return store.factors(numbers[0]);
  const heads = await Promise.all(numbers.map((number) => store.factors(number)));
  return [new CombinedFactors(heads.map((sides) => sides[side]), how)];
}

/** Sends the part in bands. @param {Part & PartOf & { id: number }} part */
async function answer(part) {
  const pools = (await computedOf(part)).map((side) => new Pool(side, part, part.how === "difference"));
  if (!work.parts.has(part.id)) return;
  for (let row = part.top; row < part.bottom; ) {
    const end = performance.now() + BAND_TIME;
    for (; row < part.bottom && performance.now() < end; row += ROWS) for (const pool of pools) pool.add(row);
    send(part.id, pools);
    await pause();
    if (!work.parts.has(part.id)) return;
  }
  work.parts.delete(part.id);
}

/** Sends the lines that are done, whose memory goes with them. @param {number} id @param {Pool[]} pools */
function send(id, pools) {
  const first = pools[0].taken;
  const pooled = pools.map((pool) => pool.take());
  const transfer = pooled.flatMap(({ mean, max }) => [mean.buffer, max.buffer]);
  /** @type {Answer} */
  const answer = { id, first, last: pools[0].taken, pooled };
  postMessage(answer, { transfer });
}

/** Sends a token's line of one head after the other. @param {LinesRequest} request */
async function answerLines({ id, numbers, axis, place }) {
  if (id !== work.latest.lines) return;
  for (const number of numbers) {
    const lines = await store.lines(number, axis, place);
    postMessage({ line: { id, number, lines } }, { transfer: lines.map((line) => line.buffer) });
    await pause();
    if (id !== work.latest.lines) return;
  }
}

/** Sends several heads as one map. @param {CombineRequest} request */
async function answerCombine(request) {
  work.latest.combine = request.id;
  const values = await (request.how === "rollout" ? rolledOut(request) : combined(request));
  if (values && request.id === work.latest.combine) postMessage({ map: { id: request.id, values } }, { transfer: [values.buffer] });
}

/** @param {number} number @param {number} side */
async function weightsOf(number, side) {
  return (await store.sides(number))[side].weights ?? new Float32Array(0);
}

/** @param {CombineRequest} request */
async function combined({ id, numbers, how, side }) {
  if (how === "difference") return combinedOf([await weightsOf(numbers[0], side), await weightsOf(numbers[1], side)], how);
  const first = await weightsOf(numbers[0], side);
  const all = new Combined(how === "max" ? "max" : "mean", first.length);
  for (const number of numbers) {
    all.add(await weightsOf(number, side));
    await pause();
    if (id !== work.latest.combine) return null;
  }
  return all.done();
}

/** @param {CombineRequest} request */
async function rolledOut({ id, numbers, layers, side }) {
  const first = await weightsOf(numbers[0], side);
  const rollout = new Rollout(Math.round(Math.sqrt(first.length)));
  for (const layer of [...new Set(layers)].sort((one, two) => one - two)) {
    const own = numbers.filter((_, place) => layers[place] === layer);
    rollout.add(await Promise.all(own.map((number) => weightsOf(number, side))));
    await pause();
    if (id !== work.latest.combine) return null;
  }
  return rollout.done();
}
