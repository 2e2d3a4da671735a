/** The routes by which tokens reach a prediction, as a graph: tokens across, layers up, and a line for what a head moves. */

import { FAINT, fitText, short, textAt, textWidth } from "./figure.js";
import { amountText } from "./formatting.js";
import { h } from "./tree.js";

/** @import { RouteEdge, RoutesData } from "./types.js" */
/** @import { Tree } from "./tree.js" */

const LAYER_ROW = 48; // pixels from layer to layer, of few layers
const BESIDE_ROUTE = 7; // pixels from a line to another one between the same cells
const GRAPH_LEFT = 34; // pixels of the numbers of layers
const GRAPH_TOP = 22;
const TURNED_LABEL = 92; // pixels of a label that is turned
const FOOT = 24; // pixels of labels across
const TURN = -38; // degrees
const WIDEST_ROUTE = 9; // pixels of the strongest line
const LARGEST_SOURCE = 6; // pixels of the radius of the strongest source
const HIT_WIDTH = 10; // pixels around a line in which a pointer finds it
const NAMED_ROUTES = 8; // the strongest lines, which have the names of their heads beside them
const BESIDE_NAME = 9; // pixels from a token's column to the names of the heads that move it
const NAME_HEIGHT = 0.72; // of these names, in rows above the line, which rises late
const LOOP = 20; // pixels beside a token
const HALO = { stroke: "var(--paper)", "stroke-width": 3, "paint-order": "stroke", "stroke-linejoin": "round", "pointer-events": "none" }; // around letters over lines
const LEAST_COLUMN = 16; // pixels from label to label

/** The edges that carry at least so many percent of the logit, the largest first. @param {RoutesData} routes @param {string} percent @returns {RouteEdge[]} */
export function keptEdges({ edges, logit }, percent) {
  const least = (Number(percent) / 100) * Math.abs(logit);
  return edges.filter(({ adds }) => Math.abs(adds) >= least);
}

/** How much some edges hold of what all heads move, 0 to 1. @param {RoutesData} routes @param {RouteEdge[]} edges */
export function heldShare(routes, edges) {
  const size = (/** @type {RouteEdge[]} */ some) => some.reduce((sum, { adds }) => sum + Math.abs(adds), 0);
  return (routes.kept * size(edges)) / (size(routes.edges) || 1);
}

/** The columns of the tokens that some edges touch, and of the one that predicts, in the order of the text. @param {RoutesData} routes @param {RouteEdge[]} edges @returns {number[]} */
function columnsOf({ position }, edges) {
  return [...new Set([position, ...edges.flatMap(({ query, key }) => [query, key])])].sort((one, two) => one - two);
}

/** A number's part of the strongest edge, 0 to 1. @param {number} adds @param {RouteEdge[]} edges */
function partOfStrongest(adds, edges) {
  return Math.min(1, Math.abs(adds) / Math.abs(edges[0]?.adds || 1));
}

/** @param {number} adds */
function signColour(adds) {
  return `var(--${adds < 0 ? "less" : "more"})`;
}

/**
 * The graph of some edges in so many pixels. Each line of a head is a link to its cell.
 *
 * @param {object} about
 * @param {RoutesData} about.routes
 * @param {RouteEdge[]} about.edges
 * @param {string} about.target what is predicted
 * @param {number} about.width
 * @param {number} about.most pixels of its layers
 * @param {(edge: RouteEdge) => string | null} about.linkOf an edge's head at its cell; null for a head that the page has not
 * @param {(edge: RouteEdge | null) => void} [about.point]
 */
