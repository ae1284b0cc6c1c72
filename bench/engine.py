#!/usr/bin/env python3
"""What an engine costs a broker: durable publishing beside a broker with its own disk, a start from the stream alone, and the pause when a server that leads is killed.

    bench/engine.py WHIMBREL NATS_SERVER [--rounds N] [--seconds S] [--megabytes M] [--only publish,start,leader]

Starts three servers and one broker for each acknowledgement on this machine, measures them in turns, in a new order in each round, and prints one object of JSON: medians over the rounds.
Ends with status 1 if a broker ends, or a message is not acknowledged while a server is killed.
"""

import argparse
import json
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

# For whatever is waited for, seconds.
PATIENCE = 60
# Publishers, and messages of each that wait for their acknowledgement.
LOADS = ((1, 1), (1, 64), (16, 1), (16, 64))
# How a broker acknowledges; `own` has no engine.
KINDS = ("own", "local", "engine", "both")
# Bytes of a message's body: with its head it is a record of some 418 bytes.
BODY = 370
RECORD = 418
# All that is published is logged, whether or not there are subscriptions.
SETTINGS = '[[topic]]\nfilter = "#"\npersistence = "persistent"\n'


def free_ports(count):
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def until(holds, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError(f"{what}: not within {PATIENCE} s")


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Servers:
    """Three servers of an engine."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.ports, self.monitors, routes = (free_ports(9)[at::3] for at in range(3))
        listed = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        for number in range(3):
            (folder / f"n{number}.conf").write_text(
                f"listen: 127.0.0.1:{self.ports[number]}\nhttp: 127.0.0.1:{self.monitors[number]}\nserver_name: n{number}\nmax_payload: 8MB\n"
                f'jetstream {{ store_dir: "{folder}/n{number}", sync_interval: always }}\n'
                f"cluster {{ name: engine, listen: 127.0.0.1:{routes[number]}, routes: [{listed}] }}\n"
            )
        self.processes = [None] * 3
        for number in range(3):
            self.run(number)
        for port in self.monitors:
            until(lambda port=port: "ok" in fetch(f"http://127.0.0.1:{port}/healthz"), "a server is healthy")

    def run(self, number):
        path = self.folder / f"n{number}"
        self.processes[number] = subprocess.Popen([self.program, "-c", f"{path}.conf", "-l", f"{path}.log"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].wait()

    def arguments(self):
        nats, http = (",".join(f"{kind}://127.0.0.1:{port}" for port in ports) for kind, ports in (("nats", self.ports), ("http", self.monitors)))
        return ["--engine", nats, "--engine-monitor", http]


class Broker:
    """A broker, which is its log and no process."""

    # All that have been started.
    processes = []

    def __init__(self, program, folder, name, kind, servers):
        self.program, self.name, self.data = program, name, folder / name
        self.port, self.http = free_ports(2)
        self.config = folder / f"{name}.toml"
        self.config.write_text(SETTINGS)
        self.log = folder / f"{name}.log"
        self.engine = [] if kind == "own" else [*servers.arguments(), "--engine-ack", kind]

    def start(self):
        """Starts it; how long it takes until it serves, seconds."""
        began = time.monotonic()
        command = [self.program, "serve", "--dev", "--config", self.config, "--name", self.name, "--data", self.data, "--listen-mqtt", f"127.0.0.1:{self.port}", "--listen-http", f"127.0.0.1:{self.http}"]
        command += [*("--listen-tls off --listen-ws off --listen-wss off --listen-overlay off".split()), *self.engine]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(self.process)

        def serves():
            assert self.process.poll() is None, f"{self.name} has ended: {self.log.read_text()[-2000:]}"
            return fetch(f"http://127.0.0.1:{self.http}/readyz")

        until(serves, f"{self.name} is ready")
        return time.monotonic() - began

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        self.process.wait()

    def publish(self, publishers, unacked, seconds, *more):
        """What `bench pub` tells."""
        command = [self.program, "bench", "pub", "t/{client}", "--json", "-n", publishers, "--unacked", unacked, "--body", BODY, "-r", 0, "-q", 1, "--seconds", seconds, "--url", f"mqtt://127.0.0.1:{self.port}", *more]
        told = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
        return json.loads(told)


def median(values):
    return round(statistics.median(values), 3)


def publish(args, brokers, draws):
    """Durable publishing, in turns."""
    found = {}
    for _ in range(args.rounds):
        for load in LOADS:
            for kind in draws.sample(KINDS, len(KINDS)):
                told = brokers[kind].publish(*load, args.seconds)
                found.setdefault((load, kind), []).append(told)
    rows = []
    for load in LOADS:
        for kind in KINDS:
            told = found[load, kind]
            waits = {name: median([one["acknowledge_us"][name] / 1000 for one in told]) for name in ("p50", "p99")}
            rows.append({"publishers": load[0], "window": load[1], "ack": kind, "per_second": round(median([one["sent_per_second"] for one in told])), "p50_ms": waits["p50"], "p99_ms": waits["p99"]})
    return rows


def start_again(args, folder, servers):
    """A broker is killed and its directory removed: how long until it serves, with a small log and with a large one."""
    rows = []
    for megabytes in (0, args.megabytes):
        broker = Broker(args.whimbrel, folder, f"again{megabytes}", "both", servers)
        broker.start()
        # One that is absent keeps the log.
        desk = ["--url", f"mqtt://127.0.0.1:{broker.port}", "--id", "desk", "--session", "86400"]
        subprocess.run([args.whimbrel, "sub", "t/#", *desk, "-q", "1", "--within", "1"], check=True, capture_output=True)
        sent = broker.publish(1, 1, 0.3)["acknowledged"]
        while sent * RECORD < megabytes * 1e6:
            sent += broker.publish(16, 64, 2)["acknowledged"]
        broker.kill()
        shutil.rmtree(broker.data)
        took = broker.start()
        rows.append({"published": sent, "logged_mb": round(sent * RECORD / 1e6), "serves_after_s": round(took, 2)})
        broker.end()
    return rows


def leader_dies(args, broker, servers):
    """The server that leads is killed while one publisher waits for each acknowledgement: the longest wait, seconds."""
    pauses = []
    for _ in range(args.rounds):
        command = [args.whimbrel, "engine", "status", "--json", "--name", broker.name, *servers.arguments()]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        leader = next(replica["server"] for replica in told["stream"]["replicas"] if replica["leads"])
        load = subprocess.Popen(
            [str(word) for word in (args.whimbrel, "bench", "pub", "t", "--json", "--unacked", 1, "-r", 0, "--seconds", 20, "--url", f"mqtt://127.0.0.1:{broker.port}")],
            stdout=subprocess.PIPE, text=True,
        )
        time.sleep(2)
        number = int(leader.removeprefix("n"))
        servers.kill(number)
        told = json.loads(load.communicate()[0])
        assert told["sent"] == told["acknowledged"], told
        pauses.append(told["acknowledge_us"]["max"] / 1e6)
        servers.run(number)
        until(lambda: "ok" in fetch(f"http://127.0.0.1:{servers.monitors[number]}/healthz"), "the server is healthy again")
    return {"pause_s": [round(pause, 2) for pause in pauses]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("whimbrel")
    parser.add_argument("nats_server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="publish,start,leader")
    args = parser.parse_args()
    args.whimbrel, only, found = str(pathlib.Path(args.whimbrel).resolve()), args.only.split(","), {}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        servers = Servers(args.nats_server, folder)
        brokers = {kind: Broker(args.whimbrel, folder, kind, kind, servers) for kind in KINDS}
        try:
            for broker in brokers.values():
                broker.start()
            if "publish" in only:
                found["publish"] = publish(args, brokers, random.Random(args.seed))
            if "leader" in only:
                found["leader"] = leader_dies(args, brokers["both"], servers)
            for broker in brokers.values():
                broker.end()
            if "start" in only:
                found["start"] = start_again(args, folder, servers)
        finally:
            for process in [*Broker.processes, *servers.processes]:
                process.kill()
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
