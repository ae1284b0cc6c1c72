// The frame: who is there, which view is shown, keys, and what all views share.
import { credentials, Failure, get, unseen } from "./api.js";
import * as dialogs from "./dialogs.js";
import { el, put, text } from "./dom.js";
import { many, moment } from "./format.js";
import { Poller } from "./poll.js";
import { Rates } from "./rates.js";
import * as signin from "./signin.js";
import { create as charts } from "./views/charts.js";
import { create as map } from "./views/map.js";
import { create as overlay } from "./views/overlay.js";
import { create as sessions } from "./views/sessions.js";
import { create as status } from "./views/status.js";
import { create as streams } from "./views/streams.js";

const STATUS_EVERY_MS = 2000;
const VIEWS = [
  ["map", "Map", map],
  ["overlay", "Overlay", overlay],
  ["streams", "Streams", streams],
  ["sessions", "Sessions", sessions],
  ["charts", "Charts", charts],
  ["status", "Status", status],
];
const REJECTED = "Sign in again: the broker no longer accepts what you signed in with.";
const PHASES = { starting: "Starting", ready: "Ready", draining: "Draining" };
const THEMES = { auto: ["◐\ufe0e", "the system's"], light: ["☀\ufe0e", "light"], dark: ["☾\ufe0e", "dark"] };

const part = (id) => document.getElementById(id);

/** What the views are given. `status` and `system` are the last answers; `statuschange` tells that there are new ones. */
class App extends EventTarget {
  who = null;
  status = null;
  system = null;
  failure = null;
  /** The answer about an event whose ways are to be drawn. */
  traced = null;
  /** What brokers count, per second. */
  rates = new Rates();

  may(action) {
    return Boolean(this.who && (this.who.dev || this.who.may?.includes(action)));
  }

  /** Where the broker listens, as far as it is told to who asks. */
  get listeners() {
    return this.status?.listeners ?? this.who?.listeners;
  }

  /** Tells of a failed request what concerns the page as a whole; the view shows the rest. */
  failed(failure) {
    if (!(failure instanceof Failure)) throw failure;
    if (failure.kind === "signed-out") signOut(REJECTED);
    return failure;
  }

  async refresh() {
    await statusPoller.now();
  }
}

const app = new App();
const views = new Map();
let current = null;
let since = 0;

/** What those may see who may not look: that the broker is there, and whether they may by now. */
async function askWho() {
  try {
    app.who = await get("/whoami");
    app.failure = app.may("observe") ? null : unseen(app.who.principal);
  } catch (failure) {
    app.failure = app.failed(failure);
  }
}

async function askStatus() {
  if (!app.may("observe")) {
    await askWho();
    frame();
    app.dispatchEvent(new Event("statuschange"));
    return;
  }
  const asked = await Promise.allSettled([get("/status"), get("/system/status")]);
  const [own, system] = asked;
  const failure = asked.find(({ status }) => status === "rejected")?.reason ?? null;
  app.failure = failure && app.failed(failure);
  if (own.status === "fulfilled") app.status = own.value;
  if (system.status === "fulfilled") app.system = system.value;
  app.rates.add(app.system);
  frame();
  app.dispatchEvent(new Event("statuschange"));
}

const statusPoller = new Poller(STATUS_EVERY_MS, askStatus);

function frame() {
  const { status: own, failure, system } = app;
  const isGone = failure?.kind === "unreachable";
  if (isGone && since === 0) since = Date.now();
  if (!isGone) since = 0;
  const [name, deployment] = own ? [own.name, own.deployment] : [app.who?.broker, app.who?.deployment];
  if (name) {
    text(part("place"), deployment ? `${name} in ${deployment}` : name);
    document.title = `${name} – Whimbrel`;
  }
  const missing = (system?.silent?.length ?? 0) + (system?.missed?.length ?? 0);
  const [state, words] = isGone ? ["bad", "Not reachable"]
    : app.who && !app.may("observe") ? ["good", "Connected"]
      : own?.phase !== "ready" ? ["warn", PHASES[own?.phase] ?? "…"]
        : missing > 0 ? ["warn", `${many(missing, "broker")} missing`] : ["good", many(system?.brokers?.length ?? 1, "broker")];
  part("health").className = `pill ${state}`;
  text(part("health"), words);
  const banner = part("banner");
  const said = isGone ? `${failure.message} ${failure.todo} What is shown is of ${moment(since)}.` : "";
  text(banner, said);
  banner.hidden = said === "";
}

