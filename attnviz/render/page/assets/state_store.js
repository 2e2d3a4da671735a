/** A store: values that are checked where they are set, written to an address, and told to who listens. */

/**
 * How a change is written and told.
 *
 * @typedef {object} Setting
 * @property {boolean} [step] true if it is a step of the browser's history, which Back undoes
 * @property {boolean} [written] false if the address says it already
 * @property {boolean} [anyway] true if those that listen are told even where nothing changed
 * @property {string | null} [zoom] what the address says of the zoom, which is no value of its own
 */

/**
 * @template {object} Values
 * @typedef {(changed: Set<keyof Values>, zoom: string | null) => unknown} Listener
 */

/** @template {object} Values */
export class Store {
  /**
   * @param {Values} begun
   * @param {{ [Name in keyof Values]?: (value: Values[Name]) => boolean }} checks what each value may be
   * @param {(keyof Values)[]} unwritten the values that the address does not hold
   */
  constructor(begun, checks, unwritten) {
    this.values = { ...begun };
    this.checks = checks;
    this.unwritten = new Set(unwritten);
    /** @type {Listener<Values>[]} */
    this.listeners = [];
    /** Writes the address of the values: whoever knows how gives it. @type {(step: boolean) => void} */
    this.write = () => {};
  }

  /** Has a listener told of every change. @param {Listener<Values>} listener */
  subscribe(listener) {
    this.listeners.push(listener);
  }

  /**
   * Takes changes, writes the address, and tells who listens; resolves when these are done.
   *
   * @param {Partial<Values>} changes
   * @param {Setting} [setting]
   * @throws {RangeError} if a value is none of those that its check allows: nothing is changed then
   */
  set(changes, { step = false, written = true, anyway = false, zoom = null } = {}) {
    const names = /** @type {(keyof Values)[]} */ (Object.keys(changes));
    for (const name of names) this.refuse(name, /** @type {Values[keyof Values]} */ (changes[name]));
    const changed = new Set(names.filter((name) => !Object.is(this.values[name], changes[name])));
    Object.assign(this.values, changes);
    if (written && [...changed].some((name) => !this.unwritten.has(name))) this.write(step);
    return changed.size || anyway ? this.tell(changed, zoom) : Promise.resolve([]);
  }

  /** @param {keyof Values} name @param {Values[keyof Values]} value */
  refuse(name, value) {
    if (!(name in this.values)) throw new RangeError(`nothing is called ${String(name)}`);
    if (!(this.checks[name]?.(value) ?? true)) throw new RangeError(`${String(name)} cannot be ${JSON.stringify(value)}`);
  }

  /** Tells who listens, at once. @param {Set<keyof Values>} changed @param {string | null} zoom */
  tell(changed, zoom) {
    return Promise.all(this.listeners.map((listener) => listener(changed, zoom)));
  }
}
