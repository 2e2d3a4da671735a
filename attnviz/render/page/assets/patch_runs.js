/** The words of an axis with images: a run of patches or of padding is one piece in brackets, and each other token another. */

/** @import { ShownImage, Text } from "./types.js" */

const PADDING_LABEL = "[pad]"; // as Python labels it
const MOST_ROUNDED = 1.1; // sum of a row of weights that were rounded to 8 bits

/**
 * What stands for the tokens of an axis where its images are drawn beside.
 *
 * @typedef {object} Pieces
 * @property {string[]} labels
 * @property {string} spaces what stands before each piece
 * @property {number[]} starts the first token of each piece
 * @property {boolean[]} areRuns whether a piece is a run of patches or of padding
 */

/** What an image is called. @param {ShownImage} image */
export function kindOf({ seconds }) {
  return seconds ? "spectrogram" : "image";
}

/** Joins the patches of an image that follow each other, and padding. @param {Pick<Text, "labels" | "spaces" | "images">} text @returns {Pieces} */
export function wordPieces({ labels, spaces, images = [] }) {
  /** @type {Map<number, number>} */
  const imageOf = new Map();
  const patches = new Uint32Array(labels.length); // several where a cell is a block
  images.forEach(({ tokens }, number) => {
    for (const token of tokens) {
      imageOf.set(token, number);
      patches[token]++;
    }
  });
  const runOf = (/** @type {number} */ token) => imageOf.get(token) ?? (labels[token] === PADDING_LABEL ? PADDING_LABEL : null);
  const starts = [...labels.keys()].filter((token) => !token || runOf(token) === null || runOf(token) !== runOf(token - 1));
  const ends = [...starts.slice(1), labels.length];
  const labelOf = (/** @type {number} */ start, /** @type {number} */ piece) => {
    const number = imageOf.get(start);
    const length = ends[piece] - start;
    if (number === undefined) return length > 1 ? `[${length} × pad]` : labels[start];
    const count = patches.subarray(start, ends[piece]).reduce((sum, number) => sum + number, 0);
    return `[${kindOf(images[number])}${images.length > 1 ? ` ${number + 1}` : ""}: ${count} ${count === 1 ? "patch" : "patches"}]`;
  };
  const areRuns = starts.map((start, piece) => imageOf.has(start) || ends[piece] - start > 1);
  return {
    labels: starts.map(labelOf),
    spaces: starts.map((start, piece) => (areRuns[piece] || areRuns[piece - 1] ? " " : spaces[start])).join(""),
    starts,
    areRuns,
  };
}

/** The piece that a token is in. @param {Pieces} pieces @param {number} token */
export function pieceOf({ starts }, token) {
  const next = starts.findIndex((start) => start > token);
  return (next < 0 ? starts.length : next) - 1;
}

/**
 * How much of a row of weights is on some tokens, at most 1: rounded weights may add up to more.
 *
 * @param {Float32Array} row masked keys are below zero
 * @param {Iterable<number>} tokens
 */
export function shareOn(row, tokens) {
  return sumOn(row, tokens) / Math.max(1, sumOn(row, row.keys()));
}

/** True if sums of a row are shares of it: means over queries that see different keys add up to more than 1. @param {Float32Array} row */
export function hasShares(row) {
  let sum = 0;
  for (let place = 0; place < row.length; place++) if (row[place] > 0) sum += row[place];
  return sum <= MOST_ROUNDED;
}

/** @param {Float32Array} row masked keys are below zero @param {Iterable<number>} tokens */
function sumOn(row, tokens) {
  let sum = 0;
  for (const token of tokens) if (row[token] > 0) sum += row[token];
  return sum;
}

/**
 * Returns the fewest patches that hold more than a share of a row's weight on an image, by the rule of DINO's visualize_attention.py.
 *
 * @param {Pick<ShownImage, "tokens">} image
 * @param {ArrayLike<number>} row the weights of all tokens
 * @param {number} share
 */
export function patchesOfMass({ tokens }, row, share) {
  const weights = tokens.map((token) => (row[token] > 0 ? row[token] : 0)); // a masked key has none
  let left = (1 - share) * weights.reduce((sum, weight) => sum + weight, 0); // of the smallest patches, which are outside
  const ascending = [...weights.keys()].sort((one, two) => weights[one] - weights[two] || tokens[one] - tokens[two]);
  return ascending.filter((patch) => (left -= weights[patch]) < 0);
}
