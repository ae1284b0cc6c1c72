// Brokers, this broker, what the user may do, and the way of one event.
import { Failure, get, named, post } from "../api.js";
import { confirm } from "../dialogs.js";
import { el, facts, put, putNew, text } from "../dom.js";
import { bytes, count, many, moment, NONE, span } from "../format.js";
import { answers, Missing, Trouble } from "../system.js";
import { Table } from "../table.js";
import { traced } from "../ways.js";

const ACTIONS = { observe: "look at all of this", administer: "disconnect clients, end sessions, drain, reload", publish: "publish", subscribe: "subscribe", peer: "link as a broker" };
const STATES = { ready: "good", starting: "warn", draining: "warn", silent: "bad", "no way": "bad" };
const LISTENERS = { mqtt: "MQTT", tls: "MQTT, TLS", ws: "WebSocket", wss: "WebSocket, TLS", http: "HTTP", overlay: "overlay" };

function listeners(answer) {
  return Object.entries(answer.listeners ?? {}).filter(([, address]) => address).map(([kind, address]) => [LISTENERS[kind] ?? kind, el("code", {}, address)]);
}

function brokersTable() {
  const of = (field, format) => ({ value: (row) => row.answer?.[field], show: (row) => format(row.answer?.[field]) });
  return new Table({
    caption: "Brokers of the deployment",
    key: (row) => row.name,
    columns: [
      { title: "Broker", first: true, value: (row) => row.name, show: (row) => row.name },
      { title: "State", value: (row) => row.state, show: (row) => el("span", { class: `pill ${STATES[row.state] ?? "warn"}` }, row.state) },
      { title: "Version", ...of("version", (value) => value ?? NONE) },
      { title: "Up for", numeric: true, value: (row) => row.up, show: (row) => span(row.up) },
      { title: "Connections", numeric: true, ...of("connections", count) },
      { title: "Sessions", numeric: true, ...of("sessions", count) },
      { title: "Subscriptions", numeric: true, ...of("subscriptions", count) },
      { title: "Journal", numeric: true, value: (row) => row.answer?.counters?.journal_bytes, show: (row) => bytes(row.answer?.counters?.journal_bytes) },
      { title: "Reaches", numeric: true, value: (row) => row.answer?.brokers_reachable, show: (row) => (row.answer ? `${count(row.answer.brokers_reachable)} of ${count(row.answer.brokers_known)}` : NONE) },
    ],
  });
}

function rows(system) {
  const known = answers(system).map(({ name, answer }) => ({ name, answer, state: answer.phase, up: answer.now_ms - answer.started_ms }));
  const without = (list, state) => (list ?? []).map((name) => ({ name, state }));
  return [...known, ...without(system?.silent, "silent"), ...without(system?.missed, "no way")];
}

function ownFacts(status) {
  return facts([
    ["name", status.name],
    ["deployment", status.deployment ?? NONE],
    ["version", status.version],
    ["host", el("code", {}, status.host ?? NONE)],
    status.incarnation && ["life", status.incarnation],
    ["started", moment(status.started_ms)],
    ["clock", offset(status.now_ms)],
    status.peers?.length > 0 && ["peers", peers(status.peers)],
    ...listeners(status),
  ]);
}

/** The peers, configured or found in the local network, and why those are not reached that are not. */
function peers(list) {
  return el("ul", { class: "plain-list" }, ...list.map(({ address, found, reached, for_ms: since, error }) => el("li", {},
    el("code", {}, address), found ? " found " : " ", el("span", { class: `pill ${reached ? "good" : "bad"}` }, reached ? "reached" : `not reached for ${span(since)}`), error ? ` ${error}` : "")));
}

function offset(now) {
  const ahead = now - Date.now();
  return Math.abs(ahead) < 1500 ? "as here" : `${span(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"} this machine`;
}

/** What became of an event on its ways to each broker, and where they can be seen. */
function destinations(app, answer) {
  const draw = () => {
    app.traced = answer;
    location.hash = "#overlay";
  };
  const all = traced(answer);
  const one = ({ to, head, ways }) => [el("p", {}, el("strong", {}, `to ${to}`), `: ${head}`),
    el("ol", { class: "numbered" }, ...ways.map((way) => el("li", {}, way.brokers.join(" › "), " ", el("span", { class: way.isBad ? "late" : "quiet" }, way.words))))];
  return all.length > 0 && el("div", { class: "ways" }, ...all.flatMap(one), el("div", { class: "row" }, el("button", { type: "button", class: "plain", id: "draw", onclick: draw }, "Draw these ways")));
}

