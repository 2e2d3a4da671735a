/** Units: what a row or a column of a map stands for, a token or a word, special tokens with it or without. */

import { page } from "./data.js";
import { isWithin } from "./seconds.js";
import { state } from "./state.js";
import { ABSENT, largestOf, lineOf } from "./values.js";

/** @import { Axis, Mark, Scale, Shown, Side, Text } from "./types.js" */

/** The groups of tokens along an axis, each a row or a column, and their labels. */
export class Units {
  /** @param {Text} text @param {number[]} starts the first token of each unit @param {number[]} ends @param {string[]} labels */
  constructor(text, starts, ends, labels) {
    this.starts = starts;
    this.ends = ends;
    const isPart = starts.every((start, unit) => start === starts[0] + unit && ends[unit] === start + 1);
    /** @type {Text} */
    this.text = { ...text, labels, spaces: " ".repeat(labels.length), ...(isPart ? partOfAxis(text, starts) : { seconds: undefined }) };
  }

  get count() {
    return this.starts.length;
  }

  /** The unit of a token; of one that is hidden the unit before it, or the first. @param {number} token */
  unitOf(token) {
    let unit = 0;
    while (unit + 1 < this.count && this.starts[unit + 1] <= token) unit++;
    return unit;
  }

  /** True if a token is in a unit. @param {number} token */
  has(token) {
    const unit = this.unitOf(token);
    return this.starts[unit] <= token && token < this.ends[unit];
  }
}

/** What differs on an axis of which some tokens one after the other are left. @param {Text} text @param {number[]} kept @returns {Partial<Text>} */
function partOfAxis({ edges, first = 0, words }, kept) {
  const [start, end] = [kept[0], kept[0] + kept.length];
  if (edges) return { edges: edges.slice(start, end + 1) };
  const numbers = words ? [...words.starts.keys()].filter((number) => words.starts[number] < end && (words.starts[number + 1] ?? Infinity) > start) : [];
  const part = words && { starts: numbers.map((number) => Math.max(0, words.starts[number] - start)), labels: numbers.map((number) => words.labels[number]) };
  return { first: first + start, words: part };
}

/** True if units can be chosen here: of maps that are held cell by cell. */
export function hasUnits() {
  const number = state.head ?? (state.together ? state.chosen[0] : 0);
  const matrix = state.head !== null ? state.view === "matrix" : state.together ? state.together !== "overlay" : state.list === "lens";
  return matrix && page.block === 1 && !(page.heads[number].factors ?? []).length;
}

/** @type {WeakMap<Text, Map<string, Units | null>>} */
const knownUnits = new WeakMap();

/** The units of a text as the reader chose them; null where each token is one. @param {Text} text */
export function unitsNow(text) {
  const name = `${state.by} ${state.special} ${text.seconds ? state.interval : ""}`;
  const known = knownUnits.get(text) ?? new Map();
  knownUnits.set(text, known);
  if (!known.has(name)) known.set(name, unitsOf(text, state.by === "words", state.special === "hidden"));
  return /** @type {Units | null} */ (known.get(name));
}

/** @param {Text} text @param {boolean} words whether words are joined @param {boolean} hidden whether special tokens are left out @returns {Units | null} */
function unitsOf(text, words, hidden) {
  const count = text.labels.length;
  const starts = words && text.words ? text.words.starts : [...Array(count).keys()];
  const ends = [...starts.slice(1), count];
  const special = new Set(hidden ? text.special : []);
  const inInterval = tokensWithin(text);
  const kept = starts.map((_, unit) => unit).filter((unit) => !special.has(starts[unit]) && inInterval(starts[unit], ends[unit]));
  if (!kept.length || (kept.length === count && starts.length === count)) return null;
  const label = (/** @type {number} */ unit) => (words && text.words?.labels[unit]) || text.labels[starts[unit]];
  return new Units(text, kept.map((unit) => starts[unit]), kept.map((unit) => ends[unit]), kept.map(label));
}

/** Returns a function that is true for tokens of which one is in the kept interval, or all if none is kept. @param {Text} text @returns {(start: number, end?: number) => boolean} */
function tokensWithin(text) {
  const { interval } = state;
  if (!interval || !text.seconds) return () => true;
  return (start, end = start + 1) => {
    for (let token = start; token < end; token++) if (isWithin(text, token, interval)) return true;
    return false;
  };
}

