/** Several heads together: side by side with one cursor and one zoom, over each other in a hue for each, or as one map that the worker makes of them. */

import { MAX_OVERLAID } from "./choices.js";
import { page, seenBy, textOf } from "./data.js";
import { openHeight } from "./elements.js";
import { combined, heldGrid } from "./grids.js";
import { askMap } from "./numbers.js";
import { captionOf, cellNumber, titleOfHeads } from "./quantities.js";
import { highOfAll, leastHigh, scaleOf } from "./shown.js";
import { PictureStage } from "./stage.js";
import { showsMoved, sideNumber } from "./state.js";
import { elementOf, h } from "./tree.js";
import { ABSENT, averageOfKeys } from "./values.js";

/** @import { Grid, Mark, Picture, Shades, Shown, Together, View } from "./types.js" */

const MAX_SIDE_BY_SIDE = 6;
const MAX_ROLLED_TOKENS = 1_100; // of a product of maps that takes seconds
const GAP = 16;

/** Returns the reason why the chosen heads cannot be shown in a way; "" if they can. @param {number[]} numbers @param {Together} how */
export function whyNot(numbers, how) {
  const [first] = numbers;
  const texts = (/** @type {number} */ number) => [textOf(number, "query"), textOf(number, "key")];
  if (!numbers.every((number) => texts(number).every((text, place) => text === texts(first)[place]))) {
    return "These heads are not over the same tokens; choose heads of one text and one kind.";
  }
  if (how === "side") return numbers.length > MAX_SIDE_BY_SIDE ? `Up to ${MAX_SIDE_BY_SIDE} heads stand side by side.` : "";
  if (how === "overlay") return numbers.length > MAX_OVERLAID ? `Up to ${MAX_OVERLAID} heads lie over each other.` : "";
  if (how === "difference") return numbers.length === 2 ? "" : "A difference needs two heads.";
  const factored = page.heads[first].factors.length > 0;
  if (how !== "rollout") return factored && numbers.length > 12 ? "For a text this long, at most 12 heads are combined." : "";
  const layers = [...new Set(numbers.map((number) => page.heads[number].layer))].sort((one, two) => one - two);
  if (showsMoved()) return "Rollout of contributions is drawn by attnviz show --reduce rollout --of contributions.";
  if (!page.heads[first].same || page.block > 1) return "Rollout needs self-attention of single tokens.";
  if (layers.some((layer, place) => layer !== layers[0] + place)) return "Rollout needs layers that follow one another.";
  if (factored || textOf(first, "query").labels.length > MAX_ROLLED_TOKENS) {
    return "Rollout multiplies whole maps, and these are too long for a page; attnviz show --reduce rollout does it.";
  }
  return "";
}

/** @param {number} number @param {Exclude<Together, "side" | "overlay">} how @param {Float32Array | null} values */
function scaleOfCombined(number, how, values) {
  const scale = scaleOf(number);
  const change = how === "difference";
  let high = 0;
  const counts = seenBy(number, sideNumber());
  const columns = textOf(number, "key").labels.length;
  values?.forEach((value, place) => {
    if ((change || counts[Math.floor(place / columns)] > 1) && Math.abs(value) > high && value >= -1) high = Math.abs(value);
  });
  if (!change && scale.steps === "lift") return scale;
  const steps = change && scale.steps === "lift" ? /** @type {const} */ ("sqrt") : scale.steps;
  return { ...scale, low: 0, high: change ? high || highOfAll() : Math.max(high, leastHigh()) || scale.high, steps, change, palette: change ? page.diverging : page.sequential };
}

/** Stages side by side that scroll, zoom and point together. @implements {View} */
export class SideBySide {
  /**
   * @param {HTMLElement} parent
   * @param {Shown[]} shown
   * @param {(shown: Shown) => Picture} newPicture
   * @param {Shown | null} all the mean of these heads
   */
  constructor(parent, shown, newPicture, all) {
    this.all = all;
    this.grid = elementOf(h("div", { class: "side-by-side" }));
    this.across = 1;
    this.following = false;
    parent.append(this.grid);
    this.stages = shown.map((one) => {
      const box = elementOf(h("div", { class: "beside" }));
      this.grid.append(elementOf(h("figure", {}, h("figcaption", {}, captionOf(one)), box)));
      const stage = new PictureStage(box, newPicture(one), `${one.title}: matrix. Arrows move.`);
      stage.moved = () => this.follow(stage);
      return stage;
    });
    const pictures = this.stages.map(({ picture }) => picture);
    for (const picture of pictures) picture.peers = pictures;
    this.fit();
  }

  get stage() {
    return this.stages[0];
  }

  /** The other stages take the place and the zoom of one. @param {PictureStage} leader */
  follow(leader) {
    if (this.following) return;
    this.following = true;
    for (const stage of this.stages) {
      if (stage === leader) continue;
      if (stage.picture.factor !== leader.picture.factor) {
        stage.picture.factor = leader.picture.factor;
        stage.fit();
      }
      const { x, y } = leader.area;
      if (stage.area.x !== x || stage.area.y !== y) stage.scrollTo({ x, y });
    }
    requestAnimationFrame(() => (this.following = false));
  }

