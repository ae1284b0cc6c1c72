"""Selectors: the user property `w-selector` of SUBSCRIBE."""

import json
import os
import re
import subprocess

import pytest

from broker import CIRCLES
from model import DEADLINE, unique, wait_until

feature = pytest.mark.feature


@pytest.fixture(autouse=True)
def _whimbrel_only(request):
    if request.config.getoption("--broker") != "whimbrel":
        pytest.skip("the user property w-selector is Whimbrel's own")


def selecting(selector, *others):
    """Properties of a SUBSCRIBE."""
    return {"UserProperty": [("w-selector", selector), *others]}


def user(*pairs):
    return {"UserProperty": list(pairs)}


def select(connected, topic, cases, events):
    """Subscribes with each selector to a topic of its own, publishes all events to each, and compares which came with what the case
    says. Cases: selector to names of events. Events: name to properties and payload."""
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(f"{topic}/end")
    for number, (selector, _) in enumerate(cases):
        ack = subscriber.subscribe(f"{topic}/{number}", qos=1, properties=selecting(selector))
        assert ack.codes == [1], (selector, ack.properties.get("ReasonString"))
    wrong = []
    for number, (selector, expected) in enumerate(cases):
        for name, (properties, payload) in events.items():
            # Payloads say nothing of the event's name, so a property does that no selector asks for.
            pairs = [*properties, ("event", name)]
            publisher.publish(f"{topic}/{number}", payload, qos=1, properties=user(*pairs))
        publisher.publish(f"{topic}/end", "end", qos=1)
        found = []
        while (message := subscriber.receive()).topic != f"{topic}/end":
            assert message.topic == f"{topic}/{number}"
            found.append(dict(message.properties["UserProperty"])["event"])
        if found != expected:
            wrong.append((selector, expected, found))
    assert not wrong


ATTRIBUTES = {
    "red": [("color", "red"), ("speed", "10"), ("urgent", "true"), ("line", "N56")],
    "blue": [("color", "blue"), ("speed", "60.5"), ("urgent", "false"), ("line", "175")],
    "odd": [("color", "5%_x"), ("speed", "fast"), ("fuel.level", "0.25"), ("AND", "1")],
    "none": [],
    "twice": [("speed", "70"), ("speed", "1"), ("color", "red")],
    "own": [("w-mine", "1"), ("speed", "1e2")],
}


@feature("selector")
def test_attributes(connected, topic):
    cases = [
        # Equality: an attribute is text, and a number or boolean besides if it reads as one.
        ("color = 'red'", ["red", "twice"]),
        ("color <> 'red'", ["blue", "odd"]),
        ("line = 175", ["blue"]),
        ("line = '175'", ["blue"]),
        ("line <> 175", []),
        ("speed = 100", ["own"]),
        ("speed = '1e2'", ["own"]),
        ("urgent = TRUE", ["red"]),
        ("urgent = 'true'", ["red"]),
        ("urgent", ["red"]),
        ("NOT urgent", ["blue"]),
        # Of a repeated name the first counts.
        ("speed = 70", ["twice"]),
        ("speed = 1", []),
        # Ranges.
        ("speed > 50", ["blue", "twice", "own"]),
        ("speed <= 10", ["red"]),
        ("NOT (speed > 50)", ["red", "odd"]),
        ("speed BETWEEN 10 AND 60.5", ["red", "blue"]),
        ("speed NOT BETWEEN 10 AND 60.5", ["twice", "own"]),
        ("speed > 10 AND speed < 1E2 AND color = 'blue'", ["blue"]),
        # Lists and patterns.
        ("color IN ('red', 'green')", ["red", "twice"]),
        ("color NOT IN ('red', 'green')", ["blue", "odd"]),
        ("line LIKE 'N%'", ["red"]),
        ("color LIKE '_e%'", ["red", "twice"]),
        ("color NOT LIKE '_e%'", ["blue", "odd"]),
        ("color LIKE '5!%!_%' ESCAPE '!'", ["odd"]),
        ("color LIKE '5!%x' ESCAPE '!'", []),
        # What is missing is unknown, and so is its opposite.
        ("line IS NULL", ["odd", "none", "twice", "own"]),
        ("speed IS NOT NULL AND color IS NULL", ["own"]),
        ("color = 'red' OR speed = 100", ["red", "twice", "own"]),
        ("NOT (color = 'red' AND line = 'N56')", ["blue", "odd"]),
        # Arithmetic.
        ("speed * 2 - 1 > 100", ["blue", "twice", "own"]),
        ("speed / 4 = 15.125", ["blue"]),
        ("-speed < -65", ["twice", "own"]),
        # Names in quotes.
        ('"fuel.level" < 0.5', ["odd"]),
        ('"AND" = 1', ["odd"]),
        # Properties that begin with w- are no attributes.
        ('"w-mine" IS NOT NULL', []),
        ("TRUE", list(ATTRIBUTES)),
    ]
    select(connected, topic, cases, {name: (pairs, b"") for name, pairs in ATTRIBUTES.items()})