/** A token's line by units: sums along it. @param {Float32Array} line @param {Units} units */
export function sumsOf(line, { starts, ends }) {
  return Float32Array.from(starts, (start, unit) => {
    let total = ABSENT;
    for (let place = start; place < ends[unit]; place++) {
      if (line[place] !== ABSENT) total = (total === ABSENT ? 0 : total) + line[place];
    }
    return total;
  });
}

/** A map by units: weights summed over keys, and their mean over the queries that see any. @param {Shown} shown @param {Units} rows @param {Units} columns */
function valuesByUnits(shown, rows, columns) {
  const values = new Float32Array(rows.count * columns.count);
  rows.starts.forEach((start, row) => {
    const out = values.subarray(row * columns.count, (row + 1) * columns.count).fill(ABSENT);
    /** @type {Float32Array[]} */
    const lines = [];
    for (let query = start; query < rows.ends[row]; query++) lines.push(sumsOf(shown.line("query", query), columns));
    out.forEach((_, column) => {
      const seen = lines.filter((line) => line[column] !== ABSENT);
      if (seen.length) out[column] = seen.reduce((total, line) => total + line[column], 0) / lines.length;
    });
  });
  return values;
}

/** A map whose rows and columns are units; its source is that of tokens. @implements {Shown} */
export class UnitShown {
  /** @param {Shown} source @param {Units} rows @param {Units} columns */
  constructor(source, rows, columns) {
    this.source = source;
    this.rowUnits = rows;
    this.columnUnits = columns;
    this.number = source.number;
    this.title = source.title;
    /** @type {Side[]} none of its cells is one of a recording */
    this.sides = [];
    this.queries = rows.text;
    this.keys = columns.text;
    this.rows = rows.count;
    this.columns = columns.count;
    this.same = source.same;
    this.values = valuesByUnits(source, rows, columns);
    this.scale = this.ownScale();
  }

  /** The colours of the map: without special tokens, which take most, those of a single head end at what is left. @returns {Scale} */
  ownScale() {
    const { scale } = this.source;
    if (state.special !== "hidden" || state.together || scale.scores || scale.steps === "lift" || page.fixed) return scale;
    return { ...scale, high: Math.min(scale.high, largestOf(this.values)) || scale.high };
  }

  /** @param {number} row @param {number} column */
  seen(row, column) {
    return this.source.seen(this.rowUnits.starts[row], column);
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    return this.values[row * this.columns + column];
  }

  /** Errors as weights: their sum over keys, and the mean over queries. @param {number} row @param {number} column */
  errorAt(row, column) {
    let total = 0;
    for (let query = this.rowUnits.starts[row]; query < this.rowUnits.ends[row]; query++) {
      for (let key = this.columnUnits.starts[column]; key < this.columnUnits.ends[column]; key++) {
        if (this.source.at(query, key) === ABSENT) continue;
        const error = this.source.errorAt?.(query, key) ?? null;
        if (error === null) return null;
        total += error;
      }
    }
    return total / (this.rowUnits.ends[row] - this.rowUnits.starts[row]);
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    return this.at(row, column);
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    return lineOf(this.values, this.columns, axis, place);
  }

  /** Of a unit that is one token its score. @param {number} row @param {number} column */
  score(row, column) {
    const [query, key] = [this.rowUnits.starts[row], this.columnUnits.starts[column]];
    const single = this.rowUnits.ends[row] === query + 1 && this.columnUnits.ends[column] === key + 1;
    return single ? this.source.score(query, key) : null;
  }

  /** A cell of units by its first tokens. @param {Mark} cell @returns {Mark} */
  marked({ query, key }) {
    return { query: query === null ? null : this.rowUnits.starts[query], key: key === null ? null : this.columnUnits.starts[key] };
  }

  /** The cell that tokens are in. @param {Mark} mark @returns {Mark} */
  cellOf({ query, key }) {
    return { query: query === null ? null : this.rowUnits.unitOf(query), key: key === null ? null : this.columnUnits.unitOf(key) };
  }
}

/** A line without its special tokens where these are hidden, and without what is outside of the kept interval. @param {Float32Array} line @param {Text} text */
export function withoutHidden(line, text) {
  const special = new Set(state.special === "hidden" ? text.special : []);
  const isShown = tokensWithin(text);
  if (!special.size && !(state.interval && text.seconds)) return line;
  return line.map((value, place) => (special.has(place) || !isShown(place) ? ABSENT : value));
}
