/** The page that begins with why a model predicts a token, or what units rest on. */

import { startPage } from "./start.js";
import { scene } from "./state.js";
import { drawWhy } from "./why.js";

scene.drawWhy = drawWhy;
startPage();
