/** The kinds of media that tokens have their places in: the one place that knows them all, and draws each in its way. */

import { Conversation } from "./conversation.js";
import { Patches } from "./patches.js";
import { Waveform } from "./waveform.js";
import { Words } from "./words.js";

/** @import { Text } from "./types.js" */
/** @import { Marking } from "./words.js" */

/** @typedef {Pick<Text, "labels" | "spaces" | "written" | "pieces" | "pictures" | "asked" | "medium" | "images" | "others" | "sound" | "seconds" | "first" | "edges">} Tokens of one axis */

/**
 * Draws what tokens were read from, to be shaded, pointed at and saved.
 *
 * @param {HTMLElement} parent
 * @param {Tokens} tokens
 * @param {string} label
 * @param {Marking} marking
 * @throws {RangeError} for a medium that nothing here draws
 */
export function drawMedium(parent, tokens, label, marking) {
  const { medium = "text" } = tokens; // data that names no medium are of a text
  switch (medium) {
    case "text":
      if (tokens.written) return new Conversation(parent, tokens, label, marking);
      return new Words(parent, tokens, label, marking);
    case "image":
      return new Patches(parent, tokens, label, marking);
    case "sound":
      return new Waveform(parent, tokens, label, marking);
    default:
      return refuseMedium(medium);
  }
}

/** The type checker says so first, where a kind of medium is forgotten above. @param {never} medium @returns {never} */
function refuseMedium(medium) {
  throw new RangeError(`nothing on this page draws a medium called ${medium}`);
}
