/** Shapes of SVG, and the round numbers of an axis. */

const NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * An element of a drawing.
 *
 * @param {string} name
 * @param {Record<string, string | number>} properties
 * @param {...(Node | string)} children
 */
export function shape(name, properties = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(properties)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** Round numbers from low to high, about as many as wanted. @param {number} low @param {number} high @param {number} wanted */
export function ticksOf(low, high, wanted) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((times) => times * power >= raw) ?? 10);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step) {
    ticks.push(Number(tick.toPrecision(10)));
  }
  return ticks;
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
