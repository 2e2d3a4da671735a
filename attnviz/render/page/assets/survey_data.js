/** The data that Python wrote into the page of a survey, read into arrays. */

import { page } from "./data.js";
import { bytesOf, inflate } from "./encoding.js";
import { METRIC_NAMES } from "./metrics.js";

/** @import { SurveyData, SurveyExample, SurveyNumbers, SurveyText } from "./types.js" */

export const survey = /** @type {SurveyData} */ (page.survey);
export const LARGEST = 255; // the code of the weight 1

/** The bytes of one of the page's elements. @param {string} name */
async function unpacked(name) {
  return (await inflate(bytesOf(document.getElementById(name)?.textContent ?? ""))).buffer;
}

/** The numbers of all heads beside their means, a table after another. @returns {Promise<SurveyNumbers>} */
export async function readSurveyNumbers() {
  const buffer = await unpacked("numbers");
  let start = 0;
  /** @param {number} width */
  const take = (width) => {
    const count = page.heads.length * width;
    const part = new Float32Array(buffer, start, count);
    start += 4 * count;
    return part;
  };
  const [metrics, offsets] = [METRIC_NAMES.length, survey.offsets.length];
  return {
    margins: take(metrics),
    spreads: take(metrics),
    counts: take(metrics),
    deciles: take(11 * metrics),
    weights: take(offsets),
    scores: take(offsets),
    entropies: take(survey.positions.length),
  };
}

/** The texts of all examples. @returns {Promise<SurveyText[]>} */
export async function readTexts() {
  return JSON.parse(new TextDecoder().decode(await unpacked("texts")));
}

/** The examples of every head, each with its codes. @param {SurveyText[]} texts @returns {Promise<SurveyExample[][]>} */
export async function readExamples(texts) {
  const codes = new Uint8Array(await unpacked("weights"));
  let start = 0;
  return survey.examples.map((ofHead) =>
    ofHead.map(([said, value, text, query, rows, metric]) => {
      const count = rows * texts[text].labels.length;
      const part = codes.subarray(start, start + count);
      start += count;
      return { said, value, text, query, rows, metric, codes: part };
    }),
  );
}

/** Returns the weights of a token of an example; without a token, the mean of all. @param {SurveyExample} example @param {number} tokens @param {number} query */
export function rowOf(example, tokens, query) {
  const weights = new Float32Array(tokens);
  const [first, last] = example.rows === 1 ? [0, 1] : query < 0 ? [0, example.rows] : [query, query + 1];
  for (let row = first; row < last; row++) {
    for (let key = 0; key < tokens; key++) weights[key] += (example.codes[row * tokens + key] / LARGEST) ** 2 / (last - first);
  }
  return weights;
}

/** A number of a head that goes with a metric's mean. @param {Float32Array} numbers heads x metrics @param {number} head @param {string} name */
export function besideMean(numbers, head, name) {
  const place = METRIC_NAMES.indexOf(name);
  return place < 0 ? NaN : numbers[head * METRIC_NAMES.length + place];
}

/** The deciles of a head's metric over the texts. @param {SurveyNumbers} numbers @param {number} head @param {string} name */
export function decilesOf(numbers, head, name) {
  const start = 11 * (head * METRIC_NAMES.length + METRIC_NAMES.indexOf(name));
  return numbers.deciles.subarray(start, start + 11);
}
