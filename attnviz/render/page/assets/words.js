/** The text itself, shaded by what the chosen token attends to or by what attends to it. */

import { drawMarks, pin, pointTo } from "./actions.js";
import { scaleUpTo, theme } from "./colors.js";
import { fillChoices, make } from "./elements.js";
import { quoted } from "./formatting.js";
import { weightText } from "./quantities.js";
import { faded, hueOf, inkOn, mixed, strengthOf } from "./scales.js";
import { state } from "./state.js";
import { ABSENT, averageOfKeys, largestOf } from "./values.js";

/** @import { Axis, Mark, Scale, Shown, View } from "./types.js" */

/** @typedef {Axis | "both"} Paragraph the queries, the keys, or both where they are the same tokens */

/** @type {["to" | "from", string][]} */
const DIRECTIONS = [["to", "what it attends to"], ["from", "what attends to it"]];

/** @implements {View} */
export class WordsView {
  /** @param {HTMLElement} parent @param {Shown} shown */
  constructor(parent, shown) {
    this.shown = shown;
    this.element = make("div");
    this.directions = make("div", { className: "group" });
    this.directions.setAttribute("role", "group");
    this.directions.setAttribute("aria-label", "What the shading shows");
    this.note = make("p", { className: "note" });
    /** @type {Paragraph[]} */
    this.axes = shown.same ? ["both"] : ["query", "key"];
    /** @type {Record<Paragraph, HTMLElement[]>} */
    this.tokens = { query: [], key: [], both: [] };
    /** @type {HTMLElement[]} */
    this.chosen = [];
    /** @type {Map<HTMLElement, number>} of each token, as it is now */
    this.shades = new Map();
    this.element.append(...(shown.same ? [this.directions] : []), this.note);
    for (const axis of this.axes) this.element.append(this.paragraph(axis));
    parent.append(this.element);
    if (shown.same) this.addDirections();
    this.drawOver();
  }

  /** @param {Paragraph} axis */
  paragraph(axis) {
    const text = axis === "key" ? this.shown.keys : this.shown.queries;
    const paragraph = make("p", { className: "words", dir: "auto" });
    if (!this.shown.same) paragraph.append(make("h3", {}, axis === "query" ? "queries" : "keys"));
    this.tokens[axis] = text.labels.map((label, place) => {
      const token = make("button", { type: "button", className: "token", tabIndex: place ? -1 : 0 }, label);
      token.dataset.place = String(place);
      const space = text.spaces[place];
      if (space === "\n" && place) paragraph.append(make("br"));
      else if (space === " " && place) paragraph.append(" ");
      else if (place) paragraph.append(make("wbr"));
      paragraph.append(token);
      return token;
    });
    const markAt = (/** @type {Event} */ { target }) => {
      const token = /** @type {Element} */ (target).closest(".token");
      return token instanceof HTMLElement ? this.markOf(axis, Number(token.dataset.place)) : null;
    };
    paragraph.addEventListener("pointermove", (event) => event.pointerType !== "touch" && pointTo(markAt(event)));
    paragraph.addEventListener("pointerleave", () => pointTo(null));
    paragraph.addEventListener("click", (event) => {
      const mark = markAt(event);
      if (mark) pin(mark);
    });
    return paragraph;
  }

  /** @param {Paragraph} axis @param {number} place @returns {Mark} */
  markOf(axis, place) {
    const asKey = axis === "key" || (axis === "both" && state.direction === "from");
    return asKey ? { query: null, key: place } : { query: place, key: null };
  }

  addDirections() {
    fillChoices(this.directions, DIRECTIONS, state.direction, (direction) => this.turn(direction));
  }

  /** @param {"to" | "from"} direction */
  turn(direction) {
    state.direction = direction;
    const place = state.pin?.query ?? state.pin?.key;
    if (place !== undefined && place !== null) state.pin = this.markOf("both", place);
    this.addDirections();
    drawMarks();
  }

  drawOver() {
    const mark = state.mark || state.pin;
    const shades = mark ? this.shadesOf(mark) : {};
    const average = mark ? null : averageOfKeys(this.shown);
    const largest = largestOf(average ?? Object.values(shades)[0]);
    const scale = scaleUpTo(largest);
    for (const axis of this.axes) {
      const values = shades[axis] ?? (axis === "query" ? null : average);
      this.tokens[axis].forEach((token, place) => this.shade(token, values ? values[place] : 0, scale));
    }
    this.note.textContent = this.noteOf(mark, largest);
    this.markChosen(mark);
  }

  /** What the shading shows. @param {Mark | null} mark @param {number} largest */
  noteOf(mark, largest) {
    const darkest = mark || this.shown.values ? `; the darkest is ${weightText(largest)}` : "";
    if (mark) {
      const name = this.nameOf(mark);
      return `Shaded: ${mark.query !== null ? `what ${name} attends to` : `what attends to ${name}`}${darkest}.`;
    }
    const what = this.shown.values ? "how much each token is attended to on average" : "nothing";
    return `Shaded: ${what}${darkest}. Point at a token for what it attends to; click to keep it.`;
  }

  /** @param {Mark | null} mark */
  markChosen(mark) {
    for (const token of this.chosen) token.classList.remove("chosen");
    this.chosen = this.axes.flatMap((axis) => {
      const place = axis === "both" ? (mark?.query ?? mark?.key) : mark?.[axis];
      return place === null || place === undefined ? [] : [this.tokens[axis][place]];
    });
    for (const token of this.chosen) token.classList.add("chosen");
  }

  /** @param {Mark} mark */
  nameOf({ query, key }) {
    return query !== null ? quoted(this.shown.queries, query) : quoted(this.shown.keys, key ?? 0);
  }

  /** What is shaded, and how much. @param {Mark} mark @returns {Partial<Record<Paragraph, Float32Array>>} */
  shadesOf({ query, key }) {
    const { same } = this.shown;
    if (query !== null) return { [same ? "both" : "key"]: this.shown.line("query", query) };
    return { [same ? "both" : "query"]: this.shown.line("key", key ?? 0) };
  }

  /** @param {HTMLElement} token @param {number} value @param {Scale} scale */
  shade(token, value, scale) {
    const part = strengthOf(value, scale);
    const opacity = Math.round(78 * part) / 100;
    const shade = value === ABSENT || Number.isNaN(value) ? value : value < 0 ? -opacity : opacity;
    if (Object.is(this.shades.get(token), shade)) return;
    this.shades.set(token, shade);
    const hue = theme()[hueOf(value, scale)];
    token.style.backgroundColor = opacity ? faded(hue, opacity) : "";
    token.style.color = opacity > 0.2 ? inkOn(mixed(theme().paper, hue, opacity)) : "";
    token.classList.toggle("absent", value === ABSENT);
    token.classList.toggle("nan", Number.isNaN(value));
  }

  /** @param {Mark} mark */
  reveal({ query, key }) {
    const token = this.tokens[this.shown.same ? "both" : query !== null ? "query" : "key"][query ?? key ?? 0];
    token.focus({ preventScroll: true });
    token.scrollIntoView({ block: "nearest" });
  }

  fit() {}
}
