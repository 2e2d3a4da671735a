"use strict";
// A stage: a part of a large picture that scrolls by itself, drawn only where it is seen, and zooms.

const DRAG = 5; // pixels from which a press that moves is a drag
const BELOW = 86; // pixels left for the legend under it

// What is drawn on it has: measure(width, height) giving {width, height}, draw(surface, area), drawOver(surface,
// area), pointAt(x, y, area) giving a mark or null, placeOf(mark) giving {x, y, width, height}, zoomBy(factor) giving
// how far the content grew, and `fixed`, {left, top}: what stays in place while the rest scrolls.
class Stage {
  constructor(parent, picture, label, before = null) {
    this.picture = picture;
    this.view = state.view;
    this.canvases = ["stage-base", "stage-over"].map((className) => make("canvas", { className, ariaHidden: "true" }));
    this.viewport = make("div", { className: "stage-view" }, ...this.canvases);
    this.space = make("div", { className: "stage-space" }, this.viewport);
    this.element = make("div", { className: "stage", tabIndex: 0 }, this.space);
    this.element.setAttribute("role", "application");
    this.element.setAttribute("aria-label", label);
    this.tip = make("div", { className: "tip", hidden: true });
    parent.append(this.element, this.tip);
    this.element.addEventListener("scroll", () => this.request());
    this.listen();
    if (before) picture.factor = before.picture.factor;
    this.fit();
    if (before) this.scrollTo(before.last);
  }

  // Whether another head, or the same in other colours, is seen at the place and zoom of this one.
  keptFor({ queries, keys }) {
    const { shown } = this.picture;
    return this.picture.factor !== 1 && shown.queries === queries && shown.keys === keys && state.view === this.view;
  }

  scrollTo({ x, y }) {
    this.element.scrollLeft = x;
    this.element.scrollTop = y;
    this.draw();
  }

  // Takes the size that there is, and the picture's at its present zoom.
  fit() {
    const width = this.element.parentElement.clientWidth;
    const above = this.element.getBoundingClientRect().top + window.scrollY;
    const most = Math.max(320, window.innerHeight - Math.min(above, 300) - BELOW);
    const size = this.picture.measure(width, most);
    this.width = width;
    this.height = Math.min(size.height, most);
    this.element.style.height = `${this.height}px`;
    this.space.style.width = `${Math.max(size.width, width)}px`;
    this.space.style.height = `${Math.max(size.height, this.height)}px`;
    this.width = this.element.clientWidth;
    this.height = this.element.clientHeight;
    this.viewport.style.width = `${this.width}px`;
    this.viewport.style.height = `${this.height}px`;
    const density = window.devicePixelRatio || 1;
    for (const canvas of this.canvases) {
      canvas.width = Math.round(this.width * density);
      canvas.height = Math.round(this.height * density);
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    this.draw();
  }

  get area() {
    return { x: this.element.scrollLeft, y: this.element.scrollTop, width: this.width, height: this.height };
  }

  request() {
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => {
      this.requested = 0;
      if (this.element.isConnected) this.draw();
    });
  }

  draw() {
    this.last = this.area;
    const context = this.canvases[0].getContext("2d");
    context.clearRect(0, 0, this.width, this.height);
    this.picture.draw(new CanvasSurface(context), this.area);
    this.drawOver();
  }

  drawOver() {
    const context = this.canvases[1].getContext("2d");
    context.clearRect(0, 0, this.width, this.height);
    this.canvases[0].style.opacity = this.picture.dimmed ? 0.16 : 1;
    this.picture.drawOver(new CanvasSurface(context), this.area);
  }

  // Zooms around a place: that of the cell in question where it is seen, else the middle.
  zoom(factor, x = null, y = null) {
    if (x === null) return this.zoom(factor, ...this.centre());
    const { left, top } = this.picture.fixed;
    const [inX, inY] = [Math.max(0, x - left), Math.max(0, y - top)];
    const before = this.area;
    const grown = this.picture.zoomBy(factor);
    this.fit();
    const now = this.picture.fixed;
    const place = { x: (before.x + inX) * grown - Math.max(0, x - now.left), y: (before.y + inY) * grown - Math.max(0, y - now.top) };
    this.scrollTo(place);
  }

