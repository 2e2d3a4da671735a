/** The page of a survey: heads as points, by layers or in numbers, a list of those that are listed, and the card of one. */

import { choiceOf } from "./choices.js";
import { contextOf, theme } from "./colors.js";
import { effect, untracked } from "./core.js";
import { headTitle, page } from "./data.js";
import { listenToKeys, listenToWindow, openLink } from "./dialogs.js";
import { one, say, scrollingTable } from "./elements.js";
import { scaleBar } from "./figure.js";
import { inOrder, LAYER } from "./filter.js";
import { canvasOf, drawGrid, fitGrid, listenToGrid } from "./head_grid.js";
import { headTable } from "./head_table.js";
import { bindKeys, choiceButtons, openActions, openKeys, press } from "./keys.js";
import { drawFilter, listedHeads, listenToFilter, sortNext, turnOrder } from "./listing.js";
import { METRIC_NAMES, metricText, numberOf, patternOf } from "./metrics.js";
import { openNotes, original, startStory } from "./notes.js";
import { followAddress, set, state } from "./state.js";
import { drawCard, fitCard } from "./survey_card.js";
import { readExamples, readSurveyNumbers, readTexts } from "./survey_data.js";
import { colouredBy, colourOf, drawPlot, endsOfAll, hintText, SHARES } from "./survey_plot.js";
import { h, patch } from "./tree.js";

/** @import { SurveyExample, SurveyNumbers, SurveyText } from "./types.js" */
/** @import { ThumbAbout } from "./head_grid.js" */
/** @import { Act } from "./keys.js" */

/** @typedef {{ numbers: SurveyNumbers, texts: SurveyText[], examples: SurveyExample[][] }} ReadSurvey */

const MENUS = /** @type {const} */ ([["across", "Across"], ["up", "Up"], ["sized", "Size"], ["colour", "Colour"]]);
/** @type {Record<string, Act>} */
const ACTS = {
  move: (place, target) => target.id === "plot" && moveAmongPoints(place),
  back: () => set(state.noting ? { noting: false } : { brushed: null }),
  step: (place) => go(place ? 1 : -1),
  find: () => one("filter").focus(),
  filter: () => one("filter").focus(),
  sort: (place) => sortNext(place ? -1 : 1),
  reverse: turnOrder,
  copy: () => openLink(),
  actions: openActions,
  help: openKeys,
};
const lists = choiceOf("list", page);

original.root = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
document.addEventListener("DOMContentLoaded", start); // when the numbers after this script are there

async function start() {
  const [numbers, texts] = await Promise.all([readSurveyNumbers(), readTexts()]);
  const survey = { numbers, texts, examples: await readExamples(texts) };
  const draw = () => {
    drawCardOf(survey);
    drawHeads(survey);
  };
  listenToFilter();
  bindKeys({ choices: [lists], choose: (name, word) => set({ [name]: word }), acts: ACTS });
  listenToKeys(press);
  listenToGrid();
  listenToWindow({ "help-open": openKeys, "notes-open": openNotes, "share-open": () => openLink() }, () => followAddress(), () => fitAll(survey), draw);
  followAddress();
  followState(survey);
  if (page.notes.length) startStory(0);
}

/** Draws the survey now and what changes of it from then on: the card of a head, or all heads. @param {ReadSurvey} survey */
function followState(survey) {
  effect(() => {
    if (state.head === null) set({ head: listedHeads()[0] ?? 0, unknown: state.unknown }, { written: false });
    else say(`${headTitle(state.head)}: ${patternOf(state.head)}`);
  });
  effect(() => drawCardOf(survey));
  effect(() => drawHeads(survey));
  let { brushed } = state;
  effect(() => {
    if (state.brushed !== brushed) say(untracked(hintText));
    ({ brushed } = state);
  });
}

/** @param {ReadSurvey} survey */
function drawCardOf({ numbers, texts, examples }) {
  const head = state.head ?? 0;
  document.title = `${headTitle(head)} · ${page.title}`;
  drawCard(head, numbers, texts, examples, go);
}

/** Draws all heads as they are shown now, and the list of them. @param {ReadSurvey} survey */
function drawHeads({ numbers }) {
  const { list } = state;
  patch(one("lists"), h("div", {}, choiceButtons(lists)).children);
  drawFilter();
  fillAxes();
  for (const [name, shown] of /** @type {const} */ ([["plot", "points"], ["overview", "maps"]])) one(name).hidden = list !== shown;
  one("axes").hidden = list === "numbers";
  one("hint").hidden = list !== "points";
  one("chosen").classList.toggle("whole", list === "numbers");
  if (list === "points") drawPlot(numbers, choose, brush);
  if (list === "maps") drawLayers();
  one("hint").textContent = hintText();
  drawList();
}

