// What each broker's streams hold, how full its journal is, and who holds a stream back.
import { get } from "../api.js";
import { el, facts, putNew, reconcile, text } from "../dom.js";
import { bytes, count, many, moment, NONE, span } from "../format.js";
import { Poller } from "../poll.js";
import { answers, Missing, Trouble } from "../system.js";
import { Table } from "../table.js";

const EVERY_MS = 3000;
const STATES = { open: ["good", "open"], full: ["bad", "full: persistent publishes are refused"], failed: ["bad", "failed: restart the broker"] };

function meter(label) {
  return el("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" },
    el("i", { class: "kept" }), el("i", { class: "rest" }));
}

function fillMeter(node, kept, file, max) {
  const share = (value) => (max > 0 ? Math.min(100, (100 * value) / max) : 0);
  node.children[0].style.width = `${share(kept)}%`;
  node.children[1].style.width = `${Math.max(0, share(file) - share(kept))}%`;
  node.setAttribute("aria-valuenow", share(file).toFixed(0));
  node.setAttribute("aria-valuetext", `${bytes(kept)} kept in files of ${bytes(file)}, of at most ${bytes(max)}`);
  node.classList.toggle("high", share(file) > 85);
}

function makeCard({ name }) {
  const card = el("article", { class: "card" },
    el("h3", {}, name, el("span", { class: "pill" })), meter(`Journal of ${name}`), el("div", { class: "facts-of" }));
  return card;
}

function renewCard(card, { answer: { journal } }) {
  const [title, bar, list] = card.children;
  const pill = title.querySelector(".pill");
  bar.hidden = !journal;
  if (!journal) {
    pill.className = "pill";
    text(pill, "no journal");
    putNew(list, el("p", { class: "quiet" }, "Runs without --data: what is published is in memory only."));
    return;
  }
  const [state, words] = STATES[journal.state] ?? ["warn", journal.state];
  pill.className = `pill ${state}`;
  text(pill, words);
  fillMeter(bar, journal.kept_bytes, journal.file_bytes, journal.max_bytes);
  putNew(list, facts([
    ["kept", bytes(journal.kept_bytes)],
    ["files", `${bytes(journal.file_bytes)} of ${bytes(journal.max_bytes)}, ${many(journal.segments, "segment")}`],
    ["remembered", `${many(journal.entries, "entry", "entries")}, ${bytes(journal.entry_bytes)}`],
    journal.backup && ["backup", "is being made; nothing is given back until it is done"],
  ]));
}

function bar(row, most) {
  const share = most > 0 ? (100 * row.bytes) / most : 0;
  const fill = el("i");
  fill.style.width = `${share}%`;
  return el("span", { class: "amount" }, el("span", {}, bytes(row.bytes)), el("span", { class: "track", "aria-hidden": "true" }, fill));
}

function holder(row) {
  if (!row.holder) return el("span", { class: "quiet" }, "nobody");
  const { client_id: id, filter, connected, holders } = row.holder;
  return el("span", { class: "holder" },
    el("a", { href: `#sessions/${encodeURIComponent(id)}` }, id), el("code", {}, filter),
    el("span", { class: "quiet" }, `${connected ? "connected" : "away"}${holders > 1 ? `, one of ${count(holders)}` : ""}`));
}

/** The view. */
export function create(app) {
  const missing = new Missing();
  const trouble = new Trouble();
  const cards = el("div", { class: "cards" });
  let most = 0;
  const table = new Table({
    caption: "Streams of all brokers",
    key: (row) => `${row.broker}\n${row.stream}`,
    empty: "No broker has told of a stream yet.",
    columns: [
      { title: "Stream", first: true, value: (row) => row.stream, show: (row) => el("code", {}, row.stream) },
      { title: "Broker", value: (row) => row.broker, show: (row) => row.broker },
      { title: "Last event or silence", numeric: true, value: (row) => row.age, show: (row) => (row.last_ms > 0 ? span(row.age) : NONE) },
      { title: "Last logged", numeric: true, value: (row) => row.logged_ms, show: (row) => (row.logged_ms ? span(row.now - row.logged_ms) : NONE) },
      { title: "In the journal", numeric: true, value: (row) => row.bytes, show: (row) => bar(row, most) },
      { title: "Kept since", value: (row) => row.oldest_ms, show: (row) => moment(row.oldest_ms) },
      { title: "Held back by", value: (row) => row.holder?.client_id, show: holder },
      { title: "Lag", numeric: true, value: (row) => row.holder?.lag_ms, show: (row) => span(row.holder?.lag_ms) },
    ],
    sort: 4,
    down: true,
  });

  async function ask() {
    try {
      const system = await get("/system/streams");
      const known = answers(system);
      const rows = known.flatMap(({ name, answer }) => answer.streams.map((stream) => ({
        ...stream, broker: name, now: answer.now_ms, age: answer.now_ms - stream.last_ms,
      })));
      most = Math.max(0, ...rows.map((row) => row.bytes));
      trouble.show(null);
      missing.show(system);
      reconcile(cards, known, ({ name }) => name, makeCard, renewCard);
      table.show(rows);
    } catch (error) {
      trouble.show(app.failed(error));
    }
  }

  const poller = new Poller(EVERY_MS, ask);
  return {
    parts: [
      trouble.root, missing.root,
      el("h2", {}, "Journals"), cards,
      el("h2", {}, "Streams"),
      el("p", { class: "quiet" }, "A stream is kept until the durable subscription that is furthest behind has acknowledged it."),
      table.root,
    ],
    show: () => poller.start(),
    hide: () => poller.stop(),
  };
}
