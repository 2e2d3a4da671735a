/** The card of one head: what it does in numbers, by offset and class of token, and the texts that show it. */

import { barsOf, sharesOf, stripOf } from "./charts.js";
import { page } from "./data.js";
import { copied } from "./dialogs.js";
import { one } from "./elements.js";
import { percentText } from "./formatting.js";
import { drawMedium } from "./medium.js";
import { meaningOf, METRIC_NAMES, metricText, numberOf, patternOf, unitOf } from "./metrics.js";
import { set, state } from "./state.js";
import { besideMean, decilesOf, LARGEST, rowOf, survey } from "./survey_data.js";
import { h, patch } from "./tree.js";
import { endsOf } from "./values.js";

/** @import { Child } from "./tree.js" */
/** @import { Scale, SurveyExample, SurveyNumbers, SurveyText } from "./types.js" */

const [LEAST_CHART, CHART_GAP] = [320, 24]; // pixels
/** @type {Scale} */
const SHADES_OF_WEIGHTS = { low: 0, high: 1, palette: page.sequential, steps: "sqrt", change: false };

/** @type {ExampleText[]} */
let drawnTexts = [];

/**
 * Draws the card of a head.
 *
 * @param {number} head
 * @param {SurveyNumbers} numbers
 * @param {SurveyText[]} texts
 * @param {SurveyExample[][]} examples
 * @param {(step: number) => void} go to the head before or after
 */
export function drawCard(head, numbers, texts, examples, go) {
  const room = one("card").clientWidth || LEAST_CHART;
  const width = Math.floor(room / Math.max(1, Math.floor((room + CHART_GAP) / (LEAST_CHART + CHART_GAP)))) - CHART_GAP;
  // Texts are listed by the chosen metric where the head has texts of it.
  const name = examples[head].some(({ metric }) => METRIC_NAMES[metric] === state.textsBy) ? state.textsBy : survey.shownBy[head];
  const listed = examples[head].filter(({ metric }) => METRIC_NAMES[metric] === name);
  const partOf = (/** @type {Float32Array} */ all, /** @type {number} */ count) => all.subarray(head * count, (head + 1) * count);
  const byOffset = (/** @type {string} */ title, /** @type {Float32Array} */ all) => titled(title, barsOf(width, partOf(all, survey.offsets.length), survey.offsets, "offset (key − query)", title));
  const shares = survey.classes.filter((each) => besideMean(numbers.counts, head, each) > 0).map((each) => {
    const [mean, margin] = [numberOf(head, each), besideMean(numbers.margins, head, each) || 0];
    const said = `${metricText(each, mean, 1)} ± ${metricText(each, margin, 1)} over ${besideMean(numbers.counts, head, each)} ${survey.noun}`;
    return { name: each, mean, margin, text: metricText(each, mean, 1), said: `${meaningOf(each)}: ${said}` };
  });
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {string} */ said) => h("button", { type: "button", "aria-label": said, onclick: () => go(by) }, sign);
  patch(one("card"), [
    h("div", { class: "card-head" }, h("h2", { tabindex: -1 }, `Head ${page.heads[head].name}`), h("span", { class: "group" }, step(-1, "‹", "Previous head"), step(1, "›", "Next head")), h("span", {}, patternOf(head))),
    h(
      "div",
      { class: "charts" },
      survey.offsets.length > 0 && byOffset("Mean weight by offset", numbers.weights),
      survey.offsets.length > 0 && byOffset("Mean score by offset", numbers.scores),
      titled("Share by class of token", sharesOf(width, shares, "Share of the weight by class of token")),
      survey.positions.length > 0 && titled("Entropy by position, in bits", barsOf(width, partOf(numbers.entropies, survey.positions.length), survey.positions, "position of the query", "Mean entropy by position")),
    ),
    h("section", {}, textsHeading(name, examples[head]), ...listed.map((example) => exampleOf(head, name, example, texts[example.text]))),
    titled("All numbers", tableOf(numbers, head)),
  ]);
  const items = [...one("card").querySelectorAll(".example")];
  drawnTexts = listed.map((example, place) => new ExampleText(items[place], example, texts[example.text])); // which need a width
}

