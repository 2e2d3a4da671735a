"use strict";
// The overview: layers down, heads across, each head a thumbnail that opens it.

const LARGEST_THUMB = 168;
const MOST_ACROSS = 20; // thumbnails of a single layer, which goes on below
const LEAST_NAMED = 32; // pixels of a thumbnail that has room for its name
const thumbnails = readThumbnails();

function groupsOf() {
  const groups = new Map();
  page.heads.forEach((head, number) => {
    const name = [head.kind === "cross" ? "cross-attention" : "", severalItems ? `text ${head.item}` : ""];
    const key = name.filter(Boolean).join(", ");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(number);
  });
  return groups;
}

const severalItems = new Set(page.heads.map((head) => head.item)).size > 1;

// The heads of a group by their layers, in the order given; and whether every layer has the same ones.
function layersOf(numbers) {
  const layers = new Map();
  for (const number of numbers) {
    const { layer } = page.heads[number];
    if (!layers.has(layer)) layers.set(layer, []);
    layers.get(layer).push(number);
  }
  const names = [...layers.values()].map((row) => row.map((number) => page.heads[number].head).join());
  return { layers, regular: names.every((one) => one === names[0]) && layers.size > 1 };
}

// Whether a thumbnail has fewer cells than its head has tokens.
function poolsThumbnails() {
  return page.heads.some((head, number) => {
    const [rows, columns] = [textOf(number, "query").labels.length, textOf(number, "key").labels.length];
    return head.thumbnail[0] < rows || head.thumbnail[1] < columns || page.block > 1;
  });
}

function buildOverview() {
  const overview = document.getElementById("overview");
  overview.replaceChildren();
  for (const [name, numbers] of groupsOf()) {
    if (name) overview.append(make("h3", {}, name));
    overview.append(buildGrid(numbers));
  }
  overview.addEventListener("keydown", moveAmongHeads);
  drawThumbnails();
  sizeThumbnails();
}

function buildGrid(numbers) {
  const { layers, regular } = layersOf(numbers);
  const longest = Math.max(...[...layers.values()].map((row) => row.length));
  const most = layers.size > 1 ? longest : Math.min(longest, MOST_ACROSS);
  const grid = make("div", { className: "grid" });
  grid.dataset.most = most;
  grid.dataset.rows = Math.max(layers.size, Math.ceil(longest / most));
  grid.style.gridTemplateColumns = `auto repeat(${most}, var(--thumb))`;
  if (regular) {
    grid.append(make("span", { className: "name across corner" }, "layer \\ head"));
    for (const number of layers.values().next().value) {
      grid.append(make("span", { className: "name across" }, String(page.heads[number].head)));
    }
  }
  for (const [layer, row] of layers) {
    row.forEach((number, place) => {
      if (place % most === 0) grid.append(make("span", { className: "name" }, rowName(layer, place, regular)));
      grid.append(buildThumb(number, !regular));
    });
    for (let place = row.length; place < most; place++) grid.append(make("span"));
  }
  return grid;
}

// What stands left of a row: its layer; nothing where it goes on with a layer.
function rowName(layer, place, regular) {
  if (place) return "";
  return regular ? String(layer) : `layer ${layer}`;
}

function buildThumb(number, named) {
  const head = page.heads[number];
  const canvas = make("canvas", { width: head.thumbnail[1], height: head.thumbnail[0] });
  const thumb = make("button", { type: "button", className: "thumb", tabIndex: number ? -1 : 0 }, canvas);
  const [rows, columns] = [textOf(number, "query").labels.length, textOf(number, "key").labels.length];
  canvas.style.aspectRatio = String(Math.min(3, Math.max(1 / 3, columns / rows)));
  thumb.dataset.number = number;
  thumb.title = headTitle(number);
  thumb.setAttribute("aria-label", `${headTitle(number)}${peakSaid(number)}`);
  thumb.addEventListener("click", () => openHead(number));
  if (named) thumb.append(make("span", {}, head.name));
  return thumb;
}

