// Sessions of all brokers: searched, paged, looked into, and ended; and the clients that are connected.
import { Failure, get, named, post, remove } from "../api.js";
import { confirm } from "../dialogs.js";
import { el, facts, put, text } from "../dom.js";
import { bytes, count, many, moment, NONE, rate, span } from "../format.js";
import { Poller } from "../poll.js";
import { ClientRates } from "../rates.js";
import { answers, Missing, Trouble } from "../system.js";
import { Table } from "../table.js";

const EVERY_MS = 5000;
/** Rows on a page. */
const PAGE = 50;
/** Sessions that a broker is asked for at once, and how often, at most. */
const PAGE_ASKED = 1000;
const MAX_PAGES = 51;
/** So long after the last letter brokers are asked for what is searched. */
const TYPING_MS = 250;
/** Pages of subscriptions of one session. */
const MAX_SUBSCRIPTION_PAGES = 20;

function state(row) {
  if (row.given_to) return el("span", { class: "pill" }, `given to ${row.given_to}`);
  return row.connected ? el("span", { class: "pill good" }, "connected") : el("span", { class: "pill warn" }, `away ${span(row.now - row.away_since_ms)}`);
}

function sessionsTable(onsort) {
  return new Table({
    caption: "Sessions",
    key: (row) => `${row.broker}\n${row.client_id}`,
    empty: "No session fits.",
    onsort,
    columns: [
      idColumn,
      { title: "Broker", value: (row) => row.broker, show: (row) => row.broker },
      { title: "State", value: (row) => (row.connected ? 0 : row.now - row.away_since_ms), show: state },
      { title: "Subscriptions", numeric: true, value: (row) => row.subscriptions, show: (row) => count(row.subscriptions) },
      { title: "Durable", numeric: true, value: (row) => row.durable, show: (row) => count(row.durable) },
      { title: "Lag", numeric: true, value: (row) => row.lag_ms, show: (row) => span(row.lag_ms) },
      { title: "In flight", numeric: true, value: (row) => row.in_flight, show: (row) => count(row.in_flight) },
      { title: "Waiting", numeric: true, value: (row) => row.waiting, show: (row) => count(row.waiting) },
    ],
  });
}

const idColumn = { title: "Client id", first: true, value: (row) => row.client_id, show: (row) => el("a", { href: `#sessions/${encodeURIComponent(row.client_id)}` }, row.client_id || "(empty)") };
const protocol = ({ protocol: version, bridge, listener }) => `${version}${bridge ? " bridge" : ""}, ${listener}`;

/** The clients that are connected, from where and how. `kick` is null where nobody may. */
function clientsTable(rates, onsort, kick) {
  const of = (field, show) => ({ value: (row) => row.connection?.[field], show: (row) => show(row.connection?.[field], row) });
  const perSecond = (field) => ({ value: (row) => rates.of(row)?.[field], show: (row) => rate(rates.of(row)?.[field]) });
  return new Table({
    caption: "Clients that are connected",
    key: (row) => `${row.broker}\n${row.client_id}`,
    empty: "No connected client fits.",
    onsort,
    columns: [
      idColumn,
      { title: "Broker", value: (row) => row.broker, show: (row) => row.broker },
      { title: "Address", ...of("address", (address) => address ?? NONE) },
      { title: "MQTT", value: (row) => row.connection && protocol(row.connection), show: (row) => (row.connection ? protocol(row.connection) : NONE) },
      { title: "User", ...of("user", (user) => user ?? NONE) },
      { title: "Since", numeric: true, value: (row) => row.connection && row.now - row.connection.since_ms, show: (row) => (row.connection ? span(row.now - row.connection.since_ms) : NONE) },
      { title: "In/s", numeric: true, ...perSecond("in") },
      { title: "Out/s", numeric: true, ...perSecond("out") },
      { title: "Subscriptions", numeric: true, value: (row) => row.subscriptions, show: (row) => count(row.subscriptions) },
      { title: "", show: (row) => kick(row) },
    ],
  });
}

