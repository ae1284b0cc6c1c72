// Three invented brokers behind one HTTP address, for the console's tests and for looking at it: the API, the console's files with the
// content security policy of the real broker, and MQTT 5 over WebSocket with vehicles that move.
//
//   node tests/console/mock.mjs [--port 8080] [--sign-in] [--hostile] [--vehicles 600]
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { history, paths, sessions, shown, status, streams, topology, trace, NAMES } from "./invented.mjs";
import { MqttListener } from "./mqtt.mjs";

const FILES = fileURLToPath(new URL("../../console/", import.meta.url));
const POLICY = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; style-src 'self'; frame-ancestors 'none'";
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".bin": "application/octet-stream", ".md": "text/markdown" };

export const USERS = {
  ada: { password: "right", may: ["observe", "administer"] },
  bob: { password: "right", may: ["observe"] },
  eve: { password: "right", may: ["administer"] },
  dan: { password: "right", may: [] },
};
export const TOKEN = "header.claims.signature";

/** What can be changed while it runs. */
function settings(options) {
  return {
    /** Who may sign in; null: the broker runs with --dev. */
    users: options.signIn ? USERS : null,
    silent: [],
    missed: [],
    /** Brokers that refuse to answer. */
    refusing: [],
    /** Paths that fail: `{ status, error }`. */
    failing: {},
    isAlone: false,
    hostile: Boolean(options.hostile),
    /** Sessions that were ended. */
    ended: new Set(),
    /** Clients that were disconnected. */
    kicked: new Set(),
    /** What is wrong with the configuration that is read again; empty: nothing. */
    mistakes: [],
    phase: "ready",
    /** Requests that came: `METHOD path`. */
    requests: [],
  };
}

function identify(header, users) {
  const [scheme, value = ""] = (header ?? "").split(" ");
  if (scheme === "Bearer" && value === TOKEN) return "ada";
  if (scheme !== "Basic") return null;
  const [name, ...rest] = Buffer.from(value, "base64").toString("utf8").split(":");
  return isRight(users, name, rest.join(":")) ? name : null;
}

const isRight = (users, name, password) => (Object.hasOwn(users, name) && users[name].password === password) || password === TOKEN;

