// What the invented brokers answer: functions of the time, so that rates and lags are plausible and the same everywhere.

export const NAMES = ["north", "harbour", "tower"];
const HOSTS = { north: "9d0c7b3a41e2f500", harbour: "17f2b8e0660a9d00", tower: "c5520a7718b3e900" };
const PLACES = { north: [54.352, 18.646], harbour: [53.428, 14.553], tower: [52.23, 21.011] };
const WEIGHTS = { north: 1, harbour: 0.35, tower: 1.8 };
const LINKS = [["north", "harbour", 1_340, 0], ["harbour", "tower", 18_200, 15], ["north", "tower", 92_000, 0]];
const STARTED = Date.now() - 26 * 3600_000;
const EVERY_MS = 2000;
const KEPT_MS = 30 * 60_000;
const GIB = 2 ** 30;

/** Texts that would do harm if they were taken for anything but text. */
export const HOSTILE = "<img src=x onerror=\"window.harmed=1\">";
export const HOSTILE_ID = "../../</td><script>window.harmed=2</script>?#%00'\"";

/** A count that has grown at `rate` per second, now faster and now slower. */
function grown(rate, at, period, share = 0.35) {
  const seconds = (at - STARTED) / 1000;
  const wave = (period / (2 * Math.PI)) * share * (1 - Math.cos((2 * Math.PI * seconds) / period));
  return Math.floor(rate * (seconds + wave));
}

/** A count that grows in bursts. */
function bursts(size, at, period) {
  const [whole, part] = [Math.floor((at - STARTED) / 1000 / period), ((at - STARTED) / 1000) % period];
  return Math.floor(size * (whole + Math.min(1, part / 20)));
}

export function counters(name, at) {
  const weight = WEIGHTS[name];
  const events = grown(170 * weight, at, 420);
  const deliveries = grown(1400 * weight, at, 380);
  return {
    events_accepted: events,
    events_logged: grown(22 * weight, at, 300),
    deliveries,
    bytes_in: events * 184,
    bytes_out: deliveries * 206,
    packets_in: events + Math.floor(deliveries / 3),
    packets_out: deliveries + events,
    refused: bursts(3 * weight, at, 340),
    lost: { nondurable: bursts(40 * weight, at, 260), semi_durable: bursts(6 * weight, at, 700), durable: 0 },
    gaps: bursts(8 * weight, at, 700),
    overlay_bytes_in: grown(52_000 * weight, at, 400),
    overlay_bytes_out: grown(61_000 * weight, at, 360),
    cpu_ms: grown(120 * weight, at, 390),
    memory_bytes: Math.round((96 + 30 * weight + 9 * Math.sin(at / 180_000)) * 2 ** 20),
    journal_bytes: Math.round((0.4 + 0.25 * weight + 0.1 * (((at - STARTED) / 600_000) % 1)) * GIB),
  };
}

const connectionsOf = (name, at) => Math.round(240 * WEIGHTS[name] + 14 * Math.sin(at / 90_000));

export function status(name, set, { ws, http }) {
  const now = Date.now();
  const others = set.silent.length + set.missed.length;
  const [lat, lon] = PLACES[name];
  return {
    now_ms: now, started_ms: STARTED, name, version: "0.9.0", host: HOSTS[name], incarnation: 7, deployment: set.hostile ? HOSTILE : "baltic",
    phase: name === NAMES[0] ? set.phase : "ready", dev: set.users === null,
    listeners: { mqtt: "0.0.0.0:1883", tls: "0.0.0.0:8883", ws: name === NAMES[0] ? ws : "0.0.0.0:8083", http: name === NAMES[0] ? http : `10.0.0.${NAMES.indexOf(name) + 1}:8080`, overlay: "0.0.0.0:7117" },
    connections: connectionsOf(name, now), sessions: sessionsOf(name, set).length, subscriptions: connectionsOf(name, now) * 2 + 31,
    brokers_reachable: NAMES.length - others, brokers_known: NAMES.length, counters: counters(name, now), lat, lon,
    peers: [
      { address: "tower.example:7117", reached: !set.missed.includes("tower"), for_ms: 5_040_000, error: set.missed.includes("tower") ? "192.0.2.7:7117: timed out" : null },
      { address: "attic.example:7117", reached: false, for_ms: 90_000, error: "its name does not resolve: Name or service not known" },
    ],
  };
}

export function history(name, afterMs, limit) {
  const now = Date.now();
  const samples = [];
  for (let at = Math.ceil((now - KEPT_MS) / EVERY_MS) * EVERY_MS; at <= now; at += EVERY_MS) {
    if (at > afterMs) samples.push({ at_ms: at, connections: connectionsOf(name, at), sessions: connectionsOf(name, at) + 38, counters: counters(name, at) });
  }
  const step = Math.max(1, Math.ceil(samples.length / limit));
  return { now_ms: now, every_ms: EVERY_MS * step, samples: samples.filter((_, at) => (samples.length - 1 - at) % step === 0) };
}