  /** Sets the number of heads side by side that makes each as large as possible. */
  fit() {
    const { clientWidth } = this.grid;
    const top = this.grid.getBoundingClientRect().top + window.scrollY;
    const height = Math.max(320, openHeight() - Math.min(top, 300) - 20);
    const count = this.stages.length;
    this.across = mostAcross(count, clientWidth, height);
    this.grid.style.gridTemplateColumns = `repeat(${this.across}, minmax(0, 1fr))`;
    const most = Math.max(220, height / Math.ceil(count / this.across) - 34);
    for (const stage of this.stages) {
      stage.most = most;
      stage.fit();
    }
    for (const stage of this.stages) stage.draw(); // in the scale that they share, now that each has its size
  }

  drawOver() {
    for (const stage of this.stages) stage.drawOver();
  }

  /** @param {Mark} mark */
  reveal(mark) {
    this.stages[0].reveal(mark);
  }
}

/** How many of some pictures stand side by side, so that each is as large as possible. @param {number} count @param {number} width @param {number} height */
export function mostAcross(count, width, height) {
  const sideOf = (/** @type {number} */ across) => Math.min(width / across - GAP, height / Math.ceil(count / across) - 34);
  const choices = [...Array(count).keys()].map((place) => place + 1);
  return choices.reduce((best, across) => (sideOf(across) > sideOf(best) ? across : best), 1);
}

/**
 * Several heads as one map, of which the worker makes a mean, a maximum or a rollout of weights that are kept.
 *
 * @param {number[]} numbers
 * @param {Exclude<Together, "side" | "overlay">} how
 * @param {(number: number) => Promise<Grid[]>} load
 * @returns {Promise<Grid>}
 */
export async function combinedHeads(numbers, how, load) {
  const [number] = numbers;
  const side = sideNumber();
  const counts = seenBy(number, side);
  const [queries, keys] = [textOf(number, "query", side), textOf(number, "key", side)];
  const about = { number, title: titleOfHeads(numbers, how), queries, keys, same: page.heads[number].same, scale: scaleOf(number), seen: (/** @type {number} */ row) => counts[row] };
  const inWorker = how === "rollout" || (how !== "difference" && !page.heads[number].factors.length);
  const read = async () => Promise.all(numbers.map(async (head) => (await load(head))[side]));
  const grid = inWorker ? heldGrid(about, await askMap({ numbers, how, side })) : combined(about, await read(), how);
  return { ...grid, scale: scaleOfCombined(number, how, grid.values), ...(how === "rollout" ? {} : { partOf: { numbers, how, side } }) };
}

/** Hues that are told apart also by colour-blind readers, on light paper and on dark (Okabe and Ito 2008). */
export const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/** Heads over each other: of each cell the largest weight. @param {Grid[]} all @param {number[]} numbers of the heads @returns {Grid} */
export function overlaid(all, numbers) {
  const [first] = all;
  const about = { ...first, title: titleOfHeads(numbers, "overlay") };
  return { ...combined(about, all, "max"), all, shades: (mark) => shadesOfAll(all, mark), said: (mark) => saidOfAll(all, mark) };
}

/** A token's weights in every head; of each token the largest shades it, in the hue of its head. @param {Grid[]} all @param {Mark | null} mark @returns {Shades} */
function shadesOfAll(all, mark) {
  const [{ queries, keys }] = all;
  const asKey = mark !== null && mark.query === null;
  const place = (asKey ? mark.key : mark?.query) ?? 0;
  const lines = all.map((shown) => (mark ? shown.line(asKey ? "key" : "query", place) : averageOfKeys(shown)));
  const { values, heads } = largestOfEach(lines);
  const colors = heads.map((head) => HUES[head]);
  const label = `“${(asKey ? keys : queries).labels[place]}”`;
  const what = mark ? (asKey ? `what attends to ${label}` : `what ${label} attends to`) : "what each token gets on average";
  const said = `${what}, in the hue of the head with the largest weight`;
  return asKey ? { query: values, key: null, said, colors } : { query: null, key: values, said, colors };
}

/** @param {Grid[]} all @param {Mark} mark @returns {string[]} */
function saidOfAll(all, { query, key }) {
  if (query === null || key === null) return [];
  const weights = all.map((shown) => `${shown.title.replace(/^Head /, "")} ${cellNumber(shown, query, key)}`);
  return ["heads overlaid", `${all[0].queries.labels[query]} → ${all[0].keys.labels[key]}`, weights.join(" · ")];
}

/** The largest of several lines at each place, and which line that is. @param {Float32Array[]} lines */
function largestOfEach(lines) {
  const values = Float32Array.from(lines[0]);
  const heads = Array.from(values, () => 0);
  lines.forEach((line, head) => line.forEach((value, place) => {
    if (value === ABSENT || value <= values[place]) return;
    [values[place], heads[place]] = [value, head];
  }));
  return { values, heads };
}
