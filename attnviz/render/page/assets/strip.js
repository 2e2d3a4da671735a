/** The text on top of the page: always shaded by what is pointed at, and where tokens are chosen. */

import { keepToken, openHead, openToken, pin, pointTo } from "./actions.js";
import { paintPalette } from "./colors.js";
import { page, textOf } from "./data.js";
import { one } from "./elements.js";
import { moved, textAt, wrapped } from "./figure.js";
import { drawMedium } from "./medium.js";
import { hasShares } from "./patch_runs.js";
import { heardOf, intervalText, shareWithin, weightsOfWords } from "./places.js";
import { weightText } from "./quantities.js";
import { scaleUpTo, withoutHidden } from "./shown.js";
import { scene, set, sideNumber, state } from "./state.js";
import { elementOf, h, patch } from "./tree.js";
import { ABSENT, averageOfKeys, kept, largestOf, strongestOf } from "./values.js";

/** @import { Axis, Figure, Mark, Shades, Shown, Text, View } from "./types.js" */
/** @import { Tree } from "./tree.js" */
/** @import { Marking, Shading } from "./words.js" */

const MAX_SHORT_TEXT = 90; // tokens that fill a screen in larger letters
const NOTE_LINE = 16; // pixels of a line of words below a saved text

/** @typedef {Axis | "both"} Paragraph the queries, the keys, or both where they are the same tokens */
/** @typedef {{ words: ReturnType<typeof drawMedium>, axis: Paragraph }} DrawnAxis */

/** The texts of a head, one where queries and keys are the same tokens. @implements {View} */
export class TextView {
  /**
   * @param {HTMLElement} parent
   * @param {number} number of the head whose texts these are
   * @param {boolean} large whether it is the view, and not the strip on top
   */
  constructor(parent, number, large) {
    const { same } = page.heads[number];
    this.number = number;
    this.large = large;
    this.texts = [textOf(number, "query", sideNumber()), textOf(number, "key", sideNumber())];
    this.note = elementOf(h("p", { class: "note" }));
    this.element = elementOf(h("div", { class: large ? "text-large" : "text-strip" }));
    this.element.classList.toggle("short", large && this.texts[1].labels.length <= MAX_SHORT_TEXT);
    parent.append(this.element);
    if (large) this.element.append(this.note);
    else parent.append(this.note);
    this.slider = large ? this.drawSlider() : null;
    this.drawn = same ? [this.drawAxis("both", "text")] : [this.drawAxis("query", "queries"), this.drawAxis("key", "keys")];
    this.drawOver();
  }

  /** A slider that goes from query to query, as a film of the text. @returns {HTMLInputElement} */
  drawSlider() {
    const last = this.texts[0].labels.length - 1;
    const keep = (/** @type {Event} */ { target }) => keepToken({ query: Number(/** @type {HTMLInputElement} */ (target).value), key: null });
    const about = { type: "range", min: 0, max: last, class: "steps", title: "The query whose row shades the text", "aria-label": "query", oninput: keep };
    const slider = /** @type {HTMLInputElement} */ (elementOf(h("input", about)));
    this.element.append(slider);
    return slider;
  }

  /** @param {Paragraph} axis @param {string} name @returns {DrawnAxis} */
  drawAxis(axis, name) {
    if (axis !== "both") this.element.append(elementOf(h("h3", {}, name)));
    const text = this.texts[axis === "key" ? 1 : 0];
    return { axis, words: drawMedium(this.element, text, `The ${name}: point at a token, or click to keep it`, { ...markingOf(axis, this.number), heard: () => this.heardNow() }) };
  }

  /** The word that is pointed at, or chosen, with the seconds in which it is said. */
  heardNow() {
    return heardOf(this.texts[0], (state.mark ?? state.pin)?.query ?? null);
  }

  /** @param {number} number */
  isOf(number) {
    const texts = [textOf(number, "query", sideNumber()), textOf(number, "key", sideNumber())];
    return texts.every((text, place) => text === this.texts[place]) && page.heads[number].same === (this.drawn.length === 1);
  }

