/** Filters and addresses: the examples that the inspector is held to as well. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { begunOn, placesOf } from "./places.js";
import { readAddress, writtenAddress } from "../../../../attnviz/render/page/assets/address.js";
import { parseFilter } from "../../../../attnviz/render/page/assets/filter.js";

const { filters, addresses } = JSON.parse(readFileSync(new URL("../../../languages.json", import.meta.url), "utf-8"));

for (const [text, left] of Object.entries(filters.kept)) {
  test(`filter “${text}” leaves ${left.join(", ") || "none"}`, () => {
    const { keeps, wrong } = parseFilter(text, filters.metrics);
    assert.equal(wrong, "");
    assert.deepEqual(filters.heads.filter(keeps).map(({ name }) => name), left);
  });
}

for (const text of filters.refused) {
  test(`filter “${text}” is refused, and leaves every head`, () => {
    const { keeps, wrong } = parseFilter(text, filters.metrics);
    assert.match(wrong, /works?$|choose one of|write (it as|one (such )?as|kind:)/);
    assert.ok(filters.heads.every(keeps));
  });
}

const places = placesOf(addresses);
const begun = begunOn(places);

for (const { written, also, shows } of addresses.read) {
  for (const address of [written, ...also]) {
    test(`address ${address} is read, and written ${written}`, () => {
      const { changes } = readAddress(address.replace(/^.*#/, ""), begun, begun, places);
      const state = { ...begun, ...changes };
      const heads = state.together ? state.chosen : state.head === null ? [] : [state.head];
      assert.deepEqual(heads.map((head) => places.heads[head].name), shows.heads);
      assert.equal(state.together, shows.together ?? null);
      for (const axis of ["query", "key"]) assert.equal(state.pin?.[axis] ?? null, shows[axis] ?? state.pin?.[axis] ?? null);
      assert.equal(state.filter, shows.filter ?? "");
      assert.equal(state.sort, shows.sort ?? "");
      assert.equal(state.steps, shows.scale ?? "sqrt");
      assert.equal(state.limits, shows.limits ?? "shared");
      assert.equal(state.direction, shows.direction ?? "to");
      assert.equal(writtenAddress(state, begun, places), written);
    });
  }
}
