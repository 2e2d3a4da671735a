/** Takes what is shown out of the page: as a figure in a file, as a link, and as the `attnviz` command that draws it. */

import { isOfMaps } from "./choices.js";
import { contextOf, newCanvas, theme } from "./colors.js";
import { page, textOf } from "./data.js";
import { copied, offer, openLink } from "./dialogs.js";
import { one } from "./elements.js";
import { clipped, fitText, FONT, imageInFile, moved, rectangle, short, textAt, textWidth, widthInFile, wrapped } from "./figure.js";
import { headLabel, paintedCanvas, plansOf } from "./head_grid.js";
import { hasPalette, legendFigure } from "./legend.js";
import { listedHeads, sortMetric } from "./listing.js";
import { effectColor, EFFECT_FRAME } from "./overview.js";
import { nameOfPlace } from "./places.js";
import { captionOf, titleOfFile } from "./quantities.js";
import { showsScores, unitsNow } from "./shown.js";
import { DIMMED } from "./stage.js";
import { scene, set, showsMoved, state } from "./state.js";
import { mostAcross } from "./together.js";
import { h, patch, textIn, written } from "./tree.js";

/** @import { Area, Figure, FigureSize, Picture, Stage } from "./types.js" */
/** @import { Room } from "./head_grid.js" */
/** @import { Child, Tree } from "./tree.js" */

/**
 * Of a figure: how wide it is drawn in the page's pixels, so that its letters have the size that is read there, and how
 * wide and at most how high the file is.
 *
 * @typedef {object} Format
 * @property {string} name
 * @property {number} drawn
 * @property {number} width millimetres
 * @property {number} pixels of a PNG, a millimetre
 * @property {number} [height] millimetres, which the figure stands in the middle of
 */

/** @type {Record<Exclude<FigureSize, "">, Format>} */
const FORMATS = {
  column: { name: "Column, 89 mm", drawn: 430, width: 89, pixels: 300 / 25.4 },
  page: { name: "Page, 183 mm", drawn: 884, width: 183, pixels: 300 / 25.4 },
  slide: { name: "Slide, 16:9", drawn: 960, width: 338.7, pixels: 1920 / 338.7, height: 190.5 },
};
const SVG_DENSITY = 2; // a viewer that draws a pixel for two takes the mean of both, and drops neither
const PNG_SCALE = 3;
const MAX_PNG_SIDE = 16_000; // pixels, which browsers can still draw
const FRAME = 28; // pixels around the picture
const MAX_WHOLE = 12_000; // pixels of a picture that is saved whole
const MAX_TITLE_LINES = 3;
const LEAST_WIDTH = 360; // pixels of a file
const BESIDE_GAP = 16; // pixels between pictures side by side
const BESIDE_TITLE = 26; // pixels of the title above each
const TITLE_LINE = 18; // pixels of each further line of a title
const LEAST_THUMB = 20; // pixels
const NAMES_BELOW = 16; // pixels of the names under a thumbnail
const BESIDE_RATIO = 1.5; // of the height that a picture beside others has to its width, where the file may be as high as it needs
const LEAST_BESIDE = 150; // pixels

/** The view in a format, or as it is seen. @param {Format | null} format @param {number} density pixels of the file in one of the layout @returns {Figure} */
function figureOfView(format, density) {
  const { current } = scene;
  const width = format ? format.drawn - 2 * FRAME : one("view").clientWidth;
  const most = format?.height ? (format.drawn * format.height) / format.width - 4 * FRAME : Math.min(MAX_WHOLE, width);
  const room = format ? { width, height: format.height ? most : width, em: 1, least: LEAST_THUMB, isCompact: false } : undefined;
  if (current?.figure) return current.figure(width);
  if (current?.stages) return besideEachOther(current.stages, format, width, most, density);
  if (current?.stage) {
    const above = current.images ? headsFigure(room) : { tree: [], width: 0, height: 0 };
    const picture = current.stage.picture.inFile();
    const figure = figureOfPicture(picture, areaOf(current.stage, picture, format, width, most - above.height), density);
    return { ...figure, tree: [...above.tree, moved(0, above.height, ...figure.tree)], height: above.height + figure.height };
  }
  if (isOfMaps(state)) return headsFigure(room);
  const lines = wrapped(one("view").textContent ?? "", 13, width); // why nothing is drawn
  return { tree: lines.map((line, place) => textAt(line, 0, 10 + 18 * place, { size: 13 })), width, height: 18 * lines.length };
}