function select(name, focus = false) {
  const index = Math.max(0, VIEWS.findIndex(([id]) => id === name));
  const [id, , create] = VIEWS[index];
  if (current !== id) {
    if (current) hide(current);
    current = id;
    if (!views.has(id)) {
      const view = create(app);
      view.root = el("section", { id: `view-${id}`, role: "tabpanel", "aria-labelledby": `tab-${id}`, class: `view ${id}` }, ...view.parts);
      views.set(id, view);
      part("main").append(view.root);
    }
    const view = views.get(id);
    view.root.hidden = false;
    for (const [other] of VIEWS) {
      const tab = part(`tab-${other}`);
      tab.setAttribute("aria-selected", String(other === id));
      tab.tabIndex = other === id ? 0 : -1;
    }
    view.show();
    if (location.hash.slice(1).split("/")[0] !== id) history.replaceState(null, "", `#${id}`);
  }
  if (focus) part(`tab-${id}`).focus();
}

function hide(id) {
  const view = views.get(id);
  view.root.hidden = true;
  view.hide();
}

function tabs() {
  const list = VIEWS.map(([id, title], index) => el("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "main", "aria-keyshortcuts": String(index + 1), onclick: () => select(id),
  }, title));
  put(part("tabs"), ...list);
  part("tabs").addEventListener("keydown", (event) => {
    const at = VIEWS.findIndex(([id]) => id === current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(VIEWS[(to + VIEWS.length) % VIEWS.length][0], true);
  });
}

function theme() {
  const button = part("theme");
  const show = () => {
    const [sign, words] = THEMES[window.whimbrelTheme.choice];
    text(button, sign);
    button.setAttribute("aria-label", `Colours: ${words}`);
    button.title = `Colours: ${words} (t)`;
  };
  button.addEventListener("click", () => window.whimbrelTheme.next());
  addEventListener("themechange", show);
  show();
}

const isTyping = (target) => target.closest?.("input, select, textarea, [contenteditable]") !== null;

function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialogs.isOpen() || isTyping(event.target)) return;
    if (event.key === "?") dialogs.help();
    else if (event.key === "t") window.whimbrelTheme.next();
    else if (!current) return;
    else if (/^[1-6]$/.test(event.key)) select(VIEWS[Number(event.key) - 1][0]);
    else if (!views.get(current).key?.(event)) return;
    event.preventDefault();
  });
}

/** Forgets everything: the page begins anew, so nothing that was shown stays. */
function signOut(why) {
  credentials.forget(why);
  location.reload();
}

function enterAs(who) {
  app.who = who;
  part("tabs").hidden = false;
  part("sign-out").hidden = who.dev || !credentials.get();
  text(part("who"), who.dev ? "--dev" : who.principal);
  part("who").title = who.dev ? "The broker runs with --dev: everybody may do everything" : `Signed in as ${who.principal}`;
  put(part("main"));
  statusPoller.start();
  select(location.hash.slice(1).split("/")[0]);
}

/** Asks who is there, and goes on; resolves to the failure if the broker says no. */
async function enter() {
  try {
    enterAs(await get("/whoami"));
    return null;
  } catch (failure) {
    if (!(failure instanceof Failure)) throw failure;
    return failure;
  }
}

const beginPoller = new Poller(STATUS_EVERY_MS, async () => {
  const failure = await enter();
  if (failure?.kind === "unreachable") {
    app.failure = failure;
    frame();
    return;
  }
  beginPoller.stop();
  app.failure = null;
  frame();
  if (failure?.kind === "signed-out" && credentials.get()) signOut(REJECTED);
  else if (failure?.kind === "signed-out") signin.show(part("main"), { why: credentials.lastWords(), attempt: enter });
  else if (failure) put(part("main"), el("p", { class: "notice bad", role: "alert" }, el("strong", {}, failure.message), ` ${failure.todo}`));
});

tabs();
theme();
keys();
part("tabs").hidden = true;
part("help").addEventListener("click", dialogs.help);
part("sign-out").addEventListener("click", () => signOut());
addEventListener("hashchange", () => current && location.hash !== "#main" && select(location.hash.slice(1).split("/")[0]));
beginPoller.start();
