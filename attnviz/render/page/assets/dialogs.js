/** Provides what both pages listen to and open: dialogs and their parts, files that are kept, keys, and printing. */

import { forgetTheme } from "./colors.js";
import { one, say } from "./elements.js";
import { addressOfView } from "./state.js";
import { elementOf, h, patch } from "./tree.js";

/** @import { Child } from "./tree.js" */

/** Opens a dialog with what it holds and a button that closes it. @param {string} id @param {Child[]} children */
export function openDialog(id, children) {
  const dialog = /** @type {HTMLDialogElement} */ (one(id));
  patch(dialog, [...children, h("form", { method: "dialog" }, h("button", { class: "plain" }, "Close"))]);
  if (!dialog.open) dialog.showModal();
}

/** Shows the link to what is shown now. @param {Child[]} [before] what is said first @param {Child[]} [after] */
export function openLink(before = [], after = []) {
  const link = `${location.href.split("#")[0]}${addressOfView()}`;
  openDialog("share", [h("h2", {}, "What is shown now"), ...before, copied("Link", link.startsWith("about:") ? addressOfView() : link), ...after]);
}

/** A text that is copied whole by a button. @param {string} name @param {string} text */
export function copied(name, text) {
  const copy = async (/** @type {Event} */ { currentTarget }) => {
    const button = /** @type {HTMLElement} */ (currentTarget);
    const field = /** @type {HTMLTextAreaElement} */ (button.closest(".copied")?.querySelector("textarea"));
    field.select();
    // A page from a disk or in a frame may have no clipboard.
    const done = (await navigator.clipboard?.writeText(text).then(() => true, () => false)) || document.execCommand("copy");
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    say(done ? `${name} copied` : "press Control C");
  };
  const field = h("textarea", { readonly: true, rows: Math.min(5, Math.ceil(text.length / 56)), spellcheck: "false", value: text });
  return h("p", { class: "copied" }, h("label", {}, name, field), h("span", { class: "group" }, h("button", { type: "button", onclick: copy }, "Copy")));
}

/** Hands a file to the browser to keep. @param {Blob} blob @param {string} name */
export function offer(blob, name) {
  const href = URL.createObjectURL(blob);
  elementOf(h("a", { href, download: name })).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
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

/**
 * Listens to what both pages have: buttons, the address, the size of the window, the system's theme, and paper.
 *
 * @param {Record<string, () => unknown>} buttons what they do, by their ids
 * @param {() => void} follow opens what the address names
 * @param {() => void} fit takes the room that there is
 * @param {() => void} draw
 */
export function listenToWindow(buttons, follow, fit, draw) {
  for (const [name, act] of Object.entries(buttons)) one(name).addEventListener("click", act);
  for (const name of ["hashchange", "popstate"]) window.addEventListener(name, follow);
  window.addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetTheme();
    draw();
  });
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
  matchMedia("print").addEventListener("change", refit);
}
