/** The buttons above a picture: what can be chosen of what is shown now. */

import { headsTogether, openHead } from "./actions.js";
import { comparing, page, textOf } from "./data.js";
import { buttonOf, fillChoices, fillToggles, make, one } from "./elements.js";
import { drawFilter } from "./filter_field.js";
import { quoted } from "./formatting.js";
import { hasPalette } from "./legend.js";
import { MAX_OVERLAID } from "./overlay.js";
import { listedHeads } from "./listing.js";
import { meaningOf, METRIC_NAMES } from "./metrics.js";
import { hasScoreMap, hasUnits, showsScores } from "./shown.js";
import { intervalText } from "./seconds.js";
import { firstHead, hidesSpecial, scene, state } from "./state.js";
import { poolsThumbnails } from "./thumbnails.js";
import { titleOfView } from "./titles.js";

/** @import { Limits, ListName, Pool, Quantity, SideName, State, Steps, Together, ViewName } from "./types.js" */

/** @typedef {<Name extends keyof State>(name: Name, value: State[Name]) => void} Change */

/** @type {[ViewName, string][]} */
export const VIEWS = [["matrix", "Matrix"], ["arcs", "Arcs"], ["text", "Text"], ["table", "Table"]];
/** @type {[ListName, string][]} */
export const LISTS = [["maps", "Maps"], ["numbers", "Numbers"], ["lens", "One token"]];
/** @type {[Together, string][]} */
const TOGETHER = [["side", "Side by side"], ["overlay", "Overlaid"], ["difference", "Difference"], ["mean", "Mean"], ["max", "Max"], ["rollout", "Rollout"]];
/** @type {[SideName, string][]} */
const SIDES = [["A", "A"], ["B", "B"], ["change", "B − A"]];
/** @type {[Pool, string][]} */
const POOLS = [["mean", "Mean"], ["max", "Largest"]];
/** @type {[Quantity, string][]} */
const QUANTITIES = [["weight", "Weights"], ["contribution", "Contributions"]];
/** @type {[Limits, string][]} */
const LIMITS = [["shared", page.fixed ? "Given" : "Shared"], ["head", "Per head"]];
/** @type {[Steps, string][]} */
const STEPS = [["linear", "Linear"], ["sqrt", "√"], ["log", "Log"], ["lift", "Lift"]];
/** @type {["to" | "from", string][]} */
const DIRECTIONS = [["to", "→ looks at"], ["from", "← seen by"]];

/** @param {string} label @param {string} title @param {boolean} pressed @param {() => void} turn */
function toggle(label, title, pressed, turn) {
  return { label, title, pressed, turn };
}

/** True if words can be joined in what is shown. */
export function hasWords() {
  return hasUnits() && page.texts.some(({ words }) => words);
}

/** True if special tokens can be hidden in what is shown. */
export function hasSpecial() {
  const small = state.head === null && !state.together && state.list === "maps";
  return small ? Boolean(page.leftOut) : hasUnits() && page.texts.some(({ special, leftOut }) => special ?? leftOut?.length);
}

/** Draws all buttons; `change` is called with what is chosen. @param {Change} change @param {(together: Together) => void} together */
export function drawButtons(change, together) {
  const open = state.head !== null || state.together !== null;
  const two = headsTogether().length === 2;
  const several = headsTogether().length > 1 ? TOGETHER.filter(([name]) => (name !== "difference" || two) && (name !== "overlay" || headsTogether().length <= MAX_OVERLAID)) : [];
  fillChoices(one("sides"), comparing ? SIDES : [], state.side, (side) => change("side", side));
  fillChoices(one("quantities"), page.moved ? QUANTITIES : [], state.of, (of) => change("of", of));
  drawPools(change);
  fillChoices(one("limits"), hasLimits() ? LIMITS : [], state.limits, (limits) => change("limits", limits));
  const steps = hasSteps() ? stepsOf() : [];
  const drawnSteps = steps.some(([name]) => name === state.steps) ? state.steps : "sqrt"; // what is drawn instead of lift
  fillChoices(one("steps"), steps, drawnSteps, (name) => change("steps", name));
  fillChoices(one("views"), state.head === null ? [] : VIEWS, state.view, (view) => openHead(state.head, view));
  fillChoices(one("lists"), open || page.heads.length === 1 ? [] : LISTS, state.list, (list) => change("list", list));
  fillChoices(one("directions"), hasDirections() ? DIRECTIONS : [], state.direction, (way) => change("direction", way));
  const { interval } = state;
  fillToggles(one("units"), [
    ...(interval ? [toggle(`${intervalText(interval).replace("-", "–")} s ×`, "Show the whole sound again", true, () => change("interval", null))] : []),
    ...(hasWords() ? [toggle("Words", "Join the tokens of each word", state.by === "words", () => change("by", state.by === "words" ? "tokens" : "words"))] : []),
    ...(hasSpecial() && hasUnits() ? [toggle("No special", page.leftOut ?? "Leave out special tokens, such as [CLS]", hidesSpecial(), () => change("special", hidesSpecial() ? "shown" : "hidden"))] : []),
    ...(hasScoreMap() ? [toggle("Scores", "Show scores instead of weights", showsScores(), () => change("scores", showsScores() ? "hidden" : "shown"))] : []),
  ]);
  fillChoices(one("together"), several, state.together ?? /** @type {Together} */ (""), together);
  showButtons(open);
}

