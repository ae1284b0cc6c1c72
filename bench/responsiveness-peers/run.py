#!/usr/bin/env python3
"""Whimbrel, Zenoh and NATS side by side: five brokers of each, in network namespaces behind the same model of the links, under the same load.

    run.py [--whimbrel PROGRAM] [--seeds N...] [--dwell SECONDS] [--system NAME...] [--trouble a b] [--together N] [--out DIR] [--fresh] [--report]

In ten slots each link is in trouble with a chance of 0.12: (a) it becomes 100 ms slow, (b) it loses everything. What is counted is the share of events that are late, more
than 50 ms, lost ones included, and that are lost. Each play (a system, a trouble, a seed) is kept in DIR and not played again; the table is of all that DIR has, and DIR/peers.json has
it, too. It takes Linux and root. The exit status is 1 when ours is not ahead in some row."""

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import relay
import scene
import systems

HERE = Path(__file__).resolve().parent

# From the brokers' start to the first event: links are up, and measured.
WARM_UP = 8
# Events before the first slot, s: of those of the last two seconds all have to come, and nearly all in time, or the set-up is wrong.
BEFORE = 5
PROVEN = 2
PROVEN_LATE = 5
# After the last slot all links are well; what has not come then is lost.
DRAIN = 10
# The priority of all that is measured, before whatever else the machine does; the relay's is higher still.
NICE = -19
# How long a process may take to be ready, or to end, s.
READY_WITHIN = 30
END_WITHIN = 10

_numbers = itertools.count()


# Set when this program is to end: plays give up, and clean up.
_ending = threading.Event()


def pause(seconds):
    """Lets a play go on for some time."""
    if _ending.wait(max(0, seconds)):
        raise Failed("ended before its time")


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Failed(Exception):
    """A play that proves nothing."""


