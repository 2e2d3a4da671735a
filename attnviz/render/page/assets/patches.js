/** The images of an axis under the weights of one token, in grey, and the words beside: point at a patch or a word. */

import { contextOf, theme } from "./colors.js";
import { make } from "./elements.js";
import { secondsAlong } from "./envelope.js";
import { fitText, FONT, imageInFile, moved, textAt } from "./figure.js";
import { framePatch, outlinePatches, paintImage, sizeCanvas, tokenAt, whenRead } from "./image_canvas.js";
import { kindOf, patchesOfMass, pieceOf, wordPieces, shareOn } from "./patch_runs.js";
import { hueOf, strengthOf } from "./scales.js";
import { h, patch } from "./tree.js";
import { ABSENT } from "./values.js";
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
const PATCH_OPACITY = 0.8; // of the strongest colour
const OUTLINED_SHARE = 0.6; // of the weight on an image
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
    const axis = image.seconds ? make("div", { className: "patches-axis" }) : null;
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
      if (axis) nameBands(canvas, image);
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