/** The part of a stage that is saved: all of it, or where it is enlarged or very high the part that is seen. @param {Stage} stage @param {Picture} picture of it, which is laid out for a format @param {Format | null} format @param {number} width @param {number} most @returns {Area} */
function areaOf(stage, picture, format, width, most) {
  const isPart = picture.factor > 1.01 || stage.whole.height > MAX_WHOLE;
  if (isPart) return format ? picture.partFor(stage.area, width, most) : stage.area;
  const whole = format ? picture.measure(width, most) : stage.whole;
  return { x: 0, y: 0, width: Math.ceil(Math.min(whole.width, format ? width : stage.width)), height: Math.ceil(whole.height) };
}

/** @param {Picture} picture @param {Area} area @param {number} density @returns {Figure} */
function figureOfPicture(picture, area, density) {
  const { left, top } = picture.fixed;
  const images = picture.images(area, density).flatMap(({ canvas, x, y, width, height }) => [rectangle(x, y, width, height, "var(--absent)"), imageInFile(canvas, { x, y, width, height })]);
  const cells = clipped({ x: left, y: top, width: area.width - left, height: area.height - top }, ...images);
  const base = h("g", { opacity: picture.dimmed ? DIMMED : null }, ...picture.base(area));
  return { tree: [cells, base, ...picture.marks(area)], width: area.width, height: area.height, scale: picture.scale ?? picture.shown.scale };
}

/** Stages side by side, each under its title. @param {Stage[]} stages @param {Format | null} format @param {number} width @param {number} most @param {number} density @returns {Figure} */
function besideEachOther(stages, format, width, most, density) {
  const isFree = !format?.height; // the file is as high as it needs
  const inWidth = isFree ? Math.max(1, Math.min(stages.length, Math.floor(width / LEAST_BESIDE))) : mostAcross(stages.length, width, most);
  const across = format ? inWidth : (scene.current?.across ?? 1);
  const side = (width + BESIDE_GAP) / across - BESIDE_GAP;
  const titles = stages.map(({ picture }) => wrapped(captionOf(picture.shown), 14, side, 650));
  const titleHeight = BESIDE_TITLE + TITLE_LINE * (Math.max(...titles.map((lines) => lines.length)) - 1);
  const room = isFree ? BESIDE_RATIO * side : most / Math.ceil(stages.length / across) - titleHeight - BESIDE_GAP;
  const copies = stages.map(({ picture }) => picture.inFile());
  const areas = copies.map((copy, place) => areaOf(stages[place], copy, format, side, room));
  copies.forEach((copy, place) => {
    copy.peers = copies;
    copy.images(areas[place], density); // so that all know the scale that they share
  });
  const figures = copies.map((copy, place) => figureOfPicture(copy, areas[place], density));
  /** @type {Tree[]} */
  const tree = [];
  let height = 0;
  for (let first = 0; first < figures.length; first += across) {
    const row = figures.slice(first, first + across);
    row.forEach((figure, place) => {
      const x = place * (side + BESIDE_GAP);
      titles[first + place].forEach((text, line) => tree.push(textAt(text, x, height + 12 + TITLE_LINE * line, { size: 14, weight: 650 })));
      tree.push(moved(x, height + titleHeight, ...figure.tree));
    });
    height += titleHeight + BESIDE_GAP + Math.max(...row.map((figure) => figure.height));
  }
  return { tree, width, height: height - BESIDE_GAP, scale: figures[0].scale };
}

