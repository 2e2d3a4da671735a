"use strict";
// The arcs: queries in a column at the left, keys at the right, a line for each weight worth seeing.

const MOST_ARCS = 1200;
const WIDEST_ARC = 3.5;

class ArcsPicture {
  constructor(shown) {
    this.shown = shown;
    this.factor = 1;
    this.lines = shown.values ? strongestCells(shown.values, MOST_ARCS).map((cell) => this.lineAt(cell)) : [];
    this.top = 30;
  }

  lineAt(cell) {
    const { values, columns } = this.shown;
    return { query: Math.floor(cell / columns), key: cell % columns, value: values[cell] };
  }

  get dimmed() {
    return Boolean(state.mark || state.pin);
  }

  measure(width, most) {
    const { queries, keys, rows, columns } = this.shown;
    const tallest = Math.max(rows, columns);
    const fitting = Math.min(30, Math.max(17, (most - this.top - 10) / tallest));
    this.factor = Math.min(Math.max(this.factor, 0.6), 2.5);
    this.step = fitting * this.factor;
    this.wide = Math.min(width, 760);
    this.margin = Math.floor((width - this.wide) / 2);
    const side = this.wide * 0.34;
    this.from = this.margin + Math.min(side, Math.max(longest(queries.labels) + 22, 70));
    this.to = this.margin + this.wide - Math.min(side, Math.max(longest(keys.labels) + 22, 70));
    return { width, height: this.top + tallest * this.step + 8 };
  }

  get fixed() {
    return { left: 0, top: this.top };
  }

  zoomBy(factor) {
    const before = this.factor;
    this.factor = Math.min(2.5, Math.max(0.6, before * factor));
    return this.factor / before;
  }

  height(number, area) {
    return this.top + (number + 0.5) * this.step - area.y;
  }

  draw(surface, area) {
    surface.clip(0, this.top, area.width, area.height - this.top, () => {
      for (let place = this.lines.length - 1; place >= 0; place--) this.drawLine(surface, area, this.lines[place], this.shown.scale, 0.75);
    });
  }

  drawLine(surface, area, { query, key, value }, scale, strongest) {
    const [start, stop] = [this.height(query, area), this.height(key, area)];
    if (Math.max(start, stop) < 0 || Math.min(start, stop) > area.height) return;
    const part = partOf(value, scale);
    const color = theme()[hueOf(value, scale)];
    surface.arc(this.from + 4, start, this.to - 4, stop, color, 0.6 + (WIDEST_ARC - 0.6) * part, strongest * part);
  }

  drawOver(surface, area) {
    surface.clip(0, this.top, area.width, area.height - this.top, () => {
      for (const mark of [state.pin, state.mark]) {
        if (!mark) continue;
        const lines = linesOfToken(this.shown, mark).filter(({ value }) => partOf(value, this.shown.scale) > 0);
        const scale = scaleUpTo(lines.length ? Math.abs(lines[0].value) : 0);
        for (const line of lines) this.drawLine(surface, area, line, scale, 1);
      }
      this.drawColumn(surface, area, "query", this.from, "right");
      this.drawColumn(surface, area, "key", this.to, "left");
    });
    const faint = { size: 11, color: theme().soft };
    surface.text("queries", this.from, 10, { ...faint, align: "right" });
    surface.text("keys", this.to, 10, faint);
  }

  drawColumn(surface, area, axis, x, align) {
    const { labels } = axis === "query" ? this.shown.queries : this.shown.keys;
    const size = Math.min(14, Math.max(11, this.step * 0.58));
    const room = (align === "right" ? this.from : this.margin + this.wide - this.to) - 10 - (align === "right" ? this.margin : 0);
    const first = Math.max(0, Math.floor(area.y / this.step) - 1);
    const last = Math.min(labels.length, Math.ceil((area.y + area.height) / this.step));
    for (let place = first; place < last; place++) {
      const chosen = state.pin?.[axis] === place || state.mark?.[axis] === place;
      const style = { size, align, color: chosen ? theme().accent : theme().ink, weight: chosen ? 650 : 400 };
      surface.text(fitText(labels[place], size, room), x, this.height(place, area), style);
    }
  }

  pointAt(x, y, area) {
    const place = Math.floor((y - this.top + area.y) / this.step);
    const middle = (this.from + this.to) / 2;
    const axis = x < middle ? "query" : "key";
    const count = axis === "query" ? this.shown.rows : this.shown.columns;
    if (y < this.top || place < 0 || place >= count) return null;
    return axis === "query" ? { query: place, key: null } : { query: null, key: place };
  }

  placeOf(mark) {
    const number = mark.query ?? mark.key ?? 0;
    return { x: 0, y: this.top + number * this.step, width: 1, height: this.step };
  }

  get note() {
    if (!this.shown.values) return "Of a text this long the arcs of one token are drawn: point at one, or find it.";
    const all = this.shown.values.length;
    return this.lines.length < MOST_ARCS
      ? "A line is as wide and as strong as its weight. Point at a token for its own lines alone."
      : `The ${MOST_ARCS.toLocaleString("en")} strongest of ${all.toLocaleString("en")} weights, as wide and as strong as they are; point at a token for all of its own.`;
  }
}

// The strongest lines of a token, as a query or as a key.
function linesOfToken(shown, mark) {
  if (mark.query !== null && mark.key !== null) return [{ ...mark, value: shown.at(mark.query, mark.key) }];
  const axis = mark.query !== null ? "query" : "key";
  const values = shown.line(axis, mark[axis]);
  const other = { query: "key", key: "query" }[axis];
  return strongestCells(values, MOST_ARCS).map((place) => ({ [axis]: mark[axis], [other]: place, value: values[place] }));
}

// The places of the largest values by size, at most so many, strongest first; found by counting, without a sort.
function strongestCells(values, most) {
  const bins = new Uint32Array(4096);
  const binOf = (value) => Math.min(4095, Math.floor(Math.sqrt(Math.abs(value)) * 4095));
  const real = (value) => value !== ABSENT && !Number.isNaN(value) && value !== 0;
  for (const value of values) if (real(value)) bins[binOf(value)]++;
  let bin = 4095;
  for (let count = bins[bin]; bin > 0 && count + bins[bin - 1] <= most; ) count += bins[--bin];
  const chosen = [];
  for (let place = 0; place < values.length; place++) {
    if (real(values[place]) && binOf(values[place]) >= bin) chosen.push(place);
  }
  chosen.sort((one, two) => Math.abs(values[two]) - Math.abs(values[one]) || one - two);
  return chosen.slice(0, most);
}
