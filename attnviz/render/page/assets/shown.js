/** The open head's numbers, as the chosen side of it is shown. */

import { headTitle, page, textOf } from "./data.js";
import { scaleOf } from "./head_scales.js";
import { seenBy } from "./seen.js";
import { sideNumber, state } from "./state.js";
import { ABSENT, changeOf, visibleWeight } from "./values.js";

/** @import { Axis, Shown, Side } from "./types.js" */

const MAX_KEPT_LINES = 6;

/** One head. @implements {Shown} */
export class ShownHead {
  /** @param {number} number @param {Side[]} sides */
  constructor(number, sides) {
    this.number = number;
    this.title = headTitle(number);
    this.sides = sides;
    this.side = sides[sideNumber()];
    this.changed = state.side === "change";
    this.values = this.changed ? changeOfSides(sides) : (this.side.weights ?? null);
    this.queries = textOf(number, "query", sideNumber());
    this.keys = textOf(number, "key", sideNumber());
    this.rows = this.queries.labels.length;
    this.columns = this.keys.labels.length;
    this.same = page.heads[number].same;
    this.scale = scaleOf(number);
    /** @type {Map<string, Float32Array>} */
    this.lines = new Map();
    const counts = seenBy(number, sideNumber());
    this.seen = (/** @type {number} */ row) => counts[row];
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    const [before, after] = this.sides.map((side) => visibleWeight(side.weight(row, column)));
    return after - before;
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    if (!this.changed) return this.side.weight(row, column);
    const hidden = this.sides.every((side) => side.weight(row, column) === ABSENT);
    return hidden ? ABSENT : this.changeAt(row, column);
  }

  /** The last few are kept: text, lists and arcs ask for the same. @param {Axis} axis @param {number} place */
  line(axis, place) {
    const name = `${axis} ${place}`;
    const line = this.lines.get(name) ?? this.newLine(axis, place);
    this.lines.delete(name);
    this.lines.set(name, line);
    if (this.lines.size > MAX_KEPT_LINES) this.lines.delete(this.lines.keys().next().value ?? "");
    return line;
  }

  /** True if a line need not be computed. @param {Axis} axis @param {number} place */
  isKnown(axis, place) {
    return this.values !== null || this.lines.has(`${axis} ${place}`);
  }

  /** @param {Axis} axis @param {number} place */
  newLine(axis, place) {
    if (!this.changed) return this.side.line(axis, place);
    const [before, after] = this.sides.map((side) => side.line(axis, place));
    return changeOf(before, after);
  }

  /** @param {number} row @param {number} column */
  errorAt(row, column) {
    return this.changed ? sumOfErrors(this.sides, row, column) : this.side.weightError(row, column);
  }

  /** @param {number} row @param {number} column */
  score(row, column) {
    return this.side.score(row, column);
  }
}

/** The error of a sum or a difference of several sides; a masked cell has none. @param {Side[]} sides @param {number} row @param {number} column */
export function sumOfErrors(sides, row, column) {
  let total = 0;
  for (const side of sides) {
    if (side.weight(row, column) === ABSENT) continue;
    const error = side.weightError(row, column);
    if (error === null) return null;
    total += error;
  }
  return total;
}

/** Returns the change of every cell; null if the page computes cells when they are drawn. @param {Side[]} sides */
function changeOfSides([before, after]) {
  return before.weights && after.weights ? changeOf(before.weights, after.weights) : null;
}
