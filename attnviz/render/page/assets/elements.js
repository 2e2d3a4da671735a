/** Elements of the page: found, made, and groups of buttons of which one is pressed. */

/** The page's element of that name. @param {string} id */
export function one(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {string} id */
export function buttonOf(id) {
  return /** @type {HTMLButtonElement} */ (one(id));
}

/**
 * An element with properties and children; text becomes text, never markup.
 *
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Partial<HTMLElementTagNameMap[Name]>} properties
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/**
 * Fills a group with a button for each choice, the chosen one pressed.
 *
 * @template {string} Value
 * @param {HTMLElement} group
 * @param {[Value, string][]} choices values and their labels
 * @param {Value} chosen
 * @param {(value: Value) => void} choose
 */
export function fillChoices(group, choices, chosen, choose) {
  group.replaceChildren(
    ...choices.map(([value, label]) => {
      const button = make("button", { type: "button", onclick: () => choose(value) }, label);
      button.setAttribute("aria-pressed", String(value === chosen));
      return button;
    }),
  );
}

/** Tells a screen reader what happened. @param {string} text */
export function say(text) {
  one("spoken").textContent = text;
}
