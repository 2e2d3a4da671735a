/** The present view as a file: the same strokes as on the screen, on an SVG or on a larger canvas. */

import { contextOf, newCanvas, theme } from "./colors.js";
import { openShare } from "./command.js";
import { page } from "./data.js";
import { make, one } from "./elements.js";
import { canvasOf } from "./head_grid.js";
import { drawLegendOn, hasPalette } from "./legend.js";
import { effectColor, EFFECT_FRAME } from "./overview.js";
import { scene, set, state } from "./state.js";
import { TextView } from "./strip.js";
import { CanvasSurface, fitText, textWidth } from "./surface.js";
import { MovedSurface, SvgSurface } from "./svg.js";
import { captionOf, titleOfFile } from "./titles.js";

/** @import { Area, FigureSize, Stage, Surface } from "./types.js" */

/** @typedef {{ width: number, height: number }} Size */

/**
 * Of a figure: how wide it is drawn in the page's pixels, so that its letters have the size that is read there, and how
 * wide and at most how high the file is.
 *
 * @typedef {object} Format
 * @property {string} name
 * @property {number} drawn
 * @property {number} width millimetres
 * @property {number} [height] millimetres, which the figure stands in the middle of
 */

/** @type {Record<Exclude<FigureSize, "">, Format>} */
const FORMATS = {
  column: { name: "Column, 89 mm", drawn: 430, width: 89 },
  page: { name: "Page, 183 mm", drawn: 884, width: 183 },
  slide: { name: "Slide, 16:9", drawn: 960, width: 338.7, height: 190.5 },
};
const PIXELS_OF_PRINT = 300 / 25.4; // of a PNG, a millimetre
const PIXELS_OF_SLIDE = 1920 / 338.7;
const PNG_SCALE = 3;
const MAX_PNG_SIDE = 16_000; // pixels, which browsers can still draw
const FRAME = 28; // pixels around the picture
const MAX_WHOLE = 12_000; // pixels of a picture that is saved whole
const MAX_TITLE_LINES = 3;

/** The lines of a file's title: what is open, and the page's title, none of them cut in a word. @param {number} width */
function titleLines(width) {
  const open = titleOfFile();
  const whole = wrapped(page.title, 13, width, 400);
  const title = whole.slice(0, MAX_TITLE_LINES);
  if (title.length < whole.length) title.push(endedWith(title.pop() ?? "", 13, width));
  return [
    ...(open ? wrapped(open, 17, width, 650).map((text) => ({ text, size: 17, weight: 650 })) : []),
    ...title.map((text) => ({ text, size: open ? 13 : 17, weight: open ? 400 : 650 })),
  ];
}

/** A text in lines of so many pixels. @param {string} text @param {number} size @param {number} width @param {number} weight */
function wrapped(text, size, width, weight) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines[lines.length - 1] ? `${lines[lines.length - 1]} ${word}` : word;
    if (!lines[lines.length - 1] || widthInFile(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => fitText(line, size, width, weight));
}

/** A line that ends in an ellipsis, cut where that has no room. @param {string} line @param {number} size @param {number} width */
function endedWith(line, size, width) {
  const words = line.split(" ");
  while (words.length > 1 && widthInFile(`${words.join(" ")} …`, size, 400) > width) words.pop();
  return `${words.join(" ")} …`;
}

/** The width of a text as a file draws it: at a small size letters are moved to whole pixels. @param {string} text @param {number} size @param {number} weight */
function widthInFile(text, size, weight) {
  return textWidth(text, 10 * size, weight) / 10;
}

/** Draws paper, title, the view below it, and the legend last: its scale is that of what was drawn. @param {Surface} surface @param {Size} size */
function drawFile(surface, size) {
  surface.rect(0, 0, size.width, size.height, theme().paper);
  let top = FRAME - 4;
  for (const { text, size: letters, weight } of titleLines(size.width - 2 * FRAME)) {
    surface.text(text, FRAME, top + letters / 2, { size: letters, weight });
    top += letters * 1.4;
  }
  drawViewOn(surface, FRAME, top + 12);
  if (hasPalette()) drawLegendOn(surface, FRAME, size.height - FRAME - 30);
}

/** The element that is drawn where the view is no stage. */
function elementOfView() {
  if (state.head === null && state.list === "maps" && !state.together) return one("overview");
  return one("view").querySelector("table") ?? one("view");
}

