/** The page of two surveys: heads as arrows from the numbers before to those after, and a list of what changes. */

import { make, one } from "./elements.js";
import { linkOf } from "./links.js";

/**
 * @typedef {object} Changes numbers by head, then by metric; null where a head has none
 * @property {string[]} names of the metrics
 * @property {{ name: string, layer: number }[]} heads
 * @property {(number | null)[][]} before
 * @property {(number | null)[][]} after
 * @property {(number | null)[][]} margins half of the 95 % interval of each change
 * @property {[string, string]} axes at first
 */

const SVG = "http://www.w3.org/2000/svg";
const [MAX_WIDTH, MIN_WIDTH, HEIGHT, LEFT, BELOW, ABOVE] = [900, 320, 420, 56, 40, 28];
const MAX_ROWS = 60;

/** @type {Changes} */
const changes = JSON.parse(one("page-data").textContent ?? "");
const shownChanges = { across: changes.axes[0], up: changes.axes[1], head: -1, all: false };

startChanges();

function startChanges() {
  for (const axis of /** @type {const} */ (["across", "up"])) {
    const select = /** @type {HTMLSelectElement} */ (one(axis));
    select.append(...changes.names.map((name) => make("option", { value: name }, name)));
    select.addEventListener("change", () => turnTo({ [axis]: select.value }));
  }
  const all = /** @type {HTMLInputElement} */ (one("all"));
  all.addEventListener("change", () => turnTo({ all: all.checked }));
  window.addEventListener("hashchange", readLink);
  window.addEventListener("resize", drawChanges);
  document.addEventListener("keydown", ({ key }) => key === "Escape" && turnTo({ head: -1 }));
  readLink();
}

/** Shows what the address names; what it does not name stays as the page begins. */
function readLink() {
  const address = new URLSearchParams(location.hash.slice(1));
  const metric = (/** @type {string} */ name, /** @type {number} */ place) =>
    changes.names.find((known) => known === address.get(name)) ?? changes.axes[place];
  const head = changes.heads.findIndex(({ name }) => name === address.get("head"));
  Object.assign(shownChanges, { across: metric("across", 0), up: metric("up", 1), head, all: address.has("all") });
  drawChanges();
}

/** @param {Partial<typeof shownChanges>} values */
function turnTo(values) {
  Object.assign(shownChanges, values);
  const { across, up, head, all } = shownChanges;
  /** @type {[string, string][]} */
  const parts = [["across", across], ["up", up]];
  if (head >= 0) parts.push(["head", changes.heads[head].name]);
  if (all) parts.push(["all", "1"]);
  history.replaceState(null, "", linkOf(parts));
  drawChanges();
}

/** Returns the change of a head's number in standard errors; 0 if the margin is unknown. @param {number} head @param {number} metric */
function clearness(head, metric) {
  const [before, after, margin] = [changes.before, changes.after, changes.margins].map((numbers) => numbers[head][metric]);
  if (before === null || after === null || margin === null || before === after) return 0;
  return margin > 0 ? (1.96 * Math.abs(after - before)) / margin : Infinity;
}

function drawChanges() {
  for (const axis of /** @type {const} */ (["across", "up"])) /** @type {HTMLSelectElement} */ (one(axis)).value = shownChanges[axis];
  const all = /** @type {HTMLInputElement} */ (one("all"));
  all.checked = shownChanges.all;
  const metrics = [shownChanges.across, shownChanges.up].map((name) => changes.names.indexOf(name));
  const known = [...changes.heads.keys()].filter((head) =>
    metrics.every((metric) => changes.before[head][metric] !== null && changes.after[head][metric] !== null),
  );
  const clear = known.filter((head) => metrics.some((metric) => clearness(head, metric) > 1.96));
  one("note").textContent = `Arrows go from before to after. ${clear.length} of ${known.length} heads surely change in ${shownChanges.across} or ${shownChanges.up} (1.96 standard errors). Click an arrow for all numbers of its head.`;
  one("plot").replaceChildren(plotOf(shownChanges.all || !clear.length ? known : clear, new Set(clear), metrics));
  one("changes").replaceChildren(...(shownChanges.head < 0 ? listOfAll() : listOfHead(shownChanges.head)));
}

