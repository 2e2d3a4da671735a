/** Heads in the order of a number: the largest first, the smallest after a minus, those without it last. */

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
