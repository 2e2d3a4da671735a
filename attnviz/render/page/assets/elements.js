/** Elements of the page: found, filled, and tables that scroll; and the end of a link. */

import { elementOf, h, patch } from "./tree.js";

/** @import { Tree } from "./tree.js" */

const ROW_STEP = 29; // pixels of a row, before one is measured
const ROWS_BEYOND = 12; // drawn above and below those that are seen

/** The page's element of that name. @param {string} id */
export function one(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * A table in a frame of its own that scrolls, whose right edge fades while columns are beyond it. Of more rows than `most`
 * those that are seen are drawn, between two empty ones as high as all others; on paper all of them.
 *
 * @typedef {object} TableAbout
 * @property {string} label of the frame
 * @property {string} name of the table's class
 * @property {string} caption
 * @property {Tree[]} header rows
 * @property {number} count of rows
 * @property {(place: number) => Tree} rowOf
 * @property {number} [most]
 *
 * @param {TableAbout} about
 */
export function scrollingTable({ label, name, caption, header, count, rowOf, most = Infinity }) {
  const frame = elementOf(h("div", { class: count > most ? "scroll fixed-rows" : "scroll", tabindex: 0, role: "region", "aria-label": label }));
  const head = h("thead", {}, ...header);
  let [first, step] = [-1, ROW_STEP];
  const draw = (isWhole = count <= most) => {
    const start = isWhole ? 0 : Math.max(0, Math.floor(frame.scrollTop / step) - ROWS_BEYOND);
    if (start === first && !isWhole) return;
    const drawn = Math.ceil((frame.clientHeight || window.innerHeight) / step) + 2 * ROWS_BEYOND;
    const end = isWhole ? count : Math.min(count, start + drawn);
    const empty = (/** @type {number} */ rows) => count > most && h("tr", { "aria-hidden": "true", style: `height: ${rows * step}px` });
    const rows = Array.from({ length: end - start }, (_, more) => {
      const row = rowOf(start + more);
      return count > most ? h("tr", { ...row.properties, key: start + more, "aria-rowindex": start + more + 2 }, ...row.children) : row;
    });
    patch(frame, [h("table", { class: `cells ${name}`, "aria-rowcount": count > most && count + 1 }, h("caption", {}, caption), head, h("tbody", {}, empty(start), ...rows, empty(count - end)))]);
    first = isWhole ? -1 : start;
  };
  const fade = () => frame.classList.toggle("goes-on", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1);
  frame.addEventListener("scroll", fade);
  new ResizeObserver(fade).observe(frame);
  draw();
  if (count <= most) return frame;
  requestAnimationFrame(() => {
    step = frame.querySelector("tr[aria-rowindex]")?.getBoundingClientRect().height || ROW_STEP;
    first = -1; // the empty rows take the height of real ones
    draw();
  });
  frame.addEventListener("scroll", () => draw());
  const print = () => (frame.isConnected ? draw(true) : removeEventListener("beforeprint", print));
  addEventListener("beforeprint", print);
  return frame;
}

/** Does something when there is nothing else to do, and after a second at the latest. @param {() => void} act */
export function whenIdle(act) {
  if ("requestIdleCallback" in window) requestIdleCallback(act, { timeout: 1000 });
  else setTimeout(act, 200);
}

/** Does something once what stands now is on the screen, or soon where nothing is drawn. @param {() => void} act */
export function afterFrame(act) {
  const timer = setTimeout(act, 100);
  requestAnimationFrame(() => {
    clearTimeout(timer);
    setTimeout(act);
  });
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