export class Mock {
  static async start(options = {}) {
    const mock = new Mock();
    mock.set = settings(options);
    mock.server = createServer((request, response) => mock.#answer(request, response));
    await new Promise((resolve) => mock.server.listen(options.port ?? 0, "127.0.0.1", resolve));
    mock.port = mock.server.address().port;
    mock.mqtt = await MqttListener.start({
      vehicles: options.vehicles ?? 300,
      perSecond: options.perSecond ?? 150,
      isAllowed: (name, password) => mock.set.users === null || isRight(mock.set.users, name, password),
      isHostile: () => mock.set.hostile,
    });
    mock.url = `http://127.0.0.1:${mock.port}/`;
    return mock;
  }

  async stop() {
    await this.mqtt.stop();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** The broker is gone: whoever asks finds nobody. */
  async die() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  async comeBack() {
    await new Promise((resolve) => this.server.listen(this.port, "127.0.0.1", resolve));
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://broker");
    response.setHeader("connection", "close");
    if (!url.pathname.startsWith("/api/v1/")) return void this.#file(url.pathname, response);
    this.set.requests.push(`${request.method} ${url.pathname}`);
    const [code, body, headers] = this.#api(request, url);
    response.writeHead(code, { "content-type": "application/json", "cache-control": "no-store", ...headers });
    response.end(`${JSON.stringify(body)}\n`);
  }

  async #file(path, response) {
    const file = join(FILES, normalize(path === "/" ? "/index.html" : path));
    const found = await stat(file).catch(() => null);
    if (!found?.isFile() || !file.startsWith(FILES)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "text/plain", "content-security-policy": POLICY, "cache-control": "no-cache", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" });
    createReadStream(file).pipe(response);
  }

  get #ws() {
    return `127.0.0.1:${this.mqtt.port}`;
  }

  #api(request, url) {
    const { set } = this;
    const principal = set.users === null ? "anybody" : identify(request.headers.authorization, set.users);
    if (!principal) return [401, { error: "no such user, or another password" }, { "www-authenticate": "Basic realm=\"whimbrel\", charset=\"UTF-8\"" }];
    const may = set.users === null ? ["observe", "administer"] : set.users[principal].may;
    const path = url.pathname.slice("/api/v1".length);
    const failing = set.failing[path];
    if (failing) return [failing.status, { error: failing.error }];
    if (path === "/whoami") return [200, { principal, may, dev: set.users === null, broker: NAMES[0], deployment: "baltic", listeners: { ws: this.#ws } }];
    const action = request.method === "GET" ? "observe" : "administer";
    if (action === "administer" && request.headers.origin !== `http://${request.headers.host}`) return [403, { error: "this request comes from a page of another site" }];
    if (!may.includes(action)) return [403, { error: `no rule allows ${principal} to ${action}` }];
    return this.#route(request.method, path, url.searchParams);
  }

  #route(method, path, query) {
    const own = NAMES[0];
    const parts = path.split("/").slice(1).map(decodeURIComponent);
    if (method === "GET" && parts[0] === "system") return this.#system(parts[1], query);
    if (parts[0] === "sessions" && parts.length === 2) return this.#session(method, parts[1]);
    if (method === "POST" && parts[0] === "sessions" && parts[2] === "kick") return this.#kick(parts[1]);
    if (method === "GET" && parts[0] === "trace") return trace(parts[1], this.set);
    if (method === "GET" && this.#one(parts[0], own, query)) return [200, this.#one(parts[0], own, query)];
    if (method === "POST" && path === "/drain") {
      this.set.phase = "draining";
      return [200, { connections: 1 }];
    }
    if (method === "POST" && path === "/reload") {
      const { mistakes } = this.set;
      return mistakes.length === 0 ? [200, { changed: true }] : [409, { error: ["the configuration has mistakes, so what was in force before stays. Correct them and reload again:", ...mistakes].join("\n") }];
    }
    return [404, { error: "there is no such route; /api/v1/openapi.json names all" }];
  }

  #one(what, name, query) {
    const after = Number(query.get("after") ?? 0);
    switch (what) {
      case "status": return status(name, this.set, { ws: this.#ws, http: `127.0.0.1:${this.port}` });
      case "streams": return streams(name, this.set);
      case "topology": return topology(name, this.set);
      case "paths": return paths(name, query.get("topic") ?? "", this.set);
      case "history": return history(name, Number(query.get("after_ms") ?? 0), Number(query.get("limit") ?? 900));
      case "sessions": return sessions(name, this.set, after, Number(query.get("limit") ?? 1000), query.get("prefix") ?? "");
      default: return null;
    }
  }

  #system(what, query) {
    const { silent, missed, refusing, isAlone } = this.set;
    const only = query.get("broker");
    const there = NAMES.filter((name) => !silent.includes(name) && !missed.includes(name) && (!only || only === name) && (!isAlone || name === NAMES[0]));
    const answer = (name) => {
      if (isAlone && what === "topology") return { error: "this broker has no overlay: it is not one of many. Start it with --listen-overlay ADDR:PORT, and others with --peer" };
      return refusing.includes(name) ? { error: "its answer was too long for a letter" } : this.#one(what, name, query);
    };
    return [200, { brokers: there.map((name) => ({ name, answer: answer(name) })), silent, missed }];
  }

  #kick(id) {
    const found = shown(NAMES[0], id, this.set);
    if (!found) return [404, { error: `there is no session with the client id ${JSON.stringify(id)}` }];
    if (!found.session.connection) return [409, { error: `the client ${JSON.stringify(id)} is not connected here, so there is nothing to disconnect` }];
    this.set.kicked.add(id);
    return [200, { session: found.session }];
  }

  #session(method, id) {
    const found = shown(NAMES[0], id, this.set);
    if (!found) return [404, { error: `there is no session with the client id ${JSON.stringify(id)}` }];
    if (method === "GET") return [200, found];
    this.set.ended.add(id);
    return [200, { session: found.session, durable: true }];
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { values } = parseArgs({ options: { port: { type: "string" }, "sign-in": { type: "boolean" }, hostile: { type: "boolean" }, vehicles: { type: "string" } } });
  const mock = await Mock.start({ port: Number(values.port ?? 8080), signIn: values["sign-in"], hostile: values.hostile, vehicles: Number(values.vehicles ?? 600) });
  console.log(mock.url);
}
