/** Seconds along the frames of a sound: frames of 20 ms of which the first is at 0.01 s, and words that are said. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  amplitudesOf, cellAt, extentOf, heardOf, heardWords, intervalText, isWithin, readInterval, secondTicks, shareWithin, startOf, weightsOfWords, withMovedEnd,
} from "../../../../attnviz/render/page/assets/places.js";

const FRAMES = { labels: Array(50).fill("frame"), first: 0, seconds: [0.01, 0.02] };
const WORDS = { starts: [0, 10, 30, 40], labels: ["(pause)", "my", "(pause)", "fellow"] };

function isNear(number, wanted) {
  assert.ok(Math.abs(number - wanted) < 1e-9, `${number} is not ${wanted}`);
}

test("a frame begins half a frame before its middle, and the axis ends after the last", () => {
  isNear(startOf(FRAMES, 0), 0);
  isNear(startOf(FRAMES, 5), 0.1);
  isNear(extentOf(FRAMES)[1], 1);
  isNear(startOf({ ...FRAMES, first: 5 }, 5), 0.2);
  isNear(startOf({ ...FRAMES, edges: [0, 20, 50] }, 1), 0.4);
});

test("a second is in the frame that is over it, and outside of the sound in the nearest", () => {
  for (const [second, cell] of [[-1, 0], [0.05, 2], [0.99, 49], [7, 49]]) assert.equal(cellAt(FRAMES, second), cell);
  assert.equal(cellAt({ ...FRAMES, labels: ["a", "b"], edges: [0, 20, 50] }, 0.41), 1);
});

test("labels stand at round seconds that are far enough apart", () => {
  assert.deepEqual(secondTicks(FRAMES, 9).map(({ label }) => label), ["0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]);
  assert.deepEqual(secondTicks({ ...FRAMES, first: 30 }, 26).map(({ label }) => label), ["1 s"]);
});

test("words are heard between their ends, and pauses are none", () => {
  const [my, fellow] = heardWords({ ...FRAMES, words: WORDS });
  assert.equal(my.label, "my");
  isNear(my.start, 0.2);
  isNear(my.end, 0.6);
  isNear(fellow.end, 1);
});

test("every token of a word has the seconds of the word", () => {
  const queries = { labels: ["<s>", "␣Amer", "icans", "␣ask"], spoken: [[1, 3, 1.76, 2.26], [3, 4, 2.26, 3.9]], words: { starts: [0, 1, 3], labels: ["", "␣Americans", ""] } };
  for (const token of [1, 2]) assert.deepEqual(heardOf(queries, token), { start: 1.76, end: 2.26, label: "Americans" });
  assert.equal(heardOf(queries, 3).label, "ask");
  for (const token of [0, null]) assert.equal(heardOf(queries, token), null);
});

test("an interval is read as it is written, and one that is none is refused", () => {
  assert.equal(intervalText([1.5, 2.25]), "1.50-2.25");
  assert.deepEqual(readInterval("1.50-2.25"), [1.5, 2.25]);
  for (const written of [null, "", "2-1", "1", "a-b", "-1-2", "1-2-3"]) assert.equal(readInterval(written), null);
});

test("the end of an interval moves by a frame, or by a hundredth of a long sound, to the end of the sound", () => {
  const [from, to] = withMovedEnd(FRAMES, [0.2, 0.2], 1);
  assert.equal(from, 0.2);
  isNear(to, 0.22);
  isNear(withMovedEnd(FRAMES, [0.2, 0.99], 1)[1], 1);
  isNear(withMovedEnd({ ...FRAMES, labels: Array(1000) }, [2, 5], -1)[1], 4.8);
  assert.equal(withMovedEnd(FRAMES, [0.2, 0.22], -1), null);
});

test("a share counts the frames whose middle is in the interval, and no masked one", () => {
  const line = Float32Array.from({ length: 50 }, (_, frame) => (frame === 6 ? -1 : 0.02));
  isNear(Number(shareWithin(line, FRAMES, [0.1, 0.2]).toFixed(6)), 0.08);
  assert.ok(isWithin(FRAMES, 5, [0.1, 0.2]) && !isWithin(FRAMES, 4, [0.1, 0.2]) && !isWithin(FRAMES, 10, [0.1, 0.2]));
});

test("a bar is as high as the largest amplitude of its part", () => {
  assert.deepEqual([...amplitudesOf(Uint8Array.of(0, 255, 51, 0), 2, [0, 2], 2)], [1, Math.fround(0.2)]);
  assert.deepEqual([...amplitudesOf(Uint8Array.of(0, 255), 2, [1, 2], 3)], [1, 1, 1]);
});

test("a word that is said is named without the mark of a space", () => {
  const labelOf = (label) => heardOf({ spoken: [[0, 1, 0.1, 0.3]], labels: [label] }, 0)?.label;
  assert.equal(labelOf("␣Americans"), "Americans");
  assert.equal(labelOf("a␣b"), "a␣b");
});

test("each word of a transcript has the weight on the seconds in which it is said", () => {
  const line = Float32Array.from({ length: 50 }, (_, frame) => frame / 1225);
  const queries = { labels: ["<s>", "my", "fel", "low"], spoken: [[1, 2, 0.2, 0.6], [2, 4, 0.8, 1]] };
  const sum = (first, end) => Array.from({ length: end - first }, (_, more) => (first + more) / 1225).reduce((one, two) => one + two);
  const weights = weightsOfWords(queries, FRAMES, line);
  for (const [place, wanted] of [0, sum(10, 30), sum(40, 50), sum(40, 50)].entries()) assert.ok(Math.abs(weights[place] - wanted) < 1e-6);
  assert.equal(weightsOfWords({ labels: ["a"] }, FRAMES, line), null);
});
