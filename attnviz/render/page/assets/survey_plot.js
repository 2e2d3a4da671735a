/** All heads as points of two numbers: clicked, brushed, and gone through by keys. */

import { cssOf } from "./colors.js";
import { page } from "./data.js";
import { one } from "./elements.js";
import { listedHeads } from "./listing.js";
import { metricText, numberOf, patternOf } from "./metrics.js";
import { LAYER } from "./ordering.js";
import { state } from "./state.js";
import { besideMean } from "./survey_data.js";
import { endsOf, shape, ticksOf } from "./survey_drawing.js";

/** @import { Scale, SurveyNumbers } from "./types.js" */

const room = { width: 640, height: 400, left: 56 }; // pixels of the picture, and those left of the ground
const RATIO = 0.62; // of its height to its width
const MAX_HEIGHT = 440;
const FRAME = { top: 12, right: 16, bottom: 44 };
const LEAST_LEFT = 56;
const [NAME_WIDTH, DIGIT_WIDTH] = [28, 7]; // pixels of the name of the upper axis, and of a digit beside it
const RADII = [3.2, 9];
const NEAR = 18; // of a click to a point
const MOVED = 5; // of a pointer, before it brushes
const MARGIN = 0.04; // of an axis, beyond its outermost points
/** @type {Scale} from the least number of all heads to the largest */
export const SHARES = { low: 0, high: 1, palette: page.sequential, steps: "linear", change: false };

/** @typedef {{ x: number, y: number, radius: number, colour: string }} Point */

/**
 * Draws the points; what is done with them is given to `choose` and `brush`.
 *
 * @param {SurveyNumbers} numbers
 * @param {(head: number) => void} choose
 * @param {(heads: Set<number> | null) => void} brush
 */
export function drawPlot(numbers, choose, brush) {
  room.width = Math.max(280, one("plot").clientWidth);
  room.height = Math.min(MAX_HEIGHT, Math.round(RATIO * room.width));
  const [across, up] = [axisOf(state.across), axisOf(state.up)];
  room.left = leftOf(up);
  const x = (/** @type {number} */ value) => room.left + across.share(value) * (room.width - room.left - FRAME.right);
  const y = (/** @type {number} */ value) => room.height - FRAME.bottom - up.share(value) * (room.height - FRAME.top - FRAME.bottom);
  const ends = { size: endsOfAll(state.sized || LAYER), colour: endsOfAll(state.colour) };
  const points = page.heads.map((_, head) => pointOf(head, x, y, ends));
  const picture = shape("svg", { viewBox: `0 0 ${room.width} ${room.height}`, role: "img", "aria-label": plotSaid() });
  picture.append(...frameOf(across, up, x, y));
  const listed = new Set(listedHeads());
  const marks = points.map((point, head) => markOf(point, head, listed.has(head)));
  const order = [...marks.keys()].sort((a, b) => points[b].radius - points[a].radius);
  picture.append(...order.map((head) => marks[head]));
  picture.append(...chosenMark(numbers, points[here()], x, y));
  one("plot").replaceChildren(picture);
  listen(/** @type {SVGSVGElement} */ (picture), points, choose, brush);
}

/** The columns left of the ground: for the longest number beside it, and the name of the axis. @param {ReturnType<typeof axisOf>} up */
function leftOf(up) {
  const longest = Math.max(...upTicks(up).map((tick) => String(tick).length));
  return Math.max(LEAST_LEFT, NAME_WIDTH + DIGIT_WIDTH * longest);
}

/** @param {ReturnType<typeof axisOf>} up */
function upTicks(up) {
  return ticksOf(up.low, up.high, 5);
}

/** Returns the description of the picture for a screen reader. */
function plotSaid() {
  const { across, up, head } = state;
  return `${page.heads.length} heads by ${across} and ${up}; head ${page.heads[head ?? 0].name} is chosen`;
}

/** An axis: its name, its ends, and how far along it a value is. @param {string} name */
function axisOf(name) {
  const [least, most] = endsOfAll(name);
  const room = (most - least || 1) * MARGIN;
  const [low, high] = [least - room, most + room];
  return { name, low, high, share: (/** @type {number} */ value) => (value - low) / (high - low) };
}

/** The least and most of all heads. @param {string} name */
export function endsOfAll(name) {
  return endsOf(page.heads.map((_, head) => numberOf(head, name)));
}

/**
 * @param {number} head
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 * @param {{ size: [number, number], colour: [number, number] }} ends
 * @returns {Point}
 */
function pointOf(head, x, y, ends) {
  const radius = state.sized ? RADII[0] + (RADII[1] - RADII[0]) * shareOf(head, state.sized, ends.size) : 5;
  const colour = colourOf(head, ends.colour);
  return { x: x(numberOf(head, state.across)), y: y(numberOf(head, state.up)), radius, colour };
}

/** Returns a head's number as a share of the range of all heads. @param {number} head @param {string} name @param {[number, number]} ends */
function shareOf(head, name, [low, high]) {
  const value = numberOf(head, name);
  return Number.isNaN(value) || high === low ? 0 : (value - low) / (high - low);
}

/** The colour of a head among all, by the number that colours stand for. @param {number} head @param {[number, number]} ends */
export function colourOf(head, ends) {
  return cssOf(shareOf(head, state.colour, ends), SHARES);
}

/** The head whose card is shown. */
function here() {
  return state.head ?? 0;
}

/** @param {Point} point @param {number} head @param {boolean} listed */
function markOf({ x, y, radius, colour }, head, listed) {
  const drawn = !Number.isNaN(x) && !Number.isNaN(y);
  const mark = shape("circle", { cx: drawn ? x : 0, cy: drawn ? y : 0, r: drawn ? radius : 0, fill: colour });
  mark.classList.toggle("out", !listed);
  mark.classList.toggle("here", head === state.head);
  return mark;
}

