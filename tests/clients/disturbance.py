"""How long a bystander's messages take while other clients mean harm.

    python3 tests/clients/disturbance.py [ATTACK...]    measures, and judges: exit status 1 if a bystander waits too long

WHIMBREL_BIN names the binary. The broker and the bystander get real-time priority where that is permitted, so that other load on the
machine counts less; use an otherwise idle machine with two cores or more all the same. `make bench-disturbance` does both.
"""

import argparse
import contextlib
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import time

import broker as brokers
import raw
from model import unique
from raw import Connection

HERE = pathlib.Path(__file__).parent

# The judgement: a bystander's p99 during an attack is at most so many times that before, plus a floor against the scheduler's noise.
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

# Real-time priority of the broker and the bystander.
PRIORITY = 1

# So that half-open connections come and go while they are measured.
CONNECT_TIMEOUT = "3s"

ATTACKS = ("malformed", "flood", "never-reading", "half-open")


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
        """Seconds that each message took. Each must come, and nothing else."""
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


def take_turns(broker, attack, turns):
    """p99 of a bystander's messages without and with the attack, in seconds: the median over the turns."""
    bystander = Bystander(broker)
    calm, attacked = [], []
    for _ in range(turns):
        attack.stop()
        calm.append(p99(bystander.turn()))
        attack.go_on()
        attacked.append(p99(bystander.turn()))
    bystander.close()
    return statistics.median(calm), statistics.median(attacked)


def threads_of(*processes):
    return [int(thread.name) for process in processes for thread in pathlib.Path(f"/proc/{process}/task").iterdir()]


@contextlib.contextmanager
def before_others(broker, inherited=False):
    """Gives the broker and this process the processors before whatever else the machine does, where that is permitted.

    `inherited`: the broker keeps them afterwards, and so do processes that this one starts meanwhile."""
    try:
        for thread in threads_of(broker.pid, os.getpid()):
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError:
        print("no real-time priority here: other load on the machine counts")
    try:
        yield
    finally:
        for thread in threads_of(*([] if inherited else [broker.pid]), os.getpid()):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def measure(name):
    """p99 of a bystander without and with the attack of that name on a broker of their own, in seconds."""
    broker = brokers.start("whimbrel", connect_timeout=CONNECT_TIMEOUT)
    attack = Attack(name, broker, 0)
    try:
        with before_others(broker):
            return take_turns(broker, attack, TURNS)
    finally:
        attack.kill()
        broker.stop()


def main():
    parser = argparse.ArgumentParser(description="Measures how long a bystander waits while other clients mean harm.")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"{', '.join(ATTACKS)}; all of them if none is named")
    names = parser.parse_args().attacks or ATTACKS
    unknown = set(names) - set(ATTACKS)
    if unknown:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    print(f"p99 of a bystander; during an attack at most {FACTOR} times that before, plus {FLOOR_S * 1e6:.0f} µs")
    missed = False
    for name in names:
        before, during = measure(name)
        bound = FACTOR * before + FLOOR_S
        missed |= during > bound
        verdict = "missed" if during > bound else "kept"
        print(f"{name:14} {before * 1e6:6.0f} µs before, {during * 1e6:6.0f} µs during; {verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
