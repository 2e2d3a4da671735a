/** Why the model predicts a token: bars that sum to its logit, what is lost without its parts, the routes that bring it, and what units rest on. */

import { choiceOf } from "./choices.js";
import { theme } from "./colors.js";
import { page, textOf } from "./data.js";
import { linkOf, openHeight } from "./elements.js";
import { fitText, moved, rectangle, textAt } from "./figure.js";
import { amountText, quoted } from "./formatting.js";
import { heldGrid } from "./grids.js";
import { choiceButtons } from "./keys.js";
import { MatrixPicture } from "./matrix.js";
import { nameOfPlace } from "./places.js";
import { heldShare, keptEdges, routesFigure } from "./routes.js";
import { PictureStage } from "./stage.js";
import { scene, set, state } from "./state.js";
import { elementOf, h, patch, textIn } from "./tree.js";
import { ABSENT, kept, strongestOf } from "./values.js";

/** @import { Figure, Mark, Scale, Shades, Shown, UnitsData, View, WhyData, WhySources } from "./types.js" */
/** @import { Child, Given } from "./tree.js" */

const BAR_ROW = 20; // pixels of a bar in a file
const LEAST_GRAPH = 260; // pixels
const AROUND_GRAPH = 150; // pixels of what stands above and below the layers of a graph
const LEAST_STAGE = 320; // pixels of a map of units
const AROUND_STAGE = 60; // pixels of its title and of what stands below it
const LEAST_SHARE = 0.001; // of a probability that is written
const ROUNDED = 1e-4; // what numbers of six digits leave of a sum
const MARKED_UNIT = 0.35; // of the strongest shade

/** @typedef {{ label: string, adds: number, text: string, start?: number, kind?: string, href?: string | null, title?: string }} Bar */

/** The place of a token that is pointed at or kept, on one of the axes; null without one. @param {Mark | null} mark @returns {{ axis: WhySources, place: number } | null} */
function sourceOf(mark) {
  const [own, context] = whyOf().axes;
  if (!mark || !whyOf().heads.length || (mark.query !== null && mark.key !== null && !context)) return null;
  if (mark.key !== null) return { axis: context ?? own, place: mark.key };
  return mark.query === null ? null : { axis: own, place: mark.query };
}

function whyOf() {
  return /** @type {WhyData} */ (page.why);
}

/** @param {WhySources} axis */
function textOfSources({ text }) {
  return page.texts[text];
}

/** The link to a head with the row of the token that predicts, and a source of it; null for a head that the page has not. @param {number} place among all heads @param {{ axis: WhySources, place: number } | null} source */
function linkToHead(place, source) {
  const why = whyOf();
  const [, number] = why.heads[place] ?? ["", -1];
  if (number < 0) return null;
  return linkToCell(number, why.position, source && source.place);
}

/** @param {number} number @param {number} query @param {number | null} key */
function linkToCell(number, query, key) {
  /** @type {[string, string][]} */
  const parts = [["head", page.heads[number].name], ["query", nameOfPlace(textOf(number, "query"), query)]];
  return linkOf(key === null ? parts : [...parts, ["key", nameOfPlace(textOf(number, "key"), key)]]);
}

/** The bars of all parts, each where the sum before it ends; or of the heads that bring a token. @param {ReturnType<typeof sourceOf>} source @returns {Bar[]} */
function barsOf(source) {
  const why = whyOf();
  /** @type {[string, number, number][]} */
  let parts = why.bars;
  if (source) {
    const named = source.axis.heads[source.place];
    const rest = source.axis.adds[source.place] - named.reduce((sum, [, adds]) => sum + adds, 0);
    parts = named.map(([head, adds]) => [why.heads[head][0], adds, head]);
    if (Math.abs(rest) > ROUNDED) parts.push([`${why.heads.length - named.length} other heads`, rest, -1]);
  }
  let sum = 0;
  const bars = parts.map(([label, adds, head]) => {
    const start = sum;
    sum += adds;
    return { label, adds, start, text: amountText(adds), href: head < 0 ? null : linkToHead(head, source) };
  });
  const total = source ? source.axis.adds[source.place] : why.logit;
  return [...bars, { label: source ? "together" : why.total, adds: total, start: 0, text: amountText(total, source !== null), kind: "sum" }];
}

/** Rows of a label, a bar and a number. @param {Bar[]} bars */
function barList(bars) {
  const { low, span } = reachOf(bars);
  const rows = bars.map(({ label, adds, start = 0, text, kind = adds < 0 ? "less" : "more", href, title }) => {
    const bar = h("b", { class: kind, style: `margin-left: ${(100 * (Math.min(start, start + adds) - low)) / span}%; width: ${(100 * Math.abs(adds)) / span}%` });
    return h("li", {}, h(href ? "a" : "div", { class: `row ${kind}`, href, title }, h("bdi", {}, label), h("i", {}, bar), h("span", {}, text)));
  });
  return h("ul", { class: "list bars" }, ...rows);
}