@feature("selector")
def test_user_properties_are_forwarded_unaltered(connected, topic):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(topic, qos=1, properties=selecting("speed > 50 AND json('$.a') = 1"))
    pairs = [("w-mine", "1"), ("speed", "70.0"), ("speed", " 1 "), ("größe", "ä€😀"), ("fuel.level", "")]
    publisher.publish(topic, '{"a": 1}', qos=1, properties=user(*pairs))
    message = subscriber.receive()
    assert message.properties["UserProperty"] == pairs
    assert message.text() == '{"a": 1}'


@feature("selector-payload")
def test_json_payload(connected, topic):
    events = {
        "open": '{"doors": {"front": "open", "rear": null}, "n": 5, "list": [1, 2.5, "x"], "fuel level": 0.5}',
        "shut": '{"doors": {"front": "shut"}, "n": "5", "list": [], "ok": true}',
        "array": '[{"n": 5}]',
        "broken": '{"doors": {"front": "open"}',
        "binary": b"\xff\x00\x80",
        "empty": b"",
    }
    cases = [
        ("json('$.doors.front') = 'open'", ["open"]),
        ("json('$.doors.front') LIKE 's_u%'", ["shut"]),
        ("json('$.doors.front') IN ('open', 'shut')", ["open", "shut"]),
        # A text in JSON is no number.
        ("json('$.n') = 5", ["open"]),
        ("json('$.n') = '5'", ["shut"]),
        ("json('$.n') + 1 BETWEEN 6 AND 6", ["open"]),
        ("json('$.ok')", ["shut"]),
        ("json('$.list[0]') = 1", ["open"]),
        ("json('$.list[-1]') = 'x'", ["open"]),
        ("json('$[0].n') = 5", ["array"]),
        ("json('$[''fuel level'']') = 0.5", ["open"]),
        # null and what is not there are the same; a payload that is no JSON has nothing.
        ("json('$.doors.rear') IS NULL", ["open", "shut", "array", "broken", "binary", "empty"]),
        ("json('$.doors') IS NOT NULL", ["open", "shut"]),
        ("json('$.doors') = 'open' OR json('$.doors') <> 'open'", []),
        ("event = 'open' AND json('$.n') < 6", ["open"]),
    ]
    select(connected, topic, cases, {name: ([], payload) for name, payload in events.items()})


@feature("selector-importance")
def test_importance_is_the_priority(connected, topic):
    events = {"high": ([("w-importance", "9")], b""), "low": ([("w-importance", "1")], b""), "usual": ([], b"")}
    cases = [
        ("JMSPriority > 6", ["high"]),
        ("JMSPriority = 5", ["usual"]),
        ("JMSPriority BETWEEN 1 AND 5", ["low", "usual"]),
        ('"w-importance" IS NULL', ["high", "low", "usual"]),
    ]
    select(connected, topic, cases, events)


