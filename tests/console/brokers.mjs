// Three real brokers for the console's tests and pictures: their processes, who may do what, and clients that keep them busy: vehicles that
// report where they are, a workshop that takes orders durably and one that has left, watchers that are semi-durable.
//
//   WHIMBREL_BIN=target/quick/whimbrel node tests/console/brokers.mjs [--sign-in]     runs them to be looked at, until it is interrupted
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { createSocket } from "node:dgram";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import packets from "mqtt-packet";
import { Vehicle } from "./mqtt.mjs";

export const BINARY = process.env.WHIMBREL_BIN;
export const NAMES = ["north", "harbour", "tower"];
/** Where they say that they are. */
export const PLACES = { north: [54.352, 18.646], harbour: [53.428, -14.553], tower: [-52.23, 21.011] };
/** Who is known to the brokers that ask who somebody is. */
export const PASSWORDS = { ada: "right", bob: "right", carol: "right", eve: "right", vehicles: "wheels", desk: "orders" };
const RULES = `
[[rule]]
principals = ["ada"]
actions = ["subscribe"]
topics = ["fleet/#"]
client_ids = ["whimbrel-console-*"]

[[rule]]
principals = ["ada", "bob"]
actions = ["observe"]

[[rule]]
principals = ["ada", "carol"]
actions = ["administer"]

# Eve may follow the vehicles, and nothing else.
[[rule]]
principals = ["eve"]
actions = ["subscribe"]
topics = ["fleet/#"]
client_ids = ["whimbrel-console-*"]

[[rule]]
principals = ["vehicles"]
actions = ["publish"]
topics = ["fleet/#"]

[[rule]]
principals = ["desk"]
actions = ["publish", "subscribe"]
topics = ["orders/#", "fleet/#"]
`;
const PATIENCE_MS = 20_000;
const REPORT_EVERY_MS = 50;

/** A UDP port that nobody has. */
async function freeUdpPort() {
  const socket = createSocket("udp4");
  await new Promise((resolve) => socket.bind(0, "127.0.0.1", resolve));
  const { port } = socket.address();
  await new Promise((resolve) => socket.close(resolve));
  return port;
}

/** A TCP port that nobody has: a broker that comes back has to have the one that its console knows. */
async function freeTcpPort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** One process of `whimbrel serve`. */
class Broker {
  constructor(name, place, config, flags) {
    Object.assign(this, { name, place, flags });
    if (config) {
      this.config = join(place, `${name}.toml`);
      writeFileSync(this.config, config);
    }
  }

  async start() {
    const log = openSync(join(this.place, `${this.name}.log`), "a");
    const environment = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith("WHIMBREL_")));
    this.process = spawn(BINARY, ["serve", "--name", this.name, "--data", join(this.place, this.name), ...this.flags, ...(this.config ? ["--config", this.config] : ["--dev"])],
      { cwd: this.place, env: environment, stdio: ["ignore", "pipe", log] });
    this.ended = once(this.process, "exit");
    const lines = createInterface({ input: this.process.stdout });
    const first = await Promise.race([once(lines, "line"), this.ended.then(() => null)]);
    if (first === null) throw new Error(`${this.name} has ended:\n${readFileSync(join(this.place, `${this.name}.log`), "utf8").slice(-2000)}`);
    this.ready = JSON.parse(first[0]);
    assert.equal(this.ready.ready, true);
  }

  get url() {
    return `http://${this.ready.http}/`;
  }

  /** Without a chance to say good-bye. */
  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/** An MQTT 5 client over TCP: as much as the load needs. */
export class Client {
  #waiting = new Map();
  #next = 1;

  static async connect(broker, { id, user, expiry = 0, clean = true }) {
    const client = new Client();
    const port = Number(broker.ready.mqtt.split(":").pop());
    client.socket = createConnection(port, "127.0.0.1");
    await once(client.socket, "connect");
    // A broker that is killed resets the connection, which is no failure of the client.
    client.socket.on("error", () => {});
    client.socket.on("close", () => client.#waiting.clear());
    const parser = packets.parser({ protocolVersion: 5 });
    client.socket.on("data", (data) => parser.parse(data));
    parser.on("packet", (packet) => client.#take(packet));
    const credentials = user ? { username: user, password: Buffer.from(PASSWORDS[user]) } : {};
    const answer = await client.#ask("connack", { cmd: "connect", protocolId: "MQTT", protocolVersion: 5, clean, clientId: id, keepalive: 0, properties: { sessionExpiryInterval: expiry }, ...credentials });
    assert.equal(answer.reasonCode, 0, `${id} is refused: ${JSON.stringify(answer)}`);
    return client;
  }

  #send(packet) {
    if (!this.socket.destroyed) this.socket.write(packets.generate(packet, { protocolVersion: 5 }));
  }

  #ask(answer, packet) {
    return new Promise((resolve, reject) => {
      AbortSignal.timeout(PATIENCE_MS).addEventListener("abort", () => reject(new Error(`no ${answer} within ${PATIENCE_MS} ms`)));
      this.#waiting.set(answer, resolve);
      if (packet) this.#send(packet);
    });
  }

