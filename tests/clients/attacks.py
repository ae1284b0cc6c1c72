"""Clients that mean harm, as a process of their own: `attacks.py NAME HOST PORT COUNT`.

An attack goes on until it has done COUNT of its steps and SIGTERM has come; SIGSTOP and SIGCONT interrupt it at any time. At the end it
prints the number of steps.
"""

import collections
import os
import random
import signal
import socket
import sys

import raw

# Attackers have machines of their own. Here they share the processors with the broker and the bystander, so they stand back.
NICENESS = 19

# Fixed, so that a failure can be seen again.
SEED = 7

# For anything that the broker must do, in seconds.
DEADLINE = 60

HALF_OPEN_AT_ONCE = 1000

# Messages of one step of a flood.
FLOOD_BLOCK = 2000


class Steps:
    """Counts up to the least number of steps, and on until SIGTERM."""

    def __init__(self, least):
        self.done = 0
        self._least = least
        self._told_to_end = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _signal, _frame):
        self._told_to_end = True

    def __iter__(self):
        while self.done < self._least or not self._told_to_end:
            yield self.done
            self.done += 1


def read_to_end(connection):
    connection.settimeout(DEADLINE)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass


def malformed(address, steps):
    """Connections that send garbage, or a conversation with one byte changed, and wait to be thrown out."""
    source = random.Random(SEED)
    good = raw.connect("harm") + raw.subscribe("harm/#", "x/+") + raw.publish("harm/1", b"payload", qos=1)
    for _ in steps:
        data = bytearray(good)
        kind = source.randrange(3)
        if kind == 0:
            data = bytearray(source.randbytes(source.randrange(1, 200)))
        elif kind == 1:
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
        else:
            del data[source.randrange(1, len(data)):]
        with socket.socket() as connection:
            connection.connect(address)
            try:
                connection.sendall(bytes(data))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # Thrown out already.
            read_to_end(connection)


def flood(address, steps):
    """Publishes as fast as the socket takes it."""
    connection = raw.Connection(address)
    connection.connect("flood")
    block = raw.publish("flood/x", b"0123456789abcdef") * FLOOD_BLOCK
    for _ in steps:
        connection.socket.sendall(block)


def never_reading(address, steps):
    """Subscribers with small buffers that read nothing, and a publisher that floods them with both kinds of messages."""
    deaf = []
    for number in range(20):
        connection = raw.Connection(address, receive_buffer=4096)
        connection.connect(f"deaf-{number}")
        connection.send(raw.subscribe("deaf/#", options=number % 2))
        deaf.append(connection)
    connection = raw.Connection(address)
    connection.connect("to-the-deaf")
    for number in steps:
        connection.send(raw.publish("deaf/0", bytes(1000)) * 20 + raw.publish("deaf/1", bytes(1000), qos=1, mid=1 + number % 60000))
        while connection.read()[0] != raw.PUBACK:
            pass


def half_open(address, steps):
    """Connections that send nothing, or half a CONNECT, and stay until they are thrown out."""
    connections = collections.deque()
    for number in steps:
        connection = socket.create_connection(address)
        connection.sendall(raw.connect("half")[:number % 8])
        connections.append(connection)
        if len(connections) == HALF_OPEN_AT_ONCE:
            read_to_end(connections.popleft())
    for connection in connections:
        read_to_end(connection)


def main():
    os.nice(NICENESS)
    attack = {"malformed": malformed, "flood": flood, "never-reading": never_reading, "half-open": half_open}[sys.argv[1]]
    steps = Steps(int(sys.argv[4]))
    attack((sys.argv[2], int(sys.argv[3])), steps)
    print(steps.done, flush=True)


if __name__ == "__main__":
    main()