/** All heads as they stand in so much room: their maps and names, and beside these layers and heads. @param {Room} [room] the window's where none is given @returns {Figure} */
function headsFigure(room) {
  const style = { size: 10, color: "var(--soft)" };
  /** @type {Tree[]} */
  const tree = [];
  let [top, width] = [0, 0];
  for (const { title, rows, down, across, blocks, side, ratio, gap, column, namesWidth, isRegular, isNamed, saidOf } of plansOf(undefined, room)) {
    if (title) tree.push(textAt(title, 0, top + 8, { ...style, size: 12 }));
    top += (title ? 22 : 0) + (isRegular ? 18 : 0);
    const names = namesWidth && namesWidth + gap;
    const [pitch, block] = [side / ratio + gap + (isNamed ? NAMES_BELOW : 0), names + (across / blocks) * (column + gap)];
    rows.forEach(({ name, numbers }, row) => {
      const [left, y] = [Math.floor(row / down) * block, top + (row % down) * pitch];
      tree.push(textAt(isRegular && !(row % down) ? "layer" : "", left, top - 10, style), textAt(name, left, y + side / ratio / 2, style));
      numbers.forEach((number, index) => {
        const x = left + names + index * (column + gap);
        if (isRegular && !(row % down)) tree.push(textAt(headLabel(number, index, style.size, column + gap), x, top - 10, style));
        const [color, frame] = [effectColor(number), EFFECT_FRAME / 2];
        const around = { x: x - frame, y: y - frame, width: side + 2 * frame, height: side / ratio + 2 * frame };
        if (color) tree.push(h("rect", { ...around, fill: "none", stroke: color, "stroke-width": EFFECT_FRAME }));
        tree.push(rectangle(x, y, side, side / ratio, "var(--absent)"), imageInFile(paintedCanvas(number), { x, y, width: side, height: side / ratio }, scene.current?.images ? "photo" : "pixels"));
        const fits = (/** @type {string} */ text) => textWidth(text, style.size) <= column;
        const said = isNamed ? saidOf(number, !isRegular, number, fits).names.map((each) => textIn(/** @type {Child} */ (each))).join(" ") : "";
        tree.push(textAt(fitText(said, style.size, column), x, y + side / ratio + 9, style));
      });
      width = Math.max(width, left + names + numbers.length * (column + gap));
    });
    top += Math.min(down, rows.length) * pitch + gap;
  }
  return { tree, width, height: top };
}

/** The lines of a file's title: what is open, and the page's title, none of them cut in a word. @param {number} width */
function titleLines(width) {
  const open = titleOfFile();
  const [large, small] = [{ size: 17, weight: 650 }, { size: 13, weight: 400 }];
  const style = open ? small : large;
  const whole = wrapped(page.title, style.size, width, style.weight);
  const title = whole.slice(0, MAX_TITLE_LINES);
  if (title.length < whole.length) {
    const words = (title.pop() ?? "").split(" ");
    while (words.length > 1 && widthInFile(`${words.join(" ")} …`, style.size, style.weight) > width) words.pop();
    title.push(`${words.join(" ")} …`);
  }
  return [...(open ? wrapped(open, 17, width, 650).map((text) => ({ text, ...large })) : []), ...title.map((text) => ({ text, ...style }))];
}

/** The file of the view: paper, title, what is shown, and below it the legend, whose scale is that of what was drawn. @param {number} density @returns {{ tree: Tree[], frame: Area }} */
function fileOfView(density) {
  const format = chosenFormat();
  const figure = figureOfView(format, density);
  const width = format?.drawn ?? Math.max(LEAST_WIDTH, Math.ceil(figure.width)) + 2 * FRAME;
  let y = FRAME - 4;
  const title = titleLines(width - 2 * FRAME).map(({ text, size, weight }) => {
    y += size * 1.4;
    return textAt(text, FRAME, y - size * 0.9, { size, weight });
  });
  const shown = moved(FRAME, y + 12, ...figure.tree);
  y += 12 + Math.ceil(figure.height) + (hasPalette() ? 20 : 0);
  const legend = hasPalette() ? legendFigure(width - 2 * FRAME, figure.scale) : { tree: [], height: 0 };
  const height = Math.ceil(y + legend.height + FRAME - 8);
  const ratio = format?.height ? format.width / format.height : width / height; // the picture stands in the middle of its frame
  const [across, down] = [Math.max(width, height * ratio), Math.max(height, width / ratio)];
  const frame = { x: (width - across) / 2, y: (height - down) / 2, width: across, height: down };
  const paper = rectangle(frame.x, frame.y, frame.width, frame.height, "var(--paper)");
  return { tree: [paper, ...title, shown, moved(FRAME, y, ...legend.tree)], frame };
}

