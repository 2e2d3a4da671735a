/** The worker: computes the shown part of a head, a few rows of pixels at a time, until another part is asked for. */

import { Factors, ROWS } from "./factors.js";
import { Pool } from "./pooling.js";

/** @import { Answer, GivenFactors, Part } from "./types.js" */

const BAND_TIME = 24; // milliseconds after which what is done is sent

const work = {
  /** @type {Factors[]} the open head's, one for each recording */
  sides: [],
  latest: 0, // number of the latest request
};

onmessage = ({ data }) => {
  if (data.sides) work.sides = data.sides.map((/** @type {GivenFactors} */ given) => new Factors(given));
  else {
    work.latest = data.id;
    answer(data);
  }
};

/** Sends the part in bands. @param {Part & { id: number }} part */
async function answer(part) {
  const pools = work.sides.map((side) => new Pool(side, part));
  for (let row = part.top; row < part.bottom; ) {
    const end = performance.now() + BAND_TIME;
    for (; row < part.bottom && performance.now() < end; row += ROWS) for (const pool of pools) pool.add(row);
    send(part.id, pools);
    await new Promise((resolve) => setTimeout(resolve));
    if (part.id !== work.latest) return;
  }
}

/** Sends the lines that are done, whose memory goes with them. @param {number} id @param {Pool[]} pools */
function send(id, pools) {
  const first = pools[0].taken;
  const pooled = pools.map((pool) => pool.take());
  const transfer = pooled.flatMap(({ mean, largest }) => [mean.buffer, largest.buffer]);
  /** @type {Answer} */
  const answer = { id, first, last: pools[0].taken, pooled };
  postMessage(answer, { transfer });
}
