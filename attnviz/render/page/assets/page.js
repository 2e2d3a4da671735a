"use strict";
// The page: what is shown now, and how keys, buttons and the address change it.

const VIEWS = { matrix: "Matrix", arcs: "Arcs", text: "Text", table: "Table" };

const state = {
  head: null, // number of the open head; null for the overview
  view: page.view,
  side: comparing ? "change" : "", // "A", "B" or "change" of a comparison
  limits: page.limits, // "page" or "head"
  steps: page.steps ?? (manyTokens() ? "root" : "even"), // of the colours; or "log"
  pool: "mean", // or "largest", of thumbnails
  direction: "to", // or "from", of the text view
  mark: null, // {query, key} that is pointed at, either null
  pin: page.query === null ? null : { query: page.query, key: null }, // {query, key} that was clicked
};
let shown = null; // the open head's numbers
let current = null; // the view that draws them: {drawOver, reveal, fit, stage?}
let found = { text: "", place: -1 };

const one = (id) => document.getElementById(id);

// Whether the weights are so many that most are small.
function manyTokens() {
  return page.texts.some((text) => text.labels.length > 64);
}

// The scale of what is shown now, and whether a palette shows it.
function shownScale() {
  if (state.head === null) return thumbnailScale(0);
  return current?.stage?.picture.scale ?? scaleOf(state.head);
}

function hasPalette() {
  return state.head === null || state.view === "matrix";
}

function headTitle(number) {
  const head = page.heads[number];
  const cross = head.kind === "cross" ? " cross" : "";
  return `Head ${head.name}${cross}${severalItems ? `, text ${head.item}` : ""}`;
}

function showHead(number, sides) {
  const side = state.side === "B" ? 1 : 0;
  const [queries, keys] = [textOf(number, "query", side), textOf(number, "key", side)];
  const dense = !page.heads[number].factors.length;
  const change = comparing && dense ? changeOf(sides[0].weights, sides[1].weights) : null;
  const changed = state.side === "change";
  const changeAt = (row, column) => shownWeight(sides[1].weight(row, column)) - shownWeight(sides[0].weight(row, column));
  return {
    number,
    sides,
    change,
    changeAt,
    values: dense ? (changed ? change : sides[side].weights) : null, // all of them; null where they are computed
    at: (row, column) => {
      const hidden = sides.every((one) => one.weight(row, column) === ABSENT);
      return !changed ? sides[side].weight(row, column) : hidden ? ABSENT : changeAt(row, column);
    },
    line: (axis, place) => {
      if (changed) return changeOf(sides[0].line(axis, place), sides[1].line(axis, place));
      return sides[side].line(axis, place);
    },
    rows: queries.labels.length,
    columns: keys.labels.length,
    queries,
    keys,
    same: page.heads[number].same,
    scale: scaleOf(number),
    score: (row, column) => sides[side].score(row, column),
  };
}

async function draw() {
  const open = state.head !== null;
  document.querySelector(".page").classList.toggle("open", open);
  one("head").hidden = !open;
  one("overview").hidden = page.heads.length === 1;
  drawButtons();
  one("legend").hidden = !hasPalette();
  (open ? one("main") : one("overview").parentElement).insertBefore(one("legend"), open ? null : one("head"));
  drawLegend(shownScale());
  markCurrent();
  sizeThumbnails();
  if (!open) {
    shown = current = null;
    return;
  }
  const number = state.head;
  const sides = await loadHead(number);
  if (state.head !== number) return;
  shown = showHead(number, sides);
  one("head-title").textContent = headTitle(number);
  drawView();
  drawLegend(shownScale());
}

function drawView() {
  const parent = one("view");
  parent.replaceChildren();
  const label = `${headTitle(shown.number)}: ${VIEWS[state.view].toLowerCase()}. Arrows move, slash finds a token.`;
  if (state.view === "text") current = new WordsView(parent, shown);
  else if (state.view === "table") current = new TableView(parent, shown);
  else current = stageView(parent, label);
  drawInspector(shown);
}

function stageView(parent, label) {
  const before = current?.stage;
  const stage = new Stage(parent, pictureOf(shown), label, before?.keptFor(shown) ? before : null);
  const { picture } = stage;
  if (picture.note) parent.append(make("p", { className: "note" }, picture.note));
  return { stage, drawOver: () => stage.drawOver(), reveal: (mark) => stage.reveal(mark), fit: () => stage.fit() };
}