/** The numbers between which bars lie. @param {Bar[]} bars */
function reachOf(bars) {
  const ends = bars.flatMap(({ start = 0, adds }) => [start, start + adds]);
  const low = Math.min(0, ...ends);
  return { low, span: Math.max(0, ...ends) - low || 1 };
}

/** @returns {Bar[]} */
function candidateBars() {
  return [...whyOf().candidates.map(([label, part]) => ({ label, adds: part, text: part && part < LEAST_SHARE ? `< ${100 * LEAST_SHARE}%` : `${(100 * part).toFixed(1)}%`, kind: "even" }))];
}

/** What is lost without parts, each above its control. @returns {Bar[]} */
function checkBars() {
  return whyOf().checks.flatMap(({ label, others, draws, lost, controls }) => {
    const most = Math.max(...controls); // beside which the loss is judged
    const range = `${amountText(-most)} to ${amountText(-Math.min(...controls))}${draws && `; ${draws}`}`;
    const control = { label: others, adds: most, text: amountText(-most), kind: "control", title: range };
    return [{ label, adds: lost, text: amountText(-lost), kind: "even" }, ...(controls.length ? [control] : [])];
  });
}

/** @param {string} title @param {...Given} content */
function panel(title, ...content) {
  return h("section", {}, h("h3", {}, title), ...content);
}

/** @param {Mark | null} mark */
function partsPanel(mark) {
  const source = sourceOf(mark);
  return panel(source ? `what ${quoted(textOfSources(source.axis), source.place)} adds, by head` : "what the logit is the sum of", barList(barsOf(source)));
}

/** The cell of a token that routes touch. @param {number} token */
function cellOfToken(token) {
  return whyOf().routes?.tokens[token][1] ?? 0;
}

/** The graph of the routes in so many pixels. @param {number} width @param {number} [most] of its layers @param {boolean} [isLive] */
function routesIn(width, most = LEAST_GRAPH, isLive = true) {
  const why = whyOf();
  const routes = /** @type {NonNullable<WhyData["routes"]>} */ (why.routes);
  return routesFigure({
    routes, width, most, target: why.title.replace(/^Why /, ""), edges: keptEdges(routes, state.share),
    linkOf: ({ number, query, key }) => (number < 0 ? null : linkToCell(number, cellOfToken(query), cellOfToken(key))),
    point: isLive ? (edge) => set({ mark: edge && { query: cellOfToken(edge.query), key: cellOfToken(edge.key) } }) : undefined,
  });
}

/** Draws the answer; the text above it is shaded by what each token adds. @param {HTMLElement} parent @returns {View} */
export function drawWhy(parent) {
  const why = whyOf();
  const parts = elementOf(h("div", { class: "why-parts" }));
  const routes = elementOf(h("div", { class: "why-routes" }));
  const units = elementOf(h("div", { class: "why-units" }));
  const left = why.bars.length > 0 && h("div", {}, panel("most probable next tokens", barList(candidateBars())), parts);
  const checks = why.checks.length > 0 && panel(`change of the ${why.measured}, in nats`, barList(checkBars()));
  parent.append(elementOf(h("div", { class: "why-view" }, left, why.bars.length > 0 && h("div", {}, checks, routes), units)));
  const stages = why.units ? unitStages(units, why.units) : [];
  scene.shown = whyShown();
  if (!state.pin) scene.strip?.reveal(strongestSource());

  const drawOver = () => {
    if (why.bars.length) patch(parts, [partsPanel(state.mark ?? state.pin)]);
    for (const stage of stages) stage.drawOver();
  };
  const fit = () => {
    for (const stage of stages) {
      stage.most = Math.max(LEAST_STAGE, openHeight() - units.getBoundingClientRect().top - window.scrollY - AROUND_STAGE);
      stage.fit();
    }
    if (!why.routes) return;
    const above = routes.getBoundingClientRect().top + window.scrollY;
    const { tree, width, height } = routesIn(routes.clientWidth || LEAST_GRAPH, Math.max(LEAST_GRAPH, openHeight() - above - AROUND_GRAPH));
    const edges = keptEdges(why.routes, state.share);
    const said = `${edges.length} of ${why.routes.edges.length} edges, ${Math.round(100 * heldShare(why.routes, edges))}% of all that heads move. A line leads to its head.`;
    const graph = h("svg", { width, height, role: "group", "aria-label": "Routes: tokens across, layers up; each line is a head at a cell" }, ...tree);
    patch(routes, [panel("routes that carry at least so much of the logit", choiceButtons(choiceOf("share", page)), h("div", { class: "graph" }, graph), h("p", { class: "hint" }, said))]);
  };
  drawOver();
  fit();
  return { drawOver, fit, reveal() {}, stages: stages.length ? stages : undefined, figure: why.bars.length ? whyFigure : undefined };
}

