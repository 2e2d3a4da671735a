"use strict";
// The worker: computes the shown part of a head, a few rows of pixels at a time, until another part is asked for.

const BAND_TIME = 24; // milliseconds after which what is done is sent
let sides = []; // the open head's Factors, one for each recording
let wanted = 0; // number of the latest request

onmessage = ({ data }) => {
  if (data.sides) sides = data.sides.map((given) => new Factors(given));
  else {
    wanted = data.id;
    answer(data);
  }
};

// A part is {id, top, bottom, left, right, height, width}: tokens, and the pixels to which they are pooled.
async function answer(part) {
  const pools = sides.map((side) => new Pool(side, part));
  for (let row = part.top; row < part.bottom; ) {
    const end = performance.now() + BAND_TIME;
    for (; row < part.bottom && performance.now() < end; row += ROWS) for (const pool of pools) pool.add(row);
    const first = pools[0].sent;
    const pooled = pools.map((pool) => pool.take());
    const buffers = pooled.flatMap(({ mean, largest }) => [mean.buffer, largest.buffer]);
    postMessage({ id: part.id, first, last: pools[0].sent, pooled }, buffers);
    await new Promise((resolve) => setTimeout(resolve));
    if (part.id !== wanted) return;
  }
}

// Lines of pixels of one recording: the mean and the largest of the visible weights of each pixel's block.
class Pool {
  constructor(side, part) {
    Object.assign(this, part, { side, sent: 0, done: 0, mean: [], largest: [] });
    this.weights = new Float32Array(ROWS * (this.right - this.left));
    this.single = this.width === this.right - this.left && this.height === this.bottom - this.top; // a pixel a cell
    this.edges = Int32Array.from({ length: this.width + 1 }, (_, pixel) => Math.floor((pixel * (this.right - this.left)) / this.width));
    this.begin();
  }

  begin() {
    this.highest = new Float32Array(this.width).fill(HIDDEN);
    this.totals = new Float64Array(this.width);
    this.counts = new Uint32Array(this.width);
    this.next = this.top + Math.floor(((this.done + 1) * (this.bottom - this.top)) / this.height);
  }

  // Takes four queries.
  add(row) {
    this.side.fillRows(row, this.left, this.right, this.weights);
    const columns = this.right - this.left;
    for (let more = 0; more < ROWS && row + more < this.bottom; more++) {
      if (this.single) this.keepLine(this.weights.slice(more * columns, (more + 1) * columns));
      else this.addLine(this.weights, more * columns);
      if (!this.single && row + more + 1 === this.next) this.finish();
    }
  }

  keepLine(weights) {
    this.mean.push(weights);
    this.largest.push(weights);
    this.done++;
  }

  addLine(weights, start) {
    const { edges, totals, counts, highest, width } = this;
    for (let pixel = 0; pixel < width; pixel++) {
      for (let place = start + edges[pixel]; place < start + edges[pixel + 1]; place++) {
        const weight = weights[place];
        if (weight === HIDDEN) continue;
        totals[pixel] += weight;
        counts[pixel]++;
        if (!(weight <= highest[pixel])) highest[pixel] = weight;
      }
    }
  }

  finish() {
    const mean = new Float32Array(this.width).fill(HIDDEN);
    for (let pixel = 0; pixel < this.width; pixel++) if (this.counts[pixel]) mean[pixel] = this.totals[pixel] / this.counts[pixel];
    this.mean.push(mean);
    this.largest.push(this.highest);
    this.done++;
    this.begin();
  }

  // The lines since the last time.
  take() {
    const taken = { mean: joined(this.mean), largest: joined(this.largest) };
    [this.mean, this.largest, this.sent] = [[], [], this.done];
    return taken;
  }
}

function joined(lines) {
  const all = new Float32Array(lines.length * (lines[0]?.length ?? 0));
  lines.forEach((line, number) => all.set(line, number * line.length));
  return all;
}