function pictureOf(shown) {
  if (state.view === "arcs") return new ArcsPicture(shown);
  if (shown.values) return new MatrixPicture(shown);
  return new ZoomPicture(shown, () => {
    if (current?.stage?.picture.shown !== shown) return;
    current.stage.draw();
    drawLegend(shownScale());
  });
}

function drawMarks() {
  current.drawOver();
  drawInspector(shown);
}

function sameMark(first, second) {
  return first?.query === second?.query && first?.key === second?.key && !first === !second;
}

function pointTo(mark, x, y) {
  if (!current) return;
  if (!sameMark(mark, state.mark)) {
    state.mark = mark;
    drawMarks();
  }
  current.stage?.showTip(mark, tipOf(shown, mark), x, y); // last, since it measures: the browser lays out once
}

// Keeps a token chosen; the same one again lets go of it.
function pin(mark) {
  state.pin = sameMark(mark, state.pin) ? null : mark;
  drawMarks();
}

function openHead(number, view = state.view) {
  const address = number === null ? "#" : `#head=${page.heads[number].name}&number=${number}&view=${view}`;
  if (location.hash === address || (number === null && !location.hash)) readAddress();
  else location.hash = address;
}

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = Number(asked.get("number"));
  const before = state.head;
  const known = asked.has("number") && Number.isInteger(number) && page.heads[number];
  state.head = known ? number : page.heads.length === 1 ? 0 : null;
  if (asked.get("view") in VIEWS) state.view = asked.get("view");
  state.mark = null;
  if (before !== null && state.head !== null && !sameTexts(before, state.head)) state.pin = null;
  const drawn = draw();
  if (state.head === null && before !== null) document.querySelector(`.thumb[data-number="${before}"]`)?.focus();
  if (state.head !== null && before === null && page.heads.length > 1) one("head-title").focus({ preventScroll: true });
  return drawn;
}

function sameTexts(first, second) {
  if (first === null || second === null) return false;
  return textOf(first, "query") === textOf(second, "query") && textOf(first, "key") === textOf(second, "key");
}

function step(by) {
  const next = state.head + by;
  if (page.heads[next]) openHead(next);
}

function choices(id, pairs, chosen, choose) {
  one(id).replaceChildren(
    ...pairs.map(([name, label]) => {
      const button = make("button", { type: "button", onclick: () => choose(name) }, label);
      button.setAttribute("aria-pressed", name === chosen);
      return button;
    }),
  );
}

// Draws everything again with one choice changed, the focus where it was.
function set(name, value) {
  const id = document.activeElement?.parentElement?.id;
  state[name] = value;
  draw().then(() => id && one(id)?.querySelector('[aria-pressed="true"]')?.focus());
  drawThumbnails();
}

function drawButtons() {
  const open = state.head !== null;
  const sides = [["A", "A"], ["B", "B"], ["change", "B − A"]];
  choices("sides", comparing ? sides : [], state.side, (side) => set("side", side));
  const zooms = open && state.view === "matrix" && page.heads[state.head].factors.length;
  const pools = poolsThumbnails() && (!open || zooms) ? [["mean", "Mean"], ["largest", "Largest"]] : [];
  choices("pools", pools, state.pool, (pool) => set("pool", pool));
  const limits = page.heads.length > 1 && (hasPalette() || state.view === "arcs") ? [["page", page.fixed ? "Given limits" : "Shared colours"], ["head", "Per head"]] : [];
  choices("limits", limits, state.limits, (value) => set("limits", value));
  const steps = open && state.view === "table" ? [] : [["even", "Linear"], ["root", "Square root"], ["log", "Log"]];
  choices("steps", steps, state.steps, (value) => set("steps", value));
  choices("views", Object.entries(VIEWS), state.view, (view) => openHead(state.head, view));
  const staged = open && state.view in { matrix: 0, arcs: 0 };
  one("zooms").hidden = !staged;
  one("back").hidden = page.heads.length === 1;
  one("previous").parentElement.hidden = page.heads.length === 1;
  one("previous").disabled = !open || state.head === 0;
  one("next").disabled = !open || state.head === page.heads.length - 1;
  one("find").parentElement.hidden = !open;
  document.querySelector(".tools").classList.toggle("open", open);
}

function say(text) {
  one("spoken").textContent = text;
}

