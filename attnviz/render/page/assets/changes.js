/** The page of two surveys: heads as arrows from the numbers before to those after, and a list of what changes. */

import { axisAround, groundOf } from "./charts.js";
import { linkOf, one, scrollingTable } from "./elements.js";
import { h, patch } from "./tree.js";
import { endsOf } from "./values.js";

/**
 * @typedef {object} Changes numbers by head, then by metric; null where a head has none
 * @property {string[]} names of the metrics
 * @property {{ name: string, layer: number }[]} heads
 * @property {(number | null)[][]} before
 * @property {(number | null)[][]} after
 * @property {(number | null)[][]} margins half of the 95 % interval of each change
 * @property {[string, string]} axes at first
 */

const [MAX_WIDTH, MIN_WIDTH, HEIGHT] = [900, 320, 420]; // pixels
const MAX_ROWS = 60;

/** @type {Changes} */
const changes = JSON.parse(one("page-data").textContent ?? "");
const shownChanges = { across: changes.axes[0], up: changes.axes[1], head: -1, all: false };

startChanges();

function startChanges() {
  for (const axis of /** @type {const} */ (["across", "up"])) {
    const select = /** @type {HTMLSelectElement} */ (one(axis));
    patch(select, changes.names.map((name) => h("option", { value: name }, name)));
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
  patch(one("plot"), [plotOf(shownChanges.all || !clear.length ? known : clear, new Set(clear), metrics)]);
  patch(one("changes"), shownChanges.head < 0 ? listOfAll() : listOfHead(shownChanges.head));
}

/** @param {number[]} heads @param {Set<number>} clear @param {number[]} metrics across and up */
function plotOf(heads, clear, metrics) {
  const width = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, one("plot").clientWidth || MAX_WIDTH)); // so that letters keep their size
  const [across, up] = metrics.map((metric, place) => {
    const ends = endsOf(heads.flatMap((head) => [changes.before[head][metric] ?? NaN, changes.after[head][metric] ?? NaN]));
    return axisAround(changes.names[metric], ends, place ? 5 : width / 100);
  });
  const { x, y, tree } = groundOf(width, HEIGHT, across, up);
  const arrows = heads.map((head) => {
    const [[x1, y1], [x2, y2]] = [changes.before, changes.after].map((numbers) => [x(numbers[head][metrics[0]] ?? 0), y(numbers[head][metrics[1]] ?? 0)]);
    const color = head === shownChanges.head ? "var(--accent)" : clear.has(head) ? "var(--arc)" : "var(--soft)";
    const { name } = changes.heads[head];
    const open = () => turnTo({ head: head === shownChanges.head ? -1 : head });
    const onkeydown = (/** @type {KeyboardEvent} */ { key }) => key === "Enter" && open();
    return h("g", { key: head, role: "button", tabindex: 0, class: "arrow", "aria-label": `Head ${name}`, onclick: open, onkeydown },
      h("title", {}, `Head ${name}: ${metrics.map((metric) => `${changes.names[metric]} ${spanOf(head, metric)}`).join(", ")}`),
      h("line", { x1, y1, x2, y2, stroke: color, "stroke-width": 2 }),
      h("path", { d: `M${x1} ${y1}L${x2} ${y2}`, stroke: "transparent", "stroke-width": 14 }), // what a pointer hits
      h("circle", { cx: x1, cy: y1, r: 2.5, fill: "var(--paper)", stroke: color }),
      h("circle", { cx: x2, cy: y2, r: 4, fill: color }),
      h("text", { x: x2 + 6, y: y2 + 4, fill: color }, name));
  });
  return h("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "arrows", role: "group", "aria-label": "Heads as arrows from before to after" }, ...tree, ...arrows);
}

/** @param {number} head @param {number} metric */
function spanOf(head, metric) {
  return `${(changes.before[head][metric] ?? NaN).toFixed(3)} → ${(changes.after[head][metric] ?? NaN).toFixed(3)}`;
}

/** The clearest changes of all heads; one row a head and metric. */
function listOfAll() {
  const all = changes.heads.flatMap((_, head) => changes.names.map((_, metric) => ({ head, metric, clear: clearness(head, metric) })));
  const rows = all.filter(({ clear }) => clear > 0).sort((one, two) => two.clear - one.clear).slice(0, MAX_ROWS);
  if (!rows.length) return [h("p", { class: "note" }, "No number changes, or the margins of changes are unknown.")];
  return [h("h2", {}, rows.length === 1 ? "The clearest change" : `The ${rows.length} clearest changes`), tableOf(rows)];
}

/** Every number of a head. @param {number} head */
function listOfHead(head) {
  const rows = changes.names.map((_, metric) => ({ head, metric, clear: clearness(head, metric) })).filter(({ metric }) => changes.before[head][metric] !== null);
  return [h("h2", {}, `Head ${changes.heads[head].name}`), tableOf(rows.sort((one, two) => two.clear - one.clear))];
}

/** @param {{ head: number, metric: number, clear: number }[]} rows */
function tableOf(rows) {
  const header = [h("tr", {}, ...["head", "metric", "before", "after", "change", "± 95 %", "std. errors"].map((name) => h("th", { scope: "col" }, name)))];
  const rowOf = (/** @type {number} */ place) => {
    const { head, metric, clear } = rows[place];
    const [before, after, margin] = [changes.before, changes.after, changes.margins].map((numbers) => numbers[head][metric]);
    const open = () => turnTo({ head, across: changes.names[metric] });
    const number = (/** @type {number | null} */ value, sign = "") => (value === null ? "–" : `${value > 0 ? sign : ""}${value.toFixed(3)}`.replace("-", "−"));
    const change = before === null || after === null ? null : after - before;
    const cells = [changes.names[metric], number(before), number(after), number(change, "+"), number(margin), Number.isFinite(clear) ? clear.toFixed(1) : "∞"];
    const name = h("th", { scope: "row" }, h("button", { type: "button", class: "plain", onclick: open }, changes.heads[head].name));
    return h("tr", {}, name, ...cells.map((text) => h("td", {}, text)));
  };
  return scrollingTable({ label: "Changes of numbers", name: "", caption: "Numbers before and after", header, count: rows.length, rowOf });
}
