/** The card of one head: what it does in numbers, by offset and class of token, and the texts that show it. */

import { page } from "./data.js";
import { copied } from "./dialogs.js";
import { make, one } from "./elements.js";
import { meaningOf, METRIC_NAMES, metricText, numberOf, patternOf, unitOf } from "./metrics.js";
import { set, state } from "./state.js";
import { barsOf, classesOf, stripOf } from "./survey_charts.js";
import { besideMean, decilesOf, survey } from "./survey_data.js";
import { endsOf } from "./survey_drawing.js";
import { ExampleText } from "./survey_example.js";

/** @import { SurveyExample, SurveyNumbers, SurveyText } from "./types.js" */

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
  const offsets = partOf(numbers.weights, head, survey.offsets.length);
  const scores = partOf(numbers.scores, head, survey.offsets.length);
  const entropies = partOf(numbers.entropies, head, survey.positions.length);
  const name = shownMetric(head, examples[head]);
  const listed = examples[head].filter(({ metric }) => METRIC_NAMES[metric] === name);
  const items = listed.map((example) => exampleOf(head, name, example, texts[example.text]));
  const byOffset = [ // a survey of pictures has no offsets and no positions
    titled("Mean weight by offset", barsOf(offsets, survey.offsets, "offset (key − query)", "Mean weight by offset")),
    titled("Mean score by offset", barsOf(scores, survey.offsets, "offset (key − query)", "Mean score by offset")),
  ];
  const byPosition = titled("Entropy by position, in bits", barsOf(entropies, survey.positions, "position of the query", "Mean entropy by position"));
  one("card").replaceChildren(
    headingOf(head, go),
    make(
      "div",
      { className: "charts" },
      ...(survey.offsets.length ? byOffset : []),
      titled("Share by class of token", classesOf(numbers, head)),
      ...(survey.positions.length ? [byPosition] : []),
    ),
    make("section", {}, textsHeading(name, examples[head]), ...items),
    titled("All numbers", tableOf(numbers, head)),
  );
  drawnTexts = listed.map((example, place) => new ExampleText(items[place], example, texts[example.text])); // which need a width
}

/** Breaks the lines of the texts anew for the width that there is. */
export function fitCard() {
  for (const text of drawnTexts) text.fit();
}

/** The metric that texts are listed by: the chosen one where the head has texts of it. @param {number} head @param {SurveyExample[]} examples */
function shownMetric(head, examples) {
  return examples.some(({ metric }) => METRIC_NAMES[metric] === state.textsBy) ? state.textsBy : survey.shownBy[head];
}

/** Returns the heading of the texts, with a choice of the metric if there are texts by several metrics. @param {string} name @param {SurveyExample[]} examples */
function textsHeading(name, examples) {
  const names = METRIC_NAMES.filter((_, place) => examples.some(({ metric }) => metric === place));
  const examplesBy = `${survey.noun === "texts" ? "Texts" : "Pictures"}, by `;
  if (names.length < 2) return make("h3", {}, examplesBy + name);
  const menu = make("select", { id: "texts-by", onchange: () => chooseTextsBy(menu.value) });
  menu.append(...names.map((each) => make("option", { value: each, title: meaningOf(each) }, each)));
  menu.value = name;
  return make("h3", {}, make("label", {}, examplesBy, menu));
}

/** @param {string} metric */
function chooseTextsBy(metric) {
  set({ textsBy: metric });
  one("texts-by").focus();
}

/** @param {Float32Array} numbers @param {number} head @param {number} width */
function partOf(numbers, head, width) {
  return numbers.subarray(head * width, (head + 1) * width);
}

/** @param {string} title @param {...Element} content */
function titled(title, ...content) {
  return make("section", {}, make("h3", {}, title), ...content);
}

/** @param {number} head @param {(step: number) => void} go */
function headingOf(head, go) {
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {string} */ said) => {
    const button = make("button", { type: "button", onclick: () => go(by) }, sign);
    button.setAttribute("aria-label", said);
    return button;
  };
  const group = make("span", { className: "group" }, step(-1, "‹", "Previous head"), step(1, "›", "Next head"));
  const title = make("h2", { tabIndex: -1 }, `Head ${page.heads[head].name}`);
  return make("div", { className: "card-head" }, title, group, make("span", {}, patternOf(head)));
}

/** Returns the words on a text, and the command that draws it; the text itself is drawn into it later. @param {number} head @param {string} name @param {SurveyExample} example @param {SurveyText} text */
function exampleOf(head, name, example, text) {
  const part = text.whole ? "" : ", a part of it";
  const spans = [`${name} ${metricText(name, example.value, 1)}`, `${text.place}${part}`].map((words) => make("span", {}, words));
  const why = make("p", { className: "why" }, make("b", {}, example.said), ...spans, make("span", { className: "shades" }));
  return make("div", { className: "example" }, why, make("div", { className: "shaded" }), ...commandOf(head, example.query, text));
}

/** The command that draws the head over the text again, of a picture for its query. @param {number} head @param {number} query -1 for none @param {SurveyText} text */
function commandOf(head, query, { command: [before, after], images, labels }) {
  if (!before) return [];
  const words = `${before} ${page.heads[head].name}${after}${images && query >= 0 ? ` --query '${labels[query]}'` : ""}`;
  return [make("details", {}, make("summary", {}, "Draw it exactly"), copied("Command that draws it", words))];
}

/** Every number of a head, with its interval, its spread and its deciles. @param {SurveyNumbers} numbers @param {number} head */
function tableOf(numbers, head) {
  const header = make("tr", {}, ...["metric", "mean", "± 95 %", "spread", "deciles", survey.noun].map((name, place) => cell("th", name, place > 0 && place !== 4)));
  const rows = METRIC_NAMES.map((name) => {
    const title = cell("td", name, false);
    title.title = meaningOf(name);
    const strip = make("td", {}, stripOf(numbers, head, name, endsOfMetric(numbers, name)));
    const found = [numberOf(head, name), besideMean(numbers.margins, head, name), besideMean(numbers.spreads, head, name)];
    const cells = found.map((value) => cell("td", metricText(name, value, 1), true));
    return make("tr", {}, title, ...cells, strip, cell("td", String(besideMean(numbers.counts, head, name)), true));
  });
  return make("div", { className: "wide" }, make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
}

/** The ends of all heads' strips of a metric: of a share 0 and 1. @param {SurveyNumbers} numbers @param {string} name @returns {[number, number]} */
function endsOfMetric(numbers, name) {
  if (unitOf(name) === "share") return [0, 1];
  return endsOf(page.heads.flatMap((_, head) => [0, 10].map((tenth) => decilesOf(numbers, head, name)[tenth])));
}

/** @param {"td" | "th"} kind @param {string} text @param {boolean} isNumber */
function cell(kind, text, isNumber) {
  return make(kind, { className: isNumber ? "number" : "" }, text);
}
