"use strict";
// MQTT.js clients in the page, driven from outside through `operate` and heard through `report` (both JSON).
// Bytes travel as {"$base64": "..."}.

const clients = new Map();

const toBase64 = (bytes) => {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) {
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  }
  return btoa(text);
};

const pack = (value) => {
  if (value instanceof Uint8Array) return { $base64: toBase64(value) };
  if (Array.isArray(value)) return value.map(pack);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, pack(inner)]));
  }
  return value;
};

const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

const unpack = (value) => {
  if (Array.isArray(value)) return value.map(unpack);
  if (value && typeof value === "object") {
    if ("$base64" in value) return fromBase64(value.$base64);
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, unpack(inner)]));
  }
  return value;
};

// Follows one direction of the byte stream and calls `seen(type, flags)` for every packet, when its header is complete.
const packetCounter = (seen) => {
  let header = [];
  let body = 0;
  return (chunk) => {
    let at = 0;
    while (at < chunk.length) {
      if (body > 0) {
        const skipped = Math.min(body, chunk.length - at);
        body -= skipped;
        at += skipped;
        continue;
      }
      header.push(chunk[at]);
      at += 1;
      if (header.length > 1 && header.at(-1) < 128) {
        body = header.slice(1).reduce((length, digit, place) => length + (digit & 127) * 128 ** place, 0);
        seen(header[0] >> 4, header[0] & 15);
        header = [];
      }
    }
  };
};

// A WebSocket that counts unacknowledged PUBLISH packets where they pass: MQTT.js itself handles one packet at a time, so its own
// events cannot show how many the server has in flight.
const countingSocket = (url, protocols, wire) => {
  const socket = new WebSocket(url, protocols);
  const received = packetCounter((type, flags) => {
    if (type === 3 && (flags & 6) !== 0) {
      wire.unacked += 1;
      wire.maxUnacked = Math.max(wire.maxUnacked, wire.unacked);
    }
  });
  const sent = packetCounter((type) => {
    if (type === 4 || type === 7) wire.unacked -= 1;
  });
  socket.addEventListener("message", (event) => received(new Uint8Array(event.data)));
  const send = socket.send.bind(socket);
  socket.send = (data) => {
    sent(ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data));
    send(data);
  };
  return socket;
};

const operations = {
  connect({ id, url, options, holdAcks }) {
    const entry = { wire: { unacked: 0, maxUnacked: 0 }, held: [] };
    clients.set(id, entry);
    const settings = { ...options, reconnectPeriod: 0, resubscribe: false, createWebsocket: (to, protocols) => countingSocket(to, protocols, entry.wire) };
    if (holdAcks) settings.customHandleAcks = (topic, message, packet, done) => entry.held.push(() => done(0));
    const client = mqtt.connect(url, settings);
    entry.client = client;
    const tell = (kind, data) => window.report({ client: id, kind, data: pack(data) });
    client.on("packetreceive", (packet) => {
      if (packet.cmd !== "publish") tell("packet", packet);
    });
    client.on("message", (topic, payload, packet) => tell("message", { ...packet, wireTopic: packet.topic, topic, payload }));
    client.on("error", (error) => tell("error", { message: error.message, code: error.code ?? null }));
    client.on("close", () => tell("close", null));
  },
  subscribe({ id, filters, options }) {
    const { client } = clients.get(id);
    client.subscribe(filters, options, () => {});
    return client.getLastMessageId();
  },
  unsubscribe({ id, filters }) {
    const { client } = clients.get(id);
    client.unsubscribe(filters, () => {});
    return client.getLastMessageId();
  },
  publish({ id, handle, topic, payload, options }) {
    clients.get(id).client.publish(topic, payload, options, (error, packet) => {
      const data = { handle, error: error ? error.message : null, code: error?.code ?? packet?.reasonCode ?? 0, properties: packet?.properties ?? {} };
      window.report({ client: id, kind: "published", data: pack(data) });
    });
  },
  wire: ({ id }) => clients.get(id).wire,
  releaseAck: ({ id }) => void clients.get(id).held.shift()(),
  heldAcks: ({ id }) => clients.get(id).held.length,
  ping: ({ id }) => void clients.get(id).client.sendPing(),
  fallSilent: ({ id }) => void clients.get(id).client.keepaliveManager.destroy(),
  disconnect: ({ id, options }) => new Promise((resolve) => clients.get(id).client.end(false, options, () => resolve())),
  // Closes the WebSocket under the client's feet: no DISCONNECT is sent.
  drop: ({ id }) => void clients.get(id).client.stream.destroy(),
  close({ id }) {
    clients.get(id).client.end(true);
    clients.delete(id);
  },
};

window.operate = async ({ operation, data }) => pack(await operations[operation](unpack(data)));
