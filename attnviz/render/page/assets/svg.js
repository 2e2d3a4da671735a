/** The surfaces of saved files: the same strokes as on a canvas, written as SVG, or moved. */

import { contextOf, theme } from "./colors.js";
import { FONT } from "./surface.js";
import { written } from "./tree.js";

/** @import { Surface, TextStyle } from "./types.js" */

const MAX_VECTOR_CELLS = 2_500;
const SVG_DENSITY = 2; // a viewer that draws a pixel for two takes the mean of both, and drops neither

/** @implements {Surface} */
export class SvgSurface {
  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.clips = 0;
    this.density = SVG_DENSITY;
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
    const faint = opacity < 1 ? ` fill-opacity="${short(opacity)}"` : "";
    this.parts.push(`<rect ${box(x, y, width, height)} fill="${fill}"${faint}/>`);
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
    this.parts.push(`<rect ${box(x, y, width, height)} fill="none" stroke="${color}" stroke-width="${thick}"/>`);
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
    const middle = short((x1 + x2) / 2);
    const path = `M${short(x1)} ${short(y1)}C${middle} ${short(y1)} ${middle} ${short(y2)} ${short(x2)} ${short(y2)}`;
    const stroke = `stroke="${color}" stroke-width="${short(thick)}" stroke-opacity="${short(opacity)}"`;
    this.parts.push(`<path d="${path}" fill="none" ${stroke}/>`);
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextStyle} style */
  text(text, x, y, { size = 12, color = theme().ink, align = "left", turned = 0, weight = 400 } = {}) {
    const anchor = { left: "start", center: "middle", right: "end", start: "start", end: "end" }[align];
    const at = `x="${short(x)}" y="${short(y)}"`;
    const place = turned ? `transform="translate(${short(x)} ${short(y)}) rotate(${turned})"` : at;
    const style = `fill="${color}" font-size="${short(size)}" font-weight="${weight}" text-anchor="${anchor}"`;
    this.parts.push(`<text ${place} ${style} dominant-baseline="central">${written(text, String)}</text>`);
  }

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {boolean} pixels
   */
  image(canvas, x, y, width, height, pixels = false) {
    if (pixels || canvas.width * canvas.height > MAX_VECTOR_CELLS) {
      const style = width < canvas.width ? "" : ' style="image-rendering:pixelated"';
      const data = canvas.toDataURL("image/png");
      this.parts.push(`<image ${box(x, y, width, height)} preserveAspectRatio="none"${style} href="${data}"/>`);
      return;
    }
    const { data } = contextOf(canvas).getImageData(0, 0, canvas.width, canvas.height);
    const wide = width / canvas.width;
    const high = height / canvas.height;
    this.parts.push('<g shape-rendering="crispEdges">');
    for (let place = 0; place < data.length; place += 4) {
      if (!data[place + 3]) continue;
      const row = Math.floor(place / 4 / canvas.width);
      const column = (place / 4) % canvas.width;
      this.rect(x + column * wide, y + row * high, wide, high, `rgb(${data.slice(place, place + 3).join(", ")})`);
    }
    this.parts.push("</g>");
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {() => void} draw
   */
  clip(x, y, width, height, draw) {
    const name = `clip-${this.clips++}`;
    const frame = `<rect ${box(x, y, width, height)}/>`;
    this.parts.push(`<clipPath id="${name}">${frame}</clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  /**
   * The file that the strokes make.
   *
   * @param {number} width
   * @param {number} height
   * @param {string} title
   * @param {string} description
   * @param {{ width: number, height?: number } | null} millimetres of the file, where not as many as its pixels
   */
  file(width, height, title, description, millimetres = null) {
    const [wide, high] = [Math.ceil(width), Math.ceil(height)];
    const [across, down] = millimetres
      ? [`${short(millimetres.width)}mm`, `${short(millimetres.height ?? (millimetres.width * high) / wide)}mm`]
      : [wide, high];
    const ratio = millimetres?.height ? millimetres.width / millimetres.height : wide / high;
    const [frame, tall] = [Math.max(wide, high * ratio), Math.max(high, wide / ratio)]; // which the picture stands in the middle of
    const [left, top] = [(wide - frame) / 2, (high - tall) / 2];
    const size = `width="${across}" height="${down}" viewBox="${[left, top, frame, tall].map(short).join(" ")}"`;
    const paper = frame > wide || tall > high ? `<rect ${box(left, top, frame, tall)} fill="${theme().paper}"/>` : "";
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" font-family="${written(FONT, String)}">`,
      `<title>${written(title, String)}</title><desc>${written(description, String)}</desc>`,
      paper,
      ...this.parts,
      "</svg>\n",
    ].join("\n");
  }
}

/** A surface whose origin is elsewhere. @implements {Surface} */
export class MovedSurface {
  /** @param {Surface} surface @param {number} left @param {number} top */
  constructor(surface, left, top) {
    this.surface = surface;
    this.left = left;
    this.top = top;
    this.density = surface.density;
  }

  /** @type {Surface["rect"]} */
  rect(x, y, ...rest) {
    this.surface.rect(x + this.left, y + this.top, ...rest);
  }

  /** @type {Surface["frame"]} */
  frame(x, y, ...rest) {
    this.surface.frame(x + this.left, y + this.top, ...rest);
  }

  /** @type {Surface["arc"]} */
  arc(x1, y1, x2, y2, ...rest) {
    this.surface.arc(x1 + this.left, y1 + this.top, x2 + this.left, y2 + this.top, ...rest);
  }

  /** @type {Surface["text"]} */
  text(text, x, y, style) {
    this.surface.text(text, x + this.left, y + this.top, style);
  }

  /** @type {Surface["image"]} */
  image(canvas, x, y, ...rest) {
    this.surface.image(canvas, x + this.left, y + this.top, ...rest);
  }

  /** @type {Surface["clip"]} */
  clip(x, y, ...rest) {
    this.surface.clip(x + this.left, y + this.top, ...rest);
  }
}

/** @param {number} x @param {number} y @param {number} width @param {number} height */
function box(x, y, width, height) {
  return `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
}

/** @param {number} number */
function short(number) {
  return String(Math.round(number * 100) / 100);
}
