/** Elements as values, as a file has them: attributes, text and colours, none of which can end an element. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { h, written } from "../../../../attnviz/render/page/assets/tree.js";

const COLOURS = { ink: "#000", accent: "#f00" };
const text = (tree) => written(tree, (name) => COLOURS[name]);

test("children that are nothing are none, numbers are text, and lists are taken apart", () => {
  assert.deepEqual(h("g", {}, null, undefined, false, [h("a"), 0, "b"]).children, [h("a"), "0", "b"]);
});

test("an element is written with its children, its numbers to two places, and without listeners and keys", () => {
  const tree = h("g", { x: 1 / 3, key: "k", onclick: () => {}, fill: null, hidden: true }, h("rect", { y: -2 }), "told");
  assert.equal(text(tree), '<g x="0.33" hidden=""><rect y="-2"/>told</g>');
});

test("no text and no attribute ends its element", () => {
  const wild = `</g>"'&<script>`;
  assert.equal(text(h("g", { title: wild }, wild)).match(/[<>"']/g).join(""), `<""><>`);
});

test("a colour of the style is written as it is", () => {
  assert.equal(text(h("g", { fill: "var(--ink)", style: "stroke: var(--accent)" })), '<g fill="#000" style="stroke: #f00"/>');
});