/** Puts the buttons of the colours under their legend where this stands at the side, else into the bar. @param {boolean} open */
export function placeColours(open) {
  if (open && matchMedia("(min-width: 760px)").matches) one("side").insertBefore(one("colours"), one("inspector"));
  else one("bar").insertBefore(one("colours"), one("zooms"));
}

/** Steps of the colours; lift is of weights, and of what has a palette. */
function stepsOf() {
  const matrix = state.head !== null ? state.view === "matrix" : !["difference", "overlay"].includes(state.together ?? "");
  const lifts = state.side !== "change" && state.of === "weight" && matrix;
  return lifts ? STEPS : STEPS.filter(([steps]) => steps !== "lift");
}

/** Draws the choice of means or maxima: of thumbnails, and of a map whose pixels are more than a cell. @param {Change} change */
export function drawPools(change) {
  const computed = state.head !== null && state.view === "matrix" && page.heads[state.head].factors.length > 0;
  const maps = state.head === null && !state.together && state.list === "maps" && poolsThumbnails();
  const pooled = computed || maps || scene.current?.stage?.picture.pooled;
  fillChoices(one("pools"), pooled ? POOLS : [], state.pool, (pool) => change("pool", pool));
}

/** True if heads may have colours of their own. */
function hasLimits() {
  if (showsScores()) return false;
  if (state.head === null) return page.heads.length > 1 && !state.together && state.list === "maps";
  return page.heads.length > 1 && (hasPalette() || state.view === "arcs");
}

/** True if anything has colours. */
function hasSteps() {
  if (showsScores()) return false;
  return state.head === null ? state.list !== "numbers" || state.together !== null : state.view !== "table";
}

/** True if a token can be shown as a query or as a key. */
export function hasDirections() {
  if (state.head === null && !state.together && state.list !== "lens") return false;
  return page.heads[state.head ?? 0].same && (state.view !== "table" || state.head === null);
}

/** Shows the buttons of what is open. @param {boolean} open */
function showButtons(open) {
  const [alone, order] = [page.heads.length === 1, listedHeads()];
  const here = order.indexOf(state.head ?? -1);
  const zooms = state.head === null ? state.together || state.list === "lens" : ["matrix", "arcs"].includes(state.view);
  one("zooms").hidden = !zooms;
  one("back").hidden = alone || !open;
  one("steppers").hidden = alone || state.head === null;
  one("lens-open").hidden = alone || !open;
  buttonOf("lens-open").disabled = !state.pin && !state.mark;
  buttonOf("previous").disabled = here === 0;
  buttonOf("next").disabled = here === order.length - 1;
  one("bar").hidden = false;
  one("filter-label").hidden = one("sort-label").hidden = open || alone;
  one("head-title").textContent = titleOfView();
  drawFilter();
  drawOrders();
  drawHint(open);
}

/** Draws what a reader can do next where all heads are listed. @param {boolean} open */
export function drawHint(open) {
  const hint = one("keys-hint");
  hint.hidden = open || page.heads.length === 1 || state.list === "lens";
  hint.textContent = hintOf(state.chosen.length);
}

/** @param {number} chosen */
function hintOf(chosen) {
  if (chosen === 1) return "1 head is chosen: choose another one to show both together. Esc lets go.";
  if (chosen > 1) return `${chosen} heads are chosen: the buttons below show them together. Esc lets go.`;
  const how = matchMedia("(hover: none)").matches ? "Touch and hold heads" : "Tick heads";
  const keys = matchMedia("(hover: none)").matches ? "" : " ? lists the keys.";
  return `Click a token: every head shows what that token looks at. ${how} to show several together.${keys}`;
}

/** Draws the orders that heads may stand in. */
function drawOrders() {
  const sort = one("sort");
  if (!(sort instanceof HTMLSelectElement) || state.head !== null) return;
  const own = state.list === "lens" ? [["", recordedOrder()], ["weight", "by weight"]] : [["", "as recorded"]];
  const choices = [...own, ...METRIC_NAMES.map((name) => [name, name])];
  sort.replaceChildren(...choices.map(([value, name]) => make("option", { value, title: meaningOf(value) }, name)));
  sort.value = state.sort.replace(/^-/, "");
}

/** The order of the rows of one token where none was chosen: a second token that is kept sorts them. */
function recordedOrder() {
  const { query, key } = state.pin ?? { query: null, key: null };
  if (query === null || key === null) return "as recorded";
  const second = textOf(firstHead(), state.direction === "to" ? "key" : "query");
  return `by ${quoted(second, state.direction === "to" ? key : query)}`;
}
