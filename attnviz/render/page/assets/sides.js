"use strict";
// Heads of long texts: kept as queries and keys, computed where they are looked at.

const keysRead = new Map();

// One head of one recording as its factors; it answers as Side does.
class FactoredSide {
  constructor(factors) {
    this.factors = factors;
  }

  weight(row, column) {
    return this.factors.weight(row, column);
  }

  // How far the weight may be from its own.
  weightError(row, column) {
    return this.weight(row, column) * Math.expm1(this.factors.errorOf(row, column));
  }

  score(row, column) {
    if (!this.factors.sees(row, column)) return null;
    return { value: this.factors.score(row, column), error: this.factors.errorOf(row, column) };
  }

  line(axis, place) {
    return axis === "query" ? this.factors.row(place) : this.factors.column(place);
  }
}

async function readFactors(number, side) {
  const about = page.heads[number].factors[side];
  const { features, parts } = about;
  const bytes = new Uint8Array(await contentOf(`head-${number}-${side}`));
  const rows = textOf(number, "query", side).labels.length;
  const given = { features, unit: about.unit, rounding: about.rounding, softcap: about.softcap, mask: about.mask };
  given.queries = readHalves(bytes, 0, rows * features);
  given.keys = await readKeys(about.keys, textOf(number, "key", side).labels.length * features);
  let place = 2 * rows * features;
  for (const [name, count] of Object.entries(parts)) {
    given[name] = new Float32Array(bytes.slice(place, place + 4 * count).buffer);
    place += 4 * count;
  }
  return new FactoredSide(new Factors(given));
}

// The keys that several heads may share, while they are among the last few that were read.
function readKeys(number, count) {
  if (!keysRead.has(number)) {
    keysRead.set(number, contentOf(`keys-${number}`).then((buffer) => readHalves(new Uint8Array(buffer), 0, count)));
    if (keysRead.size > HEADS_KEPT) keysRead.delete(keysRead.keys().next().value);
  }
  return keysRead.get(number);
}

// The worker of the page: it holds one head at a time, and answers the latest request for a part of it.
class Computer {
  constructor() {
    const source = document.getElementById("worker").textContent;
    this.worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    this.worker.onmessage = ({ data }) => data.id === this.last && this.receive(data);
    this.last = 0;
    this.sides = null;
  }

  // Calls `receive` with each band of the part, {first, last, pooled}, until another part is asked for.
  ask(sides, part, receive) {
    if (sides !== this.sides) {
      this.worker.postMessage({ sides: sides.map(({ factors }) => ({ ...factors })) });
      this.sides = sides;
    }
    this.receive = receive;
    this.worker.postMessage({ ...part, id: ++this.last });
  }
}

let computer = null;

function theComputer() {
  computer ??= new Computer();
  return computer;
}
