/** Notes pinned to what is shown: written here or given by a file, stepped through by arrow keys, kept in the file. */

import { effect } from "./core.js";
import { page } from "./data.js";
import { offer, openDialog } from "./dialogs.js";
import { one, say } from "./elements.js";
import { addressOfView, followAddress, set, state } from "./state.js";
import { h, patch } from "./tree.js";

/** @import { Note } from "./types.js" */

/** The page before anything was drawn, once it is copied. @type {{ root: HTMLElement | null }} */
export const original = { root: null };

/** @type {Note[]} */
const notes = [...page.notes];

/** Shows the notes' dialog. */
export function openNotes() {
  const pinNote = () => {
    const field = /** @type {HTMLTextAreaElement} */ (one("new-note"));
    const text = field.value.trim();
    if (!text) return;
    notes.push({ place: addressOfView(), text });
    field.value = "";
    openNotes();
  };
  const items = notes.map(({ text }, place) => {
    const remove = () => {
      notes.splice(place, 1);
      openNotes();
    };
    return h("li", {}, button(text, () => startStory(place)), button("×", remove, `Remove note ${place + 1}`));
  });
  openDialog("notes", [
    h("h2", {}, "Notes"),
    notes.length ? h("ol", { class: "notes" }, ...items) : h("p", { class: "hint" }, "None yet. A note is pinned to the head, token and view that are shown."),
    h("textarea", { id: "new-note", key: "new", rows: 3, placeholder: "What is to be seen here" }),
    h("p", { class: "actions" }, button("Pin a note to what is shown", pinNote), notes.length > 0 && [button("Step through them", () => startStory(0)), button("Save the page with its notes", savePage)]),
  ]);
}

/** @param {string} text @param {() => void} act @param {string | null} [label] */
function button(text, act, label = null) {
  return h("button", { type: "button", class: "plain", "aria-label": label, onclick: act }, text);
}

/** Begins with a note: the arrow keys go on. @param {number} place */
export function startStory(place) {
  const dialog = /** @type {HTMLDialogElement} */ (one("notes"));
  dialog.close();
  set({ noting: true });
  goTo(place);
}

/** Goes to the note so many further on. @param {number} by */
export function stepNotes(by) {
  goTo(Math.min(notes.length - 1, Math.max(0, state.note + by)));
}

/** @param {number} place */
function goTo(place) {
  set({ note: place });
  const note = notes[place];
  const end = () => set({ noting: false });
  if (!note) return end();
  const buttons = [button("‹", () => stepNotes(-1), "Previous note"), button("›", () => stepNotes(1), "Next note"), button("End", end, "End the notes")];
  patch(one("story"), [h("p", { dir: "auto" }, note.text), h("span", { class: "steps" }, `${place + 1} of ${notes.length} `, ...buttons)]);
  say(note.text);
  try {
    history.replaceState(null, "", note.place);
  } catch {
    location.hash = note.place; // a frame without an origin
  }
  followAddress(note.place);
}

/** Offers the page as it was opened, with the notes as they are now: without what was drawn since, with the numbers that were read since. */
function savePage() {
  const copy = /** @type {HTMLElement} */ ((original.root ?? document.documentElement).cloneNode(true));
  const data = copy.querySelector("#page-data");
  if (data) data.textContent = JSON.stringify({ ...page, notes }).replace(/</g, "\\u003c").replace(/>/g, "\\u003e");
  const numbers = [...document.querySelectorAll('script[type="text/plain"]')].map((part) => part.outerHTML);
  copy.querySelector("body")?.insertAdjacentHTML("beforeend", numbers.join("\n"));
  offer(new Blob([`<!doctype html>\n${copy.outerHTML}`], { type: "text/html" }), "attention-notes.html");
}

effect(() => {
  one("story").hidden = !state.noting;
});
