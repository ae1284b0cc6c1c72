// The brokers and the links between them, as a picture and as tables.
import { get } from "../api.js";
import { el, facts, put, putNew, svg, text } from "../dom.js";
import { bytes, count, delay, many, NONE, permille, rate, span } from "../format.js";
import { layout } from "../layout.js";
import { links, Traffic, versions } from "../links.js";
import { Poller } from "../poll.js";
import { answers, Missing, Trouble } from "../system.js";
import { Table } from "../table.js";
import { badge, style, Ways } from "./ways.js";

const EVERY_MS = 2000;
/** What is known of a broker's links is told anew every 30 s; older than this, something is in the way. */
const OLD_MS = 40_000;
/** Delays up to these (microseconds) have colours of their own, the others one more. */
const DELAYS = [2_000, 20_000, 80_000];
/** From this loss on (thousandths) a link is drawn dashed. */
const LOSSY = 10;
/** Of a way's line from the middle of its link, and of two ways on one side of it. */
const BESIDE = 8;
const APART = 9;
/** Where on a link the number of a way stands: beside its label. */
const AT = 0.36;

const step = (us) => (us === null || us === undefined ? "none" : String(DELAYS.filter((most) => us >= most).length));
const width = (load) => (load ? Math.min(9, 1.5 + Math.log10(1 + load / 200) * 1.6) : 1.5);

function legend() {
  const words = ["under 2 ms", "2 – 20 ms", "20 – 80 ms", "above 80 ms"];
  return el("ul", { class: "legend" }, ...words.map((label, at) => el("li", {}, el("i", { class: `swatch delay-${at}` }), label)),
    el("li", {}, el("i", { class: "swatch dashed" }), "loses 1 % or more"), el("li", {}, el("i", { class: "swatch dotted" }), "dark: nothing arrives"), el("li", { class: "quiet" }, "width: bytes per second"));
}

/** The picture. */
class Graph {
  #svg = svg("svg", { class: "graph", role: "group", "aria-label": "The overlay: brokers and their links. The tables below tell the same." });
  #signature = "";
  #places = new Map();
  #onpick;