export function topology(name, set) {
  const now = Date.now();
  const gone = (other) => set.missed.includes(other);
  const links = LINKS.filter((link) => !gone(link[0]) && !gone(link[1]));
  const mine = (of) => links.filter((link) => link[0] === of || link[1] === of).map(([a, b, us, loss]) => ({ name: a === of ? b : a, delay_us: us + Math.round(us * 0.04 * Math.sin(now / 7000)), loss_permille: loss }));
  const paths = { north: { north: ["north"], harbour: ["north", "harbour"], tower: ["north", "harbour", "tower"] } };
  const brokers = NAMES.map((other, at) => ({
    name: other, host: HOSTS[other], incarnation: 7, own: other === name, reachable: !gone(other),
    path: gone(other) ? [] : paths[name]?.[other] ?? [name, other], cost_us: gone(other) ? null : [0, 1_640, 21_400][at],
    age_ms: other === name ? 0 : 4_000 + 7_000 * at, links: mine(other), domains: at === 2 ? ["eu", "port"] : [],
  }));
  const own = mine(name).map(({ name: peer, delay_us, loss_permille }) => {
    const rate = 30_000 * WEIGHTS[name] * WEIGHTS[peer];
    const isSlow = peer === "tower" && name === "harbour";
    return {
      peer, host: HOSTS[peer], dialed: name < peer, delay_us, loss_permille, condition: isSlow ? "slow" : "good", condition_cause: isSlow ? "events arrive late" : "", condition_since_ms: isSlow ? now - 42_000 : 0, clock_ahead_ms: name < peer ? 3 : -3, unsent_bytes: 0,
      frames_out: grown(200, now, 300), bytes_out: grown(rate, now, 300), frames_in: grown(150, now, 300), bytes_in: grown(rate * 0.6, now, 300),
      events_out: grown(rate / 210, now, 300), events_in: grown(rate / 350, now, 300), events_held_back: peer === "tower" && name === "harbour" ? 38 : 0,
    };
  });
  return { now_ms: now, brokers, links: own };
}

export function streams(name, set) {
  const now = Date.now();
  const rows = [0, 1, 2, 3].map((at) => ({
    stream: (BigInt(`0x${HOSTS[name]}`) + BigInt(at)).toString(16), last_ms: now - 40 - 260 * at * at, logged_ms: now - 900 - 2_300 * at,
    bytes: Math.round((3.4 - at) ** 2 * 21 * WEIGHTS[name] * 2 ** 20), oldest_ms: now - (at + 1) * 1_900_000,
    holder: at === 3 ? null : {
      client_id: set.hostile && at === 0 ? HOSTILE_ID : ["dispatch-token", "billing", "archive-2"][at], filter: set.hostile ? HOSTILE : ["orders/#", "orders/+/done", "depots/+/events"][at],
      connected: at !== 1, lag_ms: [1_200, 7_400_000, 38_000][at], holders: at + 1,
    },
  }));
  const kept = rows.reduce((sum, row) => sum + row.bytes, 0);
  const file = counters(name, now).journal_bytes;
  const journal = { kept_bytes: kept, file_bytes: Math.max(file, kept), max_bytes: name === "tower" ? GIB : 4 * GIB, segments: Math.ceil(file / 2 ** 26), segment_bytes: 2 ** 26, state: "open", entries: 812, entry_bytes: 190_000, backup: name === "harbour" };
  return { now_ms: now, streams: rows, journal };
}

function connectionOf(at, now) {
  const since = STARTED + at * 40_000;
  return {
    address: `10.1.${at >> 8}.${at & 255}:${40_000 + at}`, listener: ["mqtt", "tls", "ws", "wss"][at % 4], protocol: at % 5 === 0 ? "3.1.1" : "5.0", bridge: at % 25 === 0, user: at % 4 === 0 ? "desk" : null,
    since_ms: since, publishes_in: grown(1 + (at % 9), now, 300), publishes_out: grown(3 + (at % 5), now, 300), bytes_in: grown(180 * (1 + (at % 9)), now, 300), bytes_out: grown(700, now, 300),
  };
}