/** The text, the bars and the routes in a file. @param {number} width @returns {Figure} */
function whyFigure(width) {
  const text = scene.strip?.figure?.(width) ?? { tree: [], height: 0 };
  const across = whyOf().routes ? 0.42 * width : width;
  const { tree, height } = barsFigure(barsOf(sourceOf(state.mark ?? state.pin)), across - 16);
  const routes = whyOf().routes ? routesIn(width - across, LEAST_GRAPH, false) : { tree: [], height: 0 };
  const top = text.height + 12;
  return { tree: [...text.tree, moved(0, top, ...tree), moved(across, top, ...routes.tree)], width, height: top + Math.max(height, routes.height) };
}

/** @param {Bar[]} bars @param {number} width @returns {Figure} */
function barsFigure(bars, width) {
  const { low, span } = reachOf(bars);
  const [left, right] = [0.36 * width, 0.84 * width];
  const x = (/** @type {number} */ value) => left + ((value - low) / span) * (right - left);
  const tree = bars.flatMap(({ label, adds, start = 0, text, kind }, place) => {
    const y = BAR_ROW * place;
    const weight = kind === "sum" ? 650 : 400;
    const colour = kind === "sum" ? "var(--soft)" : `var(--${adds < 0 ? "less" : "more"})`;
    return [
      textAt(fitText(label, 12, left - 8), 0, y + BAR_ROW / 2, { weight }),
      rectangle(x(Math.min(start, start + adds)), y + 6, x(Math.abs(adds)) - x(0), BAR_ROW - 12, colour),
      textAt(text, width, y + BAR_ROW / 2, { align: "end", weight }),
    ];
  });
  return { tree, width, height: BAR_ROW * bars.length };
}

/** @type {WeakMap<WhySources, Float32Array>} */
const shadesOfSources = new WeakMap();

/** What tokens add, without sinks, which draw weight whatever they say. @param {WhySources} axis */
function shadesIn(axis) {
  return kept(shadesOfSources, axis, () => Float32Array.from(axis.adds, (adds, place) => (axis.sinks.includes(place) ? ABSENT : adds)));
}

/** The mark of a source; if there is cross-attention, of a token of the context. @param {number | null} place @returns {Mark} */
function markOfSource(place) {
  return whyOf().axes.length > 1 ? { query: null, key: place } : { query: place, key: null };
}

/** The token that adds most. */
function strongestSource() {
  const [own, context] = whyOf().axes;
  const [place = null] = strongestOf(shadesIn(context ?? own), 1);
  return markOfSource(place);
}

/** The answer as what is shown: it shades the text, and arrows go from token to token. @returns {Shown} */
function whyShown() {
  const why = whyOf();
  const [own, context] = why.axes;
  const sizes = why.axes.flatMap((axis) => [...shadesIn(axis)]).filter((value) => value !== ABSENT);
  /** @type {Scale} */
  const scale = { low: 0, high: Math.max(...sizes.map(Math.abs)) || 1, palette: page.diverging, steps: "linear", change: true };
  const { same } = page.heads[why.head];
  const about = { number: why.head, title: why.title, queries: textOf(why.head, "query"), keys: textOf(why.head, "key"), same, scale, seen: () => 1 };
  /** @param {Mark | null} mark @returns {Shades} */
  const shades = (mark) => {
    const marked = mark && why.units ? unitsOfMark(why.units, mark) : null;
    const note = noteOn(mark);
    if (marked) return { query: null, key: marked.values, colors: marked.colors, said: "", scale: { ...scale, high: 1 }, note };
    return { query: context || !same ? shadesIn(own) : null, key: shadesIn(context ?? own), said: "", scale, note };
  };
  return heldGrid(about, new Float32Array(0), {
    shades,
    at: () => ABSENT,
    said: (mark) => noteOn(mark).map(textIn),
    moved: (mark, down, right) => {
      const last = (context ?? own).adds.length - 1;
      return markOfSource(Math.min(last, Math.max(0, (sourceOf(mark)?.place ?? why.position) + (right || down))));
    },
  });
}

