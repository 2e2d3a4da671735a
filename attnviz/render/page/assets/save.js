/** The present view as a file: the same strokes as on the screen, on an SVG or on a larger canvas. */

import { contextOf, newCanvas, theme } from "./colors.js";
import { headTitle, page } from "./data.js";
import { make, one } from "./elements.js";
import { drawLegendOn, hasPalette } from "./legend.js";
import { canvasOf } from "./overview.js";
import { state } from "./state.js";
import { CanvasSurface, fitText } from "./surface.js";
import { MovedSurface, SvgSurface } from "./svg.js";

/** @import { Surface } from "./types.js" */

/** @typedef {{ width: number, height: number }} Size */

const PNG_SCALE = 3;
const MAX_PNG_SIDE = 16_000; // pixels, which browsers can still draw
const FRAME = 28; // pixels around the picture
const RGBA = /rgba?\((\d+, \d+, \d+)(?:, ([\d.]+))?/;

function titleOfView() {
  return state.head === null ? page.title : `${headTitle(state.head)} · ${page.title}`;
}

/**
 * Draws paper, title and legend; the view begins where that returned ends.
 *
 * @param {Surface} surface
 * @param {Size} size
 */
function drawFile(surface, size) {
  surface.rect(0, 0, size.width, size.height, theme().paper);
  surface.text(fitText(titleOfView(), 17, size.width - 2 * FRAME, 650), FRAME, FRAME + 4, { size: 17, weight: 650 });
  const legendTop = size.height - FRAME - 30;
  if (hasPalette()) drawLegendOn(surface, FRAME, legendTop);
  return FRAME + 34;
}

/** The element that is drawn where the view is no stage. */
function elementOfView() {
  if (state.head === null) return one("overview");
  return one("view").querySelector("table") ?? one("view");
}

/** @returns {Size} */
function sizeOfView() {
  const { width, height } = state.current?.stage ?? sizeOfElement(elementOfView());
  return { width: Math.max(360, Math.ceil(width)) + 2 * FRAME, height: Math.ceil(height + 2 * FRAME + 34 + 56) };
}

/** As wide as what is in it, not as the window. @param {Element} element */
function sizeOfElement(element) {
  const { left } = element.getBoundingClientRect();
  const parts = [...element.querySelectorAll(".thumb, .across, .token, .note, td")];
  const width = Math.max(...parts.map((part) => part.getBoundingClientRect().right - left));
  return { width, height: element.scrollHeight };
}

/** @param {Surface} surface @param {number} left @param {number} top */
function drawViewOn(surface, left, top) {
  const moved = new MovedSurface(surface, left, top);
  if (state.head === null) drawOverviewOn(moved);
  else if (state.current?.stage) {
    const { area, picture } = state.current.stage;
    if (!picture.dimmed) picture.draw(moved, area);
    picture.drawOver(moved, area);
  } else {
    one("view").querySelector(".scroll")?.scrollTo(0, 0);
    drawElementsOn(moved, elementOfView());
  }
}

/** @param {Surface} surface */
function drawOverviewOn(surface) {
  const overview = one("overview");
  const origin = overview.getBoundingClientRect();
  drawTextOn(surface, overview, origin);
  for (const thumb of overview.querySelectorAll(".thumb")) {
    const canvas = canvasOf(/** @type {HTMLElement} */ (thumb));
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const [x, y] = [left - origin.left, top - origin.top];
    surface.rect(x, y, width, height, theme().absent);
    surface.image(canvas, x, y, width, height, true);
  }
}

/** Tokens with their shades, and all text. @param {Surface} surface @param {Element} view */
function drawElementsOn(surface, view) {
  const origin = view.getBoundingClientRect();
  for (const element of view.querySelectorAll(".token")) {
    const [, color, opacity] = getComputedStyle(element).backgroundColor.match(RGBA) ?? [];
    for (const { left, top, width, height } of element.getClientRects()) {
      surface.rect(left - origin.left, top - origin.top, width, height, `rgb(${color})`, Number(opacity ?? 1));
    }
  }
  drawTextOn(surface, view, origin);
}

/**
 * Every piece of text within an element, where it stands on the screen.
 *
 * @param {Surface} surface
 * @param {Element} view
 * @param {DOMRect} origin
 */
function drawTextOn(surface, view, origin) {
  const walker = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const { parentElement, textContent } = walker.currentNode;
    if (!textContent?.trim() || !parentElement || parentElement.closest(".group, .unseen, caption")) continue;
    range.selectNodeContents(walker.currentNode);
    const { left, top, height } = range.getBoundingClientRect();
    const { fontSize, fontWeight, color } = getComputedStyle(parentElement);
    const style = { size: parseFloat(fontSize), weight: fontWeight, color };
    surface.text(textContent, left - origin.left, top - origin.top + height / 2, style);
  }
}

/** Hands a file to the browser to keep. @param {Blob} blob @param {string} suffix */
function offer(blob, suffix) {
  const name = state.head === null ? "heads" : `head-${page.heads[state.head].name}-${state.view}`;
  const link = make("a", { href: URL.createObjectURL(blob), download: `attention-${name}.${suffix}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The present view as SVG. */
function svgOfView() {
  const size = sizeOfView();
  const surface = new SvgSurface();
  drawViewOn(surface, FRAME, drawFile(surface, size));
  return surface.file(size.width, size.height, titleOfView(), page.caption);
}

function canvasOfView() {
  const size = sizeOfView();
  const scale = Math.min(PNG_SCALE, MAX_PNG_SIDE / Math.max(size.width, size.height));
  const canvas = newCanvas(size.width * scale, size.height * scale);
  const context = contextOf(canvas);
  context.scale(scale, scale);
  const surface = new CanvasSurface(context);
  drawViewOn(surface, FRAME, drawFile(surface, size));
  return canvas;
}

export function saveSvg() {
  offer(new Blob([svgOfView()], { type: "image/svg+xml" }), "svg");
}

export function savePng() {
  canvasOfView().toBlob((blob) => blob && offer(blob, "png"), "image/png");
}