/** @param {string} name @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function drawn(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** @param {number[]} heads @param {Set<number>} clear @param {number[]} metrics across and up */
function plotOf(heads, clear, [across, up]) {
  const width = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, one("plot").clientWidth || MAX_WIDTH)); // so that letters keep their size
  const ends = (/** @type {number} */ metric) => {
    const values = heads.flatMap((head) => [changes.before[head][metric] ?? 0, changes.after[head][metric] ?? 0]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
  };
  const [[left, right], [bottom, top]] = [ends(across), ends(up)];
  const x = (/** @type {number} */ value) => LEFT + ((width - LEFT - 20) * (value - left)) / (right - left);
  const y = (/** @type {number} */ value) => HEIGHT - BELOW - ((HEIGHT - BELOW - ABOVE) * (value - bottom)) / (top - bottom);
  const arrows = heads.map((head) => {
    const [fromX, toX] = [x(changes.before[head][across] ?? 0), x(changes.after[head][across] ?? 0)];
    const [fromY, toY] = [y(changes.before[head][up] ?? 0), y(changes.after[head][up] ?? 0)];
    const color = head === shownChanges.head ? "var(--accent)" : clear.has(head) ? "var(--arc)" : "var(--soft)";
    const { name } = changes.heads[head];
    const label = drawn("text", { x: toX + 6, y: toY + 4, "font-size": 12, fill: color }, name);
    const group = drawn("g", { role: "button", tabindex: 0, class: "arrow", "aria-label": `Head ${name}` },
      drawn("title", {}, `Head ${name}: ${changes.names[across]} ${spanOf(head, across)}, ${changes.names[up]} ${spanOf(head, up)}`),
      drawn("line", { x1: fromX, y1: fromY, x2: toX, y2: toY, stroke: color, "stroke-width": 2 }),
      drawn("path", { d: `M${fromX} ${fromY}L${toX} ${toY}`, stroke: "transparent", "stroke-width": 14 }), // what a pointer hits
      drawn("circle", { cx: fromX, cy: fromY, r: 2.5, fill: "var(--paper)", stroke: color }),
      drawn("circle", { cx: toX, cy: toY, r: 4, fill: color }),
      label);
    const open = () => turnTo({ head: head === shownChanges.head ? -1 : head });
    group.addEventListener("click", open);
    group.addEventListener("keydown", (event) => event instanceof KeyboardEvent && event.key === "Enter" && open());
    return group;
  });
  const ink = { fill: "var(--soft)", "font-size": 12 };
  const ticks = [0, 0.5, 1].flatMap((part) => [
    drawn("text", { ...ink, x: LEFT + (width - LEFT - 20) * part, y: HEIGHT - BELOW + 18, "text-anchor": "middle" }, (left + (right - left) * part).toFixed(2)),
    drawn("text", { ...ink, x: LEFT - 8, y: HEIGHT - BELOW - (HEIGHT - BELOW - ABOVE) * part + 4, "text-anchor": "end" }, (bottom + (top - bottom) * part).toFixed(2)),
  ]);
  return drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "arrows", role: "group", "aria-label": "Heads as arrows from before to after" },
    drawn("path", { d: `M${LEFT} 10V${HEIGHT - BELOW}H${width - 10}`, fill: "none", stroke: "var(--line)" }),
    ...ticks,
    drawn("text", { ...ink, x: width - 12, y: HEIGHT - 6, "text-anchor": "end" }, `${changes.names[across]} →`),
    drawn("text", { ...ink, x: LEFT + 8, y: 14 }, `↑ ${changes.names[up]}`),
    ...arrows);
}

/** @param {number} head @param {number} metric */
function spanOf(head, metric) {
  return `${(changes.before[head][metric] ?? NaN).toFixed(3)} → ${(changes.after[head][metric] ?? NaN).toFixed(3)}`;
}

/** The clearest changes of all heads; one row a head and metric. */
function listOfAll() {
  const all = changes.heads.flatMap((_, head) => changes.names.map((_, metric) => ({ head, metric, clear: clearness(head, metric) })));
  const rows = all.filter(({ clear }) => clear > 0).sort((one, two) => two.clear - one.clear).slice(0, MAX_ROWS);
  if (!rows.length) return [make("p", { className: "note" }, "No number changes, or the margins of changes are unknown.")];
  return [make("h2", {}, rows.length === 1 ? "The clearest change" : `The ${rows.length} clearest changes`), tableOf(rows)];
}

/** Every number of a head. @param {number} head */
function listOfHead(head) {
  const rows = changes.names.map((_, metric) => ({ head, metric, clear: clearness(head, metric) })).filter(({ metric }) => changes.before[head][metric] !== null);
  return [make("h2", {}, `Head ${changes.heads[head].name}`), tableOf(rows.sort((one, two) => two.clear - one.clear))];
}

/** @param {{ head: number, metric: number, clear: number }[]} rows */
function tableOf(rows) {
  const header = make("tr", {}, ...["head", "metric", "before", "after", "change", "± 95 %", "std. errors"].map((name) => make("th", { scope: "col" }, name)));
  const lines = rows.map(({ head, metric, clear }) => {
    const [before, after, margin] = [changes.before, changes.after, changes.margins].map((numbers) => numbers[head][metric]);
    const button = make("button", { type: "button", className: "plain" }, changes.heads[head].name);
    button.addEventListener("click", () => turnTo({ head, across: changes.names[metric] }));
    const number = (/** @type {number | null} */ value, sign = "") => (value === null ? "–" : `${value > 0 ? sign : ""}${value.toFixed(3)}`.replace("-", "−"));
    const change = before === null || after === null ? null : after - before;
    const cells = [number(before), number(after), number(change, "+"), number(margin), Number.isFinite(clear) ? clear.toFixed(1) : "∞"];
    return make("tr", {}, make("th", { scope: "row" }, button), make("td", {}, changes.names[metric]), ...cells.map((text) => make("td", {}, text)));
  });
  return make("div", { className: "scroll", tabIndex: 0 }, make("table", { className: "cells" }, make("thead", {}, header), make("tbody", {}, ...lines)));
}
