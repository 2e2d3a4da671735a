/** The bar above a picture and the look under its legend: buttons of what means something now, from the table of choices. */

import { choose, fitView, openHead, openLens, step, zoomBy } from "./actions.js";
import { isOfMaps, valuesNow } from "./choices.js";
import { computed, effect, signal } from "./core.js";
import { page, textOf } from "./data.js";
import { one } from "./elements.js";
import { quoted } from "./formatting.js";
import { choiceButtons, titleOf } from "./keys.js";
import { drawFilter, listedHeads } from "./listing.js";
import { meaningOf, METRIC_NAMES } from "./metrics.js";
import { intervalText } from "./places.js";
import { titleOfView } from "./quantities.js";
import { firstHead, set, state } from "./state.js";
import { h, patch } from "./tree.js";

/** @import { Choice } from "./types.js" */
/** @import { Given } from "./tree.js" */

const hasToken = computed(() => Boolean(state.pin ?? state.mark)); // which a move from one token to another leaves as it is
const WIDE_WINDOW = matchMedia("(min-width: 760px)");
const isWide = signal(WIDE_WINDOW.matches);
const isOpen = computed(() => state.head !== null || state.together !== null);

/** Draws the bar, the look and the hint now and after each change of what they say. */
export function followBar() {
  const [filter, sort] = [one("filter-label"), one("sort-label")];
  effect(() => {
    const isList = !isOpen.value && page.heads.length > 1 && state.list !== "why";
    filter.hidden = sort.hidden = !isList;
    placeLook(); // first: what the bar leaves out is taken off the page
    if (isList) fillOrders();
    fill("bar", [...placeButtons(), ...(isWide.value ? [filter, sort] : []), ...shownButtons(), one("look-narrow")]);
    patch(one("look-name"), [!isList ? "Look" : state.filter ? `Sort, look (${state.filter})` : "Sort, look"]);
  });
  effect(() => fill("look", lookButtons()));
  effect(drawFilter);
  effect(drawHint);
  WIDE_WINDOW.addEventListener("change", () => (isWide.value = WIDE_WINDOW.matches));
}

/** @param {string} id @param {Given[]} parts */
function fill(id, parts) {
  patch(one(id), h("div", {}, ...parts).children);
}

/** What is open, and the way to other places. @returns {Given[]} */
function placeButtons() {
  const [order, isAlone] = [listedHeads(), page.heads.length === 1];
  const place = order.indexOf(state.head ?? -1);
  return [
    isOpen.value && !isAlone && h("button", { type: "button", class: "plain", id: "back", key: "back", onclick: () => openHead(null) }, "← All heads"),
    h("h2", { id: "head-title", tabindex: "-1", key: "title" }, titleOfView()),
    state.head !== null && !isAlone && h("span", { class: "group", key: "steppers" },
      h("button", { type: "button", id: "previous", "aria-label": "Previous head", disabled: place === 0, onclick: () => step(-1) }, "‹"),
      h("button", { type: "button", id: "next", "aria-label": "Next head", disabled: place === order.length - 1, onclick: () => step(1) }, "›"),
    ),
    ...page.table.choices.filter(({ group }) => group === "place").map(choiceButtons),
    isOpen.value && !isAlone && h("button", { type: "button", class: "plain", id: "lens-open", key: "lens", disabled: !hasToken.value, onclick: openLens }, "In all heads"),
  ];
}

/** What is shown of it. @returns {Given[]} */
function shownButtons() {
  const { interval } = state;
  const choices = page.table.choices.filter(({ group }) => group === "shown");
  const isSwitch = (/** @type {Choice} */ choice) => choice.switch && !valuesNow(choice, state, page).some(({ word }) => word === "turns");
  const switches = [
    interval && switchButton(`${intervalText(interval).replace("-", "–")} s ×`, "Show the whole sound again", true, () => set({ interval: null })),
    ...choices.map((choice) => {
      const isElsewhere = choice.name === "special" && isOfMaps(state); // it stands over the maps
      const values = isSwitch(choice) && !isElsewhere ? valuesNow(choice, state, page) : [];
      const isOn = state[choice.name] === values[1]?.word;
      return values.length > 0 && switchButton(choice.switch, choice.name === "special" && page.leftOut ? page.leftOut : titleOf(choice), isOn, () => choose(choice.name, values[isOn ? 0 : 1].word));
    }),
  ];
  return [
    ...choices.filter((choice) => !isSwitch(choice)).map(choiceButtons),
    switches.some(Boolean) && h("div", { class: "group", role: "group", "aria-label": "What rows, columns and cells are", id: "switches", key: "switches" }, ...switches),
  ];
}

