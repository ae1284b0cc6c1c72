"""The features with mosquitto_pub, mosquitto_sub and mosquitto_rr."""

import time

import pytest

from broker import MAXIMUM_PACKET_SIZE
from model import V5, V311, unique, wait_until
from mosquitto_client import Mosquitto

feature = pytest.mark.feature
BOTH = ("mosquitto311", "mosquitto5")


def will(topic, text, *options):
    return ["--will-topic", topic, "--will-payload", text, "--will-qos", "1", *options]


@feature("connect")
def test_session_is_kept_until_a_clean_start(mosquitto, topic):
    client_id = unique("kept")
    mosquitto.subscribe(topic, options=["-c", "-E"], qos=1, client_id=client_id).wait()
    mosquitto.publish(topic, "while away", qos=1)
    again = mosquitto.subscribe(topic, options=["-c"], qos=1, client_id=client_id)
    assert again.receive()["payload"] == "while away"
    again.kill()
    mosquitto.publish(topic, "forgotten", qos=1)
    clean = mosquitto.subscribe(topic, qos=1, client_id=client_id)
    mosquitto.publish(topic, "after", qos=1)
    assert clean.receive()["payload"] == "after"


@feature("assigned-id")
def test_connects_without_client_id(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic)
    done = mosquitto.publish(topic, "from nobody")
    assert b"(null) sending CONNECT" in done.stdout and b"received CONNACK (0)" in done.stdout
    if mosquitto.version == 5:
        assert b"(null) received CONNACK" not in done.stdout, "the library takes the name that the broker assigned"
    assert subscriber.receive()["payload"] == "from nobody"


@feature("tcp")
def test_tcp(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1)
    mosquitto.publish(topic, "over TCP", qos=1)
    assert subscriber.receive()["payload"] == "over TCP"


@feature("tls")
def test_tls(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1, transport="tls")
    mosquitto.publish(topic, "over TLS", qos=1, transport="tls")
    assert subscriber.receive()["payload"] == "over TLS"


def crosses(qos, mosquitto, topic):
    subscribers = [mosquitto.subscribe(topic, qos=granted) for granted in (0, 1, 2)]
    expected = [str(n) for n in range(20)]
    mosquitto.publish(topic, lines=expected, qos=qos)
    for granted, subscriber in enumerate(subscribers):
        messages = [subscriber.receive() for _ in expected]
        assert [m["payload"] for m in messages] == expected
        assert {(m["qos"], m["retain"]) for m in messages} == {(min(qos, granted), 0)}
        assert not subscriber.pending()


@feature("qos0")
def test_qos_0(mosquitto, topic):
    crosses(0, mosquitto, topic)


@feature("qos1")
def test_qos_1(mosquitto, topic):
    crosses(1, mosquitto, topic)


@feature("qos2")
def test_qos_2(mosquitto, topic):
    crosses(2, mosquitto, topic)


@feature("wildcards")
def test_wildcards(mosquitto, topic):
    names = ["a", "a/b", "a/b/c", "b/c"]
    cases = {"a/#": ["a", "a/b", "a/b/c"], "#": names, "+": ["a"], "+/+": ["a/b", "b/c"], "+/b/+": ["a/b/c"]}
    subscribers = {pattern: mosquitto.subscribe(f"{topic}/{pattern}", f"{topic}-end", qos=1) for pattern in cases}
    for name in names:
        mosquitto.publish(f"{topic}/{name}", "x", qos=1)
    mosquitto.publish(f"{topic}-end", "end", qos=1)
    for pattern, expected in cases.items():
        received = [subscribers[pattern].receive()["topic"] for _ in range(len(expected) + 1)]
        assert received == [f"{topic}/{name}" for name in expected] + [f"{topic}-end"], pattern


