/** Several heads as one, colours' steps, and lines of words: by numbers worked by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { combinedOf, Rollout } from "../../../../attnviz/render/page/assets/combining.js";
import { lineWith, linesOf } from "../../../../attnviz/render/page/assets/formatting.js";
import { fractionOf, valueAt } from "../../../../attnviz/render/page/assets/scales.js";
import { ABSENT } from "../../../../attnviz/render/page/assets/values.js";

const FIRST = Float32Array.of(0.5, 0.25, ABSENT, ABSENT);
const SECOND = Float32Array.of(0.25, 0.75, 0.5, ABSENT);

test("mean and maximum are of the heads that see a cell, which is absent where none does", () => {
  assert.deepEqual([...combinedOf([FIRST, SECOND], "mean")], [0.375, 0.5, 0.5, ABSENT]);
  assert.deepEqual([...combinedOf([FIRST, SECOND], "max")], [0.5, 0.75, 0.5, ABSENT]);
});

test("a difference is the second head less the first", () => {
  assert.deepEqual([...combinedOf([FIRST, SECOND], "difference")].slice(0, 2), [-0.25, 0.5]);
});

test("rollout multiplies each layer's mean with its residual, the last from the left", () => {
  const rollout = new Rollout(2);
  rollout.add([Float32Array.of(1, ABSENT, 0.5, 0.5)]);
  assert.deepEqual([...rollout.done()], [1, ABSENT, 0.25, 0.75]);
  rollout.add([Float32Array.of(1, ABSENT, 0, 1), Float32Array.of(1, ABSENT, 1, 0)]);
  assert.deepEqual([...rollout.done()], [1, ABSENT, 0.25 + 0.75 * 0.25, 0.75 * 0.75]);
});

test("lines break at white space, where a text has line ends, and where there is no more room", () => {
  assert.deepEqual(linesOf([10, 10, 10, 10], ["", " ", " ", "\n"], 2, 24), [0, 2, 3, 4]);
  assert.deepEqual([0, 1, 2, 3].map((place) => lineWith([0, 2, 3, 4], place)), [0, 0, 1, 2]);
});

test("the colour of a value leads back to it, in every kind of steps", () => {
  for (const steps of ["linear", "sqrt", "log", "lift"]) {
    const scale = { low: 0, high: 0.5, palette: "viridis", steps, change: false };
    for (const fraction of [0.25, 0.5, 1]) assert.ok(Math.abs(fractionOf(valueAt(fraction, scale), scale) - fraction) < 1e-6, steps);
  }
});
