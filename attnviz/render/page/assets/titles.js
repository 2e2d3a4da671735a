/** The words that name what is shown: on the screen, in the window's title, and in saved files. */

import { headTitle, page, textOf } from "./data.js";
import { quoted } from "./formatting.js";
import { listedHeads, sortMetric } from "./listing.js";
import { noteOf } from "./metrics.js";
import { showsScores } from "./shown.js";
import { firstHead, state } from "./state.js";

/** @import { Mark, Shown, Together } from "./types.js" */

const MAX_NAMED_HEADS = 6;

/** Several heads, and what is made of them. @param {number[]} numbers @param {Together} how */
export function titleOfHeads(numbers, how) {
  const names = numbers.map((number) => page.heads[number].name);
  if (how === "difference") return `Head ${names[1]} − head ${names[0]}`;
  const heads = names.length > MAX_NAMED_HEADS ? `${names.length} heads` : `heads ${names.join(", ")}`;
  if (how === "side") return `${heads[0].toUpperCase()}${heads.slice(1)} side by side`;
  if (how === "overlay") return `${heads[0].toUpperCase()}${heads.slice(1)} overlaid`;
  return `${{ mean: "Mean", max: "Maximum", rollout: "Rollout" }[how]} of ${heads}`;
}

/** Returns the caption of a head beside others: its name, and the clearest thing that it does. @param {Shown} shown */
export function captionOf({ title, number }) {
  return [title, noteOf(number)].filter(Boolean).join(" · ");
}

/** Returns the title of the open view. */
export function titleOfView() {
  const cells = showsScores() ? ", scores" : "";
  if (state.together) return titleOfHeads(state.chosen, state.together) + cells;
  if (state.head === null) return state.list === "lens" && state.pin ? `${tokenSaid(state.pin)} in all heads` : "";
  const note = noteOf(state.head);
  return `${headTitle(state.head)}${cells}${note && ` · ${note}`}`;
}

/** The chosen token, and which way is looked. @param {Mark} mark */
function tokenSaid({ query, key }) {
  const [axis, place] = query !== null && (key === null || state.direction === "to") ? ["query", query] : ["key", key ?? 0];
  const label = quoted(textOf(firstHead(), axis === "query" ? "query" : "key"), Number(place));
  return axis === "query" ? `What ${label} looks at` : `What looks at ${label}`;
}

/** Returns the title of a saved file: of the open view, or of the list; "" for all heads in recorded order. */
export function titleOfFile() {
  const ofToken = state.pin && ((state.head !== null && ["text", "arcs"].includes(state.view)) || state.together);
  if (ofToken && state.pin) return `${titleOfView()} · ${tokenSaid(state.pin)}`;
  return titleOfView() || titleOfList();
}

/** Returns the two sides of a change as a difference: the compared runs, or two heads. */
export function changeSaid() {
  if (!state.together) return "B − A";
  const [first, second] = state.chosen.map((number) => page.heads[number].name);
  return `${second} − ${first}`;
}

/** Returns the title of the list: the heads and their order. */
function titleOfList() {
  const [order, all] = [listedHeads(), page.heads.length];
  const metric = sortMetric();
  const by = metric && ` by ${metric}${state.sort.startsWith("-") ? ", smallest first" : ""}`;
  if (!state.filter) return by && `Heads${by}`;
  return `${order.length} of ${all} heads${by}: ${state.filter}`;
}