PLACES = {
    "platform": [("lat", "52.2289"), ("lon", "21.0040")],
    "castle": [("lat", "52.2480"), ("lon", "21.0150")],
    "river": [("lat", "52.2485"), ("lon", "21.0260")],
    "at sea": [("lat", "54.6"), ("lon", "18.9")],
    "half": [("lat", "52.2289")],
    "nonsense": [("lat", "north"), ("lon", "21.0040")],
    "nowhere": [],
}


@feature("selector-fence")
def test_position_in_a_fence(connected, topic):
    events = {name: (pairs, b"") for name, pairs in PLACES.items()}
    events["payload"] = ([], json.dumps({"lat": 52.2289, "lon": 21.0040}))
    events["text"] = ([], json.dumps({"lat": "52.2289", "lon": "21.0040"}))
    # Attributes come first, if there is either.
    events["both"] = ([("lat", "54.6"), ("lon", "18.9")], json.dumps({"lat": 52.2289, "lon": 21.0040}))
    cases = [
        ("within('station')", ["platform", "payload"]),
        ("within('old town')", ["castle"]),
        ("within('bridge')", ["river"]),
        ("within('old town') OR within('bridge') OR within('airport')", ["castle", "river"]),
        ("NOT within('station')", ["castle", "river", "at sea", "both"]),
        ("within('station') AND event = 'payload'", ["payload"]),
    ]
    select(connected, topic, cases, events)


@feature("selector-fence-change")
def test_fences_change_while_subscriptions_stay(broker, connected, topic, request):
    """A fence moves, goes and comes back; subscriptions that name it go on with what it is now."""
    name = unique("moving")
    publisher, subscriber = connected(), connected()
    here, there = [("lat", "50.06"), ("lon", "19.94")], [("lat", "54.35"), ("lon", "18.65")]
    request.addfinalizer(lambda: (broker.write_fences(CIRCLES), broker.read_again()))

    def placed(*circle):
        broker.write_fences(CIRCLES | ({name: circle} if circle else {}))
        broker.read_again()

    def found():
        for place, pairs in (("here", here), ("there", there)):
            publisher.publish(topic, place, qos=1, properties=user(*pairs))
        publisher.publish(topic, "end", qos=1, properties=user(("end", "true")))
        return list(iter(lambda: subscriber.receive().text(), "end"))

    placed(50.06, 19.94, 1000)
    selector = f"within('{name}') OR \"end\""
    assert subscriber.subscribe(topic, qos=1, properties=selecting(selector)).codes == [1]
    assert found() == ["here"]
    placed(54.35, 18.65, 1000)
    assert found() == ["there"]
    placed()
    assert found() == []
    refused = connected().subscribe(topic, properties=selecting(selector))
    assert refused.codes == [0x80] and "fence" in refused.properties["ReasonString"], "it is not there for new subscriptions"
    placed(50.06, 19.94, 1000)
    assert found() == ["here"]


def test_fences_with_a_mistake_leave_those_before_in_force(broker, tmp_path):
    file = tmp_path.joinpath("kept")
    path = os.path.join(broker.directory, "fences.geojson")
    os.rename(path, file)
    try:
        assert broker.read_again() == {"refused"}
        assert broker.metrics()["whimbrel_fences"] == len(CIRCLES) + 2
    finally:
        broker.write_fences(CIRCLES)
    assert broker.read_again() == {"unchanged"}


