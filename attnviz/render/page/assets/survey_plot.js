/** All heads as points of two numbers: clicked, brushed, and gone through by keys. */

import { axisAround, groundOf } from "./charts.js";
import { cssOf } from "./colors.js";
import { page } from "./data.js";
import { one } from "./elements.js";
import { LAYER } from "./filter.js";
import { listedHeads } from "./listing.js";
import { metricText, numberOf, patternOf } from "./metrics.js";
import { state } from "./state.js";
import { besideMean } from "./survey_data.js";
import { h, patch } from "./tree.js";
import { endsOf } from "./values.js";

/** @import { Scale, SurveyNumbers } from "./types.js" */
/** @import { Child } from "./tree.js" */

const RATIO = 0.62; // of the picture's height to its width
const [LEAST_WIDTH, MAX_HEIGHT] = [280, 440]; // pixels
const RADII = [3.2, 9];
const NEAR = 18; // of a click to a point
const MOVED = 5; // of a pointer, before it brushes
/** @type {Scale} from the least number of all heads to the largest */
export const SHARES = { low: 0, high: 1, palette: page.sequential, steps: "linear", change: false };

/** @typedef {{ x: number, y: number }} Place */

/** The least and most of all heads. @param {string} name */
export function endsOfAll(name) {
  return endsOf(page.heads.map((_, head) => numberOf(head, name)));
}

/** Returns a head's number as a share of the range of all heads. @param {number} head @param {string} name @param {[number, number]} ends */
function shareOf(head, name, [low, high]) {
  const value = numberOf(head, name);
  return Number.isNaN(value) || high === low ? 0 : (value - low) / (high - low);
}

/** What the colours stand for: heads that stand by layers have no use for the layer's, so they take the number across. */
export function colouredBy() {
  return state.list === "maps" && state.colour === LAYER ? state.across : state.colour;
}

/** The colour of a head among all, by the number that colours stand for. @param {number} head @param {[number, number]} ends */
export function colourOf(head, ends) {
  return cssOf(shareOf(head, colouredBy(), ends), SHARES);
}

/**
 * Draws the points; what is done with them is given to `choose` and `brush`.
 *
 * @param {SurveyNumbers} numbers
 * @param {(head: number) => void} choose
 * @param {(heads: Set<number> | null) => void} brush
 */
