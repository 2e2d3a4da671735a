/** The page: starts what is drawn, and listens to buttons, keys and the address. */

import { findToken } from "./actions.js";
import { followBar } from "./bar.js";
import { forgetTheme } from "./colors.js";
import { page } from "./data.js";
import { listenToKeys, listenToPrint } from "./dialogs.js";
import { one, whenIdle } from "./elements.js";
import { listenToGrid } from "./head_grid.js";
import { openKeys, press } from "./keys.js";
import { listenToFilter } from "./listing.js";
import { openNotes, original, startStory } from "./notes.js";
import { startWorkers } from "./numbers.js";
import { fitOverview, listenToPointed } from "./overview.js";
import { offerSizes, openShare, savePng, saveSvg } from "./save.js";
import { followAddress, scene } from "./state.js";
import { draw, focusPicture, followState } from "./view.js";

start();

function start() {
  original.root = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
  one("tools").hidden = false;
  one("precision").textContent = page.precisionSaid;
  document.querySelector(".page")?.classList.toggle("several", page.heads.length > 1);
  listenToGrid();
  listenToPointed();
  listenToButtons();
  one("find").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && findToken(target.value, { typing: true }));
  listenToFilter();
  offerSizes();
  listenToKeys(press, (field) => findToken(field.value));
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  window.addEventListener("resize", fitAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetTheme();
    draw();
  });
  listenToPrint(fitAll, draw);
  follow();
  followBar();
  followState();
  performance.mark("first view drawn");
  whenIdle(startWorkers);
  if (page.notes.length) startStory(0);
}

/** Takes the room that there is now. */
function fitAll() {
  fitOverview();
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
    skip: focusPicture,
    "save-svg": saveSvg,
    "save-png": savePng,
    "share-open": () => openShare(),
    "notes-open": openNotes,
    "help-open": openKeys,
  };
  for (const [name, action] of Object.entries(actions)) one(name).addEventListener("click", action);
}
