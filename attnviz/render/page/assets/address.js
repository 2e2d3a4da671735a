/** The address of what is shown, readable by a person: `#head=3.4&query=it`; written and read without a browser. */

import { linkOf } from "./links.js";
import { LAYER } from "./ordering.js";
import { nameOfPlace, placeNamed } from "./places.js";
import { intervalText, readInterval } from "./seconds.js";

/** @import { Axis, Mark, Places, State, Text, Together } from "./types.js" */

/** The words that values are named by: the page's are the command line's. */
export const WORDS = {
  view: ["matrix", "arcs", "text", "table"],
  list: ["maps", "numbers", "lens", "points"],
  together: ["side", "overlay", "difference", "mean", "max", "rollout"],
  size: ["", "column", "page", "slide"],
  steps: ["linear", "sqrt", "log", "lift"],
  limits: ["shared", "head"],
  pool: ["mean", "max"],
  direction: ["to", "from"],
  side: ["", "A", "B", "change"],
  by: ["tokens", "words"],
  special: ["", "shown", "hidden"],
  scores: ["hidden", "shown"],
};

/** @type {Record<string, string[]>} the words that an address may say, by their name in it */
const WORDS_OF_ADDRESS = {
  view: [...WORDS.view, ...WORDS.list],
  scale: WORDS.steps,
  together: WORDS.together,
  limits: WORDS.limits,
  side: WORDS.side,
  pool: WORDS.pool,
  direction: WORDS.direction,
  size: WORDS.size,
  by: WORDS.by,
  special: WORDS.special,
  scores: WORDS.scores,
};

/** The values that name numbers of a survey's heads, and the names that an address has for them. */
const AXES = /** @type {const} */ ([["across", "across"], ["up", "up"], ["sized", "size"], ["colour", "colour"], ["textsBy", "texts"]]);

/**
 * The address of a state.
 *
 * @param {Readonly<State>} state
 * @param {Readonly<State>} begun how the page begins, which an address leaves out
 * @param {Places} page
 * @param {string} zoom
 */
export function writtenAddress(state, begun, page, zoom = "") {
  const parts = [...placeParts(state, begun, page), ...pointParts(state, begun, page), ...tokenParts(state, page), ...lookParts(state, begun, page)];
  if (zoom) parts.push(["zoom", zoom]);
  return linkOf(parts);
}

/** @param {Readonly<State>} state @param {Readonly<State>} begun @param {Places} page @returns {[string, string][]} */
function placeParts(state, begun, page) {
  if (state.together && state.together === begun.together && isSame(state.chosen, begun.chosen)) return [];
  if (state.together) return [["heads", state.chosen.map((number) => writtenName(page, number)).join(",")], ["together", state.together]];
  if (state.head === null) return listParts(state, begun);
  const { name } = page.heads[state.head];
  /** @type {[string, string][]} */
  const head = page.heads.length === 1 ? [] : [["head", name]];
  if (page.heads.length > 1 && headsCalled(page, name).length > 1) head.push(["number", String(state.head)]);
  if (page.survey) return [...head, ...listParts(state, begun)]; // a head's card stands beside the list
  return state.view === begun.view ? head : [...head, ["view", state.view]];
}

/** @param {number[]} one @param {number[]} other */
function isSame(one, other) {
  return one.length === other.length && one.every((number, place) => number === other[place]);
}

/** The parameters of an address that shows heads in another way than the page begins. */
const PLACES = ["head", "heads", "number", "view", "filter", "sort", "query", "key"];

/** @param {Readonly<State>} state @param {Readonly<State>} begun @returns {[string, string][]} */
function listParts(state, begun) {
  /** @type {[string, string][]} */
  const parts = [];
  const other = begun.together !== null && !state.pin; // an address without a word shows heads together
  if ((other || state.list !== begun.list) && !(state.list === "lens" && state.pin)) parts.push(["view", state.list]);
  if (state.filter) parts.push(["filter", state.filter]);
  if (state.sort !== begun.sort) parts.push(["sort", state.sort]);
  return parts;
}

/** The numbers by which heads of a survey are points, and the heads that are brushed. @param {Readonly<State>} state @param {Readonly<State>} begun @param {Places} page @returns {[string, string][]} */
function pointParts(state, begun, page) {
  const { survey } = page;
  if (!survey) return [];
  const axes = AXES.filter(([value]) => state[value] !== begun[value]);
  /** @type {[string, string][]} */
  const parts = axes.map(([value, name]) => [name, state[value]]);
  return state.brushed ? [...parts, ["brushed", [...state.brushed].map((head) => writtenName(page, head)).join(",")]] : parts;
}

/** @param {Readonly<State>} state @param {Places} page @returns {[string, string][]} */
function tokenParts(state, page) {
  /** @type {Axis[]} */
  const axes = ["query", "key"];
  return axes.flatMap((axis) => {
    const place = state.pin?.[axis];
    return place === null || place === undefined ? [] : [[axis, nameOfPlace(textOfAxis(page, firstHeadOf(state), axis), place)]];
  });
}

