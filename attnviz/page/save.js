"use strict";
// The present view as a file: the same strokes as on the screen, on an SVG or on a larger canvas.

const PNG_SCALE = 3;
const FRAME = 28;

function titleOfView() {
  return state.head === null ? page.title : `${headTitle(state.head)} · ${page.title}`;
}

// Draws title, view and legend on a surface and says how large that is.
function drawFile(surface, size) {
  surface.rect(0, 0, size.width, size.height, theme().paper);
  surface.text(fitText(titleOfView(), 17, size.width - 2 * FRAME), FRAME, FRAME + 4, { size: 17, weight: 650 });
  const legendTop = size.height - FRAME - 30;
  if (hasPalette()) drawLegendOn(surface, FRAME, legendTop);
  return FRAME + 34;
}

function sizeOfView() {
  const view = state.head === null ? document.getElementById("overview") : document.getElementById("view");
  const { width, height } = current?.stage ? current.stage : { width: view.clientWidth, height: view.scrollHeight };
  return { width: Math.ceil(width + 2 * FRAME), height: Math.ceil(height + 2 * FRAME + 34 + 56) };
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

function drawViewOn(surface, left, top, size) {
  const moved = new MovedSurface(surface, left, top);
  if (state.head === null) drawOverviewOn(moved, size.width);
  else if (current.stage) {
    const { area, picture } = current.stage;
    if (!picture.dimmed) picture.draw(moved, area);
    picture.drawOver(moved, area);
  } else drawElementsOn(moved, document.getElementById("view"));
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
  for (const element of view.querySelectorAll(".token, .note, .words h3, th, td")) {
    const { left, top, width, height } = element.getBoundingClientRect();
    const paper = getComputedStyle(element).backgroundColor;
    if (paper !== "rgba(0, 0, 0, 0)") surface.rect(left - origin.left, top - origin.top, width, height, paper);
    drawElementText(surface, element, origin, getComputedStyle(element).color);
  }
}

function drawElementText(surface, element, origin, color) {
  const { left, top, height } = element.getBoundingClientRect();
  const { paddingLeft, fontSize, textAlign } = getComputedStyle(element);
  if (!element.textContent || textAlign === "center" || textAlign === "right") return drawRangeText(surface, element, origin, color);
  const [x, y] = [left - origin.left + parseFloat(paddingLeft), top - origin.top + height / 2];
  return surface.text(element.textContent, x, y, { size: parseFloat(fontSize), color });
}

function drawRangeText(surface, element, origin, color) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const { left, top, height } = range.getBoundingClientRect();
  const size = parseFloat(getComputedStyle(element).fontSize);
  surface.text(element.textContent, left - origin.left, top - origin.top + height / 2, { size, color });
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
  drawViewOn(surface, FRAME, drawFile(surface, size), size);
  return surface.file(size.width, size.height, titleOfView(), page.caption);
}

function canvasOfView() {
  const size = sizeOfView();
  const canvas = make("canvas", { width: size.width * PNG_SCALE, height: size.height * PNG_SCALE });
  const context = canvas.getContext("2d");
  context.scale(PNG_SCALE, PNG_SCALE);
  const surface = new CanvasSurface(context);
  drawViewOn(surface, FRAME, drawFile(surface, size), size);
  return canvas;
}

function saveSvg() {
  offer(new Blob([svgOfView()], { type: "image/svg+xml" }), "svg");
}

function savePng() {
  canvasOfView().toBlob((blob) => offer(blob, "png"), "image/png");
}
