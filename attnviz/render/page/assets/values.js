/** Runs of weights: what stands for a masked cell, rows and columns, changes, and the strongest places. */

/** @import { Axis, Shown } from "./types.js" */

/** Stands for a masked cell: weights are never negative, changes never below -1. */
export const ABSENT = -2;

/**
 * What is held under a key, or is found now.
 *
 * @template Key
 * @template Value
 * @param {{ has: (key: Key) => boolean, get: (key: Key) => Value | undefined, set: (key: Key, value: Value) => unknown }} held
 * @param {Key} key
 * @param {() => Value} find
 */
export function kept(held, key, find) {
  if (!held.has(key)) held.set(key, find());
  return /** @type {Value} */ (held.get(key));
}

const BINS = 4096; // sizes that are told apart where the strongest of many cells are looked for

/**
 * What is kept under a name, or is read now; it becomes the latest, and the oldest makes room for it.
 *
 * @template Name
 * @template Value
 * @param {Map<Name, Value>} kept
 * @param {Name} name
 * @param {number} most
 * @param {() => Value} read
 */
export function keepLatest(kept, name, most, read) {
  const value = kept.get(name) ?? read();
  kept.delete(name);
  kept.set(name, value);
  for (const oldest of kept.keys()) {
    if (kept.size <= most) break;
    kept.delete(oldest);
  }
  return value;
}

/**
 * A query's row, or a key's column.
 *
 * @param {Float32Array} values
 * @param {number} columns
 * @param {Axis} axis
 * @param {number} place
 */
export function lineOf(values, columns, axis, place) {
  if (axis === "query") return values.subarray(place * columns, (place + 1) * columns);
  return Float32Array.from({ length: values.length / columns }, (_, row) => values[row * columns + place]);
}

/**
 * What changed in each cell; absent where it is in both.
 *
 * @param {Float32Array} before
 * @param {Float32Array} after
 */
export function changeOf(before, after) {
  const change = new Float32Array(before.length);
  for (let place = 0; place < change.length; place++) {
    const neither = before[place] === ABSENT && after[place] === ABSENT;
    change[place] = neither ? ABSENT : visibleWeight(after[place]) - visibleWeight(before[place]);
  }
  return change;
}

/**
 * Rows of weights times what their keys move, in place; weights where nothing is known of that.
 *
 * @param {Float32Array} weights
 * @param {Float32Array | null} [moved] by key, or of the one key
 */
export function timesMoved(weights, moved) {
  if (!moved) return weights;
  for (let place = 0; place < weights.length; place++) {
    if (weights[place] !== ABSENT) weights[place] *= moved[place % moved.length];
  }
  return weights;
}

/** The weight, 0 where the cell is masked. @param {number} weight */
export function visibleWeight(weight) {
  return weight === ABSENT ? 0 : weight;
}

/** The smallest and largest of some numbers, NaN left out. @param {Iterable<number>} numbers @returns {[number, number]} */
export function endsOf(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (const number of numbers) {
    if (number < low) low = number;
    if (number > high) high = number;
  }
  return low > high ? [0, 1] : [low, high];
}

/** The largest value by size. @param {ArrayLike<number>} values */
export function largestOf(values) {
  let largest = 0;
  for (let place = 0; place < values.length; place++) {
    const size = Math.abs(values[place]);
    if (size > largest && values[place] !== ABSENT) largest = size;
  }
  return largest;
}

/**
 * The number of which a part of some positive ones is no larger: found by counting, and sorting those alike alone.
 *
 * @param {Float32Array} numbers
 * @param {number} part
 */
export function quantileOf(numbers, part) {
  const bits = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length); // of positive numbers in their order
  const counts = new Uint32Array(2 ** 16);
  for (let place = 0; place < bits.length; place++) counts[bits[place] >>> 16]++;
  const rank = Math.floor((numbers.length - 1) * part);
  let [bin, before] = [0, 0];
  while (bin < counts.length - 1 && before + counts[bin] <= rank) before += counts[bin++];
  return numbers.filter((_, place) => bits[place] >>> 16 === bin).sort()[rank - before];
}

/**
 * What each key gets from the queries that see it, on average.
 *
 * @param {Pick<Shown, "values" | "rows" | "columns">} shown
 */
export function averageOfKeys({ values, rows, columns }) {
  if (!values) return new Float32Array(columns); // too many to take the mean of
  const totals = new Float32Array(columns);
  const counts = new Uint32Array(columns);
  for (let place = 0; place < rows * columns; place++) {
    if (values[place] === ABSENT) continue;
    totals[place % columns] += values[place];
    counts[place % columns]++;
  }
  return totals.map((total, key) => (counts[key] ? total / counts[key] : ABSENT));
}

/**
 * The places of the largest values by size, strongest first; of equal ones the first.
 *
 * @param {Float32Array} values
 * @param {number} most
 */
export function strongestOf(values, most) {
  /** @type {number[]} */
  const best = [];
  for (let place = 0; place < values.length; place++) {
    const size = Math.abs(values[place]);
    if (values[place] === ABSENT || Number.isNaN(size)) continue;
    if (best.length === most && size <= Math.abs(values[best[most - 1]])) continue;
    let rank = best.length;
    while (rank && Math.abs(values[best[rank - 1]]) < size) rank--;
    best.splice(rank, 0, place);
    if (best.length > most) best.pop();
  }
  return best;
}

/**
 * The same for many of many, without zeros: found by counting, without sorting all.
 *
 * @param {Float32Array} values
 * @param {number} most
 */
export function strongestCells(values, most) {
  const bins = new Uint32Array(BINS);
  const last = BINS - 1;
  const binOf = (/** @type {number} */ value) => Math.min(last, Math.floor(Math.sqrt(Math.abs(value)) * last));
  const counts = (/** @type {number} */ value) => value !== ABSENT && !Number.isNaN(value) && value !== 0;
  for (const value of values) if (counts(value)) bins[binOf(value)]++;
  let bin = last;
  for (let count = bins[bin]; bin > 0 && count + bins[bin - 1] <= most; ) count += bins[--bin];
  /** @type {number[]} */
  const chosen = [];
  for (let place = 0; place < values.length; place++) {
    if (counts(values[place]) && binOf(values[place]) >= bin) chosen.push(place);
  }
  chosen.sort((one, two) => Math.abs(values[two]) - Math.abs(values[one]) || one - two);
  return chosen.slice(0, most);
}
