"use strict";
// The matrix of a long text: its overview at once, and then the part that is seen, pooled to the pixels it has, or
// cell by cell where these suffice.

const MOST_COMPUTED = 2 ** 25; // cells of a part; a larger one shows the overview alone
const FAR_APART = 4; // tokens from one label to the next
const MOST_PIXELS = 900; // of a part, each way

class ZoomPicture extends MatrixPicture {
  constructor(shown, redraw) {
    super(shown);
    this.overview = this.wholeOf(shown);
    this.redraw = redraw;
    this.bands = []; // of the part that is seen: {top, bottom, left, right, height, width, values}
    this.before = []; // of the part that was seen until this one is whole
  }

  get scale() {
    if (state.pool === "largest" || !this.pooled || state.side === "change") return this.shown.scale;
    if (page.fixed && state.limits === "page") return this.shown.scale;
    const own = this.bands.length ? this.bands : [this.overview];
    return scaleUpTo(Math.max(...own.map((band) => (band.most ??= largestOf(band.values)))));
  }

  get pooled() {
    return this.asked ? this.asked.height < this.asked.bottom - this.asked.top || this.asked.width < this.asked.right - this.asked.left : true;
  }

  // The whole as Python pooled it.
  wholeOf({ number, rows, columns }) {
    const [height, width] = page.heads[number].thumbnail;
    return { top: 0, bottom: rows, left: 0, right: columns, height, width, values: thumbnailValues(number) };
  }

  // The part that an area shows: whole cells, and no more pixels than it has.
  partOf(area) {
    const [top, bottom] = this.span("query", area);
    const [left, right] = this.span("key", area);
    const pixels = (count) => Math.max(1, Math.min(count, MOST_PIXELS, Math.round(count * this.cell)));
    return { top, bottom, left, right, height: pixels(bottom - top), width: pixels(right - left) };
  }

  // Asks for what is seen at the end of this frame.
  askSoon(area) {
    this.area = area;
    this.asking ??= requestAnimationFrame(() => {
      this.asking = null;
      this.ask(this.area);
    });
  }

  ask(area) {
    const part = this.partOf(area);
    if (part.bottom <= part.top || part.right <= part.left) return;
    if (this.asked && Object.keys(part).every((name) => part[name] === this.asked[name])) return;
    this.before = this.whole ? this.bands : this.before;
    [this.asked, this.bands, this.whole, this.started] = [part, [], false, performance.now()];
    if ((part.bottom - part.top) * (part.right - part.left) > MOST_COMPUTED) return;
    theComputer().ask(this.shown.sides, part, (answer) => this.receive(part, answer));
  }

  receive(part, { first, last, pooled }) {
    if (first === last) return;
    const place = (pixel) => part.top + Math.floor((pixel * (part.bottom - part.top)) / part.height);
    this.bands.push({ ...part, top: place(first), bottom: place(last), height: last - first, pooled, values: shownPool(pooled) });
    this.whole = last === part.height;
    if (this.whole) {
      this.before = [];
      this.time = performance.now() - this.started;
    }
    this.redraw();
  }

  draw(surface, area) {
    this.askSoon(area);
    const { left, top } = this;
    surface.clip(left, top, area.width - left, area.height - top, () => {
      const { scale } = this;
      for (const band of [this.overview, ...this.before, ...this.bands]) this.drawBandOfCells(surface, area, band, scale);
      if (this.cell >= NUMBER_CELL) this.drawNumbers(surface, area);
    });
    this.drawLabels(surface, area);
  }

  drawBandOfCells(surface, area, band, scale) {
    const [x, right] = [band.left, band.right].map((key) => Math.round(this.left + key * this.cell - area.x));
    const [y, bottom] = [band.top, band.bottom].map((query) => Math.round(this.top + query * this.cell - area.y));
    const [width, height] = [right - x, bottom - y];
    if (x + width < 0 || y + height < 0 || x > area.width || y > area.height) return;
    surface.rect(x, y, width, height, theme().absent);
    surface.image(this.paint(band, scale), x, y, width, height, true);
  }

  // Painted once for each scale.
  paint(band, scale) {
    if (band.high !== scale.high) band.canvas = paintCells(band.values, band.height, band.width, scale);
    band.high = scale.high;
    return band.canvas;
  }

  get every() {
    const least = LABEL_STEP / this.cell;
    if (least <= FAR_APART) return Math.ceil(least);
    const ten = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((times) => times * ten).find((step) => step >= least);
  }

  // Tokens far apart say little; their positions do.
  labelOf(text, place, every) {
    return every > FAR_APART ? nameOf(text, place) : text.labels[place];
  }
}

// The means or the maxima that are shown: of one recording, or what changed.
function shownPool(pooled) {
  const sides = pooled.map((side) => side[state.pool]);
  if (state.side === "change") return changeOf(...sides);
  return sides[state.side === "B" ? 1 : 0];
}