// Finds the next token with the text in its label, queries first, and chooses it.
function findToken(text) {
  const wanted = text.toLocaleLowerCase();
  if (!wanted || !shown) return;
  const matches = [];
  shown.queries.labels.forEach((label, query) => label.toLocaleLowerCase().includes(wanted) && matches.push({ query, key: null }));
  if (!shown.same) shown.keys.labels.forEach((label, key) => label.toLocaleLowerCase().includes(wanted) && matches.push({ query: null, key }));
  found = { text, place: found.text === text && matches.length ? (found.place + 1) % matches.length : 0 };
  if (!matches.length) return say(`no token has ${text}`);
  state.pin = matches[found.place];
  drawMarks();
  const focused = document.activeElement;
  current.reveal(state.pin);
  focused.focus();
  say(`${spokenOf(shown, state.pin)}, ${found.place + 1} of ${matches.length}`);
}

// Arrows move the cell of the matrix, or the token of the other views.
function moveMark(key) {
  const start = state.mark ?? state.pin ?? {};
  const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
  const within = (number, count) => Math.min(count - 1, Math.max(0, number));
  if (state.view === "matrix") {
    const fresh = start.query == null && start.key == null;
    const moved = (number, by) => (fresh ? 0 : number == null ? 0 : number + by);
    return { query: within(moved(start.query, down), shown.rows), key: within(moved(start.key, right), shown.columns) };
  }
  const asKey = start.query == null && start.key != null;
  if (state.view === "arcs" && right) {
    const place = start.query ?? start.key ?? 0;
    return right > 0 ? { query: null, key: within(place, shown.columns) } : { query: within(place, shown.rows), key: null };
  }
  const place = within((start.query ?? start.key ?? -1) + (down || right), asKey ? shown.columns : shown.rows);
  return asKey ? { query: null, key: place } : { query: place, key: null };
}

function onKey(event) {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || one("help").open) return;
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && event.target.id === "find") findToken(event.target.value);
    return;
  }
  const act = actionOf(event);
  if (!act) return;
  event.preventDefault();
  act();
}

function actionOf(event) {
  const { key, target } = event;
  if (key === "?") return () => one("help").showModal();
  if (comparing && key === "c") return () => set("side", { A: "B", B: "change", change: "A" }[state.side]);
  if (state.head === null || !shown) return null;
  const views = Object.keys(VIEWS);
  if (key >= "1" && key <= String(views.length)) return () => openHead(state.head, views[Number(key) - 1]);
  const inView = target.closest(".stage, .words") || target === document.body || target.id === "head-title";
  if (key.startsWith("Arrow") && inView && state.view !== "table") return () => moveTo(moveMark(key));
  if (key === "Enter" && target.closest(".stage") && state.mark) return () => pin(state.mark);
  return {
    "/": () => one("find").focus(),
    "[": () => step(-1),
    "]": () => step(1),
    "+": () => current.stage?.zoom(1.5),
    "=": () => current.stage?.zoom(1.5),
    "-": () => current.stage?.zoom(1 / 1.5),
    0: () => fitView(),
    Escape: () => letGo(),
  }[key];
}

function moveTo(mark) {
  state.mark = mark;
  current.stage?.showTip(null);
  drawMarks();
  current.reveal(mark);
  say(spokenOf(shown, mark));
}

function letGo() {
  if (!state.pin && !state.mark) return openHead(null);
  state.pin = state.mark = null;
  drawMarks();
}

function fitView() {
  if (!current.stage) return;
  current.stage.picture.factor = 1;
  current.stage.fit();
}

function start() {
  one("tools").hidden = false;
  one("precision").textContent = page.precisionSaid;
  document.querySelector(".page").classList.toggle("several", page.heads.length > 1);
  one("overview").hidden = page.heads.length === 1;
  buildOverview();
  one("back").addEventListener("click", () => openHead(null));
  one("previous").addEventListener("click", () => step(-1));
  one("next").addEventListener("click", () => step(1));
  one("zoom-in").addEventListener("click", () => current.stage?.zoom(1.5));
  one("zoom-out").addEventListener("click", () => current.stage?.zoom(1 / 1.5));
  one("zoom-fit").addEventListener("click", fitView);
  one("save-svg").addEventListener("click", saveSvg);
  one("save-png").addEventListener("click", savePng);
  one("help-open").addEventListener("click", () => one("help").showModal());
  one("find").addEventListener("input", (event) => findToken(event.target.value));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", readAddress);
  window.addEventListener("resize", () => {
    sizeThumbnails();
    current?.fit();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetTheme();
    draw();
  });
  readAddress();
  performance.mark("first view drawn");
}

start();