  drawOver() {
    const shown = scene.shown ?? scene.pointed ?? scene.asked;
    const mark = state.mark ?? state.pin ?? (shown?.shades ? null : askedToken(this.number));
    /** @type {Shades} */
    const shades = shown ? shadesOf(shown, mark) : { query: null, key: null, said: "" };
    const change = shown?.scale.change ?? state.side === "change";
    for (const { words, axis } of this.drawn) {
      const heard = axis === "query" && shades.key && !shown?.scale.change ? weightsOfWords(this.texts[0], this.texts[1], shades.key) : null;
      const all = axis === "both" ? (shades.key ?? shades.query) : (shades[axis] ?? heard);
      const values = all && withoutHidden(all, this.texts[axis === "key" ? 1 : 0]);
      const summed = axis === "query" || change || state.of !== "weight" || page.block > 1 ? null : shades.key; // the means of blocks have no sum
      const row = summed && hasShares(summed) ? summed : null;
      words.shade({ ...(shades.scale ? { values, scale: shades.scale } : shadingOf(values, change)), colors: shades.colors, row });
    }
    if (shades.note) return patch(this.note, h("p", {}, ...shades.note).children);
    if (this.slider && state.pin && state.pin.query !== null) this.slider.value = String(state.pin.query);
    const [line, text] = [shades.key ?? shades.query ?? new Float32Array(0), this.texts[shades.key ? 1 : 0]];
    const seen = withoutHidden(line, text);
    const largest = largestText(seen, shades.key ? "query" : "key");
    const palette = !shades.colors && h("span", { class: "shades-scale" }, paintPalette(shadingOf(seen, change).scale));
    const note = this.said(shades.said, largest, change, palette);
    const { written } = text; // all but the signs of a chat's template
    const [strongest] = written ? strongestOf(seen.map((value, unit) => (written[unit] ? value : ABSENT)), 1) : [];
    const heads = (strongest !== undefined && shades.heads?.(strongest)) || [];
    const named = heads.map(({ number, value }, place) => [place ? ", " : ` Heads that look most at “${text.labels[strongest ?? 0]}”: `,
      h("button", { type: "button", class: "link", onclick: () => openHead(number) }, page.heads[number].name), ` (${weightText(value)})`]);
    patch(this.note, scene.pointed && !scene.shown ? [] : h("p", {}, ...note, note.length > 0 && intervalSaid(line, text), ...named.flat(), named.length > 0 && ".").children);
  }

  /** What the shades are, with the colours from zero to the largest number. @param {string} what @param {string} largest @param {boolean} change @param {Tree | false} palette @returns {(string | Tree | false)[]} */
  said(what, largest, change, palette) {
    const rest = state.mark || state.pin || !this.large ? "" : " Point at a token for what it attends to; click to keep it.";
    if (!what) return [rest.trim()].filter(Boolean);
    const [low, colors] = change ? [`−${largest}`, " (red more, blue less)"] : ["0", ""];
    return [`Shaded ${low} `, palette, `to ${largest}${colors}: ${what}${this.ofHead()}.${rest}`];
  }

  /** Returns the words on the head that shades the text; "" if the words before them name it. */
  ofHead() {
    const shown = scene.shown;
    if (!shown || shown.shades) return "";
    return `, ${shown.title.replace(/^(Heads?|Mean|Maximum|Rollout|Text|Picture) /, (word) => word.toLowerCase())}`;
  }

  /** All lines with their shades, and no word of the page's own. @param {number} width @returns {Figure} */
  figure(width) {
    /** @type {Tree[]} */
    const tree = [];
    let top = 0;
    for (const { words, axis } of this.drawn) {
      if (this.drawn.length > 1) {
        tree.push(textAt(axis === "key" ? "keys" : "queries", 0, top + 8, { size: 12, color: "var(--soft)" }));
        top += 20;
      }
      const figure = words.figure(width);
      tree.push(moved(0, top, ...figure.tree));
      top += figure.height + 4;
    }
    const said = this.note.textContent?.replace(/ Point at.*$/, "") ?? "";
    const lines = wrapped(said, 12, width);
    tree.push(...lines.map((line, number) => textAt(line, 0, top + 10 + NOTE_LINE * number, { size: 12, color: "var(--soft)" })));
    return { tree, width, height: top + NOTE_LINE * lines.length + 4 };
  }

  /** @param {Mark} mark */
  reveal(mark) {
    for (const { words, axis } of this.drawn) {
      const place = axis === "both" ? (mark.query ?? mark.key) : mark[axis];
      if (place !== null) words.reveal(place);
    }
  }

  fit() {
    for (const { words } of this.drawn) words.fit();
    this.drawOver();
  }
}

