/** The images of an axis under the weights of one token, in grey, and the words beside: point at a patch or a word. The lens draws its images by the same functions. */

import { contextOf, cssOf, groundColor, layOver, newCanvas } from "./colors.js";
import { fitText, FONT, imageInFile, moved, textAt } from "./figure.js";
import { kindOf, patchesOfMass, pieceOf, wordPieces, shareOn } from "./patch_runs.js";
import { mixed, strengthOf } from "./scales.js";
import { elementOf, h, patch } from "./tree.js";
import { ABSENT, kept } from "./values.js";
import { secondsAlong } from "./waveform.js";
import { Words } from "./words.js";

/** @import { Figure, ShownImage, Text } from "./types.js" */
/** @import { Tree } from "./tree.js" */
/** @import { Marking, Shading } from "./words.js" */

/** @typedef {{ image: ShownImage, name: string, canvas: HTMLCanvasElement, axis: HTMLElement | null, caption: HTMLElement }} DrawnImage */

const STRIP_HEIGHT = 190; // pixels, beside the maps
const LEAST_HEIGHT = 90; // pixels, below which images go to a next line
const LARGE_SHARE = 0.62; // of the window's height, where the image is the view
const IMAGES_SHARE = 0.6; // of the width, where words are beside
const MIN_BESIDE = 640; // pixels of a width in which words are beside
const IMAGE_GAP = 8; // pixels between two images
const OUTLINED_SHARE = 0.6; // of the weight on an image
const [MIN_OUTLINED_WEIGHT, MAX_OUTLINED_PATCHES] = [0.5, 0.3]; // no outline with less on the image, nor around more of its patches, as in figures
const CAPTION = { size: 12, height: 18 }; // pixels
const SHARE = { size: CAPTION.size, color: "var(--soft)" }; // the letters of a share in a file