/** How it looks. @returns {Given[]} */
function lookButtons() {
  const hasZoom = state.head === null ? state.together !== null || state.list === "lens" : ["matrix", "arcs"].includes(state.view);
  const zooms = /** @type {const} */ ([["zoom-out", "Zoom out", "−", () => zoomBy(-1)], ["zoom-fit", "Whole map", "Fit", fitView], ["zoom-in", "Zoom in", "+", () => zoomBy(1)]]);
  return [
    hasZoom && h("div", { class: "group", role: "group", "aria-label": "Zoom", key: "zooms" },
      ...zooms.map(([id, name, label, act]) => h("button", { type: "button", id, "aria-label": name, onclick: act }, label))),
    ...page.table.choices.filter(({ group }) => group === "look").map(choiceButtons),
  ];
}

/** @param {string} label @param {string} title @param {boolean} isOn @param {() => void} turn */
function switchButton(label, title, isOn, turn) {
  return h("button", { type: "button", key: label, "aria-pressed": isOn, title, onclick: turn }, label);
}

/** Puts the look under the legend, beside the picture that it is of; where the window is narrow, behind a button of the bar, with what orders heads. */
export function placeLook() {
  const narrow = one("look-narrow");
  narrow.hidden = isWide.value;
  if (isWide.value) one("legend").after(one("look"));
  else if (one("look").parentElement !== narrow) narrow.append(one("filter-label"), one("sort-label"), one("look")); // where one has the focus, it keeps it
}

/** Draws what a reader can do next where all heads are listed. */
export function drawHint() {
  const hint = one("keys-hint");
  const count = state.chosen.length;
  const touches = matchMedia("(hover: none)").matches;
  const click = touches ? "Touch" : "Click";
  hint.hidden = isOpen.value || page.heads.length === 1 || ["lens", "why"].includes(state.list);
  hint.textContent =
    count === 1 ? `1 head is chosen: ${touches ? "touch another to compare both, or hold it to choose more." : "choose another one to show both together. Esc lets go."}`
    : count > 1 ? `${count} heads are chosen: the buttons below show them together.${touches ? "" : " Esc lets go."}`
    : page.turns && state.by === "turns" ? `${click} a turn: what it looks at, in every head. ${click} a word of the chosen turn for its token. Heads are named and sorted by tokens.`
    : `${click} a token: every head shows what it looks at. ${touches ? "Hold a head and touch another, to compare them." : "Click a head, then Shift and click another, to compare them. ? lists the keys."}`;
}

/** Fills the list of orders that heads may stand in. */
function fillOrders() {
  const own = state.list === "lens" ? [["", recordedOrder()], ["weight", "by weight"]] : [["", "as recorded"]];
  const choices = [...own, ...METRIC_NAMES.map((name) => [name, name])];
  const options = choices.map(([value, name]) => h("option", { value, title: meaningOf(value) }, name));
  const chooseOrder = (/** @type {Event} */ { target }) => target instanceof HTMLSelectElement && set({ sort: target.value });
  patch(one("sort-label"), ["Sort ", h("select", { id: "sort", value: state.sort.replace(/^-/, ""), onchange: chooseOrder }, ...options)]);
}

/** The order of the rows of one token where none was chosen: a second token that is kept sorts them. */
function recordedOrder() {
  const { query, key } = state.pin ?? { query: null, key: null };
  if (query === null || key === null) return "as recorded";
  const second = textOf(firstHead(), state.direction === "to" ? "key" : "query");
  return `by ${quoted(second, state.direction === "to" ? key : query)}`;
}
