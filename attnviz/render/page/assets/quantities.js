/** The words for what is shown: the numbers of a cell in the inspector, in tips, in tables, and spoken; and the titles on the screen, in the window and in saved files. */

import { comparing, headTitle, joinsWords, page, textOf } from "./data.js";
import { percentText, quoted, scoreText } from "./formatting.js";
import { sumOfErrors } from "./grids.js";
import { listedHeads, sortMetric } from "./listing.js";
import { noteOf } from "./metrics.js";
import { showsScores } from "./shown.js";
import { firstHead, state } from "./state.js";
import { h } from "./tree.js";
import { ABSENT, visibleWeight } from "./values.js";

/** @import { Grid, Mark, Picture, Shown, Together } from "./types.js" */

const COMPUTED_ERROR = 0.02; // of a weight that is computed from queries and keys, where its own bound is not known
const MAX_NAMED_HEADS = 6;

/** @typedef {{ name: string, text: (row: number, column: number) => string }} Quantity */

/**
 * A weight in percent, as exactly as it was kept.
 *
 * @param {number} weight
 * @param {boolean} signed
 * @param {number | null} error
 */
export function weightText(weight, signed = false, error = null) {
  const highs = state.head === null ? [1] : page.heads[state.head].highs;
  if (error === null && page.heads[state.head ?? 0].factors.length) error = COMPUTED_ERROR * Math.abs(weight);
  return percentText(weight, { largest: page.precision.largest, high: Math.max(...highs) }, signed, error);
}

/** The number that a cell shows: a weight in percent, or a score. @param {Shown} shown @param {number} row @param {number} column */
export function cellNumber(shown, row, column) {
  const value = shown.at(row, column);
  if (!shown.scale.scores) return weightText(value, shown.scale.change, shown.errorAt(row, column));
  return value === ABSENT ? "masked" : scoreText(shown.score(row, column));
}

/**
 * The numbers that a cell has, each with its name and how it is written.
 *
 * @param {Shown} shown
 * @returns {Quantity[]}
 */
export function quantitiesOf(shown) {
  const { sides, scale: { change } } = shown;
  if (!sides.length) { // of several heads: their one number
    return [{ name: change ? "difference" : "weight", text: (row, column) => weightText(shown.at(row, column), change, shown.errorAt(row, column)) }];
  }
  /** @type {(name: string, text: (side: Grid, row: number, column: number) => string) => Quantity[]} */
  const ofSides = (name, text) => sides.map((side, number) => ({ name: comparing ? `${name} ${page.sides[number]}` : name, text: (row, column) => text(side, row, column) }));
  const weights = ofSides(`${page.block > 1 && !comparing ? "mean " : ""}${state.of}`, (side, row, column) => weightText(side.at(row, column), false, side.errorAt(row, column)));
  const rest = ofSides(page.block > 1 ? `largest ${state.of}` : "score", (side, row, column) => {
    if (side.at(row, column) === ABSENT) return "masked";
    return side.maxima ? weightText(side.maxima[row * shown.columns + column]) : scoreText(side.score(row, column));
  });
  /** @type {Quantity["text"]} */
  const changeOfCell = (row, column) => {
    const [before, after] = sides.map((side) => visibleWeight(side.at(row, column)));
    return weightText(after - before, true, sumOfErrors(sides, row, column));
  };
  if (page.quantity === "implicit") return [{ name: "implicit attention", text: changeOfCell }];
  return [...weights, ...(comparing ? [{ name: "change", text: changeOfCell }] : []), ...(joinsWords(state.head ?? 0) ? [] : rest)];
}

/** @param {Shown} shown @param {number} query @param {number} key */
function numbersSaid(shown, query, key) {
  return quantitiesOf(shown).map((quantity) => `${quantity.name} ${quantity.text(query, key)}`);
}