@feature("dollar")
def test_wildcards_do_not_match_dollar_topics(mosquitto, topic):
    everything = mosquitto.subscribe("#", "+/broker/#")
    sys = mosquitto.subscribe("$SYS/#")
    seen = set()
    while (again := sys.receive()["topic"]) not in seen:
        seen.add(again)
    mosquitto.publish(topic, "end")
    received = []
    while not received or received[-1] != topic:
        received.append(everything.receive()["topic"])
    assert not [name for name in received if name.startswith("$")]


@feature("sys")
def test_sys_topics(mosquitto):
    subscriber = mosquitto.subscribe("$SYS/broker/version", "$SYS/broker/uptime")
    topics = {subscriber.receive()["topic"] for _ in range(2)}
    assert topics == {"$SYS/broker/version", "$SYS/broker/uptime"}


@feature("retain-set")
def test_retained_message_greets_new_subscribers(mosquitto, topic):
    live = mosquitto.subscribe(topic, qos=1)
    mosquitto.publish(topic, "kept", "-r", qos=1)
    message = live.receive()
    assert (message["payload"], message["retain"]) == ("kept", 0)
    message = mosquitto.subscribe(topic, qos=1).receive()
    assert (message["payload"], message["retain"]) == ("kept", 1)
    mosquitto.publish(topic, None, "-r")


@feature("retain-replace")
def test_retained_message_is_replaced(mosquitto, topic):
    mosquitto.publish(topic, "old", "-r", qos=1)
    mosquitto.publish(topic, "new", "-r", qos=1)
    assert mosquitto.subscribe(topic).receive()["payload"] == "new"
    mosquitto.publish(topic, None, "-r")


@feature("retain-clear")
def test_empty_payload_clears_the_retained_message(mosquitto, topic):
    mosquitto.publish(topic, "kept", "-r", qos=1)
    mosquitto.publish(topic, None, "-r", qos=1)
    subscriber = mosquitto.subscribe(topic)
    mosquitto.publish(topic, "live")
    assert subscriber.receive()["payload"] == "live"


@feature("retain-as-published")
def test_retain_as_published(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, options=["--retain-as-published"])
    mosquitto.publish(topic, "retained", "-r")
    mosquitto.publish(topic, "passing")
    assert [subscriber.receive()["retain"] for _ in range(2)] == [1, 0]
    mosquitto.publish(topic, None, "-r")


