/** The numbers of a cell as they are named and written: in the inspector, in tips, in tables, and spoken. */

import { comparing, joinsWords, page } from "./data.js";
import { make } from "./elements.js";
import { percentText, scoreText } from "./formatting.js";
import { sumOfErrors } from "./grids.js";
import { state } from "./state.js";
import { ABSENT, visibleWeight } from "./values.js";

/** @import { Grid, Mark, Picture, Shown } from "./types.js" */

const COMPUTED_ERROR = 0.02; // of a weight that is computed from queries and keys, where its own bound is not known

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
  if (!shown.sides.length) return [combinedQuantity(shown)];
  const weights = shown.sides.map((side, number) => ({
    name: comparing
      ? `${state.of} ${page.sides[number]}`
      : `${page.block > 1 ? "mean " : ""}${state.of}`,
    text: (/** @type {number} */ row, /** @type {number} */ column) =>
      weightText(side.at(row, column), false, side.errorAt(row, column)),
  }));
  const rest = shown.sides.map((side, number) => ({
    name: (page.block > 1 ? `largest ${state.of}` : "score") + (comparing ? ` ${page.sides[number]}` : ""),
    text: (/** @type {number} */ row, /** @type {number} */ column) => secondText(side, row, column, shown.columns),
  }));
  if (joinsWords(state.head ?? 0)) rest.length = 0;
  if (!comparing) return [...weights, ...rest];
  /** @type {Quantity} */
  const change = {
    name: "change",
    text: (row, column) => {
      const [before, after] = shown.sides.map((side) => visibleWeight(side.at(row, column)));
      return weightText(after - before, true, sumOfErrors(shown.sides, row, column));
    },
  };
  return [...weights, change, ...rest];
}

/** The one number of a cell of several heads. @param {Shown} shown @returns {Quantity} */
function combinedQuantity(shown) {
  const { change } = shown.scale;
  return { name: change ? "difference" : "weight", text: (row, column) => weightText(shown.at(row, column), change, shown.errorAt(row, column)) };
}

/**
 * A cell's score, or its maximum where it is a block.
 *
 * @param {Grid} side
 * @param {number} row
 * @param {number} column
 * @param {number} columns
 */
function secondText(side, row, column, columns) {
  if (side.at(row, column) === ABSENT) return "masked";
  return side.maxima ? weightText(side.maxima[row * columns + column]) : scoreText(side.score(row, column));
}

/** @param {Shown} shown @param {number} query @param {number} key */
function numbersSaid(shown, query, key) {
  return quantitiesOf(shown).map((quantity) => `${quantity.name} ${quantity.text(query, key)}`);
}

/** Returns the content of the tip beside the pointer; null without a mark. @param {Shown} shown @param {Mark | null} mark @param {Picture} [picture] */
export function tipOf(shown, mark, picture) {
  if (!mark) return null;
  const told = shown.said?.(mark);
  if (told) return told.length ? told.flatMap((text, place) => [place ? make("br") : "", make("bdi", {}, text)]) : null;
  if (mark.query === null || mark.key === null) return null;
  const cell = shown.cellOf(mark);
  const [row, column] = [cell.query ?? 0, cell.key ?? 0];
  const pair = `${shown.queries.labels[row]} → ${shown.keys.labels[column]}`;
  const [first, ...rest] = shown.source ? [cellNumber(shown, row, column)] : numbersSaid(shown, row, column);
  const pooled = picture?.pooled ?? (picture?.cell ?? 1) < 1;
  const note = pooled ? [make("br"), "of this one pair; a pixel shows several"] : [];
  return [make("bdi", {}, pair), make("br"), make("b", {}, first), ...rest.map((text) => ` · ${text}`), ...note];
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
