"""Subscribing: filters, options, identifiers, shared subscriptions."""

import pytest

from model import Ended, wait_until

feature = pytest.mark.feature

TOPICS = ["a", "a/b", "a/b/c", "a//c", "/a", "b", "a/", "b/b/c"]


@feature("wildcards")
def test_wildcards(connected, topic):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(f"{topic}-end")
    cases = {
        "a/b": ["a/b"],
        "a/#": ["a", "a/b", "a/b/c", "a//c", "a/"],
        "#": TOPICS,
        "+": ["a", "b"],
        "a/+": ["a/b", "a/"],
        "+/+": ["a/b", "/a", "a/"],
        "a/+/c": ["a/b/c", "a//c"],
        "+/b/#": ["a/b", "a/b/c", "b/b/c"],
        "/+": ["/a"],
    }
    for pattern, expected in cases.items():
        subscriber.subscribe(f"{topic}/{pattern}")
        for name in TOPICS:
            publisher.publish(f"{topic}/{name}", pattern)
        publisher.publish(f"{topic}-end", "end")
        received = []
        while (message := subscriber.receive()).topic != f"{topic}-end":
            received.append(message.topic.removeprefix(f"{topic}/"))
        assert received == expected, pattern
        subscriber.unsubscribe(f"{topic}/{pattern}")


@feature("dollar")
def test_wildcards_do_not_match_dollar_topics(connected, topic):
    everything, sys, publisher = connected(), connected(), connected()
    everything.subscribe("#")
    everything.subscribe("+/broker/#")
    sys.subscribe("$SYS/#")
    # What is retained comes at once; a topic that comes again was published since, and would have reached `#` as well.
    seen = set()
    while (again := sys.receive().topic) not in seen:
        seen.add(again)
    publisher.publish(topic, "end")
    received = []
    while not received or received[-1] != topic:
        received.append(everything.receive().topic)
    assert not [name for name in received if name.startswith("$")]


@feature("sys")
def test_sys_topics(connected):
    client = connected()
    client.subscribe("$SYS/broker/#")
    seen = {}
    while not {"$SYS/broker/version", "$SYS/broker/uptime"} <= seen.keys():
        message = client.receive()
        assert message.topic.startswith("$SYS/broker/")
        seen[message.topic] = message
    assert seen["$SYS/broker/version"].payload
    first = seen["$SYS/broker/uptime"].text()
    wait_until(lambda: (again := client.receive()).topic == "$SYS/broker/uptime" and again.text() != first, "a new uptime")


@feature("unsubscribe")
def test_unsubscribe(connected, topic, v5):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(f"{topic}/a", f"{topic}/b", qos=1)
    publisher.publish(f"{topic}/a", "before", qos=1)
    assert subscriber.receive().text() == "before"
    ack = subscriber.unsubscribe(f"{topic}/a", f"{topic}/never")
    if v5:
        assert ack.codes == [0, 0x11]
    publisher.publish(f"{topic}/a", "after", qos=1)
    publisher.publish(f"{topic}/b", "end", qos=1)
    assert subscriber.receive().text() == "end"


@feature("reason-filter")
def test_shared_filter_without_a_name_is_refused(new_client, topic, v5):
    """The client libraries check wildcards themselves, so the filter is one that only the broker finds fault with."""
    client = new_client()
    client.connect()
    try:
        codes = client.subscribe(f"$share//{topic}", qos=1).codes
    except Ended as ended:
        codes = [ended.code]
    assert codes[0] in ((0x8F, 0x82, 0x81) if v5 else (0x80, None))


@feature("no-local")
def test_no_local(connected, topic):
    client, other = connected(), connected()
    client.subscribe(topic, qos=1, no_local=True)
    client.publish(topic, "own", qos=1)
    other.publish(topic, "other's", qos=1)
    assert client.receive().text() == "other's"


