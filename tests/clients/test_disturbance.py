"""What harm some clients do is bounded, counted, and felt by nobody else; and a crowd that returns at once is served."""

import contextlib
import os
import pathlib
import resource
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

import pytest

import broker as brokers
import raw
from model import DEADLINE, unique, wait_until
from raw import Connection

HERE = pathlib.Path(__file__).parent

# A bystander's p99 during an attack: at most so many times that before, plus a floor against the scheduler's noise.
FACTOR = 1.5
FLOOR_S = 0.001

# The bystander measures in turns, with the attack stopped and going on, so that the machine's other load falls on both alike; the
# median over the turns, so that a moment in which the whole machine stood still counts for no more than that.
TURNS = 9
SAMPLES_PER_TURN = 400
# At the beginning of a turn the broker may still be busy with the turn before.
SETTLING_SAMPLES = 50
# A calm client: this much time between its messages.
PAUSE_S = 0.001


# Real-time priority of the broker and the bystander while they are measured, so that other load on the machine is not.
PRIORITY = 1


class Bystander:
    """A publisher and a subscriber, who send each other one message at a time."""

    def __init__(self, broker):
        name = unique("t/bystander")
        self._subscriber, self._publisher = Connection(broker.address()), Connection(broker.address())
        self._subscriber.connect(unique("bystander"))
        self._subscriber.send(raw.subscribe(name))
        assert self._subscriber.read()[0] == raw.SUBACK
        self._publisher.connect(unique("bystander"))
        self._message = raw.publish(name, b"still here")

    def turn(self):
        """Seconds that each message took."""
        delays = []
        for _ in range(SETTLING_SAMPLES + SAMPLES_PER_TURN):
            unasked, _, _ = select.select([self._subscriber.socket], [], [], PAUSE_S)
            assert not unasked, "nothing comes that was not sent"
            start = time.perf_counter()
            self._publisher.send(self._message)
            kind, _, body = self._subscriber.read()
            delays.append(time.perf_counter() - start)
            assert kind == raw.PUBLISH and body.endswith(b"still here")
        return delays[SETTLING_SAMPLES:]

    def close(self):
        self._subscriber.close()
        self._publisher.close()


class Attack:
    """A process of attacks.py."""

    def __init__(self, name, broker, count):
        host, port = broker.address()
        self._process = subprocess.Popen([sys.executable, str(HERE / "attacks.py"), name, host, str(port), str(count)],
                                         stdout=subprocess.PIPE, text=True)

    def stop(self):
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._process.send_signal(signal.SIGCONT)

    def finish(self, deadline):
        """Lets it do the least number of its steps and end; returns how many it did."""
        self.go_on()
        self._process.terminate()
        output, _ = self._process.communicate(timeout=deadline)
        assert self._process.returncode == 0
        return int(output)

    def kill(self):
        self.go_on()
        self._process.kill()
        self._process.communicate()


def p99(delays):
    return sorted(delays)[int(len(delays) * 0.99)]


def threads_of(*processes):
    return [int(thread.name) for process in processes for thread in pathlib.Path(f"/proc/{process}/task").iterdir()]


@contextlib.contextmanager
def before_others(broker):
    """Gives the broker and this process the processors before whatever else the machine does, where that is permitted."""
    try:
        for thread in threads_of(broker.pid, os.getpid()):
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError:
        pass
    try:
        yield
    finally:
        for thread in threads_of(broker.pid, os.getpid()):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def measure(broker, attack):
    """p99 of a bystander's messages without and with the attack, in seconds: the median over the turns."""
    with before_others(broker):
        return take_turns(broker, attack)


def take_turns(broker, attack):
    bystander = Bystander(broker)
    calm, attacked = [], []
    for _ in range(TURNS):
        attack.stop()
        calm.append(p99(bystander.turn()))
        attack.go_on()
        attacked.append(p99(bystander.turn()))
    bystander.close()
    return statistics.median(calm), statistics.median(attacked)


def check(broker, attack, report):
    before, during = measure(broker, attack)
    report("p99 of a bystander", f"{before * 1e6:.0f} µs before, {during * 1e6:.0f} µs during")
    assert during <= FACTOR * before + FLOOR_S


@pytest.fixture
def report(record_property, request):
    """Notes a figure; it is printed at the end of the run."""

    def note(name, value):
        record_property(name, value)
        request.config.figures.append((request.node.name, f"{name}: {value}"))

    return note


@pytest.fixture
def attack(broker):
    started = []

    def start(name, count):
        started.append(Attack(name, broker, count))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def test_ten_thousand_malformed_connections(broker, attack, report):
    failures = broker.failures()
    process = attack("malformed", 10_000)
    check(broker, process, report)
    assert process.finish(120) >= 10_000
    assert broker.failures() > failures


def test_flood(broker, attack, report):
    check(broker, attack("flood", 0), report)


def test_clients_that_never_read(broker, attack, report):
    resident = broker.resident_bytes()
    dropped = broker.dropped()
    process = attack("never-reading", 0)
    check(broker, process, report)
    growth = broker.resident_bytes() - resident
    report("memory", f"{growth / 1e6:.0f} MB more for 20 clients that never read")
    assert growth < brokers.NEVER_READING_LIMIT
    assert broker.dropped() > dropped


def test_half_open_connections_are_closed(request, report):
    own = brokers.start(request.config.getoption("--broker"), connect_timeout="3s")
    process = Attack("half-open", own, 2_000)
    try:
        failures = own.failures()
        check(own, process, report)
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
