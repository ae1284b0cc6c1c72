"""Semi-durable subscriptions: the user properties `w-durability`, `w-from`, `w-ack` and `w-notices` of SUBSCRIBE."""

import json
import pathlib
import random
import re
import subprocess
import sys
import threading
import time

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from broker import ROOT
from model import DEADLINE, unique, wait_until

feature = pytest.mark.feature

NOTICES = "$whimbrel/notice"


@pytest.fixture(autouse=True)
def _whimbrel_only(request):
    if request.config.getoption("--broker") != "whimbrel":
        pytest.skip("semi-durable subscriptions are Whimbrel's own")


def semi_durable(*others):
    """Properties of a SUBSCRIBE."""
    return {"UserProperty": [("w-durability", "semi-durable"), *others]}


def token_of(ack):
    """The only `w-token` of a SUBACK."""
    (token,) = [value for name, value in ack.properties["UserProperty"] if name == "w-token"]
    return token


def name_of(message):
    """The `w-id` of a message."""
    return dict(message.properties["UserProperty"])["w-id"]


@feature("semi-durable")
def test_a_session_that_returns(new_client, connected, topic):
    client, publisher = new_client(), connected()
    client.connect(properties={"SessionExpiryInterval": 600})
    client.subscribe(topic, qos=1, properties=semi_durable())
    publisher.publish(topic, "1", qos=1)
    assert client.receive().text() == "1"
    client.drop()
    for text in ("2", "3"):
        publisher.publish(topic, text, qos=1)
    back = client.connect(client.client_id, clean=False, properties={"SessionExpiryInterval": 600})
    assert back.session_present
    publisher.publish(topic, "4", qos=1)
    assert [message.text() for message in received_once(client, 3)] == ["2", "3", "4"]


def received_once(client, count):
    """So many messages that came for the first time; what was not acknowledged in time may come again before them."""
    messages = []
    while len(messages) < count:
        message = client.receive()
        if not message.dup:
            messages.append(message)
    return messages


@feature("semi-durable-token")
def test_a_client_that_keeps_its_position(connected, topic):
    client, publisher = connected(), connected()
    token = token_of(client.subscribe(topic, qos=1, properties=semi_durable()))
    for text in ("1", "2", "3"):
        publisher.publish(topic, text, qos=1)
    names = [name_of(client.receive()) for _ in range(3)]
    assert len(set(names)) == 3 and len({name.split(":")[0] for name in names}) == 1
    client.drop()
    for text in ("4", "5"):
        publisher.publish(topic, text, qos=1)
    for place, expected in ((f"{token},{names[1]}", ["3", "4", "5"]), (token, ["1", "2", "3", "4", "5"]), (names[2], ["4", "5"])):
        back = connected()
        ack = back.subscribe(topic, qos=1, properties=semi_durable(("w-from", place)))
        assert ack.codes == [1], ack.properties
        assert [back.receive().text() for _ in expected] == expected
        back.close()


@feature("semi-durable-notices")
def test_notices(connected):
    topic = unique("small/notices")
    client, publisher = connected(), connected()
    token = token_of(client.subscribe(topic, qos=1, properties=semi_durable()))
    client.drop()
    for number in range(10):
        publisher.publish(topic, str(number), qos=1)
    back = connected()
    back.subscribe(topic, qos=1, properties=semi_durable(("w-from", token), ("w-notices", "on")))
    first = back.receive()
    gap = json.loads(first.text())
    assert (first.topic, gap["kind"], gap["reason"]) == (NOTICES, "gap", "overwritten")
    assert [back.receive().text() for _ in range(3)] == ["7", "8", "9"]
    silence = json.loads(back.receive().text())
    assert silence["kind"] == "silence"
    later = connected()
    later.subscribe(topic, qos=1, properties=semi_durable(("w-from", silence["token"])))
    publisher.publish(topic, "10", qos=1)
    assert later.receive().text() == "10"


@feature("semi-durable-ack")
def test_acknowledgement_by_token(new_client, connected, topic):
    client, publisher = new_client(), connected()
    client.connect(properties={"SessionExpiryInterval": 600})
    token = token_of(client.subscribe(topic, qos=1, properties=semi_durable(("w-ack", "token"))))
    for text in ("1", "2"):
        publisher.publish(topic, text, qos=1)
        assert client.receive().text() == text
    assert client.publish("$whimbrel/ack", token, qos=1).code == 0
    refused = client.publish("$whimbrel/ack", "no token", qos=1)
    assert refused.code == 0x99
    client.drop()
    assert client.connect(client.client_id, clean=False, properties={"SessionExpiryInterval": 600}).session_present
    client.subscribe(topic, qos=1, properties=semi_durable(("w-ack", "token")))
    assert [client.receive().text() for _ in range(2)] == ["1", "2"], "PUBACK has acknowledged nothing"


@feature("semi-durable-refused")
def test_refused_with_its_cause(connected, topic):
    client = connected()
    for others, cause in (
        ([("w-from", "no token!")], "byte 2"),
        ([("w-from", "1:2,3")], "item 2"),
        ([("w-notices", "loud")], "w-notices is neither on nor off"),
        ([("w-replier", "loud")], "w-replier is neither on nor off"),
    ):
        ack = client.subscribe(topic, qos=1, properties=semi_durable(*others))
        assert ack.codes == [0x83] and cause in ack.properties["ReasonString"]


# How often the client below comes back.
RETURNS = 1000


