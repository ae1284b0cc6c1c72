"""The longest time for which a bystander's message is held up while one input makes the broker work, at default bounds.

    python3 tests/clients/turns.py [INPUT...]    measures, and judges: exit status 1 if a bystander waits too long

WHIMBREL_BIN names the binary. What is measured is the longest delay of one message, so whatever else the machine does counts; the broker and the
bystander get real-time priority where that is permitted. `make bench-disturbance` does this, too.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import broker as brokers
import raw
from disturbance import before_others
from raw import Connection

# A bystander's message may take this much longer than the longest of a calm time.
BOUND_S = 0.020

# How long the bystander measures before the input, and after it has been answered: work may go on.
CALM_S = 1.0
AFTER_S = 1.0
# Between its messages.
PAUSE_S = 0.0005
# An input may take this long altogether.
PATIENCE_S = 300

RETAINED = 150_000
# As many as the default bound lets one session have.
SUBSCRIPTIONS = 10_000
SESSIONS = 5_000

CONFIGURATION = """\
[[fence]]
file = "fences.geojson"
"""


def start(directory, is_logged):
    """A broker with default bounds, and perhaps with a log."""
    pathlib.Path(directory, "whimbrel.toml").write_text(CONFIGURATION, encoding="utf-8")
    write_fences(directory, 1)
    listen = [f"--listen-{kind}=127.0.0.1:0" for kind in ("mqtt", "http")]
    off = [f"--listen-{kind}=off" for kind in ("tls", "ws", "wss", "overlay", "quic")]
    off += ["--data", "data"] if is_logged else []
    log = open(pathlib.Path(directory, "broker.log"), "w", encoding="utf-8")
    process = subprocess.Popen([os.environ["WHIMBREL_BIN"], "serve", "--dev", *listen, *off], stdout=subprocess.PIPE, stderr=log, text=True,
                               cwd=directory)
    log.close()
    ready = json.loads(process.stdout.readline())
    threading.Thread(target=process.stdout.read, daemon=True).start()
    ports = {}
    for transport, name in {"tcp": "mqtt", "http": "http"}.items():
        host, port = ready[name].rsplit(":", 1)
        ports[transport] = (host, int(port))
    return brokers.Broker(ports, process, directory)


def write_fences(directory, radius):
    features = [{"type": "Feature", "properties": {"name": f"f{n}", "radius": radius},
                 "geometry": {"type": "Point", "coordinates": [21 + n / 1000, 52]}} for n in range(100)]
    new = pathlib.Path(directory, "fences.geojson.new")
    new.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    new.replace(pathlib.Path(directory, "fences.geojson"))


def watch(address, pipe):
    """The bystander, a process of its own: sends itself one message at a time; tells the longest delay since it was last asked."""
    subscriber, publisher = Connection(address), Connection(address)
    subscriber.connect("bystander-s")
    subscriber.send(raw.subscribe("bystander"))
    assert subscriber.read()[0] == raw.SUBACK
    publisher.connect("bystander-p")
    message, longest = raw.publish("bystander", b"x"), 0.0
    while True:
        begun = time.perf_counter()
        publisher.send(message)
        subscriber.socket.settimeout(PATIENCE_S)
        assert subscriber.read()[0] == raw.PUBLISH
        longest = max(longest, time.perf_counter() - begun)
        if pipe.poll(PAUSE_S):
            if pipe.recv() == "end":
                return
            pipe.send(longest)
            longest = 0.0


def client(broker, name, **arguments):
    connection = Connection(broker.address())
    connection.socket.settimeout(PATIENCE_S)
    connection.connect(name, **arguments)
    return connection


def answered(connection, kind):
    """Reads up to that answer."""
    while (found := connection.read())[0] != kind:
        pass
    return found


def session(name, expiry):
    """Arguments for a session that outlives its connection by `expiry` seconds."""
    return {"flags": 0, "properties": b"\x11" + expiry.to_bytes(4, "big")}


def retain(broker, count, size=2):
    """Retains messages, `site/<n>/device/<n>/state`."""
    publisher = client(broker, "retainer")
    for block in blocks(count, size):
        publisher.send(block)
    publisher.send(b"\xc0\x00")
    answered(publisher, raw.PINGRESP)
    return publisher


def blocks(count, size=2):
    topics = (f"site/{n % 500}/device/{n}/state" for n in range(count))
    packets = [raw.publish(topic, b"x" * size, flags=1) for topic in topics]
    return [b"".join(packets[at:at + 500]) for at in range(0, count, 500)]


def filters(count, first="many"):
    return [f"{first}/{n % 100}/+/{n}" for n in range(count)]


def full(broker, **arguments):
    """A client whose session has as many subscriptions as it may."""
    subscriber = client(broker, "subscriber", **arguments)
    subscriber.send(raw.subscribe(*filters(SUBSCRIPTIONS)))
    answered(subscriber, raw.SUBACK)
    return subscriber


def unsubscribe(names):
    return raw.packet(0xa2, b"\x00\x02\x00" + b"".join(raw.string(name) for name in names))


UNSUBACK = 11


def retained_written(broker):
    prepared = blocks(RETAINED)
    publisher = client(broker, "retainer")
    yield
    for block in prepared:
        publisher.send(block)
    publisher.send(b"\xc0\x00")
    answered(publisher, raw.PINGRESP)


def retained_logged(broker):
    """They are written, too, lazily: the most of it a second later."""
    yield from retained_written(broker)
    yield 3


def retained_filters(broker):
    retain(broker, RETAINED)
    subscriber = client(broker, "dashboard")
    yield
    subscriber.send(raw.subscribe(*(f"+/+/device/+/n{n}" for n in range(200))))
    answered(subscriber, raw.SUBACK)


def retained_branches(broker):
    """No text of the filters is missing, but no topic has all of them."""
    retain(broker, RETAINED)
    other = client(broker, "other")
    other.send(b"".join(raw.publish(f"a/b/c/d/n{n}", b"x", flags=1) for n in range(200)))
    subscriber = client(broker, "dashboard")
    yield
    subscriber.send(raw.subscribe(*(f"+/+/device/+/n{n}" for n in range(20))))
    answered(subscriber, raw.SUBACK)
    yield 3


def retained_all(broker):
    retain(broker, RETAINED)
    subscriber = client(broker, "dashboard")
    yield
    subscriber.send(raw.subscribe("#"))
    answered(subscriber, raw.SUBACK)
    for _ in range(RETAINED):
        assert subscriber.read()[0] == raw.PUBLISH


def subscribed(broker):
    subscriber = client(broker, "subscriber")
    packet = raw.subscribe(*filters(SUBSCRIPTIONS))
    yield
    subscriber.send(packet)
    answered(subscriber, raw.SUBACK)


def subscribed_again(broker):
    subscriber = client(broker, "subscriber")
    packet = raw.subscribe(*(["again/+"] * SUBSCRIPTIONS))
    yield
    subscriber.send(packet)
    answered(subscriber, raw.SUBACK)


def unsubscribed(broker):
    subscriber = full(broker)
    packet = unsubscribe(filters(SUBSCRIPTIONS))
    yield
    subscriber.send(packet)
    answered(subscriber, UNSUBACK)


def session_ended(broker):
    subscriber = full(broker)
    yield
    subscriber.close()


def session_begun_anew(broker):
    subscriber = full(broker, **session("subscriber", 1000))
    subscriber.close()
    yield
    client(broker, "subscriber")


def sessions_expired(broker):
    """Many sessions with some subscriptions each expire together."""
    for n in range(SESSIONS):
        one = client(broker, f"s{n}", **session(f"s{n}", 8))
        one.send(raw.subscribe(*(f"s/{n}/{k}/+" for k in range(10))))
        answered(one, raw.SUBACK)
        one.send(b"\xe0\x00")
        one.close()
    yield
    yield 9


def sessions_listed(broker):
    for n in range(SESSIONS):
        one = client(broker, f"s{n}", **session(f"s{n}", 1000))
        one.send(raw.subscribe(*(f"s/{n}/{k}/+" for k in range(4))))
        answered(one, raw.SUBACK)
        one.send(b"\xe0\x00")
        one.close()
    yield
    host, port = broker.address("http")
    for path in ("/api/v1/sessions?limit=1000", "/api/v1/sessions?contains=nothing", "/metrics"):
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE_S) as answer:
            answer.read()


def fences_reloaded(broker):
    """Fences change that 2,000 selectors name."""
    subscriber = client(broker, "subscriber")
    for n in range(2_000):
        where = raw.string("w-selector") + raw.string(f"within('f{n % 100}') AND speed > {n}")
        subscriber.send(raw.subscribe(f"fleet/{n}/+", properties=b"\x26" + where))
        answered(subscriber, raw.SUBACK)
    yield
    write_fences(broker.directory, 2)
    broker.read_again()


def cache_divided(broker):
    """The cache is divided in another way while it is full."""
    publisher = client(broker, "publisher")
    block = b"".join(raw.publish(f"cached/{n}", b"x" * 100) for n in range(500))
    for _ in range(800):
        publisher.send(block)
    publisher.send(b"\xc0\x00")
    answered(publisher, raw.PINGRESP)
    yield
    partition = '[[partition]]\nfilter = "cached/1/#"\ncapacity = "1000 events"\n'
    pathlib.Path(broker.directory, "whimbrel.toml").write_text(CONFIGURATION + partition, encoding="utf-8")
    broker.read_again()


LOGGED = {"retained-logged"}

# Each is a generator: it prepares, yields, does its work, and may yield for how many seconds that goes on after the answer.
INPUTS = {
    "retained-written": retained_written,
    "retained-logged": retained_logged,
    "retained-filters": retained_filters,
    "retained-branches": retained_branches,
    "retained-all": retained_all,
    "subscribed": subscribed,
    "subscribed-again": subscribed_again,
    "unsubscribed": unsubscribed,
    "session-ended": session_ended,
    "session-begun-anew": session_begun_anew,
    "sessions-expired": sessions_expired,
    "sessions-listed": sessions_listed,
    "fences-reloaded": fences_reloaded,
    "cache-divided": cache_divided,
}


def measure(name):
    """The longest delay of a bystander before and during that input, in seconds."""
    directory = tempfile.mkdtemp(prefix="whimbrel-turns-")
    broker = start(directory, name in LOGGED)
    try:
        work = INPUTS[name](broker)
        next(work)
        ours, theirs = multiprocessing.Pipe()
        bystander = multiprocessing.Process(target=watch, args=(broker.address(), theirs), daemon=True)
        with before_others(broker, inherited=True):
            bystander.start()
        ours.poll(CALM_S)
        ours.send("tell")
        calm = ours.recv()
        ours.poll(AFTER_S + (next(work, None) or 0))
        ours.send("tell")
        busy = ours.recv()
        ours.send("end")
        bystander.join(PATIENCE_S)
        return calm, busy
    finally:
        broker.stop()
        shutil.rmtree(directory)


def main():
    parser = argparse.ArgumentParser(description="Measures for how long one input holds a bystander up.")
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help=f"{', '.join(INPUTS)}; all of them if none is named")
    names = parser.parse_args().inputs or INPUTS
    unknown = set(names) - set(INPUTS)
    if unknown:
        parser.error(f"no such input: {', '.join(sorted(unknown))}")
    print(f"the longest delay of a bystander's message; with an input at most that of a calm second, plus {BOUND_S * 1e3:.0f} ms")
    missed = False
    for name in names:
        calm, busy = measure(name)
        is_missed = busy > calm + BOUND_S
        missed |= is_missed
        print(f"{name:20} {calm * 1e3:7.1f} ms before, {busy * 1e3:7.1f} ms during; {'missed' if is_missed else 'kept'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