  #take(packet) {
    if (packet.cmd === "publish" && packet.qos === 1) this.#send({ cmd: "puback", messageId: packet.messageId, reasonCode: 0 });
    const waiting = this.#waiting.get(packet.cmd);
    this.#waiting.delete(packet.cmd);
    waiting?.(packet);
  }

  async subscribe(topic, userProperties) {
    const { granted } = await this.#ask("suback", { cmd: "subscribe", messageId: this.#number(), subscriptions: [{ topic, qos: 1 }], ...(userProperties && { properties: { userProperties } }) });
    assert.ok(granted[0] <= 1, `${topic} is refused with ${granted[0]}`);
  }

  /** At QoS 1 it resolves when the broker has acknowledged. */
  async publish(packet) {
    if (packet.qos === 0) return void this.#send(packet);
    const { reasonCode = 0 } = await this.#ask("puback", { ...packet, messageId: this.#number() });
    assert.ok(reasonCode < 0x80, `${packet.topic} is refused with ${reasonCode}`);
  }

  #number() {
    this.#next = (this.#next % 65_000) + 1;
    return this.#next;
  }

  /** The next message that comes. */
  next() {
    return this.#ask("publish", null);
  }

  /** Without DISCONNECT, as who loses the signal. */
  leave() {
    this.socket.destroy();
  }
}

/** Three brokers in a row, north – harbour – tower, and what goes on there. */
export class Deployment {
  brokers = {};
  #timer = 0;
  #clients = [];

  static async start({ signIn = false } = {}) {
    const deployment = new Deployment();
    deployment.place = mkdtempSync(join(tmpdir(), "whimbrel-console-"));
    try {
      await deployment.#start(signIn);
    } catch (error) {
      await deployment.stop();
      throw error;
    }
    return deployment;
  }

  async #start(signIn) {
    const whimbrel = (args, input = "") => execFileSync(BINARY, args, { cwd: this.place, input, stdio: ["pipe", "pipe", "pipe"] });
    if (signIn) {
      whimbrel(["cert", "ca", "--out", "ca", "--deployment", "city"]);
      for (const [user, password] of Object.entries(PASSWORDS)) whimbrel(["passwd", "passwords", user], `${password}\n`);
    }
    let before = null;
    for (const name of NAMES) {
      const overlay = await freeUdpPort();
      const flags = ["--listen-mqtt", "127.0.0.1:0", "--listen-ws", "127.0.0.1:0", "--listen-http", `127.0.0.1:${await freeTcpPort()}`,
        "--listen-tls", "off", "--listen-wss", "off", "--listen-overlay", `127.0.0.1:${overlay}`, "--overlay-links", "0", "--place-lat", `${PLACES[name][0]}`, "--place-lon", `${PLACES[name][1]}`];
      if (before) flags.push("--peer", `127.0.0.1:${before}`);
      if (signIn) {
        whimbrel(["cert", "broker", "--ca", "ca", "--name", name, "--host", "127.0.0.1", "--out", name]);
        flags.push("--tls-ca", "ca/ca.pem", "--tls-cert", `${name}/broker-${name}.pem`, "--tls-key", `${name}/broker-${name}.key`, "--http-plain");
      }
      const broker = new Broker(name, this.place, signIn && `[identity]\npasswords = "passwords"\n${RULES}`, flags);
      this.brokers[name] = broker;
      await broker.start();
      before = overlay;
    }
    this.signIn = signIn;
  }

  removeUser(user) {
    execFileSync(BINARY, ["passwd", "passwords", user, "--delete"], { cwd: this.place, stdio: "pipe" });
  }

  async connect(name, options) {
    const client = await Client.connect(this.brokers[name], options);
    this.#clients.push(client);
    return client;
  }

  /** The load: goes on until the end. */
  async populate({ vehicles = 60, perSecond = 200, away = 3 } = {}) {
    const as = (user) => (this.signIn ? { user } : {});
    for (const name of NAMES) {
      const watcher = await this.connect(name, { id: `watcher-${name}`, expiry: 3600, ...as("desk") });
      await watcher.subscribe("fleet/N56/+/position", { "w-durability": "semi-durable" });
    }
    const desk = await this.connect("tower", { id: "dispatch", expiry: 3600, ...as("desk") });
    await desk.subscribe("orders/#");
    for (let number = 1; number <= away; number += 1) {
      const absent = await this.connect("north", { id: `workshop-${number}`, expiry: 3600, ...as("desk") });
      await absent.subscribe("orders/#");
      absent.leave();
    }
    this.clerk = await this.connect("north", { id: "clerk", ...as("desk") });
    await this.order("two pallets");
    await this.#move(vehicles, perSecond, as("vehicles"));
  }

  order(what) {
    return this.clerk.publish({ cmd: "publish", topic: "orders/17", payload: what, qos: 1, dup: false, retain: false });
  }

  async #move(count, perSecond, as) {
    // Half of them report to harbour: what the console at north shows of these has come through the overlay.
    const links = [await this.connect("north", { id: "gateway-north", ...as }), await this.connect("harbour", { id: "gateway-harbour", ...as })];
    const all = Array.from({ length: count }, (_, number) => new Vehicle(number));
    let next = 0;
    const report = () => {
      links[next % links.length].publish(all[next].report(false));
      next = (next + 1) % count;
    };
    this.#timer = setInterval(() => {
      for (let sent = 0; sent < (perSecond * REPORT_EVERY_MS) / 1000; sent += 1) report();
    }, REPORT_EVERY_MS);
  }

  async stop() {
    clearInterval(this.#timer);
    for (const client of this.#clients) client.leave();
    await Promise.all(Object.values(this.brokers).filter((broker) => broker.process).map((broker) => broker.kill()));
    rmSync(this.place, { recursive: true, force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const deployment = await Deployment.start({ signIn: process.argv.includes("--sign-in") });
  await deployment.populate({ vehicles: 300, perSecond: 400 });
  console.log(NAMES.map((name) => `${name} ${deployment.brokers[name].url}`).join("\n"));
  process.once("SIGINT", () => deployment.stop().then(() => process.exit(0)));
}