/** The cross of the chosen head's intervals, and its name. @param {SurveyNumbers} numbers @param {Point} point @param {(value: number) => number} x @param {(value: number) => number} y */
function chosenMark(numbers, point, x, y) {
  if (Number.isNaN(point.x) || Number.isNaN(point.y)) return [];
  const [right, top] = [marginOf(numbers, state.across), marginOf(numbers, state.up)];
  const across = x(numberOf(here(), state.across) + right) - point.x;
  const up = point.y - y(numberOf(here(), state.up) + top);
  const left = point.x > room.width - 70;
  const name = shape(
    "text",
    { class: "name", x: point.x + (left ? -12 : 12), y: point.y - 8, "text-anchor": left ? "end" : "start" },
    page.heads[here()].name,
  );
  return [
    shape("line", { class: "spread", x1: Math.max(room.left, point.x - across), x2: Math.min(room.width - FRAME.right, point.x + across), y1: point.y, y2: point.y }),
    shape("line", { class: "spread", x1: point.x, x2: point.x, y1: Math.max(FRAME.top, point.y - up), y2: Math.min(room.height - FRAME.bottom, point.y + up) }),
    name,
  ];
}

/** @param {SurveyNumbers} numbers @param {string} name */
function marginOf(numbers, name) {
  const margin = besideMean(numbers.margins, here(), name);
  return Number.isNaN(margin) ? 0 : margin;
}

/**
 * The ground, its rules and their numbers.
 *
 * @param {ReturnType<typeof axisOf>} across
 * @param {ReturnType<typeof axisOf>} up
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 */
function frameOf(across, up, x, y) {
  const [right, bottom] = [room.width - FRAME.right, room.height - FRAME.bottom];
  const size = { width: right - room.left, height: bottom - FRAME.top };
  const parts = [shape("rect", { class: "back", x: room.left, y: FRAME.top, ...size, rx: 6 })];
  for (const tick of ticksOf(across.low, across.high, room.width / 100)) {
    parts.push(shape("line", { class: "rule", x1: x(tick), x2: x(tick), y1: FRAME.top, y2: bottom, "pointer-events": "none" }));
    parts.push(shape("text", { x: x(tick), y: bottom + 16, "text-anchor": "middle" }, String(tick)));
  }
  for (const tick of upTicks(up)) {
    parts.push(shape("line", { class: "rule", x1: room.left, x2: right, y1: y(tick), y2: y(tick), "pointer-events": "none" }));
    parts.push(shape("text", { x: room.left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  const middle = (FRAME.top + bottom) / 2;
  parts.push(shape("text", { class: "axis", x: (room.left + right) / 2, y: room.height - 8, "text-anchor": "middle" }, across.name));
  parts.push(shape("text", { class: "axis", transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, up.name));
  return parts;
}

/**
 * Has a click choose the nearest head, and a drag brush those in a rectangle.
 *
 * @param {SVGSVGElement} picture
 * @param {Point[]} points
 * @param {(head: number) => void} choose
 * @param {(heads: Set<number> | null) => void} brush
 */
function listen(picture, points, choose, brush) {
  /** @type {{ x: number, y: number } | null} */
  let start = null;
  const box = shape("rect", { class: "brush", width: 0, height: 0 });
  const placeIn = (/** @type {PointerEvent} */ event) => {
    const bounds = picture.getBoundingClientRect();
    const times = room.width / bounds.width;
    return { x: (event.clientX - bounds.left) * times, y: (event.clientY - bounds.top) * times };
  };
  picture.addEventListener("pointerdown", (event) => {
    start = placeIn(event);
    if (event.pointerType !== "touch") picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    const here = placeIn(event);
    const near = nearest(points, here);
    one("hint").textContent = near === null ? hintText() : headText(near);
    if (!start || event.pointerType === "touch" || distance(start, here) < MOVED) return;
    const [left, top] = [Math.min(start.x, here.x), Math.min(start.y, here.y)];
    const size = { width: Math.abs(start.x - here.x), height: Math.abs(start.y - here.y) };
    for (const [key, value] of Object.entries({ x: left, y: top, ...size })) box.setAttribute(key, String(value));
    picture.append(box);
  });
  picture.addEventListener("pointerup", (event) => {
    const [from, here] = [start, placeIn(event)];
    start = null;
    if (!from) return;
    if (distance(from, here) >= MOVED && event.pointerType !== "touch") {
      brush(within(points, from, here));
      return;
    }
    const near = nearest(points, here);
    if (near !== null) choose(near);
    else if (state.brushed) brush(null);
  });
  picture.addEventListener("pointerleave", () => {
    one("hint").textContent = hintText();
  });
}

/** @param {{ x: number, y: number }} a @param {{ x: number, y: number }} b */
function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

/** The head whose point is nearest, if any is near. @param {Point[]} points @param {{ x: number, y: number }} place */
function nearest(points, place) {
  let [best, least] = [-1, NEAR];
  points.forEach((point, head) => {
    const away = distance(point, place);
    if (away < least) [best, least] = [head, away];
  });
  return best < 0 ? null : best;
}

/** @param {Point[]} points @param {{ x: number, y: number }} a @param {{ x: number, y: number }} b */
function within(points, a, b) {
  const heads = points.flatMap(({ x, y }, head) => {
    const inside = (x - a.x) * (x - b.x) <= 0 && (y - a.y) * (y - b.y) <= 0;
    return inside ? [head] : [];
  });
  return heads.length ? new Set(heads) : null;
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
