"use strict";
// Values to colours: the tables are the page's, which are those of every other picture.

const LOG_LEAST = 1e-4; // of the largest value: where logarithmic steps begin
const palettes = Object.fromEntries(Object.entries(page.palettes).map(([name, table]) => [name, bytesOf(table)]));

// The scale up to a value; "root" steps show small values larger than they are.
function scaleUpTo(high, low = 0) {
  const change = state.side === "change";
  return { low: change ? 0 : low, high: high || 1, palette: change ? page.diverging : page.sequential, steps: state.steps, change };
}

// The scale of a head, shared by all or its own.
function scaleOf(number) {
  const head = page.heads[number];
  const own = state.limits === "head";
  if (state.side === "change") return scaleUpTo(own ? head.reach : page.reach);
  if (page.fixed && !own) return scaleUpTo(page.fixed[1], page.fixed[0]);
  return scaleUpTo(own ? head.peaks[state.side === "B" ? 1 : 0]?.[2] : page.high);
}

function fractionOf(value, scale) {
  const part = Math.min(1, Math.max(0, (Math.abs(value) - scale.low) / (scale.high - scale.low)));
  const stepped = scale.steps === "root" ? Math.sqrt(part) : scale.steps === "log" ? logOf(part) : part;
  return scale.change ? 0.5 + (Math.sign(value) * stepped) / 2 : stepped;
}

// From the smallest part that logarithmic steps tell from nothing, 0, to all, 1.
function logOf(part) {
  return Math.max(0, 1 - Math.log(part) / Math.log(LOG_LEAST));
}

function valueAt(fraction, scale) {
  const stepped = scale.change ? Math.abs(2 * fraction - 1) : fraction;
  const part = { even: stepped, root: stepped ** 2, log: LOG_LEAST ** (1 - stepped) }[scale.steps];
  return scale.low + (scale.high - scale.low) * (scale.change ? Math.sign(fraction - 0.5) * part : part);
}

function rgbOf(value, scale) {
  if (Number.isNaN(value)) return page.nanColor;
  const place = 3 * Math.round(255 * fractionOf(value, scale));
  return palettes[scale.palette].subarray(place, place + 3);
}

function cssOf(value, scale) {
  return `rgb(${rgbOf(value, scale).join(", ")})`;
}

// Black or white, whichever contrasts more.
function inkOn([red, green, blue]) {
  const linear = [red, green, blue].map((part) => {
    const fraction = part / 255;
    return fraction <= 0.04045 ? fraction / 12.92 : ((fraction + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.179 ? "#ffffff" : "#000000";
}

// A canvas of a pixel a cell; masked cells are transparent.
function paintCells(values, rows, columns, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const table = new Uint32Array(256);
  const palette = palettes[scale.palette];
  for (let place = 0; place < 256; place++) {
    table[place] = pixelOf(palette.subarray(3 * place, 3 * place + 3));
  }
  const nan = pixelOf(page.nanColor);
  for (let place = 0; place < pixels.length; place++) {
    const value = values[place];
    if (value === ABSENT) continue;
    pixels[place] = Number.isNaN(value) ? nan : table[Math.round(255 * fractionOf(value, scale))];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function pixelOf(rgb) {
  return new Uint32Array(new Uint8ClampedArray([...rgb, 255]).buffer)[0];
}

let themeRead = null;

// The page's own colours, as its style has them now.
function theme() {
  if (!themeRead) {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "card", "ink", "soft", "line", "accent", "accent-paper", "absent", "arc", "less", "more"];
    themeRead = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return themeRead;
}

function forgetTheme() {
  themeRead = null;
}

// The colour of a value where there is a hue and no palette: in arcs and text.
function hueOf(value, scale) {
  return scale.change ? (value < 0 ? "less" : "more") : "arc";
}

function partOf(value, scale) {
  if (value === ABSENT || Number.isNaN(value)) return 0;
  return scale.change ? Math.abs(2 * fractionOf(value, scale) - 1) : fractionOf(value, scale);
}

function drawLegend(scale) {
  const legend = document.getElementById("legend");
  const canvas = document.createElement("canvas");
  canvas.width = 256;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let place = 0; place < 256; place++) {
    context.fillStyle = `rgb(${palettes[scale.palette].subarray(3 * place, 3 * place + 3).join(" ")})`;
    context.fillRect(place, 0, 1, 1);
  }
  const texts = [0, 0.25, 0.5, 0.75, 1].map((fraction) => tickText(valueAt(fraction, scale), scale));
  const crowded = texts.join("").length > 22;
  const ticks = texts.filter((_, place) => !crowded || place % 2 === 0).map((text) => make("span", {}, text));
  const name = legendName(scale);
  legend.replaceChildren(
    make("span", {}, name),
    make("span", { className: "scale" }, canvas, make("span", { className: "ticks" }, ...ticks)),
  );
  if (page.absent) legend.append(make("span", {}, make("i", { className: "swatch" }), "masked"));
  if (page.nan) {
    const swatch = make("i", { className: "swatch" });
    swatch.style.background = `rgb(${page.nanColor.join(" ")})`;
    legend.append(make("span", {}, swatch, "NaN"));
  }
}

function legendName(scale) {
  const zooming = current?.stage?.picture.pooled; // undefined where nothing is computed
  const pooled = state.head === null ? poolsThumbnails() : (zooming ?? page.block > 1);
  const which = !pooled ? "" : (state.head !== null && zooming === undefined) || state.pool === "mean" ? ", mean of a block" : ", largest of a block";
  return `${scale.change ? "change of attention weight, B − A" : "attention weight"}${which}`;
}

function tickText(value, scale) {
  const percent = Math.abs(100 * value);
  const digits = percent === 0 || percent >= 10 ? 0 : Math.min(8, 1 - Math.floor(Math.log10(percent)));
  const sign = value < 0 ? "−" : scale.change && value > 0 ? "+" : "";
  return `${sign}${Number(percent.toFixed(digits))}%`;
}

// An element with properties and children; text becomes text, never markup.
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