/** What is said of a token that is pointed at: what it adds, and through which heads. @param {Mark | null} mark @returns {Child[]} */
function noteOn(mark) {
  const why = whyOf();
  const source = sourceOf(mark);
  if (source) {
    const { axis, place } = source;
    const isSink = axis.sinks.includes(place);
    const heads = barsOf(source).slice(0, -1).flatMap(({ label, text, href }, number) => [number ? ", " : "", href ? h("a", { href }, label) : label, ` ${text}`]);
    return [`${quoted(textOfSources(axis), place)}${isSink ? ", a sink," : ""} adds ${amountText(axis.adds[place])}: `, ...heads];
  }
  if (why.units && mark && mark.query !== null && mark.key !== null) {
    const { of, labels, maps } = why.units;
    const [later, earlier] = [of[mark.query], of[mark.key]];
    if (later < 0 || earlier < 0) return [];
    const numbers = maps.map((map) => `${map.name} ${unitNumber(map.values[later][earlier], map.isChange)}`);
    return [`“${labels[earlier]}” → “${labels[later]}”: ${numbers.join(", ")}`];
  }
  if (mark && mark.query !== null && mark.key !== null) {
    const moves = (why.routes?.edges ?? []).filter(({ query, key }) => cellOfToken(query) === mark.query && cellOfToken(key) === mark.key);
    const text = textOfSources(why.axes[0]);
    const heads = moves.flatMap(({ name, number, adds }, place) => [place ? ", " : ": ", number < 0 ? name : h("a", { href: linkToCell(number, mark.query ?? 0, mark.key) }, name), ` ${amountText(adds)}`]);
    return [`${quoted(text, mark.key)} → ${quoted(text, mark.query)}`, ...heads];
  }
  if (!why.heads.length) return ["Point at a cell: both units are marked in the text, the later one in orange. Click to keep them."];
  return ["Shaded: what each token adds through all heads, red more and blue less; sinks are grey. Point at a token for the heads that bring it; click to keep it."];
}

/** Units of a pair: the earlier one in one colour, the later one in another; null for a token alone. @param {UnitsData} units @param {Mark} mark */
function unitsOfMark({ of }, { query, key }) {
  if (query === null || key === null) return null;
  const [later, earlier] = [of[query], of[key]];
  return {
    values: Float32Array.from(of, (unit) => (unit >= 0 && (unit === later || unit === earlier) ? MARKED_UNIT : 0)),
    colors: of.map((unit) => theme()[unit === earlier ? "arc" : "accent"]),
  };
}

/** @param {number | null} value @param {boolean} isChange */
function unitNumber(value, isChange) {
  if (value === null) return "none";
  return isChange ? `${amountText(value)} nats` : `${(100 * value).toFixed(1)}%`;
}

/** Maps of units side by side: what each rests on, by attention and by what it loses. @param {HTMLElement} parent @param {UnitsData} units @returns {PictureStage[]} */
function unitStages(parent, units) {
  const text = { labels: units.labels, spaces: " ".repeat(units.labels.length) };
  return units.maps.map(({ title, values, isChange }) => {
    const numbers = Float32Array.from(values.flat(), (value) => value ?? ABSENT);
    const known = [...numbers].filter((value) => value !== ABSENT);
    const high = Math.max(...known.map(Math.abs)) || 1;
    /** @type {Scale} */
    const scale = { low: 0, high, palette: isChange ? page.diverging : page.sequential, steps: "sqrt", change: isChange, scores: isChange };
    const unitOf = (/** @type {number | null} */ token) => (token === null || units.of[token] < 0 ? null : units.of[token]);
    const tokenOf = (/** @type {number | null} */ unit) => (unit === null ? null : units.of.indexOf(unit));
    const about = { number: whyOf().head, title, queries: text, keys: text, same: false, scale, seen: () => 1 };
    const grid = heldGrid(about, numbers, {
      cellOf: ({ query, key }) => ({ query: unitOf(query), key: unitOf(key) }),
      markOf: ({ query, key }) => ({ query: tokenOf(query), key: tokenOf(key) }),
      said: (mark) => {
        const [row, column] = [unitOf(mark.query), unitOf(mark.key)];
        if (row === null || column === null) return [];
        return [`${units.labels[column]} → ${units.labels[row]}`, unitNumber(values[row][column], isChange)];
      },
    });
    const box = elementOf(h("div", { class: "beside" }));
    parent.append(elementOf(h("figure", {}, h("figcaption", {}, title), box)));
    const picture = new MatrixPicture(grid);
    picture.names = { rows: "later ↓", columns: "earlier →" };
    const stage = new PictureStage(box, picture, `${title}. Arrows move.`);
    return stage;
  });
}
