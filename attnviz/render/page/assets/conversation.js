/** A text in turns, as people read a conversation: each turn is shaded by its share and asks by a click what it looks at. */

import { fitText, letters, textAt, textWidth, wrapped } from "./figure.js";
import { partsOfTurn, tokenOfCharacter } from "./formatting.js";
import { hueOf, strengthOf } from "./scales.js";
import { elementOf, h, patch } from "./tree.js";
import { ABSENT } from "./values.js";

/** @import { Figure, Text } from "./types.js" */
/** @import { Marking, Shading } from "./words.js" */
/** @import { Tree } from "./tree.js" */

const SHADE_PART = 0.42; // of the strongest shade, on which letters are still read well
const MAX_LINES = 12; // of a turn that is not unfolded
const MAX_CHARACTERS = 1_000;
const SAVED = { line: 20, padding: 8, gap: 6, lines: 400 }; // pixels, and lines of a file at most

export class Conversation {
  /**
   * @param {HTMLElement} parent
   * @param {Pick<Text, "labels" | "written" | "pieces" | "pictures">} text
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, { labels, written = [], pieces, pictures = [] }, label, marking) {
    this.labels = labels;
    this.written = written;
    this.pieces = pieces;
    this.pictures = pictures;
    this.marking = marking;
    /** @type {Set<number>} turns that are unfolded */
    this.unfolded = new Set();
    /** @type {Shading | null} */
    this.shading = null;
    this.element = elementOf(h("div", { class: "conversation", tabindex: 0, role: "group", "aria-label": label }));
    parent.append(this.element);
    this.listen();
    this.paint();
    this.element.scrollTop = this.element.scrollHeight; // a conversation is read on from its end
  }

  listen() {
    const unitAt = (/** @type {Event} */ { target }) => {
      const turn = /** @type {Element} */ (target).closest?.(".turn");
      return turn instanceof HTMLElement ? Number(turn.dataset.unit) : null;
    };
    const { point, choose, isChosen, openToken } = this.marking;
    this.element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(unitAt(event)));
    this.element.addEventListener("pointerleave", () => point(null));
    this.element.addEventListener("click", (event) => {
      const [unit, target] = [unitAt(event), /** @type {Element} */ (event.target)];
      if (unit === null || !getSelection()?.isCollapsed) return; // somebody selects what is written
      if (target.closest(".turn-more")) return this.unfold(unit);
      const token = isChosen(unit) ? this.tokenAt(unit, event) : null;
      if (token !== null && openToken) openToken(token);
      else choose(unit, event.shiftKey);
    });
  }

  /** @param {number} unit */
  unfold(unit) {
    if (!this.unfolded.delete(unit)) this.unfolded.add(unit);
    this.paint();
  }

  /** The token under a pointer; null beside what is written. @param {number} unit @param {MouseEvent} event */
  tokenAt(unit, { clientX, clientY }) {
    const caret = document.caretPositionFromPoint?.(clientX, clientY);
    const range = caret ? null : document.caretRangeFromPoint?.(clientX, clientY);
    const [node, offset] = caret ? [caret.offsetNode, caret.offset] : [range?.startContainer, range?.startOffset ?? 0];
    const part = node instanceof Text ? node.parentElement?.closest("[data-start]") : null;
    if (!this.pieces || !(part instanceof HTMLElement)) return null;
    const character = Number(part.dataset.start) + offset;
    const rest = this.written[unit].slice(character).match(/^[\p{L}\p{M}\p{N}_]+/u)?.[0] ?? " ";
    return tokenOfCharacter(this.pieces[unit], character + rest.length - 1); // the last one of a word
  }

  fit() {
    this.paint();
  }

  /** @param {Shading} shading */
  shade(shading) {
    this.shading = shading;
    this.paint();
  }

  paint() {
    patch(this.element, this.labels.map((_, unit) => this.turn(unit)));
  }

  /** The share of a turn as it is written; "" where weights have no sum. @param {number} unit */
  shareOf(unit) {
    const share = this.shading?.row?.[unit] ?? ABSENT;
    return share === ABSENT || Number.isNaN(share) ? "" : `${share > 0 && share < 0.005 ? "< 1" : Math.round(100 * share)}%`;
  }

  /** The colour and the strength of a turn's shade. @param {number} unit */
  shadeOf(unit) {
    const { values, scale, colors } = this.shading ?? {};
    if (!values || !scale) return { hue: "var(--arc)", strength: 0 };
    return { hue: colors?.[unit] ?? `var(--${hueOf(values[unit], scale)})`, strength: strengthOf(values[unit], { ...scale, steps: "linear" }) }; // shares of so few are told apart
  }

  /** @param {number} unit */
  turn(unit) {
    const { labels, written, marking } = this;
    const { hue, strength } = this.shadeOf(unit);
    const [chosen, looks, absent] = [marking.isChosen(unit), marking.isMarked(unit), this.shading?.values?.[unit] === ABSENT];
    const role = labels[unit].replace(/^\d+ /, "").replaceAll(" ", "-");
    const text = written[unit] ?? "";
    const picture = this.pictures.find(({ tokens }) => tokens.includes(unit));
    const isLong = text.length > MAX_CHARACTERS || text.split("\n").length > MAX_LINES;
    const isFolded = isLong && !this.unfolded.has(unit);
    const share = this.shareOf(unit);
    const names = [chosen && "chosen", looks && "looks", absent && "absent", !text && "bare", isFolded && "folded"];
    return h("div", { key: unit, class: ["turn", `of-${role}`, ...names.filter(Boolean)].join(" "), "data-unit": unit, style: `--hue: ${hue}; --part: ${(100 * SHADE_PART * strength).toFixed(1)}%` },
      h("div", { class: "turn-head" },
        h("button", { type: "button", class: "turn-name", "aria-pressed": chosen, title: text ? "What it looks at" : "What belongs to no turn, such as the signs of the chat template" }, labels[unit]),
        share && h("span", { class: "turn-share" }, share)),
      picture && h("img", { class: "turn-picture", src: picture.src, alt: text, title: text }),
      text && !picture && h("div", { class: "turn-text" }, ...partsOfTurn(text).map(({ text: part, start, isCode }) => h(isCode ? "pre" : "p", { dir: "auto", "data-start": start }, part))),
      isLong && h("button", { type: "button", class: "plain turn-more", "aria-expanded": !isFolded }, isFolded ? `Show all of ${text.split("\n").length > MAX_LINES ? `${text.split("\n").length} lines` : "it"}` : "Show less"));
  }

  /** All turns with their shades and shares; of very many lines the first. @param {number} width @returns {Figure} */
  figure(width) {
    const size = 13 * letters.scale;
    const { line, padding, gap } = SAVED;
    /** @type {Tree[]} */
    const tree = [];
    let [y, left] = [0, SAVED.lines];
    this.labels.forEach((label, unit) => {
      const { hue, strength } = this.shadeOf(unit);
      const all = (this.written[unit] ?? "").split("\n").flatMap((part) => wrapped(part, size, width - 2 * padding));
      const lines = all.slice(0, Math.max(0, left)).filter((part, number) => part || number);
      left -= lines.length + 1;
      const height = (lines.length + 1) * line + padding;
      tree.push(h("rect", { x: 0.5, y: y + 0.5, width: width - 1, height, rx: 6, fill: "var(--card)", stroke: this.marking.isChosen(unit) ? "var(--accent)" : "var(--line)" }));
      if (strength > 0) tree.push(h("rect", { x: 0.5, y: y + 0.5, width: width - 1, height, rx: 6, fill: hue, "fill-opacity": SHADE_PART * strength }));
      const share = this.shareOf(unit);
      tree.push(textAt(fitText(label, size, width - 2 * padding - textWidth(share, size)), padding, y + line / 2 + 4, { size, weight: 650 }));
      tree.push(textAt(share, width - padding, y + line / 2 + 4, { size, align: "end" }));
      lines.forEach((part, number) => tree.push(textAt(part, padding, y + (number + 1.5) * line + 4, { size })));
      y += height + gap;
    });
    return { tree, width, height: y };
  }

  /** Scrolls to a turn. @param {number} unit */
  reveal(unit) {
    const turn = /** @type {HTMLElement | undefined} */ (this.element.children[unit]);
    if (!turn) return;
    const { scrollTop, clientHeight } = this.element;
    const [top, end] = [turn.offsetTop - this.element.offsetTop, turn.offsetTop - this.element.offsetTop + turn.offsetHeight];
    if (top < scrollTop || turn.offsetHeight > clientHeight) this.element.scrollTop = top;
    else if (end > scrollTop + clientHeight) this.element.scrollTop = end - clientHeight;
  }
}
