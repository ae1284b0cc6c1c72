// Asking the broker: one function for each method, errors that tell what happened, and the credentials.

const BASE = "/api/v1";
const KEY = "whimbrel.credentials";
const WHY = "whimbrel.signed-out";
/** Longer than a broker waits for the answers of others. */
const PATIENCE_MS = 12_000;

/** Why there is no answer. `kind`: `unreachable`, `signed-out`, `forbidden`, `missing`, `refused` or `garbled`. */
export class Failure extends Error {
  constructor(kind, what, todo) {
    super(what);
    this.kind = kind;
    this.todo = todo;
  }
}

/** Base64 of UTF-8, as HTTP's Basic wants it. */
function base64(words) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(words)));
}

/** What was given at sign-in: `{ user, password }` or `{ token }`; kept until the tab is closed. */
export const credentials = {
  get() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY));
    } catch {
      return null;
    }
  },
  set(value) {
    sessionStorage.setItem(KEY, JSON.stringify(value));
  },
  /** `why` is what the form that follows should say. */
  forget(why) {
    sessionStorage.removeItem(KEY);
    if (why) sessionStorage.setItem(WHY, why);
  },
  /** What was last given as a reason, once. */
  lastWords() {
    const why = sessionStorage.getItem(WHY);
    sessionStorage.removeItem(WHY);
    return why;
  },
  header() {
    const given = credentials.get();
    if (!given) return {};
    const value = given.token ? `Bearer ${given.token}` : `Basic ${base64(`${given.user}:${given.password}`)}`;
    return { Authorization: value };
  },
};

const LOOK = "Ask whoever keeps the broker's rules for the action observe (to look) or administer (to change).";

/** What is said, without asking, of what only those see who may look. */
export const unseen = (principal) => new Failure("forbidden", `No rule allows ${principal} to observe.`, LOOK);

/** A text of JSON, or a number. */
const TEXT_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** The value of a JSON text. Whole numbers that this language would round become texts: they are names, such as that of a broker's life. */
export function parse(json) {
  const isRounded = (part) => /^-?\d{16,}$/.test(part) && !Number.isSafeInteger(Number(part));
  return JSON.parse(json.replace(TEXT_OR_NUMBER, (part) => (isRounded(part) ? `"${part}"` : part)));
}

async function reason(response) {
  try {
    const { error } = await response.json();
    return typeof error === "string" ? error : null;
  } catch {
    return null;
  }
}

async function refusal(response, path) {
  const why = await reason(response);
  switch (response.status) {
    case 401:
      return new Failure("signed-out", why ?? "The broker does not know these credentials.", "Check them, or ask whoever runs the broker.");
    case 403:
      return new Failure("forbidden", why ?? "You are signed in, but no rule allows you this.", LOOK);
    case 404:
      return new Failure("missing", why ?? `This broker does not know ${path}.`, "It may be of an older version than the console.");
    default:
      return new Failure("refused", why ?? `The broker answered with HTTP status ${response.status}.`, "The broker's log tells more.");
  }
}

async function ask(method, path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const address = `${BASE}${path}${given.length > 0 ? `?${new URLSearchParams(given).toString().replaceAll("+", "%20")}` : ""}`;
  let response;
  try {
    // Without cookies and the browser's own sign-in, whose window would cover the page at each 401. Over HTTPS a
    // certificate that the browser shows may say who asks.
    response = await fetch(address, {
      method,
      credentials: location.protocol === "https:" ? "same-origin" : "omit",
      cache: "no-store",
      headers: { Accept: "application/json", ...credentials.header() },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `did not answer within ${PATIENCE_MS / 1000} s` : "cannot be reached";
    const trust = location.protocol === "https:" ? " Or the browser does not trust its certificate any more: reload the page, and see what it says." : "";
    throw new Failure("unreachable", `The broker at ${location.host} ${why}.`,
      `It has stopped, is overloaded, or the network between is cut. The console keeps trying.${trust}`);
  }
  if (!response.ok) throw await refusal(response, path);
  try {
    const body = await response.text();
    return body.trim() === "" ? {} : parse(body);
  } catch {
    throw new Failure("garbled", `The answer to ${path} is not JSON.`, "Is something between here and the broker that answers in its place?");
  }
}

export const get = (path, query) => ask("GET", path, query);
export const post = (path) => ask("POST", path);
export const remove = (path) => ask("DELETE", path);

/** A path with a name in it that may contain anything but be `.` or `..`, which no browser sends as they are. */
export function named(path, name) {
  if (name === "" || name === "." || name === "..") {
    throw new Failure("refused", `The name “${name}” cannot be part of an address.`, "Use the program whimbrel on the broker's machine for this one.");
  }
  return `${path}/${encodeURIComponent(name)}`;
}
