/** Chains of grids: each function takes what another made. By numbers worked by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { byUnits, combined, eachToken, heldGrid, keptWeights, scoresOf, unitsOf } from "../../../../attnviz/render/page/assets/grids.js";
import { ABSENT } from "../../../../attnviz/render/page/assets/values.js";

const every = () => true;
/** Two queries over [CLS] and a word of two tokens. */
const queries = { labels: ["q", "r"], spaces: "  ", first: 0 };
const keys = { labels: ["[CLS]", "un", "happy"], spaces: "   ", first: 0, special: [0], words: { starts: [0, 1], labels: ["", "unhappy"] } };
const about = { number: 0, title: "", queries, keys, same: false, scale: { scores: false }, seen: (row) => row + 2 };

const first = keptWeights(about, {
  weights: Float32Array.of(0.5, 0.5, ABSENT, 0.25, 0.25, 0.5), scores: Float32Array.of(1, 1, NaN, 2, 2, 3), high: 1, largest: 0, moved: null,
});
const second = heldGrid(about, Float32Array.of(0.25, 0.75, ABSENT, 0.5, 0.25, 0.25));
const words = unitsOf(keys, { words: true, special: true, keeps: every });
const wordsAlone = unitsOf(keys, { words: true, special: false, keeps: every });

test("words of a difference are the difference of words", () => {
  const joined = (grid) => byUnits(grid, eachToken(queries), words);
  const words1 = joined(combined(about, [first, second], "difference"));
  const words2 = combined({ ...about, keys: words.text }, [joined(first), joined(second)], "difference");
  assert.deepEqual([...words1.values], [-0.25, 0.25, 0.25, -0.25]);
  assert.deepEqual(words1.values, words2.values);
  assert.deepEqual(words1.keys.labels, ["[CLS]", "unhappy"]);
});

test("scores keep their place without special tokens, and a unit of several has their mean", () => {
  const tokens = unitsOf(keys, { words: false, special: false, keeps: every });
  const scores = { ...scoresOf(first), scale: { scores: true } };
  const left = byUnits(scores, eachToken(queries), tokens);
  assert.deepEqual([...left.values], [1, ABSENT, 2, 3]);
  assert.deepEqual(left.score(1, 1), { value: 3, error: 0 });
  const joined = byUnits(scores, eachToken(queries), words);
  assert.deepEqual([...joined.values], [1, 1, 2, 2.5]);
  assert.equal(joined.score(1, 1), null);
});

test("a mean of maps without special tokens is that of the whole ones, and errors are those of its parts", () => {
  const inexact = keptWeights(about, { weights: first.values, sums: Float32Array.of(0, 0), high: 1, largest: 253, moved: null });
  const left = byUnits(combined(about, [inexact, inexact], "mean"), eachToken(queries), wordsAlone);
  assert.deepEqual([...left.values], [0.5, 0.75]);
  const expected = (Math.sqrt(0.25) + Math.sqrt(0.5)) / 253;
  assert.ok(Math.abs(left.errorAt(1, 0) - expected) < 1e-9);
  assert.equal(byUnits(combined(about, [first, second], "mean"), eachToken(queries), wordsAlone).errorAt(1, 0), null);
});

test("a cell of units stands for its tokens, and tokens for their cell", () => {
  const left = byUnits(first, eachToken(queries), wordsAlone);
  assert.deepEqual(left.markOf({ query: 1, key: 0 }), { query: 1, key: 1 });
  assert.deepEqual(left.cellOf({ query: 1, key: 2 }), { query: 1, key: 0 });
  assert.equal(left.source, first);
});

test("units over queries are means of the queries, over keys sums", () => {
  const both = { ...keys, special: undefined };
  const square = heldGrid({ ...about, queries: both }, Float32Array.of(1, ABSENT, ABSENT, 0.5, 0.5, ABSENT, 0.25, 0.25, 0.5));
  const pair = unitsOf(both, { words: true, special: true, keeps: every });
  assert.deepEqual([...byUnits(square, pair, pair).values], [1, ABSENT, 0.375, 0.625]);
});

test("a line of a grid that is computed is kept for who asks next", () => {
  let asked = 0;
  const grid = combined(about, [first, { ...second, values: null, line: (axis, place) => (asked++, second.line(axis, place)) }], "max");
  assert.equal(grid.isKnown("query", 1), false);
  assert.deepEqual([...grid.line("query", 1)], [0.5, 0.25, 0.5]);
  assert.deepEqual(grid.line("query", 1), grid.line("query", 1));
  assert.deepEqual([asked, grid.isKnown("query", 1)], [1, true]);
});
