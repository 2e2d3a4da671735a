/** The surface that is looked at, a canvas, and the measures of texts on it. */

import { contextOf, newCanvas, theme } from "./colors.js";

/** @import { Surface, TextStyle } from "./types.js" */

/** The size of a reader's letters relative to the browser's usual 16 pixels; the layout of pictures uses it. */
export const letters = { scale: 1 };

/** Reads how large a reader's letters are. */
export function measureLetters() {
  letters.scale = Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
}

export const FONT = getComputedStyle(document.body).fontFamily;
const MAX_MEASURED_LABELS = 1_500;
const ruler = contextOf(newCanvas(300, 150));

/** @param {string} text @param {number} size @param {number} weight */
export function textWidth(text, size, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

/**
 * The text, cut with an ellipsis where it is wider than allowed.
 *
 * @param {string} text
 * @param {number} size
 * @param {number} width
 * @param {number} weight
 */
export function fitText(text, size, width, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  const characters = [...new Intl.Segmenter().segment(text)].map((part) => part.segment);
  let low = 0;
  let high = characters.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (textWidth(`${characters.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${characters.slice(0, low).join("")}…`;
}

/** @implements {Surface} */
export class CanvasSurface {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    this.density = context.getTransform().a;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {string} fill
   * @param {number} opacity
   */
  rect(x, y, width, height, fill, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {string} color
   * @param {number} thick
   */
  frame(x, y, width, height, color, thick = 2) {
    this.context.strokeStyle = color;
    this.context.lineWidth = thick;
    this.context.strokeRect(x, y, width, height);
  }

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {string} color
   * @param {number} thick
   * @param {number} opacity
   */
  arc(x1, y1, x2, y2, color, thick, opacity) {
    const middle = (x1 + x2) / 2;
    this.context.globalAlpha = opacity;
    this.context.strokeStyle = color;
    this.context.lineWidth = thick;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    this.context.stroke();
    this.context.globalAlpha = 1;
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextStyle} style */
  text(text, x, y, { size = 12, color = theme().ink, align = "left", turned = 0, weight = 400 } = {}) {
    this.context.save();
    this.context.translate(x, y);
    this.context.rotate((turned * Math.PI) / 180);
    this.context.font = `${weight} ${size}px ${FONT}`;
    this.context.fillStyle = color;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillText(text, 0, 0);
    this.context.restore();
  }

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  image(canvas, x, y, width, height) {
    this.context.imageSmoothingEnabled = width < canvas.width;
    this.context.drawImage(canvas, x, y, width, height);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {() => void} draw
   */
  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

/** The width of the widest label; of very many only the last are measured. @param {string[]} labels */
export function longest(labels) {
  let width = 0;
  const measured = labels.length > MAX_MEASURED_LABELS ? labels.slice(-200) : labels;
  for (const label of measured) width = Math.max(width, textWidth(label, 13));
  return width;
}
