/** Values to fractions of a scale and back, and the arithmetic of colours. */

import { ABSENT } from "./values.js";

/** @import { Scale } from "./types.js" */

const LOG_RANGE = 1e-4; // of the largest value: where logarithmic steps begin

/**
 * How far a value is from one end of the colours to the other, 0 to 1.
 *
 * @param {number} value
 * @param {Scale} scale
 */
export function fractionOf(value, scale) {
  return fractionsOf(scale)(value);
}

/** The function of values that says how far they are: of many cells of one scale it is found once. @param {Scale} scale @returns {(value: number) => number} */
export function fractionsOf({ low, high, steps, change }) {
  if (steps === "lift" && !change) {
    // Lift goes from 1 / high to high in equal factors; 1, no preference, is in the middle.
    const range = 2 * Math.log(high);
    return (lift) => Math.min(1, Math.max(0, 0.5 + Math.log(Math.max(lift, 1e-12)) / range));
  }
  const stepped = steps === "log" ? logOf : steps === "linear" ? (/** @type {number} */ part) => part : Math.sqrt;
  const partOf = (/** @type {number} */ size) => stepped(Math.min(1, Math.max(0, (size - low) / (high - low))));
  return change ? (value) => 0.5 + (Math.sign(value) * partOf(Math.abs(value))) / 2 : partOf;
}

/** From the smallest part that logarithmic steps tell from nothing, 0, to all, 1. @param {number} part */
function logOf(part) {
  return Math.max(0, 1 - Math.log(part) / Math.log(LOG_RANGE));
}

/** The value at a fraction of the colours. @param {number} fraction @param {Scale} scale */
export function valueAt(fraction, scale) {
  if (scale.steps === "lift" && !scale.change) return scale.high ** (2 * fraction - 1);
  const stepped = scale.change ? Math.abs(2 * fraction - 1) : fraction;
  const part = { linear: stepped, sqrt: stepped ** 2, lift: stepped ** 2, log: LOG_RANGE ** (1 - stepped) }[scale.steps];
  return scale.low + (scale.high - scale.low) * (scale.change ? Math.sign(fraction - 0.5) * part : part);
}

/**
 * How strongly a value is shown where there is a hue and no palette, 0 to 1.
 *
 * @param {number} value
 * @param {Scale} scale
 */
export function strengthOf(value, scale) {
  if (value === ABSENT || Number.isNaN(value)) return 0;
  return scale.change ? Math.abs(2 * fractionOf(value, scale) - 1) : fractionOf(value, scale);
}

/** The name of the theme's colour for a value there. @param {number} value @param {Scale} scale */
export function hueOf(value, scale) {
  return scale.change ? (value < 0 ? "less" : "more") : "arc";
}

/**
 * What the colours stand for: the weight itself, or how many times it is what uniform attention would give.
 *
 * @param {number} value
 * @param {Scale} scale
 * @param {number} seen keys that the query may see
 */
export function levelOf(value, scale, seen) {
  return scale.steps === "lift" && !scale.change && value !== ABSENT ? value * seen : value;
}

/** The least of 1, 2, 5, 10, 20 … that is no less than a number. @param {number} least */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, Number.MIN_VALUE)));
  return power * ([1, 2, 5].find((times) => times * power >= least) ?? 10);
}

/** Black or white, whichever contrasts more. @param {Iterable<number>} rgb */
export function inkOn(rgb) {
  const [red, green, blue] = Array.from(rgb, (part) => {
    const fraction = part / 255;
    return fraction <= 0.04045 ? fraction / 12.92 : ((fraction + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 ? "#ffffff" : "#000000";
}

/** Red, green and blue of a colour written #rrggbb. @param {string} color */
export function partsOf(color) {
  return [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));
}

/** Returns the red, green and blue that one colour gives over another. @param {string} under @param {string} over @param {number} opacity */
export function mixed(under, over, opacity) {
  const above = partsOf(over);
  return partsOf(under).map((part, place) => part + (above[place] - part) * opacity);
}

/**
 * A colour written #rrggbb, as much of it as the opacity says.
 *
 * @param {string} color
 * @param {number} opacity
 */
export function faded(color, opacity) {
  return `rgba(${partsOf(color).join(", ")}, ${opacity.toFixed(3)})`;
}
