"""Publishing: qualities of service, retained messages, properties, aliases, limits."""

import pytest

from model import unique, wait_until
from test_connection import persistent

feature = pytest.mark.feature


def crosses(qos, connected, topic, v5):
    """Publishes at `qos` to subscriptions of every quality; each gets all, in order, at the lower of the two."""
    publisher = connected()
    subscribers = []
    for granted in (0, 1, 2):
        subscriber = connected()
        assert subscriber.subscribe(topic, qos=granted).codes == [granted]
        subscribers.append(subscriber)
    handles = [publisher.start_publish(topic, str(n), qos=qos) for n in range(20)]
    for handle in handles:
        assert publisher.finish_publish(handle).code == 0
    for granted, subscriber in enumerate(subscribers):
        messages = [subscriber.receive() for _ in range(20)]
        assert [m.text() for m in messages] == [str(n) for n in range(20)]
        assert {(m.qos, m.retain, m.dup) for m in messages} == {(min(qos, granted), False, False)}
        assert not subscriber.pending()


@feature("qos0")
def test_qos_0(connected, topic, v5):
    crosses(0, connected, topic, v5)


@feature("qos1")
def test_qos_1(connected, topic, v5):
    crosses(1, connected, topic, v5)


@feature("qos2")
def test_qos_2(connected, topic, v5):
    crosses(2, connected, topic, v5)