function sessionsOf(name, set) {
  const now = Date.now();
  const kinds = ["dispatch", "billing", "console", "watcher", "clerk", "bus"];
  const number = name === "north" ? 1400 : 130;
  const list = Array.from({ length: number }, (_, at) => {
    const id = `${kinds[at % kinds.length]}-${name}-${String(at).padStart(4, "0")}`;
    const isHere = at % 7 !== 3 && !set.kicked.has(id);
    return {
      client_id: id, connected: isHere, connection: isHere ? connectionOf(at, now) : null, owner: at % 4 === 0 ? "desk" : null, away_since_ms: isHere ? null : now - at * 61_000 - 9_000,
      expires_ms: isHere ? null : now + 7 * 86_400_000 - at * 61_000, expiry_ms: 7 * 86_400_000, kept: at % 2 === 0, subscriptions: 1 + (at % 5), durable: at % 3 === 0 ? 1 : 0,
      lag_ms: at % 3 === 0 && !isHere ? at * 61_000 + 9_000 : null, in_flight: at % 11, waiting: isHere ? 0 : at % 13, epoch: 1 + (at % 4), deputy: NAMES[(NAMES.indexOf(name) + 1) % 3], given_to: null,
    };
  });
  if (set.hostile) list.unshift({ ...list[0], client_id: HOSTILE_ID }, { ...list[0], client_id: HOSTILE });
  return list.filter(({ client_id: id }) => !set.ended.has(id));
}

export function sessions(name, set, after, limit, prefix) {
  const all = sessionsOf(name, set).filter(({ client_id: id }) => id.startsWith(prefix));
  const end = after + Math.min(1000, limit);
  return { now_ms: Date.now(), sessions: all.slice(after, end), next: end < all.length ? end : null };
}

export function shown(name, id, set) {
  const session = sessionsOf(name, set).find(({ client_id: known }) => known === id);
  if (!session) return null;
  const filters = ["alerts/#", "depots/+/events", "fleet/+/+/position", "orders/#", "state/+"].slice(0, session.subscriptions);
  const subscriptions = filters.map((filter, at) => ({
    filter: set.hostile && at === 0 ? HOSTILE : filter, selector: at === 0 ? "speed > 10 AND within('depot')" : null, selective: at === 0, qos: at === 0 ? 2 : 1, durability: at < session.durable ? "durable" : at === 1 ? "semi-durable" : "nondurable",
    position_kept_by: at === 1 ? "client" : "broker", replier: at === 1, lag_ms: at < session.durable ? session.lag_ms : null,
    positions: at < session.durable ? [{ stream: HOSTS[name], tick: `${Date.now()}000000` }] : [],
  }));
  return { now_ms: Date.now(), session, subscriptions, next: null };
}

/** How events of a topic go from a broker: to each of the others directly, and by way of the third. */
export function paths(name, topic, set) {
  const cost = (one, other) => LINKS.find(([a, b]) => [a, b].includes(one) && [a, b].includes(other))[2] + 300;
  const to = (broker) => {
    const third = NAMES.find((other) => other !== name && other !== broker);
    const ways = [[name, broker], [name, third, broker]].filter((way) => !way.some((other) => set.missed.includes(other)));
    const timed = ways.map((way) => ({ brokers: way, time_us: way.slice(1).reduce((sum, next, at) => sum + cost(way[at], next), 0) }));
    const known = timed.map((way) => ({ ...way, in_time: way.time_us <= 80_000 })).sort((a, b) => a.time_us - b.time_us);
    return { broker, host: HOSTS[broker], filter: set.hostile ? HOSTILE : "alarm/#", selector: null, paths: known, shared_brokers: [], shared_links: [], direct_us: cost(name, broker) };
  };
  const destinations = topic.startsWith("alarm/") || set.hostile ? NAMES.filter((other) => other !== name).map(to) : [];
  return { topic, from: name, deadline_ms: 80, setting: "2", destinations, more: 0 };
}

export function trace(event, set) {
  if (!/^([0-9a-f]{1,16}:\d+|[\w-]{11}:[\w-]{11})$/.test(event)) {
    return [400, { error: `${JSON.stringify(event)} is no event id: it is <pubend>:<tick>, as \`whimbrel sub --json\` and the property w-id show it` }];
  }
  const at = (after_us, what) => ({ after_us, what });
  const brokers = [
    { broker: "north", notes: [at(0, "sent to harbour"), at(null, set.hostile ? HOSTILE : "accepted here, on fleet/7"), at(null, "for tower, which wants fleet/+ with JMSPriority > 2; way north > harbour > tower")] },
    { broker: "harbour", notes: [at(0, "came from north"), at(41, "sent to tower")] },
    { broker: "tower", notes: [at(0, "came from harbour"), at(66, "taken for subscriptions here")] },
  ];
  const way = (state, names, times, more) => ({ brokers: names, planned_us: times.at(-1) + 600, in_time: times.at(-1) < 80_000, ages_us: times, state, at: names.at(-1), behind_us: null, ...more });
  const ways = [way("first", NAMES, [0, 1_400, 19_700]), way("lost", ["north", "tower"], [0, 92_000], { at: "north", ages_us: [0, null] })];
  const destinations = [{ broker: "tower", taken: true, paths: ways, shared_brokers: [], shared_links: [] }];
  return [200, { event, brokers: brokers.filter(({ broker }) => !set.silent.includes(broker)), destinations, deadline_ms: 80, setting: "2", ignorant: [], silent: set.silent, missed: set.missed }];
}
