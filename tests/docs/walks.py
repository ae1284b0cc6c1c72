"""Walking through a document: every command that it shows is run, line by line, in a directory of its own, or is marked with why it is not."""

import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess

from tours import FENCE, PATIENCE, ROOT, Block, Terminal, Tour, matches, until

COMMENT = re.compile(r"^ *<!--(.*?)-->$", re.MULTILINE | re.DOTALL)
SHELL = ("sh", "bash", "shell", "console")
# Places as the documents have them, which are others here.
PLACES = {"/var/lib/whimbrel": "data", "/etc/whimbrel": "etc", "/backup": "backup"}
# What goes on until somebody ends it, and is a subscriber.
SUBSCRIBERS = re.compile(r"^(mosquitto_sub|whimbrel sub|python3 follow\.py)\b")
# Another broker than ours, which goes on as well.
MOSQUITTO = re.compile(r"^mosquitto -c (\S+)")
# A server of an engine, which goes on as well.
NATS = re.compile(r"^nats-server -c (\S+)")
# What a reader is told to do with a command that goes on.
INTERRUPTED = re.compile(r"#.*\b(interrupt|stop) it\b")
PASSWORD = "a long password\n"


class Step:
    """One thing to do in a document, in its order."""

    def __init__(self, kind, text, place):
        self.kind, self.text, self.place = kind, text, place


