/** The inspector: the cell that is pointed at, and what the chosen token attends to and is attended to by, and why a pair has its weight. */

import { page } from "./data.js";
import { one } from "./elements.js";
import { positionOf, quoted } from "./formatting.js";
import { TokenLens } from "./lens.js";
import { meaningOf, METRIC_NAMES, metricText, numbersOf } from "./metrics.js";
import { readScores, scoreFactorsOf } from "./numbers.js";
import { intervalText, shareWithin } from "./places.js";
import { cellNumber, quantitiesOf, weightText } from "./quantities.js";
import { showsScores, withoutHidden } from "./shown.js";
import { scene, state } from "./state.js";
import { h, patch } from "./tree.js";
import { strongestOf } from "./values.js";

/** @import { Axis, Grid, Mark, Scale, ScoreFactors, Shown, Text } from "./types.js" */

const LIST_LENGTH = 8;
const LISTED = 12; // features of a score with the largest shares
const SMALL = 5e-4; // a difference that three decimals do not show
const RECORD = "attnviz show TEXT --model MODEL --set dense=false -o run.safetensors";
const HINT = "Point at a cell or a token for its numbers. Click to keep it: what it attends to, and what attends to it.";
const TOUCH_HINT = "Touch a cell or a token: its numbers, what it attends to, and what attends to it.";
const BESIDE_HINT = " Shift and click another head: both stand side by side.";

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

/** @type {{ head: number | null | undefined, open: boolean }} whose metrics are drawn, and whether they are unfolded */
const known = { head: undefined, open: false };

/** @param {Shown | null} shown @param {Choose} choose */
export function drawInspector(shown, choose) {
  const mark = state.mark ?? state.pin;
  const pointed = one("pointed");
  patch(pointed, shown ? shownSections(shown, mark) : []);
  pointed.onclick = ({ target }) => {
    const { query, key, row } = /** @type {Element} */ (target).closest("button")?.dataset ?? {};
    if (row) scene.current?.stage?.revealRow(Number(row));
    if (query && key) choose({ query: Number(query), key: Number(key) });
  };
  if (known.head === state.head) return; // what a head does is drawn when it is opened
  known.head = state.head;
  patch(one("known"), headSections());
}

const awaited = { timer: 0 };

/** Computes a line in a task of its own, and draws it: two of a long text would keep the pointer waiting. @param {Shown} shown @param {Axis} axis @param {number} place */
function computeSoon(shown, axis, place) {
  clearTimeout(awaited.timer);
  awaited.timer = setTimeout(() => {
    if (scene.shown !== shown) return;
    shown.line(axis, place);
    redraw(shown);
  });
}

/** Draws the numbers again, if nothing else was opened since. @param {Shown} shown */
function redraw(shown) {
  if (scene.shown === shown) patch(one("pointed"), shownSections(shown, state.mark ?? state.pin));
}

/** @param {Shown} shown @param {Mark | null} mark */
function shownSections(shown, mark) {
  if (shown.said) return lensSections(shown, mark);
  const touches = matchMedia("(hover: none)").matches;
  const hasOthers = state.head !== null && page.heads.length > 1;
  return mark ? sectionsOf(shown, mark) : [hint(touches ? TOUCH_HINT : HINT + (hasOthers ? BESIDE_HINT : ""))];
}

/** @param {string} text */
function hint(text) {
  return h("section", {}, h("p", { class: "hint" }, text));
}

