// Draws the map: outlines and trails on layers that are kept while nothing moves, nodes and brokers on top at every frame that needs one.
import { isGliding, shownX, shownY } from "./fleet.js";
import { draw as drawOutlines } from "./outlines.js";
import { latOf, lonOf, worldX, worldY } from "./projection.js";

/** Ages up to these have colours of their own, the others one more. */
export const AGES_MS = [10_000, 60_000, 300_000];
/** Colours of lines; further lines take them again. */
export const LINE_COLOURS = 12;
/** While the view moves, layers are stretched, and drawn anew no oftener than this. */
const LAYER_MS = 90;
/** Trails grow all the time; they are drawn no oftener than this. */
const TRAILS_MS = 300;
/** More nodes than this in sight are drawn without rims. */
const MANY = 1500;
const STEPS = [30, 15, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005];
/** Grid lines are at least so far apart, in pixels. */
const GRID_ROOM = 110;

export const ageOf = (node, now) => AGES_MS.filter((most) => now - node.at > most).length;

/** A picture of one view, which can stand in for another one for a while. */
class Layer {
  #canvas = document.createElement("canvas");
  #of = null;
  #at = -Infinity;
  isStale = true;

  /** Draws it anew with `draw(context)` if it is time; true if it has to be asked again. */
  renew(view, ratio, now, pause, draw) {
    const isSame = view.same(this.#of);
    if (isSame && !this.isStale) return false;
    if (now - this.#at < pause) return true;
    const [width, height] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
    if (this.#canvas.width !== width || this.#canvas.height !== height) Object.assign(this.#canvas, { width, height });
    const context = this.#canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    draw(context);
    this.#of = view.copy();
    this.#at = now;
    this.isStale = false;
    return false;
  }

  blit(context, view) {
    const of = this.#of;
    if (!of) return;
    const factor = view.scale / of.scale;
    const [west, north] = of.worldAt(0, 0);
    // The view may have gone over the line at which x begins anew.
    const near = west + Math.round(view.x - of.x);
    context.drawImage(this.#canvas, view.screenX(near), view.screenY(north), of.width * factor, of.height * factor);
  }
}

function decimals(step) {
  return step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
}

function degrees(value, step, [plus, minus]) {
  const rounded = Math.abs(value).toFixed(decimals(step));
  return `${rounded}°${[0, 180].includes(Number(rounded)) ? "" : value > 0 ? plus : minus}`;
}

function graticule(context, view, colours) {
  const perDegree = view.scale / 360;
  const step = STEPS.findLast((degree) => degree * perDegree >= GRID_ROOM) ?? STEPS[0];
  const { west, east, north, south } = view.bounds();
  context.beginPath();
  context.fillStyle = colours.label;
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "left";
  for (let at = Math.ceil(((west - 0.5) * 360) / step); at * step <= (east - 0.5) * 360; at += 1) {
    const worlds = worldX(at * step);
    const x = Math.round(view.screenX(worlds)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, view.height);
    context.fillText(degrees(lonOf(worlds), step, "EW"), x + 4, 12);
  }
  for (let at = Math.ceil(latOf(Math.min(1, south)) / step); at * step <= latOf(Math.max(0, north)); at += 1) {
    const y = Math.round(view.screenY(worldY(at * step))) + 0.5;
    context.moveTo(0, y);
    context.lineTo(view.width, y);
    context.fillText(degrees(at * step, step, "NS"), 4, y - 4);
  }
  context.strokeStyle = colours.grid;
  context.lineWidth = 0.6;
  context.stroke();
}

/** The way of a node, moved by so many worlds. */
function trail(context, view, node, worlds) {
  let isFirst = true;
  node.trail.each((x, y) => {
    if (isFirst) context.moveTo(view.screenX(x + worlds), view.screenY(y));
    else context.lineTo(view.screenX(x + worlds), view.screenY(y));
    isFirst = false;
  });
}

function trails(context, view, groups) {
  const { east } = view;
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  context.globalAlpha = 0.45;
  for (const [colour, nodes] of groups) {
    context.beginPath();
    for (const node of nodes) {
      for (let at = view.first(node.x); at <= east; at += 1) trail(context, view, node, at - node.x);
    }
    context.strokeStyle = colour;
    context.stroke();
  }
  context.globalAlpha = 1;
}

export class MapCanvas {
  outlines = null;
  brokers = [];
  picked = null;
  /** `age` or `line`. */
  colouring = "line";
  showsTrails = true;
  /** The line that alone is shown; null: all. */
  onlyLine = null;
  #context;
  #base = new Layer();
  #tails = new Layer();
  #colours = {};
  #frame = 0;
  #isOn = false;
  #cost = 0;

  constructor(canvas, view, fleet) {
    this.canvas = canvas;
    this.view = view;
    this.fleet = fleet;
    this.#context = canvas.getContext("2d");
  }

  /** Takes colours and size as the page has them now. */
  restyle() {
    const style = getComputedStyle(this.canvas);
    const of = (name) => style.getPropertyValue(`--map-${name}`).trim();
    this.#colours = Object.fromEntries(["sea", "land", "coast", "border", "label", "grid", "text", "rim", "broker", "picked"].map((name) => [name, of(name)]));
    this.#colours.ages = [0, 1, 2, 3].map((age) => of(`age-${age}`));
    this.#colours.lines = Array.from({ length: LINE_COLOURS }, (_, at) => of(`line-${at}`));
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (width === 0 || height === 0) return;
    this.view.resize(width, height);
    this.ratio = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.stale();
  }

  start() {
    this.#isOn = true;
    this.restyle();
  }

  stop() {
    this.#isOn = false;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  /** What lies beneath has changed too. */
  stale() {
    this.#base.isStale = true;
    this.grown();
  }

  /** Nodes have moved. */
  grown() {
    this.#tails.isStale = true;
    this.touch();
  }

  /** Something has changed: a frame is needed. */
  touch() {
    if (this.#isOn && this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#begin());
  }

  colourOf(node, now) {
    return this.colouring === "age" ? this.#colours.ages[ageOf(node, now)] : this.#colours.lines[node.lineIndex % LINE_COLOURS];
  }

  #begin() {
    this.#frame = 0;
    const started = performance.now();
    const goesOn = this.#draw(Date.now(), started);
    this.#cost = this.#cost * 0.8 + (performance.now() - started) * 0.2;
    if (!goesOn) return;
    // At most half of the time goes into drawing.
    const pause = this.#cost > 8 ? this.#cost : 0;
    if (pause > 0) setTimeout(() => this.touch(), pause);
    else this.touch();
  }

  /** Nodes on the screen, by colour. */
  #groups(now) {
    const { east, north, south } = this.view.bounds();
    const groups = new Map();
    let [count, glides] = [0, false];
    for (const node of this.fleet.nodes.values()) {
      if (this.onlyLine !== null && node.line !== this.onlyLine) continue;
      if (isGliding(node, now)) glides = true;
      if (this.view.first(node.x) > east || node.y < north || node.y > south) continue;
      const colour = this.colourOf(node, now);
      const group = groups.get(colour);
      if (group) group.push(node);
      else groups.set(colour, [node]);
      count += 1;
    }
    return { groups, count, glides };
  }

  #draw(now, clock) {
    const { view, ratio } = this;
    const context = this.#context;
    const { groups, count, glides } = this.#groups(now);
    let waits = this.#base.renew(view, ratio, clock, LAYER_MS, (layer) => this.#drawBase(layer));
    if (this.showsTrails) waits = this.#tails.renew(view, ratio, clock, TRAILS_MS, (layer) => trails(layer, view, groups)) || waits;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.#colours.sea;
    context.fillRect(0, 0, view.width, view.height);
    this.#base.blit(context, view);
    if (this.showsTrails) this.#tails.blit(context, view);
    this.#nodes(context, groups, count, now);
    this.#brokers(context);
    if (this.picked) this.#ring(context, this.picked, now);
    return glides || waits;
  }

  #drawBase(context) {
    if (this.outlines) drawOutlines(context, this.view, this.outlines, this.#colours);
    graticule(context, this.view, this.#colours);
  }

  #nodes(context, groups, count, now) {
    const { view } = this;
    const metres = view.metresPerPixel();
    const radius = metres > 2000 ? 2.2 : metres > 150 ? 3 : metres > 15 ? 4 : 5;
    context.lineWidth = 1;
    context.strokeStyle = this.#colours.rim;
    for (const [colour, nodes] of groups) {
      context.beginPath();
      for (const node of nodes) {
        this.#each(shownX(node, now), shownY(node, now), (x, y) => {
          context.moveTo(x + radius, y);
          context.arc(x, y, radius, 0, 2 * Math.PI);
        });
      }
      context.fillStyle = colour;
      context.fill();
      if (count <= MANY) context.stroke();
    }
    if (metres < 60 && count <= MANY) this.#headings(context, groups, radius, now);
  }

  /** Calls `draw` with each point of the screen at which a place is seen. */
  #each(x, y, draw) {
    const { east } = this.view;
    for (let at = this.view.first(x); at <= east; at += 1) draw(this.view.screenX(at), this.view.screenY(y));
  }