function subscriptionsTable() {
  return new Table({
    caption: "Subscriptions of the session",
    key: (row) => row.filter,
    empty: "It has no subscriptions.",
    columns: [
      { title: "Filter", first: true, value: (row) => row.filter, show: (row) => el("code", {}, row.filter) },
      { title: "Selector", value: (row) => row.selector, show: (row) => (row.selector ? el("code", {}, row.selector) : row.selective ? "yes (not kept, so not told)" : NONE) },
      { title: "QoS", numeric: true, value: (row) => row.qos, show: (row) => String(row.qos) },
      { title: "Durability", value: (row) => row.durability, show: (row) => row.durability },
      { title: "Position kept by", value: (row) => row.position_kept_by, show: (row) => row.position_kept_by },
      { title: "Lag", numeric: true, value: (row) => row.lag_ms, show: (row) => span(row.lag_ms) },
      { title: "Positions", numeric: true, value: (row) => row.positions.length, show: (row) => el("span", { title: row.positions.map(({ stream, tick }) => `${stream}:${tick}`).join("\n") }, count(row.positions.length)) },
    ],
  });
}

/** `rates` are those of its client's connection, if they are known. */
function sessionFacts(session, now, broker, rates) {
  const { connection } = session;
  return facts([
    ["at", broker],
    ["state", session.connected ? "connected" : `away since ${moment(session.away_since_ms)}`],
    connection && ["from", el("code", {}, connection.address ?? NONE)],
    connection && ["MQTT", protocol(connection)],
    connection?.user && ["user", connection.user],
    connection && ["connected", `${moment(connection.since_ms)}, ${span(now - connection.since_ms)} ago`],
    connection && ["messages in, out", `${count(connection.publishes_in)}, ${count(connection.publishes_out)}${rates ? `; ${rate(rates.in)}, ${rate(rates.out)} per second` : ""}`],
    connection && ["bytes in, out", `${bytes(connection.bytes_in)}, ${bytes(connection.bytes_out)}`],
    session.owner && ["owner", session.owner],
    session.expires_ms && ["ends", `${moment(session.expires_ms)}, in ${span(session.expires_ms - now)}`],
    ["outlives its connection by", span(session.expiry_ms)],
    ["in the journal", session.kept ? "yes" : "no: it ends with the broker's process"],
    ["lag", session.lag_ms === null || session.lag_ms === undefined ? "none" : span(session.lag_ms)],
    ["in flight, waiting", `${count(session.in_flight)}, ${count(session.waiting)}`],
    session.epoch && ["attachment", `no. ${count(session.epoch)}`],
    session.deputy && ["deputy", session.deputy],
    session.given_to && ["given to", session.given_to],
  ]);
}

/** The address of another broker's console, if its HTTP listener can be named from here. */
function consoleOf(app, broker, id) {
  const address = answers(app.system).find(({ name }) => name === broker)?.answer.listeners?.http;
  if (!address || /^(0\.0\.0\.0|\[::\]):/.test(address)) return null;
  return `${location.protocol}//${address}/#sessions/${encodeURIComponent(id)}`;
}

async function subscriptionsOf(id) {
  const first = await get(named("/sessions", id));
  let { next } = first;
  for (let page = 1; next && page < MAX_SUBSCRIPTION_PAGES; page += 1) {
    const more = await get(named("/sessions", id), { after: next });
    first.subscriptions.push(...more.subscriptions);
    next = more.next;
  }
  return { ...first, next };
}

/** The panel of one session. `rowOf(id)` gives what the list knows. */
class Details {
  #app;
  #rowOf;
  #shown = null;
  #body = el("div");
  #title = el("h2", { tabindex: "-1" });