/** Returns the sections on a cell of the lens, and on the strongest tokens of its head or of the mean. @param {Shown} shown @param {Mark | null} mark */
function lensSections(shown, mark) {
  const cell = mark ? (shown.said?.(mark) ?? []) : [];
  const shades = shown.shades?.(mark);
  const values = shades?.key ?? shades?.query;
  const sections = [];
  if (cell.length) {
    const [where, pair, number] = cell;
    sections.push(h("section", {}, h("h3", {}, where), h("p", { class: "pair" }, h("bdi", {}, pair), " ", h("b", {}, number))));
  }
  if (!values || !shades) return [...sections, hint("Computing every head…")];
  if (shown instanceof TokenLens && shown.layers.length > 1) sections.push(layersSection(shown));
  const items = strongestOf(withoutHidden(values, shown.tokens ?? shown.keys), LIST_LENGTH).map((place) => {
    const color = shades.colors?.[place]; // as the text and the arcs
    return h("li", {}, listButton(shown, shown.tokens ?? shown.keys, place, values[place], { color }));
  });
  sections.push(h("section", {}, h("h3", {}, shades.said), h("ul", { class: "list" }, ...items)));
  return sections;
}

/** The mean of each layer's heads: its strongest token, and a button that goes to its row. @param {TokenLens} shown */
function layersSection(shown) {
  const items = shown.layerRows().map(({ layer, row, column, value }) => {
    const label = column === undefined ? "" : `layer ${layer}: ${shown.keys.labels[column]}`;
    return h("li", {}, namedBar(label, `mean of the heads of layer ${layer}`, value, shown.scale, { data: { "data-row": row } }));
  });
  return h("section", {}, h("h3", {}, "means of the layers, strongest token"), h("ul", { class: "list layers" }, ...items));
}

/** @param {Shown} shown @param {Mark} mark */
function sectionsOf(shown, mark) {
  const listedMark = state.mark && (state.mark.query === null || state.mark.key === null) ? state.mark : (state.pin ?? mark);
  const { query, key } = tokensOf(shown, listedMark);
  const lists = [
    ...(query === null ? [] : listSection(shown, "query", query)),
    ...(key === null ? [] : listSection(shown, "key", key)),
  ];
  const listed = h("section", {}, ...ofHead(shown), ...lists);
  if (mark.query === null || mark.key === null) return [listed];
  const why = state.pin?.query === mark.query && state.pin.key === mark.key ? whySection(shown, mark.query, mark.key, () => redraw(shown)) : [];
  return [cellSection(shown, mark.query, mark.key), ...besideSections(mark.query, mark.key), ...why, listed];
}

/** @param {Shown} shown @param {number} query @param {number} key */
function cellSection(shown, query, key) {
  const token = (/** @type {Text} */ text, /** @type {number} */ place) => [h("bdi", {}, text.labels[place]), h("small", {}, ` ${positionOf(text, place)}`)];
  const pair = h("p", { class: "pair" }, ...token(shown.queries, query), " → ", ...token(shown.keys, key));
  return h("section", {}, h("h3", {}, "query → key"), ...ofHead(shown), pair, numbersList(quantitiesOf(shown).map(({ name, text }) => [name, text(query, key)])));
}

/** Numbers under their names. @param {[string, string][]} numbers @param {(name: string) => string | null} [meaning] */
function numbersList(numbers, meaning = () => null) {
  return h("dl", { class: "numbers" }, ...numbers.flatMap(([name, text]) => [h("dt", { title: meaning(name) }, name), h("dd", {}, text)]));
}

/** Of which head numbers are where several stand side by side. @param {Shown} shown */
function ofHead(shown) {
  return (scene.current?.stages?.length ?? 0) > 1 ? [h("p", { class: "of-head" }, shown.title)] : [];
}

/** Returns the sections on the same cell in every head that is shown side by side. @param {number} query @param {number} key */
function besideSections(query, key) {
  const stages = scene.current?.stages ?? [];
  if (stages.length < 2) return [];
  const cells = stages.map(({ picture }) => picture.shown.source ?? picture.shown);
  const numbers = numbersList(cells.map((shown) => [shown.title, cellNumber(shown, query, key)]));
  return [h("section", {}, h("h3", {}, showsScores() ? "side by side, scores" : "side by side"), numbers)];
}

