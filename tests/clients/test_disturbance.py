"""What harm some clients do is bounded, counted, and kept from everybody else; and a crowd that returns at once is served.

How long others wait meanwhile is told, but not judged: that depends on what else the machine does. `make bench-disturbance` judges it."""

import resource
import socket
import struct
import time

import pytest

import broker as brokers
import raw
from attacks import FLOOD_BLOCK
from disturbance import Attack, take_turns
from model import DEADLINE, unique, wait_until
from raw import Connection

# Turns of the bystander without and with the attack: a few, since nothing is judged by them.
TURNS = 3

# What the broker may hold for one client that floods it, when nobody wants its messages: far more than it reads ahead.
FLOOD_LIMIT = 64 * 1024 * 1024


@pytest.fixture
def report(record_property, request):
    """Notes a figure; it is printed at the end of the run."""

    def note(name, value):
        record_property(name, value)
        request.config.figures.append((request.node.name, f"{name}: {value}"))

    return note


@pytest.fixture
def undisturbed(report):
    """Sees that a bystander gets each of its messages, and nothing else, while an attack goes on."""

    def check(broker, attack):
        before, during = take_turns(broker, attack, TURNS)
        report("p99 of a bystander", f"{before * 1e6:.0f} µs before, {during * 1e6:.0f} µs during")

    return check


@pytest.fixture
def attack(broker):
    started = []

    def start(name, count):
        started.append(Attack(name, broker, count))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def test_ten_thousand_malformed_connections(broker, attack, undisturbed):
    failures = broker.failures()
    process = attack("malformed", 10_000)
    undisturbed(broker, process)
    assert process.finish(120) >= 10_000
    assert broker.failures() > failures


def test_flood(broker, attack, undisturbed, report):
    resident = broker.resident_bytes()
    received = broker.publishes_received()
    process = attack("flood", 1)
    undisturbed(broker, process)
    blocks = process.finish(DEADLINE)
    # All of it is taken: a flood is slowed down by its own connection, not thrown away.
    wait_until(lambda: broker.publishes_received() >= received + blocks * FLOOD_BLOCK, "the whole flood to be received")
    report("flood", f"{blocks * FLOOD_BLOCK} messages")
    assert broker.resident_bytes() - resident < FLOOD_LIMIT


def test_clients_that_never_read(broker, attack, undisturbed, report):
    resident = broker.resident_bytes()
    dropped = broker.dropped()
    process = attack("never-reading", 0)
    undisturbed(broker, process)
    growth = broker.resident_bytes() - resident
    report("memory", f"{growth / 1e6:.0f} MB more for 20 clients that never read")
    assert growth < brokers.NEVER_READING_LIMIT
    assert broker.dropped() > dropped


def test_half_open_connections_are_closed(request, undisturbed):
    own = brokers.start(request.config.getoption("--broker"), connect_timeout="3s")
    process = Attack("half-open", own, 2_000)
    try:
        failures = own.failures()
        undisturbed(own, process)
        assert process.finish(90) >= 2_000
        assert own.failures() >= failures + 2_000 or own.name == "mosquitto"
    finally:
        process.kill()
        own.stop()


CROWD = 10_000


@pytest.fixture
def crowd_address(broker):
    """The broker's address, if this process may open a connection for each of the crowd."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= CROWD + 200, f"this test opens {CROWD} connections, and the limit of open files is {soft}: raise it (ulimit -n)"
    return broker.address()


def test_ten_thousand_clients_return_at_once(broker, crowd_address, report):
    """Sessions with a message waiting; all lose their connection, all come back at the same time, all are served."""
    expiry = b"\x11" + struct.pack("!I", 300)
    hello = [raw.connect(f"crowd-{n}", flags=0, properties=expiry) for n in range(CROWD)]
    crowd = []
    for number in range(CROWD):
        client = Connection(crowd_address, source="127.0.0.2")
        client.send(hello[number] + raw.subscribe(f"crowd/{number}", options=1))
        crowd.append(client)
    for client in crowd:
        assert [client.read()[0], client.read()[0]] == [raw.CONNACK, raw.SUBACK]
    for client in crowd:
        client.reset()

    publisher = Connection(crowd_address)
    publisher.connect(unique("publisher"))
    window = 16
    for first in range(0, CROWD, window):
        batch = range(first, min(first + window, CROWD))
        publisher.send(b"".join(raw.publish(f"crowd/{n}", str(n).encode(), qos=1, mid=1 + n) for n in batch))
        for _ in batch:
            assert publisher.read()[0] == raw.PUBACK

    start = time.monotonic()
    sockets = []
    for _ in range(CROWD):
        client = socket.socket()
        client.bind(("127.0.0.3", 0))
        client.setblocking(False)
        client.connect_ex(crowd_address)
        sockets.append(client)
    for number, client in enumerate(sockets):
        client.settimeout(DEADLINE)
        wait_until(lambda: _sent(client, hello[number]), f"client {number} to be connected")
    for number, client in enumerate(sockets):
        connection = Connection.__new__(Connection)
        connection.socket, connection._buffer = client, b""
        kind, _, body = connection.read()
        assert (kind, body[0], body[1]) == (raw.CONNACK, 1, 0), "its session is there"
        kind, _, body = connection.read()
        assert kind == raw.PUBLISH and body.endswith(str(number).encode())
    report("served", f"{CROWD} clients in {time.monotonic() - start:.1f} s")
    for client in sockets:
        client.close()


def _sent(client, data):
    try:
        return client.send(data) == len(data)
    except (BlockingIOError, OSError):
        return False