class Follower:
    """A paho client without a thread of its own, whose connections are cut at random moments. Its position survives them."""

    def __init__(self, address, topic, chance):
        self.address, self.topic, self.chance = address, topic, chance
        self.token = None
        self.last = {}
        self.got = {}
        self.notices = []
        self.refused = []
        self.acknowledged = 0

    def place(self):
        return ",".join([self.token, *(f"{pubend}:{tick}" for pubend, tick in self.last.items())])

    def follow(self, until, steps=0):
        """Connects, goes on until that is true, and for so many steps of reading more."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="follower", protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        client.on_connect, client.on_subscribe, client.on_message = self._on_connect, self._on_subscribe, self._on_message
        client.connect(*self.address)
        deadline = time.monotonic() + DEADLINE
        # A CONNECT of a connection that was cut may be read after that of the next, which it then takes over: one cut more.
        alive = True
        while alive and not until():
            assert time.monotonic() < deadline, f"{self.got} after {DEADLINE} s"
            alive = client.loop(0.1) == mqtt.MQTT_ERR_SUCCESS
        while alive and steps > 0:
            steps -= 1
            alive = client.loop(0.001) == mqtt.MQTT_ERR_SUCCESS
        # Whatever has come and was not read is lost with the connection.
        if client.socket() is not None:
            client.socket().close()

    def cut(self):
        """Connects, and is cut at a random moment: one time in five perhaps before SUBACK."""
        before = self.acknowledged
        waits = self.chance.random() < 0.8
        self.follow(lambda: not waits or self.acknowledged > before, self.chance.randrange(8))

    def _on_connect(self, client, _userdata, _flags, _code, _properties):
        asked = [("w-durability", "semi-durable"), ("w-notices", "on")]
        if self.token:
            asked.append(("w-from", self.place()))
        properties = Properties(PacketTypes.SUBSCRIBE)
        properties.UserProperty = asked
        client.subscribe(self.topic, options=SubscribeOptions(qos=1), properties=properties)

    def _on_subscribe(self, _client, _userdata, _mid, codes, properties):
        self.acknowledged += 1
        if codes[0].is_failure:
            self.refused.append(getattr(properties, "ReasonString", codes[0]))
        elif self.token is None:
            self.token = dict(properties.UserProperty)["w-token"]

    def _on_message(self, _client, _userdata, message):
        if message.topic == NOTICES:
            notice = json.loads(message.payload)
            if notice["kind"] == "gap":
                self.notices.append(notice)
            return
        publisher, number = message.payload.split()
        self.got.setdefault(publisher, []).append(int(number))
        pubend, tick = dict(message.properties.UserProperty)["w-id"].split(":")
        self.last[pubend] = tick


class Load:
    """mosquitto_pub processes that publish numbers, as many as they are given."""

    def __init__(self, mosquitto_pub, topic):
        self.sent = {}
        self._processes = []
        for qos in (0, 1, 2):
            process = subprocess.Popen([*mosquitto_pub, "-t", topic, "-q", str(qos), "-l"], stdin=subprocess.PIPE, text=True)
            self._processes.append((f"qos{qos}", process))

    def go_on(self, count):
        for name, process in self._processes:
            for _ in range(count):
                self.sent[name] = self.sent.get(name, 0) + 1
                process.stdin.write(f"{name} {self.sent[name]}\n")
            process.stdin.flush()

    def end(self):
        for _, process in self._processes:
            process.stdin.close()
            assert process.wait(DEADLINE) == 0

    def kill(self):
        for _, process in self._processes:
            process.kill()


@feature("semi-durable-token", columns=["paho5"])
def test_a_thousand_returns_under_load(broker, topic, request):
    host, port = broker.address("tcp")
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    follower = Follower((host, port), topic, chance)
    follower.follow(lambda: follower.token is not None)
    load = Load(["mosquitto_pub", "-V", "5", "-h", host, "-p", str(port)], topic)
    request.addfinalizer(load.kill)
    for _ in range(RETURNS):
        load.go_on(chance.randrange(4))
        follower.cut()
    load.end()

    def has_all():
        return sum(len(numbers) for numbers in follower.got.values()) >= sum(load.sent.values())

    while not has_all():
        follower.follow(has_all)
    expected = {name.encode(): list(range(1, count + 1)) for name, count in load.sent.items()}
    assert (follower.got, follower.notices, follower.refused) == (expected, [], []), f"seed {seed}"
    assert follower.acknowledged > RETURNS / 2, "most connections live long enough to be answered"


@feature("semi-durable-token", columns=["paho5"])
def test_the_program_of_the_guide(broker, topic, tmp_path):
    guide = (ROOT / "docs" / "semi-durable.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "follow.py").write_text(program, encoding="utf-8")
    host, port = broker.address("tcp")

    def publish(*lines):
        arguments = ["mosquitto_pub", "-V", "5", "-h", host, "-p", str(port), "-t", topic, "-q", "1", "-l"]
        subprocess.run(arguments, input="".join(f"{line}\n" for line in lines), text=True, check=True, timeout=DEADLINE)

    def follow(count, begun=lambda: None):
        arguments = [sys.executable, "follow.py", host, str(port), topic]
        process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        killer = threading.Timer(DEADLINE, process.kill)
        killer.start()
        begun()
        lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
        process.kill()
        rest = process.stdout.read()
        process.wait()
        killer.cancel()
        return [*lines, *rest.splitlines()]

    position = pathlib.Path(tmp_path, "position.json")

    def first():
        wait_until(position.exists, "the first position to be stored")
        publish("one", "two")

    printed = follow(2, first)
    publish("three", "four")
    printed += follow(1)
    publish("five")
    while printed[-1] != "five":
        printed += follow(1)
    # Killed between the line and the file, it prints that one line again: the work and its position are no transaction here.
    assert list(dict.fromkeys(printed)) == ["one", "two", "three", "four", "five"]
