/** Elements of the page: found, made, and groups of buttons of which one is pressed; and the end of a link. */

/** The page's element of that name. @param {string} id */
export function one(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
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

/** Fades the right edge of a frame that scrolls while columns are beyond it, so that none seems to be the last. @param {HTMLElement} frame */
export function fadeBeyond(frame) {
  const fade = () => frame.classList.toggle("goes-on", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1);
  frame.addEventListener("scroll", fade);
  new ResizeObserver(fade).observe(frame);
}

/**
 * Gives an element other children, of which none listens to events itself. What is there already stays and takes over
 * what differs: little is laid out again, and a button that has the focus keeps it.
 *
 * @param {Node} parent
 * @param {Node[]} wanted
 */
export function refill(parent, wanted) {
  const before = [...parent.childNodes];
  for (const rest of before.slice(wanted.length)) parent.removeChild(rest);
  wanted.forEach((node, place) => {
    const old = before[place];
    if (!old) parent.appendChild(node);
    else if (!old.isEqualNode(node)) takeOver(old, node);
  });
}

/** Makes a node like another, or puts the other in its place. @param {Node} old @param {Node} wanted */
function takeOver(old, wanted) {
  if (old instanceof Text && wanted instanceof Text) old.data = wanted.data;
  else if (!(old instanceof HTMLElement && wanted instanceof HTMLElement) || old.nodeName !== wanted.nodeName) old.parentNode?.replaceChild(wanted, old);
  else {
    for (const { name } of [...old.attributes]) if (name !== "style" && !wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of wanted.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (old.getAttribute("style") !== wanted.getAttribute("style")) old.style.cssText = wanted.style.cssText;
    refill(old, [...wanted.childNodes]);
  }
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

/** A row of a table that takes the place of others that are not drawn. @param {number} height */
export function emptyRow(height) {
  const row = make("tr", { ariaHidden: "true" });
  row.style.height = `${height}px`;
  return row;
}

/** Does something when there is nothing else to do, and after a second at the latest. @param {() => void} act */
export function whenIdle(act) {
  if ("requestIdleCallback" in window) requestIdleCallback(act, { timeout: 1000 });
  else setTimeout(act, 200);
}

/** True if the page is laid out for paper. */
export function isPrinting() {
  return document.documentElement.classList.contains("printing") || matchMedia("print").matches;
}

const SHEET_PART = 0.3; // of a phone, that the sheet of numbers takes at the bottom

/** The height of the window that nothing lies over while something is open. */
export function openHeight() {
  return window.innerHeight * (matchMedia("screen and (max-width: 759px) and (min-height: 561px)").matches ? 1 - SHEET_PART : 1);
}

/** Tells a screen reader what happened. @param {string} text */
export function say(text) {
  one("spoken").textContent = text;
}

/** @param {[string, string][]} parts names and values */
export function linkOf(parts) {
  return `#${parts.map(([name, value]) => `${name}=${readable(value)}`).join("&")}`;
}

/** @param {string} value */
function readable(value) {
  return encodeURIComponent(value).replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%40/g, "@").replace(/%3E/g, ">").replace(/%20/g, "+");
}
