"use strict";
// The inspector: the cell that is pointed at, and what the chosen token attends to and is attended to by.

const LIST_LENGTH = 8;

// The query and the key that lists are made for: in self-attention a token is both.
function tokensOf(shown, mark) {
  if (!mark) return { query: null, key: null };
  return {
    query: mark.query ?? (shown.same ? mark.key : null),
    key: mark.key ?? (shown.same ? mark.query : null),
  };
}

function drawInspector(shown) {
  const inspector = document.getElementById("inspector");
  const mark = state.mark ?? state.pin;
  if (!mark) {
    const hint = "Point at a cell or a token for its numbers. Click to keep it: what it attends to, and what attends to it.";
    inspector.replaceChildren(make("section", {}, make("p", { className: "hint" }, hint)));
    return;
  }
  const parts = [];
  if (mark.query !== null && mark.key !== null) parts.push(cellPart(shown, mark));
  const { query, key } = tokensOf(shown, state.pin ?? mark);
  const lists = [];
  if (query !== null) lists.push(...listPart(shown, "query", query));
  if (key !== null) lists.push(...listPart(shown, "key", key));
  parts.push(make("section", {}, ...lists));
  inspector.replaceChildren(...parts);
}

function cellPart(shown, { query, key }) {
  const place = (text, number) => make("small", {}, ` ${nameOf(text, number)}`);
  const pair = make("p", { className: "pair" });
  pair.append(make("bdi", {}, shown.queries.labels[query]), place(shown.queries, query), " → ");
  pair.append(make("bdi", {}, shown.keys.labels[key]), place(shown.keys, key));
  const numbers = make("dl", { className: "numbers" });
  for (const quantity of quantitiesOf(shown)) {
    numbers.append(make("dt", {}, quantity.name), make("dd", {}, quantity.text(query, key)));
  }
  return make("section", {}, make("h3", {}, "query → key"), pair, numbers);
}

function listPart(shown, axis, place) {
  const { queries, keys } = shown;
  const outward = axis === "query";
  const others = outward ? keys : queries;
  const values = shown.line(axis, place);
  const name = quoted(outward ? queries : keys, place);
  const verb = shown.scale.change
    ? outward ? `${name} attends differently to` : `${name} is attended to differently by`
    : outward ? `${name} attends to` : `${name} is attended to by`;
  const rowsShown = strongestOf(values, LIST_LENGTH).map((other) => {
    const value = values[other];
    const mark = outward ? { query: place, key: other } : { query: other, key: place };
    return make("li", {}, listButton(shown, others, other, value, mark));
  });
  const list = rowsShown.length
    ? make("ul", { className: "list" }, ...rowsShown)
    : make("p", { className: "hint" }, "nothing that is visible");
  return [make("h3", {}, make("bdi", {}, verb)), list];
}

// The places of the largest values by size, strongest first; of equal ones the first.
function strongestOf(values, most) {
  const best = [];
  for (let place = 0; place < values.length; place++) {
    const size = Math.abs(values[place]);
    if (values[place] === ABSENT || Number.isNaN(size)) continue;
    if (best.length === most && size <= Math.abs(values[best[most - 1]])) continue;
    let rank = best.length;
    while (rank && Math.abs(values[best[rank - 1]]) < size) rank--;
    best.splice(rank, 0, place);
    if (best.length > most) best.pop();
  }
  return best;
}

function listButton(shown, others, other, value, mark) {
  const { scale } = shown;
  const bar = make("b", { className: scale.change ? (value < 0 ? "less" : "more") : "" });
  bar.style.width = `${Math.min(100, (100 * Math.abs(value)) / (scale.change ? scale.high : 1))}%`;
  const label = make("bdi", {}, others.labels[other]);
  const button = make("button", { type: "button" }, label, make("i", {}, bar), make("span", {}, weightText(value, scale.change)));
  button.title = `position ${nameOf(others, other)}`;
  button.addEventListener("click", () => {
    pin(mark);
    current.reveal(mark);
  });
  return button;
}

// What a tip beside the pointer says.
function tipOf(shown, mark) {
  if (!mark || mark.query === null || mark.key === null) return null;
  const pair = `${shown.queries.labels[mark.query]} → ${shown.keys.labels[mark.key]}`;
  const numbers = quantitiesOf(shown).map((quantity) => `${quantity.name} ${quantity.text(mark.query, mark.key)}`);
  return [make("bdi", {}, pair), document.createElement("br"), make("b", {}, numbers[0]), ` · ${numbers.slice(1).join(" · ")}`];
}

function spokenOf(shown, mark) {
  if (mark.query !== null && mark.key !== null) {
    const numbers = quantitiesOf(shown).map((quantity) => `${quantity.name} ${quantity.text(mark.query, mark.key)}`);
    return `${shown.queries.labels[mark.query]} to ${shown.keys.labels[mark.key]}: ${numbers.join(", ")}`;
  }
  return mark.query !== null ? `query ${shown.queries.labels[mark.query]}` : `key ${shown.keys.labels[mark.key]}`;
}