class Process:
    """A process in a namespace, whose output goes to a log; it ends with its input, or is ended."""

    def __init__(self, words, log, namespace=None):
        within = ["nice", "-n", str(NICE), *(["ip", "netns", "exec", namespace] if namespace else [])]
        self.words, self.log = list(map(str, words)), log
        with open(log, "a") as errors:
            self.child = subprocess.Popen([*within, *self.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def await_line(self):
        """Waits for a line on its output."""
        timer = threading.Timer(READY_WITHIN, self.child.kill)
        timer.start()
        line = self.child.stdout.readline()
        timer.cancel()
        if not line:
            raise Failed(f"{' '.join(self.words)} is not ready:\n{Path(self.log).read_text()[-2000:]}")
        return line

    def tell(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def end(self):
        """Closes its input, and gives what it prints until it has ended."""
        try:
            return self.child.communicate(timeout=END_WITHIN)[0]
        except subprocess.TimeoutExpired:
            self.child.kill()
            return self.child.communicate()[0]

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self.end()

    def cpu(self):
        """The CPU time that it has taken, s."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def namespaces():
    """Names of namespaces, one for each broker, each with nothing but its loopback; they end with the block."""
    mine = f"peers-{os.getpid()}-{next(_numbers)}"
    names = [f"{mine}-{broker + 1}" for broker in range(scene.BROKERS)]
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def busy():
    """Of the machine: seconds of all cores that were busy, and all."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]))
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


class Play:
    """A system under a trouble, with a seed."""

    def __init__(self, system, trouble, seed, args):
        self.system, self.trouble, self.seed, self.args = system, trouble, seed, args

    @property
    def path(self):
        return self.args.out / f"{self.system.name}-{self.trouble}-{self.seed}.json"

    def load(self):
        """What it has found before, if it was played so."""
        if self.args.fresh and not self.args.report or not self.path.exists():
            return None
        found = json.loads(self.path.read_text())
        return found if found["dwell"] == self.args.dwell else None

    def run(self):
        """Plays it and keeps what it finds."""
        with tempfile.TemporaryDirectory(prefix="peers-") as folder, contextlib.ExitStack() as stack:
            found = self.play(Path(folder), stack)
        self.path.write_text(json.dumps(found, indent=1) + "\n")
        return found

    def start(self, stack, words, log, namespace=None):
        process = Process(words, log, namespace)
        stack.callback(process.stop)
        return process

    def play(self, folder, stack):
        names = stack.enter_context(namespaces())
        links = self.links(stack, names, folder)
        brokers = []
        for broker, name in enumerate(names):
            own = folder / f"b{broker + 1}"
            own.mkdir()
            words = self.system.command(broker, own, self.args.whimbrel)
            brokers.append(self.start(stack, words, own / "log", name))
        started = time.monotonic()
        loads = self.loads(stack, names, folder)
        pause(started + WARM_UP - time.monotonic())
        first = time.monotonic_ns() + BEFORE * 10**9
        end = first + int(scene.SLOTS * self.args.dwell * 1e9)
        links.tell(str(first))
        for load in loads:
            load.tell(f"{first - BEFORE * 10**9} {end}")
        before = busy()
        pause((end - time.monotonic_ns()) / 1e9)
        after = busy()
        pause(DRAIN)
        cpu = [broker.cpu() for broker in brokers]
        results = []
        for load in loads:
            load.end()
        for broker in range(scene.BROKERS):
            results.append(json.loads((folder / f"load{broker + 1}.json").read_text()))
        for broker in brokers:
            broker.stop()
        told = json.loads(links.end())
        if told["refused"] or told["unsent"]:
            raise Failed(f"the relay has dropped packets by itself: {told}")
        pairs = self.judge(results, first, end)
        return {
            "system": self.system.name,
            "trouble": self.trouble,
            "seed": self.seed,
            "dwell": self.args.dwell,
            "pairs": pairs,
            "links": told,
            "brokers_cpu_s": round(sum(cpu), 2),
            "machine_busy": round((after[0] - before[0]) / (after[1] - before[1]), 3),
        }

    def links(self, stack, names, folder):
        """The relay with its devices, which get their addresses."""
        words = [sys.executable, HERE / "relay.py", "--trouble", scene.TROUBLES[self.trouble], "--seed", self.seed, "--dwell", self.args.dwell]
        links = self.start(stack, [*words, "--namespaces", *names], folder / "links.log")
        links.await_line()
        for broker, name in enumerate(names):
            run("ip", "-n", name, "addr", "add", f"{systems.address(broker)}/24", "dev", relay.DEVICE)
            run("ip", "-n", name, "link", "set", relay.DEVICE, "mtu", str(relay.MTU), "up")
        return links

    def loads(self, stack, names, folder):
        python = systems.PYTHON if self.system.kind == "zenoh" else sys.executable
        loads = []
        for broker, name in enumerate(names):
            words = [python, HERE / "load.py", "--kind", self.system.kind, "--broker", broker, "--seed", self.seed]
            loads.append(self.start(stack, [*words, "--out", folder / f"load{broker + 1}.json"], folder / f"load{broker + 1}.log", name))
        for load in loads:
            load.await_line()
        return loads

    def judge(self, results, first, end):
        """By pair: the counts of the events within the slots."""
        pairs = {}
        for pair, topic, to in scene.PAIRS:
            sent = results[scene.PUBLISHERS[topic]]["sent"][str(topic)]
            received = results[to]["got"][pair]
            proof = scene.judge(sent, received, first - PROVEN * 10**9, first)
            if not proof.sent or proof.lost or proof.share("late") > PROVEN_LATE:
                raise Failed(f"{self.system.name}, {pair}: before any trouble {proof}")
            pairs[pair] = vars(scene.judge(sent, received, first, end))
        return pairs


def whole(found):
    """The counts of all pairs of a play."""
    tally = scene.Tally()
    for pair in found["pairs"].values():
        tally.add(scene.Tally(**pair))
    return tally


class Table:
    """What was found, by system, trouble and seed."""

    def __init__(self, plays, args):
        self.args = args
        self.found = {(play.system.name, play.trouble, play.seed): found for play in plays if (found := play.load())}

    def shares(self, name, trouble, what):
        """By seed: the share of a system's events, per cent."""
        plays = [found for (system, of, _), found in sorted(self.found.items()) if (system, of) == (name, trouble)]
        return [whole(found).share(what) for found in plays]

    def of_truth(self, share, trouble):
        """The mean of a share of the links' truth over the seeds that were played."""
        return mean([share(seed) for seed in sorted({seed for _, of, seed in self.found if of == trouble})])

    def floor(self, trouble, what):
        return self.of_truth(lambda seed: scene.floors(seed, scene.TROUBLES[trouble])[what], trouble)

    def rows(self):
        """A row for each trouble, what is counted, one of ours and another system that were played."""
        ours, others = ([system for system in systems.SYSTEMS if system.is_ours is is_ours] for is_ours in (True, False))
        rows = []
        for trouble, what, own, other in itertools.product(self.args.trouble, ("late", "lost"), ours, others):
            shares, theirs = (self.shares(system.name, trouble, what) for system in (own, other))
            if not shares or not theirs:
                continue
            rows.append(
                {
                    "id": f"{trouble}-{what}-{own.name}-{other.name}",
                    "measure": f"({trouble}) events {what}, {own.name} beside {other.name}",
                    "unit": "%",
                    "paper": None,
                    "ours": mean(shares),
                    "spread": [min(shares), max(shares)],
                    "floor": self.floor(trouble, what),
                    "goal": {"op": "<", "value": mean(theirs)},
                    "theirs_spread": [min(theirs), max(theirs)],
                    "met": scene.is_ahead(mean(shares), mean(theirs)),
                }
            )
        return rows

    def text(self):
        lines = [f"{'':<28} {'(a) late':>9} {'lost':>9} {'worst ms':>9} {'(b) late':>9} {'lost':>9} {'worst ms':>9} {'CPU s':>7}  seeds"]
        for system in systems.SYSTEMS:
            cells, cpu, seeds = [], [], set()
            for trouble in scene.TROUBLES:
                for what in ("late", "lost"):
                    shares = self.shares(system.name, trouble, what)
                    cells.append(f"{mean(shares):8.3f}%" if shares else f"{'-':>9}")
                plays = [(seed, found) for (name, of, seed), found in self.found.items() if (name, of) == (system.name, trouble)]
                cells.append(f"{max(whole(found).worst_ms for _, found in plays):9.0f}" if plays else f"{'-':>9}")
                cpu += [found["brokers_cpu_s"] for _, found in plays]
                seeds |= {seed for seed, _ in plays}
            if seeds:
                lines.append(f"{system.title:<28} {' '.join(cells)} {mean(cpu):7.1f}  {' '.join(map(str, sorted(seeds)))}")
        floors = [f"{self.floor(trouble, what):8.3f}%" if self.shares_of(trouble) else f"{'-':>9}" for trouble in scene.TROUBLES for what in ("late", "lost")]
        lines.append(f"{'floor':<28} {floors[0]} {floors[1]} {'':>9} {floors[2]} {floors[3]}")
        direct = [f"{self.of_truth(scene.direct, trouble):8.3f}%" if self.shares_of(trouble) else f"{'-':>9}" for trouble in scene.TROUBLES]
        lines.append(f"{'direct link in trouble':<28} {direct[0]} {'':>9} {'':>9} {direct[1]}")
        lates = [found["links"]["late_ms"]["p99.9"] for found in self.found.values()]
        busies = [found["machine_busy"] for found in self.found.values()]
        if lates:
            lines.append(f"links: 99.9 % of all packets came out at most {max(lates)} ms late in every play; the machine was busy for {100 * max(busies):.0f} % at most")
        return "\n".join(lines)

    def shares_of(self, trouble):
        return any(of == trouble for _, of, _ in self.found)


def mean(values):
    return sum(values) / len(values)


def machine():
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, Linux {os.uname().release}"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whimbrel", default=str(systems.ROOT / "target" / "release" / "whimbrel"), help="the program [target/release/whimbrel]")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="seeds of the troubles [1]")
    parser.add_argument("--dwell", type=float, default=18, help="the length of a slot, s: the paper's 180 by ten [18]")
    parser.add_argument("--system", nargs="+", choices=systems.BY_NAME, default=list(systems.BY_NAME), help="systems to play [all]")
    parser.add_argument("--trouble", nargs="+", choices=scene.TROUBLES, default=list(scene.TROUBLES), help="troubles to play [a b]")
    parser.add_argument("--together", type=int, default=2, help="plays at the same time [2]")
    parser.add_argument("--out", type=Path, default=Path("lab-out") / "peers", help="where plays and the table are kept [lab-out/peers]")
    parser.add_argument("--fresh", action="store_true", help="play again what was played before")
    parser.add_argument("--report", action="store_true", help="only the table of what was played before")
    return parser.parse_args()


def main():
    args = options()
    args.out.mkdir(parents=True, exist_ok=True)
    plays = [
        Play(systems.BY_NAME[name], trouble, seed, args) for seed in args.seeds for name in args.system for trouble in args.trouble
    ]
    wanted = [] if args.report else [play for play in plays if play.load() is None]
    failures = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _ending.set())

    def one(play):
        try:
            pause(0)
            tally = whole(play.run())
            print(f"{play.system.name} ({play.trouble}) seed {play.seed}: late {tally.share('late'):.3f} %, lost {tally.share('lost'):.3f} %", flush=True)
        except Failed as failure:
            failures.append(play)
            print(f"{play.system.name} ({play.trouble}) seed {play.seed} failed: {failure}", flush=True)

    with ThreadPoolExecutor(args.together) as pool:
        list(pool.map(one, wanted))
    args.fresh = False
    table = Table(plays, args)
    rows = table.rows()
    report = {
        "experiment": "responsiveness-peers",
        "driver": "real",
        "seeds": args.seeds,
        "dwell_s": args.dwell,
        "machine": machine(),
        "versions": systems.versions(args.whimbrel),
        "rows": rows,
    }
    (args.out / "peers.json").write_text(json.dumps(report, indent=1) + "\n")
    print(table.text())
    missed = [row for row in rows if not row["met"]]
    for row in missed:
        print(f"missed: {row['measure']}: {row['ours']:.3f} % beside {row['goal']['value']:.3f} %")
    print(f"ours is ahead in {len(rows) - len(missed)} of {len(rows)} rows")
    sys.exit(1 if missed or failures else 0)


if __name__ == "__main__":
    main()
