/** The page's side of its workers, which read long heads, compute parts and lines of heads, and several heads in one. */

import { documentRead, givenSide, readContent } from "./contents.js";
import { page, shapeOf } from "./data.js";
import { piecesOfLine } from "./reading.js";
import { state } from "./state.js";

/** @import { Answer, Axis, Part, PartOf, Together } from "./types.js" */

const LINES_AT_ONCE = 4; // heads that are sent before their lines are asked for
const MAX_WORKERS = 3;
const MAX_READ_AHEAD = 2 ** 23; // numbers of keys

/** A worker, and the pieces of heads that it holds. */
class Helper {
  /** @param {(data: any) => void} hear */
  constructor(hear) {
    this.worker = new Worker(URL.createObjectURL(new Blob([readContent("worker")], { type: "text/javascript" })));
    this.worker.onmessage = ({ data }) => hear(data);
    /** @type {Set<string>} elements of which all was sent, and pieces that were sent */
    this.held = new Set();
    this.of = state.of;
  }

  /** @param {object} message */
  send(message) {
    this.worker.postMessage(message);
  }

  /**
   * Gives the worker what it does not hold yet of some heads: all pieces, or those that a line of each is read from.
   *
   * @param {number[]} numbers
   * @param {{ axis: Axis, place: number } | null} line
   */
  give(numbers, line = null) {
    if (this.of !== state.of) this.held.clear();
    this.of = state.of;
    for (const number of numbers) {
      /** @type {Record<number, Record<number, string>>} */
      const keys = {};
      const sides = page.sides.map((_, side) => {
        const given = givenSide(number, side);
        const wanted = line && piecesOfLine(given, line.axis, line.place);
        if (given.about) keys[given.about.keys] = this.unsent(`keys-${given.about.keys}`, wanted && wanted.keys);
        return { ...given, texts: this.unsent(`head-${number}-${side}`, wanted && wanted.own) };
      });
      const texts = [...sides.map((given) => given.texts), ...Object.values(keys)];
      if (texts.some((some) => Object.keys(some).length)) this.send({ given: { number, sides, keys } });
    }
  }

  /**
   * The pieces of an element that the worker does not hold yet, by their numbers.
   *
   * @param {string} id
   * @param {number[] | null} wanted nothing for all
   * @returns {Record<number, string>}
   */
  unsent(id, wanted) {
    const missing = wanted?.filter((piece) => !this.held.has(`${id} ${piece}`));
    if (missing?.length === 0 || this.held.has(id)) return {};
    const texts = readContent(id).split(" ");
    if (!missing) this.held.add(id);
    const sent = missing ?? [...texts.keys()];
    for (const piece of sent) this.held.add(`${id} ${piece}`);
    return Object.fromEntries(sent.map((piece) => [piece, texts[piece]]));
  }
}

/** The workers: they answer the latest request of each kind. */
class Computer {
  constructor() {
    /** @type {Helper[]} */
    this.helpers = [];
    this.last = { part: 0, lines: 0, combine: 0, numbers: 0 };
    /** @type {Map<number, (answer: Answer) => void>} of the parts that are waited for */
    this.parts = new Map();
    /** @type {Map<number, (answer: { numbers: Float32Array, rest: Uint8Array<ArrayBuffer> }) => void>} */
    this.numbers = new Map();
    /** @type {(number: number, lines: Float32Array[]) => void} */
    this.receiveLine = () => {};
    /** @type {(values: Float32Array) => void} */
    this.receiveMap = () => {};
  }

  /** @param {number} place */
  helper(place = 0) {
    return (this.helpers[place] ??= new Helper((data) => this.hear(data)));
  }

  /** Starts the workers, and lets each read the keys of the first long head that it will be asked for. */
  async start() {
    await documentRead();
    this.shared([...page.heads.keys()]).forEach(([first], worker) => {
      const about = first === undefined ? undefined : page.heads[first].factors[0];
      if (!about || shapeOf(first)[1] * about.features > MAX_READ_AHEAD) return;
      this.helper(worker).give([first], { axis: "query", place: 0 });
      this.helper(worker).send({ ahead: first });
    });
  }

  /** Heads by the worker that computes their lines: those that share keys are one worker's. @param {number[]} numbers */
  shared(numbers) {
    const workers = Math.max(1, Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 1));
    const workerOf = (/** @type {number} */ number) => (page.heads[number].factors[0]?.keys ?? number) % workers;
    return Array.from({ length: workers }, (_, worker) => numbers.filter((number) => workerOf(number) === worker));
  }

  /** @param {any} data */
  hear(data) {
    if (data.line) {
      if (data.line.id === this.last.lines) this.receiveLine(data.line.number, data.line.lines);
    } else if (data.map) {
      if (data.map.id === this.last.combine) this.receiveMap(data.map.values);
    } else if (data.numbers) {
      this.numbers.get(data.numbers.id)?.(data.numbers);
      this.numbers.delete(data.numbers.id);
    } else this.parts.get(data.id)?.(data);
  }

  /**
   * All numbers of a head's queries and what follows them, or of its keys.
   *
   * @param {number} number
   * @param {number} side
   * @param {"queries" | "keys"} which
   * @returns {Promise<{ numbers: Float32Array, rest: Uint8Array<ArrayBuffer> }>}
   */
  askNumbers(number, side, which) {
    const id = ++this.last.numbers;
    const helper = this.helper();
    helper.give([number]);
    helper.send({ numbers: { id, number, side, which } });
    return new Promise((resolve) => this.numbers.set(id, resolve));
  }

  /**
   * Calls `receive` with each band of a part until parts are let go of; returns its number.
   *
   * @param {PartOf} of heads whose numbers were read before
   * @param {Part} part
   * @param {(answer: Answer) => void} receive
   * @param {number} before the part that is no longer waited for
   */
  ask(of, part, receive, before = 0) {
    const id = ++this.last.part;
    const helper = this.helper();
    this.parts.delete(before);
    this.parts.set(id, receive);
    helper.give(of.numbers);
    helper.send({ part: { ...part, ...of, id }, before });
    return id;
  }

  /** Lets go of all parts that are waited for. */
  letGo() {
    for (const id of this.parts.keys()) this.helper().send({ before: id });
    this.parts.clear();
  }

  /**
   * Calls `receive` with a token's line in one head after the other, until other lines are asked for.
   *
   * @param {number[]} numbers of heads, in the order in which they are wanted
   * @param {Axis} axis
   * @param {number} place
   * @param {(number: number, lines: Float32Array[]) => void} receive lines, by side
   */
  async askLines(numbers, axis, place, receive) {
    const id = ++this.last.lines;
    this.receiveLine = receive;
    if (document.readyState === "loading") await documentRead();
    const own = this.shared(numbers);
    for (let first = 0; id === this.last.lines && own.some((some) => first < some.length); first += LINES_AT_ONCE) {
      own.forEach((all, worker) => {
        const some = all.slice(first, first + LINES_AT_ONCE);
        if (!some.length) return;
        this.helper(worker).give(some, { axis, place });
        this.helper(worker).send({ lines: { id, axis, place, numbers: some } });
      });
    }
  }

  /**
   * Several heads in one map.
   *
   * @param {number[]} numbers
   * @param {Exclude<Together, "side" | "overlay">} how
   * @param {number} side
   * @returns {Promise<Float32Array>}
   */
  async askMap(numbers, how, side) {
    const id = ++this.last.combine;
    await documentRead();
    const helper = this.helper();
    helper.give(numbers);
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