/** Returns the functions for a reader's actions on the tokens of an axis; the token that all is seen from where none is chosen is marked. @param {Paragraph} axis @param {number} number @returns {Marking} */
function markingOf(axis, number) {
  const isOf = (/** @type {Mark | null} */ mark, /** @type {number} */ place) =>
    mark !== null && (axis === "both" ? mark.query === place || mark.key === place : mark[axis] === place);
  return {
    point: (place) => pointTo(place === null ? null : markOf(axis, place)),
    choose: (place, beside) => pin(beside ? besides(markOf(axis, place)) : markOf(axis, place)),
    isChosen: (place) => isOf(state.pin, place),
    isMarked: (place) => isOf(state.mark ?? (state.pin ? null : askedToken(number)), place),
    openToken,
    interval: () => state.interval,
    keepInterval: (interval) => set({ interval, mark: null }),
  };
}

/** Returns how much of a line is within the kept interval as a sentence; "" without one. @param {Float32Array} line @param {Text} text */
function intervalSaid(line, text) {
  const { interval } = state;
  if (!interval || !text.seconds || scene.shown?.scale.change) return "";
  return ` ${weightText(shareWithin(line, text, interval))} lies within ${intervalText(interval).replace("-", "–")} s.`;
}

/** The largest number of the line that shades the text. @param {Float32Array} line @param {Axis} axis that the line is of */
function largestText(line, axis) {
  const [largest] = strongestOf(line, 1);
  const { shown } = scene;
  const place = (state.mark ?? state.pin)?.[axis] ?? null;
  const isOfHead = largest !== undefined && place !== null && shown && !shown.shades;
  const error = !isOfHead ? null : axis === "query" ? shown.errorAt(place, largest) : shown.errorAt(largest, place);
  return weightText(largest === undefined ? 0 : Math.abs(line[largest]), false, error);
}

/** @param {Paragraph} axis @param {number} place @returns {Mark} */
function markOf(axis, place) {
  const asKey = axis === "key" || (axis === "both" && state.direction === "from");
  return asKey ? { query: null, key: place } : { query: place, key: null };
}

/** The chosen token kept, and the one that is pointed at beside it: a pair. @param {Mark} mark @returns {Mark} */
function besides(mark) {
  const { pin: kept } = state;
  const place = mark.query ?? mark.key ?? 0;
  if (kept?.query !== null && kept?.query !== undefined) return { query: kept.query, key: place };
  if (kept?.key !== null && kept?.key !== undefined) return { query: place, key: kept.key };
  return mark;
}

/** The scale of shades up to the largest of some values. @param {Float32Array | null} values @param {boolean} change whether they are changes, around zero @returns {Shading} */
function shadingOf(values, change) {
  const scale = scaleUpTo(values ? largestOf(values) : 1, 0, change);
  return { values, scale: scale.steps === "lift" ? { ...scale, steps: "sqrt" } : scale };
}

/** What all heads are seen from where nothing is chosen: a turn or a token that media have for this. @param {number} number @returns {Mark | null} */
export function askedToken(number) {
  const { asked = -1 } = textOf(number, "query", sideNumber());
  return asked < 0 ? null : { query: asked, key: null };
}

/** The strip of the open head, or of the first that is listed. @param {number} number */
export function drawStrip(number) {
  const hidden = state.head !== null && state.view === "text" && !state.together;
  one("text").hidden = hidden;
  if (hidden) {
    scene.strip = null;
    one("text").replaceChildren();
    return;
  }
  if (scene.strip instanceof TextView && scene.strip.isOf(number)) return scene.strip.drawOver();
  one("text").replaceChildren();
  scene.strip = new TextView(one("text"), number, false);
}

/** @type {WeakMap<Shown, Float32Array>} */
const averages = new WeakMap();

/**
 * What a mark shades; without one what each key gets on average.
 *
 * @param {Shown} shown
 * @param {Mark | null} mark
 * @returns {Shades}
 */
function shadesOf(shown, mark) {
  if (shown.shades) return shown.shades(mark);
  if (mark?.query !== null && mark?.query !== undefined) {
    return { query: null, key: shown.line("query", mark.query), said: `what ${labelOf(shown, mark)} attends to` };
  }
  if (mark) return { query: shown.line("key", mark.key ?? 0), key: null, said: `what attends to ${labelOf(shown, mark)}` };
  if (!shown.values) return { query: null, key: null, said: "" };
  return { query: null, key: kept(averages, shown, () => averageOfKeys(shown)), said: "what each token gets on average" };
}

/** @param {Shown} shown @param {Mark} mark */
function labelOf(shown, { query, key }) {
  return `“${query !== null ? shown.queries.labels[query] : shown.keys.labels[key ?? 0]}”`;
}
