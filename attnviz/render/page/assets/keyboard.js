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
 * Listens to keys.
 *
 * @param {(key: string, target: HTMLElement) => (() => unknown) | null | undefined} actionOf what a key does, or an arrow with Shift such as "Shift+ArrowLeft"; nothing if it does nothing here
 * @param {(field: HTMLInputElement) => unknown} enter what Enter does in a field
 */
export function listenToKeys(actionOf, enter = () => {}) {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || helpDialog().open) return;
    if (target.matches("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      if (event.key === "Enter" && target instanceof HTMLInputElement) enter(target);
      return;
    }
    const key = event.shiftKey && event.key.startsWith("Arrow") ? `Shift+${event.key}` : event.key;
    const act = key === "?" ? openHelp : actionOf(key, target);
    if (!act) return;
    event.preventDefault();
    act();
  });
}
