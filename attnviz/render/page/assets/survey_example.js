/** A text that shows a head, shaded by what a token of it looks at: the one that is kept, pointed at, or framed. */

import { page } from "./data.js";
import { percentText } from "./formatting.js";
import { drawMedium } from "./medium.js";
import { LARGEST, rowOf } from "./survey_data.js";

/** @import { Scale, SurveyExample, SurveyText } from "./types.js" */

/** @type {Scale} */
const SHADES_OF_WEIGHTS = { low: 0, high: 1, palette: page.sequential, steps: "sqrt", change: false };

export class ExampleText {
  /** @param {HTMLElement} parent with a place for the text and one for what is said of its shades @param {SurveyExample} example @param {SurveyText} text */
  constructor(parent, example, text) {
    this.example = example;
    this.text = text;
    /** @type {number | null} */
    this.pointed = null;
    /** @type {number | null} */
    this.kept = null;
    this.said = /** @type {HTMLElement} */ (parent.querySelector(".shades"));
    this.drawn = drawMedium(/** @type {HTMLElement} */ (parent.querySelector(".shaded")), text, `A ${text.images ? "picture: point at a patch" : "text: point at a token"}, or click to keep it`, {
      point: (place) => this.mark(place, this.kept),
      choose: (place) => this.mark(place, place === this.kept || !this.asksRows ? null : place),
      isChosen: (place) => place === this.query,
      isMarked: (place) => place === this.pointed,
    });
    this.shade();
  }

  /** True if the weights of every token are known. */
  get asksRows() {
    return this.example.rows > 1;
  }

  /** The token whose weights are shown; -1 for the mean of all. */
  get query() {
    return this.kept ?? (this.asksRows ? this.pointed : null) ?? this.example.query;
  }

  /** @param {number | null} pointed @param {number | null} kept */
  mark(pointed, kept) {
    if (pointed === this.pointed && kept === this.kept) return;
    [this.pointed, this.kept] = [pointed, kept];
    this.shade();
  }

  shade() {
    const { labels } = this.text;
    const values = this.example.rows ? rowOf(this.example, labels.length, this.query) : null;
    const high = this.text.images && values ? Math.max(...values) || 1 : 1; // weights on one of many patches are small
    this.drawn.shade({ values, scale: { ...SHADES_OF_WEIGHTS, high }, row: values });
    this.said.textContent = this.words(values);
  }

  /** Returns the words on what the shades show. @param {Float32Array | null} values */
  words(values) {
    const { labels, whole } = this.text;
    if (!values) return this.query < 0 ? "" : `at ${labels[this.query]}`;
    const inside = values.reduce((sum, weight) => sum + weight, 0);
    const outside = whole ? "" : `; ${Math.max(0, 1 - inside).toFixed(2)} is outside of this part`;
    const ends = this.text.images ? `, up to ${percentText(Math.max(...values), { largest: LARGEST, high: 1 })}` : "";
    const looks = this.query < 0 ? "all tokens look at on average" : `${labels[this.query]} looks at`;
    const said = `shaded: what ${looks}${ends}${outside}`;
    if (this.pointed === null || this.pointed === this.query) return said;
    return `${said}; at ${labels[this.pointed]} ${percentText(values[this.pointed], { largest: LARGEST, high: 1 })}`;
  }

  fit() {
    this.drawn.fit();
    this.shade();
  }
}