function trace(app) {
  const out = el("div", { class: "trace", role: "status" });
  const input = el("input", { id: "event", name: "event", spellcheck: "false", autocapitalize: "none", required: true, placeholder: "p6sK5Vha1Dh:hPVn17Pr66B" });
  const form = el("form", { class: "row" }, el("label", { for: "event" }, "Event id"), input, el("button", { type: "submit" }, "Trace"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    put(out, el("p", { class: "quiet" }, "Asking all brokers …"));
    try {
      put(out, ...way(app, await get(named("/trace", input.value.trim()))));
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      put(out, el("p", { class: "notice bad" }, el("strong", {}, failure.message), failure.kind === "refused" ? "" : ` ${failure.todo}`));
    }
  });
  const words = el("p", { class: "quiet" }, "An event id is told by the user property ", el("code", {}, "w-id"), ", which subscriptions get that ask for it, and by ",
    el("code", {}, "whimbrel sub --json"), ". Brokers remember their last 16,384 notes.");
  return [form, words, out];
}

function way(app, answer) {
  const steps = answer.brokers.map(({ broker, notes }) => el("li", {},
    el("h4", {}, broker),
    el("ul", {}, ...notes.map((note) => el("li", {},
      el("span", { class: "after" }, note.after_us === null || note.after_us === undefined ? "" : `+${count(note.after_us)} µs`), note.what)))));
  const rest = [["know nothing of it", answer.ignorant], ["have not answered in time", answer.silent], ["could not be asked", answer.missed]]
    .filter(([, names]) => names?.length > 0).map(([words, names]) => el("p", { class: "quiet" }, `${names.join(", ")}: ${words}`));
  const none = steps.length === 0 && el("p", { class: "notice warn" }, "No broker that answered knows this event: it is too long ago, or the id is another deployment's.");
  return [none || el("ol", { class: "way" }, ...steps), destinations(app, answer), ...rest].filter(Boolean);
}

/** Buttons that change something, and what became of it. */
function actions(app) {
  const said = el("p", { role: "status", class: "quiet lines" });
  const act = (path, done) => async () => {
    try {
      await post(path);
      text(said, done);
    } catch (error) {
      const failure = app.failed(error);
      // A refusal that names mistakes line by line needs no log.
      text(said, failure.message.includes("\n") ? failure.message : `${failure.message} ${failure.todo}`);
    }
    await app.refresh();
  };
  const drain = act("/drain", "The broker drains: it takes no new clients, and ends when those it has are gone.");
  const ask = async () => {
    const isSure = await confirm({
      title: `Drain ${app.status?.name ?? "the broker"}?`,
      words: ["It takes no new connections, closes those it has, and then ends its process. Clients with sessions go on at other brokers.", "This cannot be taken back; whoever runs the broker has to start it again."],
      action: "Drain",
    });
    if (isSure) await drain();
  };
  const buttons = el("div", { class: "row" },
    el("button", { type: "button", class: "danger", id: "drain", onclick: ask }, "Drain this broker …"),
    el("button", { type: "button", class: "plain", id: "reload", onclick: act("/reload", "The configuration was read again; the broker's log tells what is different.") }, "Reload configuration"));
  return { root: el("div", {}, buttons, said), buttons };
}

/** The view. */
export function create(app) {
  const missing = new Missing();
  const trouble = new Trouble();
  const table = brokersTable();
  const own = el("div");
  const rights = el("div");
  const act = actions(app);

  function show() {
    trouble.show(app.failure && app.failure.kind !== "unreachable" ? app.failure : null);
    missing.show(app.system ?? {});
    table.show(rows(app.system));
    if (app.status) putNew(own, ownFacts(app.status));
    const { who } = app;
    const may = who?.dev ? Object.keys(ACTIONS) : who?.may ?? [];
    putNew(rights, facts([
      ["you are", who?.dev ? "anybody (--dev)" : who?.principal ?? NONE],
      ["you may", may.length > 0 ? el("ul", { class: "plain-list" }, ...may.map((action) => el("li", {}, el("code", {}, action), ACTIONS[action] ? ` ${ACTIONS[action]}` : ""))) : "nothing"],
    ]));
    act.buttons.hidden = !app.may("administer");
  }

  const heading = el("h2", {}, "Brokers");
  app.addEventListener("statuschange", () => {
    text(heading, `Brokers${app.system ? `: ${many(app.system.brokers.length, "answer")}` : ""}`);
    show();
  });
  return {
    parts: [
      trouble.root, missing.root, heading, table.root,
      el("div", { class: "columns" },
        el("section", { class: "card" }, el("h2", {}, "This broker"), own),
        el("section", { class: "card" }, el("h2", {}, "You"), rights, act.root)),
      el("section", { class: "card" }, el("h2", {}, "The way of an event"), ...trace(app)),
    ],
    show,
    hide() {},
  };
}
