/** What is written in a turn: paragraphs, blocks of code, and the token under a character. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { partsOfTurn, tokenOfCharacter } from "../../../../attnviz/render/page/assets/formatting.js";

test("code stands apart, each part where it begins in what is written", () => {
  const written = "Sure:\n\n```py\n  a\n\nb\n```\n\nDone `x`.";
  const parts = partsOfTurn(written);
  assert.deepEqual(parts.map(({ text, isCode }) => [text, isCode]), [["Sure:", false], ["  a\n\nb", true], ["Done `x`.", false]]);
  for (const { text, start } of parts) assert.equal(written.slice(start, start + text.length), text);
});

test("code that does not end, and a turn without text", () => {
  assert.deepEqual(partsOfTurn("```\nx"), [{ text: "x", start: 4, isCode: true }]);
  assert.deepEqual(partsOfTurn("  \n"), []);
});

test("a character belongs to the last token that begins before it", () => {
  const pieces = [[7, 8, 12], [0, 3, 3]];
  assert.deepEqual([0, 2, 3, 9].map((character) => tokenOfCharacter(pieces, character)), [7, 7, 12, 12]);
  assert.equal(tokenOfCharacter([[], []], 0), null);
});
