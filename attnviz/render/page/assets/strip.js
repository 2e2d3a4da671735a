/** The text on top of the page: always shaded by what is pointed at, and where tokens are chosen. */

import { page, textOf } from "./data.js";
import { make, one } from "./elements.js";
import { theme } from "./colors.js";
import { MovedSurface } from "./svg.js";
import { weightText } from "./quantities.js";
import { shadesOf } from "./shading.js";
import { scene, sideNumber, state } from "./state.js";
import { largestOf } from "./values.js";
import { shadingOf, Words } from "./words.js";

/** @import { Mark, Surface, View } from "./types.js" */

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
    this.note = make("p", { className: "note" });
    this.element = make("div", { className: large ? "text-large" : "text-strip" });
    parent.append(this.element);
    if (large) this.element.append(this.note);
    this.words = same
      ? [new Words(this.element, this.texts[0], "both", "The text: point at a token, or click to keep it")]
      : [this.wordsOf("query"), this.wordsOf("key")];
    this.drawOver();
  }

  /** @param {"query" | "key"} axis */
  wordsOf(axis) {
    const name = axis === "query" ? "queries" : "keys";
    this.element.append(make("h3", {}, name));
    return new Words(this.element, this.texts[axis === "query" ? 0 : 1], axis, `The ${name}: point at a token, or click to keep it`);
  }

  /** @param {number} number */
  isOf(number) {
    const texts = [textOf(number, "query", sideNumber()), textOf(number, "key", sideNumber())];
    return texts.every((text, place) => text === this.texts[place]) && page.heads[number].same === (this.words.length === 1);
  }

  drawOver() {
    const mark = state.mark ?? state.pin;
    const { shown } = scene;
    const shades = shown ? shadesOf(shown, mark) : { query: null, key: null, said: "" };
    for (const words of this.words) {
      const values = words.axis === "both" ? (shades.key ?? shades.query) : shades[words.axis];
      words.shade(shadingOf(values, shown?.scale.change ?? state.side === "change"));
    }
    this.note.textContent = this.said(shades.said, largestOf(shades.key ?? shades.query ?? []));
  }

  /** @param {string} what @param {number} largest */
  said(what, largest) {
    const rest = state.mark || state.pin ? "" : " Point at a token for what it attends to; click to keep it.";
    return what ? `Shaded: ${what}; the darkest is ${weightText(largest)}.${rest}` : rest.trim();
  }

  /** What a file of it needs: all lines. */
  wholeSize() {
    const width = this.words.reduce((most, words) => Math.max(most, words.element.clientWidth), 0);
    return { width, height: this.words.reduce((total, words) => total + words.wholeHeight + (this.words.length > 1 ? 24 : 6), 0) };
  }

  /** All lines with their shades, and no word of the page's own. @param {Surface} surface */
  drawOn(surface) {
    let top = 0;
    for (const words of this.words) {
      if (this.words.length > 1) surface.text(words.axis === "key" ? "keys" : "queries", 0, top + 8, { size: 12, color: theme().soft });
      top += this.words.length > 1 ? 20 : 0;
      words.drawOn(new MovedSurface(surface, 0, top));
      top += words.wholeHeight + 4;
    }
  }

  /** @param {Mark} mark */
  reveal(mark) {
    for (const words of this.words) words.reveal(mark);
  }

  fit() {
    for (const words of this.words) words.fit();
    this.drawOver();
  }
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
