/** The usual page. */

import { startPage } from "./start.js";

startPage();
