/** What is drawn of the state: the overview, or a head in one of its views. */

import { refreshInspector } from "./actions.js";
import { ArcsPicture } from "./arcs.js";
import { scaleOf } from "./colors.js";
import { drawButtons, VIEWS } from "./controls.js";
import { headTitle, page, textOf } from "./data.js";
import { make, one } from "./elements.js";
import { drawLegend, hasPalette } from "./legend.js";
import { MatrixPicture } from "./matrix.js";
import { loadHead } from "./numbers.js";
import { drawThumbnails, markCurrent, sizeThumbnails } from "./overview.js";
import { PictureStage } from "./stage.js";
import { sideNumber, state } from "./state.js";
import { TableView } from "./table.js";
import { ABSENT, changeOf, visibleWeight } from "./values.js";
import { WordsView } from "./words.js";
import { ZoomPicture } from "./zoom.js";

/** @import { Axis, Picture, Shown, Side, State, View } from "./types.js" */

/** The open head, as the chosen side of it is shown. @implements {Shown} */
class ShownHead {
  /** @param {number} number @param {Side[]} sides */
  constructor(number, sides) {
    this.number = number;
    this.sides = sides;
    this.side = sides[sideNumber()];
    this.changed = state.side === "change";
    this.values = this.changed ? changeOfSides(sides) : (this.side.weights ?? null);
    this.queries = textOf(number, "query", sideNumber());
    this.keys = textOf(number, "key", sideNumber());
    this.rows = this.queries.labels.length;
    this.columns = this.keys.labels.length;
    this.same = page.heads[number].same;
    this.scale = scaleOf(number);
  }

  /** @param {number} row @param {number} column */
  changeAt(row, column) {
    const [before, after] = this.sides.map((side) => visibleWeight(side.weight(row, column)));
    return after - before;
  }

  /** @param {number} row @param {number} column */
  at(row, column) {
    if (!this.changed) return this.side.weight(row, column);
    const hidden = this.sides.every((side) => side.weight(row, column) === ABSENT);
    return hidden ? ABSENT : this.changeAt(row, column);
  }

  /** @param {Axis} axis @param {number} place */
  line(axis, place) {
    if (!this.changed) return this.side.line(axis, place);
    const [before, after] = this.sides.map((side) => side.line(axis, place));
    return changeOf(before, after);
  }

  /** @param {number} row @param {number} column */
  score(row, column) {
    return this.side.score(row, column);
  }
}

/** What changed in all cells; null where they are computed. @param {Side[]} sides */
function changeOfSides([before, after]) {
  return before.weights && after.weights ? changeOf(before.weights, after.weights) : null;
}

/** Draws everything. */
export async function draw() {
  const number = state.head;
  drawFrame(number !== null);
  if (number === null) {
    state.shown = state.current = null;
    return;
  }
  const sides = await loadHead(number);
  if (state.head !== number) return;
  state.shown = new ShownHead(number, sides);
  one("head-title").textContent = headTitle(number);
  drawView(state.shown);
  drawLegend();
}

/** Draws what stands around a head's own numbers. @param {boolean} open */
function drawFrame(open) {
  document.querySelector(".page")?.classList.toggle("open", open);
  one("head").hidden = !open;
  one("overview").hidden = page.heads.length === 1;
  drawButtons(change);
  one("legend").hidden = !hasPalette();
  (open ? one("main") : one("overview").parentElement)?.insertBefore(one("legend"), open ? null : one("head"));
  drawLegend();
  markCurrent();
  sizeThumbnails();
}

/** @param {Shown} shown */
function drawView(shown) {
  const parent = one("view");
  parent.replaceChildren();
  state.current = newView(parent, shown);
  refreshInspector();
}

/** @param {HTMLElement} parent @param {Shown} shown @returns {View} */
function newView(parent, shown) {
  if (state.view === "text") return new WordsView(parent, shown);
  if (state.view === "table") return new TableView(parent, shown);
  return newStage(parent, shown);
}

/** @param {HTMLElement} parent @param {Shown} shown @returns {View} */
function newStage(parent, shown) {
  const before = state.current?.stage ?? null;
  const picture = newPicture(shown);
  const name = new Map(VIEWS).get(state.view)?.toLowerCase();
  const label = `${headTitle(shown.number)}: ${name}. Arrows move, slash finds a token.`;
  const stage = new PictureStage(parent, picture, label, before?.keptFor(shown) ? before : null);
  if (picture.note) parent.append(make("p", { className: "note" }, picture.note));
  return { stage, drawOver: () => stage.drawOver(), reveal: (mark) => stage.reveal(mark), fit: () => stage.fit() };
}

/** @param {Shown} shown @returns {Picture} */
function newPicture(shown) {
  if (state.view === "arcs") return new ArcsPicture(shown);
  if (shown.values) return new MatrixPicture(shown);
  return new ZoomPicture(shown, () => {
    const stage = state.current?.stage;
    if (stage?.picture.shown !== shown) return;
    stage.draw();
    drawLegend();
  });
}

/**
 * Draws everything again with one choice changed, the focus where it was.
 *
 * @template {keyof State} Name
 * @param {Name} name
 * @param {State[Name]} value
 */
export function change(name, value) {
  const group = document.activeElement?.parentElement;
  state[name] = value;
  draw().then(() => {
    const pressed = group?.id ? group.querySelector('[aria-pressed="true"]') : null;
    if (pressed instanceof HTMLElement) pressed.focus();
  });
  drawThumbnails();
}

/** Shows the whole of a picture. */
export function fitView() {
  const stage = state.current?.stage;
  if (!stage) return;
  stage.picture.factor = 1;
  stage.fit();
}