export function routesFigure({ routes, edges, target, width, most, linkOf, point = () => {} }) {
  const columns = columnsOf(routes, edges);
  const step = Math.max(LEAST_COLUMN, (width - GRAPH_LEFT - 12) / columns.length);
  const layers = routes.layers.length;
  const label = (/** @type {number} */ token) => routes.tokens[token][2];
  const widest = Math.max(...columns.map((token) => textWidth(label(token), FAINT.size)));
  const isTurned = widest > step - 6;
  const foot = isTurned ? 18 + Math.min(TURNED_LABEL, widest) * Math.sin((-TURN * Math.PI) / 180) : FOOT;
  // A run of layers without edges has the height of one with edges.
  /** @type {[number, number][]} */
  const rows = []; // the first and the last layer of each row
  const hasEdges = routes.layers.map((layer) => edges.some((edge) => edge.layer === layer));
  for (let level = 0; level < layers; level++) {
    if (level && !hasEdges[level] && !hasEdges[level - 1]) rows[rows.length - 1][1] = level;
    else rows.push([level, level]);
  }
  const row = Math.min(LAYER_ROW, (most + FOOT - foot) / rows.length);
  const bottom = GRAPH_TOP + rows.length * row;
  const levels = rows.flatMap(([first, last], place) => Array.from({ length: last - first + 1 }, (_, step) => place + step / (last - first + 1)));
  const x = (/** @type {number} */ token) => GRAPH_LEFT + (columns.indexOf(token) + 0.5) * step;
  const y = (/** @type {number} */ level) => bottom - (levels[level] ?? rows.length) * row;
  const least = Math.abs(edges.at(-1)?.adds ?? 0);
  const size = { ...FAINT, color: "var(--ink)" };

  const every = Math.ceil(11 / row);
  const numbers = rows.map(([first, last], place) => place % every === 0 && textAt(first === last ? String(routes.layers[first]) : `${routes.layers[first]}–${routes.layers[last]}`, GRAPH_LEFT - 6, bottom - (place + 0.5) * row, { ...FAINT, align: "end" }));
  /** @type {Tree[]} */
  const stays = [];
  /** @type {Tree[]} */
  const sources = [];
  for (const token of columns) {
    for (let level = 0; level <= layers; level++) {
      const stay = routes.stays[level]?.[token] ?? 0;
      if (Math.abs(stay) >= least) {
        stays.push(h("line", { x1: x(token), x2: x(token), y1: y(level), y2: y(level + 1), stroke: signColour(stay), "stroke-opacity": 0.25, "stroke-width": 1 + (WIDEST_ROUTE - 1) * partOfStrongest(stay, edges) }));
      }
      const source = routes.sources[level]?.[token] ?? 0;
      if (source && Math.abs(source) >= least) {
        const what = level ? `MLP and biases of layer ${routes.layers[level - 1]}` : "embedding";
        const title = h("title", {}, `${what} at ${label(token)}: ${amountText(source)}`);
        sources.push(h("circle", { cx: x(token), cy: y(level), r: LARGEST_SOURCE * Math.sqrt(partOfStrongest(source, edges)), fill: signColour(source), "fill-opacity": 0.55 }, title));
      }
    }
  }
  const besideOf = (/** @type {RouteEdge} */ { layer, query, key }) => edges.filter((edge) => edge.layer === layer && edge.query === query && edge.key === key);
  const shiftOf = (/** @type {RouteEdge} */ edge) => {
    const beside = besideOf(edge);
    return (beside.indexOf(edge) - (beside.length - 1) / 2) * Math.min(BESIDE_ROUTE, row / beside.length);
  };
  const lines = [...edges].reverse().map((edge) => {
    const [from, to, level] = [x(edge.key), x(edge.query), routes.layers.indexOf(edge.layer)];
    const shift = shiftOf(edge);
    const [low, high] = [y(level) + shift, y(level + 1) + shift];
    const middle = (low + high) / 2;
    const bends = from === to ? [[from + LOOP, low], [to + LOOP, high]] : [[from, middle], [to, middle]]; // what a token moves to itself is a loop
    const path = `M${short(from)} ${short(low)}C${[...bends, [to, high]].map((point) => point.map(short).join(" ")).join(" ")}`;
    const part = partOfStrongest(edge.adds, edges);
    const said = `head ${edge.name} from ${label(edge.key)} to ${label(edge.query)}: ${amountText(edge.adds)}`;
    const line = { d: path, fill: "none", stroke: signColour(edge.adds) };
    const listeners = { onpointerenter: () => point(edge), onpointerleave: () => point(null), onfocus: () => point(edge), onblur: () => point(null) };
    return h("a", { href: linkOf(edge), class: "route", "aria-label": said, ...listeners },
      h("title", {}, said),
      h("path", { ...line, "stroke-width": HIT_WIDTH, "stroke-opacity": 0 }),
      h("path", { ...line, "stroke-width": 1 + (WIDEST_ROUTE - 1) * part, "stroke-opacity": 0.35 + 0.6 * part }),
    );
  });
  const heads = edges.slice(0, NAMED_ROUTES).flatMap((edge) => {
    const beside = besideOf(edge);
    if (beside[0] !== edge) return [];
    const [from, to, level] = [x(edge.key), x(edge.query), y(routes.layers.indexOf(edge.layer))];
    const name = beside.map((other) => other.name).join(", ");
    if (from === to) return [textAt(name, to - BESIDE_NAME, level - (1 - NAME_HEIGHT) * row, { ...FAINT, align: "end" })];
    const side = from < to ? 1 : -1;
    return [textAt(name, from + side * BESIDE_NAME, level - NAME_HEIGHT * row, { ...FAINT, align: side > 0 ? "start" : "end" })];
  });
  const names = columns.map((token) => {
    const name = fitText(label(token), FAINT.size, isTurned ? TURNED_LABEL : step);
    return isTurned ? textAt(name, x(token) + 4, bottom + 10, { ...size, align: "end", turned: TURN }) : textAt(name, x(token), bottom + 12, { ...size, align: "middle" });
  });
  const gaps = columns.slice(1).map((token, place) => routes.tokens[token][0] > routes.tokens[columns[place]][0] + 1 && textAt("⋯", x(token) - step / 2, bottom + 12, { ...FAINT, align: "middle" }));
  const end = columns.indexOf(routes.position) > columns.length / 2 ? "end" : "start";
  const predicted = textAt(target, x(routes.position) + (end === "end" ? 6 : -6), GRAPH_TOP - 12, { ...size, align: end, weight: 650 });
  const tree = [...numbers, textAt("layer", 0, GRAPH_TOP - 12, FAINT), ...stays, ...lines, ...sources, h("g", HALO, ...heads), predicted, ...names, ...gaps];
  return { tree: [h("g", {}, ...tree)], width: Math.max(width, GRAPH_LEFT + columns.length * step), height: bottom + foot };
}
