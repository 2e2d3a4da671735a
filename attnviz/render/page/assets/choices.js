/** What can be chosen: which row of the table means something where, and the value that holds there. */

/** @import { Choice, ChoiceName, Places, Row, State } from "./types.js" */

export const MAX_OVERLAID = 4; // heads over each other, each in a hue

/** The heads that are shown together, or would be: those that are chosen, with the open one. @param {Readonly<State>} state */
export function headsTogether({ head, chosen }) {
  return head === null || chosen.includes(head) ? chosen : [...chosen, head];
}

/** The head whose texts tokens are looked for in; of an answer one that looks at all of its sources. @param {Pick<State, "head" | "chosen"> & { list?: string | null }} state @param {Places} page */
export function firstHeadOf({ head, chosen, list }, page) {
  return head ?? chosen[0] ?? (list === "why" ? page.why?.head : 0) ?? 0;
}

/** True if what is shown is held cell by cell: its rows and columns can be joined and left out. @param {Readonly<State>} state @param {Places} page */
function hasCells({ head, view, together, chosen, list }, page) {
  const drawsCells = head !== null ? view !== "text" : together ? together !== "overlay" : list === "lens";
  return drawsCells && !page.survey && page.block === 1 && !page.heads[head ?? (together ? chosen[0] : 0)].factors?.length;
}

/** True if all heads are shown as maps. @param {Readonly<State>} state */
export function isOfMaps({ head, together, list }) {
  return head === null && !together && list === "maps";
}

/** True if tokens on which most of the weight rests are left out where nothing was chosen: of overviews. @param {Readonly<State>} state @param {Places} page */
export function leavesOut({ head, together, of }, page) {
  return Boolean(page.leftOut) && of === "weight" && head === null && !together;
}

/** True if something is drawn in colours of weights. @param {Readonly<State>} state */
function hasColours({ head, view, together, list, scores }) {
  return scores === "hidden" && (head !== null ? view !== "table" : together !== null || !["numbers", "why"].includes(list));
}

/** True if a thumbnail has fewer cells than its head has tokens. @param {Places} page */
export function poolsThumbnails(page) {
  return !page.survey && page.heads.some(({ thumbnail, queries, keys }) => {
    return page.block > 1 || thumbnail[0] < page.texts[queries[0]].labels.length || thumbnail[1] < page.texts[keys[0]].labels.length;
  });
}

/** Facts that hold on a page whatever its state is. @type {Record<string, (page: Places) => boolean>} */
const PAGE_FACTS = {
  survey: ({ survey }) => Boolean(survey),
  tokens: ({ survey }) => !survey,
  "two runs": ({ sides, quantity }) => sides.length > 1 && quantity !== "implicit",
  contributions: ({ moved }) => Boolean(moved),
  turns: ({ turns }) => Boolean(turns),
  prediction: ({ why }) => Boolean(why),
};

/** @type {Record<string, (state: Readonly<State>, page: Places) => boolean>} */
const FACTS = {
  "all heads": ({ head, together }, page) => page.heads.length > 1 && (Boolean(page.survey) || (head === null && !together)), // a survey has a card beside them
  "one head": ({ head }, { survey }) => head !== null && !survey,
  "several heads": (state) => headsTogether(state).length > 1,
  "two heads": (state) => headsTogether(state).length === 2,
  "few heads": (state) => headsTogether(state).length <= MAX_OVERLAID,
  routes: ({ head, together, list }, { why }) => Boolean(why?.routes) && head === null && !together && list === "why",
  token: ({ pin, mark }) => Boolean(pin ?? mark),
  directions: (state, page) => {
    const { head, together, list, view } = state;
    const shows = head !== null ? view !== "table" : together !== null || list === "lens";
    return shows && page.heads[firstHeadOf(state, page)].same;
  },
  units: (state, page) => FACTS.words(state, page) || Boolean(page.turns),
  words: (state, page) => hasCells(state, page) && page.texts.some(({ words }) => words),
  special: (state, page) => {
    if (isOfMaps(state)) return Boolean(page.leftOut);
    return hasCells(state, page) && page.texts.some(({ special, leftOut }) => special ?? leftOut?.length);
  },
  scores: (state, page) => {
    const isHead = state.head !== null ? state.view === "matrix" : state.together === "side";
    if (!isHead || !hasCells(state, page) || state.side === "change") return false;
    const { queries, keys } = page.heads[firstHeadOf(state, page)];
    return !(page.texts[queries[0]].written ?? page.texts[keys[0]].written); // a unit of several words has no score
  },
  weights: ({ head, view, together, side, of, by }) => {
    const isMap = by !== "turns" && (head !== null ? view === "matrix" : together !== "difference" && together !== "overlay"); // turns are of many lengths
    return isMap && side !== "change" && of === "weight";
  },
  colours: hasColours,
  "several scales": ({ head, view, together, list, scores }, page) => {
    if (page.heads.length === 1 || scores === "shown") return false;
    return head !== null ? view === "matrix" || view === "arcs" : together ? together === "side" : list === "maps";
  },
  pooled: (state, page) => {
    const { head, view, pooled } = state;
    const isComputed = head !== null && view === "matrix" && page.heads[head].factors?.length;
    return Boolean(isComputed) || pooled || (isOfMaps(state) && poolsThumbnails(page));
  },
  sound: (state, page) => !page.survey && page.texts[page.heads[firstHeadOf(state, page)].keys[0]]?.seconds !== undefined,
  explained: ({ head, pin }) => head !== null && pin !== null && pin.query !== null && pin.key !== null,
};

/** The first of some facts that does not hold; nothing if all hold. @param {string[]} needs @param {Readonly<State>} state @param {Places} page */
export function missingFact(needs, state, page) {
  return needs.find((fact) => !(PAGE_FACTS[fact]?.(page) ?? FACTS[fact](state, page)));
}

/** @param {ChoiceName} name @param {Places} page */
export function choiceOf(name, page) {
  return /** @type {Choice} */ (page.table.choices.find((choice) => choice.name === name));
}

/** The values of a choice that a page has at all. @param {Choice} choice @param {Places} page */
export function valuesOf(choice, page) {
  const isHad = (/** @type {Row} */ { needs }) => needs.every((fact) => PAGE_FACTS[fact]?.(page) ?? true);
  return isHad(choice) ? choice.values.filter(isHad) : [];
}

/** The values of a choice that mean something now; none where the choice means nothing. @param {Choice} choice @param {Readonly<State>} state @param {Places} page */
export function valuesNow(choice, state, page) {
  const isMeant = (/** @type {Row} */ { needs }) => missingFact(needs, state, page) === undefined;
  return isMeant(choice) ? choice.values.filter(isMeant) : [];
}

/**
 * The value that holds of a choice: what was chosen where it means something, else the first that does; where the choice
 * means nothing, or nothing was chosen, what the page begins with.
 *
 * @param {Choice} choice
 * @param {string} chosen
 * @param {string} begun
 * @param {Readonly<State>} state
 * @param {Places} page
 */
export function valueNow(choice, chosen, begun, state, page) {
  if (choice.values.every(({ word }) => word !== chosen)) return begun;
  const words = valuesNow(choice, state, page).map(({ word }) => word);
  return words.includes(chosen) ? chosen : (words[0] ?? begun);
}

/** What a value changes: its choice, and what it takes back. @param {Choice} choice @param {string} word @returns {Record<string, string>} */
export function changesOf({ name, values }, word) {
  const value = values.find((one) => one.word === word);
  return { [name]: word, ...Object.fromEntries(value?.clears ?? []) };
}
