"""The network: an IP packet of any protocol that a broker's namespace sends into its TUN device comes out of the device of the namespace it is addressed
to, after the delay that the link between the two has at that moment, or not at all.

    relay.py --namespaces NAME... --trouble slow|hole --seed N --dwell SECONDS

It writes one line when it is ready, and reads one from standard input: the moment at which the first slot begins, in ns of the monotonic clock. When the
input ends, it prints what it has carried, and how late (JSON)."""

import argparse
import ctypes
import fcntl
import gc
import heapq
import json
import os
import select
import struct
import sys
import time

import scene

DEVICE = "tun0"
# The addresses of the brokers are NETWORK followed by their number, from 1 on.
NETWORK = "10.77.0."
# Packets on all links at once. What comes beyond is dropped, counted, and makes a run worthless.
IN_FLIGHT_MAX = 100_000
# Packets that are read from one device before the others have their turn.
BURST = 64
MTU = 1500

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_CLONE_NEWNET = 0x40000000
# Of an IPv4 header: version, and the last byte of the address.
_VERSION = 0
_TO = 19


def enter(namespace):
    """Makes this thread one of a network namespace, which is an open file."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"entering {namespace.name}")


def open_device(name):
    """The TUN device in a namespace, for packets without a header of its own. The device ends with the file."""
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{name}") as namespace:
        enter(namespace)
        try:
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
            return device
        finally:
            enter(own)


def states(seed, trouble, dwell_ns):
    """What the links are like, and from when on: pairs of a moment, ns from the first slot on, and for each pair of brokers the delay in ns, or None."""

    def by_ends(bad):
        by_link = scene.delays(bad, trouble)
        table = [[None] * scene.BROKERS for _ in range(scene.BROKERS)]
        for ((one, other), _), delay in zip(scene.MESH, by_link):
            table[one][other] = table[other][one] = None if delay == float("inf") else int(delay * 1e6)
        return table

    good = by_ends([False] * len(scene.MESH))
    slots = [(slot * dwell_ns, by_ends(bad)) for slot, bad in enumerate(scene.drawn(seed))]
    return good, [*slots, (scene.SLOTS * dwell_ns, good)]


class Relay:
    """All links."""

    def __init__(self, devices, seed, trouble, dwell_ns):
        self.devices = devices
        self.now_is, self.changes = states(seed, trouble, dwell_ns)
        self.first_slot = None
        self.flying = []
        self.number = 0
        self.carried = self.lost = self.refused = self.unsent = 0
        # How late packets came out, by steps of 0.1 ms; the last one has all beyond.
        self.lateness = [0] * 1001

    def follow(self, now):
        """The links become as they are at this moment."""
        while self.changes and self.first_slot is not None and now >= self.first_slot + self.changes[0][0]:
            self.now_is = self.changes.pop(0)[1]

    def take(self, source, now):
        """Takes packets out of a device."""
        row, device = self.now_is[source], self.devices[source]
        for _ in range(BURST):
            try:
                packet = os.read(device, MTU)
            except BlockingIOError:
                return
            if packet[_VERSION] >> 4 != 4:
                continue
            to = packet[_TO] - 1
            if not 0 <= to < len(row) or to == source:
                continue
            delay = row[to]
            if delay is None:
                self.lost += 1
            elif len(self.flying) >= IN_FLIGHT_MAX:
                self.refused += 1
            else:
                self.number += 1
                heapq.heappush(self.flying, (now + delay, self.number, to, packet))

    def give(self, now):
        """Gives those that have arrived to their devices."""
        while self.flying and self.flying[0][0] <= now:
            due, _, to, packet = heapq.heappop(self.flying)
            try:
                os.write(self.devices[to], packet)
                self.carried += 1
            except OSError:
                self.unsent += 1
            self.lateness[min((time.monotonic_ns() - due) // 100_000, 1000)] += 1

    def run(self, control):
        """Carries packets until `control` ends."""
        while True:
            now = time.monotonic_ns()
            self.follow(now)
            self.give(now)
            next_ = self.flying[0][0] if self.flying else now + 10_000_000
            ready, _, _ = select.select([*self.devices, control], [], [], max(0, next_ - time.monotonic_ns()) / 1e9)
            now = time.monotonic_ns()
            self.follow(now)
            for file in ready:
                if file is control:
                    line = control.readline()
                    if not line:
                        return
                    self.first_slot = int(line)
                else:
                    self.take(self.devices.index(file), now)

    def late_by(self, part):
        """The lateness, ms, that this part of all packets did not exceed."""
        wanted, so_far = part * sum(self.lateness), 0
        for step, count in enumerate(self.lateness):
            so_far += count
            if so_far >= wanted:
                return (step + 1) / 10
        return len(self.lateness) / 10

    def told(self):
        """What it has carried."""
        return {
            "carried": self.carried,
            "lost": self.lost,
            "refused": self.refused,
            "unsent": self.unsent,
            "late_ms": {"p50": self.late_by(0.5), "p99": self.late_by(0.99), "p99.9": self.late_by(0.999), "most": self.late_by(1)},
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespaces", nargs="+", required=True)
    parser.add_argument("--trouble", choices=scene.TROUBLES.values(), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--dwell", type=float, required=True)
    args = parser.parse_args()
    devices = [open_device(namespace) for namespace in args.namespaces]
    relay = Relay(devices, args.seed, args.trouble, int(args.dwell * 1e9))
    gc.disable()
    # Before all others: it is the network, which no program on a real machine can hold up.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    print("ready", flush=True)
    relay.run(sys.stdin)
    print(json.dumps(relay.told()))


if __name__ == "__main__":
    main()
