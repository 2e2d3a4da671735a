"use strict";
// The numbers: a head's are inflated when it is opened, and kept while it is among the last few that were.

const ABSENT = -2; // stands for a masked cell; weights are never negative, changes never below -1
const HEADS_KEPT = 8;
const page = JSON.parse(document.getElementById("page-data").textContent);
const comparing = page.sides.length > 1;
const kept = new Map();

// The number that each of 85 characters stands for.
const DIGITS = new Uint8Array(128);
"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
  .split("")
  .forEach((character, digit) => (DIGITS[character.charCodeAt(0)] = digit));

// Bytes from their characters, four for five; a last group may be shorter.
function bytesOf(text) {
  const whole = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let group = 0; 5 * group < text.length; group++) {
    let word = 0;
    for (let place = 5 * group; place < 5 * group + 5; place++) {
      word = word * 85 + (place < text.length ? DIGITS[text.charCodeAt(place)] : 84);
    }
    whole.setUint32(4 * group, word);
  }
  return new Uint8Array(whole.buffer, 0, Math.floor((4 * text.length) / 5));
}

function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// What each code stands for: high · (code / largest)², then absent, then NaN.
function weightsOfCodes(largest, high) {
  const weights = new Float32Array(largest + 3);
  for (let code = 0; code <= largest; code++) weights[code] = high * (code / largest) ** 2;
  weights[largest + 1] = ABSENT;
  weights[largest + 2] = NaN;
  return weights;
}

function decode(codes, table) {
  const weights = new Float32Array(codes.length);
  for (let place = 0; place < codes.length; place++) weights[place] = table[codes[place]];
  return weights;
}

function readWeights(buffer, start, count, high) {
  const { dtype, largest } = page.precision;
  if (dtype === "float32") return new Float32Array(buffer, start, count);
  const codes = dtype === "uint16" ? new Uint16Array(buffer, start, count) : new Uint8Array(buffer, start, count);
  return decode(codes, weightsOfCodes(largest, high));
}

// One head of one recording: weights, and what gives its scores or, where pooled, its maxima.
class Side {
  constructor(buffer, rows, columns, high) {
    const cells = rows * columns;
    const stop = cells * { float32: 4, uint16: 2, uint8: 1 }[page.precision.dtype];
    this.columns = columns;
    this.high = high;
    this.weights = readWeights(buffer, 0, cells, high);
    if (page.block > 1) this.maxima = readWeights(buffer, stop, cells, high);
    else if (page.precision.dtype === "float32") this.scores = new Float32Array(buffer, stop, cells);
    else this.sums = new Float32Array(buffer.slice(stop), 0, rows);
  }

  weight(row, column) {
    return this.weights[row * this.columns + column];
  }

  // The weights of a query's row, or of a key's column.
  line(axis, place) {
    return lineOf(this.weights, this.columns, axis, place);
  }

  // The score of a cell as {value, error}, as {below} where only a bound is known, or null where none is.
  score(row, column) {
    const weight = this.weights[row * this.columns + column];
    if (weight === ABSENT || page.block > 1) return null;
    if (this.scores) return { value: this.scores[row * this.columns + column], error: 0 };
    const sum = this.sums[row];
    if (Number.isNaN(sum) || Number.isNaN(weight)) return null;
    if (weight === 0) return { below: sum + Math.log(this.high) + 2 * Math.log(0.5 / page.precision.largest) };
    const code = page.precision.largest * Math.sqrt(weight / this.high);
    return { value: Math.log(weight) + sum, error: -2 * Math.log(1 - 0.5 / code) };
  }
}

// The script stands before the heads' numbers, so that the first view is drawn while they are still read.
function documentRead() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
}

// What an element with so deflated content holds.
async function contentOf(id) {
  if (!document.getElementById(id)?.nextSibling) await documentRead();
  return inflate(bytesOf(document.getElementById(id).textContent));
}

async function readSide(number, side) {
  if (page.heads[number].factors.length) return readFactors(number, side);
  const buffer = await contentOf(`head-${number}-${side}`);
  return new Side(buffer, textOf(number, "query").labels.length, textOf(number, "key").labels.length, page.heads[number].highs[side]);
}

// A head's sides, and what changed from the first to the second.
function loadHead(number) {
  if (!kept.has(number)) kept.set(number, Promise.all(page.sides.map((_, side) => readSide(number, side))));
  const loading = kept.get(number);
  kept.delete(number);
  kept.set(number, loading);
  if (kept.size > HEADS_KEPT) kept.delete(kept.keys().next().value);
  return loading;
}

function lineOf(values, columns, axis, place) {
  if (axis === "query") return values.subarray(place * columns, (place + 1) * columns);
  return Float32Array.from({ length: values.length / columns }, (_, row) => values[row * columns + place]);
}

function changeOf(before, after) {
  const change = new Float32Array(before.length);
  for (let place = 0; place < change.length; place++) {
    const neither = before[place] === ABSENT && after[place] === ABSENT;
    change[place] = neither ? ABSENT : shownWeight(after[place]) - shownWeight(before[place]);
  }
  return change;
}

function shownWeight(weight) {
  return weight === ABSENT ? 0 : weight;
}

// The text that the queries ("query") or the keys ("key") of a head belong to.
function textOf(number, axis, side = 0) {
  const head = page.heads[number];
  return page.texts[(axis === "query" ? head.queries : head.keys)[side]];
}

// The means and maxima of every thumbnail, by head and side.
function readThumbnails() {
  const codes = bytesOf(page.thumbnails);
  let place = 0;
  return page.heads.map((head) => {
    const cells = head.thumbnail[0] * head.thumbnail[1];
    return page.sides.map((_, side) => {
      const tables = head.thumbnailHighs[side].map((high) => weightsOfCodes(page.thumbnailLargest, high));
      const mean = decode(codes.subarray(place, place + cells), tables[0]);
      const largest = decode(codes.subarray(place + cells, place + 2 * cells), tables[1]);
      place += 2 * cells;
      return { mean, largest };
    });
  });
}

// A weight in percent, with no more digits than it was kept with, or than its error leaves it.
function weightText(weight, signed = false, known = null) {
  if (weight === ABSENT) return "masked";
  if (Number.isNaN(weight)) return "NaN";
  const percent = 100 * weight;
  const sign = percent < 0 ? "−" : signed && percent > 0 ? "+" : "";
  const { largest } = page.precision;
  const high = Math.max(...(state.head === null ? [1] : page.heads[state.head].highs));
  if (percent === 0 && largest && !signed) return `< ${Number((100 * high * (0.5 / largest) ** 2).toPrecision(1))}%`;
  const error = known !== null ? Math.max(100 * known, 1e-6) : largest ? (100 * Math.sqrt(Math.abs(weight) * high)) / largest : Math.min(0.01, percent / 100 || 0.01);
  const digits = Math.min(6, Math.max(0, Math.round(-Math.log10(Math.abs(error) || 1e-4))));
  return `${sign}${Math.abs(percent).toFixed(percent === 0 ? 0 : digits)}%`;
}

function scoreText(score) {
  if (!score) return "not kept";
  if (score.below !== undefined) return `below ${withMinus(score.below.toFixed(1))}`;
  if (Number.isNaN(score.value)) return "none";
  if (!Number.isFinite(score.value)) return withMinus(String(score.value));
  if (!score.error) return withMinus(score.value.toFixed(4));
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10(score.error))));
  return `${withMinus(score.value.toFixed(digits))} ± ${score.error.toFixed(digits)}`;
}

function withMinus(digits) {
  return digits.replace("-", "−");
}
