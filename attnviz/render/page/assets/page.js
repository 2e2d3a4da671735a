/** The page: starts what is drawn, and listens to buttons, keys and the address. */

import { openHead, step } from "./actions.js";
import { forgetTheme } from "./colors.js";
import { VIEWS } from "./controls.js";
import { haveSameTexts, page } from "./data.js";
import { one } from "./elements.js";
import { findToken, onKey, openHelp, zoomByStep } from "./keys.js";
import { buildOverview, focusThumbnail, sizeThumbnails } from "./overview.js";
import { savePng, saveSvg } from "./save.js";
import { state } from "./state.js";
import { draw, fitView } from "./view.js";

start();

function start() {
  one("tools").hidden = false;
  one("precision").textContent = page.precisionSaid;
  document.querySelector(".page")?.classList.toggle("several", page.heads.length > 1);
  one("overview").hidden = page.heads.length === 1;
  buildOverview();
  listenToButtons();
  one("find").addEventListener("input", ({ target }) => target instanceof HTMLInputElement && findToken(target.value));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", readAddress);
  window.addEventListener("resize", () => {
    sizeThumbnails();
    state.current?.fit();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetTheme();
    draw();
  });
  readAddress();
  performance.mark("first view drawn");
}

function listenToButtons() {
  const actions = {
    back: () => openHead(null),
    previous: () => step(-1),
    next: () => step(1),
    "zoom-in": () => zoomByStep(1),
    "zoom-out": () => zoomByStep(-1),
    "zoom-fit": fitView,
    "save-svg": saveSvg,
    "save-png": savePng,
    "help-open": openHelp,
  };
  for (const [name, action] of Object.entries(actions)) one(name).addEventListener("click", action);
}

/** Opens what the address names. */
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const before = state.head;
  state.head = headOf(address);
  state.view = VIEWS.find(([name]) => name === address.get("view"))?.[0] ?? state.view;
  state.mark = null;
  if (before !== null && state.head !== null && !haveSameTexts(before, state.head)) state.pin = null;
  draw();
  if (state.head === null && before !== null) focusThumbnail(before);
  if (state.head !== null && before === null && page.heads.length > 1) {
    one("head-title").focus({ preventScroll: true });
  }
}

/**
 * The head that an address names; the only one, or none, where it names no head.
 *
 * @param {URLSearchParams} address
 */
function headOf(address) {
  const number = Number(address.get("number") ?? NaN);
  if (page.heads[number]) return number;
  return page.heads.length === 1 ? 0 : null;
}
