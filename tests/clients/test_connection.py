"""Connecting: transports, sessions' beginnings, keep-alive, takeover."""

import time

import pytest

from model import Ended, Refused, Will, unique

feature = pytest.mark.feature
SESSION = {"SessionExpiryInterval": 300}


def persistent(v5):
    """Arguments of `connect` for a session that outlives its connection."""
    return {"clean": False, "properties": SESSION} if v5 else {"clean": False}


@feature("connect")
def test_session_present_tells_of_a_kept_session(new_client, v5):
    client = new_client()
    client_id = unique("present")
    for arguments, expected in [
        ({"clean": True}, False),
        (persistent(v5), False),
        (persistent(v5), True),
        ({"clean": True}, False),
        (persistent(v5), False),
    ]:
        assert client.connect(client_id, **arguments).session_present is expected, arguments
        client.disconnect()


@feature("connect")
def test_clean_start_forgets_subscriptions(new_client, connected, topic, v5):
    subscriber, publisher = new_client(), connected()
    client_id = unique("forgets")
    subscriber.connect(client_id, **persistent(v5))
    subscriber.subscribe(f"{topic}/old", qos=1)
    subscriber.disconnect()
    subscriber.connect(client_id, clean=True)
    subscriber.subscribe(f"{topic}/new", qos=1)
    publisher.publish(f"{topic}/old", "forgotten", qos=1)
    publisher.publish(f"{topic}/new", "kept", qos=1)
    assert subscriber.receive().text() == "kept"


@feature("assigned-id")
def test_empty_client_id_is_assigned(new_client, topic, v5):
    first, second = new_client(), new_client()
    assigned = [client.connect(client_id="").properties.get("AssignedClientIdentifier") for client in (first, second)]
    if v5:
        assert all(assigned) and assigned[0] != assigned[1]
    first.subscribe(topic)
    second.publish(topic, "both are connected")
    assert first.receive().text() == "both are connected"


def carries(transport, new_client, topic):
    client = new_client()
    client.connect(transport=transport)
    client.subscribe(topic, qos=1)
    payload = bytes(range(256)) * 80
    client.publish(topic, payload, qos=1)
    assert client.receive().payload == payload
    client.disconnect()


@feature("tcp")
def test_tcp(new_client, topic):
    carries("tcp", new_client, topic)


@feature("tls")
def test_tls(new_client, topic):
    carries("tls", new_client, topic)


@feature("ws")
def test_websocket(new_client, topic):
    carries("ws", new_client, topic)


@feature("wss")
def test_websocket_with_tls(new_client, topic):
    carries("wss", new_client, topic)


@feature("keep-alive")
def test_silent_client_is_closed_after_keep_alive(new_client, connected, topic, v5):
    watcher, silent = connected(), new_client()
    watcher.subscribe(topic)
    start = time.monotonic()
    silent.connect(keepalive=1, will=Will(topic, b"gone"))
    silent.fall_silent()
    assert watcher.receive().text() == "gone"
    # The server waits one and a half times the interval, and may notice late on a busy machine, but never early.
    assert time.monotonic() - start >= 1.4
    code = silent.wait_closed()
    if v5:
        assert code in (0x8D, None)


@feature("keep-alive")
def test_pinging_client_stays(new_client, connected, topic):
    watcher, pinging, silent = connected(), new_client(), new_client()
    watcher.subscribe(topic)
    # Clients give up themselves when a ping is not answered within half the interval: that has to outlast a stall of a busy machine.
    pinging.connect(keepalive=3)
    silent.connect(keepalive=4, will=Will(topic, b"gone"))
    silent.fall_silent()
    # By then a client that does not ping would be closed for long.
    assert watcher.receive().text() == "gone"
    assert not pinging.is_closed
    pinging.publish(topic, "still here", qos=1)
    assert watcher.receive().text() == "still here"


@feature("ping")
def test_ping(connected):
    client = connected()
    client.ping()
    client.ping()


@feature("takeover")
def test_second_connection_takes_the_session_over(new_client, connected, topic, v5):
    first, second, publisher = new_client(), new_client(), connected()
    client_id = unique("taken")
    first.connect(client_id, **persistent(v5))
    first.subscribe(topic, qos=1)
    assert second.connect(client_id, **persistent(v5)).session_present
    code = first.wait_closed()
    if v5:
        assert code == 0x8E
    publisher.publish(topic, "to the second", qos=1)
    assert second.receive().text() == "to the second"
    assert not first.pending()


@feature("maximum-packet-broker")
def test_packet_over_the_brokers_maximum(new_client, connected, topic, v5):
    big, other = new_client(), connected()
    connack = big.connect()
    limit = connack.properties["MaximumPacketSize"] if v5 else 2 * 1024 * 1024
    other.subscribe(topic)
    handle = big.start_publish(topic, bytes(limit + 1), qos=1)
    try:
        # A client that knows the limit refuses to send.
        assert "exceed" in big.finish_publish(handle).properties["error"]
    except Ended as ended:
        assert ended.code == (0x95 if v5 else None)
    other.publish(topic, "the others go on", qos=1)
    assert other.receive().text() == "the others go on"


@feature("receive-maximum-broker")
def test_brokers_receive_window_can_be_filled(new_client, topic):
    client = new_client()
    window = client.connect().properties["ReceiveMaximum"]
    assert window >= 1
    for qos in (1, 2):
        handles = [client.start_publish(topic, str(n), qos=qos) for n in range(min(window, 500))]
        assert all(client.finish_publish(handle).code in (0, 0x10) for handle in handles)


@feature("connect")
def test_wildcard_in_will_topic_is_refused(new_client):
    client = new_client()
    with pytest.raises((Refused, ValueError)):
        client.connect(will=Will("no/#", b"never"))