@feature("large")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payload_of_1_mb(connected, topic, qos):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(topic, qos=qos)
    payload = bytes(range(251)) * (1_000_000 // 251)
    publisher.publish(topic, payload, qos=qos)
    assert subscriber.receive().payload == payload


@feature("many-topics")
def test_many_topics(connected, topic):
    publisher, everything, some = connected(), connected(), connected()
    count = 500
    everything.subscribe(f"{topic}/#")
    for n in range(0, count, 10):
        some.subscribe(f"{topic}/{n}/x")
    for n in range(count):
        publisher.publish(f"{topic}/{n}/x", str(n))
    assert [everything.receive().topic for _ in range(count)] == [f"{topic}/{n}/x" for n in range(count)]
    assert some.receive_texts(count // 10) == [str(n) for n in range(0, count, 10)]


@feature("retain-set")
def test_retained_message_greets_new_subscribers(connected, topic):
    publisher, live, late = connected(), connected(), connected()
    live.subscribe(topic, qos=1)
    publisher.publish(topic, "kept", qos=1, retain=True)
    message = live.receive()
    assert (message.text(), message.retain) == ("kept", False)
    late.subscribe(topic, qos=1)
    message = late.receive()
    assert (message.text(), message.retain, message.qos) == ("kept", True, 1)
    publisher.publish(topic, "", retain=True, qos=1)


@feature("retain-replace")
def test_retained_message_is_replaced(connected, topic):
    publisher, late = connected(), connected()
    publisher.publish(topic, "old", qos=1, retain=True)
    publisher.publish(topic, "new", qos=2, retain=True)
    publisher.publish(topic, "passing", qos=1)
    late.subscribe(topic, qos=1)
    publisher.publish(topic, "live", qos=1)
    assert [(m.text(), m.retain) for m in (late.receive(), late.receive())] == [("new", True), ("live", False)]
    publisher.publish(topic, "", retain=True, qos=1)


@feature("retain-clear")
def test_empty_payload_clears_the_retained_message(connected, topic):
    publisher, live, late = connected(), connected(), connected()
    publisher.publish(topic, "kept", qos=1, retain=True)
    live.subscribe(topic, qos=1)
    assert live.receive().text() == "kept"
    publisher.publish(topic, "", qos=1, retain=True)
    message = live.receive()
    assert (message.payload, message.retain) == (b"", False)
    late.subscribe(topic, qos=1)
    publisher.publish(topic, "live", qos=1)
    assert late.receive().text() == "live"


@feature("message-expiry")
def test_message_expiry_is_counted_down(new_client, connected, topic, v5, elapse):
    subscriber, publisher = new_client(), connected()
    client_id = unique("expiry")
    subscriber.connect(client_id, **persistent(v5))
    subscriber.subscribe(topic, qos=1)
    subscriber.disconnect()
    publisher.publish(topic, "short", qos=1, properties={"MessageExpiryInterval": 1})
    publisher.publish(topic, "long", qos=1, properties={"MessageExpiryInterval": 100})
    elapse(2)
    subscriber.connect(client_id, **persistent(v5))
    message = subscriber.receive()
    assert message.text() == "long"
    assert 60 <= message.properties["MessageExpiryInterval"] <= 98


@feature("message-expiry")
def test_retained_message_expires(connected, topic, elapse):
    publisher, late = connected(), connected()
    publisher.publish(topic, "short", qos=1, retain=True, properties={"MessageExpiryInterval": 1})
    elapse(2)
    late.subscribe(topic, qos=1)
    publisher.publish(topic, "live", qos=1)
    assert late.receive().text() == "live"


@feature("properties")
def test_properties_arrive_unaltered_and_in_order(connected, topic):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(topic, qos=1)
    pairs = [("b", "1"), ("b", "2"), ("a", "Straße 3"), ("", "empty name"), ("c", "")]
    properties = {"UserProperty": pairs, "ContentType": "text/plain; charset=utf-8", "PayloadFormatIndicator": 1}
    publisher.publish(topic, "Grüße", qos=1, properties=properties)
    message = subscriber.receive()
    assert message.text() == "Grüße"
    assert message.properties["UserProperty"][:len(pairs)] == pairs
    assert message.properties["ContentType"] == "text/plain; charset=utf-8"
    assert message.properties["PayloadFormatIndicator"] == 1


@feature("properties")
def test_retained_message_keeps_its_properties(connected, topic):
    publisher, subscriber = connected(), connected()
    publisher.publish(topic, "kept", qos=1, retain=True, properties={"UserProperty": [("k", "v")], "ContentType": "a/b"})
    subscriber.subscribe(topic, qos=1)
    message = subscriber.receive()
    assert message.properties["UserProperty"][:1] == [("k", "v")]
    assert message.properties["ContentType"] == "a/b"
    publisher.publish(topic, "", retain=True, qos=1)


@feature("request-response")
def test_request_and_response(connected, topic):
    requester, responder = connected(), connected()
    responder.subscribe(f"{topic}/ask", qos=1)
    requester.subscribe(f"{topic}/answer", qos=1)
    correlation = b"\x00\xff\x01 not text"
    requester.publish(f"{topic}/ask", "6 * 7", qos=1, properties={"ResponseTopic": f"{topic}/answer", "CorrelationData": correlation})
    request = responder.receive()
    assert request.properties["CorrelationData"] == correlation
    responder.publish(request.properties["ResponseTopic"], "42", qos=1, properties={"CorrelationData": request.properties["CorrelationData"]})
    response = requester.receive()
    assert (response.topic, response.text()) == (f"{topic}/answer", "42")
    assert response.properties["CorrelationData"] == correlation


@feature("request-response")
def test_response_information(new_client, connected, topic):
    requester, responder = new_client(), connected()
    prefix = requester.connect(properties={"RequestResponseInformation": 1}).properties["ResponseInformation"]
    requester.subscribe(f"{prefix}#", qos=1)
    responder.subscribe(topic, qos=1)
    requester.publish(topic, "?", qos=1, properties={"ResponseTopic": f"{prefix}1"})
    responder.publish(responder.receive().properties["ResponseTopic"], "!", qos=1)
    assert requester.receive().text() == "!"


@feature("alias-in")
def test_broker_resolves_the_clients_aliases(new_client, connected, topic):
    publisher, subscriber = new_client(), connected()
    assert publisher.connect().properties["TopicAliasMaximum"] >= 2
    subscriber.subscribe(f"{topic}/#", qos=1)
    for name, alias, text in [("a", 1, "0"), ("b", 2, "1"), (None, 1, "2"), (None, 2, "3"), ("c", 1, "4"), (None, 1, "5"), (None, 2, "6")]:
        publisher.publish(f"{topic}/{name}" if name else "", text, qos=1, properties={"TopicAlias": alias})
    received = [(m.topic.removeprefix(f"{topic}/"), m.text()) for m in (subscriber.receive() for _ in range(7))]
    assert received == [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", "5"), ("b", "6")]


@feature("alias-out")
def test_client_resolves_the_brokers_aliases(new_client, connected, topic):
    publisher, subscriber = connected(), new_client()
    subscriber.connect(properties={"TopicAliasMaximum": 2})
    subscriber.subscribe(f"{topic}/#", qos=1)
    names = [f"{topic}/{name}" for name in "aabcabcdda"]
    for name in names:
        publisher.publish(name, name, qos=1)
    messages = [subscriber.receive() for _ in names]
    assert [m.topic for m in messages] == names == [m.text() for m in messages]
    aliases = {m.properties["TopicAlias"] for m in messages if "TopicAlias" in m.properties}
    assert aliases and aliases <= {1, 2}
    assert any(m.wire_topic == "" for m in messages), "an alias took a topic's place at least once"


@feature("receive-maximum-client")
@pytest.mark.parametrize("qos", [1, 2])
def test_broker_keeps_to_the_clients_receive_maximum(new_client, connected, topic, qos):
    publisher, subscriber = connected(), new_client()
    subscriber.connect(properties={"ReceiveMaximum": 3}, hold_acks=True)
    subscriber.subscribe(topic, qos=qos)
    for n in range(10):
        publisher.publish(topic, str(n), qos=qos)
    wait_until(lambda: subscriber.watch_unacked() == 3, "three messages without acknowledgement")
    for _ in range(10):
        subscriber.release_ack()
    assert subscriber.receive_texts(10) == [str(n) for n in range(10)]
    subscriber.watch_unacked()
    assert subscriber.max_unacked == 3


@feature("maximum-packet-client")
def test_broker_drops_what_the_client_cannot_take(new_client, connected, topic):
    publisher, subscriber = connected(), new_client()
    subscriber.connect(properties={"MaximumPacketSize": 256})
    subscriber.subscribe(topic, qos=1)
    publisher.publish(topic, bytes(1000), qos=1)
    publisher.publish(topic, "small", qos=1)
    assert subscriber.receive().text() == "small"
    assert not subscriber.is_closed


@feature("reason-publish")
def test_publishing_to_sys_is_refused(new_client, connected, v5):
    client, watcher = new_client(), connected()
    topic = unique("$SYS/forged")
    watcher.subscribe("$SYS/#", qos=1)
    client.connect()
    handle = client.start_publish(topic, "lies", qos=1)
    # MQTT 3.1.1 has no code for it: the publish is acknowledged, and goes nowhere.
    ack = client.finish_publish(handle)
    if v5:
        assert ack.code == 0x87
        assert ack.properties["ReasonString"]
    seen = [watcher.receive().topic for _ in range(30)]
    assert topic not in seen
