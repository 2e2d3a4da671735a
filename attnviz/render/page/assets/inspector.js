/** The inspector: the cell that is pointed at, and what the chosen token attends to and is attended to by. */

import { make, one } from "./elements.js";
import { positionOf, quoted } from "./formatting.js";
import { quantitiesOf, weightText } from "./quantities.js";
import { state } from "./state.js";
import { strongestOf } from "./values.js";

/** @import { Axis, Mark, Shown, Text } from "./types.js" */

const LIST_LENGTH = 8;
const HINT =
  "Point at a cell or a token for its numbers. Click to keep it: what it attends to, and what attends to it.";

/** @typedef {(mark: Mark) => void} Choose what a click on a listed token does */

/**
 * The query and the key that lists are made for: in self-attention a token is both.
 *
 * @param {Shown} shown
 * @param {Mark} mark
 */
function tokensOf(shown, mark) {
  return {
    query: mark.query ?? (shown.same ? mark.key : null),
    key: mark.key ?? (shown.same ? mark.query : null),
  };
}

/** @param {Shown} shown @param {Choose} choose */
export function drawInspector(shown, choose) {
  const mark = state.mark ?? state.pin;
  const hint = make("p", { className: "hint" }, HINT);
  one("inspector").replaceChildren(...(mark ? sectionsOf(shown, mark, choose) : [make("section", {}, hint)]));
}

/** @param {Shown} shown @param {Mark} mark @param {Choose} choose */
function sectionsOf(shown, mark, choose) {
  const { query, key } = tokensOf(shown, state.pin ?? mark);
  const lists = [
    ...(query === null ? [] : listSection(shown, "query", query, choose)),
    ...(key === null ? [] : listSection(shown, "key", key, choose)),
  ];
  const listed = make("section", {}, ...lists);
  if (mark.query === null || mark.key === null) return [listed];
  return [cellSection(shown, mark.query, mark.key), listed];
}

/** @param {Shown} shown @param {number} query @param {number} key */
function cellSection(shown, query, key) {
  const place = (/** @type {Text} */ text, /** @type {number} */ number) =>
    make("small", {}, ` ${positionOf(text, number)}`);
  const pair = make("p", { className: "pair" });
  pair.append(make("bdi", {}, shown.queries.labels[query]), place(shown.queries, query), " → ");
  pair.append(make("bdi", {}, shown.keys.labels[key]), place(shown.keys, key));
  const numbers = make("dl", { className: "numbers" });
  for (const quantity of quantitiesOf(shown)) {
    numbers.append(make("dt", {}, quantity.name), make("dd", {}, quantity.text(query, key)));
  }
  return make("section", {}, make("h3", {}, "query → key"), pair, numbers);
}

/** @param {Shown} shown @param {Axis} axis @param {number} place @param {Choose} choose */
function listSection(shown, axis, place, choose) {
  const { queries, keys } = shown;
  const outward = axis === "query";
  const others = outward ? keys : queries;
  const values = shown.line(axis, place);
  const heading = `${quoted(outward ? queries : keys, place)} ${verbOf(outward, shown.scale.change)}`;
  const items = strongestOf(values, LIST_LENGTH).map((other) => {
    const mark = outward ? { query: place, key: other } : { query: other, key: place };
    const button = listButton(shown, others, other, values[other]);
    button.addEventListener("click", () => choose(mark));
    return make("li", {}, button);
  });
  const list = items.length
    ? make("ul", { className: "list" }, ...items)
    : make("p", { className: "hint" }, "nothing that is visible");
  return [make("h3", {}, make("bdi", {}, heading)), list];
}

/** @param {boolean} outward @param {boolean} change */
function verbOf(outward, change) {
  if (change) return outward ? "attends differently to" : "is attended to differently by";
  return outward ? "attends to" : "is attended to by";
}

/** @param {Shown} shown @param {Text} others @param {number} other @param {number} value */
function listButton({ scale }, others, other, value) {
  const bar = make("b", { className: scale.change ? (value < 0 ? "less" : "more") : "" });
  bar.style.width = `${Math.min(100, (100 * Math.abs(value)) / (scale.change ? scale.high : 1))}%`;
  const number = make("span", {}, weightText(value, scale.change));
  const label = make("bdi", {}, others.labels[other]);
  const title = `position ${positionOf(others, other)}`;
  return make("button", { type: "button", title }, label, make("i", {}, bar), number);
}
