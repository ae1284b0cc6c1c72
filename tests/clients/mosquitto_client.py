"""mosquitto_pub, mosquitto_sub and mosquitto_rr as processes."""

import json
import re
import signal
import subprocess
import threading

from model import DEADLINE, unique

_MARK = ">> "


class Mosquitto:
    """Starts the tools with one protocol version against one broker, and ends what is left at the end of a test."""

    def __init__(self, broker, version):
        self.broker = broker
        self.version = version
        self._started = []

    def _arguments(self, tool, transport="tcp"):
        host, port = self.broker.address(transport)
        arguments = [tool, "-d", "-V", "5" if self.version == 5 else "311", "-h", host, "-p", str(port)]
        if transport == "tls":
            arguments += ["--cafile", self.broker.certificates(), "--insecure"]
        return arguments

    def publish(self, topic, payload=None, *options, qos=0, lines=None, transport="tcp", check=True):
        """Runs mosquitto_pub to its end. `payload` None publishes an empty message; `lines` publishes one message for each."""
        arguments = self._arguments("mosquitto_pub", transport) + ["-t", topic, "-q", str(qos), *options]
        given = None
        if lines is not None:
            arguments.append("-l")
            given = "".join(f"{line}\n" for line in lines).encode()
        elif payload is None:
            arguments.append("-n")
        else:
            arguments.append("-s")
            given = payload if isinstance(payload, bytes) else payload.encode()
        done = subprocess.run(arguments, input=given, capture_output=True, timeout=DEADLINE, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stdout!r} {done.stderr!r}")
        return done

    def subscribe(self, *filters, options=(), qos=0, client_id=None, transport="tcp", wait=True):
        """Starts mosquitto_sub and waits for its SUBACK."""
        arguments = self._arguments("mosquitto_sub", transport) + ["-F", f"{_MARK}%j", "-q", str(qos)]
        arguments += ["-i", client_id or unique("mosquitto"), *options]
        for name in filters:
            arguments += ["-t", name]
        subscriber = Process(arguments)
        self._started.append(subscriber)
        if wait:
            subscriber.line(r"Subscribed \(mid: 1\)")
        return subscriber

    def request(self, topic, response_topic, payload, *options):
        """Starts mosquitto_rr, which publishes a request and prints the response."""
        arguments = self._arguments("mosquitto_rr") + ["-F", f"{_MARK}%j", "-t", topic, "-e", response_topic, "-m", payload, *options]
        requester = Process(arguments)
        self._started.append(requester)
        return requester

    def close(self):
        for process in self._started:
            process.kill()


class Process:
    """A running tool and what it has printed."""

    def __init__(self, arguments):
        self._changed = threading.Condition()
        self._lines = []
        self._read = 0
        self._taken = 0
        # Without a terminal the tools would keep their output back in a buffer.
        self._process = subprocess.Popen(["stdbuf", "-oL", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def _collect(self):
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._lines.append("<end>")
            self._changed.notify_all()

    def _wait(self, find, what):
        found = None

        def look():
            nonlocal found
            found = find()
            return found is not None or self._lines[-1:] == ["<end>"]

        with self._changed:
            self._changed.wait_for(look, DEADLINE)
            if found is None:
                raise AssertionError(f"waited in vain for {what}; printed: {self._lines[-10:]}")
            return found

    def line(self, pattern):
        """Waits for a line that matches, after the last one so found; returns the match."""

        def find():
            for at in range(self._read, len(self._lines)):
                if match := re.search(pattern, self._lines[at]):
                    self._read = at + 1
                    return match
            return None

        return self._wait(find, pattern)

    def lines(self):
        with self._changed:
            return list(self._lines)

    def receive(self):
        """The next message, as the JSON object that mosquitto_sub prints; user properties as a list of pairs."""

        def find():
            for at in range(self._taken, len(self._lines)):
                if self._lines[at].startswith(_MARK):
                    self._taken = at + 1
                    return self._lines[at]
            return None

        return json.loads(self._wait(find, "a message").removeprefix(_MARK), object_pairs_hook=_pairs)

    def receive_texts(self, count):
        return [self.receive()["payload"] for _ in range(count)]

    def pending(self):
        """Payloads that arrived and were not yet taken."""
        with self._changed:
            return [json.loads(line.removeprefix(_MARK))["payload"] for line in self._lines[self._taken:] if line.startswith(_MARK)]

    def stop(self):
        """SIGSTOP: the process is there and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def terminate(self):
        """SIGTERM: with MQTT 5, mosquitto_sub then sends DISCONNECT with reason 0x04."""
        self._process.terminate()
        self.wait()

    def kill(self):
        """SIGKILL: the connection ends without DISCONNECT."""
        self._process.kill()
        self.wait()

    def wait(self):
        status = self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return status


def _pairs(pairs):
    """Keeps the order and the repetitions of user properties, which are an object in what mosquitto_sub prints."""
    result = dict(pairs)
    if len(result) != len(pairs):
        return {"pairs": pairs}
    return result
