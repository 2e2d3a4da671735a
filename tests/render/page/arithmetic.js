/** Answers, one line each, what the page's modules compute: questions and answers are JSON, numbers base 64. */

import { createInterface } from "node:readline";

const assets = new URL(process.argv[2], "file:");
const load = (name) => import(new URL(name, assets));
const { bytesOf, readHalves, readWeights } = await load("encoding.js");
const { percentText, scoreText, cellText, tickTexts, positionOf } = await load("formatting.js");
const { Pool } = await load("pooling.js");
const { fractionOf, inkOn, strengthOf, valueAt } = await load("scales.js");
const { Store } = await load("store.js");
const { nameOfPlace, placeNamed } = await load("places.js");
const { factorsOf, ROWS } = await load("factors.js");
const { factoredWeights, keptWeights } = await load("grids.js");
const { averageOfKeys, changeOf, largestOf, lineOf, quantileOf, strongestCells, strongestOf } = await load("values.js");

const formats = { percentText, scoreText, cellText, tickTexts, positionOf };

/** The bytes of a string in base 64, in memory of their own. */
function bytes(text) {
  return new Uint8Array(Buffer.from(text, "base64"));
}

function float32(text) {
  return new Float32Array(bytes(text).buffer);
}

/** Numbers as base 64 of float64. */
function written(numbers) {
  return Buffer.from(Float64Array.from(numbers).buffer).toString("base64");
}

/** What a side says of its cells: weights, scores, errors of both, and every row and column. */
async function cellsOf({ side, alone }, rows, columns) {
  const [ownRows, ownColumns] = await Promise.all([
    Promise.all(rows.map((row) => alone("query", row))),
    Promise.all(columns.map((column) => alone("key", column))),
  ]);
  const cells = rows.flatMap((row) => columns.map((column) => [row, column]));
  const scores = cells.map(([row, column]) => side.score(row, column));
  return {
    weights: written(cells.map(([row, column]) => side.at(row, column))),
    weightErrors: written(cells.map(([row, column]) => side.errorAt(row, column) ?? 0)),
    scores: written(scores.map((score) => score?.value ?? NaN)),
    errors: written(scores.map((score) => score?.error ?? NaN)),
    below: written(scores.map((score) => score?.below ?? NaN)),
    rows: written(ownRows.flatMap((line) => columns.map((column) => line[column]))),
    ownColumns: written(ownColumns.flatMap((line) => rows.map((row) => line[row]))),
    lines: written(rows.flatMap((row) => columns.map((column) => side.line("query", row)[column]))),
    columns: written(columns.flatMap((column) => rows.map((row) => side.line("key", column)[row]))),
  };
}

/** A store of one head, nothing of which was read. */
function storeOf({ content, keys, about, shape, high, precision, block }) {
  const store = new Store({ precision, block, heads: [{ layer: 0, highs: [high], factors: about ? [about] : [], shapes: [shape] }] });
  store.texts.set("head-0-0", content);
  if (about) store.texts.set(`keys-${about.keys}`, keys);
  return store;
}

/** The grid of a side that is read whole, and its lines as they are read alone, of a fresh store for rows and for columns. */
async function sideFrom(given) {
  const [queries, keys] = given.shape.map((count) => ({ labels: Array(count).fill("") }));
  const store = storeOf(given);
  const numbers = await (await store.side(0, 0, false)).numbers();
  const about = { queries, keys };
  const side = given.about ? factoredWeights(about, factorsOf({ ...numbers, keys: await store.keys(0, 0) })) : keptWeights(about, numbers);
  const unread = { query: storeOf(given), key: storeOf(given) };
  return { side, alone: async (axis, place) => (await unread[axis].side(0, 0, false)).line(axis, place) };
}

async function pooled({ part, ...given }) {
  const [rows] = await storeOf(given).rows({ numbers: [0], how: null, side: 0, moved: false });
  const pool = new Pool(rows, part);
  for (let row = part.top; row < part.bottom; row += ROWS) pool.add(row);
  const { mean, max } = pool.take();
  return { mean: written(mean), max: written(max) };
}

const answers = {
  bytes: ({ texts }) => texts.map((text) => Buffer.from(bytesOf(text)).toString("base64")),
  halves: ({ planes }) => written(readHalves(bytes(planes))),
  codes: ({ codes, precision, high }) => written(readWeights(bytes(codes), precision, high)),
  side: async ({ rows, columns, ...given }) => cellsOf(await sideFrom(given), rows, columns),
  pooled,
  fractions: ({ values, scale }) => written(Array.from(float32(values), (value) => fractionOf(value, scale))),
  strengths: ({ values, scale }) => written(Array.from(float32(values), (value) => strengthOf(value, scale))),
  values: ({ fractions, scale }) => written(fractions.map((fraction) => valueAt(fraction, scale))),
  inks: ({ colors }) => colors.map(inkOn),
  change: ({ before, after }) => written(changeOf(float32(before), float32(after))),
  average: ({ values, rows, columns }) => written(averageOfKeys({ values: float32(values), rows, columns })),
  column: ({ values, columns, place }) => written(lineOf(float32(values), columns, "key", place)),
  strongest: ({ values, most }) => [strongestOf, strongestCells].map((find) => find(float32(values), most)),
  quantiles: ({ values, parts }) => parts.map((part) => quantileOf(float32(values), part)),
  largest: ({ values }) => largestOf(float32(values)),
  places: ({ text, names }) => ({ found: names.map((name) => placeNamed(text, name)), names: text.labels.map((_, place) => nameOfPlace(text, place)) }),
  texts: ({ format, calls }) => calls.map((given) => formats[format](...given)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, ...given } = JSON.parse(line);
  console.log(JSON.stringify(await answers[ask](given)));
}
