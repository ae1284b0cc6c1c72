"""Sessions that outlive their connections, and wills."""

import pytest

from model import Will, unique
from test_connection import persistent

feature = pytest.mark.feature


def queues(qos, new_client, connected, topic, v5):
    subscriber, publisher = new_client(), connected()
    client_id = unique("offline")
    subscriber.connect(client_id, **persistent(v5))
    subscriber.subscribe(f"{topic}/#", qos=qos)
    subscriber.drop()
    for n in range(30):
        publisher.publish(f"{topic}/{n % 3}", str(n), qos=qos)
    assert subscriber.connect(client_id, **persistent(v5)).session_present
    messages = [subscriber.receive() for _ in range(30)]
    assert [m.text() for m in messages] == [str(n) for n in range(30)]
    assert {m.qos for m in messages} == {qos}
    publisher.publish(f"{topic}/live", "live", qos=qos)
    assert subscriber.receive().text() == "live"


@feature("queue-qos1")
def test_offline_session_keeps_qos_1_in_order(new_client, connected, topic, v5):
    queues(1, new_client, connected, topic, v5)


@feature("queue-qos2")
def test_offline_session_keeps_qos_2_in_order(new_client, connected, topic, v5):
    queues(2, new_client, connected, topic, v5)


@feature("session-expiry")
def test_session_ends_when_its_expiry_interval_has_passed(new_client, connected, topic):
    client, watcher = new_client(), connected()
    client_id = unique("expires")
    watcher.subscribe(topic)
    # A will waits for the end of its delay or of the session, whichever comes first: it tells when the session has ended.
    client.connect(client_id, clean=False, will=Will(topic, b"ended", properties={"WillDelayInterval": 1000}),
                   properties={"SessionExpiryInterval": 1})
    client.drop()
    assert watcher.receive().text() == "ended"
    assert not client.connect(client_id, clean=False).session_present


@feature("session-expiry")
def test_disconnect_changes_the_expiry_interval(new_client):
    client = new_client()
    client_id = unique("changed")
    client.connect(client_id, clean=False, properties={"SessionExpiryInterval": 300})
    client.disconnect(properties={"SessionExpiryInterval": 0})
    assert not client.connect(client_id, clean=False, properties={"SessionExpiryInterval": 1}).session_present
    client.disconnect(properties={"SessionExpiryInterval": 300})
    assert client.connect(client_id, clean=False).session_present


def will(topic, text, delay=0, **arguments):
    """Arguments of `connect` with a will; with a delay the session lives longer than it."""
    if delay:
        return {"will": Will(topic, text.encode(), properties={"WillDelayInterval": delay}, **arguments),
                "properties": {"SessionExpiryInterval": 300}}
    return {"will": Will(topic, text.encode(), **arguments)}


@feature("will")
def test_will_on_abrupt_close(new_client, connected, topic):
    watcher, leaver = connected(), new_client()
    watcher.subscribe(topic, qos=2)
    leaver.connect(**will(topic, "gone", qos=2))
    leaver.drop()
    message = watcher.receive()
    assert (message.topic, message.text(), message.qos, message.retain) == (topic, "gone", 2, False)


@feature("will-disconnect")
def test_disconnect_cancels_the_will(new_client, connected, topic):
    watcher, polite, abrupt = connected(), new_client(), new_client()
    watcher.subscribe(topic, qos=1)
    polite.connect(**will(topic, "polite"))
    polite.disconnect()
    abrupt.connect(**will(topic, "abrupt"))
    abrupt.drop()
    assert watcher.receive().text() == "abrupt"


@feature("will-requested")
def test_disconnect_with_will(new_client, connected, topic):
    watcher, leaver = connected(), new_client()
    watcher.subscribe(topic, qos=1)
    leaver.connect(**will(topic, "requested"))
    leaver.disconnect(reason=0x04)
    assert watcher.receive().text() == "requested"


@feature("will-retained")
def test_retained_will(new_client, connected, topic):
    late, leaver, watcher = connected(), new_client(), connected()
    watcher.subscribe(topic, qos=1)
    leaver.connect(**will(topic, "kept", retain=True))
    leaver.drop()
    assert watcher.receive().text() == "kept"
    late.subscribe(topic, qos=1)
    message = late.receive()
    assert (message.text(), message.retain) == ("kept", True)
    watcher.publish(topic, "", qos=1, retain=True)


@feature("will-delay")
def test_will_delay(new_client, connected, topic):
    watcher, late, soon = connected(), new_client(), new_client()
    watcher.subscribe(topic, qos=1)
    late.connect(**will(topic, "after a second", delay=1))
    soon.connect(**will(topic, "at once"))
    late.drop()
    soon.drop()
    assert watcher.receive_texts(2) == ["at once", "after a second"]


@feature("will-reconnect")
def test_reconnect_cancels_a_delayed_will(new_client, connected, topic):
    watcher, returning, staying_away = connected(), new_client(), new_client()
    client_id = unique("returns")
    watcher.subscribe(topic, qos=1)
    returning.connect(client_id, **will(topic, "wrong", delay=1))
    returning.drop()
    staying_away.connect(**will(topic, "right", delay=2))
    assert returning.connect(client_id, clean=False, properties={"SessionExpiryInterval": 300}).session_present
    staying_away.drop()
    assert watcher.receive().text() == "right"


@feature("will")
def test_will_carries_its_properties(new_client, connected, topic, v5):
    watcher, leaver = connected(), new_client()
    watcher.subscribe(topic, qos=1)
    properties = {"ContentType": "text/plain", "UserProperty": [("why", "test")], "ResponseTopic": "r/t"} if v5 else {}
    leaver.connect(will=Will(topic, b"gone", properties=properties))
    leaver.drop()
    message = watcher.receive()
    assert message.text() == "gone"
    for name, value in properties.items():
        assert message.properties[name] == value
