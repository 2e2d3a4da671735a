/** The page of a survey: heads as points, a list of those that are brushed, and the card of one. */

import { make, one, say } from "./elements.js";
import { drawCard } from "./survey_card.js";
import { palette, readExamples, readNumbers, readTexts, survey } from "./survey_data.js";
import { drawPlot, endsOfAll, hintText, keepNumbers } from "./survey_plot.js";
import { isNumber, LAYER, NOTHING, numberOf, readAddress, shown, writeAddress, written } from "./survey_state.js";

/** @import { SurveyNumbers } from "./types.js" */

const AXES = /** @type {const} */ ([
  ["across", "Across"],
  ["up", "Up"],
  ["size", "Size"],
  ["colour", "Colour"],
]);

document.addEventListener("DOMContentLoaded", start); // when the numbers after this script are there

async function start() {
  const [numbers, texts] = await Promise.all([readNumbers(), readTexts()]);
  const examples = await readExamples(texts);
  keepNumbers(numbers);

  const draw = () => {
    drawPlot(numbers, choose, brush);
    fillAxes(numbers, draw);
    fillList(numbers, choose);
    one("hint").textContent = hintText();
    writeAddress();
  };
  const choose = (/** @type {number} */ head) => {
    shown.head = head;
    drawCard(numbers, texts, examples, go);
    draw();
    say(`Head ${survey.heads[head]}: ${survey.patterns[head]}`);
  };
  const go = (/** @type {number} */ step) => choose((shown.head + step + survey.heads.length) % survey.heads.length);
  const brush = (/** @type {Set<number> | null} */ heads) => {
    shown.brushed = heads;
    draw();
    say(hintText());
  };

  one("plot").addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [shown.across, -1], ArrowRight: [shown.across, 1], ArrowDown: [shown.up, -1], ArrowUp: [shown.up, 1] };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (!move) return;
    event.preventDefault();
    choose(neighbour(numbers, /** @type {string} */ (move[0]), Number(move[1])));
  });
  document.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && shown.brushed) brush(null);
    if (event.key === "[") go(-1);
    if (event.key === "]") go(1);
  });
  window.addEventListener("resize", () => drawPlot(numbers, choose, brush));
  window.addEventListener("hashchange", () => {
    readAddress();
    choose(shown.head);
  });
  shown.head = ranked(numbers)[0];
  readAddress();
  choose(shown.head);
}

/** The heads that are brushed, or all, the largest first by the number across. @param {SurveyNumbers} numbers */
function ranked(numbers) {
  const value = (/** @type {number} */ head) => numberOf(numbers, head, shown.across);
  const heads = survey.heads.map((_, head) => head).filter((head) => shown.brushed?.has(head) ?? true);
  return heads.sort((a, b) => (Number.isNaN(value(a)) ? 1 : Number.isNaN(value(b)) ? -1 : value(b) - value(a)));
}

/** The head before or after the chosen one by a number. @param {SurveyNumbers} numbers @param {string} name @param {number} step */
function neighbour(numbers, name, step) {
  const value = (/** @type {number} */ head) => numberOf(numbers, head, name);
  const known = survey.heads.map((_, head) => head).filter((head) => !Number.isNaN(value(head)));
  const order = known.sort((a, b) => value(a) - value(b) || a - b);
  const place = order.indexOf(shown.head) + step;
  return order[Math.min(order.length - 1, Math.max(0, place))] ?? shown.head;
}

/** The menus of the axes, and what size and colour stand for. @param {SurveyNumbers} numbers @param {() => void} draw */
function fillAxes(numbers, draw) {
  const names = [...survey.metrics.map(({ name }) => name), LAYER].filter(isNumber);
  const menus = AXES.map(([axis, label]) => {
    const menu = make("select", {
      onchange: () => {
        shown[axis] = menu.value;
        shown.brushed = axis === "size" || axis === "colour" ? shown.brushed : null;
        draw();
        document.getElementById(`axis-${axis}`)?.focus();
      },
    });
    menu.id = `axis-${axis}`;
    const choices = axis === "size" ? [NOTHING, ...names] : names;
    menu.append(...choices.map((name) => make("option", { value: name }, name || "the same")));
    menu.value = shown[axis];
    return make("label", {}, label, " ", menu);
  });
  one("axes").replaceChildren(...menus, legendOf(numbers));
}

/** What the ends of the colours are. @param {SurveyNumbers} numbers */
function legendOf(numbers) {
  const [low, high] = endsOfAll(numbers, shown.colour).map((end) => written(end, shown.colour));
  const at = (/** @type {number} */ share) => {
    const place = 3 * Math.round(255 * share);
    return `rgb(${palette.subarray(place, place + 3).join(", ")})`;
  };
  const bar = make("span", { className: "legend-bar" });
  bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(at).join(", ")})`;
  return make("span", { className: "legend-line" }, low, bar, high);
}

/** The heads that are brushed, or all, as a list of links. @param {SurveyNumbers} numbers @param {(head: number) => void} choose */
function fillList(numbers, choose) {
  const names = [...new Set([shown.across, shown.up, shown.size, shown.colour])].filter((name) => name && name !== LAYER);
  const header = make("tr", {}, ...["head", "pattern", ...names].map((name) => make("th", {}, name)));
  const rows = ranked(numbers).map((head) => {
    const link = make("button", { type: "button", onclick: () => choose(head) }, survey.heads[head]);
    const cells = names.map((name) => make("td", {}, written(numberOf(numbers, head, name), name)));
    const row = make("tr", {}, make("td", {}, link), make("td", {}, survey.patterns[head]), ...cells);
    if (head === shown.head) row.setAttribute("aria-current", "true");
    return row;
  });
  one("chosen").replaceChildren(make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
}
