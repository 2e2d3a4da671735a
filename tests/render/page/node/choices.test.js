/** Choices: what means nothing is not offered and does not hold, and what holds is offered. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { begunOn, placesOf, placesOfSurvey, table } from "./places.js";
import { changesOf, missingFact, valueNow, valuesNow } from "../../../../attnviz/render/page/assets/choices.js";

const choiceOf = (name) => table.choices.find((choice) => choice.name === name);

/** A page of six heads over one text with words and special tokens, in self-attention. */
function newPage(other = {}) {
  const places = placesOf({ heads: ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"], queries: ["[CLS]", "a", "b"], keys: ["[CLS]", "a", "b"] });
  places.heads = places.heads.map((head) => ({ ...head, same: true, factors: [], thumbnail: [3, 3] }));
  places.texts = places.texts.map((text) => ({ ...text, special: [0], words: { starts: [0, 1], labels: ["", "ab"] } }));
  return { ...places, ...other };
}

const page = newPage();
const offered = (name, changes, on = page) => valuesNow(choiceOf(name), { ...begunOn(on), ...changes }, on).map(({ word }) => word);
const held = (name, changes, on = page) => {
  const state = { ...begunOn(on), ...changes };
  return valueNow(choiceOf(name), state[name], begunOn(on)[name], state, on);
};
const PAIR = { chosen: [2, 4], together: "difference" };

test("scores of an open head hold with a kept token, whichever list the head was opened from", () => {
  for (const list of ["maps", "numbers", "lens"]) {
    assert.equal(held("scores", { head: 2, list, pin: { query: 1, key: null }, scores: "shown" }), "shown", list);
  }
});

test("lift is offered where cells are weights of a map, and where it is not another value holds, which is offered", () => {
  for (const place of [{ head: 2 }, {}, { list: "lens" }, { chosen: [2, 4], together: "side" }]) {
    assert.equal(held("steps", { ...place, steps: "lift" }), "lift");
  }
  for (const place of [PAIR, { head: 2, view: "arcs" }, { head: 2, of: "contribution" }, { head: 2, side: "change" }]) {
    assert.ok(!offered("steps", place).includes("lift"));
    assert.equal(held("steps", { ...place, steps: "lift" }), "sqrt");
  }
});

test("what holds is offered wherever anything of its choice is", () => {
  const places = [{}, { list: "numbers" }, { list: "lens" }, { head: 1 }, ...["arcs", "text", "table"].map((view) => ({ head: 1, view })), PAIR, { chosen: [1, 2], together: "side" }, { chosen: [1, 2, 3], together: "overlay" }];
  for (const choice of table.choices.filter(({ group }) => group !== "place")) {
    for (const place of places) {
      const words = offered(choice.name, place);
      for (const { word } of choice.values) {
        if (words.length) assert.ok(words.includes(held(choice.name, { ...place, [choice.name]: word })), `${choice.name} ${word} ${JSON.stringify(place)}`);
      }
    }
  }
});

test("a direction means something only where a token's line is shown, and over the same tokens", () => {
  assert.equal(missingFact(choiceOf("direction").needs, begunOn(page), page), "directions");
  assert.equal(held("direction", { direction: "from" }), "to");
  assert.equal(held("direction", { list: "lens", direction: "from" }), "from");
  const cross = newPage({ heads: page.heads.map((head) => ({ ...head, same: false })) });
  assert.deepEqual(offered("direction", { list: "lens" }, cross), []);
});

test("a difference is of two heads, and up to four lie over each other", () => {
  assert.deepEqual(offered("together", { chosen: [1] }), []);
  assert.ok(offered("together", { chosen: [1], head: 2 }).includes("difference"));
  assert.ok(!offered("together", { chosen: [1, 2, 3] }).includes("difference"));
  assert.ok(offered("together", { chosen: [1, 2, 3, 4] }).includes("overlay"));
  assert.ok(!offered("together", { chosen: [0, 1, 2, 3, 4] }).includes("overlay"));
});

test("words and special tokens are of maps that are held cell by cell, and of a page that has some", () => {
  assert.deepEqual(["by", "special"].map((name) => offered(name, { head: 2 }).length), [2, 2]);
  for (const on of [newPage({ block: 2 }), newPage({ heads: page.heads.map((head) => ({ ...head, factors: [{}] })) }), newPage({ texts: placesOf({ heads: [], queries: ["a"], keys: ["a"] }).texts })]) {
    assert.deepEqual(["by", "special"].map((name) => offered(name, { head: 2 }, on).length), [0, 0]);
  }
});

test("a word has no score: each of the two takes back the other", () => {
  assert.deepEqual(changesOf(choiceOf("by"), "words"), { by: "words", scores: "hidden" });
  assert.deepEqual(changesOf(choiceOf("scores"), "shown"), { scores: "shown", by: "tokens" });
  assert.deepEqual(changesOf(choiceOf("by"), "tokens"), { by: "tokens" });
});

test("each fact that a row needs can be told, on a page of heads and on one of a survey", () => {
  for (const on of [page, placesOfSurvey(["sink"])]) {
    for (const fact of Object.keys(table.facts)) assert.ok([fact, undefined].includes(missingFact([fact], begunOn(on), on)), fact);
  }
});

test("maps whose pixels are more than a cell can be pooled, and others cannot", () => {
  assert.deepEqual(offered("pool", {}), []);
  assert.deepEqual(offered("pool", {}, newPage({ heads: page.heads.map((head) => ({ ...head, thumbnail: [2, 2] })) })), ["mean", "max"]);
  assert.deepEqual(offered("pool", { head: 2, pooled: true }), ["mean", "max"]);
});
