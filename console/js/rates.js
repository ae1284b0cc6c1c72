// What brokers' counters gain per second, from one answer of /system/status to the next.
import { answers } from "./system.js";

/** Shorter than this tells more of the moment of asking than of the load. */
const LEAST_MS = 1000;

export class Rates {
  #before = new Map();
  #rates = new Map();

  /** Takes the next answer. */
  add(system) {
    for (const { name, answer } of answers(system)) {
      const before = this.#before.get(name);
      const passed = before ? answer.now_ms - before.now_ms : 0;
      if (before && passed < LEAST_MS) continue;
      if (before && before.started_ms === answer.started_ms) this.#rates.set(name, perSecond(before.counters, answer.counters, passed));
      else this.#rates.delete(name);
      this.#before.set(name, answer);
    }
  }

  /** `{ events, deliveries, bytesIn, bytesOut, cpu }` of a broker, the last in shares of a core; undefined until it is known. */
  of(name) {
    return this.#rates.get(name);
  }
}

function perSecond(before, now, passed) {
  const gain = (field) => Math.max(0, now[field] - before[field]) * (1000 / passed);
  return {
    events: gain("events_accepted"),
    deliveries: gain("deliveries"),
    bytesIn: gain("bytes_in"),
    bytesOut: gain("bytes_out"),
    cpu: gain("cpu_ms") / 1000,
  };
}