  constructor(app, rowOf, { onclose, onended, rates }) {
    this.#app = app;
    this.#rowOf = rowOf;
    this.rates = rates;
    this.onended = onended;
    const close = el("button", { type: "button", class: "icon", "aria-label": "Close", title: "Close (Esc)", onclick: onclose }, "×");
    this.root = el("aside", { class: "panel", hidden: true, "aria-label": "Session" }, el("div", { class: "row head" }, this.#title, close), this.#body);
  }

  get shown() {
    return this.#shown;
  }

  close() {
    this.root.hidden = true;
    this.#shown = null;
  }

  async open(id) {
    this.#shown = id;
    this.root.hidden = false;
    text(this.#title, id || "(empty)");
    put(this.#body, el("p", { class: "quiet" }, "Asking …"));
    this.#title.focus();
    this.root.scrollIntoView({ block: "nearest" });
    await this.#fill(id);
  }

  async #fill(id) {
    const row = this.#rowOf(id);
    const own = this.#app.status?.name;
    let parts;
    try {
      const isElsewhere = row && row.broker !== own;
      parts = isElsewhere ? this.#elsewhere(id, row) : this.#here(id, await subscriptionsOf(id), own);
    } catch (error) {
      const failure = this.#app.failed(error);
      parts = [el("p", { class: "notice bad", role: "alert" }, el("strong", {}, failure.message), failure.kind === "missing" ? "" : ` ${failure.todo}`)];
    }
    if (this.#shown === id) put(this.#body, ...parts);
  }

  #elsewhere(id, row) {
    const address = consoleOf(this.#app, row.broker, id);
    const link = address ? el("a", { href: address, rel: "noopener noreferrer" }, `the console of ${row.broker}`) : `the console of ${row.broker}`;
    return [sessionFacts(row, row.now, row.broker, this.rates.of(row)), el("p", { class: "notice" }, `The subscriptions are known to ${row.broker} only, and there alone its client can be disconnected, or it be ended: see `, link, ".")];
  }

  #here(id, shown, own) {
    const table = subscriptionsTable();
    table.show(shown.subscriptions);
    const mayChange = this.#app.may("administer");
    const end = mayChange
      ? el("button", { type: "button", class: "danger", onclick: () => this.#end(id, shown.session) }, "End this session …")
      : el("p", { class: "quiet" }, "Disconnecting its client, or ending it, needs the action administer, which you do not have.");
    const kick = mayChange && shown.session.connection
      ? el("button", { type: "button", class: "plain", onclick: () => this.kick(id) }, "Disconnect its client …")
      : null;
    return [
      sessionFacts(shown.session, shown.now_ms, own ?? NONE, this.rates.of({ ...shown.session, broker: own })), el("h3", {}, many(shown.subscriptions.length, "subscription")),
      table.root, shown.next && el("p", { class: "quiet" }, "There are more than are shown."), el("div", { class: "row" }, kick, end),
    ];
  }

  /** Disconnects a client of the broker that is asked, and tells what became of it. */
  async kick(id) {
    const isSure = await confirm({
      title: "Disconnect this client?",
      words: [
        `${id}: its connection is closed (MQTT 5: reason 0x98, Administrative action), and its will is published.`,
        "Its session stays, unless it ends with its connection. The client may come back at once: a rule that does not allow it any more keeps it out.",
      ],
      action: "Disconnect",
    });
    if (!isSure) return;
    try {
      const { session } = await post(`${named("/sessions", id)}/kick`);
      const stays = session.expiry_ms > 0 ? `Its session stays for ${span(session.expiry_ms)}.` : "Its session ended with the connection.";
      this.#tell(id, "good", `The client was disconnected. ${stays}`);
    } catch (error) {
      const failure = this.#app.failed(error);
      this.#tell(id, "bad", `${failure.message} ${failure.todo}`);
    }
    this.onended();
  }

  /** Says something in the panel of a session, which is opened if need be. */
  #tell(id, state, words) {
    this.#shown = id;
    this.root.hidden = false;
    // The address names the session that the panel is about.
    history.replaceState(null, "", `#sessions/${encodeURIComponent(id)}`);
    text(this.#title, id || "(empty)");
    put(this.#body, el("p", { class: `notice ${state}`, role: state === "bad" ? "alert" : "status" }, words));
  }

  async #end(id, session) {
    const isSure = await confirm({
      title: "End this session?",
      words: [
        `${id}: ${many(session.subscriptions, "subscription")}, ${count(session.durable)} of them durable.`,
        session.connected ? "The client is connected: it is disconnected, and may come back with a new session." : "The client is away. When it comes back, it finds no session, and what was kept for it is gone.",
        "This cannot be undone.",
      ],
      action: "End session",
    });
    if (!isSure) return;
    try {
      const dropped = await remove(named("/sessions", id));
      put(this.#body, el("p", { class: "notice good", role: "status" }, dropped.durable ? "The session has ended." : "The session has ended, but the disk has not confirmed it within 10 s: after a crash now it would be there again."));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const failure = this.#app.failed(error);
      this.#body.prepend(el("p", { class: "notice bad", role: "alert" }, el("strong", {}, failure.message), ` ${failure.todo}`));
    }
    this.onended();
  }
}

/** Buttons to go from page to page. */
function pager(go) {
  const words = el("span", { role: "status" });
  const [back, on] = [-1, 1].map((step) => el("button", { type: "button", class: "plain", onclick: () => go(step) }, step < 0 ? "‹ Back" : "Next ›"));
  const root = el("nav", { class: "row pager", "aria-label": "Pages" }, back, words, on);
  return {
    root,
    show(page, total) {
      const last = Math.max(0, Math.ceil(total / PAGE) - 1);
      back.disabled = page <= 0;
      on.disabled = page >= last;
      root.hidden = total <= PAGE;
      text(words, `${count(page * PAGE + 1)} – ${count(Math.min(total, (page + 1) * PAGE))} of ${count(total)}`);
    },
  };
}

/** So many pages of each broker's sessions, of those whose client ids begin with `prefix`; `partial` names those that have more. */
async function list(pages, prefix) {
  const wanted = { limit: PAGE_ASKED, prefix: prefix || undefined };
  const system = await get("/system/sessions", wanted);
  const rows = [];
  const partial = [];
  for (const { name, answer } of answers(system)) {
    let answered = answer;
    const add = () => rows.push(...answered.sessions.map((session) => ({ ...session, broker: name, now: answered.now_ms })));
    add();
    for (let page = 1; answered.next && page < pages; page += 1) {
      const [more] = answers(await get("/system/sessions", { ...wanted, after: answered.next, broker: name }));
      if (!more) break;
      answered = more.answer;
      add();
    }
    if (answered.next) partial.push(name);
  }
  return { system, rows, partial };
}

/** The view. */
export function create(app) {
  const missing = new Missing();
  const trouble = new Trouble();
  const summary = el("span", { class: "quiet", role: "status" });
  const more = el("p", { class: "notice", hidden: true });
  const search = el("input", { type: "search", id: "session-search", placeholder: "client id", title: "Brokers search what client ids begin with; among those that are shown any part of a client id or a broker's name is found", spellcheck: "false", autocapitalize: "none" });
  const which = el("select", { id: "session-state" }, ...[["", "all sessions"], ["here", "connected clients"], ["away", "away"], ["lag", "behind"]].map(([value, label]) => el("option", { value }, label)));
  const rates = new ClientRates();
  /** All that were listed, and what brokers have found for `wanted`. */
  let [all, found, wanted, unheard, partial, page, pages, typing] = [[], [], "", [], [], 0, 1, 0];

  const table = sessionsTable(() => show());
  const kickOf = (row) => (row.connection && row.broker === app.status?.name && app.may("administer")
    ? el("button", { type: "button", class: "plain", "aria-label": `Disconnect ${row.client_id}`, onclick: () => details.kick(row.client_id) }, "Disconnect …") : NONE);
  const clients = clientsTable(rates, () => show(), kickOf);
  clients.root.classList.add("clients");
  clients.root.hidden = true;
  const paging = pager((step) => {
    page += step;
    show();
  });
  const rowOf = (id) => {
    const rows = known().filter((row) => row.client_id === id && !row.given_to);
    return rows.find((row) => row.broker === app.status?.name) ?? rows[0];
  };
  const details = new Details(app, rowOf, {
    onclose: close,
    onended: () => poller.now(),
    rates,
  });

  /** Sessions that were listed, and those that were found and are not among them. */
  function known() {
    const keys = new Set(all.map((row) => `${row.broker}\n${row.client_id}`));
    return [...all, ...found.filter((row) => !keys.has(`${row.broker}\n${row.client_id}`))];
  }

  function fits(row) {
    const typed = search.value.toLowerCase();
    const is = { "": true, here: row.connected, away: !row.connected, lag: (row.lag_ms ?? 0) > 0 }[which.value];
    return is && (typed === "" || row.client_id.toLowerCase().includes(typed) || row.broker.toLowerCase().includes(typed));
  }

  function show() {
    const [shown, hidden] = which.value === "here" ? [clients, table] : [table, clients];
    [shown.root.hidden, hidden.root.hidden] = [false, true];
    const rows = known();
    const fitting = shown.inOrder(rows.filter(fits));
    page = Math.max(0, Math.min(page, Math.ceil(fitting.length / PAGE) - 1));
    shown.show(fitting.slice(page * PAGE, (page + 1) * PAGE), true);
    paging.show(page, fitting.length);
    // A number that lacks those of a broker is no total.
    const without = unheard.length > 0 ? `, without ${unheard.join(", ")}` : "";
    text(summary, `${count(fitting.length)} of ${many(rows.length, "session")}, ${count(rows.filter((row) => row.connected).length)} connected${without}`);
    showMore();
  }

  function showMore() {
    const said = `${partial.join(", ")} ${pages}`;
    more.hidden = partial.length === 0;
    if (more.said === said) return;
    more.said = said;
    put(more, `Of ${partial.join(", ")} only a part is here; what client ids begin with is searched among all. `,
      pages < MAX_PAGES ? el("button", { type: "button", class: "plain", onclick: askMore }, "Ask for more") : "The console asks for no more; the command whimbrel sessions lists all.");
  }

  function askMore() {
    pages += 5;
    poller.now();
  }

  async function ask() {
    try {
      const typed = search.value;
      const [asked, searched] = await Promise.all([list(pages), typed === "" ? null : list(pages, typed)]);
      ({ rows: all, partial } = asked);
      [found, wanted] = [searched?.rows ?? [], typed];
      unheard = [...asked.system.silent, ...asked.system.missed];
      rates.add(known());
      trouble.show(null);
      missing.show(asked.system);
      show();
    } catch (error) {
      trouble.show(app.failed(error));
    }
    follow();
  }

  /** Has the brokers search for what was typed, unless it goes on. */
  function searchSoon() {
    show();
    clearTimeout(typing);
    if (search.value !== wanted) typing = setTimeout(() => poller.now(), TYPING_MS);
  }

  /** Opens the session that the address names, as links in other views do. */
  function follow() {
    const [view, ...rest] = location.hash.slice(1).split("/");
    if (view !== "sessions") return;
    if (rest.length === 0) return details.close();
    let id;
    try {
      id = decodeURIComponent(rest.join("/"));
    } catch {
      return;
    }
    if (details.shown !== id) details.open(id);
  }

  function close() {
    history.replaceState(null, "", "#sessions");
    details.close();
    search.focus();
  }

  search.addEventListener("input", searchSoon);
  which.addEventListener("input", show);
  addEventListener("hashchange", follow);
  const poller = new Poller(EVERY_MS, ask);
  return {
    parts: [
      trouble.root, missing.root,
      el("div", { class: "row filter" }, el("label", { for: "session-search" }, "Search"), search, el("label", { for: "session-state" }, "Show"), which, summary),
      more,
      el("div", { class: "beside" }, el("div", {}, table.root, clients.root, paging.root), details.root),
    ],
    show: () => poller.start(),
    hide: () => poller.stop(),
    key(event) {
      if (event.key === "/") search.focus();
      else if (event.key === "Escape" && details.shown !== null) close();
      else return false;
      return true;
    },
  };
}