export class Patches {
  /**
   * @param {HTMLElement} parent
   * @param {Pick<Text, "labels" | "spaces" | "images" | "others">} text
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, text, label, marking) {
    this.marking = marking;
    /** @type {Shading | null} */
    this.shading = null;
    this.isLarge = parent.classList.contains("text-large");
    this.pieces = wordPieces(text);
    this.others = text.others ?? "other tokens";
    const images = text.images ?? [];
    this.images = images.map((image, number) => this.drawnImage(image, `${kindOf(image)}${images.length > 1 ? ` ${number + 1}` : ""}`));
    const figures = this.images.map(({ canvas, axis, caption }) => h("figure", {}, canvas, axis, caption));
    this.column = elementOf(h("div", { class: "patches-words" }));
    this.wordsCaption = elementOf(h("div", { class: "share" }));
    this.element = elementOf(h("div", { class: "patches", tabindex: 0, role: "group", "aria-label": label }, h("div", { class: "patches-images" }, ...figures)));
    parent.append(this.element);
    this.words = this.pieces.areRuns.every(Boolean) ? null : this.drawWords(label);
    this.element.addEventListener("pointerleave", () => marking.point(null));
    this.fit();
    for (const { image } of this.images) whenRead(image, () => this.paint());
  }

  /** @param {ShownImage} image @param {string} name @returns {DrawnImage} */
  drawnImage(image, name) {
    const { point, choose } = this.marking;
    const listeners = {
      onpointermove: (/** @type {PointerEvent} */ event) => event.pointerType !== "touch" && point(tokenAt(image, event)),
      onpointerleave: () => point(null),
      onclick: (/** @type {MouseEvent} */ event) => {
        const token = tokenAt(image, event);
        if (token !== null) choose(token, event.shiftKey);
      },
    };
    const canvas = /** @type {HTMLCanvasElement} */ (elementOf(h("canvas", { class: "patches-image", title: image.title || "", ...listeners })));
    const axis = image.seconds ? elementOf(h("div", { class: "patches-axis" })) : null;
    return { image, name, canvas, axis, caption: elementOf(h("figcaption", { class: "share" })) };
  }

  /** The tokens that are not in an image; a run of patches can only be read. @param {string} label */
  drawWords(label) {
    this.element.append(this.column);
    const { starts, areRuns } = this.pieces;
    const { point, choose, isChosen, isMarked } = this.marking;
    const isToken = (/** @type {(token: number) => boolean} */ check) => (/** @type {number} */ piece) => !areRuns[piece] && check(starts[piece]);
    const words = new Words(this.column, this.pieces, label, {
      point: (piece) => point(piece === null || areRuns[piece] ? null : starts[piece]),
      choose: (piece, beside) => !areRuns[piece] && choose(starts[piece], beside),
      isChosen: isToken(isChosen),
      isMarked: isToken(isMarked),
    });
    this.column.append(this.wordsCaption);
    return words;
  }

  /** The sizes of the images in so many pixels, all equally high, and whether words stand beside them. @param {number} width */
  layout(width) {
    const beside = this.words !== null && width >= MIN_BESIDE;
    const room = beside ? IMAGES_SHARE * width : width;
    const most = this.isLarge ? LARGE_SHARE * window.innerHeight : STRIP_HEIGHT;
    const ratios = this.images.map(({ image }) => image.width / image.height);
    const inLine = (room - IMAGE_GAP * (ratios.length - 1)) / ratios.reduce((sum, ratio) => sum + ratio, 0);
    const height = Math.min(most, Math.max(LEAST_HEIGHT, inLine));
    const sizes = ratios.map((ratio) => ({ across: Math.min(room, height * ratio), down: Math.min(room / ratio, height) }));
    return { beside, room, sizes };
  }

  /** Takes the room that there is. */
  fit() {
    const { beside, sizes } = this.layout(Math.max(60, this.element.clientWidth));
    this.element.classList.toggle("beside-words", beside);
    this.images.forEach(({ image, canvas, axis }, number) => {
      const { across, down } = sizes[number];
      sizeCanvas(canvas, across, down);
      if (axis) patch(axis, [h("svg", { width: across, height: CAPTION.height, style: "display: block" }, ...secondsAlong(secondsOf(image), 0, CAPTION.height / 2, across, CAPTION.size - 1))]);
    });
    this.words?.fit();
    this.paint();
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
    this.shadeWords(shading);
    this.writeShares(shading.row ?? null);
  }

  /** @param {Shading} shading */
  shadeWords({ values, scale, colors }) {
    const { starts, areRuns } = this.pieces;
    const ofPieces = values && Float32Array.from(starts, (start, piece) => (areRuns[piece] && values[start] !== ABSENT ? 0 : values[start]));
    this.words?.shade({ values: ofPieces, scale, colors: colors && starts.map((start) => colors[start]) });
  }

  /** Writes how much of a row of weights is on each image, and on the words. @param {Float32Array | null} row */
  writeShares(row) {
    const said = (/** @type {number} */ share, /** @type {string} */ name) => (row ? `${Math.round(100 * share)}% on ${name}` : "\u00a0");
    const outlined = (/** @type {ShownImage} */ image) => (row && outlinedPatches(image, row).length ? `, ${100 * OUTLINED_SHARE}% of it in the outline` : "");
    let onImages = 0;
    for (const { image, name, caption } of this.images) {
      const share = row ? shareOn(row, image.tokens) : 0;
      onImages += share;
      caption.title = caption.textContent = said(share, name) + outlined(image);
    }
    this.wordsCaption.textContent = said(row ? shareOn(row, row.keys()) - onImages : 0, this.others);
  }

  paint() {
    const { marking } = this;
    const ground = this.shading ? groundColor(this.shading.scale) : 255;
    for (const { image, canvas, axis } of this.images) {
      paintImage(canvas, image, (token) => this.colorOf(token, ground), ground);
      if (axis) nameBands(canvas, image);
      if (this.shading?.row) outlinePatches(canvas, image, outlinedPatches(image, this.shading.row));
      image.tokens.forEach((token, patch) => {
        if (marking.isChosen(token) || marking.isMarked(token)) framePatch(canvas, image, patch);
      });
    }
  }

  /** @param {number} token @param {number} ground */
  colorOf(token, ground) {
    const paper = ground ? "#ffffff" : "#000000";
    if (!this.shading?.values) return paper;
    const { values, scale, colors } = this.shading;
    if (values[token] === ABSENT || Number.isNaN(values[token])) return "";
    const color = colors?.[token];
    return color ? `rgb(${mixed(paper, color, strengthOf(values[token], scale)).join(", ")})` : cssOf(values[token], scale);
  }

  /** The images with their shares, and the words beside or below. @param {number} width @returns {Figure} */
  figure(width) {
    const { beside, room, sizes } = this.layout(width);
    /** @type {Tree[]} */
    const tree = [];
    let [x, y, widest, next] = [0, 0, 0, 0];
    this.images.forEach(({ image, canvas, axis, caption }, number) => {
      const { across, down } = sizes[number];
      if (x && x + across > room + 1) [x, y] = [0, next];
      tree.push(imageInFile(canvas, { x, y, width: across, height: down }, "photo"));
      if (axis) tree.push(...secondsAlong(secondsOf(image), x, y + down + CAPTION.height / 2, across, CAPTION.size - 1));
      const below = y + down + (axis ? CAPTION.height : 0);
      tree.push(textAt(fitText(caption.textContent ?? "", SHARE.size, across), x, below + CAPTION.height / 2, SHARE));
      x += across + IMAGE_GAP;
      [widest, next] = [Math.max(widest, x), Math.max(next, below + CAPTION.height)];
    });
    if (!this.words) return { tree, width, height: next };
    const [left, top] = beside ? [widest + IMAGE_GAP, 0] : [0, next];
    const words = this.words.figure(width - left);
    tree.push(moved(left, top, ...words.tree), textAt(this.wordsCaption.textContent ?? "", left, top + words.height + CAPTION.height / 2, SHARE));
    return { tree, width, height: Math.max(next, top + words.height + CAPTION.height) };
  }

  /** Scrolls the words to a token; all of an image is seen. @param {number} token */
  reveal(token) {
    this.words?.reveal(pieceOf(this.pieces, token));
  }
}