/** @param {Shown} shown @param {Axis} axis @param {number} place */
function listSection(shown, axis, place) {
  const { queries, keys } = shown;
  const outward = axis === "query";
  const others = outward ? keys : queries;
  const heading = h("h3", {}, h("bdi", {}, `${quoted(outward ? queries : keys, place)} ${verbOf(outward, shown.scale.change)}`));
  if (!shown.isKnown(axis, place)) {
    computeSoon(shown, axis, place);
    return [heading, h("ul", { class: "list awaited" })];
  }
  const values = shown.line(axis, place);
  const items = strongestOf(withoutHidden(values, others), LIST_LENGTH).map((other) => {
    const [query, key] = outward ? [place, other] : [other, place];
    return h("li", {}, listButton(shown, others, other, values[other], { error: shown.errorAt(query, key), data: { "data-query": query, "data-key": key } }));
  });
  const { interval } = state;
  if (interval && others.seconds && !shown.scale.change) items.push(h("li", { class: "hint" }, `${weightText(shareWithin(values, others, interval))} within ${intervalText(interval).replace("-", "–")} s`));
  const list = items.length
    ? h("ul", { class: "list" }, ...items)
    : h("p", { class: "hint" }, "nothing that is visible");
  return [heading, list];
}

/** @param {boolean} outward @param {boolean} change */
function verbOf(outward, change) {
  if (change) return outward ? "attends differently to" : "is attended to differently by";
  return outward ? "attends to" : "is attended to by";
}

/** @typedef {{ error?: number | null, color?: string, data?: Record<string, number> }} AboutBar a bound of its number, its colour where not the scale's, and what a click finds */

/** @param {Shown} shown @param {Text} others @param {number} other @param {number} value @param {AboutBar} about */
function listButton({ scale }, others, other, value, about) {
  return namedBar(others.labels[other], `position ${positionOf(others, other)}`, value, scale, about);
}

/** A line of a list: a label, a bar, a number. @param {string} text @param {string} title @param {number} value @param {Scale} scale @param {AboutBar} about */
function namedBar(text, title, value, scale, { error, color, data }) {
  const part = Math.min(100, (100 * Math.abs(value)) / (scale.change ? scale.high : 1));
  const bar = h("b", { class: scale.change ? (value < 0 ? "less" : "more") : "", style: `width: ${part}%;${color ? `background: ${color}` : ""}` });
  return h("button", { type: "button", title, ...data }, h("bdi", {}, text), h("i", {}, bar), h("span", {}, weightText(value, scale.change, error)));
}

/** The metrics of the open head; its title says what it does. */
function headSections() {
  if (state.head === null || !page.metrics) return [];
  const found = numbersOf(state.head);
  const names = METRIC_NAMES.filter((name) => !Number.isNaN(found[name]));
  const numbers = numbersList(names.map((name) => [name, metricText(name, found[name])]), meaningOf);
  const details = h("details", { open: known.open, ontoggle: (/** @type {Event} */ { target }) => (known.open = /** @type {HTMLDetailsElement} */ (target).open) }, h("summary", {}, `Head ${page.heads[state.head].name} in numbers`), numbers);
  return [h("section", {}, details)];
}

/**
 * The section of a pair: q, k and q·k of the features with the largest shares, and how these make the score; or the
 * command that writes a page with them.
 *
 * @param {Shown} shown
 * @param {number} query
 * @param {number} key
 * @param {() => void} redraw called when queries and keys were read
 */
function whySection(shown, query, key, redraw) {
  const place = state.side === "B" ? 1 : 0;
  const side = shown.sides[place];
  if (!side || state.side === "change") return [];
  const factors = side.factors ?? scoreFactorsOf(shown.number, place);
  if (factors) return [h("section", {}, h("h3", {}, "why this weight"), ...explained(side, factors, query, key))];
  if (!page.scores) return [elsewhere(shown.number)];
  readScores().then(redraw);
  return [];
}

