/** What can be chosen and done, from the table of choices: buttons, keys, the list of keys and the list of all actions. */

import { missingFact, valuesNow } from "./choices.js";
import { page } from "./data.js";
import { openDialog } from "./dialogs.js";
import { one, say } from "./elements.js";
import { stepNotes } from "./notes.js";
import { set, state } from "./state.js";
import { h, patch } from "./tree.js";

/** @import { Choice, ChoiceName } from "./types.js" */

/** @typedef {{ key: string, name: string, needs: string[], act: (target: HTMLElement) => unknown }} Bound an action of a key; one that does nothing here, where the browser's own stays, returns false */
/** @typedef {(place: number, target: HTMLElement) => unknown} Act does an action by the number of the key, and the element that has the focus */
/** @typedef {{ choices: Choice[], choose: (name: ChoiceName, word: string) => unknown, acts: Record<string, Act> }} Bindings the choices of a page, and what does its actions by their names in the table */

/** @type {Bindings} */
const bindings = { choices: [], choose: () => {}, acts: {} };
/** All keys, in the order in which those of one key are tried. @type {Bound[]} */
const keysBound = [];

/** Binds the keys of a page. @param {Bindings} given */
export function bindKeys(given) {
  const { choices, choose, acts } = Object.assign(bindings, given);
  for (const choice of choices) {
    if (choice.key) keysBound.push({ key: choice.key, name: choice.does, needs: choice.needs, act: () => chooseNext(choice) });
    for (const { word, label, key, needs } of choice.values) {
      if (key || !choice.switch) keysBound.push({ key, name: `${choice.title}: ${label}`, needs: [...choice.needs, ...needs], act: () => choose(choice.name, word) });
    }
  }
  for (const { name, keys, names, needs } of actionsHere()) {
    keys.forEach((key, place) => keysBound.push({ key, name: names[place] ?? "", needs, act: (target) => acts[name](place, target) }));
  }
}

/** The actions of the table that this page has. */
function actionsHere() {
  return page.table.actions.filter(({ name }) => name in bindings.acts);
}

/** Chooses the value after the one that holds. @param {Choice} choice */
function chooseNext(choice) {
  const words = valuesNow(choice, state, page).map(({ word }) => word);
  bindings.choose(choice.name, words[(words.indexOf(String(state[choice.name])) + 1) % words.length]);
}

/** Does what a key does here, or says what it needs; false if it does nothing. @param {string} key @param {HTMLElement} target */
export function press(key, target) {
  if (state.noting && (key === "ArrowLeft" || key === "ArrowRight")) return stepNotes(key === "ArrowLeft" ? -1 : 1);
  const bound = keysBound.filter((each) => each.key === key);
  const meant = bound.find(({ needs }) => missingFact(needs, state, page) === undefined);
  if (meant) return meant.act(target);
  return bound.length > 0 && refuse(page.table.facts[missingFact(bound[0].needs, state, page) ?? ""]);
}

/** Tells a reader why a key does nothing. @param {string} reason */
export function refuse(reason) {
  set({ unknown: `${reason[0].toUpperCase()}${reason.slice(1)}.` });
  say(reason);
}

/** A button for each value of a choice that means something now; none where there is nothing to choose. @param {Choice} choice */
export function choiceButtons(choice) {
  const { name, title } = choice;
  const values = valuesNow(choice, state, page);
  if (values.length < 2) return null;
  const buttons = values.map(({ word, label, key }) => {
    const shown = name === "limits" && word === "shared" && page.fixed ? "Given" : label;
    const act = () => bindings.choose(name, word);
    return h("button", { type: "button", key: word, "aria-pressed": state[name] === word, title: titleOf(choice, key), onclick: act }, shown);
  });
  return h("div", { class: "group", role: "group", "aria-label": title, id: `choose-${name}`, key: name }, ...buttons);
}

/** What a button does, and the key that does it too. @param {Choice} choice @param {string} [key] of one of its values */
export function titleOf({ does, key: next }, key = next) {
  return key || next ? `${does}: ${key || next}` : does;
}

/** Shows the keys. */
export function openKeys() {
  const rows = [...bindings.choices.map(({ key, values, does }) => ({ keys: [...new Set([key, ...values.map((value) => value.key)])], does })), ...actionsHere()];
  const known = (/** @type {string} */ key) => page.table.keyNames[key.replace("Shift+", "")] ?? key.replace("Shift+", "");
  const lines = rows.flatMap(({ keys, does }) => {
    const named = keys.filter(Boolean).flatMap((key, place) => [...(place === 0 && key.startsWith("Shift+") ? ["Shift"] : []), known(key)]);
    return named.length ? [h("tr", {}, h("td", {}, ...named.flatMap((name) => [h("kbd", {}, name), " "])), h("td", {}, does))] : [];
  });
  openDialog("help", [h("h2", {}, "Keyboard"), h("table", {}, h("tbody", { id: "keys" }, ...lines))]);
}

/** Shows everything that can be done here, to be found by its words. */
export function openActions() {
  const dialog = /** @type {HTMLDialogElement} */ (one("actions"));
  const now = keysBound.filter(({ name, needs }) => name && missingFact(needs, state, page) === undefined);
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