/** @param {Readonly<State>} state @param {Readonly<State>} begun @param {Places} page @returns {[string, string][]} */
function lookParts(state, begun, page) {
  /** @type {[string, string][]} */
  const parts = [];
  if (state.steps !== startingSteps(state.of, begun)) parts.push(["scale", state.steps]);
  if (state.limits !== begun.limits) parts.push(["limits", state.limits]);
  if (state.of !== page.quantity) parts.push(["of", "contributions"]);
  if (state.side !== begun.side) parts.push(["side", state.side]);
  if (state.size) parts.push(["size", state.size]);
  if (state.by !== "tokens") parts.push(["by", state.by]);
  if (state.special) parts.push(["special", state.special]);
  if (state.scores !== "hidden") parts.push(["scores", state.scores]);
  if (state.pool === "max") parts.push(["pool", "max"]);
  if (state.direction === "from") parts.push(["direction", "from"]);
  if (state.interval) parts.push(["seconds", intervalText(state.interval)]);
  return parts;
}

/**
 * The state that an address says, and its zoom; what it does not say is as the page begins.
 *
 * @param {string} written
 * @param {Readonly<State>} state as it is: heads stay chosen
 * @param {Readonly<State>} begun
 * @param {Places} page
 */
export function readAddress(written, state, begun, page) {
  const address = new URLSearchParams(written.replace(/^#/, ""));
  const heads = page.survey ? [] : headsOf(address.get("heads"), page); // a survey has a card for each head, and no tokens
  /** @type {Together} */
  const how = oneOf(WORDS.together, address.get("together")) ?? "side";
  const asBegun = !PLACES.some((name) => address.has(name));
  const together = heads.length > 1 ? how : asBegun ? begun.together : null;
  const head = together ? null : headOf(address, page);
  const chosen = heads.length ? heads : asBegun && begun.together ? begun.chosen : state.chosen;
  const pin = /^#?$/.test(written) ? begun.pin : pinOf(address, page, firstHeadOf({ head, chosen }));
  const changes = {
    head,
    chosen,
    together,
    view: oneOf(WORDS.view, address.get("view")) ?? (address.has("view") ? state.view : begun.view),
    filter: address.get("filter") ?? "",
    sort: address.has("sort") ? sortOf(address.get("sort") ?? "", page) : begun.sort,
    mark: null,
    pin,
    list: oneOf(listsOf(page), address.get("view")) ?? (pin ? "lens" : begun.list),
    ...pointsOf(address, begun, page),
    ...lookOf(address, begun, page),
  };
  const unknown = unknownIn(address, page, firstHeadOf({ head, chosen }));
  return { changes: /** @type {Partial<State>} */ ({ ...changes, unknown }), zoom: address.get("zoom") };
}

/** The ways in which a page shows all heads: a survey has points, and no token in all of them. @param {Places} page */
function listsOf(page) {
  return WORDS.list.filter((list) => list !== (page.survey ? "lens" : "points"));
}

/** The order that an address names, by the beginning of a metric's name too; as written where it names none. @param {string} written @param {Places} page */
function sortOf(written, page) {
  const [, minus, name] = written.match(/^(-?)(.*)$/) ?? ["", "", ""];
  const known = [...(page.metrics?.names ?? []), LAYER, "weight"];
  const begun = known.filter((one) => name && one.startsWith(name));
  return known.includes(name) || begun.length !== 1 ? written : minus + begun[0];
}

/** Returns a sentence on what an address names and the page does not have; "" if the page has all. @param {URLSearchParams} address @param {Places} page @param {number} head whose tokens it names */
function unknownIn(address, page, head) {
  const sort = sortOf(address.get("sort") ?? "", page).replace(/^-/, "");
  const sorts = ["", LAYER, "weight", ...(page.metrics?.names ?? [])];
  const names = (address.get("heads") ?? "").split(",").filter(Boolean);
  const isNumbered = page.heads[Number(address.get("number") ?? NaN)] !== undefined;
  const missing = [
    ...[address.get("head") ?? "", ...names].filter((name) => name && !isNumbered && headCalled(page, name) === null).map((name) => `no head ${name}`),
    ...(page.survey && names.length > 1 ? ["no heads together"] : []),
    ...["query", "key"].flatMap((axis) => unknownToken(address.get(axis), page, head, /** @type {Axis} */ (axis))),
    ...(sorts.includes(sort) ? [] : [`no metric ${sort}`]),
    ...Object.entries(WORDS_OF_ADDRESS).flatMap(([name, words]) => {
      const word = address.get(name);
      const isAxis = page.survey && name === "size"; // the number that points grow with
      const isOther = name === "view" && WORDS.list.includes(word ?? "") && !listsOf(page).includes(word ?? "");
      return word === null || isAxis || (words.includes(word) && !isOther) ? [] : [`no ${name} ${word}`];
    }),
  ];
  return missing.length ? `The link names what this page does not have: ${missing.join(", ")}.` : "";
}

/** @param {string | null} written @param {Places} page @param {number} head @param {Axis} axis */
function unknownToken(written, page, head, axis) {
  if (written === null) return [];
  return page.survey || placeNamed(textOfAxis(page, head, axis), written) === null ? [`no ${axis} “${written}”`] : [];
}

/** @param {URLSearchParams} address @param {Readonly<State>} begun @param {Places} page */
function pointsOf(address, begun, page) {
  const names = page.survey ? [...(page.metrics?.names ?? []), LAYER] : [];
  const axes = AXES.map(([value, name]) => {
    const known = value === "sized" || value === "textsBy" ? [...names, ""] : names;
    return [value, oneOf(known, address.get(name)) ?? begun[value]];
  });
  const brushed = page.survey ? headsOf(address.get("brushed"), page) : [];
  return { ...Object.fromEntries(axes), brushed: brushed.length ? new Set(brushed) : null };
}

/** @param {string | null} written @param {Places} page */
function headsOf(written, page) {
  return (written ?? "").split(",").map((name) => headCalled(page, name)).filter((number) => number !== null);
}

/** @param {URLSearchParams} address @param {Readonly<State>} begun @param {Places} page */
function lookOf(address, begun, page) {
  const of = page.moved && address.get("of") === "contributions" ? "contribution" : page.quantity;
  const compares = page.sides.length > 1;
  return {
    of,
    steps: oneOf(WORDS.steps, address.get("scale")) ?? startingSteps(of, begun),
    limits: oneOf(WORDS.limits, address.get("limits")) ?? begun.limits,
    side: (compares && oneOf(WORDS.side.slice(1), address.get("side"))) || begun.side,
    size: oneOf(WORDS.size, address.get("size")) ?? "",
    by: oneOf(WORDS.by, address.get("by")) ?? "tokens",
    special: oneOf(WORDS.special, address.get("special")) ?? "",
    scores: oneOf(WORDS.scores, address.get("scores")) ?? "hidden",
    pool: oneOf(WORDS.pool, address.get("pool")) ?? "mean",
    direction: oneOf(WORDS.direction, address.get("direction")) ?? "to",
    interval: page.texts.some(({ seconds }) => seconds) ? readInterval(address.get("seconds")) : null,
  };
}

/** The steps that colours of a quantity begin with: lift is of weights. @param {State["of"]} of @param {Readonly<State>} begun */
export function startingSteps(of, begun) {
  return of !== begun.of && begun.steps === "lift" ? "sqrt" : begun.steps;
}

/** The head whose texts tokens are looked for in. @param {Pick<State, "head" | "chosen">} state */
export function firstHeadOf({ head, chosen }) {
  return head ?? chosen[0] ?? 0;
}

/**
 * One of some names, or nothing.
 *
 * @template {string} Name
 * @param {string[]} names
 * @param {string | null} name
 * @returns {Name | undefined}
 */
function oneOf(names, name) {
  return /** @type {Name | undefined} */ (names.find((known) => known === name));
}

/** @param {Places} page @param {number} number */
function writtenName(page, number) {
  const { name } = page.heads[number];
  return headsCalled(page, name).length > 1 ? `${name}~${number}` : name;
}

/** @param {Places} page @param {string} name */
function headsCalled(page, name) {
  return [...page.heads.keys()].filter((number) => page.heads[number].name === name);
}

/** @param {Places} page @param {number} number @param {Axis} axis @returns {Text} */
function textOfAxis(page, number, axis) {
  const { queries, keys } = page.heads[number];
  return page.texts[(axis === "query" ? queries : keys)[0]];
}

/** The head that an address names; the only one, or none, where it names no head. @param {URLSearchParams} address @param {Places} page */
function headOf(address, page) {
  const number = Number(address.get("number") ?? NaN);
  if (page.heads[number]) return number;
  return headCalled(page, address.get("head") ?? "") ?? (page.heads.length === 1 ? 0 : null);
}

/** @param {Places} page @param {string} written */
function headCalled(page, written) {
  const [name, number] = written.split("~");
  if (number !== undefined && page.heads[Number(number)]) return Number(number);
  return headsCalled(page, name)[0] ?? null;
}

/** @param {URLSearchParams} address @param {Places} page @param {number} head @returns {Mark | null} */
function pinOf(address, page, head) {
  if (page.survey || (!address.has("query") && !address.has("key"))) return null;
  /** @type {Axis[]} */
  const axes = ["query", "key"];
  const [query, key] = axes.map((axis) => placeNamed(textOfAxis(page, head, axis), address.get(axis)));
  return query === null && key === null ? null : { query, key };
}