  #headings(context, groups, radius, now) {
    context.lineWidth = 2;
    for (const [colour, nodes] of groups) {
      context.beginPath();
      for (const node of nodes) {
        if (node.heading === null) continue;
        const angle = (node.heading * Math.PI) / 180;
        const [east, south] = [Math.sin(angle), -Math.cos(angle)];
        this.#each(shownX(node, now), shownY(node, now), (x, y) => {
          context.moveTo(x + east * radius, y + south * radius);
          context.lineTo(x + east * (radius + 6), y + south * (radius + 6));
        });
      }
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  #brokers(context) {
    context.font = "600 12px system-ui, sans-serif";
    context.textAlign = "left";
    for (const { name, lat, lon, isGone } of this.brokers) {
      this.#each(worldX(lon), worldY(lat), (x, y) => this.#broker(context, name, isGone, x, y));
    }
  }

  #broker(context, name, isGone, x, y) {
    context.fillStyle = isGone ? this.#colours.sea : this.#colours.broker;
    context.strokeStyle = isGone ? this.#colours.broker : this.#colours.rim;
    context.lineWidth = 1.5;
    context.beginPath();
    context.rect(x - 5, y - 5, 10, 10);
    context.fill();
    context.stroke();
    context.lineWidth = 3;
    context.strokeStyle = this.#colours.land;
    context.strokeText(name, x + 10, y + 4);
    context.fillStyle = this.#colours.text;
    context.fillText(name, x + 10, y + 4);
  }

  #ring(context, node, now) {
    context.lineWidth = 2.5;
    context.strokeStyle = this.#colours.picked;
    this.#each(shownX(node, now), shownY(node, now), (x, y) => {
      context.beginPath();
      context.arc(x, y, 11, 0, 2 * Math.PI);
      context.stroke();
    });
  }

  /** The nodes in sight, nearest to a point of the screen first. */
  near(px, py, within = Infinity) {
    const now = Date.now();
    const found = [];
    for (const node of this.fleet.nodes.values()) {
      if (this.onlyLine !== null && node.line !== this.onlyLine) continue;
      let apart = Infinity;
      this.#each(shownX(node, now), shownY(node, now), (x, y) => {
        if (y >= 0 && y <= this.view.height) apart = Math.min(apart, Math.hypot(x - px, y - py));
      });
      if (apart < Infinity && apart <= within) found.push([apart, node]);
    }
    return found.sort(([a], [b]) => a - b).map(([, node]) => node);
  }
}
