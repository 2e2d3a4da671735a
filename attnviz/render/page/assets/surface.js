"use strict";
// Two surfaces with the same few strokes: a canvas to look at, and an SVG file to keep.

const FONT = getComputedStyle(document.body).fontFamily;
const MOST_VECTOR_CELLS = 2_500;
const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text, size, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// The text, cut with an ellipsis where it is wider than allowed.
function fitText(text, size, width, weight = 400) {
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

class CanvasSurface {
  constructor(context) {
    this.context = context;
  }

  rect(x, y, width, height, fill, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  frame(x, y, width, height, color, thick = 2) {
    this.context.strokeStyle = color;
    this.context.lineWidth = thick;
    this.context.strokeRect(x, y, width, height);
  }

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

  image(canvas, x, y, width, height) {
    this.context.imageSmoothingEnabled = width < canvas.width;
    this.context.drawImage(canvas, x, y, width, height);
  }

  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

class SvgSurface {
  constructor() {
    this.parts = [];
    this.clips = 0;
  }

  rect(x, y, width, height, fill, opacity = 1) {
    const faint = opacity < 1 ? ` fill-opacity="${short(opacity)}"` : "";
    this.parts.push(`<rect ${box(x, y, width, height)} fill="${fill}"${faint}/>`);
  }

  frame(x, y, width, height, color, thick = 2) {
    this.parts.push(`<rect ${box(x, y, width, height)} fill="none" stroke="${color}" stroke-width="${thick}"/>`);
  }

  arc(x1, y1, x2, y2, color, thick, opacity) {
    const middle = short((x1 + x2) / 2);
    const path = `M${short(x1)} ${short(y1)}C${middle} ${short(y1)} ${middle} ${short(y2)} ${short(x2)} ${short(y2)}`;
    const stroke = `stroke="${color}" stroke-width="${short(thick)}" stroke-opacity="${short(opacity)}"`;
    this.parts.push(`<path d="${path}" fill="none" ${stroke}/>`);
  }

  text(text, x, y, { size = 12, color = theme().ink, align = "left", turned = 0, weight = 400 } = {}) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const place = turned ? `transform="translate(${short(x)} ${short(y)}) rotate(${turned})"` : `x="${short(x)}" y="${short(y)}"`;
    const style = `font-size="${short(size)}" font-weight="${weight}" text-anchor="${anchor}" dominant-baseline="central"`;
    this.parts.push(`<text ${place} fill="${color}" ${style}>${escaped(text)}</text>`);
  }

  image(canvas, x, y, width, height, pixels = false) {
    if (pixels || canvas.width * canvas.height > MOST_VECTOR_CELLS) {
      const style = width < canvas.width ? "" : ' style="image-rendering:pixelated"';
      const data = canvas.toDataURL("image/png");
      this.parts.push(`<image ${box(x, y, width, height)} preserveAspectRatio="none"${style} href="${data}"/>`);
      return;
    }
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
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

  clip(x, y, width, height, draw) {
    const name = `clip-${this.clips++}`;
    this.parts.push(`<clipPath id="${name}"><rect ${box(x, y, width, height)}/></clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  file(width, height, title, description) {
    const size = `width="${Math.ceil(width)}" height="${Math.ceil(height)}" viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}"`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" font-family="${escaped(FONT)}">`,
      `<title>${escaped(title)}</title><desc>${escaped(description)}</desc>`,
      ...this.parts,
      "</svg>\n",
    ].join("\n");
  }
}

function box(x, y, width, height) {
  return `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
}

function short(number) {
  return String(Math.round(number * 100) / 100);
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
