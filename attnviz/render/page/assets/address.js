/** The address of what is shown, readable by a person: `#head=3.4&query=it`. */

import { comparing, page, textOf } from "./data.js";
import { quotedPlace } from "./formatting.js";
import { state } from "./state.js";

/** @import { Axis, Mark, Together } from "./types.js" */

const VIEW_NAMES = ["matrix", "arcs", "text", "table"];
const LIST_NAMES = ["maps", "numbers", "lens"];
const TOGETHER_NAMES = ["side", "difference", "mean", "max", "rollout"];
const SIZE_NAMES = ["column", "page", "slide"];
const STEP_NAMES = ["linear", "sqrt", "log", "lift"];
const LIMIT_NAMES = ["shared", "head"];
const begun = { steps: state.steps, limits: state.limits, side: state.side, view: state.view, pin: state.pin, sort: state.sort };

/** The address of what is shown now. */
export function writtenAddress() {
  /** @type {[string, string][]} */
  const parts = [...placeParts(), ...tokenParts(), ...lookParts()];
  return `#${parts.map(([name, value]) => `${name}=${readable(value)}`).join("&")}`;
}

/** @returns {[string, string][]} */
function placeParts() {
  if (state.together) return [["heads", state.chosen.map(writtenName).join(",")], ["together", state.together]];
  if (state.head === null) {
    const list = state.list === "numbers" || (state.list === "lens" && !state.pin) ? [["view", state.list]] : [];
    const filter = state.filter ? [["filter", state.filter]] : [];
    const sort = state.sort === begun.sort ? [] : [["sort", state.sort]];
    return /** @type {[string, string][]} */ ([...list, ...filter, ...sort]);
  }
  /** @type {[string, string][]} */
  const head = [["head", page.heads[state.head].name]];
  if (headsCalled(page.heads[state.head].name).length > 1) head.push(["number", String(state.head)]);
  if (state.view !== begun.view) head.push(["view", state.view]);
  return page.heads.length === 1 ? head.slice(1) : head;
}

/** @returns {[string, string][]} */
function tokenParts() {
  if (!state.pin) return [];
  const number = firstHead();
  /** @type {Axis[]} */
  const axes = ["query", "key"];
  return axes.flatMap((axis) => {
    const place = state.pin?.[axis];
    return place === null || place === undefined ? [] : [[axis, quotedPlace(textOf(number, axis), place)]];
  });
}

/** @returns {[string, string][]} */
function lookParts() {
  /** @type {[string, string][]} */
  const parts = [];
  if (state.steps !== begun.steps) parts.push(["scale", state.steps]);
  if (state.limits !== begun.limits) parts.push(["limits", state.limits]);
  if (state.of !== page.quantity) parts.push(["of", "contributions"]);
  if (state.side !== begun.side) parts.push(["side", state.side]);
  if (state.size) parts.push(["size", state.size]);
  if (state.pool === "max") parts.push(["pool", "max"]);
  if (state.direction === "from") parts.push(["direction", "from"]);
  const zoom = zoomOf();
  return zoom ? [...parts, ["zoom", zoom]] : parts;
}

/** The zoom, and the cell in the middle, where a picture is enlarged. */
function zoomOf() {
  const stage = state.current?.stage;
  if (!stage || stage.picture.factor <= 1.01) return "";
  const { width, height } = stage;
  const mark = stage.picture.pointAt(width / 2, height / 2, stage.area);
  return `${Number(stage.picture.factor.toPrecision(3))}@${mark?.query ?? 0},${mark?.key ?? 0}`;
}

/** @param {string} value */
function readable(value) {
  return encodeURIComponent(value).replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%40/g, "@").replace(/%3E/g, ">").replace(/%20/g, "+");
}

/** @param {number} number */
function writtenName(number) {
  const { name } = page.heads[number];
  return headsCalled(name).length > 1 ? `${name}~${number}` : name;
}

/** @param {string} name */
function headsCalled(name) {
  return [...page.heads.keys()].filter((number) => page.heads[number].name === name);
}

/** The head whose texts tokens are looked for in. */
export function firstHead() {
  return state.head ?? state.chosen[0] ?? 0;
}

/** Takes the state that an address says; what it does not say is as the page began. @param {string} written */
export function readAddress(written) {
  const address = new URLSearchParams(written.replace(/^#/, ""));
  const heads = (address.get("heads") ?? "").split(",").map(headCalled).filter((number) => number !== null);
  state.chosen = heads.length ? heads : state.chosen;
  /** @type {Together} */
  const together = oneOf(TOGETHER_NAMES, address.get("together")) ?? "side";
  state.together = heads.length > 1 ? together : null;
  state.head = state.together ? null : headOf(address);
  state.view = oneOf(VIEW_NAMES, address.get("view")) ?? (address.has("view") ? state.view : begun.view);
  state.filter = address.get("filter") ?? "";
  state.sort = address.get("sort") ?? begun.sort;
  state.mark = null;
  state.pin = /^#?$/.test(written) ? begun.pin : pinOf(address);
  state.list = oneOf(LIST_NAMES, address.get("view")) ?? (state.pin ? "lens" : "maps");
  readLook(address);
  return address.get("zoom");
}

/** @param {URLSearchParams} address */
function readLook(address) {
  state.steps = oneOf(STEP_NAMES, address.get("scale")) ?? begun.steps;
  state.limits = oneOf(LIMIT_NAMES, address.get("limits")) ?? begun.limits;
  state.of = page.moved && address.get("of") === "contributions" ? "contribution" : page.quantity;
  state.side = comparing ? (oneOf(["A", "B", "change"], address.get("side")) ?? begun.side) : begun.side;
  state.size = oneOf(SIZE_NAMES, address.get("size")) ?? "";
  state.pool = address.get("pool") === "max" ? "max" : "mean";
  state.direction = address.get("direction") === "from" ? "from" : "to";
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

/** The head that an address names; the only one, or none, where it names no head. @param {URLSearchParams} address */
function headOf(address) {
  const number = Number(address.get("number") ?? NaN);
  if (page.heads[number]) return number;
  return headCalled(address.get("head") ?? "") ?? (page.heads.length === 1 ? 0 : null);
}

/** @param {string} written */
function headCalled(written) {
  const [name, number] = written.split("~");
  if (number !== undefined && page.heads[Number(number)]) return Number(number);
  return headsCalled(name)[0] ?? null;
}

/** @param {URLSearchParams} address @returns {Mark | null} */
function pinOf(address) {
  if (!address.has("query") && !address.has("key")) return null;
  const [query, key] = [placeOf("query", address.get("query")), placeOf("key", address.get("key"))];
  return query === null && key === null ? null : { query, key };
}

/** The place of a token that is named by its number, or by its text. @param {Axis} axis @param {string | null} written */
function placeOf(axis, written) {
  if (written === null) return null;
  const text = textOf(firstHead(), axis);
  const place = /^\d+$/.test(written) ? placeOfNumber(text, Number(written)) : text.labels.indexOf(written);
  return place >= 0 && place < text.labels.length ? place : null;
}

/** @param {{ first?: number, edges?: number[] }} text @param {number} number */
function placeOfNumber({ first, edges }, number) {
  if (!edges) return number - (first ?? 0);
  return edges.findIndex((edge, place) => edge <= number && number < (edges[place + 1] ?? -1));
}
