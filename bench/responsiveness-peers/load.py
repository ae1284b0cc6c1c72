"""The load at one broker, the same for all systems: its publishers and subscribers, each with a connection of its own, in the broker's namespace.

    load.py --kind mqtt|nats|zenoh --broker N --seed N --out FILE

It writes one line when all are subscribed, reads the moments from and to which is published (ns of the monotonic clock), and when the input has ended it
writes what was sent and received to the file."""

import argparse
import gc
import json
import os
import struct
import sys
import threading
import time

import clients
import scene

# The beginning of a body: the event's number, and when it was sent.
STAMP = struct.Struct("<QQ")


class Subscriber:
    """Notes what it gets: each event's number, and when it came."""

    def __init__(self, kind, pair, topic):
        self.got = []
        self.client = clients.KINDS[kind](pair)
        self.client.subscribe(topic, self.take)

    def take(self, body):
        self.got.append((STAMP.unpack_from(body)[0], time.monotonic_ns()))


def publish(client, topic, begin, end, sent):
    """Publishes an event every scene.EVERY_NS, and notes when each was sent."""
    fill = bytes(scene.BODY - STAMP.size)
    for number in range((end - begin) // scene.EVERY_NS):
        wait = begin + number * scene.EVERY_NS - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        now = time.monotonic_ns()
        sent.append(now)
        client.publish(topic, STAMP.pack(number, now) + fill)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=clients.KINDS, required=True)
    parser.add_argument("--broker", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    sys.setswitchinterval(0.0002)
    subscribers = {
        pair: Subscriber(args.kind, pair, scene.TOPICS[topic]) for pair, topic, to in scene.PAIRS if to == args.broker
    }
    mine = [topic for topic, broker in enumerate(scene.PUBLISHERS) if broker == args.broker]
    publishers = {topic: clients.KINDS[args.kind](f"p{topic + 1}") for topic in mine}
    gc.collect()
    gc.disable()
    print("ready", flush=True)
    begin, end = map(int, sys.stdin.readline().split())
    sent = {topic: [] for topic in publishers}
    threads = []
    for topic, client in publishers.items():
        phase = scene.phases(args.seed)[topic]
        thread = threading.Thread(target=publish, args=(client, scene.TOPICS[topic], begin + phase, end, sent[topic]), daemon=True)
        thread.start()
        threads.append(thread)
    sys.stdin.readline()
    for thread in threads:
        thread.join(timeout=1)
    with open(args.out, "w") as file:
        json.dump({"sent": sent, "got": {pair: subscriber.got for pair, subscriber in subscribers.items()}}, file)
    # Without the farewells of the clients: sessions of Zenoh take seconds for theirs.
    os._exit(0)


if __name__ == "__main__":
    main()