export function drawPlot(numbers, choose, brush) {
  const here = state.head ?? 0;
  const width = Math.max(LEAST_WIDTH, one("plot").clientWidth);
  const height = Math.min(MAX_HEIGHT, Math.round(RATIO * width));
  const across = axisAround(state.across, endsOfAll(state.across), width / 100);
  const { x, y, sides, tree } = groundOf(width, height, across, axisAround(state.up, endsOfAll(state.up), 5));

  const [sizes, colours] = [endsOfAll(state.sized || LAYER), endsOfAll(state.colour)];
  const listed = new Set(listedHeads());
  const points = page.heads.map((_, head) => {
    const radius = state.sized ? RADII[0] + (RADII[1] - RADII[0]) * shareOf(head, state.sized, sizes) : 5;
    return { head, x: x(numberOf(head, state.across)), y: y(numberOf(head, state.up)), radius };
  });
  const isDrawn = (/** @type {Place} */ point) => !Number.isNaN(point.x) && !Number.isNaN(point.y);
  const marks = [...points].sort((one, two) => two.radius - one.radius).map((point) => {
    const { head, radius } = point;
    const place = isDrawn(point) ? { cx: point.x, cy: point.y, r: radius } : { cx: 0, cy: 0, r: 0 };
    return h("circle", { key: head, ...place, fill: colourOf(head, colours), class: [listed.has(head) ? "" : "out", head === state.head ? "here" : ""].join(" ").trim() });
  });

  // The chosen head's name, and a cross of its intervals.
  const chosen = points[here];
  /** @type {Child[]} */
  const cross = [];
  if (isDrawn(chosen)) {
    const marginOf = (/** @type {string} */ name) => besideMean(numbers.margins, here, name) || 0;
    const wide = x(numberOf(here, state.across) + marginOf(state.across)) - chosen.x;
    const high = chosen.y - y(numberOf(here, state.up) + marginOf(state.up));
    const isLeft = chosen.x > width - 70;
    cross.push(
      h("line", { class: "spread", x1: Math.max(sides.left, chosen.x - wide), x2: Math.min(sides.right, chosen.x + wide), y1: chosen.y, y2: chosen.y }),
      h("line", { class: "spread", x1: chosen.x, x2: chosen.x, y1: Math.max(sides.top, chosen.y - high), y2: Math.min(sides.bottom, chosen.y + high) }),
      h("text", { class: "name", x: chosen.x + (isLeft ? -12 : 12), y: chosen.y - 8, "text-anchor": isLeft ? "end" : "start" }, page.heads[here].name),
    );
  }

  /** @type {Place | null} where a drag began */
  let start = null;
  const placeIn = (/** @type {PointerEvent} */ { clientX, clientY, currentTarget }) => {
    const bounds = /** @type {Element} */ (currentTarget).getBoundingClientRect();
    return { x: ((clientX - bounds.left) * width) / bounds.width, y: ((clientY - bounds.top) * width) / bounds.width };
  };
  const draw = (/** @type {Child[]} */ box = []) => {
    const said = `${page.heads.length} heads by ${state.across} and ${state.up}; head ${page.heads[here].name} is chosen`;
    patch(one("plot"), [h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said, ...listeners }, ...tree, ...marks, ...cross, ...box)]);
  };
  const listeners = {
    onpointerdown: (/** @type {PointerEvent} */ event) => {
      start = placeIn(event);
      if (event.pointerType !== "touch") /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
    },
    onpointermove: (/** @type {PointerEvent} */ event) => {
      const place = placeIn(event);
      const near = nearest(points, place);
      one("hint").textContent = near === null ? hintText() : headText(near);
      if (!start || event.pointerType === "touch" || distance(start, place) < MOVED) return;
      const size = { width: Math.abs(start.x - place.x), height: Math.abs(start.y - place.y) };
      draw([h("rect", { class: "brush", x: Math.min(start.x, place.x), y: Math.min(start.y, place.y), ...size })]);
    },
    onpointerup: (/** @type {PointerEvent} */ event) => {
      const [from, place] = [start, placeIn(event)];
      start = null;
      if (!from) return;
      if (distance(from, place) >= MOVED && event.pointerType !== "touch") {
        const heads = points.filter((point) => (point.x - from.x) * (point.x - place.x) <= 0 && (point.y - from.y) * (point.y - place.y) <= 0);
        return brush(heads.length ? new Set(heads.map(({ head }) => head)) : null);
      }
      const near = nearest(points, place);
      if (near !== null) choose(near);
      else if (state.brushed) brush(null);
    },
    onpointerleave: () => {
      one("hint").textContent = hintText();
    },
  };
  draw();
}

/** @param {Place} a @param {Place} b */
function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

/** The head whose point is nearest, if any is near. @param {(Place & { head: number })[]} points @param {Place} place */
function nearest(points, place) {
  const near = points.filter((point) => distance(point, place) < NEAR).sort((one, two) => distance(one, place) - distance(two, place));
  return near[0]?.head ?? null;
}

/** Returns the hint on what a reader can do with the points. */
export function hintText() {
  const count = state.brushed?.size;
  return count ? `${count} of ${page.heads.length} heads ${count === 1 ? "is" : "are"} brushed; Esc lets go.` : "Click a head; drag over several.";
}

/** @param {number} head */
function headText(head) {
  const said = [state.across, state.up].map((name) => `${name} ${metricText(name, numberOf(head, name))}`);
  return `Head ${page.heads[head].name}: ${said.join(", ")}; ${patternOf(head)}`;
}
