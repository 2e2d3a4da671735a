/** Provides what both pages listen to and open: dialogs and their parts, keys, and printing. */

import { forgetTheme } from "./colors.js";
import { make, one, say } from "./elements.js";

/** The button that closes a dialog. */
export function closing() {
  return make("form", { method: "dialog" }, make("button", { className: "plain" }, "Close"));
}

/** A text that is copied whole by a button. @param {string} name @param {string} text */
export function copied(name, text) {
  const field = make("textarea", { readOnly: true, value: text, rows: Math.min(5, Math.ceil(text.length / 56)), spellcheck: false });
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copy(field);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? `${name} copied` : "press Control C");
  });
  const group = make("span", { className: "group" }, button);
  return make("p", { className: "copied" }, make("label", {}, name, field), group);
}

/** @param {HTMLTextAreaElement} field */
async function copy(field) {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    return document.execCommand("copy"); // a page from a disk or in a frame may have no clipboard
  }
}

/** Shows the help. */
export function openHelp() {
  const help = /** @type {HTMLDialogElement} */ (one("help"));
  help.showModal();
}

/**
 * Listens to keys that are not typed into a field nor pressed in a dialog.
 *
 * @param {(key: string, target: HTMLElement) => unknown} press does what a key does, such as "Shift+ArrowLeft"; returns false if it does nothing here
 * @param {(field: HTMLInputElement) => unknown} enter what Enter does in a field
 */
export function listenToKeys(press, enter = () => {}) {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const isCommand = event.key === "k" && (event.ctrlKey || event.metaKey); // the list of all actions, in many programs
    if (((event.ctrlKey || event.metaKey) && !isCommand) || event.altKey || document.querySelector("dialog[open]")) return;
    const isField = target.matches("input, select, textarea") && !target.closest("dialog"); // one that closed keeps the focus until the next frame
    if (isField && !isCommand) {
      if (event.key === "Escape") target.blur();
      if (event.key === "Enter" && target instanceof HTMLInputElement) enter(target);
      return;
    }
    const arrow = event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "";
    if (press(isCommand ? ":" : event.key === " " ? "Space" : arrow + event.key, target) !== false) event.preventDefault();
  });
}

/** Fits everything to the paper, and back. @param {() => void} fit @param {() => void} draw */
export function listenToPrint(fit, draw) {
  const media = matchMedia("print");
  const refit = () => {
    forgetTheme();
    fit();
  };
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    refit();
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    refit();
    draw();
  });
  media.addEventListener("change", refit);
}
