/** The store: what is no value is refused, an address is written where it must be, and listeners are told once. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../../../attnviz/render/page/assets/state_store.js";

function newStore() {
  const store = new Store({ head: null, view: "matrix", mark: null }, { view: (view) => ["matrix", "arcs"].includes(view) }, ["mark"]);
  const written = [];
  const told = [];
  store.write = (step) => written.push([step, store.values.view]);
  store.subscribe((changed, zoom) => told.push([[...changed], zoom]));
  return { store, written, told };
}

test("a change is written first, then told", () => {
  const { store, written, told } = newStore();
  store.set({ view: "arcs", head: 3 }, { step: true });
  assert.deepEqual(store.values, { head: 3, view: "arcs", mark: null });
  assert.deepEqual(written, [[true, "arcs"]]);
  assert.deepEqual(told, [[["view", "head"], null]]);
});

test("what changes nothing is neither written nor told, unless it is asked for", () => {
  const { store, written, told } = newStore();
  store.set({ view: "matrix" });
  assert.deepEqual([written, told], [[], []]);
  store.set({ view: "matrix" }, { anyway: true, zoom: "2@1,1" });
  assert.deepEqual([written, told], [[], [[[], "2@1,1"]]]);
});

test("what the address does not hold is told and not written", () => {
  const { store, written, told } = newStore();
  store.set({ mark: { query: 1 } });
  assert.deepEqual([written, told], [[], [[["mark"], null]]]);
  store.set({ head: 1 }, { written: false });
  assert.deepEqual(written, []);
});

test("a value that is none, or a name that is none, is refused and changes nothing", () => {
  const { store, told } = newStore();
  assert.throws(() => store.set({ head: 2, view: "cube" }), /view cannot be "cube"/);
  assert.throws(() => store.set({ heads: 2 }), /nothing is called heads/);
  assert.deepEqual([store.values.head, told], [null, []]);
});

test("setting resolves when those that listen are done", async () => {
  const { store } = newStore();
  let done = false;
  store.subscribe(async () => {
    await null;
    done = true;
  });
  await store.set({ head: 1 });
  assert.ok(done);
});