@feature("selector-refused")
def test_what_is_no_selector_is_refused_with_position_and_cause(connected, topic):
    publisher, subscriber = connected(), connected()
    deep = "(" * 65 + "a = 1" + ")" * 65
    cases = [
        ("speed > 50 AND AND color = 'red'", 16, "AND"),
        ("speed >", 8, "end"),
        ("größe = 'x' && a = 1", 13, "AND"),
        ("color = 'red", 9, "no closing '"),
        ("color > 'red'", 9, "compares numbers"),
        ("fuel.level > 1", 1, '"fuel.level"'),
        ("within('atlantis')", 8, "no fence"),
        ("within('statoin')", 8, "'station'"),
        ("near('station')", 1, "no function"),
        ("a LIKE 'x!' ESCAPE '!'", 10, "escape character"),
        ("json('doors') = 1", 7, "begins with $"),
        ("a = " + "1" * 9000, None, "8192 bytes"),
        (deep, 65, "64 deep"),
    ]
    for selector, position, words in cases:
        ack = subscriber.subscribe(f"{topic}/a", f"{topic}/b", qos=1, properties=selecting(selector))
        assert ack.codes == [0x80, 0x80], selector
        reason = ack.properties["ReasonString"]
        assert reason.startswith(f"selector, position {'' if position is None else f'{position}: '}"), (selector, reason)
        assert words in reason, (selector, reason)
    twice = subscriber.subscribe(f"{topic}/a", properties=selecting("speed > 1", ("w-selector", "speed > 1")))
    assert twice.codes == [0x80] and "more than once" in twice.properties["ReasonString"]
    # Nothing was subscribed, and the connection is as good as before.
    assert subscriber.subscribe(f"{topic}/b", qos=1).codes == [1]
    for name in ("a", "b"):
        publisher.publish(f"{topic}/{name}", name, qos=1, properties=user(("speed", "60"), ("a", "1")))
    assert subscriber.receive().text() == "b"
    assert not subscriber.pending()


@feature("selector-replaced")
def test_subscribing_again_replaces_the_selector(connected, topic):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(f"{topic}/end", qos=1)

    def found():
        for speed in ("10", "60", "100"):
            publisher.publish(topic, speed, qos=1, properties=user(("speed", speed)))
        publisher.publish(f"{topic}/end", "end", qos=1)
        return list(iter(lambda: subscriber.receive().text(), "end"))

    steps = [
        (selecting("speed > 50"), 1, ["60", "100"]),
        (selecting("speed < 50"), 1, ["10"]),
        # A refusal leaves the subscription as it was.
        (selecting("speed <"), 0x80, ["10"]),
        (selecting(""), 1, ["10", "60", "100"]),
        (selecting("speed = 100"), 1, ["100"]),
        (selecting(" \t\n"), 1, ["10", "60", "100"]),
        (selecting("speed = 60"), 1, ["60"]),
        (None, 1, ["10", "60", "100"]),
    ]
    for properties, code, expected in steps:
        assert subscriber.subscribe(topic, qos=1, properties=properties).codes == [code]
        assert found() == expected, properties


@feature("selector-retained")
def test_retained_messages_pass_the_selector(connected, topic):
    publisher, subscriber = connected(), connected()
    for speed in ("10", "60", "70"):
        publisher.publish(f"{topic}/{speed}", speed, qos=1, retain=True, properties=user(("speed", speed)))
    subscriber.subscribe(f"{topic}/+", qos=1, properties=selecting("speed > 50"))
    assert sorted(subscriber.receive_texts(2)) == ["60", "70"]
    subscriber.subscribe(f"{topic}/+", qos=1, properties=selecting("speed <= 50"))
    assert subscriber.receive().text() == "10"
    publisher.publish(f"{topic}/end", "end", qos=1, properties=user(("speed", "0")))
    assert subscriber.receive().text() == "end", "nothing else came with it"
    for speed in ("10", "60", "70"):
        publisher.publish(f"{topic}/{speed}", "", qos=1, retain=True)


@feature("selector-session")
def test_session_keeps_the_selector(connected, topic):
    publisher, subscriber = connected(), connected(client_id=unique("kept"), properties={"SessionExpiryInterval": 300})
    subscriber.subscribe(topic, qos=1, properties=selecting("speed > 50"))
    subscriber.drop()
    for speed in ("10", "60", "20", "70"):
        publisher.publish(topic, f"away {speed}", qos=1, properties=user(("speed", speed)))
    connack = subscriber.connect(client_id=subscriber.client_id, clean=False, properties={"SessionExpiryInterval": 0})
    assert connack.session_present
    for speed in ("30", "80"):
        publisher.publish(topic, f"here {speed}", qos=1, properties=user(("speed", speed)))
    assert subscriber.receive_texts(3) == ["away 60", "away 70", "here 80"]


