/** The keyboard of every page: keys that are not typed into a field do what the page says. */

import { one } from "./elements.js";

/** Shows the help. */
export function openHelp() {
  helpDialog().showModal();
}

function helpDialog() {
  return /** @type {HTMLDialogElement} */ (one("help"));
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
    if (target.matches("input, select, textarea") && !isCommand) {
      if (event.key === "Escape") target.blur();
      if (event.key === "Enter" && target instanceof HTMLInputElement) enter(target);
      return;
    }
    const arrow = event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "";
    if (press(isCommand ? ":" : event.key === " " ? "Space" : arrow + event.key, target) !== false) event.preventDefault();
  });
}