/** Takes the room that there is now. @param {ReadSurvey} survey */
function fitAll({ numbers }) {
  if (state.list === "points") drawPlot(numbers, choose, brush);
  if (state.list === "maps") fitGrid();
  fitCard();
}

/** @param {number} head */
function choose(head) {
  set({ head });
}

/** @param {Set<number> | null} brushed */
function brush(brushed) {
  set({ brushed });
}

/** The listed head so many further on. @param {number} by */
function go(by) {
  const heads = listedHeads();
  const next = heads[(heads.indexOf(state.head ?? 0) + by + heads.length) % heads.length];
  if (next !== undefined) choose(next);
}

/** Goes from a point to the next one by the number across, or up. @param {number} arrow left, up, down or right */
function moveAmongPoints(arrow) {
  const [name, step] = /** @type {[string, number][]} */ ([[state.across, -1], [state.up, 1], [state.up, -1], [state.across, 1]])[arrow];
  const known = [...page.heads.keys()].filter((head) => !Number.isNaN(numberOf(head, name)));
  const order = inOrder(known, `-${name}`, (head) => numberOf(head, name));
  const place = order.indexOf(state.head ?? 0) + step;
  choose(order[Math.min(order.length - 1, Math.max(0, place))] ?? 0);
}

/** The menus of the axes, and what the ends of the colours are. */
function fillAxes() {
  const names = state.list === "maps" ? METRIC_NAMES : [...METRIC_NAMES, LAYER];
  const menus = MENUS.filter(([axis]) => state.list !== "maps" || axis === "colour").map(([axis, label]) => {
    const moves = axis === "across" || axis === "up"; // the brushed heads are elsewhere then
    const turn = (/** @type {Event} */ { target }) => set({ [axis]: /** @type {HTMLSelectElement} */ (target).value, ...(moves ? { brushed: null } : {}) });
    const options = (axis === "sized" ? ["", ...names] : names).map((name) => h("option", { value: name }, name || "the same"));
    return h("label", { key: axis }, label, " ", h("select", { id: `axis-${axis}`, value: axis === "colour" ? colouredBy() : state[axis], onchange: turn }, ...options));
  });
  const ends = endsOfAll(colouredBy()).map((end) => metricText(colouredBy(), end));
  patch(one("axes"), [...menus, h("span", { class: "legend" }, scaleBar(SHARES, ends))]);
}

/** Draws the heads by layers, each in the colour of its number; those that are not listed are pale. */
function drawLayers() {
  const heads = page.heads.map((_, head) => head).sort((one, two) => page.heads[one].layer - page.heads[two].layer || page.heads[one].head - page.heads[two].head);
  const metric = colouredBy();
  const [ends, listed] = [endsOfAll(metric), new Set(listedHeads())];
  const paint = (/** @type {number[]} */ numbers) => {
    for (const number of numbers) {
      const context = contextOf(canvasOf(number));
      context.fillStyle = colourOf(number, ends);
      context.fillRect(0, 0, 1, 1);
    }
  };
  /** @returns {ThumbAbout} */
  const aboutThumb = (/** @type {number} */ head, /** @type {boolean} */ named) => {
    const value = metricText(metric, numberOf(head, metric));
    const title = [headTitle(head), `${metric} ${value}`, patternOf(head)].join(" · ");
    return { title, label: title.replaceAll(" · ", ", "), names: [named && h("b", {}, page.heads[head].name), value].filter(Boolean), isOut: !listed.has(head) };
  };
  const name = [heads.join(), metric, [...listed].join(), theme().paper].join(" ");
  drawGrid(name, heads, false, { ratioOf: () => 1, cellsAcross: () => 1, aboutThumb, open: choose, toggle: null, paint });
}

/** Draws the list of heads: in the numbers of the points, or in all. */
function drawList() {
  const heads = listedHeads();
  const points = [...new Set([state.across, state.up, state.sized, state.colour])].filter((name) => name && name !== LAYER);
  const names = state.list === "numbers" ? METRIC_NAMES : points;
  const caption = `${heads.length} of ${page.heads.length} heads in numbers: a number opens its head, a metric’s name sorts by it`;
  patch(one("chosen"), [scrollingTable(headTable(heads, names, caption, choose))]);
}
