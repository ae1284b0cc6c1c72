"""Blocks of documents, and taking a tour: its commands are run as they are written, in terminals that go on, and what they print is compared."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WHIMBREL_BIN")
# Ports as the documents have them.
TCP_PORTS = (1883, 1884, 8080, 8081, 8883)
UDP_PORTS = (7117, 7118)
# For whatever is waited for, seconds.
PATIENCE = 60

FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


# --- blocks and what they print


class Block:
    def __init__(self, document, text, found):
        self.document, self.place = document, f"{document.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
        words = found.group(2).split()
        self.language, self.words = (words[0] if words else ""), words[1:]
        self.text = found.group(3)
        self.terminal = next((word.removeprefix("in=") for word in self.words if word.startswith("in=")), None)


def blocks(document):
    text = document.read_text()
    return [Block(document, text, found) for found in FENCE.finditer(text)]


def matches(expected, printed):
    """Whether what was printed is what the document says."""

    def squeezed(line):
        return re.sub(r"\s+", " ", line).rstrip()

    lines = []
    for line in expected.strip("\n").splitlines():
        line = squeezed(line)
        lines.append(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n")
    shown = "".join(squeezed(line) + "\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch("".join(lines), shown) is not None


def until(condition, what):
    """Waits for a condition, and gives what it gives."""
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"in {PATIENCE} s: {what() if callable(what) else what}")
        time.sleep(0.05)  # tidy: poll — the condition of whoever calls


def free_port(kind):
    """One that nobody has, and that no listener with port 0 is given meanwhile: those are above."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


# --- the tour


class Terminal:
    """Something that goes on in the background, and what it has printed."""

    def __init__(self, name, command, environment, place):
        self.name, self.path = name, place / f"{name}.out"
        # What it tells people on standard error is not what the documents show.
        self.errors = place / f"{name}.err"
        with open(self.path, "wb") as out, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=place / "tour", env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )

    def shown(self):
        return self.path.read_text()

    def told(self):
        return f"{self.name} shows\n{self.shown()}\nand on standard error\n{self.errors.read_text()[-2000:]}"


class Tour:
    def __init__(self, place):
        self.place = place
        (place / "tour").mkdir()
        (place / "bin").mkdir()
        (place / "bin/whimbrel").symlink_to(pathlib.Path(BINARY).resolve())
        self.ports = {port: free_port(socket.SOCK_STREAM) for port in TCP_PORTS} | {port: free_port(socket.SOCK_DGRAM) for port in UDP_PORTS}
        keep = {name: value for name, value in os.environ.items() if not name.startswith("WHIMBREL_")}
        self.environment = keep | {
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "HOME": str(place),
            "NO_COLOR": "1",
            "WHIMBREL_URL": f"mqtt://127.0.0.1:{self.ports[1883]}",
            "WHIMBREL_LISTEN_MQTT": f"127.0.0.1:{self.ports[1883]}",
            "WHIMBREL_LISTEN_HTTP": f"127.0.0.1:{self.ports[8080]}",
        }
        for listener in ("TLS", "WS", "WSS"):
            self.environment[f"WHIMBREL_LISTEN_{listener}"] = "127.0.0.1:0"
        self.terminals = {}
        self.printed = ""
        self.last = None

    def with_free_ports(self, text):
        return re.sub(r"(?<=:)\d{4}\b", lambda found: str(self.ports.get(int(found.group()), found.group())), text)

    def with_default_ports(self, text):
        for port, free in self.ports.items():
            text = re.sub(rf"(?<=:){free}\b", str(port), text)
        return text

    def subscriptions(self):
        """How many subscriptions there are at all brokers that answer."""
        total = 0
        for port in (8080, 8081):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}/metrics", timeout=5) as answer:
                    total += int(re.search(rb"^whimbrel_subscriptions (\d+)", answer.read(), re.MULTILINE).group(1))
            except OSError:
                pass
        return total

    def start(self, block):
        former = self.terminals.get(block.terminal)
        if former is not None:
            until(lambda: former.process.poll() is not None, f"{block.place}: what runs in {block.terminal} has not ended")
        before = self.subscriptions()
        terminal = Terminal(block.terminal, self.with_free_ports(block.text), self.environment, self.place)
        self.terminals[block.terminal] = terminal
        if "whimbrel serve" in block.text:
            until(lambda: self.is_ready(terminal, block), terminal.told)
        elif "whimbrel sub" in block.text:
            until(lambda: terminal.process.poll() is not None or self.subscriptions() > before, terminal.told)

    def is_ready(self, terminal, block):
        assert terminal.process.poll() is None, f"{block.place}: it ended with {terminal.process.poll()}; {terminal.told()}"
        lines = terminal.shown().splitlines()
        return lines and json.loads(lines[0])["ready"]

    def do(self, block):
        """Runs it, and says whether it ended as it should."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.with_free_ports(block.text)], cwd=self.place / "tour", env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
        )
        self.printed, self.last = self.with_default_ports(done.stdout), block
        return (done.returncode != 0) == ("fails" in block.words), done.returncode

    def expect(self, block):
        if block.terminal is not None:
            terminal = self.terminals[block.terminal]
            until(lambda: matches(block.text, self.with_default_ports(terminal.shown())), lambda: f"{block.place}: {terminal.told()}")
        elif "until" in self.last.words:
            until(lambda: matches(block.text, self.printed) or (self.do(self.last) and False), lambda: f"{block.place}: printed was\n{self.printed}")
        else:
            assert matches(block.text, self.printed), f"{block.place}: printed was\n{self.printed}"

    def take(self, block):
        if block.language != "sh":
            self.expect(block)
        elif block.terminal is not None:
            self.start(block)
        elif "until" in block.words:
            until(lambda: self.do(block)[0], lambda: f"{block.place}: {self.printed}")
        else:
            is_right, code = self.do(block)
            assert is_right, f"{block.place}: it ended with {code}\n{self.printed}"

    def end(self):
        for terminal in self.terminals.values():
            if terminal.process.poll() is None:
                terminal.process.send_signal(signal.SIGKILL)
            terminal.process.wait(PATIENCE)
