// The live map: nodes that tell where they are, by MQTT over WebSocket, and brokers whose place is known.
import { el, facts, put, putNew, reconcile, svg, text } from "../dom.js";
import { count, many, rate, span } from "../format.js";
import { ageOf, AGES_MS, LINE_COLOURS, MapCanvas } from "../map/canvas.js";
import { addressOf, Feed } from "../map/feed.js";
import { Fleet, members } from "../map/fleet.js";
import { follow, key as moveByKey } from "../map/gestures.js";
import { decode } from "../map/outlines.js";
import { around, View } from "../map/projection.js";
import { answers } from "../system.js";

const FILTER = "fleet/#";
const OUTLINES = "vendor/outlines.bin";
/** Nodes this near (pixels) to where is pressed are picked. */
const REACH = 16;
/** How long nodes may come in before the view is set to them. */
const GATHER_MS = 1200;
const TICK_MS = 1000;
const LINES_SHOWN = 10;
const FOUND_SHOWN = 8;
/** Scale at which a node is shown that was searched for. */
const CLOSE = 2 ** 20;

const isStill = matchMedia("(prefers-reduced-motion: reduce)");
const decoder = new TextDecoder();

/** What is known of one node. */
class NodePanel {
  #title = el("h2", { tabindex: "-1" });
  #age = el("span");
  #body = el("div");
  #shownAt = null;

