"""What every client driver shares: messages, acknowledgements, deadlines.

Property names are those of the MQTT 5 specification written as one word (`ContentType`), values are Python's:
`UserProperty` is a list of pairs, `SubscriptionIdentifier` a list of numbers, `CorrelationData` bytes.
"""

import itertools
import threading
import time
from dataclasses import dataclass, field

V311 = 4
V5 = 5

# Longest wait for anything that must happen, in seconds. Generous, since the machine may be busy; a passing run waits for events.
DEADLINE = 20.0

_serial = itertools.count(1)


def unique(prefix):
    """A name that no other test of this run uses."""
    return f"{prefix}-{next(_serial)}"


@dataclass
class Message:
    """A PUBLISH as a client's application sees it. `wire_topic` is empty where a topic alias stood for the topic."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    dup: bool = False
    properties: dict = field(default_factory=dict)
    wire_topic: str = ""

    def text(self):
        return self.payload.decode()


@dataclass
class Connack:
    session_present: bool
    properties: dict


@dataclass
class Will:
    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: dict = field(default_factory=dict)


@dataclass
class Ack:
    """Reason codes (or the granted QoS) of a PUBACK, PUBREC, SUBACK or UNSUBACK, and its properties."""

    codes: list
    properties: dict = field(default_factory=dict)

    @property
    def code(self):
        return self.codes[0]


class Ended(AssertionError):
    """The connection ended before what was waited for. `code`: of the server's DISCONNECT, None without one."""

    def __init__(self, code, what):
        super().__init__(f"the connection ended (code {code}) before {what}")
        self.code = code


class Refused(Exception):
    """CONNACK with an error, or the connection ended instead."""

    def __init__(self, code, text=""):
        super().__init__(f"connection refused: code {code} {text}")
        self.code = code


class Client:
    """One client id on one connection at a time. A driver implements the methods that raise NotImplementedError."""

    version = V5
    # Transports this client can use, the column's own first.
    transports = ("tcp",)

    def __init__(self, broker):
        self.broker = broker
        self._changed = threading.Condition()
        self._inbox = []
        self._acks = {}
        self._closed = None
        self.unacked = 0
        self.max_unacked = 0

    # What a driver implements.

    def connect(self, client_id=None, clean=True, keepalive=60, will=None, properties=None, transport=None, hold_acks=False):
        """Returns the Connack, or raises Refused. `hold_acks`: acknowledge only by `release_ack`."""
        raise NotImplementedError

    def subscribe(self, *filters, qos=0, no_local=False, retain_as_published=False, retain_handling=0, properties=None):
        raise NotImplementedError

    def unsubscribe(self, *filters):
        raise NotImplementedError

    def start_publish(self, topic, payload=b"", qos=0, retain=False, properties=None):
        """Sends, and returns what `finish_publish` takes."""
        raise NotImplementedError

    def finish_publish(self, handle):
        raise NotImplementedError

    def release_ack(self):
        """Acknowledges the oldest message held back (`hold_acks`)."""
        raise NotImplementedError

    def watch_unacked(self):
        """QoS > 0 messages received and not yet acknowledged; `max_unacked` is the most there ever were."""
        return self.unacked

    def ping(self):
        """Sends PINGREQ and waits for PINGRESP."""
        raise NotImplementedError

    def fall_silent(self):
        """Stops sending keep-alive pings."""
        raise NotImplementedError

    def disconnect(self, reason=0, properties=None):
        raise NotImplementedError

    def drop(self):
        """Ends the connection without DISCONNECT."""
        raise NotImplementedError

    def close(self):
        """Ends whatever is still open, at the end of a test."""
        raise NotImplementedError

    # What tests use besides.

    def publish(self, topic, payload=b"", qos=0, retain=False, properties=None):
        """Publishes and waits for the acknowledgement (QoS > 0)."""
        return self.finish_publish(self.start_publish(topic, payload, qos, retain, properties))

    def wait_for(self, condition, what, deadline=DEADLINE):
        """Waits until `condition()` is not None or False, and returns it."""
        end = time.monotonic() + deadline
        with self._changed:
            while True:
                value = condition()
                if value is not None and value is not False:
                    return value
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited {deadline} s in vain for {what}; closed: {self._closed}; inbox: {self._inbox[:3]}")
                self._changed.wait(left)

    def receive(self, deadline=DEADLINE):
        """The next message."""
        return self.wait_for(lambda: self._inbox.pop(0) if self._inbox else None, "a message", deadline)

    def receive_texts(self, count, deadline=DEADLINE):
        """The payloads of the next `count` messages."""
        return [self.receive(deadline).text() for _ in range(count)]

    def pending(self):
        """Messages that have arrived and were not yet taken."""
        with self._changed:
            return list(self._inbox)

    def wait_closed(self, deadline=DEADLINE):
        """Waits for the end of the connection; returns the reason code of the server's DISCONNECT, None without one."""
        return self.wait_for(lambda: self._closed, "the end of the connection", deadline)[0]

    @property
    def is_closed(self):
        return self._closed is not None

    # For drivers.

    def _note_message(self, message):
        with self._changed:
            self._inbox.append(message)
            self._changed.notify_all()

    def _note_unacked(self, change):
        with self._changed:
            self.unacked += change
            self.max_unacked = max(self.max_unacked, self.unacked)
            self._changed.notify_all()

    def _note_ack(self, key, ack):
        with self._changed:
            self._acks[key] = ack
            self._changed.notify_all()

    def _note_closed(self, code):
        with self._changed:
            if self._closed is None:
                self._closed = (code,)
            self._changed.notify_all()

    def _note_open(self):
        with self._changed:
            self._closed = None
            self._acks.clear()
            self.unacked = 0

    def _wait_ack(self, key, what):
        def arrived():
            if key in self._acks:
                return self._acks.pop(key)
            if self._closed is not None:
                raise Ended(self._closed[0], what)
            return None

        return self.wait_for(arrived, what)


def wait_until(condition, what, deadline=DEADLINE):
    """Waits until `condition()` holds and returns its value, looking again every few milliseconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline} s in vain for {what}")
        time.sleep(0.005)  # tidy: poll — the condition