/** @returns {Size} */
function sizeOfView() {
  const { width, height } = bareSize();
  const wide = Math.max(360, Math.ceil(width)) + 2 * FRAME;
  const title = titleLines(wide - 2 * FRAME).reduce((total, { size }) => total + 1.4 * size, 0);
  return { width: wide, height: Math.ceil(height + 2 * FRAME + title + (hasPalette() ? 56 : 8)) };
}

/** Of the view itself. @returns {Size} */
function bareSize() {
  const { current } = scene;
  if (current instanceof TextView) return current.wholeSize();
  if (current?.stages) {
    const { clientWidth, clientHeight } = one("view");
    return { width: clientWidth, height: clientHeight };
  }
  if (!current?.stage) return sizeOfElement(elementOfView());
  const { width, height } = areaOf(current.stage);
  return { width, height: height + (current.images?.heightIn(width) ?? 0) };
}

/** Returns the area of a stage that is saved: all of it, or the visible part if it is enlarged or very high. @param {Stage} stage @returns {Area} */
function areaOf(stage) {
  const { width, height } = stage.whole;
  if (stage.picture.factor > 1.01 || height > MAX_WHOLE) return stage.area;
  return { x: 0, y: 0, width: Math.ceil(Math.min(width, stage.width)), height: Math.ceil(height) };
}

/** Returns the size of an element: the width of its content, not of the window. @param {Element} element */
function sizeOfElement(element) {
  const { left } = element.getBoundingClientRect();
  const parts = [...element.querySelectorAll(".thumb, .across, .note, td")];
  const width = Math.max(0, ...parts.map((part) => part.getBoundingClientRect().right - left));
  return { width, height: element.scrollHeight };
}

/** @param {Surface} surface @param {number} left @param {number} top */
function drawViewOn(surface, left, top) {
  const moved = new MovedSurface(surface, left, top);
  const { current } = scene;
  if (current instanceof TextView) current.drawOn(moved);
  else if (current?.stages) drawStagesOn(moved, current.stages);
  else if (current?.stage) {
    const area = areaOf(current.stage);
    current.images?.drawOn(moved, area.width);
    drawStageOn(new MovedSurface(moved, 0, current.images?.heightIn(area.width) ?? 0), current.stage, area);
  }
  else if (elementOfView() === one("overview")) drawOverviewOn(moved);
  else {
    one("view").querySelector(".scroll")?.scrollTo(0, 0);
    drawTextOn(moved, elementOfView(), elementOfView().getBoundingClientRect());
  }
}

/** @param {Surface} surface @param {Stage} stage @param {Area} area */
function drawStageOn(surface, { picture }, area) {
  if (!picture.dimmed) picture.draw(surface, area);
  picture.drawOver(surface, area);
}

/** Stages side by side, each under its title. @param {Surface} surface @param {Stage[]} stages */
function drawStagesOn(surface, stages) {
  const origin = one("view").getBoundingClientRect();
  for (const stage of stages) {
    const { left, top } = stage.element.getBoundingClientRect();
    const [x, y] = [left - origin.left, top - origin.top];
    surface.text(fitText(captionOf(stage.picture.shown), 14, stage.element.clientWidth, 650), x, y - 12, { size: 14, weight: 650 });
    drawStageOn(new MovedSurface(surface, x, y), stage, stage.area);
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
    const color = effectColor(Number(/** @type {HTMLElement} */ (thumb).dataset.number));
    const frame = EFFECT_FRAME / 2;
    if (color) surface.frame(x - frame, y - frame, width + 2 * frame, height + 2 * frame, color, EFFECT_FRAME);
    surface.rect(x, y, width, height, theme().absent);
    surface.image(canvas, x, y, width, height, true);
  }
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
    if (!textContent?.trim() || !parentElement || parentElement.closest(".group, .unseen, caption, .plain:not(td .plain, th .plain)")) continue;
    range.selectNodeContents(walker.currentNode);
    const { left, top, height, width } = range.getBoundingClientRect();
    if (!width) continue; // what has no room is not shown
    const { fontSize, fontWeight, color } = getComputedStyle(parentElement);
    const style = { size: parseFloat(fontSize), weight: fontWeight, color };
    const cut = parentElement.matches(".does") && parentElement.scrollWidth > parentElement.clientWidth;
    const text = cut ? fitText(textContent, style.size, parentElement.clientWidth) : textContent;
    surface.text(text, left - origin.left, top - origin.top + height / 2, style);
  }
}

