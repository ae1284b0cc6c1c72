// Links between brokers, each told by both of its ends, as one thing.
import { span } from "./format.js";
import { answers } from "./system.js";

const pairKey = (a, b) => (a < b ? `${a}\n${b}` : `${b}\n${a}`);

/** What goes over links, from one answer of /system/topology to the next. */
export class Traffic {
  #before = new Map();

  /** Takes the next answer; gives what each end tells of each link: `{ peer, load, … }` by the pair's key. */
  add(system) {
    const ends = new Map();
    const now = new Map();
    for (const { name, answer } of answers(system)) {
      for (const link of answer.links ?? []) {
        const key = `${name}\n${link.peer}`;
        const before = this.#before.get(key);
        now.set(key, { at: answer.now_ms, bytes: link.bytes_in + link.bytes_out });
        const list = ends.get(pairKey(name, link.peer)) ?? [];
        list.push({ ...link, now_ms: answer.now_ms, load: gain(before, now.get(key)) });
        ends.set(pairKey(name, link.peer), list);
      }
    }
    this.#before = now;
    return ends;
  }
}

/** What brokers told their neighbours of their versions, by their names: also of those that do not answer now. */
export function versions(system) {
  const links = answers(system).flatMap(({ answer }) => answer.links ?? []);
  return new Map(links.filter(({ version }) => version).map(({ peer, version }) => [peer, version]));
}

function gain(before, now) {
  if (!before || now.at <= before.at || now.bytes < before.bytes) return null;
  return ((now.bytes - before.bytes) * 1000) / (now.at - before.at);
}

// What ends find of a link, from good to bad.
const CONDITIONS = ["good", "slow", "lossy", "dark"];
const DARK_PERMILLE = 1000;

/** The worst condition that its ends tell of a link; a loss of everything is told to all. */
function condition(told, loss) {
  if (loss >= DARK_PERMILLE) return "dark";
  const known = told.map((end) => CONDITIONS.indexOf(end.condition)).filter((at) => at >= 0);
  return known.length > 0 ? CONDITIONS[Math.max(...known)] : null;
}

/** Why a link is in a condition: what the ends say that find it, in which direction, and for how long. */
function why(told, found) {
  const ends = told.filter((end) => found !== "good" && end.condition === found && end.condition_cause);
  const lasts = (end) => (end.condition_since_ms > 0 ? `, for ${span(Math.max(0, end.now_ms - end.condition_since_ms))}` : "");
  return ends.map((end) => `to ${end.peer}: ${end.condition_cause}${lasts(end)}`).join("; ");
}

const most = (values) => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length > 0 ? Math.max(...known) : null;
};

/** Pairs of linked brokers, as the broker that answers knows them, with what their ends tell. */
export function links(topology, ends) {
  const pairs = new Map();
  for (const broker of topology.brokers) {
    for (const link of broker.links) {
      const key = pairKey(broker.name, link.name);
      const [a, b] = key.split("\n");
      const pair = pairs.get(key) ?? { a, b, delays: [], losses: [] };
      pair.delays.push(link.delay_us);
      pair.losses.push(link.loss_permille);
      pairs.set(key, pair);
    }
  }
  return [...pairs].map(([key, { a, b, delays, losses }]) => {
    const told = ends.get(key) ?? [];
    const found = condition(told, most(losses) ?? 0);
    return {
      a, b,
      delay: most(delays),
      loss: most(losses) ?? 0,
      condition: found,
      why: why(told, found),
      load: most(told.map((end) => end.load)),
      events: most(told.map((end) => end.events_in + end.events_out)),
      heldBack: told.length > 0 ? told.reduce((sum, end) => sum + end.events_held_back, 0) : null,
      unsent: told.length > 0 ? told.reduce((sum, end) => sum + end.unsent_bytes, 0) : null,
      clock: most(told.map((end) => Math.abs(end.clock_ahead_ms))),
    };
  });
}
