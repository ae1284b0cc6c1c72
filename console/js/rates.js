// What brokers' counters gain per second, from one answer of /system/status to the next.
import { answers } from "./system.js";

/** Shorter than this tells more of the moment of asking than of the load. */
const LEAST_MS = 1000;

export class Rates {
  #before = new Map();
  #rates = new Map();

  /** Takes the next answer. Of a broker that is not in it nothing is known any more. */
  add(system) {
    const there = new Set(answers(system).map(({ name }) => name));
    for (const name of this.#rates.keys()) if (!there.has(name)) this.#rates.delete(name);
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

/** Messages and bytes per second of clients' connections, from one list of sessions to the next. */
export class ClientRates {
  #before = new Map();
  #rates = new Map();

  /** Takes the next list: sessions with `broker` and `now`. A connection that is not in it is forgotten. */
  add(rows) {
    const [before, rates] = [this.#before, this.#rates];
    [this.#before, this.#rates] = [new Map(), new Map()];
    for (const { broker, client_id: id, now, connection } of rows) {
      if (!connection) continue;
      const key = `${broker}\n${id}\n${connection.since_ms}`;
      const known = before.get(key);
      const passed = known ? now - known.now : 0;
      if (known && passed < LEAST_MS) {
        this.#before.set(key, known);
        if (rates.has(key)) this.#rates.set(key, rates.get(key));
        continue;
      }
      this.#before.set(key, { now, connection });
      const gain = (field) => ((connection[field] - known.connection[field]) * 1000) / passed;
      if (known) this.#rates.set(key, { in: gain("publishes_in"), out: gain("publishes_out"), bytesIn: gain("bytes_in"), bytesOut: gain("bytes_out") });
    }
  }

  /** `{ in, out, bytesIn, bytesOut }` of the connection of a session; undefined until it is known. */
  of({ broker, client_id: id, connection }) {
    return connection && this.#rates.get(`${broker}\n${id}\n${connection.since_ms}`);
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
