/** The buttons above a picture: what can be chosen of what is shown now. */

import { openHead } from "./actions.js";
import { comparing, page } from "./data.js";
import { buttonOf, fillChoices, one } from "./elements.js";
import { hasPalette } from "./legend.js";
import { state } from "./state.js";
import { poolsThumbnails } from "./thumbnails.js";

/** @import { Pool, SideName, State, Steps, ViewName } from "./types.js" */

/** @typedef {<Name extends keyof State>(name: Name, value: State[Name]) => void} Change */

/** @type {[ViewName, string][]} */
export const VIEWS = [["matrix", "Matrix"], ["arcs", "Arcs"], ["text", "Text"], ["table", "Table"]];
/** @type {[SideName, string][]} */
const SIDES = [["A", "A"], ["B", "B"], ["change", "B − A"]];
/** @type {[Pool, string][]} */
const POOLS = [["mean", "Mean"], ["largest", "Largest"]];
/** @type {["page" | "head", string][]} */
const LIMITS = [["page", page.fixed ? "Given limits" : "Shared colours"], ["head", "Per head"]];
/** @type {[Steps, string][]} */
const STEPS = [["even", "Linear"], ["root", "Square root"], ["log", "Log"]];

/** Draws all buttons; `change` is called with what is chosen. @param {Change} change */
export function drawButtons(change) {
  const choices = {
    sides: comparing ? SIDES : [],
    pools: hasPools() ? POOLS : [],
    limits: hasLimits() ? LIMITS : [],
    steps: hasSteps() ? STEPS : [],
  };
  fillChoices(one("sides"), choices.sides, state.side, (side) => change("side", side));
  fillChoices(one("pools"), choices.pools, state.pool, (pool) => change("pool", pool));
  fillChoices(one("limits"), choices.limits, state.limits, (limits) => change("limits", limits));
  fillChoices(one("steps"), choices.steps, state.steps, (steps) => change("steps", steps));
  fillChoices(one("views"), VIEWS, state.view, (view) => openHead(state.head, view));
  showButtons();
}

/** Whether means or maxima can be chosen: of thumbnails, and of parts that are computed. */
function hasPools() {
  const computed = state.head !== null && state.view === "matrix" && page.heads[state.head].factors.length > 0;
  return poolsThumbnails() && (state.head === null || computed);
}

/** Whether heads may have colours of their own. */
function hasLimits() {
  return page.heads.length > 1 && (hasPalette() || state.view === "arcs");
}

/** Whether anything has colours. */
function hasSteps() {
  return state.head === null || state.view !== "table";
}

/** Shows the buttons of what is open. */
function showButtons() {
  const open = state.head !== null;
  const [alone, last] = [page.heads.length === 1, page.heads.length - 1];
  one("zooms").hidden = !open || (state.view !== "matrix" && state.view !== "arcs");
  one("back").hidden = alone;
  /** @type {HTMLElement} */ (one("previous").parentElement).hidden = alone;
  buttonOf("previous").disabled = !open || state.head === 0;
  buttonOf("next").disabled = !open || state.head === last;
  /** @type {HTMLElement} */ (one("find").parentElement).hidden = !open;
  document.querySelector(".tools")?.classList.toggle("open", open);
}
