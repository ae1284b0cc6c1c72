// As much of an MQTT 5 broker over WebSocket as the console's map needs, and vehicles that publish to it. Node's broker libraries speak
// 3.1.1 only, and the console uses MQTT 5.
import { createServer } from "node:http";
import packets from "mqtt-packet";
import { WebSocketServer } from "ws";
import { HOSTILE } from "./invented.mjs";

const BAD_CREDENTIALS = 0x86;
const NOT_AUTHORIZED = 0x87;
const FILTER_INVALID = 0x8f;
const CENTRE = [52.23, 21.01];
const LINES = ["N56", "175", "189", "504", "523", "180", "116", "131", "E-2", "709", "22", "9", "17", "33", "125", "158"];

function matches(filter, topic) {
  const [wanted, levels] = [filter.split("/"), topic.split("/")];
  for (const [at, level] of wanted.entries()) {
    if (level === "#") return true;
    if (levels[at] === undefined || (level !== "+" && level !== levels[at])) return false;
  }
  return wanted.length === levels.length;
}

function reasonOf(filter) {
  if (filter.startsWith("secret/")) return NOT_AUTHORIZED;
  return /#./.test(filter) || /[^/][+#]|\+[^/]/.test(filter) ? FILTER_INVALID : 0;
}

/** Vehicles on lines through a town: each goes to and fro between the ends of its line. */
export class Vehicle {
  constructor(number) {
    const at = number % LINES.length;
    const angle = (at / LINES.length) * Math.PI * 1.93 + 0.3;
    const long = 0.05 + 0.05 * ((at * 7) % 5) / 4;
    this.line = LINES[at];
    this.name = `bus${String(number).padStart(4, "0")}`;
    this.ends = [[CENTRE[0] - Math.cos(angle) * long, CENTRE[1] - 1.6 * Math.sin(angle) * long], [CENTRE[0] + Math.cos(angle) * long, CENTRE[1] + 1.6 * Math.sin(angle) * long]];
    this.bend = 0.018 * Math.sin(at * 2.3);
    this.part = ((number * 7919) % 1009) / 504.5;
    this.seq = 0;
  }

  #at(part) {
    const share = part <= 1 ? part : 2 - part;
    const [[a, b], [c, d]] = this.ends;
    const bow = this.bend * Math.sin(2 * Math.PI * share);
    return [a + (c - a) * share + bow * 0.6, b + (d - b) * share - bow];
  }

  /** Goes on, and tells where it is. */
  report(isHostile) {
    const [lat0, lon0] = this.#at(this.part);
    this.part = (this.part + 0.003 + 0.002 * Math.random()) % 2;
    this.seq += 1;
    const [lat, lon] = this.#at(this.part);
    const heading = (Math.atan2((lon - lon0) * 0.61, lat - lat0) * 180) / Math.PI;
    const round = (value, digits) => Number(value.toFixed(digits));
    const body = { seq: this.seq, lat: round(lat, 5), lon: round(lon, 5), speed: round(8 + 5 * Math.sin(this.seq / 3), 1), heading: round((heading + 360) % 360, 1), time: new Date().toISOString() };
    if (isHostile) Object.assign(body, { [HOSTILE]: HOSTILE, __proto__: { nested: HOSTILE } });
    const line = isHostile ? `${this.line}<b>` : this.line;
    return {
      cmd: "publish", topic: `fleet/${line}/${this.name}/position`, payload: JSON.stringify(body), qos: 0, dup: false, retain: false,
      properties: { userProperties: { lat: String(body.lat), lon: String(body.lon), speed: String(body.speed), line } },
    };
  }
}

export class MqttListener {
  clients = new Set();

  static async start({ vehicles, perSecond, isAllowed, isHostile }) {
    const listener = new MqttListener();
    listener.isAllowed = isAllowed;
    listener.server = createServer((_, response) => response.writeHead(404).end());
    listener.sockets = new WebSocketServer({
      server: listener.server, path: "/mqtt", handleProtocols: (offered) => (offered.has("mqtt") ? "mqtt" : false),
      verifyClient: ({ origin, req }) => new URL(origin).hostname === req.headers.host.split(":")[0],
    });
    listener.sockets.on("connection", (socket) => listener.#serve(socket));
    await new Promise((resolve) => listener.server.listen(0, "127.0.0.1", resolve));
    listener.port = listener.server.address().port;
    listener.#move(Array.from({ length: vehicles }, (_, number) => new Vehicle(number)), perSecond, isHostile);
    return listener;
  }

  async stop() {
    clearInterval(this.timer);
    for (const socket of this.sockets.clients) socket.terminate();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Sends to whoever is subscribed. */
  publish(packet) {
    for (const client of this.clients) {
      if (client.filters.some((filter) => matches(filter, packet.topic))) client.send(packet);
    }
  }

  #move(all, perSecond, isHostile) {
    const everyMs = 50;
    let next = 0;
    const turn = (share) => {
      for (let count = 0; count < share && all.length > 0; count += 1) {
        this.publish(all[next].report(isHostile()));
        next = (next + 1) % all.length;
      }
    };
    this.greet = () => turn(all.length);
    this.timer = setInterval(() => turn((perSecond * everyMs) / 1000), everyMs);
  }

  #serve(socket) {
    const parser = packets.parser({ protocolVersion: 5 });
    const client = { filters: [], send: (packet) => socket.send(packets.generate(packet, { protocolVersion: 5 })) };
    parser.on("packet", (packet) => this.#take(packet, client, socket));
    parser.on("error", () => socket.terminate());
    socket.on("message", (data) => parser.parse(data));
    socket.on("close", () => this.clients.delete(client));
  }

  #take(packet, client, socket) {
    switch (packet.cmd) {
      case "connect": {
        const isIn = packet.protocolVersion === 5 && this.isAllowed(packet.username, packet.password?.toString());
        client.send({ cmd: "connack", reasonCode: isIn ? 0 : BAD_CREDENTIALS, sessionPresent: false });
        if (isIn) this.clients.add(client);
        else socket.close();
        break;
      }
      case "subscribe": {
        const granted = packet.subscriptions.map(({ topic }) => reasonOf(topic));
        client.send({ cmd: "suback", messageId: packet.messageId, granted });
        client.filters.push(...packet.subscriptions.map(({ topic }) => topic).filter((topic) => reasonOf(topic) === 0));
        this.greet();
        break;
      }
      case "pingreq":
        client.send({ cmd: "pingresp" });
        break;
      case "disconnect":
        socket.close();
        break;
      default:
        socket.terminate();
    }
  }
}