function peakSaid(number) {
  if (comparing) return `, changes by at most ${weightText(page.heads[number].reach)}`;
  const peak = page.heads[number].peaks[0];
  if (!peak) return ", nothing visible";
  const [query, key] = [quoted(textOf(number, "query"), peak[0]), quoted(textOf(number, "key"), peak[1])];
  return `, largest weight ${weightText(peak[2])} from ${query} to ${key}`;
}

function thumbnailValues(number) {
  const sides = thumbnails[number].map((side) => side[state.pool]);
  if (state.side === "change") return changeOf(...sides);
  return sides[state.side === "B" ? 1 : 0];
}

// The scale of a thumbnail: pooled values are smaller than those that they are pooled from.
function thumbnailScale(number) {
  if (page.fixed && state.limits === "page" && state.side !== "change") return scaleOf(0);
  const numbers = state.limits === "head" ? [number] : page.heads.keys();
  let high = 0;
  for (const each of numbers) high = Math.max(high, largestOf(thumbnailValues(each)));
  return scaleUpTo(high);
}

function drawThumbnails() {
  const shared = state.limits === "head" ? null : thumbnailScale(null);
  for (const thumb of document.querySelectorAll(".thumb")) {
    const number = Number(thumb.dataset.number);
    const canvas = thumb.firstChild;
    const painted = paintCells(thumbnailValues(number), canvas.height, canvas.width, shared ?? thumbnailScale(number));
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(painted, 0, 0);
  }
}

function sizeThumbnails() {
  const overview = document.getElementById("overview");
  for (const grid of overview.querySelectorAll(".grid")) {
    const most = Number(grid.dataset.most);
    const names = [...grid.querySelectorAll(".name:not(.across), .corner")].map((name) => name.offsetWidth);
    const room = overview.clientWidth - Math.max(...names, 0) - 8;
    const gap = Math.max(2, Math.min(12, Math.round(room / most / 12)));
    const inWidth = Math.floor((room - gap * most) / most);
    const inHeight = Math.floor((window.innerHeight - 330) / Number(grid.dataset.rows)) - gap;
    const compact = state.head !== null;
    const side = Math.max(compact ? 5 : 16, Math.min(LARGEST_THUMB, inWidth, compact ? inWidth : Math.max(inHeight, 44)));
    grid.classList.toggle("tiny", side < LEAST_NAMED);
    grid.style.setProperty("--thumb", `${side}px`);
    grid.style.setProperty("--gap", `${gap}px`);
  }
}

function markCurrent() {
  for (const thumb of document.querySelectorAll(".thumb")) {
    const current = Number(thumb.dataset.number) === state.head;
    thumb.setAttribute("aria-current", current);
    if (state.head !== null) thumb.tabIndex = current ? 0 : -1;
  }
}

// Arrows walk the grid; left and right also from row to row.
function moveAmongHeads(event) {
  const thumbs = [...document.querySelectorAll(".thumb")];
  const here = thumbs.indexOf(document.activeElement);
  if (here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  const { offsetLeft } = thumbs[here];
  const inColumn = (list) => list.find((thumb) => Math.abs(thumb.offsetLeft - offsetLeft) < 4);
  const next = {
    ArrowRight: () => thumbs[here + 1],
    ArrowLeft: () => thumbs[here - 1],
    ArrowDown: () => inColumn(thumbs.slice(here + 1)),
    ArrowUp: () => inColumn(thumbs.slice(0, here).reverse()),
    Home: () => thumbs[0],
    End: () => thumbs.at(-1),
  }[event.key]?.();
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  for (const thumb of thumbs) thumb.tabIndex = thumb === next ? 0 : -1;
  next.focus();
}

function drawOverviewOn(surface) {
  const overview = document.getElementById("overview");
  const origin = overview.getBoundingClientRect();
  drawTextOn(surface, overview, origin);
  for (const thumb of overview.querySelectorAll(".thumb")) {
    const { left, top, width: wide, height: high } = thumb.firstChild.getBoundingClientRect();
    const [x, y] = [left - origin.left, top - origin.top];
    surface.rect(x, y, wide, high, theme().absent);
    surface.image(thumb.firstChild, x, y, wide, high, true);
  }
}
