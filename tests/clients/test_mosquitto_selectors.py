"""Selectors with mosquitto_sub and mosquitto_pub: `-D subscribe user-property w-selector '…'`."""

import json

import pytest

from broker import CIRCLES
from model import unique, wait_until

feature = pytest.mark.feature


@pytest.fixture(autouse=True)
def _whimbrel_only(request):
    if request.config.getoption("--broker") != "whimbrel":
        pytest.skip("the user property w-selector is Whimbrel's own")


def selecting(selector):
    return ["-D", "subscribe", "user-property", "w-selector", selector]


def user(*pairs):
    return [option for name, value in pairs for option in ("-D", "publish", "user-property", name, value)]


def select(mosquitto, topic, cases, events):
    """One mosquitto_sub for each selector; events: name to user properties and payload. Each ends with an event that all match."""
    subscribers = {selector: mosquitto.subscribe(topic, qos=1, options=selecting(f"({selector}) OR event = 'end'")) for selector in cases}
    for name, (pairs, payload) in (events | {"end": ([], "")}).items():
        mosquitto.publish(topic, payload or None, *user(("event", name), *pairs), qos=1)
    for selector, expected in cases.items():
        names = iter(lambda: subscribers[selector].receive()["properties"]["user-properties"]["event"], "end")
        assert list(names) == expected, selector


@feature("selector")
def test_attributes(mosquitto, topic):
    events = {
        "slow": [("speed", "10"), ("color", "red"), ("urgent", "true")],
        "fast": [("speed", "60.5"), ("color", "5%_x"), ("fuel.level", "0.25")],
        "none": [],
    }
    cases = {
        "speed > 50": ["fast"],
        "speed BETWEEN 10 AND 60 AND urgent": ["slow"],
        "NOT (color = 'red')": ["fast"],
        "color IN ('red', 'green')": ["slow"],
        "color LIKE '5!%!_%' ESCAPE '!'": ["fast"],
        "color IS NULL": ["none"],
        '"fuel.level" * 4 = 1': ["fast"],
    }
    select(mosquitto, topic, cases, {name: (pairs, "") for name, pairs in events.items()})


@feature("selector-payload")
def test_json_payload(mosquitto, topic):
    cases = {"json('$.doors.front') = 'open'": ["open"], "json('$.doors') IS NULL": ["broken", "other"], "json('$.n[-1]') > 2": ["open"]}
    events = {"open": '{"doors": {"front": "open"}, "n": [1, 2.5]}', "broken": '{"doors"', "other": '{"n": ["2.5"]}'}
    select(mosquitto, topic, cases, {name: ([], payload) for name, payload in events.items()})


@feature("selector-importance")
def test_importance_is_the_priority(mosquitto, topic):
    events = {"high": ([("w-importance", "9")], ""), "usual": ([], "")}
    select(mosquitto, topic, {"JMSPriority > 6": ["high"], "JMSPriority = 5": ["usual"]}, events)


@feature("selector-fence")
def test_position_in_a_fence(mosquitto, topic):
    events = {
        "attributes": ([("lat", "52.2289"), ("lon", "21.0040")], ""),
        "payload": ([], json.dumps({"lat": 52.2480, "lon": 21.0150})),
        "nowhere": ([], ""),
    }
    cases = {"within('station')": ["attributes"], "within('old town')": ["payload"], "NOT within('bridge')": ["attributes", "payload"]}
    select(mosquitto, topic, cases, events)


@feature("selector-fence-change")
def test_a_fence_moves_while_a_subscription_stays(broker, mosquitto, topic, request):
    name = unique("moving")
    request.addfinalizer(lambda: (broker.write_fences(CIRCLES), broker.read_again()))
    broker.write_fences(CIRCLES | {name: (50.06, 19.94, 1000)})
    broker.read_again()
    subscriber = mosquitto.subscribe(topic, qos=1, options=selecting(f"within('{name}')"))

    def publish_both(when):
        mosquitto.publish(topic, f"here {when}", *user(("lat", "50.06"), ("lon", "19.94")), qos=1)
        mosquitto.publish(topic, f"there {when}", *user(("lat", "54.35"), ("lon", "18.65")), qos=1)

    publish_both("before")
    broker.write_fences(CIRCLES | {name: (54.35, 18.65, 1000)})
    broker.read_again()
    publish_both("after")
    assert subscriber.receive_texts(2) == ["here before", "there after"]


@feature("selector-refused")
def test_what_is_no_selector_is_refused(mosquitto, topic):
    for selector in ("speed >", "within('atlantis')"):
        refused = mosquitto.subscribe(topic, options=selecting(selector), wait=False)
        refused.line(r"Subscribed \(mid: 1\): 128")
        refused.line("All subscription requests were denied")
        refused.wait()


@feature("selector-replaced", "selector-session")
def test_session_keeps_the_selector_until_another_replaces_it(mosquitto, topic):
    client_id = unique("kept")

    # Each one subscribes, leaves, and is away while both messages come; the next one gets what was kept.
    received = []
    for selector in ("speed > 50", "speed < 50", None, None):
        options = ["-c", "-x", "300", "-E", *(selecting(selector) if selector else ())]
        process = mosquitto.subscribe(topic, options=options, qos=1, client_id=client_id)
        process.wait()
        received.append(process.pending())
        for speed in ("10", "60"):
            mosquitto.publish(topic, f"{speed} for {selector}", *user(("speed", speed)), qos=1)
    assert received == [[], ["60 for speed > 50"], ["10 for speed < 50"], ["10 for None", "60 for None"]]


@feature("selector-retained")
def test_retained_messages_pass_the_selector(mosquitto, topic):
    for speed in ("10", "60"):
        mosquitto.publish(f"{topic}/{speed}", speed, "-r", *user(("speed", speed)), qos=1)
    subscriber = mosquitto.subscribe(f"{topic}/+", options=selecting("speed > 50"), qos=1)
    mosquitto.publish(f"{topic}/end", "end", *user(("speed", "99")), qos=1)
    assert subscriber.receive_texts(2) == ["60", "end"]
    for speed in ("10", "60"):
        mosquitto.publish(f"{topic}/{speed}", None, "-r", qos=1)


@feature("selector-shared")
def test_members_of_a_shared_subscription_have_one_selector(mosquitto, topic):
    group = f"$share/group/{topic}"
    first = mosquitto.subscribe(group, options=selecting("speed > 50"), qos=1)
    refused = mosquitto.subscribe(group, options=selecting("speed > 60"), qos=1, wait=False)
    refused.line(r"Subscribed \(mid: 1\): 131")
    refused.wait()
    second = mosquitto.subscribe(group, options=selecting("speed>50"), qos=1)
    for speed in range(45, 61):
        mosquitto.publish(topic, str(speed), *user(("speed", str(speed))), qos=1)
    wait_until(lambda: len(first.pending()) + len(second.pending()) >= 10, "the group to receive all")
    assert sorted(first.pending() + second.pending()) == [str(speed) for speed in range(51, 61)]
