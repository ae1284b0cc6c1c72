// The last half hour of every broker, kept up to date, and what can be worked out of it: counts become rates, and brokers with clocks and
// samples of their own come onto one axis.
import { get } from "./api.js";
import { answers } from "./system.js";

/** How far back brokers remember. */
const SPAN_MS = 30 * 60 * 1000;
/** Samples in one answer: more would not fit into what brokers send each other. */
const LIMIT = 240;
/** A broker whose newest sample is no older may only be late, and its first ones come in the course of a step. */
const EDGE_MS = 10_000;
/** Between samples that are farther apart than this, nothing is known. */
const HOLE_MS = 30_000;

/** A number of a sample: `counters.lost.durable` by `["counters", "lost", "durable"]`. */
const pick = (sample, path) => path.reduce((value, name) => value?.[name], sample);

/** Index of the last sample at or before a moment, or -1. */
function before(samples, at) {
  let [low, high] = [0, samples.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (samples[middle].at <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The value at a moment between two samples; null where nothing is known. */
export function valueAt(samples, path, at) {
  const index = before(samples, at);
  if (index < 0) return null;
  const a = samples[index];
  const b = samples[index + 1];
  const from = pick(a, path);
  if (from === undefined || from === null) return null;
  if (!b) return at - a.at < HOLE_MS ? from : null;
  if (b.at - a.at > HOLE_MS) return at === a.at ? from : null;
  const to = pick(b, path) ?? from;
  return from + ((to - from) * (at - a.at)) / (b.at - a.at);
}

/** What was added per second up to a moment; null where nothing is known, as after a restart, when counts begin anew. */
export function rateAt(samples, path, at, stepMs) {
  const last = samples.at(-1)?.at ?? 0;
  if (at > last) return null;
  const [from, to] = [valueAt(samples, path, at - stepMs), valueAt(samples, path, at)];
  return from === null || to === null || to < from ? null : ((to - from) * 1000) / stepMs;
}

/**
 * What is added up of several brokers at a moment: `{ whole }` if all of them have told their numbers, `{ part }` if some have not, as they are away; neither
 * if that may be for a moment only. `of(samples)` gives a broker's number or null; `started` tells when its process began: before that it had none.
 */
export function addUp(brokers, at, of, started) {
  let [sum, isKnown, isMissing] = [0, false, false];
  for (const [name, samples] of brokers) {
    const value = of(samples);
    if (value !== null) {
      sum += value;
      isKnown = true;
      continue;
    }
    if (at < (started.get(name) ?? 0)) continue;
    const [first, last] = [samples[0]?.at ?? 0, samples.at(-1)?.at ?? 0];
    if (Math.abs(at - first) < EDGE_MS || (at > last && at - last < EDGE_MS)) return {};
    isMissing = true;
  }
  if (!isKnown) return {};
  return isMissing ? { part: sum } : { whole: sum };
}

export class History {
  /** Samples of each broker, with `at` by the clock of this machine. */
  brokers = new Map();
  #last = 0;
  #answered = new Set();

  /** Asks for what is new; resolves to the whole answer, whose `silent` and `missed` matter. */
  async ask() {
    const system = await get("/system/history", { after_ms: this.#last || undefined, limit: LIMIT });
    const here = Date.now();
    let last = Infinity;
    for (const { name, answer } of answers(system)) {
      const known = this.#add(name, answer, here);
      last = Math.min(last, known.at(-1)?.at_ms ?? 0);
    }
    // Whoever is furthest behind decides, so nobody's samples are missed; those that come again are known. Who comes back is asked for all.
    const names = answers(system).map(({ name }) => name);
    // Whoever has been away for all of the time that is shown is no part of it any more.
    for (const [name, known] of this.brokers) if ((known.at(-1)?.at ?? 0) < here - SPAN_MS) this.brokers.delete(name);
    const isSame = names.every((name) => this.#answered.has(name));
    this.#answered = new Set(names);
    this.#last = isSame && Number.isFinite(last) ? last : 0;
    return system;
  }

  #add(name, answer, here) {
    const known = this.brokers.get(name) ?? [];
    const newest = known.at(-1)?.at_ms ?? 0;
    const fresh = answer.samples.filter((sample) => sample.at_ms > newest);
    for (const sample of fresh) known.push({ ...sample, at: sample.at_ms - answer.now_ms + here });
    while (known.length > 0 && known[0].at < here - SPAN_MS) known.shift();
    this.brokers.set(name, known);
    return known;
  }
}
