/** The keys, the list of keys and the list of all actions: what the table says, done by the functions that are named here. */

import { choose, chooseNext, findToken, fitView, isSameMark, letGo, moveEnd, moveMark, openLens, pin, step, zoomBy } from "./actions.js";
import { missingFact } from "./choices.js";
import { page } from "./data.js";
import { openHelp } from "./dialogs.js";
import { one, say } from "./elements.js";
import { orderedBy, sortTurned } from "./filter.js";
import { sortMetric } from "./listing.js";
import { METRIC_NAMES } from "./metrics.js";
import { stepNotes } from "./notes.js";
import { openShare, saveSvg } from "./save.js";
import { scene, set, state } from "./state.js";
import { h, patch } from "./tree.js";

/** @import { Mark } from "./types.js" */

/** @typedef {{ key: string, name: string, needs: string[], act: (target: HTMLElement) => unknown }} Bound an action of a key; one that does nothing here, where the browser's own stays, returns false */

/** @type {[number, number][]} how far the arrows move, down and right: left, up, down, right */
const ARROWS = [[0, -1], [-1, 0], [1, 0], [0, 1]];
const FAR = 10; // cells

/** What actions do, by their names in the table: with the number of the key, and the element that has the focus. @type {Record<string, (place: number, target: HTMLElement) => unknown>} */
const ACTS = {
  move: (place, target) => moveBy(place, 1, target),
  "move far": (place, target) => moveBy(place, FAR, target),
  "keep seconds": (place) => moveEnd(place ? 1 : -1),
  open: (_, target) => isInView(target) && !target.closest(".token") && state.mark !== null && keepAndFly(state.mark),
  back: letGo,
  choose: () => false, // thumbnails listen to this key
  step: (place) => step(place ? 1 : -1),
  find: () => one("find").focus(),
  "find again": (place) => (state.found.text ? findToken(state.found.text, { by: place ? -1 : 1 }) : one("find").focus()),
  filter: () => one("filter").focus(),
  sort: (place) => {
    const orders = ["", ...METRIC_NAMES];
    set({ sort: orders[(orders.indexOf(orderedBy(state.sort)) + (place ? -1 : 1) + orders.length) % orders.length] });
  },
  reverse: () => (sortMetric() ? set({ sort: sortTurned(state.sort, orderedBy(state.sort)) }) : refuse("sort by a metric first: o")),
  lens: openLens,
  why: () => {
    if (!isSameMark(state.mark ?? state.pin, state.pin)) pin(state.mark);
    document.querySelector(".why")?.scrollIntoView({ block: "nearest" });
  },
  zoom: (place) => (place === 2 ? fitView() : zoomBy(place ? -1 : 1)),
  copy: () => openShare(),
  save: saveSvg,
  actions: openActions,
  help: openKeys,
};

/** Keeps what is marked, and flies to a cell that is too small to be read. @param {Mark} mark */
function keepAndFly(mark) {
  pin(mark);
  if (state.pin) scene.current?.stage?.fly(mark);
}

/** All keys, in the order in which those of one key are tried. @type {Bound[]} */
const BOUND = [
  ...page.table.choices.flatMap((choice) => [
    ...(choice.key ? [{ key: choice.key, name: choice.does, needs: choice.needs, act: () => chooseNext(choice) }] : []),
    ...choice.values.flatMap(({ word, label, key, needs }) => {
      const name = `${choice.title}: ${label}`;
      return key || !choice.switch ? [{ key, name, needs: [...choice.needs, ...needs], act: () => choose(choice.name, word) }] : [];
    }),
  ]),
  ...page.table.actions.flatMap(({ name, keys, names, needs }) =>
    keys.map((key, place) => ({ key, name: names[place] ?? "", needs, act: (/** @type {HTMLElement} */ target) => ACTS[name](place, target) })),
  ),
];

/** Does what a key does here, or says what it needs; false if it does nothing. @param {string} key @param {HTMLElement} target */
export function press(key, target) {
  if (state.noting && (key === "ArrowLeft" || key === "ArrowRight")) return stepNotes(key === "ArrowLeft" ? -1 : 1);
  const bound = BOUND.filter((each) => each.key === key);
  const meant = bound.find(({ needs }) => missingFact(needs, state, page) === undefined);
  if (meant) return meant.act(target);
  return bound.length > 0 && refuse(page.table.facts[missingFact(bound[0].needs, state, page) ?? ""]);
}

/** Tells a reader why a key does nothing. @param {string} reason */
function refuse(reason) {
  set({ unknown: `${reason[0].toUpperCase()}${reason.slice(1)}.` });
  say(reason);
}

/** @param {HTMLElement} target */
function isInView(target) {
  return target.closest(".stage, .words, .patches, .waveform") !== null || target === document.body || target.id === "head-title";
}

/** @param {number} arrow @param {number} far @param {HTMLElement} target */
function moveBy(arrow, far, target) {
  const [down, right] = ARROWS[arrow];
  const moves = scene.shown !== null && isInView(target) && (state.view !== "table" || state.head === null);
  return moves && moveMark(far * down, far * right);
}

/** Shows the keys. */
export function openKeys() {
  const rows = [...page.table.choices.map(({ key, values, does }) => ({ keys: [key, ...values.map((value) => value.key)], does })), ...page.table.actions];
  const known = (/** @type {string} */ key) => page.table.keyNames[key.replace("Shift+", "")] ?? key.replace("Shift+", "");
  patch(one("keys"), rows.flatMap(({ keys, does }) => {
    const named = keys.filter(Boolean).flatMap((key, place) => [...(place === 0 && key.startsWith("Shift+") ? ["Shift"] : []), known(key)]);
    return named.length ? [h("tr", {}, h("td", {}, ...named.flatMap((name) => [h("kbd", {}, name), " "])), h("td", {}, does))] : [];
  }));
  openHelp();
}

/** Shows everything that can be done here, to be found by its words. */
function openActions() {
  const dialog = /** @type {HTMLDialogElement} */ (one("actions"));
  const now = BOUND.filter(({ name, needs }) => name && missingFact(needs, state, page) === undefined);
  const { activeElement } = document;
  const act = (/** @type {Bound} */ bound) => {
    dialog.close();
    bound.act(activeElement instanceof HTMLElement ? activeElement : document.body);
  };
  const show = (/** @type {string} */ typed) => {
    const words = typed.toLowerCase().split(/\s+/);
    const found = now.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
    const enter = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || !found.length) return;
      event.preventDefault();
      event.stopPropagation(); // the page behind has a meaning for Enter, too
      act(found[0]);
    };
    patch(dialog, [
      h("input", { type: "search", "aria-label": "All actions", placeholder: "All actions", autofocus: true, oninput: (/** @type {Event} */ { target }) => show(/** @type {HTMLInputElement} */ (target).value), onkeydown: enter }),
      h("ul", { class: "actions-list" }, ...found.map((bound) => h("li", {}, h("button", { type: "button", class: "plain", onclick: () => act(bound) }, h("span", {}, bound.name), bound.key && h("kbd", {}, page.table.keyNames[bound.key] ?? bound.key))))),
    ]);
  };
  show("");
  dialog.showModal();
}