/** The table of a pair, and how exact it is. @param {Grid} side @param {ScoreFactors} factors @param {number} query @param {number} key */
function explained(side, { queries, keys, features, unit, rounding }, query, key) {
  const [q, k] = [queries.subarray(query * features, (query + 1) * features), keys.subarray(key * features, (key + 1) * features)];
  const shares = Float64Array.from(q, (number, feature) => number * k[feature] * unit);
  const order = [...shares.keys()].sort((one, two) => Math.abs(shares[two]) - Math.abs(shares[one]));
  const product = shares.reduce((total, share) => total + share, 0);
  const root = Math.sqrt(Math.abs(unit));
  const rows = order.slice(0, LISTED).map((feature) => featureRow(feature, q[feature] * root, k[feature] * root, shares[feature], Math.abs(shares[order[0]])));
  const rest = order.slice(LISTED).reduce((total, feature) => total + shares[feature], 0);
  if (order.length > LISTED) rows.push(sumRow(`${order.length - LISTED} more`, rest));
  rows.push(sumRow("q·k, scaled", product), ...scoreRows(side, product, shares, rounding, query, key));
  const head = h("tr", {}, ...["feature", "q", "k", "q·k"].map((name) => h("th", { scope: "col" }, name)));
  const table = h("table", { class: "why" }, h("thead", {}, head), h("tbody", {}, ...rows));
  const exact = rounding ? `q·k is right to ${(100 * rounding).toPrecision(1)} %, since q and k are rounded. ` : "";
  return [table, h("p", { class: "hint" }, `${exact}q and k are scaled so that products are shares of the score.`)];
}

/**
 * The score as the page knows it, and what stands between it and the product.
 *
 * @param {Grid} side
 * @param {number} product
 * @param {Float64Array} shares
 * @param {number} rounding
 * @param {number} query
 * @param {number} key
 */
function scoreRows(side, product, shares, rounding, query, key) {
  const score = side.score(query, key);
  if (!score || !("value" in score) || !Number.isFinite(score.value)) return [];
  const difference = score.value - product;
  if (Math.abs(difference) < SMALL) return [];
  const bound = score.error + rounding * shares.reduce((total, share) => total + Math.abs(share), 0);
  return [sumRow(Math.abs(difference) <= bound ? "rounding" : "bias and cap", difference), sumRow("score", score.value)];
}

/** The command that writes a page which explains a head's scores. @param {number} number */
function elsewhere(number) {
  const { name } = page.heads[number];
  const [note, line] = page.command.compares
    ? ["The page of a comparison holds no queries and keys; that of one run does:", "attnviz show TEXT --model MODEL -o page.html"]
    : page.command.remark
      ? ["This page holds no queries and keys: there are none, or too many. Record them, and write a page of few heads:", RECORD]
      : ["This page holds no queries and keys: there are none, or too many. This writes a page of the head alone:", `${page.command.input} --heads ${name} -o head-${name}.html`];
  return h("section", {}, h("h3", {}, "why this weight"), h("p", { class: "hint" }, note), h("code", { class: "line" }, line));
}

/** @param {number} feature @param {number} q @param {number} k @param {number} share @param {number} largest */
function featureRow(feature, q, k, share, largest) {
  const bar = h("b", { class: share < 0 ? "less" : "more", style: `width: ${largest ? (100 * Math.abs(share)) / largest : 0}%` });
  const cells = [q, k].map((number) => h("td", {}, shownNumber(number)));
  return h("tr", {}, h("th", { scope: "row" }, String(feature)), ...cells, h("td", {}, h("i", {}, bar), shownNumber(share)));
}

/** @param {string} name @param {number} value */
function sumRow(name, value) {
  return h("tr", { class: "sum" }, h("th", { scope: "row", colspan: 3 }, name), h("td", {}, shownNumber(value)));
}

/** @param {number} value */
function shownNumber(value) {
  return value.toFixed(3).replace("-", "−");
}
