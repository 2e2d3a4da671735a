/** Provides the parts that all dialogs have: the button that closes one, and texts to be copied. */

import { make, say } from "./elements.js";

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
