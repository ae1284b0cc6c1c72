"""MQTT.js in headless Chromium as a driver: the clients run in the page, this side tells them what to do."""

import base64
import itertools
import json
import pathlib
import subprocess
import threading

from model import DEADLINE, V5, Ack, Client, Connack, Message, Refused, unique, wait_until

HERE = pathlib.Path(__file__).parent

# MQTT.js has its own names for two properties, and booleans for the one-byte ones.
_BOOLEANS = {"PayloadFormatIndicator", "RequestResponseInformation", "RequestProblemInformation"}


def _to_js(properties):
    result = {}
    for name, value in (properties or {}).items():
        if name == "UserProperty":
            pairs = {}
            for key, text in value:
                pairs.setdefault(key, []).append(text)
            result["userProperties"] = pairs
        elif name in _BOOLEANS:
            result[name[0].lower() + name[1:]] = bool(value)
        else:
            result[name[0].lower() + name[1:]] = value
    return result


def _from_js(properties):
    result = {}
    for name, value in (properties or {}).items():
        name = name[0].upper() + name[1:]
        if name == "UserProperties":
            result["UserProperty"] = [
                (key, text) for key, texts in value.items() for text in (texts if isinstance(texts, list) else [texts])]
        elif name == "SubscriptionIdentifier":
            result[name] = value if isinstance(value, list) else [value]
        elif name in _BOOLEANS:
            result[name] = int(value)
        else:
            result[name] = value
    return result


