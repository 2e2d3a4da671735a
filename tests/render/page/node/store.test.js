/** The worker's store: what it reads of a head is the same each time, alone and in a map of several. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { Store } from "../../../../attnviz/render/page/assets/store.js";
import { ABSENT } from "../../../../attnviz/render/page/assets/values.js";

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** Bytes in base 85, as encoding.py writes them. */
function base85(bytes) {
  const padded = Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);
  let text = "";
  for (let place = 0; place < padded.length; place += 4) {
    let word = padded.readUInt32BE(place);
    const five = Array.from({ length: 5 }, () => [DIGITS[word % 85], (word = Math.floor(word / 85))][0]);
    text += five.reverse().join("");
  }
  return text.slice(0, text.length - (padded.length - bytes.length));
}

const floats = (...numbers) => Buffer.from(Float32Array.from(numbers).buffer);
const piece = (...numbers) => base85(deflateSync(floats(...numbers)));

/** Three heads of two layers over two queries and two keys, whose keys move 2 and 0.5. */
function storeOf() {
  const head = (layer) => ({ layer, highs: [1], factors: [], shapes: [[2, 2]] });
  const store = new Store({ precision: { dtype: "float32", largest: 0 }, block: 1, heads: [head(0), head(1), head(1)] });
  store.texts.set("head-0-0", `${piece(1, ABSENT, 0.5, 0.5)} ${piece(1, 2, 3, 4)}`);
  store.texts.set("head-1-0", `${piece(0, 1, 0, 1)} ${piece(1, 2, 3, 4)}`);
  store.texts.set("head-2-0", `${piece(1, 0, 1, 0)} ${piece(1, 2, 3, 4)}`);
  store.texts.set("moved", base85(Buffer.concat([...Array(3)].map(() => floats(2, 0.5)).concat(Buffer.from([1, 2, 3])))));
  return store;
}
const wanted = async () => true;

test("contributions are the same each time they are asked for, and weights beside them", async () => {
  const store = storeOf();
  const side = await store.side(0, 0, true);
  for (let time = 0; time < 2; time++) {
    assert.deepEqual([...(await side.rows()).values], [2, ABSENT, 1, 0.25]);
    assert.deepEqual([...(await side.numbers()).weights], [2, ABSENT, 1, 0.25]);
    assert.deepEqual([...(await side.line("query", 1))], [1, 0.25]);
    assert.deepEqual([...(await side.line("key", 0))], [2, 1]);
  }
  assert.deepEqual([...(await (await store.side(0, 0, false)).numbers()).weights], [1, ABSENT, 0.5, 0.5]);
  assert.deepEqual([...(await store.moved()).codes], [1, 2, 3]);
});

test("what goes along with an answer is not the store's", async () => {
  const side = await storeOf().side(0, 0, false);
  (await side.numbers()).weights.fill(0);
  assert.deepEqual([...(await side.numbers()).weights], [1, ABSENT, 0.5, 0.5]);
});

test("heads are one map: a mean, a maximum, and a rollout by layers", async () => {
  const store = storeOf();
  const map = async (how) => [...(await store.map({ numbers: [0, 1, 2], how, side: 0, moved: false }, wanted))];
  assert.deepEqual(await map("mean"), [Math.fround(2 / 3), 0.5, 0.5, 0.5]);
  assert.deepEqual(await map("max"), [1, 1, 1, 1]);
  assert.deepEqual(await map("rollout"), [0.8125, 0.1875, 0.4375, 0.5625]);
});

test("a map that is let go of is not made", async () => {
  const read = [];
  const store = storeOf();
  const side = store.side.bind(store);
  store.side = (number, ...rest) => (read.push(number), side(number, ...rest));
  assert.equal(await store.map({ numbers: [0, 1, 2], how: "mean", side: 0, moved: false }, async () => false), null);
  assert.deepEqual(read, [0]);
});

test("windows of several heads are of all of them", async () => {
  const [rows] = await storeOf().rows({ numbers: [0, 1], how: "difference", side: 0, moved: false });
  assert.deepEqual([...rows.fillRows(0, 0, 2, new Float32Array(8)).slice(0, 4)], [-1, 1, -0.5, 0.5]);
});

test("the oldest makes room for what is read", () => {
  const store = storeOf();
  const reads = [];
  const read = (name) => store.keep(name, 2 ** 26, () => reads.push(name));
  for (const name of ["a", "b", "a", "c", "a", "b"]) read(name);
  assert.deepEqual(reads, ["a", "b", "c", "b"]);
});
