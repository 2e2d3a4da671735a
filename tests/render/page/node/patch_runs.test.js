/** The words of an axis with images: runs of patches in brackets, the token of a piece, and shares of a row. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { hasShares, patchesOfMass, pieceOf, shareOn, wordPieces } from "../../../../attnviz/render/page/assets/patch_runs.js";

const image = (...tokens) => ({ src: "", width: 2, height: 1, title: "", tokens, boxes: tokens.map(() => [0, 0, 1, 1]) });

test("patches of one image that follow each other are one piece", () => {
  const pieces = wordPieces({ labels: ["<s>", "r0c0", "r0c1", "\\n", "r1c0", "a", "b"], spaces: "- -- - ", images: [image(1, 2, 4)] });
  assert.deepEqual(pieces.labels, ["<s>", "[image: 2 patches]", "\\n", "[image: 1 patch]", "a", "b"]);
  assert.deepEqual(pieces.starts, [0, 1, 3, 4, 5, 6]);
  assert.deepEqual(pieces.areRuns, [false, true, false, true, false, false]);
  assert.equal(pieces.spaces, "-     ");
});

test("a run ends where another image begins, and says which image it is of", () => {
  const pieces = wordPieces({ labels: ["1:r0c0", "1:r0c1", "2:r0c0", "what"], spaces: "--- ", images: [image(0, 1), image(2)] });
  assert.deepEqual(pieces.labels, ["[image 1: 2 patches]", "[image 2: 1 patch]", "what"]);
  assert.deepEqual([0, 1, 2, 3].map((token) => pieceOf(pieces, token)), [0, 0, 1, 2]);
});

test("patches of a spectrogram and padding that follow each other are a piece each", () => {
  const labels = ["[CLS]", "0.07s b0", "0.19s b0", "[pad]", "[pad]", "0.07s b1", "[pad]"];
  const pieces = wordPieces({ labels, spaces: "       ", images: [{ ...image(1, 2, 5), seconds: 0.3 }] });
  assert.deepEqual(pieces.labels, ["[CLS]", "[spectrogram: 2 patches]", "[2 × pad]", "[spectrogram: 1 patch]", "[pad]"]);
  assert.deepEqual(pieces.areRuns, [false, true, true, true, false]);
});

test("masked keys add nothing to a share", () => {
  assert.equal(shareOn(Float32Array.of(0.5, 0.25, -2, 0.25), [0, 2, 3]), 0.75);
});

test("shares of a row that is rounded up add up to 1", () => {
  const row = Float32Array.of(0.75, 0.25, 0.0625);
  assert.ok(Math.abs(shareOn(row, [0]) + shareOn(row, [1, 2]) - 1) < 1e-6);
  assert.equal(shareOn(Float32Array.of(0.25, 0.25), [0]), 0.25); // keys that were not recorded hold the rest
});

test("means over queries that see different keys have no shares", () => {
  assert.ok(hasShares(Float32Array.of(0.75, 0.3, -2)));
  assert.ok(!hasShares(Float32Array.of(1, 0.75, -2)));
});

test("the patches of a mass are the fewest with more than the share, as mass_mask finds them", () => {
  const inside = (row, share) => patchesOfMass(image(1, 2, 3, 4), Float32Array.of(0.5, ...row), share).sort();
  assert.deepEqual(inside([0.2, 0.15, 0.1, 0.05], 0.6), [0, 1]);
  assert.deepEqual(inside([0.25, 0.05, 0.05, 0.05], 0.6), [0]);
  assert.deepEqual(inside([0.125, 0.125, 0.125, 0.125], 0.5), [2, 3]); // of equal weights the first are outside
  assert.deepEqual(inside([-2, 0.2, 0, 0.1], 0.6), [1]); // a masked key has no weight
  assert.deepEqual(inside([0, 0, 0, 0], 0.6), []);
});
