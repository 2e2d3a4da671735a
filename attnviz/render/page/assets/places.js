/** Finds the token that a name stands for, and names a token so that it is found: the rules are those of `attnviz/text/places.py`. */

/** @import { Text } from "./types.js" */

const UNCLEAR_NAME = /^(@?\d+|@\d+,\d+|-.*|\s.*|.*\s)$/s;
const PART_OF_CHARACTER = /^(.+) (\d+)\/\d+$/s; // the label of a token that is some of its bytes
const SIGNS = new Map([[" ", "␣"], ["\n", "⏎"], ["\t", "⇥"]]);
const CHARACTERS = new Map([...SIGNS].map(([character, sign]) => [sign, character]));
const DOTTED_CIRCLE = "◌"; // before a mark at the start of a label

/** The place of the token with a name; null if there is none. @param {Text} text @param {string | null} name */
export function placeNamed(text, name) {
  if (name === null) return null;
  const { labels, images = [] } = text;
  const [, x, y] = images.length ? (name.match(/^@(\d{1,6}),(\d{1,6})$/) ?? []) : [];
  if (y !== undefined) return patchAt(text, Number(x), Number(y));
  if (/^@\d{1,12}$/.test(name)) return placeOfNumber(text, Number(name.slice(1)));
  const [labelled] = placesLabelled(labels, name);
  if (labelled !== undefined) return labelled;
  const written = writtenTokens(text);
  const exact = lastOfRun(written, name, "gu");
  if (exact !== null) return exact;
  if (/^\d{1,12}$/.test(name)) return placeOfNumber(text, Number(name));
  return lastOfRun(written, name, "giu") ?? placeOfSpokenWord(text, name);
}

/** A name of a token that `placeNamed` understands: a label that no other token has, else `@4`. @param {Text} text @param {number} place */
export function nameOfPlace(text, place) {
  const label = text.labels[place];
  const names = text.edges || text.cut ? [] : [bare(label), label];
  const known = names.find((name) => {
    const [first, second] = placesLabelled(text.labels, name);
    return name && !UNCLEAR_NAME.test(name) && first === place && second === undefined;
  });
  return known ?? `@${text.edges ? text.edges[place] : (text.first ?? 0) + place}`;
}

/** A label without the spaces around it. @param {string} label */
export function bare(label) {
  return label.replace(/^[␣ ]+|[␣ ]+$/g, "");
}

/** The tokens with a label, those with the whole label first. @param {string[]} labels @param {string} name */
function placesLabelled(labels, name) {
  const signed = [...name].map((character) => SIGNS.get(character) ?? character).join("");
  const visible = /^\p{M}/u.test(signed) ? DOTTED_CIRCLE + signed : signed;
  const isExact = (/** @type {string} */ label) => label === name || label === visible;
  const places = [...labels.keys()];
  const exact = places.filter((place) => isExact(labels[place]));
  return name.trim() ? [...exact, ...places.filter((place) => !isExact(labels[place]) && bare(labels[place]) === name)] : exact;
}

/** @param {Text} text @param {number} number */
function placeOfNumber({ labels, first, edges }, number) {
  const place = edges ? edges.findIndex((edge, at) => edge <= number && number < (edges[at + 1] ?? -1)) : number - (first ?? 0);
  return place >= 0 && place < labels.length ? place : null;
}

/** The patch of the first image that holds a pixel. @param {Text} text @param {number} x @param {number} y */
function patchAt({ images = [] }, x, y) {
  const holding = images[0].tokens.filter((_, number) => {
    const [left, top, right, bottom] = images[0].boxes[number];
    return left <= x && x < right && top <= y && y < bottom;
  });
  return holding.length ? Math.min(...holding) : null;
}

/** The last token of a spoken word, whose tokens are frames of a sound. @param {Text} text @param {string} name */
function placeOfSpokenWord({ seconds, words, labels }, name) {
  const number = seconds && words ? words.labels.findIndex((label) => bare(label).toLowerCase() === name.toLowerCase()) : -1;
  return words && number >= 0 ? (words.starts[number + 1] ?? labels.length) - 1 : null;
}

/** @typedef {{ text: string, spans: [number, number][] }} Written tokens, and the first and the end of the visible characters of each */

/** The tokens written one after another. @param {Text} text @returns {Written} */
function writtenTokens({ labels, spaces }) {
  let text = "";
  /** @type {[number, number][]} */
  const spans = [];
  labels.forEach((label, place) => {
    const [, whole, part] = label.match(PART_OF_CHARACTER) ?? [];
    if (part !== undefined && part !== "1" && place) {
      spans.push(spans[place - 1]);
      return;
    }
    const shown = whole ?? label;
    const piece = [...(shown.startsWith(DOTTED_CIRCLE) ? shown.slice(1) : shown)].map((sign) => CHARACTERS.get(sign) ?? sign).join("");
    const space = spaces?.[place] ?? " ";
    text += (space === "-" ? "" : space) + piece;
    spans.push([text.length - piece.trimStart().length, text.length - piece.length + piece.trimEnd().length]);
  });
  return { text, spans };
}

/** The last token of the first place where a name is written: as whole words, or else between borders of tokens. @param {Written} written @param {string} name @param {string} flags */
function lastOfRun({ text, spans }, name, flags) {
  const words = name.trim().split(/\s+/);
  if (!words[0]) return null;
  const pattern = new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("\\s+"), flags);
  /** @type {[number, number][]} */
  const found = [];
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    found.push([match.index, match.index + match[0].length]);
    pattern.lastIndex = match.index + (Number(text.codePointAt(match.index)) > 0xffff ? 2 : 1); // places may overlap
  }
  const [starts, ends] = [0, 1].map((side) => new Set(spans.map((span) => span[side])));
  const wholeWords = found.filter(([start, end]) => isBorder(text, start) && isBorder(text, end));
  const wholeTokens = found.filter(([start, end]) => (starts.has(start) || isBorder(text, start)) && (ends.has(end) || isBorder(text, end)));
  for (const [start, end] of wholeWords.length ? wholeWords : wholeTokens) {
    const last = spans.map(([first, stop]) => first < Math.min(stop, end) && stop > start).lastIndexOf(true);
    if (last >= 0) return last;
  }
  return null;
}

/** True if no word goes on from the character before a place to the one after it. @param {string} text @param {number} at */
function isBorder(text, at) {
  return !(/[\p{L}\p{M}\p{N}_]$/u.test(text.slice(Math.max(0, at - 2), at)) && /^[\p{L}\p{M}\p{N}_]/u.test(text.slice(at, at + 2)));
}