/** @param {ReturnType<typeof fileOfView>} file @param {string | number} width @param {string | number} height */
function svgOf({ tree, frame }, width, height) {
  const title = [titleOfFile(), page.title].filter(Boolean).join(" · ");
  const viewBox = [frame.x, frame.y, frame.width, frame.height].map(short).join(" ");
  const root = h("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox, role: "img", "font-family": FONT }, h("title", {}, title), h("desc", {}, page.caption), ...tree);
  return `${written(root, (name) => theme()[name])}\n`;
}

/** The present view as SVG. */
function svgOfView() {
  const file = fileOfView(SVG_DENSITY);
  const format = chosenFormat();
  if (!format) return svgOf(file, Math.ceil(file.frame.width), Math.ceil(file.frame.height));
  return svgOf(file, `${format.width}mm`, `${short((format.width * file.frame.height) / file.frame.width)}mm`);
}

/** The present view as pixels: of print 300 an inch, of a slide those of a screen. */
async function canvasOfView() {
  const format = chosenFormat();
  const scale = format ? (format.width * format.pixels) / format.drawn : PNG_SCALE;
  const file = fileOfView(scale);
  const wide = format ? format.width * format.pixels : PNG_SCALE * file.frame.width;
  const high = (wide * file.frame.height) / file.frame.width;
  const fitting = Math.min(1, MAX_PNG_SIDE / Math.max(wide, high));
  const canvas = newCanvas(Math.round(wide * fitting), Math.round(high * fitting));
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svgOf(file, canvas.width, canvas.height))}`;
  await image.decode();
  contextOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** The format that was chosen; nothing for the size that is seen. */
function chosenFormat() {
  return state.size ? FORMATS[state.size] : null;
}

/** The name of the file of the view. @param {string} suffix */
function fileName(suffix) {
  const several = state.together ?? (state.list === "maps" ? "heads" : state.list);
  return `attention-${state.head === null ? several : `head-${page.heads[state.head].name}-${state.view}`}.${suffix}`;
}

/** Offers the sizes of saved figures. */
export function offerSizes() {
  const select = /** @type {HTMLSelectElement} */ (one("save-size"));
  patch(select, [h("option", { value: "" }, "As seen"), ...Object.entries(FORMATS).map(([value, { name }]) => h("option", { value }, name))]);
  select.value = state.size;
  select.onchange = () => set({ size: /** @type {FigureSize} */ (select.value) });
}

export function saveSvg() {
  offer(new Blob([svgOfView()], { type: "image/svg+xml" }), fileName("svg"));
}

export async function savePng() {
  (await canvasOfView()).toBlob((blob) => blob && offer(blob, fileName("png")), "image/png");
}

/** The words of `attnviz show --size` for the sizes of figures. */
const SIZES = { column: "column", page: "page", slide: "16:9" };

/** What the command does not draw of the screen. @type {Record<string, string>} */
const LACKS = {
  scores: "It draws weights; the button SVG saves a figure of the scores.",
  difference: "It draws both heads; the button SVG saves a figure of their difference.",
  overlay: "It draws each head; the button SVG saves a figure of the heads over each other.",
  matrix: "It does not frame the kept token; the link keeps it.",
  numbers: "It draws thumbnails: attnviz heads lists the numbers.",
  lens: "It shades what a token attends to; the button SVG saves what attends to it.",
};

/** The line, and what of the screen it does not draw. @returns {{ line: string, lacks: string }} */
function commandOf() {
  const shown = state.head !== null ? state.view : (state.together ?? state.list);
  const size = [state.size && `--size ${SIZES[state.size]}`, `-o figure.${state.size === "slide" ? "png" : "svg"}`];
  if (shown === "why" && page.why) {
    const words = [page.command.input.replace(/^attnviz show/, "attnviz why"), page.why.options, ...size];
    return { line: words.filter(Boolean).join(" "), lacks: page.command.remark };
  }
  const heads = state.head !== null ? [state.head] : state.together ? state.chosen : shown === "lens" ? listedHeads() : null;
  const words = [page.command.input, showsMoved() && "--of contributions"];
  if (heads) words.push(`--heads ${heads.map((number) => page.heads[number].name).join(",")}`);
  else words.push(state.filter && `--filter ${shellQuoted(state.filter)}`, sortMetric() && `--sort ${state.sort}`, "--all");
  if (["mean", "max", "rollout"].includes(shown)) words.push(`--reduce ${shown}`);
  words.push(state.by !== "tokens" && `--by ${state.by}`, state.special === "hidden" && "--no-special");
  if (!page.command.compares) {
    if (shown === "arcs") words.push("--style arcs");
    else if (shown === "table") words.push("--style both");
    else if (shown === "text" || shown === "lens") words.push(queryWord(heads?.[0] ?? 0) || "--style text");
    else words.push(...zoomWords());
  }
  if (shown !== "table" && shown !== "lens" && state.side === "") {
    const limits = page.fixed && state.limits === "shared" ? page.fixed.join(":") : state.limits === "head" && "head";
    words.push(`--color-scale ${state.steps}`, limits && `--limits ${limits}`);
  }
  words.push(...size);
  const draws = (shown === "matrix" && !state.pin) || (shown === "lens" && state.pin?.query !== null);
  const lacks = showsScores() ? LACKS.scores : draws ? "" : LACKS[shown];
  return { line: words.filter(Boolean).join(" "), lacks: [lacks, page.command.remark].filter(Boolean).join(" ") };
}

/** The kept query as an option, which counts the units that the command draws; "" if none is kept. @param {number} number of a head */
function queryWord(number) {
  const place = state.pin?.query ?? null;
  const text = textOf(number, "query");
  const units = unitsNow(text);
  if (place === null || (units && text.first)) return ""; // units before the part of the axis are not counted here
  const name = units ? nameOfPlace({ ...units.text, first: 0 }, units.unitOf(place)) : nameOfPlace(text, place);
  return `--query ${shellQuoted(name)}`;
}

/** The part that is seen of a picture that is enlarged. */
function zoomWords() {
  const stage = scene.current?.stage;
  if (!stage || stage.picture.factor <= 1.01 || state.head === null) return [];
  const [first, last] = [[1, 1], [stage.width - stage.picture.fixed.left - 2, stage.height - stage.picture.fixed.top - 2]].map(([x, y]) =>
    stage.picture.pointAt(x + stage.picture.fixed.left, y + stage.picture.fixed.top, stage.area),
  );
  if (first?.query == null || first.key == null) return [];
  const [queries, keys] = [textOf(state.head, "query"), textOf(state.head, "key")];
  const span = (/** @type {import("./types.js").Text} */ text, /** @type {number} */ from, /** @type {number | null | undefined} */ to) => {
    const place = (/** @type {number} */ at) => (text.edges ? text.edges[at] : (text.first ?? 0) + at);
    return `${place(from)}:${to === null || to === undefined ? "" : place(to) + 1}`;
  };
  return [`--queries ${span(queries, first.query, last?.query)}`, `--keys ${span(keys, first.key, last?.key)}`];
}

/** A word as a shell reads it. @param {string} word */
function shellQuoted(word) {
  return /^[\w.,:@%+/-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}

/** Shows the link and the command, each with what copies it. @param {string} [note] */
export function openShare(note = "") {
  const { line, lacks } = commandOf();
  openLink(note ? [h("p", {}, note)] : [], [copied("Command that draws it", line), ...(lacks ? [h("p", { class: "hint" }, lacks)] : [])]);
}
