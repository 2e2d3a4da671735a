/** Printing: the page takes the paper's width before it is printed, and the window's afterwards. */

import { forgetTheme } from "./colors.js";

/** Fits everything to the paper, and back. @param {() => void} fit @param {() => void} draw */
export function listenToPrint(fit, draw) {
  const media = matchMedia("print");
  const refit = () => {
    forgetTheme();
    fit();
  };
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    refit();
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    refit();
    draw();
  });
  media.addEventListener("change", refit);
}