/** Returns the content of the tip beside the pointer; null without a mark. @param {Shown} shown @param {Mark | null} mark @param {Picture} [picture] */
export function tipOf(shown, mark, picture) {
  if (!mark) return null;
  const told = shown.said?.(mark);
  if (told) return told.length ? told.flatMap((text, place) => [place ? h("br") : "", h("bdi", {}, text)]) : null;
  if (mark.query === null || mark.key === null) return null;
  const cell = shown.cellOf(mark);
  const [row, column] = [cell.query ?? 0, cell.key ?? 0];
  const pair = `${shown.queries.labels[row]} → ${shown.keys.labels[column]}`;
  const [first, ...rest] = shown.source ? [cellNumber(shown, row, column)] : numbersSaid(shown, row, column);
  const pooled = picture?.pooled ?? (picture?.cell ?? 1) < 1;
  const note = pooled ? [h("br"), "of this one pair; a pixel shows several"] : [];
  return [h("bdi", {}, pair), h("br"), h("b", {}, first), ...rest.map((text) => ` · ${text}`), ...note];
}

/** Returns the sentence on a mark for a screen reader. @param {Shown} shown @param {Mark} mark */
export function spokenOf(shown, mark) {
  if (shown.said) return shown.said(mark).join(", ");
  const { queries, keys } = shown;
  if (mark.query !== null && mark.key !== null) {
    const pair = `${queries.labels[mark.query]} to ${keys.labels[mark.key]}`;
    return `${pair}: ${numbersSaid(shown, mark.query, mark.key).join(", ")}`;
  }
  return mark.query !== null ? `query ${queries.labels[mark.query]}` : `key ${keys.labels[mark.key ?? 0]}`;
}

/** Several heads, and what is made of them. @param {number[]} numbers @param {Together} how */
export function titleOfHeads(numbers, how) {
  const names = numbers.map((number) => page.heads[number].name);
  if (how === "difference") return `Head ${names[1]} − head ${names[0]}`;
  const heads = names.length > MAX_NAMED_HEADS ? `${names.length} heads` : `heads ${names.join(", ")}`;
  if (how === "side") return `${heads[0].toUpperCase()}${heads.slice(1)} side by side`;
  if (how === "overlay") return `${heads[0].toUpperCase()}${heads.slice(1)} overlaid`;
  return `${{ mean: "Mean", max: "Maximum", rollout: "Rollout" }[how]} of ${heads}`;
}

/** Returns the caption of a head beside others: its name, and the clearest thing that it does; of other maps their title. @param {Shown} shown */
export function captionOf({ title, number, said }) {
  return [title, said ? "" : noteOf(number)].filter(Boolean).join(" · ");
}

/** Returns the title of the open view. */
export function titleOfView() {
  const cells = showsScores() ? ", scores" : "";
  if (state.together) return titleOfHeads(state.chosen, state.together) + cells;
  if (state.head === null && state.list === "why") return page.why?.title ?? "";
  if (state.head === null) return state.list === "lens" && state.pin ? `${tokenSaid(state.pin)} in all heads` : "";
  const note = noteOf(state.head);
  return `${headTitle(state.head)}${cells}${note && ` · ${note}`}`;
}

/** The chosen token, and which way is looked. @param {Mark} mark */
function tokenSaid({ query, key }) {
  const [axis, place] = query !== null && (key === null || state.direction === "to") ? ["query", query] : ["key", key ?? 0];
  const label = quoted(textOf(firstHead(), axis === "query" ? "query" : "key"), Number(place));
  return axis === "query" ? `What ${label} looks at` : `What looks at ${label}`;
}

/** Returns the title of a saved file: of the open view, or of the list; "" for all heads in recorded order. */
export function titleOfFile() {
  const ofToken = state.pin && ((state.head !== null && ["text", "arcs"].includes(state.view)) || state.together);
  if (ofToken && state.pin) return `${titleOfView()} · ${tokenSaid(state.pin)}`;
  return titleOfView() || titleOfList();
}

/** Returns the two sides of a change as a difference: the compared runs, or two heads. */
export function changeSaid() {
  if (!state.together) return "B − A";
  const [first, second] = state.chosen.map((number) => page.heads[number].name);
  return `${second} − ${first}`;
}

/** Returns the title of the list: the heads and their order. */
function titleOfList() {
  const [order, all] = [listedHeads(), page.heads.length];
  const metric = sortMetric();
  const by = metric && ` by ${metric}${state.sort.startsWith("-") ? ", smallest first" : ""}`;
  if (!state.filter) return by && `Heads${by}`;
  return `${order.length} of ${all} heads${by}: ${state.filter}`;
}
