/** The page: starts what is drawn, and listens to buttons, keys and the address. */

import { choose, findToken, fitView, isSameMark, letGo, moveEnd, moveMark, openLens, pin, step, zoomBy } from "./actions.js";
import { followBar } from "./bar.js";
import { page } from "./data.js";
import { listenToKeys, listenToWindow } from "./dialogs.js";
import { afterFrame, one, whenIdle } from "./elements.js";
import { fitGrid, listenToGrid } from "./head_grid.js";
import { bindKeys, openActions, openKeys, press, refuse } from "./keys.js";
import { listenToFilter, sortMetric, sortNext, turnOrder } from "./listing.js";
import { openNotes, original, startStory } from "./notes.js";
import { startWorkers } from "./numbers.js";
import { listenToPointed } from "./overview.js";
import { offerSizes, openShare, savePng, saveSvg } from "./save.js";
import { followAddress, scene, state } from "./state.js";
import { draw, focusPicture, followState, holdLoad } from "./view.js";

/** @import { Act } from "./keys.js" */

/** @type {[number, number][]} how far the arrows move, down and right: left, up, down, right */
const ARROWS = [[0, -1], [-1, 0], [1, 0], [0, 1]];
const FAR = 10; // cells

/** What actions do, by their names in the table: with the number of the key, and the element that has the focus. @type {Record<string, Act>} */
const ACTS = {
  move: (place, target) => moveBy(place, 1, target),
  "move far": (place, target) => moveBy(place, FAR, target),
  "keep seconds": (place) => moveEnd(place ? 1 : -1),
  open: (_, target) => isInView(target) && !target.closest(".token") && keepAndFly(),
  back: letGo,
  choose: () => false, // thumbnails listen to this key
  step: (place) => step(place ? 1 : -1),
  find: () => one("find").focus(),
  "find again": (place) => (state.found.text ? findToken(state.found.text, { by: place ? -1 : 1 }) : one("find").focus()),
  filter: () => {
    one("filter").closest("details")?.setAttribute("open", "");
    one("filter").focus();
  },
  sort: (place) => sortNext(place ? -1 : 1),
  reverse: () => (sortMetric() ? turnOrder() : refuse("sort by a metric first: o")),
  lens: openLens,
  why: () => {
    if (!isSameMark(state.mark ?? state.pin, state.pin)) pin(state.mark);
    document.querySelector(".why")?.scrollIntoView({ block: "nearest" });
  },
  zoom: (place) => (place === 2 ? fitView() : zoomBy(place ? -1 : 1)),
  copy: () => openShare(),
  save: saveSvg,
  actions: openActions,
  help: openKeys,
};

/** Keeps what is marked and flies to a kept cell that is too small to be read; else lets go of what is marked and kept already. */
function keepAndFly() {
  const { mark } = state;
  const isKept = isSameMark(mark, state.pin);
  if (mark && !isKept) pin(mark);
  if (!state.pin) return false;
  if (!scene.current?.stage?.fly(state.pin) && mark && isKept) pin(mark);
  return true;
}

const MUCH_DATA = 5_000_000; // characters, of which more take longer to be drawn than a reader waits without a sign: the sign costs a frame

/** Starts the page. */
export function startPage() {
  if (Number(document.getElementById("page-data")?.textContent?.length) < MUCH_DATA) return start();
  holdLoad();
  afterFrame(start);
}

function start() {
  original.root = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
  one("tools").hidden = false;
  one("precision").textContent = page.precisionSaid;
  document.querySelector(".page")?.classList.toggle("several", page.heads.length > 1);
  listenToGrid();
  listenToPointed();
  one("find").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && findToken(target.value, { typing: true }));
  listenToFilter();
  offerSizes();
  bindKeys({ choices: page.table.choices, choose, acts: ACTS });
  listenToKeys(press, (field) => findToken(field.value));
  const buttons = { skip: focusPicture, "save-svg": saveSvg, "save-png": savePng, "share-open": () => openShare(), "notes-open": openNotes, "help-open": openKeys };
  listenToWindow(buttons, follow, fitAll, draw);
  follow();
  followBar();
  followState();
  performance.mark("first view drawn");
  whenIdle(startWorkers);
  if (page.notes.length) startStory(0);
}

/** Takes the room that there is now. */
function fitAll() {
  if (!one("overview").hidden) fitGrid();
  scene.strip?.fit();
  scene.current?.fit();
}

/** Opens what the address names. */
function follow() {
  followAddress();
  offerSizes();
}

/** @param {HTMLElement} target */
function isInView(target) {
  return target.closest(".stage, .words, .conversation, .patches, .waveform") !== null || target === document.body || target.id === "head-title";
}

/** @param {number} arrow @param {number} far @param {HTMLElement} target */
function moveBy(arrow, far, target) {
  const [down, right] = ARROWS[arrow];
  const moves = scene.shown !== null && isInView(target) && (state.view !== "table" || state.head === null);
  return moves && moveMark(far * down, far * right);
}