/** The columns of a spectrogram as an axis of frames. @param {ShownImage} image @returns {Text} */
function secondsOf({ seconds = 0, width }) {
  const step = seconds / width;
  return { labels: Array(width), spaces: "", seconds: [step / 2, step] };
}

/** Writes the names of the highest and the lowest band into the left corners of a spectrogram. @param {HTMLCanvasElement} canvas @param {ShownImage} image */
function nameBands(canvas, image) {
  const context = contextOf(canvas);
  const density = canvas.width / canvas.clientWidth || 1;
  const size = (CAPTION.size - 1) * density;
  Object.assign(context, { font: `650 ${size}px ${FONT}`, fillStyle: "#fff", textBaseline: "middle" });
  const bands = new Set(image.boxes.map(([, top]) => top)).size;
  context.fillText(`b${bands - 1}`, 3 * density, size);
  context.fillText("b0", 3 * density, canvas.height - size);
}

/** @typedef {(token: number) => string} PatchColor of a patch; "" for none */

/** @type {WeakMap<ShownImage, HTMLImageElement>} */
const photos = new WeakMap();

/** Calls a function when the pixels of an image can be drawn: at once if they are read. @param {ShownImage} image @param {() => void} draw */
export function whenRead(image, draw) {
  const photo = photoOf(image);
  if (photo.complete && photo.naturalWidth) draw();
  else photo.addEventListener("load", draw, { once: true });
}

/** @param {ShownImage} image */
function photoOf(image) {
  return kept(photos, image, () => Object.assign(new Image(), { src: image.src }));
}

