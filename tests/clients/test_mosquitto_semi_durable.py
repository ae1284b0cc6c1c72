"""Semi-durable subscriptions with mosquitto_sub: `-D subscribe user-property w-durability semi-durable`."""

import json

import pytest

from model import unique

feature = pytest.mark.feature

SESSION = ["-c", "-x", "600"]


@pytest.fixture(autouse=True)
def _whimbrel_only(request):
    if request.config.getoption("--broker") != "whimbrel":
        pytest.skip("semi-durable subscriptions are Whimbrel's own")


def asking(*pairs):
    return [option for name, value in pairs for option in ("-D", "subscribe", "user-property", name, value)]


def semi_durable(*others):
    return asking(("w-durability", "semi-durable"), *others)


@feature("semi-durable")
def test_a_session_that_returns(mosquitto, topic):
    client_id = unique("mosquitto")
    first = mosquitto.subscribe(topic, qos=1, client_id=client_id, options=[*SESSION, *semi_durable()])
    mosquitto.publish(topic, "1", qos=1)
    assert first.receive_texts(1) == ["1"]
    first.kill()
    for text in ("2", "3"):
        mosquitto.publish(topic, text, qos=1)
    second = mosquitto.subscribe(topic, qos=1, client_id=client_id, options=[*SESSION, *semi_durable()])
    mosquitto.publish(topic, "4", qos=1)
    assert second.receive_texts(3) == ["2", "3", "4"]


@feature("semi-durable-token")
def test_names_are_places_to_begin(mosquitto, topic):
    first = mosquitto.subscribe(topic, qos=1, options=semi_durable())
    for text in ("1", "2", "3"):
        mosquitto.publish(topic, text, qos=1)
    messages = [first.receive() for _ in range(3)]
    names = [message["properties"]["user-properties"]["w-id"] for message in messages]
    # Each mosquitto_pub has a client id, and so perhaps a stream, of its own: all are named.
    second = mosquitto.subscribe(topic, qos=1, options=semi_durable(("w-from", "earliest")))
    assert second.receive_texts(3) == ["1", "2", "3"]
    third = mosquitto.subscribe(topic, qos=1, options=semi_durable(("w-from", ",".join(names))))
    mosquitto.publish(topic, "4", qos=1)
    assert third.receive_texts(1) == ["4"]


@feature("semi-durable-notices")
def test_silence(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1, options=semi_durable(("w-notices", "on")))
    notice = subscriber.receive()
    assert notice["topic"] == "$whimbrel/notice"
    silence = json.loads(notice["payload"])
    assert silence["kind"] == "silence"
    mosquitto.publish(topic, "1", qos=1)
    later = mosquitto.subscribe(topic, qos=1, options=semi_durable(("w-from", silence["token"])))
    assert later.receive_texts(1) == ["1"]


@feature("semi-durable-ack")
def test_what_is_no_token_is_refused(mosquitto):
    refused = mosquitto.publish("$whimbrel/ack", "no token", qos=1, check=False)
    assert b"RC:153" in refused.stdout + refused.stderr, (refused.stdout, refused.stderr)


@feature("semi-durable-refused")
def test_refused(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, options=semi_durable(("w-from", "no token!")), wait=False)
    subscriber.line(r"Subscribed \(mid: 1\): 131")
