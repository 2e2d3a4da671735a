/** An image under the weights of one token, in grey: point at a patch, or at a token that has no place in the image. */

import { contextOf, theme } from "./colors.js";
import { make } from "./elements.js";
import { hueOf, strengthOf } from "./scales.js";

/** @import { ShownImage, Surface, Text } from "./types.js" */
/** @import { Marking, Shading } from "./words.js" */

const STRIP_HEIGHT = 190; // pixels, beside the maps
const LARGE_SHARE = 0.62; // of the window's height, where the image is the view
const PATCH_OPACITY = 0.8; // of the strongest colour
const NOTHING = { src: "", width: 1, height: 1 }; // for a page whose data lack the image

export class Patches {
  /**
   * @param {HTMLElement} parent
   * @param {Pick<Text, "labels" | "image" | "places">} text
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, text, label, marking) {
    this.labels = text.labels;
    /** @type {ShownImage} */
    this.shown = text.image ?? NOTHING;
    this.places = text.places ?? [];
    this.marking = marking;
    /** @type {Shading | null} */
    this.shading = null;
    this.canvas = make("canvas", { className: "patches-image" });
    this.others = make("div", { className: "patches-others" });
    this.element = make("div", { className: "patches", tabIndex: 0 }, this.others, this.canvas);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", label);
    this.buttons = this.labels.map((name, place) => (this.places[place] ? null : this.drawOther(name, place)));
    parent.append(this.element);
    this.isLarge = parent.className === "text-large";
    this.photo = new Image();
    this.photo.onload = () => this.paint();
    this.photo.src = this.shown.src;
    this.listen();
    this.fit();
  }

  /** A token without a place in the image, as a button. @param {string} name @param {number} place */
  drawOther(name, place) {
    const button = make("button", { type: "button", className: "token", tabIndex: -1 }, name);
    button.dataset.place = String(place);
    this.others.append(button);
    return button;
  }

  listen() {
    const { point, choose } = this.marking;
    this.element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(this.placeAt(event)));
    this.element.addEventListener("pointerleave", () => point(null));
    this.element.addEventListener("click", (event) => {
      const place = this.placeAt(event);
      if (place !== null) choose(place, event.shiftKey);
    });
  }

  /** The token under a pointer, or null. @param {MouseEvent} event */
  placeAt({ target, offsetX, offsetY }) {
    if (target instanceof HTMLElement && target.dataset.place) return Number(target.dataset.place);
    if (target !== this.canvas) return null;
    const [x, y] = [offsetX / this.scale, offsetY / this.scale];
    const found = this.places.findIndex((box) => box !== null && x >= box[0] && x < box[2] && y >= box[1] && y < box[3]);
    return found < 0 ? null : found;
  }

  /** Pixels of the page for one of the image. */
  get scale() {
    const room = Math.max(60, this.element.clientWidth);
    const most = this.isLarge ? LARGE_SHARE * window.innerHeight : STRIP_HEIGHT;
    return Math.min(room / this.shown.width, most / this.shown.height);
  }

  fit() {
    const density = window.devicePixelRatio || 1;
    const [width, height] = [this.scale * this.shown.width, this.scale * this.shown.height];
    [this.canvas.width, this.canvas.height] = [Math.round(width * density), Math.round(height * density)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    this.paint();
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
  }

  paint() {
    const context = contextOf(this.canvas);
    const size = this.canvas.width / this.shown.width;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = 1;
    context.drawImage(this.photo, 0, 0, this.canvas.width, this.canvas.height);
    this.places.forEach((box, place) => {
      if (!box) return this.paintOther(place);
      const [left, top, right, bottom] = box.map((side) => Math.round(side * size));
      const { hue, strength } = this.colorOf(place);
      context.globalAlpha = PATCH_OPACITY * strength;
      context.fillStyle = theme()[hue];
      if (strength) context.fillRect(left, top, right - left, bottom - top);
      context.globalAlpha = 1;
    });
    this.places.forEach((box, place) => {
      if (box && (this.marking.isChosen(place) || this.marking.isMarked(place))) this.frame(context, box, size);
    });
  }

  /** Frames a patch in two colours, of which one is seen on any image. @param {CanvasRenderingContext2D} context @param {number[]} box @param {number} size */
  frame(context, [left, top, right, bottom], size) {
    for (const [color, thick] of /** @type {[string, number][]} */ ([["#000", 5], ["#fff", 2]])) {
      context.strokeStyle = color;
      context.lineWidth = thick;
      context.strokeRect(left * size, top * size, (right - left) * size, (bottom - top) * size);
    }
  }

  /** Underlines a token without a place by its weight. @param {number} place */
  paintOther(place) {
    const button = this.buttons[place];
    if (!button) return;
    const { hue, strength } = this.colorOf(place);
    button.style.boxShadow = strength ? `inset 0 -${(1 + 6 * strength).toFixed(1)}px ${theme()[hue]}` : "";
    const classes = ["token", this.marking.isChosen(place) && "chosen", this.marking.isMarked(place) && "marked"];
    button.className = classes.filter(Boolean).join(" ");
  }

  /** @param {number} place */
  colorOf(place) {
    if (!this.shading?.values) return { hue: "arc", strength: 0 };
    const { values, scale } = this.shading;
    return { hue: hueOf(values[place], scale), strength: strengthOf(values[place], scale) };
  }

  get wholeHeight() {
    return Math.round(this.scale * this.shown.height);
  }

  /** @param {Surface} surface */
  drawOn(surface) {
    surface.image(this.canvas, 0, 0, this.scale * this.shown.width, this.wholeHeight);
  }

  /** All of an image is seen, so that nothing needs to scroll. */
  reveal() {}
}
