/** The card of one head: what it does in numbers, by offset and class of token, and the texts that show it. */

import { make, one, say } from "./elements.js";
import { barsOf, classesOf, stripOf } from "./survey_charts.js";
import { rowOf, survey } from "./survey_data.js";
import { endsOf } from "./survey_drawing.js";
import { placeOf, shown, written } from "./survey_state.js";

/** @import { SurveyExample, SurveyNumbers, SurveyText } from "./types.js" */

const OPACITY_OF_ALL = 0.82; // of the weight 1

/**
 * Draws the card of the head that is shown.
 *
 * @param {SurveyNumbers} numbers
 * @param {SurveyText[]} texts
 * @param {SurveyExample[][]} examples
 * @param {(step: number) => void} go to the head before or after
 */
export function drawCard(numbers, texts, examples, go) {
  const head = shown.head;
  const offsets = partOf(numbers.weights, head, survey.offsets.length);
  const scores = partOf(numbers.scores, head, survey.offsets.length);
  const entropies = partOf(numbers.entropies, head, survey.positions.length);
  one("card").replaceChildren(
    headingOf(head, go),
    make(
      "div",
      { className: "charts" },
      titled("Mean weight by offset", barsOf(offsets, survey.offsets, "offset (key − query)", "Mean weight by offset")),
      titled("Mean score by offset", barsOf(scores, survey.offsets, "offset (key − query)", "Mean score by offset")),
      titled("Share by class of token", classesOf(numbers, head)),
      titled("Entropy by position, in bits", barsOf(entropies, survey.positions, "position of the query", "Mean entropy by position")),
    ),
    titled(`Texts, by ${survey.metrics[survey.shownBy[head]].name}`, ...examples[head].map((each) => exampleOf(each, texts[each.text]))),
    titled("All numbers", tableOf(numbers, head)),
  );
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
  return make(
    "div",
    { className: "card-head" },
    make("h2", { tabIndex: -1 }, `Head ${survey.heads[head]}`),
    group,
    make("span", {}, survey.patterns[head]),
  );
}

/** A text, shaded by what its query looks at, or by what the token that is pointed at does. @param {SurveyExample} example @param {SurveyText} text */
function exampleOf(example, text) {
  const { name } = survey.metrics[survey.shownBy[shown.head]];
  const line = make("p", { className: "shaded", dir: "auto" });
  const tokens = text.labels.map((label, place) => {
    const token = make("span", { className: "token" }, label);
    if (place && text.spaces[place] !== "-") line.append(" ");
    line.append(token);
    return token;
  });
  if (!text.whole) line.prepend("… ");
  const shade = (/** @type {number} */ query) => {
    const weights = example.rows ? rowOf(example, tokens.length, query) : null;
    tokens.forEach((token, place) => shadeToken(token, weights ? weights[place] : 0, place === query));
    said.textContent = saidOf(example, text, tokens.length, query);
  };
  const said = make("span");
  if (example.rows > 1) {
    line.addEventListener("pointerover", ({ target }) => {
      const place = tokens.indexOf(/** @type {HTMLSpanElement} */ (target));
      if (place >= 0) shade(place);
    });
    line.addEventListener("pointerleave", () => shade(example.query));
  }
  shade(example.query);
  const spans = [`${name} ${written(example.value, name)}`, text.place].map((words) => make("span", {}, words));
  const why = make("p", { className: "why" }, make("b", {}, example.said), ...spans, said);
  return make("div", { className: "example" }, why, line, ...commandOf(text));
}

/** What the shades are of. @param {SurveyExample} example @param {SurveyText} text @param {number} count @param {number} query */
function saidOf(example, text, count, query) {
  if (!example.rows) return query < 0 ? "" : `at ${text.labels[query]}`;
  const of = query < 0 ? "the mean of all tokens" : text.labels[query];
  if (text.whole) return `shaded: what ${of} looks at`;
  const inside = rowOf(example, count, query).reduce((sum, weight) => sum + weight, 0);
  return `shaded: what ${of} looks at; ${Math.max(0, 1 - inside).toFixed(2)} is outside of this part`;
}

/** @param {HTMLElement} token @param {number} weight @param {boolean} isQuery */
function shadeToken(token, weight, isQuery) {
  const strength = Math.sqrt(weight) * OPACITY_OF_ALL;
  token.style.backgroundColor = strength > 0.02 ? `color-mix(in srgb, var(--arc) ${Math.round(100 * strength)}%, transparent)` : "";
  token.style.color = strength > 0.5 ? "var(--paper)" : "";
  token.title = weight ? `${(100 * weight).toFixed(1)} %` : "";
  token.classList.toggle("chosen", isQuery);
}

/** The command that draws the head over the text again. @param {SurveyText} text */
function commandOf({ command: [before, after] }) {
  if (!before) return [];
  const words = `${before} ${survey.heads[shown.head]}${after}`;
  const copy = make("button", { type: "button", className: "plain", onclick: () => copyWords(words) }, "Copy");
  return [make("details", {}, make("summary", {}, "Draw it exactly"), make("code", {}, words), copy)];
}

/** @param {string} words */
async function copyWords(words) {
  try {
    await navigator.clipboard.writeText(words);
    say("Copied");
  } catch {
    say("Not copied; mark the command and copy it by the keyboard");
  }
}

/** Every number of a head, with its interval, its spread and its deciles. @param {SurveyNumbers} numbers @param {number} head */
function tableOf(numbers, head) {
  const header = make("tr", {}, ...["metric", "mean", "± 95 %", "spread", "deciles", "texts"].map((name, place) => cell("th", name, place > 0 && place !== 4)));
  const rows = survey.metrics.flatMap(({ name, meaning }, place) => {
    if (!survey.known[place]) return [];
    const at = head * survey.metrics.length + place;
    const title = cell("td", name, false);
    title.title = meaning;
    const strip = make("td", {}, stripOf(numbers, head, name, endsOfMetric(numbers, name)));
    const [mean, margin, spread] = [numbers.means, numbers.margins, numbers.spreads].map((each) => written(each[at], name));
    const found = [mean, margin, spread].map((text) => cell("td", text, true));
    return [make("tr", {}, title, ...found, strip, cell("td", String(numbers.counts[at]), true))];
  });
  return make("div", { className: "wide" }, make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
}

/** The ends of all heads' strips of a metric: of a share 0 and 1. @param {SurveyNumbers} numbers @param {string} name @returns {[number, number]} */
function endsOfMetric(numbers, name) {
  const place = placeOf(name);
  if (survey.metrics[place].unit === "share") return [0, 1];
  const all = survey.heads.flatMap((_, head) => [0, 10].map((tenth) => numbers.deciles[11 * (head * survey.metrics.length + place) + tenth]));
  return endsOf(all);
}

/** @param {"td" | "th"} kind @param {string} text @param {boolean} isNumber */
function cell(kind, text, isNumber) {
  return make(kind, { className: isNumber ? "number" : "" }, text);
}
