/** Motion that says where something comes from; none for readers who do not want it. */

import { contextOf, newCanvas } from "./colors.js";

const GLIDE = 180; // milliseconds

/** True if nothing is to move. */
export function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Shows a picture on its way from one place of the window to another. @param {HTMLCanvasElement} picture @param {DOMRect} from @param {DOMRect} to */
export function glide(picture, from, to) {
  if (isStill() || !from.width || !to.width || !picture.width) return;
  const ghost = newCanvas(picture.width, picture.height);
  contextOf(ghost).drawImage(picture, 0, 0);
  ghost.className = "gliding";
  Object.assign(ghost.style, { left: `${to.x}px`, top: `${to.y}px`, width: `${to.width}px`, height: `${to.height}px` });
  document.body.append(ghost);
  const start = `translate(${from.x - to.x}px, ${from.y - to.y}px) scale(${from.width / to.width}, ${from.height / to.height})`;
  const way = [{ transform: start, opacity: 1 }, { opacity: 1, offset: 0.7 }, { transform: "none", opacity: 0 }];
  ghost.animate(way, { duration: GLIDE, easing: "ease-out" }).finished.finally(() => ghost.remove());
}
