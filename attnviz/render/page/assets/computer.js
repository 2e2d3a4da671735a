/** The page's side of its workers, which compute parts of long heads, lines of many heads, and several heads in one. */

import { page } from "./data.js";
import { contentOf, givenSide } from "./numbers.js";
import { state } from "./state.js";

/** @import { Answer, Axis, Part, Side, Together } from "./types.js" */

const LINES_AT_ONCE = 4; // heads that are sent before their lines are asked for
const MAX_WORKERS = 3;

/** A worker, started when it is first asked, and the heads that it holds. */
class Helper {
  /** @param {(data: any) => void} hear */
  constructor(hear) {
    this.worker = contentOf("worker").then((source) => {
      const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
      worker.onmessage = ({ data }) => hear(data);
      return worker;
    });
    /** @type {Set<number>} */
    this.held = new Set();
    this.of = state.of;
  }

  /** Sends a message when the worker is there, in the order in which messages are sent. @param {object} message */
  send(message) {
    this.worker.then((worker) => worker.postMessage(message));
  }

  /** Gives the worker the heads that it does not hold yet. @param {number[]} numbers */
  async give(numbers) {
    if (this.of !== state.of) this.held.clear();
    this.of = state.of;
    for (const number of numbers) {
      if (this.held.has(number)) continue;
      this.held.add(number);
      const sides = await Promise.all(page.sides.map((_, side) => givenSide(number, side)));
      const factored = sides.flatMap(({ about }) => (about ? [about.keys] : []));
      const keys = await Promise.all(factored.map(async (key) => [key, await contentOf(`keys-${key}`)]));
      this.send({ given: { number, sides, keys: Object.fromEntries(keys) } });
    }
  }
}

/** The workers: they answer the latest request of each kind. */
class Computer {
  constructor() {
    /** @type {Helper[]} */
    this.helpers = [];
    this.last = { part: 0, lines: 0, combine: 0 };
    /** @type {Side[] | null} */
    this.sides = null;
    /** @type {(answer: Answer) => void} */
    this.receive = () => {};
    /** @type {(number: number, lines: Float32Array[]) => void} */
    this.receiveLine = () => {};
    /** @type {(values: Float32Array) => void} */
    this.receiveMap = () => {};
  }

  /** @param {number} place */
  helper(place = 0) {
    return (this.helpers[place] ??= new Helper((data) => this.hear(data)));
  }

  /** @param {any} data */
  hear(data) {
    if (data.line) {
      if (data.line.id === this.last.lines) this.receiveLine(data.line.number, data.line.lines);
    } else if (data.map) {
      if (data.map.id === this.last.combine) this.receiveMap(data.map.values);
    } else if (data.id === this.last.part) this.receive(data);
  }

  /**
   * Calls `receive` with each band of the part until another part is asked for.
   *
   * @param {Side[]} sides
   * @param {Part} part
   * @param {(answer: Answer) => void} receive
   */
  ask(sides, part, receive) {
    const helper = this.helper();
    if (sides !== this.sides) helper.send({ sides: sides.map(({ factors }) => ({ ...factors })) });
    this.sides = sides;
    this.receive = receive;
    helper.send({ ...part, id: ++this.last.part });
  }

  /**
   * Calls `receive` with a token's line in one head after the other, until other lines are asked for; heads that share
   * keys are computed by one worker.
   *
   * @param {number[]} numbers of heads, in the order in which they are wanted
   * @param {Axis} axis
   * @param {number} place
   * @param {(number: number, lines: Float32Array[]) => void} receive lines, by side
   */
  askLines(numbers, axis, place, receive) {
    const id = ++this.last.lines;
    this.receiveLine = receive;
    const workers = Math.max(1, Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 1));
    for (let worker = 0; worker < workers; worker++) {
      const own = numbers.filter((number) => (page.heads[number].factors[0]?.keys ?? number) % workers === worker);
      if (own.length) this.askHelper(this.helper(worker), own, { id, axis, place });
    }
  }

  /** @param {Helper} helper @param {number[]} numbers @param {{ id: number, axis: Axis, place: number }} line */
  async askHelper(helper, numbers, line) {
    for (let first = 0; first < numbers.length; first += LINES_AT_ONCE) {
      const some = numbers.slice(first, first + LINES_AT_ONCE);
      await helper.give(some);
      if (line.id !== this.last.lines) return;
      helper.send({ lines: { ...line, numbers: some } });
    }
  }

  /**
   * Several heads in one map.
   *
   * @param {number[]} numbers
   * @param {Exclude<Together, "side">} how
   * @param {number} side
   * @returns {Promise<Float32Array>}
   */
  async askMap(numbers, how, side) {
    const id = ++this.last.combine;
    const helper = this.helper();
    await helper.give(numbers);
    const layers = numbers.map((number) => page.heads[number].layer);
    return new Promise((resolve) => {
      this.receiveMap = resolve;
      helper.send({ combine: { id, numbers, layers, how, side } });
    });
  }
}

/** @type {Computer[]} the one that was started, where it was */
const started = [];

/** The workers, started when they are first needed. */
export function theComputer() {
  if (!started.length) started.push(new Computer());
  return started[0];
}