@feature("retain-as-published")
def test_retain_as_published(connected, topic):
    publisher, as_published, plain = connected(), connected(), connected()
    as_published.subscribe(topic, qos=1, retain_as_published=True)
    plain.subscribe(topic, qos=1)
    publisher.publish(topic, "retained", qos=1, retain=True)
    publisher.publish(topic, "passing", qos=1)
    assert [as_published.receive().retain for _ in range(2)] == [True, False]
    assert [plain.receive().retain for _ in range(2)] == [False, False]
    publisher.publish(topic, "", qos=1, retain=True)


@feature("retain-handling")
def test_retain_handling(connected, topic):
    publisher = connected()
    publisher.publish(topic, "kept", qos=1, retain=True)
    expected = {
        0: ["kept", "live 0", "kept", "live 1"],
        1: ["kept", "live 0", "live 1"],
        2: ["live 0", "live 1"],
    }
    for handling, texts in expected.items():
        subscriber = connected()
        for n in range(2):
            subscriber.subscribe(topic, qos=1, retain_handling=handling)
            publisher.publish(topic, f"live {n}", qos=1)
        assert subscriber.receive_texts(len(texts)) == texts, handling
    publisher.publish(topic, "", qos=1, retain=True)


@feature("subscription-id")
def test_subscription_identifiers(connected, topic):
    publisher, subscriber = connected(), connected()
    subscriber.subscribe(f"{topic}/a", qos=1, properties={"SubscriptionIdentifier": 7})
    subscriber.subscribe(f"{topic}/+", qos=1, properties={"SubscriptionIdentifier": 268_435_455})
    subscriber.subscribe(f"{topic}/end", qos=1)
    publisher.publish(f"{topic}/a", "both", qos=1)
    publisher.publish(f"{topic}/b", "one", qos=1)
    publisher.publish(f"{topic}/end", "end", qos=1)
    identifiers = {"both": [], "one": []}
    # One copy with both identifiers, or one copy for each subscription: a server may do either.
    while (message := subscriber.receive()).text() != "end":
        identifiers[message.text()] += message.properties["SubscriptionIdentifier"]
    assert sorted(identifiers["both"]) == [7, 268_435_455]
    assert identifiers["one"] == [268_435_455]


@feature("shared")
def test_shared_subscription_delivers_each_message_once(connected, topic):
    publisher = connected()
    members = [connected() for _ in range(3)]
    for member in members:
        member.subscribe(f"$share/group/{topic}", qos=1)
    alone, other_group = connected(), connected()
    alone.subscribe(topic, qos=1)
    other_group.subscribe(f"$share/other/{topic}", qos=1)
    expected = [str(n) for n in range(60)]
    for text in expected:
        publisher.publish(topic, text, qos=1)
    assert alone.receive_texts(60) == expected
    assert other_group.receive_texts(60) == expected
    wait_until(lambda: sum(len(member.pending()) for member in members) >= 60, "the group to receive all")
    shares = [[message.text() for message in member.pending()] for member in members]
    assert sorted(sum(shares, []), key=int) == expected
    assert all(shares), "every member takes part"


@feature("shared-leave")
def test_member_leaves_a_shared_subscription(connected, topic):
    publisher = connected()
    staying, leaving, dropped = (connected() for _ in range(3))
    for member in (staying, leaving, dropped):
        member.subscribe(f"$share/group/{topic}", qos=1)
    leaving.unsubscribe(f"$share/group/{topic}")
    dropped.drop()
    watcher = connected()
    watcher.subscribe(topic, qos=1)

    def only_the_rest_receives():
        publisher.publish(topic, "probe", qos=1)
        return staying.receive().text() == "probe"

    wait_until(only_the_rest_receives, "the group to shrink")
    expected = [str(n) for n in range(20)]
    for text in expected:
        publisher.publish(topic, text, qos=1)
    assert staying.receive_texts(20) == expected
    assert not leaving.pending()