def _pack(value):
    if isinstance(value, bytes):
        return {"$base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: _pack(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(inner) for inner in value]
    return value


def _unpack(value):
    if isinstance(value, dict):
        if "$base64" in value:
            return base64.b64decode(value["$base64"])
        return {name: _unpack(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_unpack(inner) for inner in value]
    return value


class Browser:
    """One headless Chromium with the test page, shared by all clients of a run."""

    def __init__(self):
        self._process = subprocess.Popen(["node", str(HERE / "browser.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._changed = threading.Condition()
        self._results = {}
        self._serial = itertools.count(1)
        self._clients = {}
        self._ended = None
        first = json.loads(self._process.stdout.readline() or "{}")
        if not first.get("ready"):
            raise RuntimeError(f"Chromium did not start ({first}); see the messages above")
        self.version = first["browser"]
        threading.Thread(target=self._read, daemon=True).start()

    def attach(self, client):
        """A new number for a client; what the page reports for it goes to `client.on_report`."""
        number = next(self._serial)
        self._clients[number] = client
        return number

    def call(self, operation, **data):
        number = next(self._serial)
        self._write({"call": number, "operation": operation, "data": _pack(data)})
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._results or self._ended, DEADLINE):
                raise AssertionError(f"the page did not answer {operation} within {DEADLINE} s")
            if self._ended:
                raise AssertionError(f"the browser ended: {self._ended}")
            answer = self._results.pop(number)
        if "error" in answer:
            raise AssertionError(f"{operation} failed in the page: {answer['error']}")
        return _unpack(answer["result"])

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _write(self, value):
        with self._changed:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _read(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            if "call" in answer:
                with self._changed:
                    self._results[answer["call"]] = answer
                    self._changed.notify_all()
            elif "client" in answer:
                self._clients[answer["client"]].on_report(answer["kind"], _unpack(answer["data"]))
            else:
                self._end(str(answer))
        self._end("its output closed")

    def _end(self, why):
        with self._changed:
            self._ended = self._ended or why
            self._changed.notify_all()


class MqttJsClient(Client):
    def __init__(self, broker, browser, version, transports):
        super().__init__(broker)
        self.version = version
        self.transports = transports
        self.client_id = None
        self._browser = browser
        self._number = None
        self._connack = None
        self._error = None
        self._disconnect_code = None

    def connect(self, client_id=None, clean=True, keepalive=60, will=None, properties=None, transport=None, hold_acks=False):
        transport = transport or self.transports[0]
        host, port = self.broker.address(transport)
        self.client_id = unique("js") if client_id is None else client_id
        options = {"protocolVersion": self.version, "clientId": self.client_id, "clean": clean, "keepalive": keepalive,
                   "connectTimeout": int(DEADLINE * 1000)}
        if self.version == V5:
            options["properties"] = _to_js(properties)
        if will is not None:
            options["will"] = {"topic": will.topic, "payload": will.payload.decode(), "qos": will.qos, "retain": will.retain}
            if self.version == V5:
                options["will"]["properties"] = _to_js(will.properties)
        self._connack = self._error = self._disconnect_code = None
        self._note_open()
        self._number = self._browser.attach(self)
        self._browser.call("connect", id=self._number, url=f"{transport}://{host}:{port}/mqtt", options=options, holdAcks=hold_acks)
        connack = self.wait_for(lambda: self._connack or (self._closed and "closed"), "CONNACK")
        if connack == "closed":
            raise Refused(None, f"the connection ended: {self._error}")
        code = connack.get("reasonCode", connack.get("returnCode", 0))
        if code:
            raise Refused(code, str(connack))
        return Connack(connack["sessionPresent"], _from_js(connack.get("properties")))

    def on_report(self, kind, data):
        if kind == "message":
            self._note_message(Message(data["topic"], data["payload"], data["qos"], data["retain"], data["dup"],
                                       _from_js(data.get("properties")), data["wireTopic"]))
        elif kind == "packet":
            self._on_packet(data)
        elif kind == "published":
            self._note_ack(("published", data["handle"]), Ack([data["code"]], _from_js(data["properties"]) | {"error": data["error"]}))
        elif kind == "error":
            self._error = data
        elif kind == "close":
            self._note_closed(self._disconnect_code)

    def _on_packet(self, packet):
        command = packet["cmd"]
        if command == "connack":
            with self._changed:
                self._connack = packet
                self._changed.notify_all()
        elif command == "disconnect":
            self._disconnect_code = packet.get("reasonCode", 0)
        elif command in ("suback", "unsuback"):
            codes = [code if isinstance(code, int) else code["qos"] for code in packet.get("granted") or []]
            self._note_ack((command, packet["messageId"]), Ack(codes, _from_js(packet.get("properties"))))
        elif command == "pingresp":
            self._note_ack("pingresp", Ack([0]))

    def subscribe(self, *filters, qos=0, no_local=False, retain_as_published=False, retain_handling=0, properties=None):
        options = {"qos": qos}
        if self.version == V5:
            options |= {"nl": no_local, "rap": retain_as_published, "rh": retain_handling}
        if properties is not None:
            options["properties"] = _to_js(properties)
        mid = self._browser.call("subscribe", id=self._number, filters=list(filters), options=options)
        return self._wait_ack(("suback", mid), "SUBACK")

    def unsubscribe(self, *filters):
        mid = self._browser.call("unsubscribe", id=self._number, filters=list(filters))
        return self._wait_ack(("unsuback", mid), "UNSUBACK")

    def start_publish(self, topic, payload=b"", qos=0, retain=False, properties=None):
        if isinstance(payload, str):
            payload = payload.encode()
        options = {"qos": qos, "retain": retain}
        if properties is not None:
            options["properties"] = _to_js(properties)
        handle = unique("publish")
        self._browser.call("publish", id=self._number, handle=handle, topic=topic, payload=payload, options=options)
        return handle

    def finish_publish(self, handle):
        return self._wait_ack(("published", handle), "the publish to be acknowledged")

    def watch_unacked(self):
        wire = self._browser.call("wire", id=self._number)
        with self._changed:
            self.unacked, self.max_unacked = wire["unacked"], wire["maxUnacked"]
        return self.unacked

    def release_ack(self):
        wait_until(lambda: self._browser.call("heldAcks", id=self._number), "a message to acknowledge")
        self._browser.call("releaseAck", id=self._number)

    def ping(self):
        self._browser.call("ping", id=self._number)
        self._wait_ack("pingresp", "PINGRESP")

    def fall_silent(self):
        self._browser.call("fallSilent", id=self._number)

    def disconnect(self, reason=0, properties=None):
        options = {"reasonCode": reason, "properties": _to_js(properties)} if self.version == V5 else {}
        self._browser.call("disconnect", id=self._number, options=options)
        self.wait_closed()

    def drop(self):
        self._browser.call("drop", id=self._number)
        self.wait_closed()

    def close(self):
        if self._number is not None:
            self._browser.call("close", id=self._number)
            self._number = None
