/** The page's side of its worker, which computes parts of long heads. */

import { one } from "./elements.js";

/** @import { Answer, Part, Side } from "./types.js" */

/** The worker: it holds one head at a time, and answers the latest request for a part of it. */
class Computer {
  constructor() {
    const source = one("worker").textContent ?? "";
    this.worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    this.worker.onmessage = ({ data }) => data.id === this.last && this.receive(data);
    this.last = 0;
    /** @type {Side[] | null} */
    this.sides = null;
    /** @type {(answer: Answer) => void} */
    this.receive = () => {};
  }

  /**
   * Calls `receive` with each band of the part until another part is asked for.
   *
   * @param {Side[]} sides
   * @param {Part} part
   * @param {(answer: Answer) => void} receive
   */
  ask(sides, part, receive) {
    if (sides !== this.sides) {
      this.worker.postMessage({ sides: sides.map(({ factors }) => ({ ...factors })) });
      this.sides = sides;
    }
    this.receive = receive;
    this.worker.postMessage({ ...part, id: ++this.last });
  }
}

/** @type {Computer[]} the one that was started, where any was */
const started = [];

/** The worker, started when it is first needed. */
export function theComputer() {
  if (!started.length) started.push(new Computer());
  return started[0];
}
