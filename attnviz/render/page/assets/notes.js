/** Notes pinned to what is shown: written here or given by a file, stepped through by arrow keys, kept in the file. */

import { effect } from "./core.js";
import { page } from "./data.js";
import { closing } from "./dialogs.js";
import { make, one, say } from "./elements.js";
import { addressOfView, followAddress, set, state } from "./state.js";

/** @import { Note } from "./types.js" */

/** @type {Note[]} */
const notes = [...page.notes];

/** Shows the notes' dialog. */
export function openNotes() {
  const dialog = one("notes");
  if (!(dialog instanceof HTMLDialogElement)) return;
  drawNotes();
  if (!dialog.open) dialog.showModal();
}

function drawNotes() {
  const field = make("textarea", { rows: 3, placeholder: "What is to be seen here" });
  const add = buttonWith("Pin a note to what is shown", () => {
    if (!field.value.trim()) return;
    notes.push({ place: addressOfView(), text: field.value.trim() });
    drawNotes();
  });
  const tell = buttonWith("Step through them", () => startStory(0));
  const save = buttonWith("Save the page with its notes", savePage);
  const list = make("ol", { className: "notes" }, ...notes.map((note, place) => noteItem(note, place)));
  one("notes").replaceChildren(
    make("h2", {}, "Notes"),
    ...(notes.length ? [list] : [make("p", { className: "hint" }, "None yet. A note is pinned to the head, token and view that are shown.")]),
    field,
    make("p", { className: "actions" }, add, ...(notes.length ? [tell, save] : [])),
    closing(),
  );
}

/** @param {Note} note @param {number} place */
function noteItem(note, place) {
  const open = buttonWith(note.text, () => startStory(place));
  const remove = buttonWith("×", () => {
    notes.splice(place, 1);
    drawNotes();
  });
  remove.setAttribute("aria-label", `Remove note ${place + 1}`);
  return make("li", {}, open, remove);
}

/** @param {string} text @param {() => void} act */
function buttonWith(text, act) {
  const button = make("button", { type: "button", className: "plain" }, text);
  button.addEventListener("click", act);
  return button;
}

/** Begins with a note: the arrow keys go on. @param {number} place */
export function startStory(place) {
  const dialog = one("notes");
  if (dialog instanceof HTMLDialogElement) dialog.close();
  set({ noting: true });
  goTo(place);
}

/** Goes to the note so many further on. @param {number} by */
export function stepNotes(by) {
  goTo(Math.min(notes.length - 1, Math.max(0, state.note + by)));
}

/** Ends the story. */
function endStory() {
  set({ noting: false });
}

/** @param {number} place */
function goTo(place) {
  set({ note: place });
  const note = notes[place];
  if (!note) return endStory();
  const buttons = [buttonWith("‹", () => stepNotes(-1)), buttonWith("›", () => stepNotes(1)), buttonWith("End", endStory)];
  ["Previous note", "Next note", "End the notes"].forEach((label, at) => buttons[at].setAttribute("aria-label", label));
  one("story").replaceChildren(make("p", { dir: "auto" }, note.text), make("span", { className: "steps" }, `${place + 1} of ${notes.length} `, ...buttons));
  say(note.text);
  try {
    history.replaceState(null, "", note.place);
  } catch {
    location.hash = note.place; // a frame without an origin
  }
  followAddress(note.place);
}

/** The page as it was opened, with the notes as they are now. */
function savePage() {
  const data = document.getElementById("page-data");
  if (!data) return;
  const before = data.textContent;
  data.textContent = JSON.stringify({ ...page, notes }).replace(/</g, "\\u003c").replace(/>/g, "\\u003e");
  const text = `<!doctype html>\n${original.html(data.textContent)}`;
  data.textContent = before;
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/html" })), download: "attention-notes.html" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

effect(() => {
  one("story").hidden = !state.noting;
});

/** The page before anything was drawn: a saved file has none of what is drawn later. */
export const original = {
  /** @type {HTMLElement | null} copied, and written out only when the page is saved */
  root: null,
  /** @param {string} data */
  html: (data) => {
    const copy = /** @type {HTMLElement} */ ((original.root ?? document.documentElement).cloneNode(true));
    const parts = [...document.querySelectorAll('script[type="text/plain"]')].map((part) => part.outerHTML);
    const element = copy.querySelector("#page-data");
    if (element) element.textContent = data;
    copy.querySelector("body")?.insertAdjacentHTML("beforeend", parts.join("\n"));
    return copy.outerHTML;
  },
};
