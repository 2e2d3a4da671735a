/** The address of what is shown, readable by a person: `#head=3.4&query=it`; written and read without a browser. */

import { choiceOf, firstHeadOf, valuesOf } from "./choices.js";
import { linkOf } from "./elements.js";
import { LAYER } from "./filter.js";
import { intervalText, nameOfPlace, placeNamed, readInterval } from "./places.js";

/** @import { Axis, Choice, ChoiceName, Mark, Places, State, Text } from "./types.js" */

/** The values that name numbers of a survey's heads, and the names that an address has for them. */
export const AXES = /** @type {const} */ ([["across", "across"], ["up", "up"], ["sized", "size"], ["colour", "colour"], ["textsBy", "texts"]]);

/**
 * The address of a state.
 *
 * @param {Readonly<State>} state
 * @param {Readonly<State>} begun how the page begins, which an address leaves out
 * @param {Places} page
 * @param {string} zoom
 */
export function writtenAddress(state, begun, page, zoom = "") {
  const parts = [...placeParts(state, begun, page), ...pointParts(state, begun, page), ...tokenParts(state, page)];
  for (const choice of lasting(page)) {
    const { name, values } = choice;
    const word = state[name];
    if (word !== begun[name]) parts.push([addressName(choice), values.find((value) => value.word === word)?.written || String(word)]);
  }
  if (state.interval) parts.push(["seconds", intervalText(state.interval)]);
  if (zoom) parts.push(["zoom", zoom]);
  return linkOf(parts);
}

/** The choices that last wherever the reader goes; the others are of a place. @param {Places} page */
function lasting(page) {
  return page.table.choices.filter(({ group }) => group !== "place");
}

/** @param {Choice} choice */
function addressName({ name, address }) {
  return address || name;
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
  const isOther = other || state.list !== begun.list || (state.list === "why" && state.pin); // a token alone is shown in all heads
  if (isOther && !(state.list === "lens" && state.pin)) parts.push(["view", state.list]);
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
    return place === null || place === undefined ? [] : [[axis, nameOfPlace(textOfAxis(page, firstHeadOf(state, page), axis), place)]];
  });
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
  const how = wordOf("together", address, page) ?? "side";
  const asBegun = !PLACES.some((name) => address.has(name));
  const together = heads.length > 1 ? how : asBegun ? begun.together : null;
  const head = together ? null : headOf(address, page);
  const readersOwn = begun.together && isSame(state.chosen, begun.chosen) ? [] : state.chosen; // no reader chose those of the beginning
  const chosen = heads.length ? heads : asBegun && begun.together ? begun.chosen : readersOwn;
  const pin = /^#?$/.test(written) ? begun.pin : pinOf(address, page, firstHeadOf({ head, chosen, list: address.get("view") }, page));
  const changes = {
    head,
    chosen,
    together,
    view: wordOf("view", address, page) ?? (address.has("view") ? state.view : begun.view),
    filter: address.get("filter") ?? "",
    sort: address.has("sort") ? sortOf(address.get("sort") ?? "", page) : begun.sort,
    mark: null,
    pin,
    list: wordOf("list", address, page) ?? (pin && (head === null || begun.list !== "why") ? "lens" : begun.list), // from a head of an answer back to it
    ...pointsOf(address, begun, page),
    ...chosenIn(address, begun, page),
    interval: page.texts.some(({ seconds }) => seconds) ? readInterval(address.get("seconds")) : null,
  };
  const unknown = unknownIn(address, page, firstHeadOf({ head, chosen, list: address.get("view") }, page));
  return { changes: /** @type {Partial<State>} */ ({ ...changes, unknown }), zoom: address.get("zoom") };
}

/** What an address says of the choices that last; of two that take back each other, the first counts. @param {URLSearchParams} address @param {Readonly<State>} begun @param {Places} page */
function chosenIn(address, begun, page) {
  /** @type {Record<string, string>} */
  const chosen = {};
  for (const { name, values } of lasting(page)) {
    const word = wordOf(name, address, page);
    if (word === undefined || name in chosen) chosen[name] ??= String(begun[name]);
    else Object.assign(chosen, { [name]: word }, Object.fromEntries(values.find((value) => value.word === word)?.clears ?? []));
  }
  return chosen;
}

/** The word that an address has for a choice, if it has one that the page has. @param {ChoiceName} name @param {URLSearchParams} address @param {Places} page */
function wordOf(name, address, page) {
  const choice = choiceOf(name, page);
  const written = address.get(addressName(choice));
  return valuesOf(choice, page).find((value) => (value.written || value.word) === written)?.word;
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
    ...unknownWords(address, page),
  ];
  return missing.length ? `The link names what this page does not have: ${missing.join(", ")}.` : "";
}

/** @param {URLSearchParams} address @param {Places} page */
function unknownWords(address, page) {
  return [...new Set(page.table.choices.map(addressName))].flatMap((name) => {
    const word = address.get(name);
    if (word === null || (page.survey && name === "size")) return []; // there the number that points grow with
    const values = page.table.choices.flatMap((choice) => (addressName(choice) === name ? valuesOf(choice, page) : []));
    const known = values.map((value) => value.written || value.word);
    return known.includes(word) ? [] : [`no ${name} ${word}`];
  });
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
  return headCalled(page, address.get("head") ?? "") ?? (page.heads.length === 1 && !page.why ? 0 : null);
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
  const [query, key] = axes.map((axis) => placeNamed(textOfAxis(page, head, axis), address.get(axis), axis));
  return query === null && key === null ? null : { query, key };
}
