/** Signals: what follows from a value is found once for each change, and only where it was read. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { batch, computed, effect, signal, untracked } from "../../../../attnviz/render/page/assets/core.js";

test("an effect runs at once, after each change of what it read last, and not after its end", () => {
  const [which, first, second] = [signal("first"), signal(1), signal(10)];
  const seen = [];
  const end = effect(() => seen.push(which.value === "first" ? first.value : second.value));
  second.value = 11; // not read
  first.value = 2;
  first.value = 2; // no change
  which.value = "second";
  first.value = 3; // no longer read
  second.value = 12;
  end();
  second.value = 13;
  assert.deepEqual(seen, [1, 2, 11, 12]);
});

test("no effect sees one half of a change: neither within a batch nor by two ways from one value", () => {
  const number = signal(1);
  const [double, triple] = [computed(() => number.value * 2), computed(() => number.value * 3)];
  const seen = [];
  effect(() => seen.push([double.value, triple.value]));
  number.value = 2;
  batch(() => {
    number.value = 3;
    number.value = 4;
  });
  assert.deepEqual(seen, [[2, 3], [4, 6], [8, 12]]);
});

test("a computed value is found when it is read, once, and stops a change that does not change it", () => {
  const number = signal(1);
  let found = 0;
  const isLarge = computed(() => {
    found += 1;
    return number.value > 10;
  });
  assert.equal(found, 0);
  const seen = [];
  effect(() => seen.push(isLarge.value));
  assert.equal(isLarge.value, false);
  assert.equal(found, 1);
  number.value = 2;
  assert.deepEqual([found, seen], [2, [false]]);
  number.value = 11;
  assert.deepEqual([found, seen], [3, [false, true]]);
});

test("a change by an effect reaches the effects before it, and what is read untracked brings none back", () => {
  const [head, list] = [signal(null), signal("maps")];
  const seen = [];
  effect(() => seen.push([head.value, untracked(() => list.value)]));
  effect(() => {
    if (head.value === null) head.value = 0;
  });
  list.value = "numbers";
  assert.deepEqual(seen, [[null, "maps"], [0, "maps"]]);
  head.value = null;
  assert.deepEqual(seen.slice(2), [[null, "numbers"], [0, "numbers"]]);
});

test("a value whose finding failed is found again, and a failing effect holds up neither batches nor others", () => {
  const number = signal(0);
  const inverse = computed(() => {
    if (!number.value) throw new RangeError("no inverse");
    return 1 / number.value;
  });
  assert.throws(() => inverse.value, /no inverse/);
  number.value = 2;
  assert.equal(inverse.value, 0.5);
  const seen = [];
  effect(() => inverse.value);
  effect(() => seen.push(number.value));
  assert.throws(() => { number.value = 0; }, /no inverse/);
  number.value = 4;
  assert.equal(seen.at(-1), 4);
});
