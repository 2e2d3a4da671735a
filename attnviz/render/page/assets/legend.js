/** The legend: the colours of what is shown now, on the page and in a saved file. */

import { isOfMaps, poolsThumbnails } from "./choices.js";
import { seenOver } from "./colors.js";
import { headTitle, page } from "./data.js";
import { one } from "./elements.js";
import { FAINT, rectangle, scaleBar, textAt, wrapped } from "./figure.js";
import { tickTexts } from "./formatting.js";
import { isChange, meaningOf, METRIC_NAMES } from "./metrics.js";
import { isOverImages } from "./overview.js";
import { changeSaid } from "./quantities.js";
import { valueAt } from "./scales.js";
import { scaleOf, thumbnailScale } from "./shown.js";
import { scene, showsMoved, state } from "./state.js";
import { HUES } from "./together.js";
import { h, patch } from "./tree.js";

/** @import { Figure, Scale, Text } from "./types.js" */

const MAX_TICK_CHARACTERS = 22; // of all ticks, from which on every other one is left out

const BAR_WIDTH = 200; // pixels of the colours in a file
const MIN_BESIDE_BAR = 480; // pixels of a file in which the name of the quantity stands beside its colours

/** True if a palette shows what is shown now. */
export function hasPalette() {
  if (state.head !== null) return state.view === "matrix";
  return state.together !== null || !["numbers", "why"].includes(state.list);
}

/** The scale of what is shown now. */
function shownScale() {
  const picture = scene.current?.stage?.picture;
  if (picture) return picture.scale ?? picture.shown.scale;
  return state.head === null ? thumbnailScale(0) : scaleOf(state.head);
}

/** Draws the legend of what is shown now. */
export function drawLegend() {
  if (state.together === "overlay") return patch(one("legend"), state.chosen.map((number, place) => swatch(HUES[place], headTitle(number))));
  const scale = shownScale();
  const texts = ticksAt([0, 0.25, 0.5, 0.75, 1], scale);
  const ticks = texts.join("").length > MAX_TICK_CHARACTERS ? ticksAt([0, 0.5, 1], scale) : texts;
  patch(one("legend"), [
    h("span", {}, nameOf(scale)),
    scaleBar(scale, ticks, greyUnder()),
    ...(page.absent ? [swatch("var(--absent)", "masked")] : []),
    ...(page.nan ? [swatch(`rgb(${page.nanColor.join(" ")})`, "NaN")] : []),
  ]);
}

/** The brightness of the images that the heads are drawn over; `null` where they are drawn on paper. */
function greyUnder() {
  const shown = /** @type {{ tokens?: Text } | null} */ (scene.shown);
  return isOverImages() ? (shown?.tokens?.images?.[0].grey ?? null) : null;
}

/** A colour that is in no palette. @param {string} colour @param {string} name */
function swatch(colour, name) {
  return h("span", {}, h("i", { class: "swatch", style: `background: ${colour}` }), name);
}

/** The numbers at some parts of a scale. @param {number[]} fractions @param {Scale} scale */
function ticksAt(fractions, scale) {
  return tickTexts(fractions.map((fraction) => valueAt(fraction, scale)), scale);
}

/** Returns the name of the quantity that the colours stand for. @param {Scale} scale */
function nameOf(scale) {
  const drawn = state.of === "weight" ? "attention weight" : "contribution ‖α f(x)‖";
  if (scale.scores) return "attention score, before mask and softmax";
  const unit = showsMoved() && page.moved ? `, 100% is ${Number(page.moved.unit.toPrecision(4))}` : "";
  if (page.quantity === "implicit") return `implicit attention${state.together === "difference" ? `, ${changeSaid()}` : ""}${pooledSaid()}`;
  if (scale.change) return `${state.together ? "difference" : "change"} of ${drawn}, ${changeSaid()}${pooledSaid()}`;
  return `${scale.steps === "lift" ? "lift: times uniform attention" : drawn}${pooledSaid()}${unit}${ownScaleSaid()}${effectSaid()}`;
}

/** Says whose numbers the legend has where several heads are shown, each with a scale of its own; "" elsewhere. */
function ownScaleSaid() {
  const sideBySide = (scene.current?.stages?.length ?? 0) > 1;
  if (state.limits !== "head" || !(isOfMaps(state) || sideBySide)) return "";
  return `; these numbers are of ${headTitle(sideBySide ? state.chosen[0] : 0)}, each head has a scale of its own`;
}

/** What the frames of all heads stand for, and the coloured numbers under them; nothing where effects are unknown. */
function effectSaid() {
  const name = isOfMaps(state) ? METRIC_NAMES.find(isChange) : undefined;
  return name ? `; frames: ${meaningOf(name)}, red is more, blue is less` : "";
}

/** Returns the word for the number that a block shows, mean or maximum; "" if a cell is a single weight. */
function pooledSaid() {
  const picture = scene.current?.stage?.picture;
  if (picture?.pooled || (isOfMaps(state) && poolsThumbnails(page))) return state.pool === "mean" ? ", mean of a block" : ", largest of a block";
  return page.block > 1 ? ", mean of a block" : "";
}

/** The legend in a saved file of so many pixels. @param {number} width @param {Scale} [scale] of what was drawn @returns {Figure} */
export function legendFigure(width, scale = shownScale()) {
  if (state.together === "overlay") {
    const tree = state.chosen.flatMap((number, place) => [rectangle(90 * place, 0, 14, 9, HUES[place]), textAt(headTitle(number), 90 * place + 20, 5, FAINT)]);
    return { tree, width, height: 10 };
  }
  const colours = Array.from({ length: 50 }, (_, place) => rectangle((BAR_WIDTH * place) / 50, 0, BAR_WIDTH / 50 + 0.3, 9, seenOver(valueAt((place + 0.5) / 50, scale), scale, greyUnder())));
  const ticks = ticksAt([0, 0.5, 1], scale).map((text, place) => textAt(text, (BAR_WIDTH * place) / 2, 20, { ...FAINT, align: /** @type {const} */ (["start", "middle", "end"])[place] }));
  const beside = width > MIN_BESIDE_BAR;
  const lines = wrapped(nameOf(scale), FAINT.size, beside ? width - BAR_WIDTH - 14 : width);
  const name = lines.map((text, line) => textAt(text, beside ? BAR_WIDTH + 14 : 0, (beside ? 5 : 36) + 14 * line, FAINT));
  return { tree: [...colours, ...ticks, ...name], width, height: Math.max(26, 14 * lines.length + (beside ? 0 : 28)) };
}
