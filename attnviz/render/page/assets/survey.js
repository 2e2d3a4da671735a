/** The page of a survey: heads as points, a list of those that are brushed, and the card of one. */

import { make, one, say } from "./elements.js";
import { orderedBy, sortTurned } from "./ordering.js";
import { drawCard } from "./survey_card.js";
import { palette, readExamples, readNumbers, readTexts, survey } from "./survey_data.js";
import { drawPlot, endsOfAll, hintText, keepNumbers } from "./survey_plot.js";
import { followSurveyAddress, isNumber, LAYER, listedOfSurvey, listenToSurvey, NOTHING, numberOf, show, shown, writeSurveyAddress, written } from "./survey_state.js";

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
  const draw = () => drawPlot(numbers, choose, brush);
  listenToSurvey((changed) => {
    if (changed.has("head") || !drawn.card) drawCard(numbers, texts, examples, (step) => go(numbers, step));
    drawn.card = true;
    draw();
    fillAxes(numbers);
    fillList(numbers);
    one("hint").textContent = hintText();
    if (changed.has("head")) say(`Head ${survey.heads[shown.head]}: ${survey.patterns[shown.head]}`);
    if (changed.has("brushed")) say(hintText());
  });
  listenToKeys(numbers);
  const filter = /** @type {HTMLInputElement} */ (one("filter"));
  filter.addEventListener("input", () => show({ filter: filter.value }));
  window.addEventListener("resize", draw);
  window.addEventListener("hashchange", followSurveyAddress);
  show({ head: listedOfSurvey(numbers).heads[0] ?? 0 }, { written: false });
  await followSurveyAddress();
  writeSurveyAddress();
}

const drawn = { card: false };

/** @param {number} head */
function choose(head) {
  show({ head });
}

/** @param {Set<number> | null} brushed */
function brush(brushed) {
  show({ brushed });
}

/** The listed head so many further on. @param {SurveyNumbers} numbers @param {number} by */
function go(numbers, by) {
  const { heads } = listedOfSurvey(numbers);
  const place = heads.indexOf(shown.head);
  const next = heads[(place + by + heads.length) % heads.length];
  if (next !== undefined) show({ head: next });
}

/** The keys of the heads' page, as far as they have a meaning here. @param {SurveyNumbers} numbers */
function listenToKeys(numbers) {
  const help = /** @type {HTMLDialogElement} */ (one("help"));
  one("help-open").addEventListener("click", () => help.showModal());
  one("plot").addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [shown.across, -1], ArrowRight: [shown.across, 1], ArrowDown: [shown.up, -1], ArrowUp: [shown.up, 1] };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (!move) return;
    event.preventDefault();
    choose(neighbour(numbers, /** @type {string} */ (move[0]), Number(move[1])));
  });
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const act = {
      "?": () => help.showModal(),
      f: () => one("filter").focus(),
      "/": () => one("filter").focus(),
      "[": () => go(numbers, -1),
      "]": () => go(numbers, 1),
      Escape: () => show({ brushed: null }),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** The head before or after the chosen one by a number. @param {SurveyNumbers} numbers @param {string} name @param {number} step */
function neighbour(numbers, name, step) {
  const value = (/** @type {number} */ head) => numberOf(numbers, head, name);
  const known = survey.heads.map((_, head) => head).filter((head) => !Number.isNaN(value(head)));
  const order = known.sort((a, b) => value(a) - value(b) || a - b);
  const place = order.indexOf(shown.head) + step;
  return order[Math.min(order.length - 1, Math.max(0, place))] ?? shown.head;
}

/** The menus of the axes, and what size and colour stand for. @param {SurveyNumbers} numbers */
function fillAxes(numbers) {
  const names = [...survey.metrics.map(({ name }) => name), LAYER].filter(isNumber);
  const menus = AXES.map(([axis, label]) => {
    const menu = make("select", {
      onchange: () => {
        show({ [axis]: menu.value, brushed: axis === "size" || axis === "colour" ? shown.brushed : null });
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

/** The listed heads as links, with their numbers: the name of a number sorts by it. @param {SurveyNumbers} numbers */
function fillList(numbers) {
  const names = [...new Set([shown.across, shown.up, shown.size, shown.colour])].filter((name) => name && name !== LAYER);
  const header = make("tr", {}, ...["head", "pattern"].map((name) => make("th", { scope: "col" }, name)), ...names.map(sortHeader));
  const { heads, wrong } = listedOfSurvey(numbers);
  const rows = heads.map((head) => {
    const link = make("button", { type: "button", onclick: () => choose(head) }, survey.heads[head]);
    const cells = names.map((name) => make("td", {}, written(numberOf(numbers, head, name), name)));
    const row = make("tr", {}, make("td", {}, link), make("td", {}, survey.patterns[head]), ...cells);
    if (head === shown.head) row.setAttribute("aria-current", "true");
    return row;
  });
  one("wrong").hidden = !wrong;
  one("wrong").textContent = wrong;
  const filter = /** @type {HTMLInputElement} */ (one("filter"));
  if (document.activeElement !== filter) filter.value = shown.filter;
  one("chosen").replaceChildren(make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
}

/** @param {string} name */
function sortHeader(name) {
  const sort = shown.sort || shown.across;
  const sorted = orderedBy(sort) === name;
  const mark = sorted ? (sort.startsWith("-") ? " ↑" : " ↓") : "";
  const button = make("button", { type: "button", onclick: () => show({ sort: sortTurned(sort, name) }) }, name + mark);
  const cell = make("th", { scope: "col" }, button);
  if (sorted) cell.setAttribute("aria-sort", sort.startsWith("-") ? "ascending" : "descending");
  return cell;
}