  constructor(onpick) {
    this.#onpick = onpick;
    this.root = el("div", { class: "graph-frame" }, this.#svg);
  }

  show({ brokers, pairs, app, picked, ways }) {
    const width = Math.max(300, this.root.clientWidth);
    const height = Math.round(Math.min(460, Math.max(280, width * 0.42)));
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.#svg.setAttribute("height", height);
    const known = new Set(brokers.map(({ name }) => name));
    const drawn = pairs.filter(({ a, b }) => known.has(a) && known.has(b));
    const signature = JSON.stringify([width, [...known], drawn.map(({ a, b, delay: us }) => [a, b, step(us)])]);
    if (signature !== this.#signature) {
      this.#signature = signature;
      this.#places = layout([...known], drawn, { width, height, margin: Math.min(110, width / 5) });
    }
    const path = ways.length > 0 ? [] : brokers.find(({ name }) => name === picked)?.path ?? [];
    const focused = document.activeElement?.dataset?.broker;
    put(this.#svg, ...drawn.map((pair) => this.#edge(pair, path)), ...ways.map((way, number) => this.#way(way, number)), ...drawn.map((pair) => this.#label(pair, width)),
      ...brokers.map((broker) => this.#node(broker, app, picked)), ...ways.map((way, number) => this.#badges(way, number)));
    this.#svg.classList.toggle("has-ways", ways.length > 0);
    if (focused !== undefined) [...this.#svg.querySelectorAll("[data-broker]")].find((node) => node.dataset.broker === focused)?.focus();
  }

  #edge(pair, path) {
    const [[x1, y1], [x2, y2]] = [this.#places.get(pair.a), this.#places.get(pair.b)];
    const isOn = path.some((name, at) => at > 0 && [pair.a, pair.b].includes(name) && [pair.a, pair.b].includes(path[at - 1]));
    const line = (className, thick) => svg("line", { x1, y1, x2, y2, class: className, "stroke-width": thick });
    return svg("g", {}, isOn && line("way", width(pair.load) + 8), line(`edge delay-${step(pair.delay)}${pair.loss >= LOSSY ? " lossy" : ""}${isBad(pair) ? ` ${pair.condition}` : ""}`, width(pair.load)));
  }

  /** The pieces of a way, beside the links that it takes: odd ways on one side of them, even ones on the other. */
  #pieces({ brokers, seen }, number) {
    const side = (number % 2 === 0 ? 1 : -1) * (BESIDE + APART * Math.floor(number / 2));
    const hops = brokers.slice(1).map((to, at) => [this.#places.get(brokers[at]), this.#places.get(to), at < seen]);
    return hops.filter(([from, to]) => from && to).map(([[x1, y1], [x2, y2], isSeen]) => {
      // Both directions of a link have the same sides.
      const turn = x1 < x2 || (x1 === x2 && y1 < y2) ? 1 : -1;
      const length = Math.hypot(x2 - x1, y2 - y1) || 1;
      const [dx, dy] = [(-(y2 - y1) / length) * side * turn, ((x2 - x1) / length) * side * turn];
      return { from: [x1 + dx, y1 + dy], to: [x2 + dx, y2 + dy], state: isSeen ? "" : "unseen" };
    });
  }

  /** The lines of a way; what has not been seen of it is faint. */
  #way(way, number) {
    return svg("g", {}, ...this.#pieces(way, number).map(({ from: [x1, y1], to: [x2, y2], state }) => svg("line", { x1, y1, x2, y2, class: `route ${style(number)} ${state}` })));
  }

  #badges(way, number) {
    return svg("g", {}, ...this.#pieces(way, number).map(({ from: [x1, y1], to: [x2, y2], state }) => svg("g", { class: state }, ...badge(number, x1 + (x2 - x1) * AT, y1 + (y2 - y1) * AT))));
  }

  #label(pair, room) {
    const [[x1, y1], [x2, y2]] = [this.#places.get(pair.a), this.#places.get(pair.b)];
    const short = room < 500 || pair.load === null;
    const words = [isBad(pair) && pair.condition, delay(pair.delay), pair.loss > 0 && pair.condition !== "dark" && permille(pair.loss), !short && `${bytes(pair.load)}/s`].filter(Boolean).join(" · ");
    return svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 4, class: "edge-label" }, words, pair.why && svg("title", {}, pair.why));
  }

  #node(broker, app, picked) {
    const [x, y] = this.#places.get(broker.name);
    const load = app.rates.of(broker.name);
    const words = load ? `${rate(load.events)} in/s, ${rate(load.deliveries)} out/s` : "";
    const state = broker.own ? "own" : broker.reachable ? "there" : "gone";
    const pick = () => this.#onpick(broker.name);
    return svg("g", {
      class: `node ${state}${broker.name === picked ? " picked" : ""}`, tabindex: "0", role: "button", "data-broker": broker.name,
      "aria-pressed": String(broker.name === picked), "aria-label": `${broker.name}${broker.own ? ", this broker" : broker.reachable ? "" : ", no way to it"}, ${words}`,
      onclick: pick,
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        pick();
      },
    }, svg("circle", { cx: x, cy: y, r: 26, class: "halo" }), svg("circle", { cx: x, cy: y, r: 9 + Math.min(9, 3 * Math.log10(1 + (load?.deliveries ?? 0))) }),
    svg("text", { x, y: y - 26, class: "name" }, broker.name), svg("text", { x, y: y + 36, class: "load" }, words));
  }
}

/** Whether events with a deadline find a link slow, lossy or dark. */
const isBad = (pair) => pair.condition !== null && pair.condition !== "good";

function brokersTable(app) {
  const load = (field) => ({ value: (row) => app.rates.of(row.name)?.[field], show: (row) => rate(app.rates.of(row.name)?.[field]) });
  return new Table({
    caption: "Brokers",
    key: (row) => row.host,
    columns: [
      { title: "Broker", first: true, value: (row) => row.name, show: (row) => row.name },
      { title: "State", value: (row) => row.state, show: (row) => el("span", { class: `pill ${row.own || row.reachable ? "good" : "bad"}` }, row.state) },
      { title: "Version", value: (row) => row.version, show: (row) => row.version?.split(" ")[0] ?? NONE },
      { title: "Best way", value: (row) => row.path.length, show: (row) => (row.own ? NONE : row.path.join(" › ") || NONE) },
      { title: "Cost", numeric: true, value: (row) => row.cost_us, show: (row) => (row.own ? NONE : delay(row.cost_us)) },
      { title: "Links told", numeric: true, value: (row) => row.age_ms, show: (row) => (row.own ? NONE : el("span", { class: row.age_ms > OLD_MS ? "late" : "" }, `${span(row.age_ms)} ago`)) },
      { title: "Events/s", numeric: true, ...load("events") },
      { title: "Deliveries/s", numeric: true, ...load("deliveries") },
      { title: "CPU", numeric: true, value: (row) => app.rates.of(row.name)?.cpu, show: (row) => (app.rates.of(row.name) ? `${Math.round(100 * app.rates.of(row.name).cpu)}\u202f%` : NONE) },
    ],
  });
}

function linksTable() {
  return new Table({
    caption: "Links",
    key: (row) => `${row.a}\n${row.b}`,
    empty: "No broker has a link.",
    columns: [
      { title: "Link", first: true, value: (row) => row.a, show: (row) => `${row.a} – ${row.b}` },
      { title: "Delay", numeric: true, value: (row) => row.delay, show: (row) => delay(row.delay) },
      { title: "Loss", numeric: true, value: (row) => row.loss, show: (row) => permille(row.loss) },
      { title: "State", value: (row) => row.condition, show: (row) => (row.condition ? el("span", {}, el("span", { class: `pill ${isBad(row) ? "bad" : "good"}` }, row.condition), row.why && el("small", { class: "quiet" }, ` ${row.why}`)) : NONE) },
      { title: "Load", numeric: true, value: (row) => row.load, show: (row) => (row.load === null ? NONE : `${bytes(row.load)}/s`) },
      { title: "Events", numeric: true, value: (row) => row.events, show: (row) => count(row.events) },
      { title: "Held back", numeric: true, value: (row) => row.heldBack, show: (row) => el("span", { class: row.heldBack > 0 ? "late" : "" }, count(row.heldBack)) },
      { title: "Unsent", numeric: true, value: (row) => row.unsent, show: (row) => (row.unsent ? bytes(row.unsent) : NONE) },
      { title: "Clocks apart", numeric: true, value: (row) => row.clock, show: (row) => span(row.clock) },
    ],
  });
}

/** What the own broker knows; without an overlay that is itself. */
async function ask(app) {
  const system = await get("/system/topology");
  const { name, host, now_ms } = app.status ?? (await get("/status"));
  const own = system.brokers.find((said) => said.name === name)?.answer;
  if (own && !own.error) return { system, own };
  const broker = { name, host, own: true, reachable: true, path: [name], cost_us: 0, age_ms: 0, links: [] };
  return { system: { ...system, brokers: [] }, own: { now_ms, brokers: [broker], links: [] }, alone: own?.error };
}

/** The view. */
export function create(app) {
  const missing = new Missing();
  const trouble = new Trouble();
  const words = el("p", { class: "quiet", role: "status" });
  const about = el("div", { "aria-live": "polite" });
  const [brokers, ends] = [brokersTable(app), linksTable()];
  const traffic = new Traffic();
  let [picked, last] = [null, null];

  const ways = new Ways(app, () => draw());
  const graph = new Graph((name) => {
    picked = picked === name ? null : name;
    if (picked === null || !ways.choose(picked)) draw();
  });

  function draw() {
    if (!last) return;
    const said = new Map(answers(app.system).map(({ name, answer }) => [name, answer.version]));
    const rows = last.own.brokers.map((broker) => ({
      ...broker,
      state: broker.own ? "this one" : broker.reachable ? "reachable" : "no way",
      version: said.get(broker.name) ?? last.versions.get(broker.name),
    }));
    ways.offer(rows.filter((row) => row.own || row.reachable).map((row) => row.name), rows.find((row) => row.own)?.name ?? "");
    graph.show({ brokers: rows, pairs: last.pairs, app, picked, ways: ways.drawn });
    brokers.show(rows);
    ends.show(last.pairs);
    const there = rows.filter((row) => row.reachable || row.own).length;
    text(words, last.alone ?? `${count(there)} of ${many(rows.length, "broker")} reachable from ${rows.find((row) => row.own)?.name ?? "here"}, ${many(last.pairs.length, "link")}.`);
    const one = rows.find((row) => row.name === picked);
    if (one) {
      putNew(about, facts([["picked", one.name], ["best way", one.path.join(" › ") || NONE], ["cost", delay(one.cost_us)], ["host", el("code", {}, one.host)], ["life", one.incarnation ?? NONE], ["links", one.links.map((link) => link.name).join(", ") || NONE], ["domains", (one.domains ?? []).join(", ") || NONE]], "facts wide"));
    } else putNew(about, el("p", { class: "quiet" }, "Pick a broker to see the best way to it."));
  }

  const poller = new Poller(EVERY_MS, async () => {
    try {
      const asked = await ask(app);
      last = { ...asked, pairs: links(asked.own, traffic.add(asked.system)), versions: versions(asked.system) };
      trouble.show(null);
      missing.show(asked.system);
      draw();
      await ways.refresh();
    } catch (error) {
      trouble.show(app.failed(error));
    }
  });
  new ResizeObserver(draw).observe(graph.root);
  return {
    parts: [trouble.root, missing.root, words, ways.root, graph.root, legend(), about, el("h2", {}, "Brokers"), brokers.root, el("h2", {}, "Links"), ends.root],
    show: () => poller.start(),
    hide: () => poller.stop(),
    key(event) {
      if (event.key !== "Escape" || (picked === null && !ways.isShown)) return false;
      if (picked === null) ways.clear();
      picked = null;
      draw();
      return true;
    },
  };
}