@feature("will")
def test_will_on_abrupt_close(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    mosquitto.subscribe("none", options=will(topic, "gone")).kill()
    message = watcher.receive()
    assert (message["payload"], message["qos"], message["retain"]) == ("gone", 1, 0)


@feature("will-disconnect")
def test_disconnect_cancels_the_will(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    polite = mosquitto.subscribe(f"{topic}/go", options=["-C", "1", *will(topic, "polite")])
    mosquitto.publish(f"{topic}/go", "leave")
    assert polite.wait() == 0
    mosquitto.subscribe("none", options=will(topic, "abrupt")).kill()
    assert watcher.receive()["payload"] == "abrupt"


@feature("will-requested")
def test_disconnect_with_will(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    mosquitto.subscribe("none", options=will(topic, "requested")).terminate()
    assert watcher.receive()["payload"] == "requested"


@feature("will-retained")
def test_retained_will(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    mosquitto.subscribe("none", options=will(topic, "kept", "--will-retain")).kill()
    assert watcher.receive()["payload"] == "kept"
    message = mosquitto.subscribe(topic).receive()
    assert (message["payload"], message["retain"]) == ("kept", 1)
    mosquitto.publish(topic, None, "-r")


@feature("will-delay")
def test_will_delay(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    late = mosquitto.subscribe("none", options=["-x", "60", *will(topic, "after a second", "-D", "will", "will-delay-interval", "1")])
    soon = mosquitto.subscribe("none", options=will(topic, "at once"))
    late.kill()
    soon.kill()
    assert watcher.receive_texts(2) == ["at once", "after a second"]


@feature("will-reconnect")
def test_reconnect_cancels_a_delayed_will(mosquitto, topic):
    watcher = mosquitto.subscribe(topic, qos=1)
    client_id = unique("returns")
    first = mosquitto.subscribe("none", client_id=client_id,
                                options=["-c", "-x", "60", *will(topic, "wrong", "-D", "will", "will-delay-interval", "1")])
    away = mosquitto.subscribe("none", options=["-x", "60", *will(topic, "right", "-D", "will", "will-delay-interval", "2")])
    first.kill()
    mosquitto.subscribe("none", client_id=client_id, options=["-c", "-x", "60"])
    away.kill()
    assert watcher.receive()["payload"] == "right"


@feature("session-expiry")
def test_session_ends_when_its_expiry_interval_has_passed(mosquitto, topic):
    watcher = mosquitto.subscribe(f"{topic}/will", qos=1)
    client_id = unique("expires")
    # The delayed will comes when the session ends, if that is before its delay has passed.
    leaver = mosquitto.subscribe(topic, qos=1, client_id=client_id,
                                 options=["-c", "-x", "1", *will(f"{topic}/will", "ended", "-D", "will", "will-delay-interval", "1000")])
    leaver.kill()
    assert watcher.receive()["payload"] == "ended"
    mosquitto.publish(topic, "nobody's", qos=1)
    again = mosquitto.subscribe(topic, qos=1, client_id=client_id, options=["-c", "-x", "1"])
    mosquitto.publish(topic, "live", qos=1)
    assert again.receive()["payload"] == "live"


@feature("takeover")
def test_second_connection_takes_the_session_over(mosquitto, topic):
    client_id = unique("taken")
    first = mosquitto.subscribe(topic, qos=1, client_id=client_id, options=["-c"])
    second = mosquitto.subscribe(topic, qos=1, client_id=client_id, options=["-c"])
    # With MQTT 5 mosquitto_sub takes that as an answer; with 3.1.1 it comes back by itself.
    first.line(r"[Rr]eceived DISCONNECT \(142\)" if mosquitto.version == 5 else "sending CONNECT")
    first.kill()
    mosquitto.publish(topic, "to the second", qos=1)
    assert second.receive()["payload"] == "to the second"


def queues(qos, mosquitto, topic):
    client_id = unique("offline")
    mosquitto.subscribe(topic, options=["-c"], qos=qos, client_id=client_id).kill()
    expected = [str(n) for n in range(30)]
    mosquitto.publish(topic, lines=expected, qos=qos)
    again = mosquitto.subscribe(topic, options=["-c"], qos=qos, client_id=client_id)
    messages = [again.receive() for _ in expected]
    assert [m["payload"] for m in messages] == expected
    assert {m["qos"] for m in messages} == {qos}


@feature("queue-qos1")
def test_offline_session_keeps_qos_1_in_order(mosquitto, topic):
    queues(1, mosquitto, topic)


@feature("queue-qos2")
def test_offline_session_keeps_qos_2_in_order(mosquitto, topic):
    queues(2, mosquitto, topic)


@feature("shared")
def test_shared_subscription_delivers_each_message_once(mosquitto, topic):
    members = [mosquitto.subscribe(f"$share/group/{topic}", qos=1) for _ in range(3)]
    expected = [str(n) for n in range(60)]
    mosquitto.publish(topic, lines=expected, qos=1)
    wait_until(lambda: sum(len(member.pending()) for member in members) >= 60, "the group to receive all")
    shares = [member.pending() for member in members]
    assert sorted(sum(shares, []), key=int) == expected
    assert all(shares), "every member takes part"


@feature("shared-leave")
def test_member_leaves_a_shared_subscription(mosquitto, topic):
    staying, leaving = (mosquitto.subscribe(f"$share/group/{topic}", qos=1) for _ in range(2))
    leaving.terminate()
    expected = [str(n) for n in range(20)]
    mosquitto.publish(topic, lines=expected, qos=1)
    assert staying.receive_texts(20) == expected


@feature("subscription-id")
def test_subscription_identifier(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, options=["-D", "subscribe", "subscription-identifier", "7"])
    mosquitto.publish(topic, "x")
    assert subscriber.receive()["properties"]["subscription-identifier"] == 7


@feature("alias-in")
def test_broker_resolves_the_clients_aliases(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1)
    done = mosquitto.publish(topic, None, "-D", "publish", "topic-alias", "3", lines=["0", "1", "2"], qos=1)
    assert done.stdout.count(b"'(null)'") == 2, "the alias alone is sent the second and third time"
    assert [(m["topic"], m["payload"]) for m in (subscriber.receive() for _ in range(3))] == [(topic, str(n)) for n in range(3)]


@feature("receive-maximum-client")
def test_broker_keeps_to_the_clients_receive_maximum(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=2, options=["-D", "connect", "receive-maximum", "1"])
    expected = [str(n) for n in range(10)]
    mosquitto.publish(topic, lines=expected, qos=2)
    assert subscriber.receive_texts(10) == expected
    # With a window of one, every message is complete before the next one begins.
    steps = [word for line in subscriber.lines() for word in ("received PUBLISH", "sending PUBCOMP") if word in line]
    assert steps == ["received PUBLISH", "sending PUBCOMP"] * 10


@feature("receive-maximum-broker")
def test_client_keeps_to_the_brokers_receive_maximum(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=2)
    expected = [str(n) for n in range(200)]
    mosquitto.publish(topic, lines=expected, qos=2)
    assert subscriber.receive_texts(200) == expected


@feature("maximum-packet-client")
def test_broker_drops_what_the_client_cannot_take(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1, options=["-D", "connect", "maximum-packet-size", "256"])
    mosquitto.publish(topic, "x" * 1000, qos=1)
    mosquitto.publish(topic, "small", qos=1)
    assert subscriber.receive()["payload"] == "small"


@feature("maximum-packet-broker")
def test_packet_over_the_brokers_maximum(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1)
    done = mosquitto.publish(topic, bytes(MAXIMUM_PACKET_SIZE + 1), qos=1, check=False)
    # With MQTT 5 the library knows the limit and does not send; with 3.1.1 the broker ends the connection.
    assert done.returncode != 0 or b"sending PUBLISH" not in done.stdout
    mosquitto.publish(topic, "the others go on", qos=1)
    assert subscriber.receive()["payload"] == "the others go on"


@feature("keep-alive", "ping", columns=BOTH)
def test_keep_alive_and_ping(broker):
    """Both versions at once, since mosquitto_sub takes no keep-alive below five seconds."""
    name = unique("t/keep-alive")
    tools = [Mosquitto(broker, version) for version in (V311, V5)]
    try:
        watcher = tools[0].subscribe(f"{name}/#")
        start = time.monotonic()
        silent = [tool.subscribe("none", options=["-k", "5", *will(f"{name}/{tool.version}", "gone")]) for tool in tools]
        pinging = [tool.subscribe("none", options=["-k", "5"]) for tool in tools]
        for process in silent:
            process.stop()
        assert {watcher.receive()["topic"] for _ in tools} == {f"{name}/{V311}", f"{name}/{V5}"}
        # One and a half times the keep-alive after what the broker heard last, which was after the start; never early.
        assert time.monotonic() - start >= 7.0
        for process in pinging:
            process.line("received PINGRESP")
    finally:
        for tool in tools:
            tool.close()


@feature("message-expiry")
def test_message_expiry_is_counted_down(mosquitto, topic, elapse):
    client_id = unique("expiry")
    mosquitto.subscribe(topic, options=["-c"], qos=1, client_id=client_id).kill()
    mosquitto.publish(topic, "short", "-D", "publish", "message-expiry-interval", "1", qos=1)
    mosquitto.publish(topic, "long", "-D", "publish", "message-expiry-interval", "100", qos=1)
    elapse(2)
    message = mosquitto.subscribe(topic, options=["-c"], qos=1, client_id=client_id).receive()
    assert message["payload"] == "long"
    assert 60 <= message["properties"]["message-expiry-interval"] <= 98


@feature("request-response")
def test_request_and_response(mosquitto, topic):
    responder = mosquitto.subscribe(f"{topic}/ask", qos=1)
    requester = mosquitto.request(f"{topic}/ask", f"{topic}/answer", "6 * 7", "-D", "publish", "correlation-data", "c-17", "-q", "1")
    properties = responder.receive()["properties"]
    assert properties["response-topic"] == f"{topic}/answer"
    mosquitto.publish(properties["response-topic"], "42", "-D", "publish", "correlation-data", properties["correlation-data"], qos=1)
    response = requester.receive()
    assert (response["payload"], response["properties"]["correlation-data"]) == ("42", "c-17")


@feature("properties")
def test_properties_arrive_unaltered_and_in_order(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic)
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]
    options = ["-D", "publish", "content-type", "text/plain", "-D", "publish", "payload-format-indicator", "1"]
    for name, value in pairs:
        options += ["-D", "publish", "user-property", name, value]
    mosquitto.publish(topic, "x", *options)
    properties = subscriber.receive()["properties"]
    assert (properties["content-type"], properties["payload-format-indicator"]) == ("text/plain", 1)
    assert properties["user-properties"]["pairs"][:3] == pairs


@feature("reason-filter")
def test_shared_filter_without_a_name_is_refused(mosquitto, topic):
    subscriber = mosquitto.subscribe(f"$share//{topic}", wait=False)
    subscriber.line("sending CONNECT")
    # The SUBACK refuses, or the connection ends (and mosquitto_sub comes back).
    if mosquitto.version == 5:
        subscriber.line(r"Subscribed \(mid: 1\): 143|[Rr]eceived DISCONNECT \((129|130|143)\)")
    else:
        subscriber.line(r"Subscribed \(mid: 1\): 128|sending CONNECT")


@feature("reason-publish")
def test_publishing_to_sys_is_refused(mosquitto, topic):
    watcher = mosquitto.subscribe("$SYS/forged", topic)
    done = mosquitto.publish("$SYS/forged", "lies", qos=1, check=False)
    if mosquitto.version == 5:
        assert b"RC:135" in done.stdout and b"Not authorized" in done.stderr
    mosquitto.publish(topic, "end", qos=1)
    assert watcher.receive()["payload"] == "end"


@feature("unsubscribe")
def test_unsubscribe(mosquitto, topic):
    client_id = unique("unsubscribes")
    mosquitto.subscribe(f"{topic}/a", f"{topic}/b", options=["-c", "-E"], qos=1, client_id=client_id).wait()
    again = mosquitto.subscribe(f"{topic}/b", options=["-c", "-U", f"{topic}/a"], qos=1, client_id=client_id)
    again.line("received UNSUBACK|[Uu]nsubscribe")
    mosquitto.publish(f"{topic}/a", "after", qos=1)
    mosquitto.publish(f"{topic}/b", "end", qos=1)
    assert again.receive()["payload"] == "end"


@feature("large")
def test_payload_of_1_mb(mosquitto, topic):
    subscriber = mosquitto.subscribe(topic, qos=1)
    payload = "".join(chr(65 + n % 26) for n in range(1_000_000))
    mosquitto.publish(topic, payload, qos=1)
    assert subscriber.receive()["payload"] == payload


@feature("many-topics")
def test_many_topics(mosquitto, topic):
    count = 60
    one_by_one = mosquitto.subscribe(*(f"{topic}/{n}" for n in range(count)), qos=1)
    everything = mosquitto.subscribe(f"{topic}/#", qos=1)
    for n in range(count):
        mosquitto.publish(f"{topic}/{n}", str(n), qos=1)
    expected = [str(n) for n in range(count)]
    assert one_by_one.receive_texts(count) == expected
    assert everything.receive_texts(count) == expected
