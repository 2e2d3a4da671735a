/** The worker: it answers what is asked of the store of numbers, one token's lines and windows bit by bit. */

import { ROWS } from "./factors.js";
import { Pool } from "./pooling.js";
import { Store } from "./store.js";

/** @import { AskedLine, AskedOnce, AskedWindow } from "./types.js" */

const BAND_TIME = 24; // milliseconds after which what is done is sent

/** @type {Store} given by the first message */
let store;
/** @type {Set<number>} what is asked for, and not answered or let go of */
const wanted = new Set();
let lines = Promise.resolve(); // until those that were asked for before are sent

onmessage = ({ data }) => {
  if (data.page) store = new Store(data.page);
  for (const [id, text] of Object.entries(data.texts)) store.texts.set(id, text);
  if (data.dropped) wanted.delete(data.dropped);
  if (data.ahead !== undefined) store.keys(data.ahead, 0);
  if (!data.id) return;
  wanted.add(data.id);
  answer(data);
};

const turns = new MessageChannel(); // a timer would wait four milliseconds each time
/** @type {((value?: unknown) => void)[]} what waits: several answers may be under way */
const waiting = [];
turns.port1.onmessage = () => waiting.shift()?.();

/** Lets messages in between; true if an answer is still wanted. @param {number} id */
async function isWanted(id) {
  await new Promise((resolve) => {
    waiting.push(resolve);
    turns.port2.postMessage(null);
  });
  return wanted.has(id);
}

/** @param {AskedLine | AskedOnce | AskedWindow} asked */
async function answer(asked) {
  const { id } = asked;
  if (asked.ask === "lines") {
    lines = lines.then(() => sendLine(asked));
    return;
  }
  if (asked.ask === "window") await sendWindow(asked);
  else {
    const found = await answerOf(asked);
    const whole = /** @type {{ weights?: Float32Array }} */ (found)?.weights; // of an array of its own, which goes along
    if (wanted.has(id)) postMessage({ id, found }, { transfer: whole ? [whole.buffer] : [] });
  }
  wanted.delete(id);
}

/** @param {AskedOnce} asked */
async function answerOf(asked) {
  if (asked.ask === "side") return (await store.side(asked.number, asked.side, asked.moved)).numbers();
  if (asked.ask === "keys") return store.keys(asked.number, asked.side);
  if (asked.ask === "map") return store.map(asked, () => isWanted(asked.id));
  return asked.ask === "scores" ? store.scores() : (await store.moved()).codes;
}

/** Sends a token's line of a head. @param {AskedLine} asked */
async function sendLine({ id, number, axis, place, moved }) {
  if (!(await isWanted(id))) return;
  const sides = store.page.heads[number].highs.map((_, side) => store.side(number, side, moved));
  const found = await Promise.all(sides.map(async (side) => (await side).line(axis, place)));
  postMessage({ id, number, found }, { transfer: found.map((line) => line.buffer) });
}

/** Sends a window in bands. @param {AskedWindow} asked */
async function sendWindow({ id, part, ...of }) {
  const pools = (await store.rows(of)).map((rows) => new Pool(rows, part, of.how === "difference"));
  for (let row = part.top; row < part.bottom && (await isWanted(id)); ) {
    const end = performance.now() + BAND_TIME;
    for (; row < part.bottom && performance.now() < end; row += ROWS) for (const pool of pools) pool.add(row);
    const first = pools[0].taken;
    const pooled = pools.map((pool) => pool.take());
    postMessage({ id, found: { first, last: pools[0].taken, pooled } }, { transfer: pooled.flatMap(({ mean, max }) => [mean.buffer, max.buffer]) });
  }
}
