// The MQTT client that follows the nodes: connects over WebSocket, subscribes, and tells in words what is the matter.
import mqtt from "../../vendor/mqtt.esm.js";
import { credentials } from "../api.js";

const PATH = "/mqtt";
const AGAIN_MS = 3000;
const PATIENCE_MS = 8000;

const NOT_AUTHORIZED = 135;

const REFUSALS = {
  134: ["The broker does not accept these credentials for MQTT.", "Sign out and in again."],
  [NOT_AUTHORIZED]: ["You may not connect over MQTT.", "Ask whoever keeps the broker's rules for the action subscribe on this filter, and for the client ids whimbrel-console-*."],
  137: ["The broker is too busy.", "The console tries again."],
  151: ["A quota of the broker is exceeded.", "Close other connections of yours, or ask for a higher quota."],
};

/** Where the broker that serves this page speaks MQTT over WebSocket: on the page's own port if it is the broker's, else by what it listens on; null if it does not. */
export function addressOf(listeners) {
  const isSecure = location.protocol === "https:";
  if (listeners?.http) return `${isSecure ? "wss" : "ws"}://${location.host}${PATH}`;
  const order = isSecure ? ["wss"] : ["ws", "wss"];
  const kind = order.find((name) => listeners?.[name]);
  if (!kind) return null;
  const port = listeners[kind].slice(listeners[kind].lastIndexOf(":") + 1);
  return `${kind}://${location.hostname}:${port}${PATH}`;
}

/** What to do about a connection that browsers refuse without telling why. */
function whyNot(address) {
  const { protocol, host } = new URL(address);
  if (protocol !== "wss:" || host === location.host) return "The listener is closed, or something between lets no WebSocket through. The console tries again.";
  return `The listener is closed, or this browser does not trust its certificate: open https://${host}/ in another tab, and see what it says. The console tries again.`;
}

function words(code, fallback) {
  const [what, todo] = REFUSALS[code] ?? [fallback, "The console tries again."];
  return { state: "bad", what, todo };
}

/** Why a filter was not granted: the broker's own words, if it said some. */
function refused(filter, error, packet) {
  if (packet?.granted?.[0] === NOT_AUTHORIZED) {
    return { state: "bad", what: `You may not subscribe to ${filter}.`, todo: "Choose a filter that a rule allows you, or ask whoever keeps the rules." };
  }
  const why = packet?.properties?.reasonString ?? error.message;
  return { state: "bad", what: `The filter ${filter} is refused: ${why}.`, todo: "Correct it: levels are parted by /, + stands for one level, # for all that follow." };
}

/** User name and password as CONNECT has them; a token is the password, with the principal as the user name. */
function identity(principal) {
  const given = credentials.get();
  if (!given) return {};
  return given.token ? { username: principal, password: given.token } : { username: given.user, password: given.password };
}

export class Feed {
  #client = null;
  #filter = null;
  #onmessage;
  #onstate;

  /** `onmessage({ topic, payload, properties, retained })`; `onstate({ state: "good" | "warn" | "bad", what, todo })`. */
  constructor(onmessage, onstate) {
    this.#onmessage = onmessage;
    this.#onstate = onstate;
  }

  open(address, filter, principal) {
    this.close();
    this.#filter = filter;
    this.#onstate({ state: "warn", what: "Connecting …", todo: "" });
    let client;
    try {
      client = mqtt.connect(address, {
        ...identity(principal),
        protocolVersion: 5,
        clientId: `whimbrel-console-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`,
        clean: true,
        keepalive: 30,
        connectTimeout: PATIENCE_MS,
        reconnectPeriod: AGAIN_MS,
        resubscribe: false,
        // Its other timers live in a worker made of a blob, which the content security policy does not let in.
        timerVariant: "native",
      });
    } catch {
      this.#onstate({ state: "bad", what: `“${address}” is not an address of MQTT over WebSocket.`, todo: "It looks like ws://host:8083/mqtt." });
      return;
    }
    this.#client = client;
    this.#listen(client, address);
  }

  #listen(client, address) {
    // The last refusal stays to be read while the client tries again.
    let refusal = null;
    const isOld = () => client !== this.#client;
    client.on("connect", () => {
      refusal = null;
      if (!isOld()) this.#subscribe(client);
    });
    client.on("message", (topic, payload, packet) => {
      if (!isOld()) this.#onmessage({ topic, payload, properties: packet.properties?.userProperties, retained: packet.retain });
    });
    client.on("error", (error) => {
      if (isOld()) return;
      refusal = words(error.code, `MQTT: ${error.message || "the connection failed"}.`);
      this.#onstate(refusal);
    });
    client.on("close", () => {
      if (isOld()) return;
      this.#onstate(refusal ?? { state: "bad", what: `No connection to ${address}.`, todo: whyNot(address) });
    });
  }

  #subscribe(client) {
    const filter = this.#filter;
    client.subscribe(filter, { qos: 0 }, (error, _, packet) => {
      if (client !== this.#client || filter !== this.#filter) return;
      this.#onstate(error ? refused(filter, error, packet) : { state: "good", what: `Following ${filter}`, todo: "" });
    });
  }

  close() {
    const client = this.#client;
    this.#client = null;
    client?.end(true);
  }
}
