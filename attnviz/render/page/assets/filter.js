/** Which heads are listed: those that words such as `sink>0.5 layer:3-5` keep, the language of `attnviz heads --filter`, in the order of a number. */

/** @import { DescribedHead } from "./types.js" */

const COMPARISON = /^([a-z][a-z0-9-]*)(>=|<=|>|<|=)(-?\d*\.?\d+|-?\d+\.)$/;
const EQUAL_WITHIN = 0.005; // numbers are shown with two decimals
const EXAMPLE = "sink>0.5 layer:3-5";

/** @type {Record<string, (value: number, number: number) => boolean>} */
const OPERATIONS = {
  ">": (value, number) => value > number,
  ">=": (value, number) => value >= number,
  "<": (value, number) => value < number,
  "<=": (value, number) => value <= number,
  "=": (value, number) => Math.abs(value - number) < EQUAL_WITHIN,
};

/** @typedef {(head: DescribedHead) => boolean} HeadTest */

/**
 * What every word says, as one test; or what is wrong with a word.
 *
 * @param {string} text
 * @param {string[]} metrics
 * @returns {{ keeps: HeadTest, wrong: string }}
 */
export function parseFilter(text, metrics) {
  const spaced = text.replace(/:\s+/g, ":").replace(/\s*(>=|<=|>|<|=)\s*/g, "$1");
  try {
    const words = spaced.toLowerCase().split(/\s+/).filter(Boolean);
    const tests = words.map((word) => testOf(word, metrics));
    return { keeps: (head) => tests.every((test) => test(head)), wrong: "" };
  } catch (error) {
    return { keeps: () => true, wrong: error instanceof Error ? error.message : "" };
  }
}

/** @param {string} word @param {string[]} metrics @returns {HeadTest} */
function testOf(word, metrics) {
  if (word.length > 1 && word.startsWith("-")) {
    const test = testOf(word.slice(1), metrics);
    return (head) => !test(head);
  }
  const [, written, operation, number] = word.match(COMPARISON) ?? [];
  if (written) {
    const name = findName(written, metrics);
    return ({ numbers }) => !Number.isNaN(numbers[name] ?? NaN) && OPERATIONS[operation](numbers[name], Number(number));
  }
  const [, axis, value] = word.match(/^(layers?|heads?|kind):(.+)$/) ?? word.match(/^(texts?):([\d,-]+)$/) ?? [];
  if (axis) return listTest(axis, value);
  const [, token] = word.match(/^sink:(.*)$/) ?? []; // as thumbnails and lists write it
  if (token !== undefined) return ({ pattern }) => pattern.toLowerCase().includes(`sink: ${token}`);
  if (/[<>=:]/.test(word) && !/^[\w.-]+:\d+\.\d+$/.test(word)) throw new Error(`“${word}” is no test of a head; write one as ${EXAMPLE}`);
  return (head) => isCalled(head, word) || head.pattern.toLowerCase().includes(word);
}

/** Whether a word is the head's name, or its numbers, which several heads may have. @param {DescribedHead} head @param {string} word */
function isCalled({ name, layer, head }, word) {
  return word === name.toLowerCase() || word === `${layer}.${head}`;
}

/** @param {string} axis @param {string} value @returns {HeadTest} */
function listTest(axis, value) {
  if (axis === "kind") {
    if (value !== "self" && value !== "cross") throw new Error("write kind:self or kind:cross");
    return ({ kind }) => kind === value;
  }
  if (axis.startsWith("layer")) {
    const layers = listedNumbers(value);
    return ({ layer }) => layers.has(layer);
  }
  if (axis.startsWith("text")) {
    const texts = listedNumbers(value);
    return ({ text }) => text !== null && texts.has(text);
  }
  if (value.includes(".")) {
    const wanted = value.split(",");
    return (head) => wanted.some((name) => isCalled(head, name));
  }
  const heads = listedNumbers(value);
  return ({ head }) => heads.has(head);
}

/** The numbers of a list with ranges, as 0-3,7. @param {string} list @returns {Set<number>} */
function listedNumbers(list) {
  const numbers = new Set();
  for (const part of list.split(",")) {
    const [, first, last] = part.match(/^(\d{1,5})(?:-(\d{1,5}))?$/) ?? [];
    if (first === undefined) throw new Error(`“${list}” is not a list of numbers; write one such as 0-3,7`);
    for (let number = Number(first); number <= Number(last ?? first); number++) numbers.add(number);
  }
  return numbers;
}

/** The name that is written, or the only one that begins so. @param {string} written @param {string[]} names */
function findName(written, names) {
  const begun = names.filter((name) => name.startsWith(written));
  if (names.includes(written)) return written;
  if (begun.length === 1) return begun[0];
  throw new Error(`no metric ${written}; choose one of ${(begun.length ? begun : names).join(", ")}`);
}

/** The number of a head that is no metric: its layer, by which points may stand and be coloured. */
export const LAYER = "layer";

/** The name of the number that an order is by. @param {string} sort */
export function orderedBy(sort) {
  return sort.replace(/^-/, "");
}

/** The order after a click on a number's name: by it, then the other way. @param {string} sort @param {string} name */
export function sortTurned(sort, name) {
  return sort === name ? `-${name}` : name;
}

/**
 * The heads in order; those that are alike as they stood.
 *
 * @param {number[]} heads
 * @param {string} sort
 * @param {(head: number) => number} valueOf
 */
export function inOrder(heads, sort, valueOf) {
  const sign = sort.startsWith("-") ? 1 : -1;
  return [...heads].sort((one, two) => {
    const [first, second] = [valueOf(one), valueOf(two)];
    if (Number.isNaN(first) || Number.isNaN(second)) return Number(Number.isNaN(first)) - Number(Number.isNaN(second));
    return sign * (first - second) || one - two;
  });
}
