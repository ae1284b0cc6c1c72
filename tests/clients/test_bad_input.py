"""Malformed and forbidden input over raw sockets: the right reason code, a counter, and a broker that goes on."""

import itertools
import struct

import pytest

import raw
from raw import Connection, packet, publish, string, subscribe, varint

MALFORMED, PROTOCOL, VERSION = 0x81, 0x82, 0x84
TOPIC_FILTER, TOPIC_NAME, RECEIVE_MAXIMUM, TOPIC_ALIAS, TOO_LARGE = 0x8F, 0x90, 0x93, 0x94, 0x95

_serial = itertools.count(1)


def connect_with(properties=b"", **arguments):
    return raw.connect("bad", properties=properties, **arguments)


def number(identifier, value, size):
    return bytes([identifier]) + value.to_bytes(size, "big")


# Input instead of a good CONNECT: name, bytes, reason codes of which the CONNACK may carry one (none: the connection just ends).
INSTEAD_OF_CONNECT = [
    ("first packet is PUBLISH", publish("t"), ()),
    ("first packet is SUBSCRIBE", subscribe("t"), ()),
    ("first packet is PINGREQ", packet(0xC0), ()),
    ("first packet is DISCONNECT", packet(0xE0), ()),
    ("first packet is CONNACK", packet(0x20, b"\0\0\0"), ()),
    ("packet type 0", packet(0x00, b"\0\0"), ()),
    ("HTTP", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", ()),
    ("TLS on the plain port", bytes.fromhex("16030100c8010000c40303") + bytes(192), ()),
    ("zeros", bytes(64), ()),
    ("0xff", b"\xff" * 64, ()),
    ("protocol name MQIsdp", raw.connect("bad", version=3, name="MQIsdp"), (VERSION, 0x01)),
    ("protocol name mqtt", raw.connect("bad", name="mqtt"), (VERSION,)),
    ("empty protocol name", raw.connect("bad", name=""), (VERSION,)),
    ("protocol name of 65535 bytes", raw.connect("bad", name="M" * 65535), (VERSION,)),
    ("protocol version 0", raw.connect("bad", version=0), (VERSION, 0x01)),
    ("protocol version 3", raw.connect("bad", version=3), (VERSION, 0x01)),
    ("protocol version 6", raw.connect("bad", version=6), (VERSION, 0x01)),
    ("protocol version 255", raw.connect("bad", version=255), (VERSION, 0x01)),
    ("reserved bit of the CONNECT flags", connect_with(flags=0x03), (MALFORMED, PROTOCOL)),
    ("reserved bits of the fixed header", b"\x11" + connect_with()[1:], (MALFORMED, PROTOCOL)),
    ("will QoS 3", connect_with(flags=0x1E, payload=b"\0" + string("w") + string("x")), (MALFORMED, PROTOCOL)),
    ("will QoS without will", connect_with(flags=0x0A), (MALFORMED, PROTOCOL)),
    ("will retain without will", connect_with(flags=0x22), (MALFORMED, PROTOCOL)),
    ("will flag without will", connect_with(flags=0x06), (MALFORMED,)),
    ("will topic with wildcard", connect_with(flags=0x06, payload=b"\0" + string("w/#") + string("x")), (TOPIC_NAME, MALFORMED, PROTOCOL)),
    ("user name flag without user name", connect_with(flags=0x82), (MALFORMED,)),
    ("bytes after the payload", connect_with(payload=b"more"), (MALFORMED, PROTOCOL)),
    ("client id longer than the packet", packet(0x10, string("MQTT") + b"\x05\x02\0\0\0" + b"\0\x09abc"), (MALFORMED,)),
    ("packet ends within the protocol name", packet(0x10, b"\0\x04MQ"), ()),
    ("empty CONNECT", packet(0x10), ()),
    ("client id is not UTF-8", raw.connect(b"\xc3\x28"), (MALFORMED, 0x85)),
    ("client id with U+0000", raw.connect(b"a\0b"), (MALFORMED, 0x85)),
    ("client id with a surrogate", raw.connect(b"\xed\xa0\x80"), (MALFORMED, 0x85)),
    ("remaining length of five bytes", b"\x10\xff\xff\xff\xff\x01", ()),
    ("property length beyond the packet", packet(0x10, string("MQTT") + b"\x05\x02\0\0" + b"\x7f" + string("x")), (MALFORMED,)),
    ("unknown property", connect_with(b"\x7f\x00"), (MALFORMED, PROTOCOL)),
    ("property of another packet", connect_with(number(0x23, 1, 2)), (MALFORMED, PROTOCOL)),
    ("property twice", connect_with(number(0x11, 1, 4) * 2), (PROTOCOL,)),
    ("receive maximum 0", connect_with(number(0x21, 0, 2)), (PROTOCOL,)),
    ("maximum packet size 0", connect_with(number(0x27, 0, 4)), (PROTOCOL,)),
    ("request problem information 2", connect_with(b"\x17\x02"), (PROTOCOL,)),
    ("authentication data without method", connect_with(b"\x16" + string("x")), (PROTOCOL,)),
    ("unknown authentication method", connect_with(b"\x15" + string("SCRAM-SHA-1")), (0x8C,)),
    ("CONNECT over the maximum packet size", b"\x10" + varint(200_000_000) + b"\0\x04MQTT\x05", ()),
    ("3.1.1: empty client id without clean session", raw.connect("", version=4, flags=0), (0x02,)),
    ("3.1.1: client id is not UTF-8", raw.connect(b"\xc3\x28", version=4), ()),
    ("3.1.1: reserved bit of the CONNECT flags", raw.connect("bad", version=4, flags=0x03), ()),
    ("3.1.1: password without user name", raw.connect("bad", version=4, flags=0x42, payload=string("x")), ()),
]

# Input after an accepted CONNECT with MQTT 5: name, bytes, reason codes of which the DISCONNECT carries one.
AFTER_CONNECT = [
    ("second CONNECT", raw.connect("again"), (PROTOCOL,)),
    ("packet type 0", packet(0x00), (MALFORMED, PROTOCOL)),
    ("CONNACK from a client", packet(0x20, b"\0\0\0"), (PROTOCOL, MALFORMED)),
    ("SUBACK from a client", packet(0x90, b"\0\1\0\0"), (PROTOCOL, MALFORMED)),
    ("PINGRESP from a client", packet(0xD0), (PROTOCOL, MALFORMED)),
    ("AUTH without a method", packet(0xF0, b"\x18\0"), (PROTOCOL,)),
    ("PINGREQ with a payload", packet(0xC0, b"x"), (MALFORMED,)),
    ("PINGREQ with flags", packet(0xC1), (MALFORMED,)),
    ("remaining length of five bytes", b"\x30\xff\xff\xff\xff\x01", (MALFORMED,)),
    ("packet over the maximum size", b"\x30" + varint(200_000_000) + b"\0\1t", (TOO_LARGE,)),
    ("PUBLISH with QoS 3", publish("t", qos=1, flags=0x06), (MALFORMED,)),
    ("PUBLISH with DUP and QoS 0", publish("t", flags=0x08), (MALFORMED, PROTOCOL)),
    ("PUBLISH with packet id 0", publish("t", qos=1, mid=0), (PROTOCOL, MALFORMED)),
    ("PUBLISH with a wildcard in the topic", publish("a/+/b"), (TOPIC_NAME, MALFORMED, PROTOCOL)),
    ("PUBLISH to #", publish("#", qos=0), (TOPIC_NAME, MALFORMED, PROTOCOL)),
    ("PUBLISH with a topic that is not UTF-8", publish(b"\xff\xfe"), (MALFORMED, TOPIC_NAME)),
    ("PUBLISH with an overlong UTF-8 topic", publish(b"\xc0\xaf"), (MALFORMED, TOPIC_NAME)),
    ("PUBLISH with U+0000 in the topic", publish(b"a\0"), (MALFORMED, TOPIC_NAME)),
    ("PUBLISH without topic and alias", publish(""), (PROTOCOL, TOPIC_NAME)),
    ("PUBLISH that ends within its topic", packet(0x30, b"\0\x09abc"), (MALFORMED,)),
    ("PUBLISH that ends before its packet id", packet(0x32, string("t") + b"\0"), (MALFORMED,)),
    ("PUBLISH with properties longer than the packet", packet(0x30, string("t") + b"\x7f"), (MALFORMED,)),
    ("topic alias 0", publish("t", properties=number(0x23, 0, 2)), (TOPIC_ALIAS,)),
    ("topic alias over the maximum", publish("t", properties=number(0x23, 65535, 2)), (TOPIC_ALIAS,)),
    ("unknown topic alias", publish("", properties=number(0x23, 1, 2)), (PROTOCOL, TOPIC_ALIAS)),
    ("topic alias twice", publish("t", properties=number(0x23, 1, 2) * 2), (PROTOCOL,)),
    ("subscription identifier from a client", publish("t", properties=b"\x0b\x01"), (PROTOCOL, MALFORMED)),
    ("response topic with a wildcard", publish("t", properties=b"\x08" + string("r/#")), (PROTOCOL, TOPIC_NAME, MALFORMED)),
    ("payload format indicator 2", publish("t", properties=b"\x01\x02"), (PROTOCOL, MALFORMED)),
    ("user property that is not UTF-8", publish("t", properties=b"\x26" + string(b"\xff") + string("v")), (MALFORMED,)),
    ("SUBSCRIBE with wrong flags", subscribe("t", first=0x80), (MALFORMED,)),
    ("SUBSCRIBE without filters", subscribe(), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with packet id 0", subscribe("t", mid=0), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with QoS 3", subscribe("t", options=3), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with retain handling 3", subscribe("t", options=0x30), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with reserved option bits", subscribe("t", options=0x40), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with identifier 0", subscribe("t", properties=b"\x0b\x00"), (PROTOCOL, MALFORMED)),
    ("SUBSCRIBE with no local on a shared subscription", subscribe("$share/g/t", options=4), (PROTOCOL,)),
    ("SUBSCRIBE with a filter that is not UTF-8", subscribe(b"\xff"), (MALFORMED, TOPIC_FILTER)),
    ("UNSUBSCRIBE without filters", packet(0xA2, b"\0\1\0"), (PROTOCOL, MALFORMED)),
    ("UNSUBSCRIBE with wrong flags", packet(0xA0, b"\0\1\0" + string("t")), (MALFORMED,)),
    ("PUBREL with wrong flags", packet(0x60, b"\0\1"), (MALFORMED,)),
    ("PUBACK of one byte", packet(0x40, b"\0"), (MALFORMED,)),
    ("DISCONNECT that sets an expiry where CONNECT set none", packet(0xE0, b"\0\x05" + number(0x11, 100, 4)), (PROTOCOL,)),
    ("DISCONNECT with flags", packet(0xE1), (MALFORMED,)),
]

# The same for MQTT 3.1.1, where the connection just ends.
AFTER_CONNECT_311 = [
    ("second CONNECT", raw.connect("again", version=4)),
    ("AUTH", packet(0xF0, b"\0")),
    ("PUBLISH with QoS 3", publish("t", qos=1, flags=0x06, version=4)),
    ("PUBLISH with a wildcard in the topic", publish("a/#", version=4)),
    ("PUBLISH without topic", publish("", version=4)),
    ("PUBLISH with a topic that is not UTF-8", publish(b"\xff", version=4)),
    ("SUBSCRIBE with wrong flags", subscribe("t", first=0x80, version=4)),
    ("SUBSCRIBE without filters", subscribe(version=4)),
    ("SUBSCRIBE with MQTT 5 options", subscribe("t", options=0x04, version=4)),
    ("remaining length of five bytes", b"\x30\xff\xff\xff\xff\x01"),
    ("packet over the maximum size", b"\x30" + varint(200_000_000) + b"\0\1t"),
]


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=[case[0] for case in cases])


@pytest.fixture
def counted(broker):
    """Checks that the broker counted what the test did to it, and still serves others."""
    before = broker.failures()
    yield
    after = broker.failures()
    assert after > before, "a counter moves"
    name = f"t/goes-on-{next(_serial)}"
    bystander = Connection(broker.address())
    bystander.connect(name)
    bystander.send(subscribe(name))
    assert bystander.read()[0] == raw.SUBACK
    bystander.send(publish(name, b"still here"))
    kind, _, body = bystander.read()
    assert kind == raw.PUBLISH and body.endswith(b"still here")
    bystander.close()


@by_name(INSTEAD_OF_CONNECT)
def test_bad_beginning(broker, counted, case):
    _, data, codes = case
    timeouts = broker.connect_timeouts()
    connection = Connection(broker.address())
    connection.send(data)
    packets = connection.read_to_end()
    assert broker.connect_timeouts() == timeouts, "it is thrown out for what it sent, not for being slow"
    assert len(packets) <= 1
    for kind, _, body in packets:
        assert kind == raw.CONNACK
        assert body[0] == 0, "no session"
        assert body[1] in codes
    if codes and broker.name == "whimbrel":
        assert packets, "the CONNACK says why"


@by_name(AFTER_CONNECT)
def test_bad_packet(broker, counted, case):
    _, data, codes = case
    connection = Connection(broker.address())
    connection.connect()
    connection.send(data)
    packets = connection.read_to_end()
    assert [kind for kind, _, _ in packets] == [raw.DISCONNECT]
    assert packets[0][2][0] in codes


@by_name(AFTER_CONNECT_311)
def test_bad_packet_of_3_1_1(broker, counted, case):
    _, data = case
    connection = Connection(broker.address())
    connection.connect("bad311", version=4)
    connection.send(data)
    assert connection.read_to_end() == []


@pytest.mark.parametrize("name", ["a/#/b", "a+", "#a", "", "$share/g", "$share/g/", "$share/+/t"])
def test_a_filter_that_is_none_ends_the_connection(broker, name):
    for request in (subscribe("good", name, mid=9), packet(0xA2, b"\0\x09\0" + string(name))):
        connection = Connection(broker.address())
        connection.connect()
        connection.send(request)
        kind, _, body = connection.read()
        assert (kind, body[0]) == (raw.DISCONNECT, PROTOCOL)
        connection.close()


def test_receive_maximum_exceeded(broker, counted):
    connection = Connection(broker.address())
    body = connection.connect()
    assert b"\x21" in body, "the broker tells its receive maximum"
    window = struct.unpack_from("!H", body, body.index(b"\x21", 3) + 1)[0]
    for mid in range(1, window + 2):
        connection.send(publish("t", qos=2, mid=mid))
    packets = connection.read_to_end()
    assert [kind for kind, _, _ in packets].count(5) <= window
    assert packets[-1][0] == raw.DISCONNECT and packets[-1][2][0] == RECEIVE_MAXIMUM


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_goodbye_arrives_although_the_client_is_still_sending(broker, counted, transport):
    """A socket that is closed with bytes unread is reset; a client that fails to send may never look for the DISCONNECT."""
    data = b"\x30" + varint(200_000_000) + bytes(2_000_000)
    for _ in range(20):
        connection = Connection(broker.address(transport), tls=transport == "tls")
        connection.connect()
        connection.socket.sendall(data)
        packets = connection.read_to_end()
        assert [kind for kind, _, _ in packets] == [raw.DISCONNECT]
        assert packets[0][2][0] == TOO_LARGE
        connection.close()


def test_every_truncation_of_a_good_conversation(broker):
    """The client vanishes after every possible byte; nothing but its own connection ends."""
    will = b"\x05" + number(0x18, 0, 4) + string("t/w") + string("x")
    good = raw.connect("cut", flags=0x06, payload=will) + subscribe("t/cut") + publish("t/cut", b"x", qos=1) + packet(0xE0)
    for length in range(len(good)):
        connection = Connection(broker.address())
        connection.send(good[:length])
        connection.close()
    last = Connection(broker.address())
    last.send(good)
    assert [kind for kind, _, _ in last.read_to_end()][:2] == [raw.CONNACK, raw.SUBACK]


def test_one_byte_at_a_time(broker):
    connection = Connection(broker.address())
    for byte in raw.connect("slow") + subscribe("t/slow") + publish("t/slow", b"whole"):
        connection.send(bytes([byte]))
    assert [connection.read()[0] for _ in range(3)] == [raw.CONNACK, raw.SUBACK, raw.PUBLISH]
    connection.close()
