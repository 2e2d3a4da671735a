"use strict";
// The text itself, shaded by what the chosen token attends to or by what attends to it.

class WordsView {
  constructor(parent, shown) {
    this.shown = shown;
    this.element = make("div");
    this.directions = make("div", { className: "group" });
    this.directions.setAttribute("role", "group");
    this.directions.setAttribute("aria-label", "What the shading shows");
    this.note = make("p", { className: "note" });
    this.axes = shown.same ? ["both"] : ["query", "key"];
    this.tokens = {};
    this.chosen = [];
    this.shades = new Map(); // of each token, as it is now
    this.element.append(...(shown.same ? [this.directions] : []), this.note);
    for (const axis of this.axes) this.element.append(this.paragraph(axis));
    parent.append(this.element);
    if (shown.same) this.addDirections();
    this.drawOver();
  }

  paragraph(axis) {
    const text = axis === "key" ? this.shown.keys : this.shown.queries;
    const paragraph = make("p", { className: "words", dir: "auto" });
    if (!this.shown.same) paragraph.append(make("h3", {}, axis === "query" ? "queries" : "keys"));
    this.tokens[axis] = text.labels.map((label, place) => {
      const token = make("button", { type: "button", className: "token", tabIndex: place ? -1 : 0 }, label);
      token.dataset.place = place;
      const space = text.spaces[place];
      if (space === "\n" && place) paragraph.append(document.createElement("br"));
      else if (space === " " && place) paragraph.append(" ");
      else if (place) paragraph.append(document.createElement("wbr"));
      paragraph.append(token);
      return token;
    });
    const markAt = (event) => {
      const place = event.target.closest(".token")?.dataset.place;
      return place === undefined ? null : this.markOf(axis, Number(place));
    };
    paragraph.addEventListener("pointermove", (event) => event.pointerType !== "touch" && pointTo(markAt(event)));
    paragraph.addEventListener("pointerleave", () => pointTo(null));
    paragraph.addEventListener("click", (event) => markAt(event) && pin(markAt(event)));
    return paragraph;
  }

  markOf(axis, place) {
    const asKey = axis === "key" || (axis === "both" && state.direction === "from");
    return asKey ? { query: null, key: place } : { query: place, key: null };
  }

  addDirections() {
    const choices = { to: "what it attends to", from: "what attends to it" };
    this.directions.replaceChildren(
      ...Object.entries(choices).map(([name, label]) => {
        const chosen = state.direction === name;
        const button = make("button", { type: "button", onclick: () => this.turn(name) }, label);
        button.setAttribute("aria-pressed", chosen);
        return button;
      }),
    );
  }

  turn(direction) {
    state.direction = direction;
    const place = state.pin?.query ?? state.pin?.key;
    if (place !== undefined && place !== null) state.pin = this.markOf("both", place);
    this.addDirections();
    drawMarks();
  }

  drawOver() {
    const mark = state.mark || state.pin;
    const shades = mark ? this.shadesOf(mark) : {};
    const average = mark ? null : averageOfKeys(this.shown);
    const largest = largestOf(average ?? Object.values(shades)[0]);
    const scale = scaleUpTo(largest);
    for (const axis of this.axes) {
      const asQueries = axis === "query";
      const values = shades[axis] ?? (average && !asQueries ? average : null);
      this.tokens[axis].forEach((token, place) => this.shade(token, values ? values[place] : 0, scale));
    }
    const chosen = mark ? this.nameOf(mark) : null;
    const all = this.shown.values ? "how much each token is attended to on average" : "nothing";
    const what = !chosen ? all : mark.query !== null ? `what ${chosen} attends to` : `what attends to ${chosen}`;
    const more = chosen ? "" : " Point at a token for what it attends to; click to keep it.";
    const darkest = chosen || this.shown.values ? `; the darkest is ${weightText(largest)}` : "";
    this.note.textContent = `Shaded: ${what}${darkest}.${more}`;
    for (const token of this.chosen) token.classList.remove("chosen");
    const places = this.axes.map((axis) => (axis === "both" ? (mark?.query ?? mark?.key) : mark?.[axis]));
    this.chosen = this.axes.map((axis, number) => this.tokens[axis][places[number]]).filter(Boolean);
    for (const token of this.chosen) token.classList.add("chosen");
  }

  nameOf(mark) {
    return mark.query !== null ? quoted(this.shown.queries, mark.query) : quoted(this.shown.keys, mark.key);
  }

  shadesOf(mark) {
    const axis = mark.query !== null ? "query" : "key";
    const shaded = this.shown.same ? "both" : { query: "key", key: "query" }[axis];
    return { [shaded]: this.shown.line(axis, mark[axis]) };
  }

  shade(token, value, scale) {
    const part = partOf(value, scale);
    const opacity = Math.round(78 * part) / 100;
    const shade = value === ABSENT || Number.isNaN(value) ? value : value < 0 ? -opacity : opacity;
    if (Object.is(this.shades.get(token), shade)) return;
    this.shades.set(token, shade);
    const hue = theme()[hueOf(value, scale)];
    token.style.backgroundColor = opacity ? faded(hue, opacity) : "";
    token.style.color = opacity > 0.2 ? inkOn(mixed(theme().paper, hue, opacity)) : "";
    token.classList.toggle("absent", value === ABSENT);
    token.classList.toggle("nan", Number.isNaN(value));
  }

  reveal(mark) {
    const [axis, place] = mark.query !== null ? ["query", mark.query] : ["key", mark.key];
    const token = (this.tokens[axis] ?? this.tokens.both)[place];
    token.focus({ preventScroll: true });
    token.scrollIntoView({ block: "nearest" });
  }

  fit() {}
}

// What each key gets from the queries that see it, on average.
function averageOfKeys({ values, rows, columns }) {
  if (!values) return new Float32Array(columns); // too many to take the mean of
  const totals = new Float32Array(columns);
  const counts = new Uint32Array(columns);
  for (let place = 0; place < rows * columns; place++) {
    if (values[place] === ABSENT) continue;
    totals[place % columns] += values[place];
    counts[place % columns]++;
  }
  return totals.map((total, key) => (counts[key] ? total / counts[key] : ABSENT));
}

// Red, green and blue of a colour written #rrggbb.
function partsOf(color) {
  return [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));
}

// What is seen of a colour over another.
function mixed(under, over, opacity) {
  const above = partsOf(over);
  return partsOf(under).map((part, place) => part + (above[place] - part) * opacity);
}

// A colour written #rrggbb, as much of it as the opacity says.
function faded(color, opacity) {
  const parts = partsOf(color);
  return `rgba(${parts.join(", ")}, ${opacity.toFixed(3)})`;
}

function largestOf(values) {
  let largest = 0;
  for (const value of values) if (value !== ABSENT && Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
}

function quoted(text, place) {
  return `“${text.labels[place]}”`;
}
