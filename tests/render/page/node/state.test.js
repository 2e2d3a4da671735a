/** The state: it is set to known names and values alone, all of a change or nothing of it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { placesOf, table } from "./places.js";

const text = (labels) => ({ labels, spaces: " ".repeat(labels.length) });
const page = {
  ...placesOf({ heads: ["0.0", "0.1"], queries: ["a", "b"], keys: ["a", "b"] }),
  metrics: { names: ["entropy"], lows: [0], highs: [1], codes: "000000", patterns: [], of: [[], []], values: [[], []], units: [""], meanings: [""] },
  view: "matrix", sort: "", query: null, quantity: "weight", limits: "shared", steps: null, table,
};
page.texts = [text(["a", "b"]), text(["c", "d"])];
page.heads = page.heads.map((head, number) => ({ ...head, queries: [number], keys: [number], same: true, factors: [], thumbnail: [2, 2] }));
globalThis.window = { parent: null };
globalThis.location = { hash: "" };
globalThis.history = { pushState: () => {}, replaceState: (_, __, address) => (location.hash = address) };
globalThis.document = { getElementById: () => ({ textContent: JSON.stringify(page) }) };
const { set, state } = await import("../../../../attnviz/render/page/assets/state.js");

const WRONG = [
  [{ heed: 0 }, "nothing is called heed"],
  [{ view: "matrlx" }, 'view cannot be "matrlx"'],
  [{ view: 1 }, "view cannot be 1"],
  [{ together: "above" }, 'together cannot be "above"'],
  [{ head: 2 }, "head cannot be 2"],
  [{ head: "0.1" }, 'head cannot be "0.1"'],
  [{ chosen: [0, 2] }, "chosen cannot be [0,2]"],
  [{ across: "entropi" }, 'across cannot be "entropi"'],
];

test("a name or value that nothing knows is refused by its name, and nothing is changed", () => {
  for (const [changes, message] of WRONG) {
    const before = { ...state };
    assert.throws(() => set({ filter: "previous", ...changes }), new RangeError(message));
    assert.deepEqual({ ...state }, before, message);
    assert.equal(location.hash, "");
  }
});

test("what is known is set, and is written into the address", () => {
  set({ head: 1, view: "arcs", chosen: [0, 1], across: "entropy", filter: "previous" });
  const { head, view, chosen, across, filter } = state;
  assert.deepEqual({ head, view, chosen, across, filter }, { head: 1, view: "arcs", chosen: [0, 1], across: "entropy", filter: "previous" });
  assert.match(location.hash, /head=0\.1/);
  set({ head: null });
  assert.equal(state.head, null);
});