@feature("selector-shared")
def test_members_of_a_shared_subscription_have_one_selector(connected, topic):
    publisher, first, second, other = (connected() for _ in range(4))
    group = f"$share/group/{topic}"
    assert first.subscribe(group, qos=1, properties=selecting("speed > 50")).codes == [1]
    for properties in (selecting("speed > 60"), None):
        refused = second.subscribe(group, f"{topic}/else", qos=1, properties=properties)
        assert refused.codes == [0x83, 1], "only the shared one is refused"
        assert "selector" in refused.properties["ReasonString"]
    # The same selector, written in another way; and another group with its own.
    assert second.subscribe(group, qos=1, properties=selecting("(speed)>50")).codes == [1]
    assert other.subscribe(f"$share/other/{topic}", qos=1, properties=selecting("speed <= 50 OR \"end\"")).codes == [1]
    speeds = [str(speed) for speed in range(40, 80)]
    for speed in speeds:
        publisher.publish(topic, speed, qos=1, properties=user(("speed", speed)))
    publisher.publish(topic, "end", qos=1, properties=user(("end", "true")))
    assert other.receive_texts(12) == [*speeds[:11], "end"]
    wait_until(lambda: len(first.pending()) + len(second.pending()) >= 29, "the group to receive all")
    shares = [[message.text() for message in member.pending()] for member in (first, second)]
    assert sorted(sum(shares, [])) == speeds[11:]
    assert all(shares), "every member takes part"
    # One who is alone may change its mind.
    second.unsubscribe(group)
    assert first.subscribe(group, qos=1, properties=selecting("speed > 1000")).codes == [1]


# The command line.

def whimbrel(*arguments):
    return subprocess.run([os.environ["WHIMBREL_BIN"], *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)


@pytest.fixture
def url(broker):
    host, port = broker.address()
    return f"mqtt://{host}:{port}"


def test_whimbrel_sub_selects_what_whimbrel_pub_sends(url, topic):
    for line, fuel in (("N56", "0.1"), ("N56", "0.9"), ("175", "0.1")):
        done = whimbrel("pub", "--url", url, "-q", "1", "--retain", "--attribute", f"line={line}", "--attribute", f"fuel.level={fuel}",
                        f"{topic}/{line}/{fuel}", f'{{"line": "{line}"}}')
        assert done.returncode == 0, done.stderr
    selector = "line LIKE 'N%' AND \"fuel.level\" < 0.5 AND json('$.line') = 'N56'"
    for asked, expected in ((selector, f"{topic}/N56/0.1"), ("NOT line LIKE 'N%'", f"{topic}/175/0.1")):
        done = whimbrel("sub", "--url", url, "--selector", asked, "--count", "1", "--json", f"{topic}/#")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["topic"] == expected


def test_whimbrel_sub_shows_where_a_selector_is_wrong(url, topic):
    cases = [
        ("speed > 50 AND AND fuel < 3", len("speed > 50 AND "), "AND is a keyword"),
        ("größe = 'ä' && a = 1", len("größe = 'ä' "), "written AND"),
        ("speed >", len("speed >"), "a value or a condition is expected"),
    ]
    for selector, at, cause in cases:
        wrong = whimbrel("sub", "--url", url, "--selector", selector, topic)
        assert wrong.returncode == 2 and not wrong.stdout
        lines = wrong.stderr.splitlines()
        number = next(number for number, line in enumerate(lines) if selector in line)
        assert lines[number].index(selector) + at == re.search("[─┬]", lines[number + 1]).start(), wrong.stderr
        assert cause in lines[number + 2], wrong.stderr


def test_whimbrel_sub_tells_what_the_broker_says_of_a_selector(url, topic):
    refused = whimbrel("sub", "--url", url, "--selector", "within('statoin')", topic)
    assert refused.returncode == 1
    assert "position 8" in refused.stderr and "'station'" in refused.stderr
