"""The systems: what is run at each broker, and how it is configured."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import relay
import scene

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ROOT / "target" / "bench-peers"
PYTHON = PEERS / "zenoh" / "bin" / "python"


def address(broker):
    return f"{relay.NETWORK}{broker + 1}"


def others(broker):
    return [other for other in range(scene.BROKERS) if other != broker]


def versions(whimbrel):
    """What the programs say that they are."""

    def said(*words):
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().split("\n")[0]

    package = "import importlib.metadata as m; print('zenoh', m.version('eclipse-zenoh'))"
    return [said(whimbrel, "--version"), said(PYTHON, "-c", package), said(PEERS / "nats-server", "--version")]


@dataclass(frozen=True)
class System:
    """One column of the table. `command(broker, folder, whimbrel)` writes what configuration it needs into the folder."""

    name: str
    title: str
    kind: str
    command: object
    is_ours: bool = False


def whimbrel(settings):
    def command(broker, folder, program):
        config = folder / "whimbrel.toml"
        config.write_text(f'[[topic]]\nfilter = "+"\ndeadline = "{scene.DEADLINE_MS} ms"\npaths = 2\n{settings}')
        listens = [f"--listen-{name}=off" for name in ("tls", "ws", "wss")]
        # One of the two ends of a link dials.
        peers = [f"--peer={address(other)}:7117" for other in others(broker) if other > broker]
        own = ["--listen-mqtt=127.0.0.1:1883", "--listen-http=127.0.0.1:8080", f"--listen-overlay={address(broker)}:7117"]
        return [program, "serve", "--dev", f"--name=b{broker + 1}", f"--config={config}", "--discover=false", "--overlay-links=0", *own, *listens, *peers]

    return command


def zenoh(more):
    def command(broker, folder, _):
        config = {
            "mode": "router",
            "listen": {"endpoints": ["tcp/127.0.0.1:7447", f"tcp/{address(broker)}:7447"]},
            "connect": {"endpoints": [f"tcp/{address(other)}:7447" for other in others(broker) if other > broker]},
            "scouting": {"multicast": {"enabled": False}},
        }
        path = folder / "zenoh.json5"
        path.write_text(json.dumps(config | more(config)))
        return [PYTHON, HERE / "router.py", path]

    return command


# A link without a message for three quarters of a second is closed, and dialled again within another second.
ZENOH_TUNED = {"transport": {"link": {"tx": {"lease": 750, "keep_alive": 4}}}}


def zenoh_tuned(config):
    retry = {"period_init_ms": 250, "period_max_ms": 1000, "period_increase_factor": 2}
    return ZENOH_TUNED | {"connect": config["connect"] | {"retry": retry}}


def nats(links, more=""):
    def command(broker, folder, _):
        path = folder / "nats.conf"
        path.write_text(f"server_name: b{broker + 1}\nlisten: 127.0.0.1:4222\n{more}{links(broker)}")
        return [PEERS / "nats-server", "-c", path]

    return command


def nats_leaf(broker):
    """Leaf nodes make a tree: all are leaves of the hub over which the pairs are fastest."""
    hub = scene.best_hub()
    if broker == hub:
        return f"leafnodes {{ listen: {address(hub)}:7422 }}\n"
    return f'leafnodes {{ remotes: [ {{ url: "nats-leaf://{address(hub)}:7422" }} ] }}\n'


def nats_cluster(broker):
    routes = ", ".join(f'"nats-route://{address(other)}:6222"' for other in others(broker))
    return f"cluster {{ name: c, listen: {address(broker)}:6222, routes: [{routes}] }}\n"


# A link whose other end has left three pings unanswered is closed: after three quarters of a second.
NATS_TUNED = 'ping_interval: "250ms"\nping_max: 2\n'

SYSTEMS = [
    System("whimbrel", "Whimbrel, two paths", "mqtt", whimbrel(""), is_ours=True),
    System("whimbrel-reliable", "Whimbrel, reliable", "mqtt", whimbrel('reliability = "reliable"\npersistence = "volatile"\n'), is_ours=True),
    System("zenoh", "Zenoh routers", "zenoh", zenoh(lambda config: {})),
    System("zenoh-tuned", "Zenoh routers, tuned", "zenoh", zenoh(zenoh_tuned)),
    System("nats-leaf", "NATS leaf nodes", "nats", nats(nats_leaf)),
    System("nats-leaf-tuned", "NATS leaf nodes, tuned", "nats", nats(nats_leaf, NATS_TUNED)),
    System("nats-cluster", "NATS cluster", "nats", nats(nats_cluster)),
    System("nats-cluster-tuned", "NATS cluster, tuned", "nats", nats(nats_cluster, NATS_TUNED)),
]
BY_NAME = {system.name: system for system in SYSTEMS}
