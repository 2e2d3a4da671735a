/** Units that are named apart from what is written in them, such as the turns of a chat: each begins a line with its name. */

import { Words } from "./words.js";

/** @import { Marking, Shading } from "./words.js" */

export class WrittenUnits extends Words {
  /**
   * @param {HTMLElement} parent
   * @param {string[]} labels
   * @param {string[]} written in each unit; "" where its label says all
   * @param {string} label
   * @param {Marking} marking
   */
  constructor(parent, labels, written, label, marking) {
    const pieces = labels.map((name, unit) => (written[unit] ? [`${name}:`, ...written[unit].split(/\s+/)] : [name]));
    const units = Uint32Array.from(pieces.flatMap((some, unit) => some.map(() => unit)));
    const firsts = pieces.map((_, unit) => units.indexOf(unit));
    const spaces = pieces.map((some) => "\n".padEnd(some.length)).join("");
    super(parent, { labels: pieces.flat(), spaces }, label, {
      ...marking,
      point: (piece) => marking.point(piece === null ? null : units[piece]),
      choose: (piece, beside) => marking.choose(units[piece], beside),
      isChosen: (piece) => marking.isChosen(units[piece]),
      isMarked: (piece) => marking.isMarked(units[piece]),
    });
    this.units = units;
    this.firsts = firsts;
  }

  /** @override @param {Shading} shading */
  shade(shading) {
    const { units } = this;
    const values = shading.values && Float32Array.from(units, (unit) => /** @type {Float32Array} */ (shading.values)[unit]);
    const colors = shading.colors && Array.from(units, (unit) => /** @type {string[]} */ (shading.colors)[unit]);
    super.shade({ ...shading, values, colors });
  }

  /** @override @param {number} unit */
  reveal(unit) {
    super.reveal(this.firsts[unit]);
  }
}
