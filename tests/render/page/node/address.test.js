/** Addresses of the page alone: how it begins, tokens that are named twice, several heads of one name. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { begunOn, placesOf, placesOfSurvey } from "./places.js";
import { readAddress, writtenAddress } from "../../../../attnviz/render/page/assets/address.js";

const SIX = { heads: ["0.0", "0.1", "1.0"], queries: ["it", "cat", "it", "7", "a b"], keys: ["x", "y"] };

function opened(address, places = placesOf(SIX), begun = begunOn(places), state = begun) {
  return { ...begun, ...readAddress(address, state, begun, places).changes };
}

test("an empty address shows the page as it begins", () => {
  const places = placesOf(SIX);
  const begun = begunOn(places, { pin: { query: 1, key: null }, sort: "previous" });
  assert.deepEqual(opened("", places, begun), { ...begun, list: "lens" });
  assert.equal(writtenAddress({ ...begun }, begun, places), "#query=cat");
});

test("a page that begins sorted gives the recorded order back by an empty sort", () => {
  const places = placesOf(SIX);
  const begun = begunOn(places, { sort: "-entropy" });
  assert.equal(opened("#head=0.1", places, begun).sort, "-entropy");
  assert.equal(opened("#sort=", places, begun).sort, "");
  assert.equal(writtenAddress({ ...begun, sort: "" }, begun, places), "#sort=");
  assert.equal(writtenAddress({ ...begun, sort: "sink" }, begun, places), "#sort=sink");
});

test("a token that is there twice, or is a number, is named by its place", () => {
  const places = placesOf(SIX);
  const begun = begunOn(places);
  for (const [query, written] of [[0, "@0"], [1, "cat"], [2, "@2"], [3, "@3"], [4, "a+b"]]) {
    const state = { ...begun, list: "lens", pin: { query, key: null } };
    assert.equal(writtenAddress(state, begun, places), `#query=${written}`);
    assert.deepEqual(opened(`#query=${written}`).pin, { query, key: null });
  }
  assert.equal(opened("#query=zebra").pin, null);
  assert.equal(opened("#query=99").pin, null);
});

test("a token is named without the space before it, in other letters, or by its word, whose last token it is", () => {
  const places = placesOf({ ...SIX, queries: ["<s>", "␣Amer", "icans", "␣ask", "␣Ask"] });
  places.texts[0].spaces = "-----";
  for (const [written, query] of [["Americans", 2], ["ask", 3], ["Ask", 4], ["ASK", 4], ["␣ask", 3], ["icans", 2]]) {
    assert.deepEqual(opened(`#query=${encodeURIComponent(written)}`, places).pin, { query, key: null });
  }
  assert.deepEqual(opened("#query=ASK&key=ASK", { ...places, texts: [places.texts[0], places.texts[0]] }).pin, { query: 4, key: 3 });
  assert.equal(opened("#query=Amer+icans", places).pin, null);
});

test("an interval of a sound is in the address of a page that has one, and of no other", () => {
  const places = placesOf(SIX);
  places.texts[1].seconds = [0.01, 0.02];
  const begun = begunOn(places);
  assert.deepEqual(opened("#head=0.1&seconds=1.50-2.25", places, begun).interval, [1.5, 2.25]);
  assert.equal(writtenAddress({ ...begun, head: 1, interval: [1.5, 2.25] }, begun, places), "#head=0.1&seconds=1.50-2.25");
  assert.equal(opened("#seconds=1.50-2.25").interval, null);
});

test("heads of one name are told apart by their number", () => {
  const places = placesOf({ ...SIX, heads: ["0.0", "0.0", "1.0"] });
  const begun = begunOn(places);
  assert.equal(writtenAddress({ ...begun, head: 1 }, begun, places), "#head=0.0&number=1");
  assert.equal(opened("#head=0.0&number=1", places).head, 1);
  assert.equal(writtenAddress({ ...begun, together: "mean", chosen: [1, 2] }, begun, places), "#heads=0.0~1,1.0&together=mean");
  assert.deepEqual(opened("#heads=0.0~1,1.0", places).chosen, [1, 2]);
});

test("a page of one head opens it, and leaves its name out", () => {
  const places = placesOf({ ...SIX, heads: ["3.4"] });
  const begun = begunOn(places);
  assert.equal(opened("", places, begun).head, 0);
  assert.equal(writtenAddress({ ...begun, head: 0, view: "arcs" }, begun, places), "#view=arcs");
});

test("contributions are named as the command line names them, on a page that has them", () => {
  const places = { ...placesOf(SIX), moved: {} };
  const begun = begunOn(places, { steps: "lift" });
  assert.equal(opened("#of=contributions", places, begun).of, "contribution");
  assert.equal(opened("#of=contributions&scale=log", places, begun).steps, "log");
  assert.equal(writtenAddress({ ...begun, of: "contribution" }, begun, places), "#of=contributions");
  const { of, unknown } = opened("#of=contributions&side=A");
  assert.deepEqual([of, unknown], ["weight", "The link names what this page does not have: no side A, no of contributions."]);
});

test("of two choices that take back each other an address says the first", () => {
  const { by, scores } = opened("#head=0.1&scores=shown&by=words");
  assert.deepEqual([by, scores], ["words", "hidden"]);
  assert.equal(opened("#head=0.1&scores=shown&by=tokens").scores, "shown");
});

test("words that are none are as the page begins", () => {
  const { unknown, ...state } = opened("#head=9.9&view=cube&scale=even&limits=page&pool=largest&side=D&size=a4&together=sum&direction=up");
  assert.deepEqual({ ...state, unknown: "" }, begunOn(placesOf(SIX)));
  for (const word of ["no head 9.9", "no view cube", "no scale even", "no size a4", "no direction up"]) assert.ok(unknown.includes(word), word);
});

test("a link that names what the page does not have says so, and one that it has says nothing", () => {
  const places = { ...placesOf(SIX), metrics: { names: ["previous", "sink"] } };
  const begun = begunOn(places);
  assert.match(opened("#head=9.9&query=zebra&sort=mass", places, begun).unknown, /no head 9\.9, no query “zebra”, no metric mass\./);
  assert.match(opened("#heads=0.0,7.7&together=mean", places, begun).unknown, /no head 7\.7\./);
  assert.equal(opened("#head=1.0&query=it&key=y&sort=-sink&scale=log&view=arcs", places, begun).unknown, "");
});

test("the beginning of a metric's name is enough for an order, as it is for a filter", () => {
  const places = { ...placesOf(SIX), metrics: { names: ["previous", "sink", "self"] } };
  const begun = begunOn(places);
  assert.equal(opened("#sort=prev", places, begun).sort, "previous");
  assert.equal(opened("#sort=-si", places, begun).sort, "-sink");
  assert.equal(opened("#sort=s", places, begun).sort, "s");
});

test("blocks are named by a token within them", () => {
  const places = placesOf(SIX);
  places.texts[0] = { labels: ["a … b", "c … d"], edges: [0, 100, 200] };
  assert.deepEqual(opened("#query=130", places).pin, { query: 1, key: null });
});

test("heads stay chosen while one is opened", () => {
  const places = placesOf(SIX);
  const begun = begunOn(places);
  assert.deepEqual(opened("#head=0.1", places, begun, { ...begun, chosen: [0, 2] }).chosen, [0, 2]);
});

test("the page of a survey names its axes, its brushed heads and its list beside the head", () => {
  const places = placesOfSurvey(["entropy", "sink", "self"]);
  const begun = begunOn(places, { across: "entropy", up: "sink", colour: "layer", list: "points" });
  assert.equal(writtenAddress({ ...begun, head: 1 }, begun, places), "#head=0.1");
  const state = { ...begun, head: 1, up: "self", sized: "layer", brushed: new Set([0, 2]), list: "maps", filter: "self>0.5", sort: "-sink" };
  const written = "#head=0.1&view=maps&filter=self>0.5&sort=-sink&up=self&size=layer&brushed=0.0,1.0";
  assert.equal(writtenAddress(state, begun, places), written);
  assert.deepEqual(opened(written, places, begun), state);
});

test("links to a survey that say every axis are read, and numbers that are none are as the page begins", () => {
  const places = placesOfSurvey(["entropy", "sink"]);
  const begun = begunOn(places, { across: "entropy", up: "sink", sized: "sink", colour: "layer", list: "points" });
  const state = opened("#head=1.0&across=sink&up=mass&size=&colour=entropy&texts=sink&brushed=9.9", places, begun);
  assert.deepEqual(state, { ...begun, head: 2, across: "sink", sized: "", colour: "entropy", textsBy: "sink" });
});

test("links with tokens or heads together open what a survey has, and say what it has not", () => {
  const places = placesOfSurvey(["entropy", "sink"]);
  const begun = begunOn(places, { across: "entropy", up: "sink", colour: "layer", list: "points" });
  for (const [address, said] of [
    ["#head=0.1&query=cat", "no query “cat”"],
    ["#head=0.1&key=3", "no key “3”"],
    ["#head=0.1&view=lens", "no view lens"],
    ["#view=lens&query=@1&key=it", "no query “@1”, no key “it”"],
    ["#heads=0.1,1.0&together=mean", "no heads together"],
  ]) {
    const state = opened(address, places, begun);
    assert.deepEqual([state.pin, state.together, state.list], [null, null, "points"], address);
    assert.equal(state.head, address.includes("head=0.1") ? 1 : null, address);
    assert.ok(state.unknown.includes(said), state.unknown);
  }
});

test("a page of heads has no points", () => {
  const { list, unknown } = opened("#view=points");
  assert.equal(list, "maps");
  assert.match(unknown, /no view points\./);
});

test("heads with which a page begins are let go on the way to others, those that a reader chose are not", () => {
  const places = placesOf(SIX);
  const begun = begunOn(places, { chosen: [0, 1, 2], together: "side" });
  assert.deepEqual(opened("#filter=induction", places, begun).chosen, []);
  assert.deepEqual(opened("", places, begun).chosen, [0, 1, 2]);
  assert.deepEqual(opened("#filter=induction", places, begun, { ...begun, chosen: [0, 2] }).chosen, [0, 2]);
});

test("an answer is where its page begins, also of one head, and where a head that it leads to goes back to", () => {
  const places = { ...placesOf({ ...SIX, heads: ["0.0"] }), why: { head: 0 } };
  const begun = begunOn(places, { list: "why" });
  assert.deepEqual(opened("", places, begun), begun);
  const head = opened("#head=0.0&query=cat&key=x", places, begun);
  assert.deepEqual([head.head, head.list, head.pin], [0, "why", { query: 1, key: 0 }]);
  const token = opened("#view=why&query=cat", places, begun);
  assert.deepEqual([token.list, writtenAddress(token, begun, places)], ["why", "#view=why&query=cat"]);
  assert.equal(opened("#query=cat", places, begun).list, "lens");
});
