/** An image in grey on a canvas, its patches coloured; and the patch under a point of it. */

import { contextOf } from "./colors.js";

/** @import { ShownImage } from "./types.js" */

const MIN_OPACITY = 0.004; // below which a colour changes no pixel

/** @typedef {(token: number) => { color: string, opacity: number }} PatchColor */

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
  const photo = photos.get(image) ?? new Image();
  if (!photo.src) photo.src = image.src;
  photos.set(image, photo);
  return photo;
}

/** Gives a canvas the size of an image of so many pixels of the page. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sizeCanvas(canvas, width, height) {
  const density = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
}

/** Paints an image with its patches on a canvas. @param {HTMLCanvasElement} canvas @param {ShownImage} image @param {PatchColor} colorOf */
export function paintImage(canvas, image, colorOf) {
  const context = contextOf(canvas);
  context.globalAlpha = 1;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(photoOf(image), 0, 0, canvas.width, canvas.height);
  const size = canvas.width / image.width;
  image.tokens.forEach((token, patch) => {
    const { color, opacity } = colorOf(token);
    if (opacity < MIN_OPACITY) return;
    const [left, top, right, bottom] = image.boxes[patch].map((side) => Math.round(side * size));
    context.globalAlpha = opacity;
    context.fillStyle = color;
    context.fillRect(left, top, right - left, bottom - top);
  });
  context.globalAlpha = 1;
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

/** Outlines patches of an image; a side between two of them is left out. @param {HTMLCanvasElement} canvas @param {ShownImage} image @param {number[]} inside */
export function outlinePatches(canvas, image, inside) {
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

/** The token of the smallest patch under a pointer on a canvas, or null: tiles lie over the patches of a whole image. @param {ShownImage} image @param {MouseEvent} event */
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
