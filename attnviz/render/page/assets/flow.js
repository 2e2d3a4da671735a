/** A text in lines: which tokens stand in each, by their widths. */

/**
 * The first token of each line, and the end of the text.
 *
 * @param {Float32Array} widths of tokens, in pixels
 * @param {string} spaces what stands before each: a line end, a space, or nothing
 * @param {number} space the width of a space
 * @param {number} room the width of a line
 */
export function linesOf(widths, spaces, space, room) {
  const starts = [0];
  let used = 0;
  for (let place = 0; place < widths.length; place++) {
    const gap = spaces[place] === " " ? space : 0;
    const ends = spaces[place] === "\n" && place > 0;
    if (place > starts[starts.length - 1] && (ends || used + gap + widths[place] > room)) {
      starts.push(place);
      used = 0;
    }
    used += widths[place] + (used ? gap : 0);
  }
  return [...starts, widths.length];
}

/** The line that a token stands in. @param {number[]} starts @param {number} place */
export function lineWith(starts, place) {
  let [low, high] = [0, starts.length - 2];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (starts[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}
