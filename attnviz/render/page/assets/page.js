/** The page: starts what is drawn, and listens to buttons, keys and the address. */

import { openHead, openLens, step } from "./actions.js";
import { forgetTheme } from "./colors.js";
import { openShare } from "./command.js";
import { theComputer } from "./computer.js";
import { page } from "./data.js";
import { one, whenIdle } from "./elements.js";
import { findToken, onKey, openHelp, zoomByStep } from "./keys.js";
import { METRIC_NAMES, patternOf } from "./metrics.js";
import { openNotes, original, startStory } from "./notes.js";
import { listenToOverview, sizeThumbnails } from "./overview.js";
import { listenToPrint } from "./printing.js";
import { offerSizes, savePng, saveSvg } from "./save.js";
import { followAddress, scene, set, subscribe } from "./state.js";
import { draw, fitView, followState } from "./view.js";

start();

function start() {
  original.root = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
  one("tools").hidden = false;
  one("precision").textContent = page.precisionSaid;
  document.querySelector(".page")?.classList.toggle("several", page.heads.length > 1);
  listenToOverview();
  listenToButtons();
  listenToFields();
  offerSizes();
  subscribe(followState);
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  window.addEventListener("resize", fitAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetTheme();
    draw();
  });
  listenToPrint(fitAll, draw);
  follow();
  performance.mark("first view drawn");
  if (page.heads.some(({ factors }) => factors.length)) whenIdle(() => theComputer().start());
  if (page.notes.length) startStory(0);
}

/** Takes the room that there is now. */
function fitAll() {
  sizeThumbnails();
  scene.strip?.fit();
  scene.current?.fit();
}

/** Opens what the address names. */
function follow() {
  followAddress();
  offerSizes();
}

function listenToButtons() {
  const actions = {
    back: () => openHead(null),
    previous: () => step(-1),
    next: () => step(1),
    "lens-open": openLens,
    "zoom-in": () => zoomByStep(1),
    "zoom-out": () => zoomByStep(-1),
    "zoom-fit": fitView,
    "save-svg": saveSvg,
    "save-png": savePng,
    "share-open": openShare,
    "notes-open": openNotes,
    "help-open": openHelp,
  };
  for (const [name, action] of Object.entries(actions)) one(name).addEventListener("click", action);
}

/** The fields in which a reader types: a token, words that filter heads, and the order of these. */
function listenToFields() {
  one("find").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && findToken(target.value));
  one("filter").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && set({ filter: target.value }));
  one("sort").addEventListener("change", ({ target }) => target instanceof HTMLSelectElement && set({ sort: target.value }));
  one("filter").addEventListener("focus", offerWords, { once: true });
}

/** Offers words that a filter may be made of. */
function offerWords() {
  const patterns = page.heads.map((_, number) => patternOf(number).replace(/[:\d.,].*$/, "").trim());
  const words = [...METRIC_NAMES.map((name) => `${name}>0.5`), ...new Set(patterns.filter(Boolean)), "layer:0-3"];
  one("words").replaceChildren(...words.map((word) => new Option(word)));
}