/** Hands a file to the browser to keep. @param {Blob} blob @param {string} suffix */
function offer(blob, suffix) {
  const several = state.together ?? (state.list === "maps" ? "heads" : state.list);
  const name = state.head === null ? several : `head-${page.heads[state.head].name}-${state.view}`;
  const link = make("a", { href: URL.createObjectURL(blob), download: `attention-${name}.${suffix}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Offers the sizes of saved figures. */
export function offerSizes() {
  const select = one("save-size");
  if (!(select instanceof HTMLSelectElement)) return;
  const named = Object.entries(FORMATS).map(([value, { name }]) => make("option", { value }, name));
  select.replaceChildren(make("option", { value: "" }, "As seen"), ...named);
  select.value = state.size;
  select.onchange = () => set({ size: /** @type {FigureSize} */ (select.value) });
}

/** The format that was chosen; nothing for the size that is seen. */
function chosenFormat() {
  return state.size ? FORMATS[state.size] : null;
}

/**
 * Lays the open picture out for a format while a file is drawn.
 *
 * @template File
 * @param {() => File} drawn
 * @returns {File}
 */
function laidOut(drawn) {
  const format = chosenFormat();
  const { stage, stages = stage ? [stage] : [] } = scene.current ?? {};
  if (format && stages.length === 1 && stages[0].picture.factor <= 1.01) {
    const [only] = stages;
    only.width = format.drawn - 2 * FRAME;
    const above = 4 * FRAME + (scene.current?.images?.heightIn(only.width) ?? 0);
    const most = format.height ? (format.drawn * format.height) / format.width - above : MAX_WHOLE;
    only.whole = only.picture.measure(only.width, format.height ? most : Math.min(most, only.width));
  }
  try {
    return drawn();
  } finally {
    for (const each of stages) each.fit(); // in the pixels of the screen again
  }
}

/** The present view as SVG. */
function svgOfView() {
  return laidOut(() => {
    const size = sizeOfView();
    const surface = new SvgSurface();
    drawFile(surface, size);
    const title = [titleOfFile(), page.title].filter(Boolean).join(" · ");
    return surface.file(size.width, size.height, title, page.caption, chosenFormat());
  });
}

function canvasOfView() {
  return laidOut(() => {
    const size = sizeOfView();
    const format = chosenFormat();
    const [wide, high] = format ? sizeOfPng(format, size) : [PNG_SCALE * size.width, PNG_SCALE * size.height];
    const scale = Math.min(wide / size.width, high / size.height, MAX_PNG_SIDE / Math.max(size.width, size.height));
    const canvas = newCanvas(format ? wide : size.width * scale, format ? high : size.height * scale);
    const context = contextOf(canvas);
    context.fillStyle = theme().paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.translate((canvas.width - size.width * scale) / 2, (canvas.height - size.height * scale) / 2);
    context.scale(scale, scale);
    const surface = new CanvasSurface(context);
    drawFile(surface, size);
    return canvas;
  });
}

/** The pixels of a PNG: of print 300 an inch, of a slide those of a screen. @param {Format} format @param {Size} size */
function sizeOfPng({ width, height }, size) {
  if (height) return [Math.round(width * PIXELS_OF_SLIDE), Math.round(height * PIXELS_OF_SLIDE)];
  const wide = Math.round(width * PIXELS_OF_PRINT);
  return [wide, Math.min(MAX_PNG_SIDE, Math.round((wide * size.height) / size.width))];
}

/** True if the open picture is laid out for a size: one stage is, seen whole; other views are drawn for it by the command line. */
function isLaidOut() {
  const stage = scene.current?.stage;
  return !state.size || (Boolean(stage) && !scene.current?.stages && (stage?.picture.factor ?? 2) <= 1.01);
}

/** Shows the command that draws what is shown in the chosen size. */
function commandInstead() {
  openShare(`For a size, this page saves only one head, seen whole. This command draws what is shown for “${chosenFormat()?.name}”; choose “As seen” to save it as it is.`);
}

export function saveSvg() {
  if (!isLaidOut()) return commandInstead();
  offer(new Blob([svgOfView()], { type: "image/svg+xml" }), "svg");
}

export function savePng() {
  if (!isLaidOut()) return commandInstead();
  canvasOfView().toBlob((blob) => blob && offer(blob, "png"), "image/png");
}