  centre() {
    const mark = state.mark ?? state.pin;
    const { left, top } = this.picture.fixed;
    const { x, y, width, height } = mark ? this.picture.placeOf(mark) : {};
    const [across, down] = [x + width / 2 - this.area.x, y + height / 2 - this.area.y];
    const seen = mark && across > left && across < this.width && down > top && down < this.height;
    return seen ? [across, down] : [this.width / 2, this.height / 2];
  }

  // Scrolls as little as shows what is marked.
  reveal(mark) {
    const place = this.picture.placeOf(mark);
    const { left, top } = this.picture.fixed;
    const { x, y } = this.area;
    if (place.x < x + left) this.element.scrollLeft = place.x - left;
    else if (place.x + place.width > x + this.width) this.element.scrollLeft = place.x + place.width - this.width;
    if (place.y < y + top) this.element.scrollTop = place.y - top;
    else if (place.y + place.height > y + this.height) this.element.scrollTop = place.y + place.height - this.height;
    this.draw();
  }

  showTip(mark, text, x, y) {
    this.tip.hidden = !mark || !text;
    if (this.tip.hidden) return;
    this.tip.replaceChildren(...text);
    const right = x + 18 + this.tip.offsetWidth > this.width;
    const left = Math.max(0, right ? x - this.tip.offsetWidth - 14 : x + 18);
    const top = Math.max(0, y - this.tip.offsetHeight - 12);
    this.tip.style.transform = `translate(${left}px, ${top}px)`;
  }

  listen() {
    const over = this.canvases[1];
    const at = (event) => {
      const bounds = this.viewport.getBoundingClientRect();
      return [event.clientX - bounds.left, event.clientY - bounds.top];
    };
    over.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") pointTo(this.picture.pointAt(...at(event), this.area), ...at(event));
    });
    over.addEventListener("pointerleave", () => pointTo(null));
    this.listenToDrag(over);
    over.addEventListener("click", (event) => {
      if (this.dragged) return;
      pin(this.picture.pointAt(...at(event), this.area));
      this.element.focus({ preventScroll: true });
    });
    over.addEventListener("dblclick", (event) => this.zoom(2, ...at(event)));
    this.element.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 300), ...at(event));
      },
      { passive: false },
    );
    this.listenToPinch(at);
  }

  // A mouse that is pressed and moved takes the picture along.
  listenToDrag(over) {
    let from = null;
    over.addEventListener("pointerdown", ({ pointerType, button, clientX, clientY }) => {
      this.dragged = false;
      from = pointerType === "mouse" && !button ? { clientX, clientY, ...this.area } : null;
    });
    over.addEventListener("pointermove", ({ buttons, clientX, clientY, pointerId }) => {
      if (!from || !buttons) return;
      const [x, y] = [from.clientX - clientX, from.clientY - clientY];
      if (!this.dragged && Math.hypot(x, y) < DRAG) return;
      if (!this.dragged) over.setPointerCapture(pointerId);
      this.dragged = true;
      this.element.scrollTo(from.x + x, from.y + y);
    });
    over.addEventListener("pointerup", () => (from = null));
  }

  listenToPinch(at) {
    const spread = ([one, two]) => Math.hypot(one.clientX - two.clientX, one.clientY - two.clientY);
    let last = 0;
    this.element.addEventListener("touchstart", (event) => {
      last = event.touches.length === 2 ? spread(event.touches) : 0;
    });
    this.element.addEventListener(
      "touchmove",
      (event) => {
        if (event.touches.length !== 2 || !last) return;
        event.preventDefault();
        const now = spread(event.touches);
        const [first, second] = [at(event.touches[0]), at(event.touches[1])];
        this.zoom(now / last, (first[0] + second[0]) / 2, (first[1] + second[1]) / 2);
        last = now;
      },
      { passive: false },
    );
  }
}
