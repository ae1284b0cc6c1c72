"""Clients of the three systems, as small as the experiment allows: one publishes to a topic, one takes what is published to one, best effort."""

import json
import socket
import threading
import time

# Bytes that are read at once.
CHUNK = 65536
# How long a broker may take until it listens, s.
START_WITHIN = 15


class Received:
    """What a client gets from a socket, cut as its protocol says."""

    def __init__(self, sock):
        self.sock = sock
        self.bytes = bytearray()

    def more(self):
        got = self.sock.recv(CHUNK)
        if not got:
            raise ConnectionError("the broker has closed the connection")
        self.bytes += got

    def exactly(self, count):
        while len(self.bytes) < count:
            self.more()
        taken = bytes(self.bytes[:count])
        del self.bytes[:count]
        return taken

    def line(self):
        while (end := self.bytes.find(b"\r\n")) < 0:
            self.more()
        return self.exactly(end + 2)[:-2]


def connect(port):
    """A connection to the broker of this namespace, which may just be starting."""
    limit = time.monotonic() + START_WITHIN
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=START_WITHIN)
            break
        except ConnectionRefusedError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_apart(reads):
    """Runs what reads from a connection in a thread of its own, until the connection ends."""

    def run():
        try:
            reads()
        except OSError:
            return

    threading.Thread(target=run, daemon=True).start()


class Mqtt:
    """MQTT 3.1.1, QoS 0."""

    PORT = 1883

    def __init__(self, name):
        self.sock = connect(self.PORT)
        self.received = Received(self.sock)
        self.sock.sendall(self.packet(0x10, self.text("MQTT") + bytes([4, 2, 0, 0]) + self.text(name)))
        kind, body = self.read()
        if kind != 0x20 or body[1] != 0:
            raise ConnectionError(f"refused: {kind:#x} {body!r}")

    @staticmethod
    def text(text):
        return len(text).to_bytes(2, "big") + text.encode()

    @staticmethod
    def packet(kind, body):
        length, rest = bytearray(), len(body)
        while True:
            rest, low = divmod(rest, 128)
            length.append(low | (128 if rest else 0))
            if not rest:
                return bytes([kind]) + length + body

    def read(self):
        kind = self.received.exactly(1)[0]
        length = shift = 0
        while True:
            byte = self.received.exactly(1)[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return kind, self.received.exactly(length)

    def publish(self, topic, body):
        self.sock.sendall(self.packet(0x30, self.text(topic) + body))

    def subscribe(self, topic, take):
        self.sock.sendall(self.packet(0x82, bytes([0, 1]) + self.text(topic) + bytes([0])))
        kind, body = self.read()
        if kind != 0x90 or body[2] > 2:
            raise ConnectionError(f"not subscribed: {kind:#x} {body!r}")

        def reads():
            while True:
                kind, body = self.read()
                if kind & 0xF0 == 0x30:
                    take(body[2 + int.from_bytes(body[:2], "big") :])

        read_apart(reads)


class Nats:
    """The NATS protocol."""

    PORT = 4222

    def __init__(self, name):
        self.sock = connect(self.PORT)
        self.received = Received(self.sock)
        self.received.line()
        options = {"verbose": False, "pedantic": False, "echo": False, "name": name, "lang": "python", "version": "1", "protocol": 1}
        self.sock.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.take = None
        self.ping()
        read_apart(self.reads)

    def ping(self):
        """Waits until the server has handled all that was sent."""
        self.sock.sendall(b"PING\r\n")
        while (line := self.received.line()) != b"PONG":
            if line.startswith(b"-ERR"):
                raise ConnectionError(f"refused: {line!r}")

    def reads(self):
        while True:
            line = self.received.line()
            if line.startswith(b"MSG "):
                body = self.received.exactly(int(line.split()[-1]))
                self.received.exactly(2)
                self.take(body)
            elif line == b"PING":
                self.sock.sendall(b"PONG\r\n")

    def publish(self, topic, body):
        self.sock.sendall(b"PUB %s %d\r\n%s\r\n" % (topic.encode(), len(body), body))

    def subscribe(self, topic, take):
        self.take = take
        self.sock.sendall(b"SUB %s 1\r\n" % topic.encode())


class Zenoh:
    """A Zenoh client; its package is needed for it only."""

    PORT = 7447

    def __init__(self, name):
        import zenoh

        connect(self.PORT).close()
        config = zenoh.Config()
        for key, value in {
            "mode": "client",
            "connect/endpoints": [f"tcp/127.0.0.1:{self.PORT}"],
            "scouting/multicast/enabled": False,
        }.items():
            config.insert_json5(key, json.dumps(value))
        self.session = zenoh.open(config)
        self.publishers = {}

    def publish(self, topic, body):
        if topic not in self.publishers:
            self.publishers[topic] = self.session.declare_publisher(topic)
        self.publishers[topic].put(body)

    def subscribe(self, topic, take):
        self.subscriber = self.session.declare_subscriber(topic, lambda sample: take(sample.payload.to_bytes()))


KINDS = {"mqtt": Mqtt, "nats": Nats, "zenoh": Zenoh}
