"""Starts the broker under test on free ports of the loopback interface."""

import json
import math
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request

from model import DEADLINE, wait_until

ROOT = pathlib.Path(__file__).parents[2]

# Limits the tests rely on, the same for every broker.
MAXIMUM_PACKET_SIZE = 2 * 1024 * 1024
SYS_INTERVAL_S = 1

# What 20 clients that never read may cost in memory: twice their queues.
NEVER_READING_LIMIT = 256 * 1024 * 1024

# Counters of dropped messages, and of refused and ended connections.
DROP_COUNTERS = ("whimbrel_dropped_slow_total", "whimbrel_dropped_queue_full_total", "whimbrel_kicked_slow_total")
FAILURE_COUNTERS = ("whimbrel_connections_ended_total", "whimbrel_connections_refused_total", "whimbrel_connect_timeouts_total")


class Broker:
    """A running broker. `address(transport)` tells where it listens."""

    name = "whimbrel"

    def __init__(self, ports, process, directory):
        self._ports = ports
        self._process = process
        self.directory = directory
        self._log = None

    @property
    def pid(self):
        return self._process.pid

    def address(self, transport="tcp"):
        return self._ports[transport]

    def is_alive(self):
        return self._process.poll() is None

    def resident_bytes(self):
        """Memory of the broker's process that is in RAM."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def metrics(self):
        """Every sample of /metrics: a dictionary from name with labels to value."""
        host, port = self.address("http")
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=DEADLINE) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def failures(self):
        """The sum of all counters of what clients did wrong, or the broker ended. Mosquitto has none: a number that always grows."""
        return self._count(FAILURE_COUNTERS, time.monotonic())

    def dropped(self):
        """The sum of all counters of messages that were dropped. Mosquitto: a number that always grows."""
        return self._count(DROP_COUNTERS, time.monotonic())

    def publishes_received(self):
        """How many PUBLISH packets have come. Mosquitto: a number beyond any."""
        return self._count(("whimbrel_publishes_received_total",), math.inf)

    def connect_timeouts(self):
        """How many connections were closed because no CONNECT came in time. Mosquitto: 0."""
        return self._count(("whimbrel_connect_timeouts_total",), 0)

    def _count(self, counters, unknown):
        if self.name == "mosquitto":
            return unknown
        return sum(value for name, value in self.metrics().items() if name.startswith(counters))

    def write_fences(self, circles):
        """Writes the file of fences that the configuration names: circles as name: (latitude, longitude, radius in metres)."""
        _write_fences(self.directory, circles)

    def read_again(self):
        """Tells the broker by SIGHUP to read its fences again and waits until it has; returns with which results.

        The broker also looks at its files by itself: what it reads after this call began is as good."""
        before = self._reloads()
        os.kill(self.pid, signal.SIGHUP)
        after = wait_until(lambda: (now := self._reloads()) != before and now, "fences to be read again")
        return {result for result, count in after.items() if count != before[result]}

    def _reloads(self):
        metrics = self.metrics()
        return {result: metrics[f'whimbrel_fence_reloads_total{{result="{result}"}}'] for result in ("changed", "unchanged", "refused")}

    def certificates(self):
        """A file with the certificates that the TLS listener shows, for clients that cannot do without one."""
        path = pathlib.Path(self.directory, "shown.pem")
        if not path.exists():
            host, port = self.address("tls")
            shown = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", "-showcerts"], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=DEADLINE, check=False).stdout
            chain = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", shown, re.DOTALL)
            path.write_text("".join(chain) or ssl.get_server_certificate((host, port)))
        return str(path)

    def stop(self):
        """Ends the broker with SIGTERM and returns its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"the broker was still running {DEADLINE} s after SIGTERM") from None


WHIMBREL_CONFIGURATION = """\
[limits]
connect_timeout = "{connect_timeout}"
max_packet_size = {maximum_packet_size}
receive_maximum = 32
session_queue = "4 MiB"
best_effort_queue = "1 MiB"
sys_interval = "{sys_interval}s"
silence_after = "1s"

[[partition]]
filter = "small/#"
capacity = "3 events"

# Small, so that tests of memory look for what should not be there.
[[partition]]
filter = "#"
capacity = "8 MB"

[[fence]]
file = "{fences}"

[[fence]]
name = "old town"
geojson = '''
{{"type": "Polygon", "coordinates": [[[21.005, 52.245], [21.016, 52.245], [21.016, 52.254], [21.005, 52.254], [21.005, 52.245]]]}}
'''

[[fence]]
name = "bridge"
[fence.geojson]
type = "Feature"
properties.width = 60
geometry = {{ type = "LineString", coordinates = [[21.018, 52.247], [21.034, 52.250]] }}
"""

