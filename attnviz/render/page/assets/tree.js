/** Elements as values: a screen takes over what differs in them, and a file is the same elements written out. */

/**
 * @typedef {Tree | ChildNode | string} Child a value, an element that somebody else keeps, or text
 * @typedef {Child | number | null | undefined | false} Some
 * @typedef {Some | Some[]} Given
 *
 * @typedef {object} Tree
 * @property {string} tag
 * @property {Properties} properties
 * @property {Child[]} children
 *
 * @typedef {Record<string, any>} Properties attributes by their names, where a missing one is null, undefined or false;
 *   and besides them listeners (`onclick`), `key` by which an element is found again among its neighbours, `value` and
 *   `checked` of a field, and `paint`, called with the element after `painted` changed
 */

const SVG = "http://www.w3.org/2000/svg";
const NO_ATTRIBUTES = new Set(["key", "paint", "painted"]);

/** The values that the elements on the screen were patched from. @type {WeakMap<Node, Tree>} */
const trees = new WeakMap();

/** An element as a value; children that are null, undefined or false are none. @param {string} tag @param {Properties | null} properties @param {...Given} children @returns {Tree} */
export function h(tag, properties = {}, ...children) {
  /** @type {Child[]} */
  const kept = [];
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) kept.push(typeof child === "number" ? String(child) : child);
  }
  return { tag, properties: properties ?? {}, children: kept };
}

/** The element of a tree, for those who keep it. @param {Tree} tree @returns {HTMLElement} */
export function elementOf(tree) {
  const parent = document.createElement("div");
  patch(parent, [tree]);
  return /** @type {HTMLElement} */ (parent.firstChild);
}

/** The text of a child, where a line that is broken has its end. @param {Child} child @returns {string} */
export function textIn(child) {
  if (typeof child === "string") return child;
  if (!isTree(child)) return child.textContent ?? "";
  return child.tag === "br" ? "\n" : child.children.map(textIn).join("");
}

/** Makes the children of an element those that are given. Elements of the same tag and key stay, and with them focus and scrolling. @param {Element} parent @param {Child[]} children */
export function patch(parent, children) {
  /** @type {Map<unknown, ChildNode>} */
  const keyed = new Map();
  for (const node of parent.childNodes) {
    const key = trees.get(node)?.properties.key;
    if (key !== undefined) keyed.set(key, node);
  }
  let here = parent.firstChild;
  for (const child of children) {
    const key = isTree(child) ? child.properties.key : undefined;
    const found = key === undefined ? here : (keyed.get(key) ?? null);
    const node = patched(parent, found, child);
    if (here && node !== here && key === undefined && isTree(child) && trees.get(here)?.properties.key === undefined) {
      here.replaceWith(node);
      here = node.nextSibling;
    } else if (node === here) here = here.nextSibling;
    else parent.insertBefore(node, here);
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

/** @param {Child} child @returns {child is Tree} */
function isTree(child) {
  return typeof child === "object" && "tag" in child;
}

/** The node of a child: the one that is there, if it can become it. @param {Element} parent @param {ChildNode | null} old @param {Child} child @returns {ChildNode} */
function patched(parent, old, child) {
  if (typeof child === "string") {
    if (!(old instanceof Text)) return document.createTextNode(child);
    if (old.data !== child) old.data = child;
    return old;
  }
  if (!isTree(child)) return child;
  const known = old && trees.get(old);
  const stays = known && known.tag === child.tag && known.properties.key === child.properties.key;
  if (stays && known === child) return old;
  const isSvg = child.tag === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  const node = /** @type {Element} */ (stays ? old : isSvg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag));
  const before = stays ? known.properties : {};
  trees.set(node, child);
  const { properties } = child;
  for (const name in before) if (!(name in properties)) assign(node, name, undefined);
  for (const name in properties) if (properties[name] !== before[name] && name !== "value") assign(node, name, properties[name]);
  patch(node, child.children);
  if ("value" in properties) assign(node, "value", properties.value); // a list has its options now
  if (properties.paint && (!stays || properties.painted === undefined || properties.painted !== before.painted)) properties.paint(node);
  return node;
}

/** @param {Element} node @param {string} name @param {any} value */
function assign(node, name, value) {
  const isMissing = value === null || value === undefined || (value === false && !name.startsWith("aria-"));
  const fields = /** @type {any} */ (node);
  if (NO_ATTRIBUTES.has(name)) return;
  if (name.startsWith("on")) fields[name] = isMissing ? null : value;
  else if (name === "style") fields.style.cssText = value ?? ""; // an attribute would be refused by the page's policy
  else if (name === "checked") fields.checked = Boolean(value);
  else if (name === "value" && name in node) {
    if (fields.value !== String(value ?? "")) fields.value = value ?? "";
  } else if (isMissing) node.removeAttribute(name);
  else node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
}

/**
 * A tree as the text of a file, without listeners.
 *
 * @param {Child} child
 * @param {(name: string) => string} colours what `var(--name)` is in the file
 * @returns {string}
 */
export function written(child, colours) {
  if (typeof child === "string") return escaped(child);
  if (!isTree(child)) throw new Error("an element of the screen cannot be written into a file");
  const { tag, properties, children } = child;
  const attributes = Object.entries(properties).filter(([name, value]) => value !== null && value !== undefined && value !== false && typeof value !== "function" && !NO_ATTRIBUTES.has(name));
  const said = attributes.map(([name, value]) => {
    const text = typeof value === "number" ? String(Math.round(value * 100) / 100) : value === true ? "" : String(value);
    return ` ${name}="${escaped(text.replace(/var\(--([\w-]+)\)/g, (_, variable) => colours(variable)))}"`;
  });
  const within = children.map((each) => written(each, colours)).join("");
  return within ? `<${tag}${said.join("")}>${within}</${tag}>` : `<${tag}${said.join("")}/>`;
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