  constructor({ onclose, onfollow }) {
    const close = el("button", { type: "button", class: "icon", "aria-label": "Close", title: "Close (Esc)", onclick: onclose }, "×");
    this.follow = el("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: onfollow }, "Follow");
    this.root = el("aside", { class: "panel node-panel", "aria-label": "Node", hidden: true },
      el("div", { class: "row head" }, this.#title, close), el("div", { class: "row" }, this.#age, this.follow), this.#body);
  }

  show(node, now) {
    this.root.hidden = !node;
    if (!node) return;
    text(this.#title, node.name);
    text(this.#age, `${span(now - node.at)} ago${node.retained ? ", retained" : ""}`);
    // Payloads come often and are read by people: what did not change stays.
    if (this.#shownAt === node.payload) return;
    this.#shownAt = node.payload;
    putNew(this.#body, el("div", {},
      facts([["line", node.line || "–"], ["topic", el("code", {}, node.topic)], ["position", `${node.lat.toFixed(5)}, ${node.lon.toFixed(5)}`]]),
      ...list("Payload", payloadOf(node)), ...list("User properties", members(node.properties))));
  }
}

function payloadOf(node) {
  try {
    return members(JSON.parse(decoder.decode(node.payload)));
  } catch {
    return [["bytes", count(node.payload.length)]];
  }
}

function list(title, pairs) {
  return pairs.length > 0 ? [el("h3", {}, title), facts(pairs)] : [];
}

/** The legend: ages, or lines, of which one can be chosen. */
class Legend {
  root = el("ul", { class: "legend", "aria-label": "Colours" });
  #onpick;

  constructor(onpick) {
    this.#onpick = onpick;
  }

  show(canvas, fleet, now) {
    const rows = canvas.colouring === "age" ? this.#ages(fleet, now) : this.#lines(canvas, fleet);
    reconcile(this.root, rows, (row) => row.key, (row) => el("li", {},
      row.pick ? el("button", { type: "button", class: "chip", onclick: () => this.#onpick(row.line) }, el("i", { class: `swatch ${row.swatch}` }), el("span")) : el("span", { class: "chip" }, el("i", { class: `swatch ${row.swatch}` }), el("span"))),
    (item, row) => {
      text(item.querySelector("span:last-child"), row.words);
      item.querySelector("button")?.setAttribute("aria-pressed", String(canvas.onlyLine === row.line));
    });
  }

  #ages(fleet, now) {
    const counts = [0, 0, 0, 0];
    for (const node of fleet.nodes.values()) counts[ageOf(node, now)] += 1;
    const names = [...AGES_MS.map((most) => `within ${span(most)}`), "older"];
    return names.map((name, at) => ({ key: `age ${at}`, swatch: `age-${at}`, words: `${name}: ${count(counts[at])}` }));
  }

  #lines(canvas, fleet) {
    const all = [...fleet.lines].sort(([, a], [, b]) => b.count - a.count);
    const shown = all.slice(0, LINES_SHOWN);
    const chosen = canvas.onlyLine;
    if (chosen !== null && fleet.lines.has(chosen) && !shown.some(([line]) => line === chosen)) shown.push([chosen, fleet.lines.get(chosen)]);
    const rows = shown.map(([line, { index, count: number }]) => ({ key: `line ${line}`, line, pick: true, swatch: `line-${index % LINE_COLOURS}`, words: `${line || "no line"}: ${count(number)}` }));
    const rest = all.length - shown.length;
    return rest > 0 ? [...rows, { key: "rest", swatch: "none", words: `and ${many(rest, "line")}` }] : rows;
  }
}

/** The view's state and what happens to it. */
class MapView {
  #app;
  #fleet = new Fleet();
  #view = new View();
  #canvas;
  #feed;
  #timer = 0;
  #isFollowing = false;
  #hasView = false;
  #firstAt = 0;
  #before = { messages: 0, at: 0 };
  #address = null;
  #hasSubscribed = false;
  #named = "";

  constructor(app) {
    this.#app = app;
    this.area = el("canvas", { class: "map-area", tabindex: "0", role: "application", "aria-label": "Map of nodes. Arrow keys move it, plus and minus zoom, zero shows all nodes, n and p pick nodes.", "aria-describedby": "map-state" });
    this.panel = new NodePanel({ onclose: () => this.pick(null), onfollow: () => this.#setFollowing(!this.#isFollowing) });
    this.legend = new Legend((line) => this.#only(line));
    this.state = el("p", { id: "map-state", class: "map-state", role: "status" });
    this.counts = el("span", { class: "quiet" });
    this.scale = el("div", { class: "scale", "aria-hidden": "true" }, el("i"), el("span"));
    this.#canvas = new MapCanvas(this.area, this.#view, this.#fleet);
    this.#feed = new Feed((message) => this.#take(message), (state) => this.#say(state));
    follow(this.area, this.#view, {
      moved: () => this.#moved(),
      pick: (x, y) => this.pick(this.#canvas.near(x, y, REACH)[0] ?? null),
    });
    new ResizeObserver(() => this.#resized()).observe(this.area);
    addEventListener("themechange", () => this.#canvas.restyle());
    app.addEventListener("statuschange", () => this.#statusChanged());
  }

  get canvas() {
    return this.#canvas;
  }

  get fleet() {
    return this.#fleet;
  }

  start() {
    this.#canvas.start();
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#tick();
    this.#statusChanged();
    if (!this.#canvas.outlines) this.#loadOutlines();
  }

  stop() {
    clearInterval(this.#timer);
    this.#canvas.stop();
  }

  async #loadOutlines() {
    try {
      const response = await fetch(OUTLINES, { credentials: "omit" });
      if (!response.ok) throw new Error(`HTTP status ${response.status}`);
      this.#canvas.outlines = decode(await response.arrayBuffer());
      this.#canvas.stale();
    } catch (error) {
      this.#say({ state: "warn", what: `The outlines of countries are missing: ${error.message}.`, todo: "Nodes are shown all the same; reload the page to try again." });
    }
  }

  /** The address that the broker tells, once it is known, unless another one was given. */
  #statusChanged() {
    this.#canvas.brokers = answers(this.#app.system).map(({ name, answer }) => ({ name, lat: answer.lat, lon: answer.lon }))
      .filter(({ lat, lon }) => Number.isFinite(lat) && Number.isFinite(lon));
    if (!this.#hasView && this.#fleet.nodes.size === 0 && this.#canvas.brokers.length > 1) this.#fitTo(this.#brokersBox());
    this.#canvas.touch();
    this.#nameBrokers();
    if (this.#hasSubscribed) return;
    const { listeners, failure } = this.#app;
    if (!listeners && failure) this.#say({ state: "bad", what: failure.message, todo: `${failure.todo} Or give the address of MQTT over WebSocket yourself, under Connection.` });
    if (!listeners) return;
    const address = addressOf(listeners);
    if (!address) return this.#say({ state: "bad", what: "This broker does not listen for MQTT over WebSocket.", todo: "Start it with --listen-ws ADDR:PORT (behind HTTPS: --listen-wss)." });
    this.subscribe(address, FILTER);
  }

  /** The brokers that are drawn, in words, for those who do not see the picture. */
  #nameBrokers() {
    const words = this.#canvas.brokers.map(({ name, lat, lon }) => `${name}: ${lat.toFixed(3)}, ${lon.toFixed(3)}`);
    if (words.join("\n") === this.#named) return;
    this.#named = words.join("\n");
    put(this.area, el("ul", { "aria-label": "Brokers" }, ...words.map((line) => el("li", {}, line))));
  }

  subscribe(address, filter) {
    this.#hasSubscribed = true;
    this.#address = address || addressOf(this.#app.listeners) || "";
    this.onaddress?.(this.#address);
    this.#fleet.clear();
    this.pick(null);
    this.#canvas.onlyLine = null;
    [this.#hasView, this.#firstAt, this.#before] = [false, 0, { messages: 0, at: Date.now() }];
    this.#canvas.grown();
    this.#feed.open(this.#address, filter, this.#app.who?.principal);
  }

  #say({ state, what, todo }) {
    text(this.state, `${what} ${todo}`.trim());
    this.state.className = `map-state ${state}`;
  }

  #take(message) {
    const now = Date.now();
    const node = this.#fleet.take(message, now, !isStill.matches && !document.hidden);
    if (!node) return;
    this.#firstAt ||= now;
    if (node === this.#canvas.picked && this.#isFollowing) {
      this.#view.centre(node.x, node.y);
    }
    this.#canvas.grown();
  }

  #tick() {
    const now = Date.now();
    if (!this.#hasView && this.#firstAt > 0 && now - this.#firstAt > GATHER_MS) this.fit();
    const passed = (now - this.#before.at) / 1000;
    const perSecond = this.#before.at > 0 && passed > 0.5 ? (this.#fleet.messages - this.#before.messages) / passed : 0;
    this.#before = { messages: this.#fleet.messages, at: now };
    const { nodes, lines, unplaced } = this.#fleet;
    text(this.counts, `${many(nodes.size, "node")}, ${many(lines.size, "line")}, ${rate(perSecond)} messages/s${unplaced > 0 ? `; ${many(unplaced, "message")} without a position` : ""}`);
    this.panel.show(this.#canvas.picked, now);
    this.legend.show(this.#canvas, this.#fleet, now);
    if (this.#canvas.colouring === "age") this.#canvas.grown();
    this.#drawScale();
  }

  #drawScale() {
    const metres = this.#view.metresPerPixel() * 110;
    const power = 10 ** Math.floor(Math.log10(metres));
    const nice = [5, 2, 1].map((factor) => factor * power).find((length) => length <= metres) ?? power;
    this.scale.firstChild.style.width = `${nice / this.#view.metresPerPixel()}px`;
    text(this.scale.lastChild, nice >= 1000 ? `${count(nice / 1000)} km` : `${count(nice)} m`);
  }

  #moved() {
    this.#hasView = true;
    this.#setFollowing(false);
    this.#canvas.touch();
    this.#drawScale();
  }

  #resized() {
    this.#canvas.restyle();
    this.#drawScale();
  }

  #brokersBox() {
    return around(this.#canvas.brokers.map(({ lat, lon }) => [lon, lat]));
  }

  #fitTo(box) {
    if (!box) return;
    this.#view.fit(box);
    this.#canvas.touch();
    this.#drawScale();
  }

  /** Shows all nodes; without any, all brokers. */
  fit() {
    const { onlyLine } = this.#canvas;
    this.#hasView = true;
    this.area.dataset.fitted = String(this.#fleet.nodes.size);
    this.#fitTo(this.#fleet.bounds((node) => onlyLine === null || node.line === onlyLine) ?? this.#brokersBox());
  }

  zoom(factor) {
    this.#view.zoom(factor);
    this.#moved();
  }

  pick(node) {
    this.#canvas.picked = node;
    if (!node) this.#setFollowing(false);
    this.panel.show(node, Date.now());
    this.#canvas.touch();
  }

  /** Goes to a node that was searched for. */
  goTo(node) {
    this.pick(node);
    this.#hasView = true;
    this.#view.centre(node.x, node.y, Math.max(this.#view.scale, CLOSE));
    this.#canvas.touch();
    this.#drawScale();
  }

  #setFollowing(isOn) {
    this.#isFollowing = isOn;
    this.panel.follow.setAttribute("aria-pressed", String(isOn));
    const { picked } = this.#canvas;
    if (!isOn || !picked) return;
    this.#view.centre(picked.x, picked.y);
    this.#canvas.touch();
  }

  #only(line) {
    this.#canvas.onlyLine = this.#canvas.onlyLine === line ? null : line;
    this.#canvas.grown();
    this.legend.show(this.#canvas, this.#fleet, Date.now());
  }

  /** Picks the next node in sight, from the middle outwards. */
  #step(by) {
    const near = this.#canvas.near(this.#view.width / 2, this.#view.height / 2);
    if (near.length === 0) return;
    const at = near.indexOf(this.#canvas.picked);
    this.pick(near[(at + by + near.length) % near.length] ?? near[0]);
  }

  key(event) {
    if (event.key === "0") this.fit();
    else if (event.key === "n") this.#step(1);
    else if (event.key === "p") this.#step(-1);
    else if (event.key === "f" && this.#canvas.picked) this.#setFollowing(!this.#isFollowing);
    else if (event.key === "Escape" && this.#canvas.picked) this.pick(null);
    else if (isMapKey(event) && moveByKey(event, this.#view)) this.#moved();
    else return false;
    return true;
  }
}

/** Arrows move the map unless they mean something where the focus is. */
const isMapKey = (event) => !event.key.startsWith("Arrow") || event.target.closest?.("[role=tablist], .panel, .controls") === null;

function search(view) {
  const list = el("ul", { class: "found", "aria-label": "Found nodes" });
  const input = el("input", { type: "search", id: "node-search", placeholder: "name or line", spellcheck: "false", autocapitalize: "none", oninput: show });

  function show() {
    const wanted = input.value.trim().toLowerCase();
    const fits = (node) => node.name.toLowerCase().includes(wanted) || node.line.toLowerCase() === wanted;
    const isIt = (node) => node.name.toLowerCase() === wanted;
    const found = wanted === "" ? [] : [...view.fleet.nodes.values()].filter(fits);
    const nodes = [...found.filter(isIt), ...found.filter((node) => !isIt(node)).slice(-FOUND_SHOWN)];
    reconcile(list, nodes, (node) => node.name,
      (node) => el("li", {}, el("button", { type: "button", class: "chip", onclick: () => view.goTo(node) }, node.name)), () => {});
  }

  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") list.querySelector("button")?.click();
    if (event.key === "Escape") view.area.focus();
  });
  return { input, parts: [el("div", { class: "row" }, el("label", { for: "node-search" }, "Find"), input), list] };
}

function filterForm(view) {
  const filter = el("input", { id: "map-filter", value: FILTER, spellcheck: "false", autocapitalize: "none", required: true });
  const address = el("input", { id: "map-address", spellcheck: "false", autocapitalize: "none", placeholder: "ws://host:8083/mqtt" });
  view.onaddress = (value) => {
    address.value = value;
  };
  const form = el("form", {},
    el("div", { class: "row" }, el("label", { for: "map-filter" }, "Filter"), filter, el("button", { type: "submit" }, "Subscribe")),
    el("details", {}, el("summary", {}, "Connection"), el("div", { class: "row" }, el("label", { for: "map-address" }, "Address"), address)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    view.subscribe(address.value.trim(), filter.value.trim());
  });
  return form;
}

function colouring(view) {
  const choose = (value) => () => {
    view.canvas.colouring = value;
    view.canvas.grown();
    view.legend.show(view.canvas, view.fleet, Date.now());
  };
  const trails = el("input", { type: "checkbox", checked: true, onchange: () => {
    view.canvas.showsTrails = trails.checked;
    view.canvas.grown();
  } });
  return el("fieldset", { class: "choice" }, el("legend", { class: "hidden" }, "Colours"),
    ...[["line", "by line"], ["age", "by age"]].map(([value, label], at) => el("label", {}, el("input", { type: "radio", name: "colouring", value, checked: at === 0, onchange: choose(value) }), label)),
    el("label", {}, trails, "trails"));
}

/** The sign for showing everything. */
function frame() {
  return svg("svg", { width: "16", height: "16", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" }));
}

/** The view. */
export function create(app) {
  const view = new MapView(app);
  const find = search(view);
  const button = (words, label, act) => el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick: act }, words);
  const buttons = el("div", { class: "map-buttons" },
    button("+", "Closer (+)", () => view.zoom(1.6)), button("−", "Farther (−)", () => view.zoom(1 / 1.6)), button(frame(), "All nodes (0)", () => view.fit()));
  const controls = el("div", { class: "controls" }, filterForm(view), el("div", { class: "row" }, colouring(view), view.counts), ...find.parts, view.legend.root);
  return {
    parts: [el("div", { class: "map-frame" }, view.area, buttons, view.scale, view.state), el("div", { class: "map-side" }, controls, view.panel.root)],
    show: () => view.start(),
    hide: () => view.stop(),
    key(event) {
      if (event.key === "/") {
        find.input.focus();
        return true;
      }
      return view.key(event);
    },
  };
}