/** Breaks the lines of the texts anew for the width that there is. */
export function fitCard() {
  for (const text of drawnTexts) text.fit();
}

/** Returns the heading of the texts, with a choice of the metric if there are texts by several metrics. @param {string} name @param {SurveyExample[]} examples */
function textsHeading(name, examples) {
  const names = METRIC_NAMES.filter((_, place) => examples.some(({ metric }) => metric === place));
  const examplesBy = `${survey.noun === "texts" ? "Texts" : "Pictures"}, by `;
  if (names.length < 2) return h("h3", {}, examplesBy + name);
  const options = names.map((each) => h("option", { value: each, title: meaningOf(each) }, each));
  const choose = (/** @type {Event} */ { target }) => set({ textsBy: /** @type {HTMLSelectElement} */ (target).value });
  return h("h3", {}, h("label", {}, examplesBy, h("select", { id: "texts-by", value: name, onchange: choose }, ...options)));
}

/** @param {string} title @param {...Child} content */
function titled(title, ...content) {
  return h("section", {}, h("h3", {}, title), ...content);
}

/** Returns the words on a text, and the command that draws it; the text itself is drawn into it later. @param {number} head @param {string} name @param {SurveyExample} example @param {SurveyText} text */
function exampleOf(head, name, example, text) {
  const part = text.whole ? "" : ", a part of it";
  const why = h("p", { class: "why" }, h("b", {}, example.said), h("span", {}, `${name} ${metricText(name, example.value, 1)}`), h("span", {}, `${text.place}${part}`), h("span", { class: "shades" }));
  return h("div", { class: "example" }, why, h("div", { class: "shaded" }), ...commandOf(head, example.query, text));
}

/** The command that draws the head over the text again, of a picture for its query. @param {number} head @param {number} query -1 for none @param {SurveyText} text */
function commandOf(head, query, { command: [before, after], images, labels }) {
  if (!before) return [];
  const words = `${before} ${page.heads[head].name}${after}${images && query >= 0 ? ` --query '${labels[query]}'` : ""}`;
  return [h("details", {}, h("summary", {}, "Draw it exactly"), copied("Command that draws it", words))];
}

/** Every number of a head, with its interval, its spread and its deciles. @param {SurveyNumbers} numbers @param {number} head */
function tableOf(numbers, head) {
  const header = ["metric", "mean", "± 95 %", "spread", "deciles", survey.noun].map((name, place) => h("th", { class: place > 0 && place !== 4 ? "number" : "" }, name));
  const rows = METRIC_NAMES.map((name) => {
    const found = [numberOf(head, name), besideMean(numbers.margins, head, name), besideMean(numbers.spreads, head, name)];
    // The ends of all heads' strips: of a share 0 and 1.
    const ends = unitOf(name) === "share" ? /** @type {[number, number]} */ ([0, 1]) : endsOf(page.heads.flatMap((_, other) => [0, 10].map((tenth) => decilesOf(numbers, other, name)[tenth])));
    const deciles = decilesOf(numbers, head, name);
    const said = [1, 5, 9].map((tenth) => `${10 * tenth} % below ${metricText(name, deciles[tenth], 1)}`).join(", ");
    const cells = found.map((value) => h("td", { class: "number" }, metricText(name, value, 1)));
    return h("tr", {}, h("td", { title: meaningOf(name) }, name), ...cells, h("td", {}, stripOf(deciles, ends, said)), h("td", { class: "number" }, besideMean(numbers.counts, head, name)));
  });
  return h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ...header)), h("tbody", {}, ...rows)));
}

/** A text that shows a head, shaded by what a token of it looks at: the one that is kept, pointed at, or framed. */
class ExampleText {
  /** @param {Element} parent with a place for the text and one for what is said of its shades @param {SurveyExample} example @param {SurveyText} text */
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
