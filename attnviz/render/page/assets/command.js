/** Describes the screen as a link, and as the `attnviz` command that draws it as a figure. */

import { page, textOf } from "./data.js";
import { closing, copied } from "./dialogs.js";
import { make, one } from "./elements.js";
import { listedHeads, sortMetric } from "./listing.js";
import { nameOfPlace } from "./places.js";
import { showsScores, unitsNow } from "./shown.js";
import { addressOfView, scene, showsMoved, state } from "./state.js";

/** The words of `attnviz show --size` for the sizes of figures. */
const SIZES = { column: "column", page: "page", slide: "16:9" };

/** The line, and what of the screen it does not draw. @returns {{ line: string, lacks: string }} */
function commandOf() {
  const heads = state.together ? state.chosen : state.head === null ? null : [state.head];
  const units = [state.by === "words" ? "--by words" : "", state.special === "hidden" ? "--no-special" : ""];
  const words = [page.command.input, showsMoved() ? "--of contributions" : "", ...headWords(heads), ...units, ...viewWords(heads), ...scaleWords(heads)];
  const size = state.size && `--size ${SIZES[state.size]}`;
  return { line: [...words, size].filter(Boolean).join(" ") + ` -o figure.${state.size === "slide" ? "png" : "svg"}`, lacks: [lacking(), page.command.remark].filter(Boolean).join(" ") };
}

/** @param {number[] | null} heads */
function headWords(heads) {
  if (heads) {
    const names = heads.map((number) => page.heads[number].name).join(",");
    const reduce = state.together && ["mean", "max", "rollout"].includes(state.together) ? ` --reduce ${state.together}` : "";
    return [`--heads ${names}${reduce}`];
  }
  if (state.list === "lens") return [`--heads ${listedHeads().map((number) => page.heads[number].name).join(",")}`];
  const filter = state.filter ? `--filter ${shellQuoted(state.filter)}` : "";
  const sort = sortMetric() ? `--sort ${state.sort}` : "";
  return [filter, sort, "--all"];
}

/** @param {number[] | null} heads */
function viewWords(heads) {
  if (page.command.compares) return [];
  const lens = heads === null && state.list === "lens";
  const view = heads && !state.together ? state.view : lens ? "text" : "matrix";
  if (view === "arcs") return ["--style arcs"];
  if (view !== "text" && view !== "table") return zoomWords();
  const number = heads?.[0] ?? listedHeads()[0] ?? 0;
  if (view === "table") return ["--style both"];
  return [queryWord(number) || "--style text"];
}

/** The kept query as an option, which counts the units that the command draws; "" if none is kept. @param {number} number of a head */
function queryWord(number) {
  const place = state.pin?.query ?? null;
  const text = textOf(number, "query");
  const units = unitsNow(text);
  if (place === null || (units && text.first)) return ""; // units before the part of the axis are not counted here
  const name = units ? nameOfPlace({ ...units.text, first: 0 }, units.unitOf(place)) : nameOfPlace(text, place);
  return `--query ${shellQuoted(name)}`;
}

/** The part that is seen of a picture that is enlarged. */
function zoomWords() {
  const stage = scene.current?.stage;
  if (!stage || stage.picture.factor <= 1.01 || state.head === null) return [];
  const [first, last] = [[1, 1], [stage.width - stage.picture.fixed.left - 2, stage.height - stage.picture.fixed.top - 2]].map(([x, y]) =>
    stage.picture.pointAt(x + stage.picture.fixed.left, y + stage.picture.fixed.top, stage.area),
  );
  if (first?.query == null || first.key == null) return [];
  const [queries, keys] = [textOf(state.head, "query"), textOf(state.head, "key")];
  const span = (/** @type {import("./types.js").Text} */ text, /** @type {number} */ from, /** @type {number | null | undefined} */ to) => {
    const place = (/** @type {number} */ at) => (text.edges ? text.edges[at] : (text.first ?? 0) + at);
    return `${place(from)}:${to === null || to === undefined ? "" : place(to) + 1}`;
  };
  return [`--queries ${span(queries, first.query, last?.query)}`, `--keys ${span(keys, first.key, last?.key)}`];
}

/** @param {number[] | null} heads */
function scaleWords(heads) {
  const table = heads && !state.together && state.view === "table";
  if (table || state.side !== "" || (heads === null && state.list === "lens")) return [];
  const limits = page.fixed && state.limits === "shared" ? page.fixed.join(":") : state.limits === "head" ? "head" : "";
  return [`--color-scale ${state.steps}`, limits && `--limits ${limits}`];
}

/** Returns a sentence on what the command does not draw of the screen. */
function lacking() {
  if (showsScores()) return "It draws weights; the button SVG saves a figure of the scores.";
  if (state.together === "difference") return "It draws both heads; the button SVG saves a figure of their difference.";
  if (state.together === "overlay") return "It draws each head; the button SVG saves a figure of the heads over each other.";
  if (state.pin && state.head !== null && state.view === "matrix") return "It does not frame the kept token; the link keeps it.";
  if (state.head === null && !state.together && state.list === "numbers") return "It draws thumbnails: attnviz heads lists the numbers.";
  if (state.head === null && state.list === "lens" && state.pin?.query === null) return "It shades what a token attends to; the button SVG saves what attends to it.";
  return "";
}

/** A word as a shell reads it. @param {string} word */
function shellQuoted(word) {
  return /^[\w.,:@%+/-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}

/** Shows the link and the command, each with what copies it. @param {string} [note] */
export function openShare(note = "") {
  const dialog = one("share");
  if (!(dialog instanceof HTMLDialogElement)) return;
  const { line, lacks } = commandOf();
  const link = `${location.href.split("#")[0]}${addressOfView()}`;
  dialog.replaceChildren(
    make("h2", {}, "What is shown now"),
    ...(note ? [make("p", {}, note)] : []),
    copied("Link", link.startsWith("about:") ? addressOfView() : link),
    copied("Command that draws it", line),
    ...(lacks ? [make("p", { className: "hint" }, lacks)] : []),
    closing(),
  );
  dialog.showModal();
}
