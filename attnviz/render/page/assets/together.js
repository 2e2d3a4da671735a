/** Several heads together: side by side with one cursor and one zoom, or as one map that the worker makes of them. */

import { combinedOf } from "./combining.js";
import { theComputer } from "./computer.js";
import { page, textOf } from "./data.js";
import { make, openHeight } from "./elements.js";
import { scaleOf } from "./head_scales.js";
import { highOfAll, showsMoved } from "./moved.js";
import { seenBy } from "./seen.js";
import { MAX_OVERLAID } from "./overlay.js";
import { PictureStage } from "./stage.js";
import { sumOfErrors } from "./shown.js";
import { sideNumber } from "./state.js";
import { captionOf, titleOfHeads } from "./titles.js";
import { lineOf } from "./values.js";

/** @import { Axis, Mark, Picture, Shown, Side, Together, View } from "./types.js" */

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

/** Several heads as one. @implements {Shown} */
class CombinedShown {
  /** @param {number[]} numbers @param {Exclude<Together, "side" | "overlay">} how @param {Side[]} sides @param {Float32Array | null} values */
  constructor(numbers, how, sides, values) {
    const [number] = numbers;
    this.number = number;
    this.numbers = numbers;
    this.how = how;
    /** @type {"mean" | "max" | "difference"} */
    this.pooling = how === "rollout" ? "mean" : how;
    this.parts = sides;
    this.partOf = how === "rollout" ? undefined : { numbers, how, side: sideNumber() };
    /** @type {Side[]} none of its cells is one head's */
    this.sides = [];
    this.values = values;
    this.title = titleOfHeads(numbers, how);
    this.queries = textOf(number, "query", sideNumber());
    this.keys = textOf(number, "key", sideNumber());
    this.rows = this.queries.labels.length;
    this.columns = this.keys.labels.length;
    this.same = page.heads[number].same;
    this.scale = scaleOfCombined(number, how, values);
    const counts = seenBy(number, sideNumber());
    this.seen = (/** @type {number} */ row) => counts[row];
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    if (this.values) return this.values[row * this.columns + column];
    return combinedOf(this.parts.map((side) => Float32Array.of(side.weight(row, column))), this.pooling)[0];
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    if (this.values) return lineOf(this.values, this.columns, axis, place);
    return combinedOf(this.parts.map((side) => side.line(axis, place)), this.pooling);
  }

  /** Of a mean at most the mean of the errors, of a maximum or a difference at most their sum. @param {number} row @param {number} column */
  errorAt(row, column) {
    const error = this.parts.length ? sumOfErrors(this.parts, row, column) : null;
    return error !== null && this.how === "mean" ? error / this.parts.length : error;
  }

  score() {
    return null;
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    return this.at(row, column);
  }
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
  return { ...scale, low: 0, high: high || (change ? highOfAll() : scale.high), steps, change, palette: change ? page.diverging : page.sequential };
}

/** Stages side by side that scroll, zoom and point together. @implements {View} */
export class SideBySide {
  /**
   * @param {HTMLElement} parent
   * @param {Shown[]} shown
   * @param {(shown: Shown) => Picture} newPicture
   */
  constructor(parent, shown, newPicture) {
    this.grid = make("div", { className: "side-by-side" });
    this.across = 1;
    this.following = false;
    parent.append(this.grid);
    this.stages = shown.map((one) => {
      const box = make("div", { className: "beside" });
      this.grid.append(make("figure", {}, make("figcaption", {}, captionOf(one)), box));
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
    const sideOf = (/** @type {number} */ across) =>
      Math.min(clientWidth / across - GAP, height / Math.ceil(count / across) - 34);
    const choices = [...Array(count).keys()].map((place) => place + 1);
    this.across = choices.reduce((best, across) => (sideOf(across) > sideOf(best) ? across : best), 1);
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

/** The combined map, of whole weights by the worker, of factors as they are looked at. @param {number[]} numbers @param {Exclude<Together, "side" | "overlay">} how @param {(number: number) => Promise<Side[]>} load */
export async function combinedShown(numbers, how, load) {
  const isKept = !page.heads[numbers[0]].factors.length;
  const values = isKept ? await theComputer().askMap(numbers, how, sideNumber()) : null;
  const read = isKept && how !== "difference" ? [] : numbers; // of a mean of kept weights the error follows from the mean
  const sides = await Promise.all(read.map(async (number) => (await load(number))[sideNumber()]));
  return new CombinedShown(numbers, how, sides, values);
}
