/** The images of an axis under the weights of one token, in grey, and the words beside: point at a patch or a word. */

import { contextOf, theme } from "./colors.js";
import { make } from "./elements.js";
import { drawSeconds } from "./envelope.js";
import { framePatch, outlinePatches, paintImage, sizeCanvas, tokenAt, whenRead } from "./image_canvas.js";
import { kindOf, patchesOfMass, pieceOf, wordPieces, shareOn } from "./patch_runs.js";
import { hueOf, strengthOf } from "./scales.js";
import { CanvasSurface } from "./surface.js";
import { MovedSurface } from "./svg.js";
import { ABSENT } from "./values.js";
import { Words } from "./words.js";

/** @import { ShownImage, Surface, Text } from "./types.js" */
/** @import { Marking, Shading } from "./words.js" */

/** @typedef {{ image: ShownImage, name: string, canvas: HTMLCanvasElement, axis: HTMLCanvasElement | null, caption: HTMLElement }} DrawnImage */

const STRIP_HEIGHT = 190; // pixels, beside the maps
const LEAST_HEIGHT = 90; // pixels, below which images go to a next line
const LARGE_SHARE = 0.62; // of the window's height, where the image is the view
const IMAGES_SHARE = 0.6; // of the width, where words are beside
const MIN_BESIDE = 640; // pixels of a width in which words are beside
const IMAGE_GAP = 8; // pixels between two images
const PATCH_OPACITY = 0.8; // of the strongest colour
const OUTLINED_SHARE = 0.6; // of the weight on an image
const CAPTION = { size: 12, height: 18 }; // pixels

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
    const figures = this.images.map(({ canvas, axis, caption }) => make("figure", {}, canvas, ...(axis ? [axis] : []), caption));
    this.row = make("div", { className: "patches-images" }, ...figures);
    this.column = make("div", { className: "patches-words" });
    this.wordsCaption = make("div", { className: "share" });
    this.element = make("div", { className: "patches", tabIndex: 0 }, this.row);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", label);
    parent.append(this.element);
    this.words = this.pieces.areRuns.every(Boolean) ? null : this.drawWords(label);
    this.element.addEventListener("pointerleave", () => marking.point(null));
    this.fit();
    for (const { image } of this.images) whenRead(image, () => this.paint());
  }

  /** @param {ShownImage} image @param {string} name @returns {DrawnImage} */
  drawnImage(image, name) {
    const canvas = make("canvas", { className: "patches-image", title: image.title || "" });
    const { point, choose } = this.marking;
    canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(tokenAt(image, event)));
    canvas.addEventListener("pointerleave", () => point(null));
    canvas.addEventListener("click", (event) => {
      const token = tokenAt(image, event);
      if (token !== null) choose(token, event.shiftKey);
    });
    const axis = image.seconds ? make("canvas", { className: "patches-axis" }) : null;
    return { image, name, canvas, axis, caption: make("figcaption", { className: "share" }) };
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

  /** Lays out the images, all equally high, and the words beside them or below. */
  fit() {
    const width = Math.max(60, this.element.clientWidth);
    const beside = this.words !== null && width >= MIN_BESIDE;
    this.element.classList.toggle("beside-words", beside);
    const room = beside ? IMAGES_SHARE * width : width;
    const most = this.isLarge ? LARGE_SHARE * window.innerHeight : STRIP_HEIGHT;
    const ratios = this.images.map(({ image }) => image.width / image.height);
    const inLine = (room - IMAGE_GAP * (ratios.length - 1)) / ratios.reduce((sum, ratio) => sum + ratio, 0);
    const height = Math.min(most, Math.max(LEAST_HEIGHT, inLine));
    this.images.forEach(({ canvas, axis }, number) => {
      const across = Math.min(room, height * ratios[number]);
      sizeCanvas(canvas, across, across / ratios[number]);
      if (axis) sizeCanvas(axis, across, CAPTION.height);
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
    const outlined = `, ${100 * OUTLINED_SHARE}% of it in the outline`;
    let onImages = 0;
    for (const { image, name, caption } of this.images) {
      const share = row ? shareOn(row, image.tokens) : 0;
      onImages += share;
      caption.title = caption.textContent = said(share, name) + (row ? outlined : "");
    }
    this.wordsCaption.textContent = said(row ? shareOn(row, row.keys()) - onImages : 0, this.others);
  }

  paint() {
    const { marking } = this;
    for (const { image, canvas, axis } of this.images) {
      paintImage(canvas, image, (token) => this.colorOf(token));
      if (axis) paintAxes(axis, canvas, image);
      if (this.shading?.row) outlinePatches(canvas, image, patchesOfMass(image, this.shading.row, OUTLINED_SHARE));
      image.tokens.forEach((token, patch) => {
        if (marking.isChosen(token) || marking.isMarked(token)) framePatch(canvas, image, patch);
      });
    }
  }

  /** @param {number} token */
  colorOf(token) {
    if (!this.shading?.values) return { color: "", opacity: 0 };
    const { values, scale, colors } = this.shading;
    const color = colors?.[token] ?? theme()[hueOf(values[token], scale)];
    return { color, opacity: PATCH_OPACITY * strengthOf(values[token], scale) };
  }

  get wholeHeight() {
    const ofImages = this.row.offsetTop + this.row.offsetHeight;
    const ofWords = this.words ? this.column.offsetTop + this.words.wholeHeight + CAPTION.height : 0;
    return Math.round(Math.max(ofImages, ofWords));
  }

  /** @param {Surface} surface */
  drawOn(surface) {
    const style = { size: CAPTION.size, color: theme().soft };
    for (const { image, canvas, axis, caption } of this.images) {
      const { offsetLeft: left, offsetTop: top, clientWidth, clientHeight } = canvas;
      surface.image(canvas, left, top, clientWidth, clientHeight);
      if (axis) drawSeconds(surface, secondsOf(image), left, top + clientHeight + CAPTION.height / 2, clientWidth, CAPTION.size - 1);
      surface.text(caption.textContent ?? "", left, caption.offsetTop + CAPTION.height / 2, style);
    }
    if (!this.words) return;
    const { offsetLeft: left, offsetTop: top } = this.column;
    this.words.drawOn(new MovedSurface(surface, left, top));
    surface.text(this.wordsCaption.textContent ?? "", left, top + this.words.wholeHeight + CAPTION.height / 2, style);
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

/** Paints round seconds below a spectrogram, and the names of the highest and the lowest band into its left corners. @param {HTMLCanvasElement} axis @param {HTMLCanvasElement} canvas @param {ShownImage} image */
function paintAxes(axis, canvas, image) {
  const size = CAPTION.size - 1;
  drawInPixels(axis, (surface, width) => {
    contextOf(axis).clearRect(0, 0, width, CAPTION.height);
    drawSeconds(surface, secondsOf(image), 0, CAPTION.height / 2, width, size);
  });
  const bands = new Set(image.boxes.map(([, top]) => top)).size;
  drawInPixels(canvas, (surface, _, height) => {
    surface.text(`b${bands - 1}`, 3, size, { size, color: "#fff", weight: 650 });
    surface.text("b0", 3, height - size, { size, color: "#fff", weight: 650 });
  });
}

/** Draws on a canvas in pixels of the page. @param {HTMLCanvasElement} canvas @param {(surface: Surface, width: number, height: number) => void} draw */
function drawInPixels(canvas, draw) {
  const context = contextOf(canvas);
  const density = canvas.width / canvas.clientWidth || 1;
  context.setTransform(density, 0, 0, density, 0, 0);
  draw(new CanvasSurface(context), canvas.clientWidth, canvas.clientHeight);
  context.setTransform(1, 0, 0, 1, 0, 0);
}
