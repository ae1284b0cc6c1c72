// Sessions of all brokers: searched, paged, looked into, and ended.
import { Failure, get, named, remove } from "../api.js";
import { confirm } from "../dialogs.js";
import { el, facts, put, text } from "../dom.js";
import { count, many, moment, NONE, span } from "../format.js";
import { Poller } from "../poll.js";
import { answers, Missing, Trouble } from "../system.js";
import { Table } from "../table.js";

const EVERY_MS = 5000;
/** Rows on a page. */
const PAGE = 50;
/** Sessions that a broker is asked for at once, and how often, at most. */
const PAGE_ASKED = 1000;
const MAX_PAGES = 21;
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
      { title: "Client id", first: true, value: (row) => row.client_id, show: (row) => el("a", { href: `#sessions/${encodeURIComponent(row.client_id)}` }, row.client_id || "(empty)") },
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

function sessionFacts(session, now, broker) {
  return facts([
    ["at", broker],
    ["state", session.connected ? "connected" : `away since ${moment(session.away_since_ms)}`],
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

  constructor(app, rowOf, { onclose, onended }) {
    this.#app = app;
    this.#rowOf = rowOf;
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
    return [sessionFacts(row, row.now, row.broker), el("p", { class: "notice" }, `The subscriptions are known to ${row.broker} only, and there alone it can be ended: see `, link, ".")];
  }

  #here(id, shown, own) {
    const table = subscriptionsTable();
    table.show(shown.subscriptions);
    const end = this.#app.may("administer")
      ? el("button", { type: "button", class: "danger", onclick: () => this.#end(id, shown.session) }, "End this session …")
      : el("p", { class: "quiet" }, "Ending it needs the action administer, which you do not have.");
    return [
      sessionFacts(shown.session, shown.now_ms, own ?? NONE), el("h3", {}, many(shown.subscriptions.length, "subscription")),
      table.root, shown.next && el("p", { class: "quiet" }, "There are more than are shown."), el("div", { class: "row" }, end),
    ];
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

/** So many pages of each broker's sessions; `partial` names those that have more. */
async function list(pages) {
  const system = await get("/system/sessions", { limit: PAGE_ASKED });
  const rows = [];
  const partial = [];
  for (const { name, answer } of answers(system)) {
    let answered = answer;
    const add = () => rows.push(...answered.sessions.map((session) => ({ ...session, broker: name, now: answered.now_ms })));
    add();
    for (let page = 1; answered.next && page < pages; page += 1) {
      const [more] = answers(await get("/system/sessions", { limit: PAGE_ASKED, after: answered.next, broker: name }));
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
  const search = el("input", { type: "search", id: "session-search", placeholder: "client id, broker", spellcheck: "false", autocapitalize: "none" });
  const which = el("select", { id: "session-state" }, ...[["", "all"], ["here", "connected"], ["away", "away"], ["lag", "behind"]].map(([value, label]) => el("option", { value }, label)));
  let [all, partial, page, pages] = [[], [], 0, 1];

  const table = sessionsTable(() => show());
  const paging = pager((step) => {
    page += step;
    show();
  });
  const rowOf = (id) => {
    const rows = all.filter((row) => row.client_id === id && !row.given_to);
    return rows.find((row) => row.broker === app.status?.name) ?? rows[0];
  };
  const details = new Details(app, rowOf, {
    onclose: close,
    onended: () => poller.now(),
  });

  function fits(row) {
    const wanted = search.value.toLowerCase();
    const is = { "": true, here: row.connected, away: !row.connected, lag: (row.lag_ms ?? 0) > 0 }[which.value];
    return is && (wanted === "" || row.client_id.toLowerCase().includes(wanted) || row.broker.toLowerCase().includes(wanted));
  }

  function show() {
    const found = table.inOrder(all.filter(fits));
    page = Math.max(0, Math.min(page, Math.ceil(found.length / PAGE) - 1));
    table.show(found.slice(page * PAGE, (page + 1) * PAGE), true);
    paging.show(page, found.length);
    text(summary, `${count(found.length)} of ${many(all.length, "session")}, ${count(all.filter((row) => row.connected).length)} connected`);
    showMore();
  }

  function showMore() {
    const said = `${partial.join(", ")} ${pages}`;
    more.hidden = partial.length === 0;
    if (more.said === said) return;
    more.said = said;
    put(more, `Of ${partial.join(", ")} only a part is here; searching looks at that part. `,
      pages < MAX_PAGES ? el("button", { type: "button", class: "plain", onclick: askMore }, "Ask for more") : "The console asks for no more; the command whimbrel sessions lists all.");
  }

  function askMore() {
    pages += 5;
    poller.now();
  }

  async function ask() {
    try {
      const asked = await list(pages);
      ({ rows: all, partial } = asked);
      trouble.show(null);
      missing.show(asked.system);
      show();
    } catch (error) {
      trouble.show(app.failed(error));
    }
    follow();
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

  for (const input of [search, which]) input.addEventListener("input", show);
  addEventListener("hashchange", follow);
  const poller = new Poller(EVERY_MS, ask);
  return {
    parts: [
      trouble.root, missing.root,
      el("div", { class: "row filter" }, el("label", { for: "session-search" }, "Search"), search, el("label", { for: "session-state" }, "Show"), which, summary),
      more,
      el("div", { class: "beside" }, el("div", {}, table.root, paging.root), details.root),
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