def commands_of(text):
    """The command lines of a block: a backslash at the end of a line joins it with the next."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.lstrip().startswith("#")]


def is_session(block):
    """A block that shows a prompt, and what is printed."""
    return block.language in ("", "console") and block.text.startswith("$ ")


def annotation(document, text, found):
    """What a comment of the document asks for, if it is one of those that do."""
    place = f"{document.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
    kind, colon, rest = found.group(1).strip().partition(":")
    if colon and kind in ("run", "comes", "not run") or kind.startswith("file "):
        return Step(kind, rest.strip(), place)
    return None


def steps(document):
    """Everything that is to be done in a document, and how many blocks are marked as not to be run."""
    text = document.read_text()
    found = sorted([*FENCE.finditer(text), *COMMENT.finditer(FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence.group()), text))], key=lambda one: one.start())
    todo, marked, waiting = [], 0, None
    for one in found:
        if one.re is COMMENT:
            step = annotation(document, text, one)
            is_name = step is not None and step.kind.startswith("file ") and not step.text
            assert step is None or step.text or is_name, f"{step.place}: nothing is said after “{step.kind}”"
            if step is not None and (step.kind == "not run" or is_name):
                assert is_name or len(step.text.split()) >= 3, f"{step.place}: what keeps it from being run?"
                waiting = (one.end(), step)
            elif step is not None:
                todo.append(step)
            continue
        block = Block(document, text, one)
        before, waiting = waiting, None
        assert before is None or not text[before[0] : one.start()].strip(), f"{before[1].place}: “{before[1].kind}” stands before no block"
        if before is not None and before[1].kind != "not run":
            todo.append(Step(before[1].kind, block.text, block.place))
        elif before is not None:
            assert block.language in SHELL or is_session(block), f"{before[1].place}: “not run” stands before a block without commands"
            marked += 1
        elif is_session(block):
            todo.append(Step("session", block.text, block.place))
        elif block.language in SHELL and "tour" not in block.words:
            todo.extend(Step("command", line, block.place) for line in commands_of(block.text))
    assert waiting is None, f"{waiting[1].place}: “{waiting[1].kind}” stands before no block"
    return todo, marked


class Walk(Tour):
    def __init__(self, place):
        super().__init__(place)
        self.here = place / "tour"
        self.all = []
        self.subscriber = None
        for path in PLACES.values():
            (place / path).mkdir()
        # What mosquitto's clients take as the default, that they tell when they have subscribed, and that they do not keep it for themselves,
        # as they do where there is no terminal.
        (place / ".config").mkdir()
        (place / ".config/mosquitto_sub").write_text(f"-p {self.ports[1883]}\n-d\n")
        (place / ".config/mosquitto_pub").write_text(f"-p {self.ports[1883]}\n")
        self.environment.pop("XDG_CONFIG_HOME", None)
        self.script("mosquitto_sub", f'exec stdbuf -oL "{shutil.which("mosquitto_sub")}" "$@"')
        # Documents speak of the one broker of a machine. That is the last one here; others of this machine are not the document's.
        self.pids = place / "pid"
        self.script("pidof", f'cat "{self.pids}"')
        # Whoever runs the broker here may ask it.
        self.script("sudo", '[ "$1" != -u ] || shift 2; exec "$@"')

    def script(self, name, text):
        path = self.place / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def with_free_ports(self, text):
        text = super().with_free_ports(text)
        text = re.sub(r"(?<=-p )\d{4}\b|(?<=127\.0\.0\.1 )\d{4}\b|(?<=^listener )\d{4}\b", lambda found: str(self.ports.get(int(found.group()), found.group())), text, flags=re.MULTILINE)
        for path, other in PLACES.items():
            text = re.sub(rf"(?<![\w./]){re.escape(path)}(?![\w-])", str(self.place / other), text)
        return text

    def file(self, name, text):
        """A later part of the same file stands below the former ones."""
        path = pathlib.Path(self.with_free_ports(name))
        with open(self.here / path, "a") as file:
            file.write(self.with_free_ports(text))

    def environment_for(self, command):
        """With an identity a broker has no listener without TLS but those that it names itself, and those with TLS only if it has a certificate."""
        if "whimbrel serve" not in command or "--dev" in command:
            return self.environment
        has_certificate = "--tls-cert" in command or "/etc/whimbrel" in command
        secure = "127.0.0.1:0" if has_certificate else "off"
        kept = {name: value for name, value in self.environment.items() if name != "WHIMBREL_LISTEN_MQTT"}
        return kept | {"WHIMBREL_LISTEN_WS": "off", "WHIMBREL_LISTEN_TLS": secure, "WHIMBREL_LISTEN_WSS": secure}

    def go_on(self, command, where):
        """Starts what does not end by itself."""
        is_broker = command.startswith("whimbrel serve")
        # By the port for clients, or, where that is any, by that for brokers.
        listener = re.search(r"--listen-mqtt \S+:(\d+)", command) or ("--dev" not in command and re.search(r"--listen-overlay \S+:(\d+)", command))
        port = int(listener.group(1)) if listener else 1883
        if is_broker:
            # A reader would have stopped the one that has the port.
            self.end_broker(port)
        before = self.subscriptions()
        terminal = Terminal(f"terminal-{len(self.all)}", self.with_free_ports(command), self.environment_for(command), self.place)
        self.all.append(terminal)
        terminal.broker, terminal.port = port if is_broker else None, None
        if is_broker:
            self.wait_for_broker(terminal, where)
        else:
            self.subscriber = terminal
            until(lambda: self.has_subscribed(terminal, command, before, where), terminal.told)

    def start_other(self, command, configuration, where):
        """Other servers have no line that says that they are ready, but they listen."""
        port = int(re.search(r"^listen(?:er|: 127\.0\.0\.1:) ?(\d+)", (self.here / configuration).read_text(), re.MULTILINE).group(1))
        for terminal in self.all:
            if terminal.port == port and terminal.process.poll() is None:
                terminal.process.send_signal(signal.SIGTERM)
                terminal.process.wait(PATIENCE)
        terminal = Terminal(f"terminal-{len(self.all)}", self.with_free_ports(command), self.environment, self.place)
        terminal.broker, terminal.port = None, port
        self.all.append(terminal)

        def listens():
            assert terminal.process.poll() is None, f"{where}: it has ended; {terminal.told()}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(listens, terminal.told)

    def wait_for_broker(self, terminal, where):
        class Place:
            place = where

        until(lambda: self.is_ready(terminal, Place), terminal.told)
        self.note_pids()

    def note_pids(self):
        running = [terminal for terminal in self.all if terminal.broker is not None and terminal.process.poll() is None]
        self.pids.write_text(str(running[-1].process.pid) if running else "")

    def end_broker(self, port):
        for terminal in self.all:
            if terminal.broker == port and terminal.process.poll() is None:
                terminal.process.send_signal(signal.SIGTERM)
                until(lambda terminal=terminal: terminal.process.poll() is not None, terminal.told)
        self.note_pids()

    def has_subscribed(self, terminal, command, before, where):
        if command.startswith("mosquitto_sub"):
            assert terminal.process.poll() is None, f"{where}: it has ended; {terminal.told()}"
            return "Subscribed" in terminal.shown()
        assert terminal.process.poll() in (None, 0), f"{where}: it has failed; {terminal.told()}"
        return terminal.process.poll() == 0 or self.subscriptions() > before

    def command(self, command, where):
        command = command.strip()
        other = MOSQUITTO.match(command) or NATS.match(command)
        if other:
            return self.start_other(command.removesuffix("&"), other.group(1), where)
        is_broker = command.startswith("whimbrel serve") and "--check" not in command
        if is_broker or (SUBSCRIBERS.match(command) and not re.search(r"--(count|within)\b|-C \d", command)):
            self.go_on(command, where)
            if INTERRUPTED.search(command):
                # mosquitto_sub that is interrupted says DISCONNECT; a session that outlives its connection stays.
                self.subscriber.process.send_signal(signal.SIGINT)
                self.subscriber.process.wait(PATIENCE)
            return
        done = self.run(command)
        assert done.returncode == 0, f"{where}: {command}\nended with {done.returncode}\n{self.printed}"

    def run(self, command):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.with_free_ports(command)], cwd=self.here, env=self.environment_for(command),
            input=PASSWORD if command.startswith("whimbrel passwd") else "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
        )
        self.printed = self.with_default_ports(done.stdout)
        return done

    def session(self, text, where):
        """A command behind a prompt, and that it prints a table with the columns that the document shows. What stands in the rows is the document's own."""
        first, columns = text.splitlines()[:2]

        def fits():
            return self.run(first.removeprefix("$ ")).returncode == 0 and matches(columns, self.printed.splitlines()[0])

        until(fits, lambda: f"{where}: instead of {columns} it prints\n{self.printed}")

    def comes(self, text, where):
        """What the subscriber that was started last prints, sooner or later."""
        until(lambda: any(line.endswith(text) for line in self.subscriber.shown().splitlines()), lambda: f"{where}: {text} does not come; {self.subscriber.told()}")

    def do(self, step):
        kind, _, name = step.kind.partition(" ")
        if kind == "file":
            return
        if kind == "run":
            for line in commands_of(step.text):
                self.command(line, step.place)
        else:
            {"command": self.command, "session": self.session, "comes": self.comes}[kind](step.text, step.place)

    def take(self, todo):
        # A document may show a file after the command that reads it.
        for step in todo:
            if step.kind.startswith("file "):
                self.file(step.kind.removeprefix("file "), step.text)
        for step in todo:
            self.do(step)

    def end(self):
        self.terminals = {terminal.name: terminal for terminal in self.all}
        super().end()
