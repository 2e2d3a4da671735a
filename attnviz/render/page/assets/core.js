/** Signals: values that know who read them, so that what follows from a value is found again when the value changes. */

/**
 * @typedef {object} Source what can be read
 * @property {number} version of its value, one more with each change
 * @property {Set<Reader>} readers who are told that it may have changed
 * @property {() => void} refresh brings the value up to date
 *
 * @typedef {object} Reader what reads
 * @property {Map<Source, number>} sources what it read last time, in this order, and their versions then
 * @property {() => void} tell that a source may have changed
 */

/** @type {Reader | null} */
let reading = null;
let batches = 0;
/** @type {Set<() => void>} effects that wait for the end of the outermost batch */
const waiting = new Set();

/** @param {Source} source */
function track(source) {
  source.refresh();
  if (!reading) return;
  source.readers.add(reading);
  if (!reading.sources.has(source)) reading.sources.set(source, source.version);
}

/** True if nothing that was read has changed; sources are refreshed up to the first that has. @param {Reader} reader */
function isFresh(reader) {
  return [...reader.sources].every(([source, version]) => {
    source.refresh();
    return source.version === version;
  });
}

/** @param {Reader} reader */
function forgetSources(reader) {
  for (const source of reader.sources.keys()) source.readers.delete(reader);
  reader.sources.clear();
}

/** Runs a function whose reads are a reader's, or nobody's. @template Result @param {Reader | null} reader @param {() => Result} act */
function runAs(reader, act) {
  const before = reading;
  reading = reader;
  try {
    return act();
  } finally {
    reading = before;
  }
}

/** A value that can be set. @template Value @param {Value} value */
export function signal(value) {
  /** @type {Source} */
  const source = { version: 0, readers: new Set(), refresh: () => {} };
  return {
    get value() {
      track(source);
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      source.version += 1;
      batch(() => {
        for (const reader of source.readers) reader.tell();
      });
    },
  };
}

/** A value that follows from others: found when it is read and one of them has changed. @template Value @param {() => Value} find */
export function computed(find) {
  /** @type {Value} */
  let value;
  let [known, stale] = [false, true];
  /** @type {Reader} */
  const reader = {
    sources: new Map(),
    tell: () => {
      if (stale) return;
      stale = true;
      for (const one of source.readers) one.tell();
    },
  };
  /** @type {Source} */
  const source = {
    version: 0,
    readers: new Set(),
    refresh: () => {
      if (!stale) return;
      if (!known || !isFresh(reader)) {
        known = false; // also where finding fails
        forgetSources(reader);
        const next = runAs(reader, find);
        if (!Object.is(next, value)) source.version += 1;
        [value, known] = [next, true];
      }
      stale = false;
    },
  };
  return {
    get value() {
      track(source);
      return value;
    },
  };
}

/** Does something now, and again whenever what it read has changed; returns what ends this. @param {() => void} act */
export function effect(act) {
  const run = () => {
    if (!isFresh(reader)) start();
  };
  /** @type {Reader} */
  const reader = { sources: new Map(), tell: () => waiting.add(run) };
  const start = () => {
    forgetSources(reader);
    runAs(reader, act);
  };
  start();
  return () => {
    waiting.delete(run);
    forgetSources(reader);
  };
}

/** Sets several signals as one change: effects run once, at the end. @template Result @param {() => Result} act */
export function batch(act) {
  batches += 1;
  try {
    return act();
  } finally {
    try {
      for (const run of batches === 1 ? waiting : []) {
        waiting.delete(run);
        run();
      }
    } finally {
      batches -= 1;
    }
  }
}

/** Reads without following what is read. @template Result @param {() => Result} act */
export function untracked(act) {
  return runAs(null, act);
}