/** Gives a canvas the size of an image of so many pixels of the page. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
function sizeCanvas(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
}

/** Paints an image with its patches on a canvas. @param {HTMLCanvasElement} canvas @param {ShownImage} image @param {PatchColor} colorOf @param {number} ground of the colours */
export function paintImage(canvas, image, colorOf, ground) {
  const colors = newCanvas(canvas.width, canvas.height);
  const context = contextOf(colors);
  const size = canvas.width / image.width;
  image.tokens.forEach((token, patch) => {
    const [left, top, right, bottom] = image.boxes[patch].map((side) => Math.round(side * size));
    context.fillStyle = colorOf(token) || "#0000";
    context.fillRect(left, top, right - left, bottom - top);
  });
  contextOf(canvas).drawImage(photoOf(image), 0, 0, canvas.width, canvas.height);
  layOver(canvas, colors, ground);
}

/** Frames a patch in two colours, of which one is seen on any image. @param {HTMLCanvasElement} canvas @param {ShownImage} image @param {number} patch */
export function framePatch(canvas, image, patch) {
  const context = contextOf(canvas);
  const size = canvas.width / image.width;
  const [left, top, right, bottom] = image.boxes[patch].map((side) => side * size);
  for (const [color, thick] of /** @type {[string, number][]} */ ([["#000", 5], ["#fff", 2]])) {
    context.strokeStyle = color;
    context.lineWidth = thick;
    context.strokeRect(left, top, right - left, bottom - top);
  }
}

/** The patches with most of a row's weight on an image; none where they would say little. @param {ShownImage} image @param {Float32Array} row */
function outlinedPatches(image, row) {
  const patches = patchesOfMass(image, row, OUTLINED_SHARE);
  const seen = image.tokens.filter((token) => row[token] !== ABSENT).length;
  return shareOn(row, image.tokens) > MIN_OUTLINED_WEIGHT && patches.length <= Math.ceil(MAX_OUTLINED_PATCHES * seen) ? patches : [];
}

/** Outlines patches of an image; a side between two of them is left out. @param {HTMLCanvasElement} canvas @param {ShownImage} image @param {number[]} inside */
function outlinePatches(canvas, image, inside) {
  /** @type {Map<string, number[]>} */
  const sides = new Map();
  for (const patch of inside) {
    const [x, y, right, bottom] = image.boxes[patch];
    for (const side of [[x, y, right, y], [x, bottom, right, bottom], [x, y, x, bottom], [right, y, right, bottom]]) {
      if (!sides.delete(String(side))) sides.set(String(side), side);
    }
  }
  const context = contextOf(canvas);
  const size = canvas.width / image.width;
  context.beginPath();
  for (const side of sides.values()) {
    const [x, y, right, bottom] = side.map((place) => place * size);
    context.moveTo(x, y);
    context.lineTo(right, bottom);
  }
  for (const [color, thick] of /** @type {[string, number][]} */ ([["#000a", 3], ["#fff", 1.5]])) {
    [context.strokeStyle, context.lineWidth] = [color, thick];
    context.stroke();
  }
}

/** The token of the smallest patch under a pointer on an image of so many pixels, or null: tiles lie over the patches of a whole image. @param {ShownImage} image @param {{ target: unknown, offsetX: number, offsetY: number }} pointer */
export function tokenAt({ width, tokens, boxes }, { target, offsetX, offsetY }) {
  const size = /** @type {HTMLElement} */ (target).clientWidth / width;
  const [x, y] = [offsetX / size, offsetY / size];
  let [found, least] = [-1, Infinity];
  boxes.forEach(([left, top, right, bottom], patch) => {
    const area = (right - left) * (bottom - top);
    if (x >= left && x < right && y >= top && y < bottom && area < least) [found, least] = [patch, area];
  });
  return found < 0 ? null : tokens[found];
}