# The fences of the file that is named by the configuration. A test that changes it uses names of its own.
FENCES_FILE = "fences.geojson"
CIRCLES = {"station": (52.2288, 21.0031, 250), "airport": (52.1657, 20.9671, 2500)}


def _write_fences(directory, circles):
    features = [{"type": "Feature", "properties": {"name": name, "radius": radius},
                 "geometry": {"type": "Point", "coordinates": [longitude, latitude]}}
                for name, (latitude, longitude, radius) in circles.items()]
    new = pathlib.Path(directory, f"{FENCES_FILE}.new")
    new.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    new.replace(pathlib.Path(directory, FENCES_FILE))


def start_whimbrel(directory, connect_timeout):
    """Starts `whimbrel serve --dev` and waits for its ready line."""
    binary = os.environ["WHIMBREL_BIN"]
    configuration = WHIMBREL_CONFIGURATION.format(connect_timeout=connect_timeout, maximum_packet_size=MAXIMUM_PACKET_SIZE,
                                                  sys_interval=SYS_INTERVAL_S, fences=FENCES_FILE)
    _write_fences(directory, CIRCLES)
    pathlib.Path(directory, "whimbrel.toml").write_text(configuration, encoding="utf-8")
    listen = [f"--listen-{kind}=127.0.0.1:0" for kind in ("mqtt", "tls", "ws", "wss", "http", "overlay")]
    log = open(pathlib.Path(directory, "broker.log"), "w", encoding="utf-8")
    process = subprocess.Popen([binary, "serve", "--dev", *listen], stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory)
    log.close()
    line = process.stdout.readline()
    try:
        ready = json.loads(line)
    except ValueError:
        process.kill()
        text = pathlib.Path(directory, "broker.log").read_text(encoding="utf-8")
        raise RuntimeError(f"no ready line from {binary}: {line!r}; its log says:\n{text}") from None
    threading.Thread(target=process.stdout.read, daemon=True).start()
    names = {"tcp": "mqtt", "tls": "tls", "ws": "ws", "wss": "wss", "http": "http"}
    ports = {}
    for transport, name in names.items():
        host, port = ready[name].rsplit(":", 1)
        ports[transport] = (host, int(port))
    return Broker(ports, process, directory)


MOSQUITTO_CONFIGURATION = """\
allow_anonymous true
sys_interval {sys_interval}
max_packet_size {maximum_packet_size}
max_topic_alias 10
listener {tcp} 127.0.0.1
listener {tls} 127.0.0.1
certfile {directory}/server.crt
keyfile {directory}/server.key
listener {ws} 127.0.0.1
protocol websockets
listener {wss} 127.0.0.1
protocol websockets
certfile {directory}/server.crt
keyfile {directory}/server.key
"""


def start_mosquitto(directory):
    """Starts mosquitto with the same listeners, to see whether a failure is the test's or the broker's."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", f"{directory}/server.key", "-out", f"{directory}/server.crt"],
                   check=True, capture_output=True)
    os.chmod(f"{directory}/server.key", 0o644)
    ports = {transport: ("127.0.0.1", _free_port()) for transport in ("tcp", "tls", "ws", "wss")}
    configuration = MOSQUITTO_CONFIGURATION.format(directory=directory, sys_interval=SYS_INTERVAL_S, maximum_packet_size=MAXIMUM_PACKET_SIZE,
                                                   **{transport: port for transport, (_, port) in ports.items()})
    path = pathlib.Path(directory, "mosquitto.conf")
    path.write_text(configuration, encoding="utf-8")
    log = open(pathlib.Path(directory, "broker.log"), "w", encoding="utf-8")
    process = subprocess.Popen(["mosquitto", "-v", "-c", str(path)], stdout=log, stderr=log)
    log.close()
    broker = Broker(ports, process, directory)
    broker.name = "mosquitto"
    for transport in ports:
        wait_until(lambda: _answers(broker.address(transport)), f"mosquitto to listen for {transport}")
    return broker


def start(kind, connect_timeout="10s"):
    directory = tempfile.mkdtemp(prefix="whimbrel-clients-")
    os.chmod(directory, 0o755)
    return start_mosquitto(directory) if kind == "mosquitto" else start_whimbrel(directory, connect_timeout)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(address):
    try:
        socket.create_connection(address, 1).close()
        return True
    except OSError:
        return False
