"use strict";
// The present view as a file: the same strokes as on the screen, on an SVG or on a larger canvas.

const PNG_SCALE = 3;
const LARGEST_PNG = 16_000; // pixels a side, which browsers can still draw
const FRAME = 28;

function titleOfView() {
  return state.head === null ? page.title : `${headTitle(state.head)} · ${page.title}`;
}

// Draws title, view and legend on a surface and says how large that is.
function drawFile(surface, size) {
  surface.rect(0, 0, size.width, size.height, theme().paper);
  surface.text(fitText(titleOfView(), 17, size.width - 2 * FRAME, 650), FRAME, FRAME + 4, { size: 17, weight: 650 });
  const legendTop = size.height - FRAME - 30;
  if (hasPalette()) drawLegendOn(surface, FRAME, legendTop);
  return FRAME + 34;
}

// The element that is drawn where the view is no stage.
function elementOfView() {
  if (state.head === null) return one("overview");
  return one("view").querySelector("table") ?? one("view");
}

function sizeOfView() {
  const { width, height } = current?.stage ?? sizeOfElement(elementOfView());
  return { width: Math.max(360, Math.ceil(width)) + 2 * FRAME, height: Math.ceil(height + 2 * FRAME + 34 + 56) };
}

// As wide as what is in it, not as the window.
function sizeOfElement(element) {
  const { left } = element.getBoundingClientRect();
  const parts = [...element.querySelectorAll(".thumb, .across, .token, .note, td")];
  return { width: Math.max(...parts.map((part) => part.getBoundingClientRect().right - left)), height: element.scrollHeight };
}

function drawLegendOn(surface, x, y) {
  const scale = shownScale();
  const wide = 200;
  for (let place = 0; place < 50; place++) {
    surface.rect(x + (wide * place) / 50, y, wide / 50 + 0.3, 9, cssOf(valueAt((place + 0.5) / 50, scale), scale));
  }
  for (const fraction of [0, 0.5, 1]) {
    const align = { 0: "left", 0.5: "center", 1: "right" }[fraction];
    surface.text(tickText(valueAt(fraction, scale), scale), x + wide * fraction, y + 20, { size: 11, align, color: theme().soft });
  }
  surface.text(legendName(scale), x + wide + 14, y + 5, { size: 11, color: theme().soft });
}

function drawViewOn(surface, left, top) {
  const moved = new MovedSurface(surface, left, top);
  if (state.head === null) drawOverviewOn(moved);
  else if (current.stage) {
    const { area, picture } = current.stage;
    if (!picture.dimmed) picture.draw(moved, area);
    picture.drawOver(moved, area);
  } else {
    one("view").querySelector(".scroll")?.scrollTo(0, 0);
    drawElementsOn(moved, elementOfView());
  }
}

// A surface whose origin is elsewhere.
class MovedSurface {
  constructor(surface, left, top) {
    this.surface = surface;
    this.left = left;
    this.top = top;
  }
  rect(x, y, ...rest) {
    this.surface.rect(x + this.left, y + this.top, ...rest);
  }
  frame(x, y, ...rest) {
    this.surface.frame(x + this.left, y + this.top, ...rest);
  }
  arc(x1, y1, x2, y2, ...rest) {
    this.surface.arc(x1 + this.left, y1 + this.top, x2 + this.left, y2 + this.top, ...rest);
  }
  text(text, x, y, style) {
    this.surface.text(text, x + this.left, y + this.top, style);
  }
  image(canvas, x, y, ...rest) {
    this.surface.image(canvas, x + this.left, y + this.top, ...rest);
  }
  clip(x, y, ...rest) {
    this.surface.clip(x + this.left, y + this.top, ...rest);
  }
}

function drawElementsOn(surface, view) {
  const origin = view.getBoundingClientRect();
  for (const element of view.querySelectorAll(".token")) {
    const [, red, green, blue, opacity] = getComputedStyle(element).backgroundColor.match(/rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?/);
    for (const { left, top, width, height } of element.getClientRects()) {
      surface.rect(left - origin.left, top - origin.top, width, height, `rgb(${red}, ${green}, ${blue})`, Number(opacity ?? 1));
    }
  }
  drawTextOn(surface, view, origin);
}

// Every piece of text within an element, where it stands on the screen.
function drawTextOn(surface, view, origin) {
  const walker = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const { parentElement } = walker.currentNode;
    if (!walker.currentNode.data.trim() || parentElement.closest(".group, .unseen, caption")) continue;
    range.selectNodeContents(walker.currentNode);
    const { left, top, height } = range.getBoundingClientRect();
    const { fontSize, fontWeight, color } = getComputedStyle(parentElement);
    const style = { size: parseFloat(fontSize), weight: fontWeight, color };
    surface.text(walker.currentNode.data, left - origin.left, top - origin.top + height / 2, style);
  }
}

function offer(blob, suffix) {
  const name = state.head === null ? "heads" : `head-${page.heads[state.head].name}-${state.view}`;
  const link = make("a", { href: URL.createObjectURL(blob), download: `attention-${name}.${suffix}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function svgOfView() {
  const size = sizeOfView();
  const surface = new SvgSurface();
  drawViewOn(surface, FRAME, drawFile(surface, size));
  return surface.file(size.width, size.height, titleOfView(), page.caption);
}

function canvasOfView() {
  const size = sizeOfView();
  const scale = Math.min(PNG_SCALE, LARGEST_PNG / Math.max(size.width, size.height));
  const canvas = make("canvas", { width: size.width * scale, height: size.height * scale });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const surface = new CanvasSurface(context);
  drawViewOn(surface, FRAME, drawFile(surface, size));
  return canvas;
}

function saveSvg() {
  offer(new Blob([svgOfView()], { type: "image/svg+xml" }), "svg");
}

function savePng() {
  canvasOfView().toBlob((blob) => offer(blob, "png"), "image/png");
}
