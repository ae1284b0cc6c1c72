// Nodes that tell where they are: what is known of each, from messages that may contain anything.
import { around, worldX, worldY } from "./projection.js";

/** Nodes that are kept; beyond, the one that was silent longest goes. */
const MOST_NODES = 20_000;
/** Payloads that are longer are not read. */
const MOST_BYTES = 65_536;
/** Members of a payload that are shown, and letters of each. */
const MOST_MEMBERS = 40;
const MOST_LETTERS = 300;
/** Points of a trail. */
const TRAIL = 24;
/** Nodes glide to where they have gone for so long, unless it is far (share of the world). */
const GLIDE_MS = 700;
const FAR = 1e-3;

const decoder = new TextDecoder();

/** `fleet/N56/bus0853/position` is the node bus0853 of the line N56, `fleet/7/position` the node 7. */
export function parseTopic(topic) {
  const levels = topic.split("/");
  return { name: levels.length > 1 ? levels[levels.length - 2] : topic, line: levels.length > 3 ? levels[1] : "" };
}

/** A payload that is a place and nothing else: `52.23,21.01`. */
const PAIR = /^\s*(-?\d{1,3}(?:\.\d{1,20})?)\s*[,;]\s*(-?\d{1,3}(?:\.\d{1,20})?)\s*$/;
/** Longer ones are none. */
const PAIR_BYTES = 64;

function jsonObject(payload) {
  if (payload.length > MOST_BYTES || payload.length < 2) return null;
  try {
    const value = JSON.parse(decoder.decode(payload));
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function coordinate(value, most) {
  const degrees = Array.isArray(value) ? value[0] : value;
  if (typeof degrees !== "number" && (typeof degrees !== "string" || degrees.trim() === "")) return null;
  const number = Number(degrees);
  return Number.isFinite(number) && Math.abs(number) <= most ? number : null;
}

/** Where a message says that its node is: `{ lat, lon, body }`, or null if it does not. */
export function place(payload, properties) {
  const body = jsonObject(payload);
  const [, lat, lon] = (payload.length <= PAIR_BYTES && decoder.decode(payload).match(PAIR)) || [];
  for (const source of [body, properties, lat === undefined ? null : { lat, lon }]) {
    if (!source) continue;
    const [lat, lon] = [coordinate(source.lat, 90), coordinate(source.lon, 180)];
    if (lat !== null && lon !== null) return { lat, lon, body };
  }
  return null;
}

/** Members of a payload, or properties, as pairs of texts. */
export function members(body) {
  const letters = (value) => {
    const words = typeof value === "string" ? value : JSON.stringify(value);
    return words.length > MOST_LETTERS ? `${words.slice(0, MOST_LETTERS)}…` : words;
  };
  return Object.entries(body ?? {}).slice(0, MOST_MEMBERS).map(([name, value]) => [letters(name), letters(value)]);
}

class Trail {
  #xs = new Float64Array(TRAIL);
  #ys = new Float64Array(TRAIL);
  #next = 0;
  length = 0;

  add(x, y) {
    this.#xs[this.#next] = x;
    this.#ys[this.#next] = y;
    this.#next = (this.#next + 1) % TRAIL;
    this.length = Math.min(TRAIL, this.length + 1);
  }

  /** Calls `visit(x, y)` from the oldest on. */
  each(visit) {
    for (let at = 0; at < this.length; at += 1) {
      const index = (this.#next - this.length + at + TRAIL) % TRAIL;
      visit(this.#xs[index], this.#ys[index]);
    }
  }
}

export class Fleet {
  /** Nodes by name, those that told last at the end. */
  nodes = new Map();
  /** Lines by name: `{ index, count }`. */
  lines = new Map();
  messages = 0;
  /** Messages without a place. */
  unplaced = 0;
  #lastLine = 0;

  clear() {
    this.nodes.clear();
    this.lines.clear();
    this.messages = 0;
    this.unplaced = 0;
    this.#lastLine = 0;
  }

  /** Takes a message; gives its node, or null if it has no place. */
  take({ topic, payload, properties, retained }, now, glides) {
    this.messages += 1;
    const found = place(payload, properties);
    if (!found) {
      this.unplaced += 1;
      return null;
    }
    const { name, line } = parseTopic(topic);
    const told = properties?.line ?? found.body?.line;
    const node = this.#node(name, typeof told === "string" ? told : line, topic);
    const [x, y] = [worldX(found.lon), worldY(found.lat)];
    this.#move(node, x, y, now, glides);
    Object.assign(node, { lat: found.lat, lon: found.lon, at: now, payload, properties, retained, heading: coordinate(found.body?.heading ?? properties?.heading, 360) });
    return node;
  }

  #node(name, line, topic) {
    let node = this.nodes.get(name);
    if (node) {
      this.nodes.delete(name);
      if (node.line !== line) this.#leave(node);
    }
    if (!node || node.line !== line) {
      const known = this.lines.get(line) ?? { index: this.#lastLine++, count: 0 };
      known.count += 1;
      this.lines.set(line, known);
    }
    node = Object.assign(node ?? { name, trail: new Trail(), x: null }, { line, topic, lineIndex: this.lines.get(line).index });
    this.nodes.set(name, node);
    if (this.nodes.size > MOST_NODES) this.#forget(this.nodes.values().next().value);
    return node;
  }

  #leave({ line }) {
    const known = this.lines.get(line);
    known.count -= 1;
    if (known.count === 0) this.lines.delete(line);
  }

  #forget(node) {
    this.nodes.delete(node.name);
    this.#leave(node);
  }

  #move(node, x, y, now, glides) {
    const isNew = node.x === null;
    // Of all the worlds beside each other, that in which it has gone the shorter way.
    if (!isNew) x += Math.round(node.x - x);
    const isFar = !isNew && Math.abs(x - node.x) + Math.abs(y - node.y) > FAR;
    const [fromX, fromY] = isNew || isFar || !glides ? [x, y] : [shownX(node, now), shownY(node, now)];
    Object.assign(node, { fromX, fromY, movedAt: now });
    if (isNew || x !== node.x || y !== node.y) node.trail.add(x, y);
    node.x = x;
    node.y = y;
  }

  /** The part of the world where nodes are; null if there are none. */
  bounds(isWanted = () => true) {
    return around([...this.nodes.values()].filter(isWanted).map(({ lon, lat }) => [lon, lat]));
  }
}

const ease = (share) => 1 - (1 - share) ** 3;
const glided = (node, now) => ease(Math.min(1, Math.max(0, (now - node.movedAt) / GLIDE_MS)));

/** Where a node is drawn while it glides. */
export const shownX = (node, now) => node.fromX + (node.x - node.fromX) * glided(node, now);
export const shownY = (node, now) => node.fromY + (node.y - node.fromY) * glided(node, now);
export const isGliding = (node, now) => now - node.movedAt < GLIDE_MS && (node.fromX !== node.x || node.fromY !== node.y);
