//! Packets that cannot be read (2.1, 1.5, 4.13): the reason code, the end of the connection, and
//! no trouble for other clients.

use crate::wire::{Connect, Encode, Packet, Props, Publish, Subscribe, Unsubscribe, V5, packet, property};
use crate::world::World;

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;

/// Each row on its own connection must end with its code; a bystander is asked after each.
fn assert_all_refused(rows: &[(&str, Vec<u8>, u8)]) {
    let mut world = World::new();
    let bystander = world.client("bystander");
    for (what, bytes, expected) in rows {
        let conn = world.client("a");
        world.send(conn, bytes.clone());
        let packets = world.packets(conn);
        let told = matches!(packets.as_slice(), [Packet::Disconnect { code, .. }] if code == expected);
        assert!(told, "{what}: DISCONNECT {expected:#x} expected, got {packets:x?}");
        assert!(world.is_closed(conn), "{what}: still open");
        world.assert_undisturbed(bystander);
    }
}

// covers: MQTT-2.1.3-1, MQTT-3.6.1-1, MQTT-3.8.1-1, MQTT-3.10.1-1, MQTT-3.14.1-1, MQTT-3.15.1-1
#[test]
fn reserved_bits_of_the_first_byte_must_have_their_value() {
    let rows: [(u8, u8, &[u8]); 9] = [
        (0x4, 0, b"\x00\x01"),
        (0x5, 0, b"\x00\x01"),
        (0x6, 2, b"\x00\x01"),
        (0x7, 0, b"\x00\x01"),
        (0x8, 2, b"\x00\x01\x00\x00\x01t\x00"),
        (0xA, 2, b"\x00\x01\x00\x00\x01t"),
        (0xC, 0, b""),
        (0xE, 0, b""),
        (0xF, 0, b"\x19\x00"),
    ];
    for (kind, right, body) in rows {
        let wrong = (0..16).filter(|flags| *flags != right);
        let rows: Vec<_> = wrong.map(|flags| ("reserved bits", packet(kind << 4 | flags, body), MALFORMED)).collect();
        assert_all_refused(&rows);
    }
}

// covers: MQTT-4.13.1-1
#[test]
fn packets_that_no_client_sends_are_protocol_errors() {
    let mut world = World::new();
    for bytes in [
        packet(0x00, &[]),
        packet(0x20, &[0, 0, 0]),
        packet(0x90, &[0, 1, 0, 0]),
        packet(0xB0, &[0, 1, 0, 0]),
        packet(0xD0, &[]),
    ] {
        let conn = world.client("a");
        world.send(conn, bytes.clone());
        let packets = world.packets(conn);
        let told = matches!(packets.as_slice(), [Packet::Disconnect { code: 0x81 | 0x82, .. }]);
        assert!(told && world.is_closed(conn), "{bytes:x?}: {packets:?}");
    }
}

// covers: MQTT-4.13.1-1, MQTT-3.3.2-1, MQTT-2.2.1-3, MQTT-2.2.2-1
#[test]
fn packets_that_end_too_early_are_malformed() {
    let rows = [
        ("PUBLISH without anything", packet(0x30, b""), MALFORMED),
        ("PUBLISH cut in the topic's length", packet(0x30, b"\x00"), MALFORMED),
        ("PUBLISH cut in the topic", packet(0x30, b"\x00\x05abc"), MALFORMED),
        ("PUBLISH cut in the identifier", packet(0x32, b"\x00\x01t\x00"), MALFORMED),
        ("PUBLISH without property length", packet(0x30, b"\x00\x01t"), MALFORMED),
        ("PUBLISH cut in the properties", packet(0x30, b"\x00\x01t\x05\x01"), MALFORMED),
        ("a property cut in its value", packet(0x30, b"\x00\x01t\x03\x02\x00\x00payload"), MALFORMED),
        ("a string property longer than the properties", packet(0x30, b"\x00\x01t\x04\x03\x00\x09xpayload"), MALFORMED),
        ("PUBACK without identifier", packet(0x40, b""), MALFORMED),
        ("PUBREC cut in the identifier", packet(0x50, b"\x00"), MALFORMED),
        ("PUBREL cut in the identifier", packet(0x62, b"\x01"), MALFORMED),
        ("PUBCOMP cut in the properties", packet(0x70, b"\x00\x01\x00\x09"), MALFORMED),
        ("SUBSCRIBE without anything", packet(0x82, b""), MALFORMED),
        ("SUBSCRIBE without options", packet(0x82, b"\x00\x01\x00\x00\x01t"), MALFORMED),
        ("SUBSCRIBE cut in the filter", packet(0x82, b"\x00\x01\x00\x00\x05t"), MALFORMED),
        ("UNSUBSCRIBE without anything", packet(0xA2, b""), MALFORMED),
        ("UNSUBSCRIBE cut in the filter", packet(0xA2, b"\x00\x01\x00\x00\x05t"), MALFORMED),
        ("DISCONNECT cut in the properties", packet(0xE0, b"\x00\x05\x11"), MALFORMED),
    ];
    assert_all_refused(&rows);
}

// covers: MQTT-4.13.1-1
#[test]
fn packets_that_are_too_long_are_malformed() {
    let rows = [
        ("PINGREQ with a body", packet(0xC0, b"\x00"), MALFORMED),
        ("PUBACK with something behind its properties", packet(0x40, b"\x00\x01\x00\x00x"), MALFORMED),
        ("PUBREL with something behind its properties", packet(0x62, b"\x00\x01\x00\x00x"), MALFORMED),
        ("DISCONNECT with something behind its properties", packet(0xE0, b"\x00\x00x"), MALFORMED),
    ];
    assert_all_refused(&rows);
}

// covers: MQTT-1.5.5-1, MQTT-4.13.1-1
#[test]
fn variable_byte_integers_must_be_short() {
    let rows = [
        ("remaining length of five bytes", vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01], MALFORMED),
        ("remaining length that does not end", vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF], MALFORMED),
        ("remaining length 0 in two bytes", vec![0xC0, 0x80, 0x00], MALFORMED),
        ("remaining length 6 in three bytes", [&[0x30, 0x86, 0x80, 0x00][..], b"\x00\x01t\x00xx"].concat(), MALFORMED),
        ("property length 0 in two bytes", packet(0x30, b"\x00\x01t\x80\x00x"), MALFORMED),
        ("property length of five bytes", packet(0x30, b"\x00\x01t\x80\x80\x80\x80\x01x"), MALFORMED),
        ("subscription identifier 1 in two bytes", packet(0x82, b"\x00\x01\x03\x0B\x81\x00\x00\x01t\x00"), MALFORMED),
    ];
    assert_all_refused(&rows);
}

// covers: MQTT-3.8.3-1, MQTT-3.10.3-1, MQTT-1.5.4-1, MQTT-1.5.4-2, MQTT-4.7.3-2
#[test]
fn topic_filters_must_be_valid_strings() {
    let mut rows = Vec::new();
    for text in
        [&b"a\x00"[..], b"\xFF", b"\xC3", b"\xED\xA0\x80", b"\xED\xBF\xBF", b"\xC0\x80", b"\xF8\x88\x80\x80\x80"]
    {
        let filter = crate::wire::field(text);
        rows.push(("SUBSCRIBE", packet(0x82, &[b"\x00\x01\x00", &filter[..], b"\x00"].concat()), MALFORMED));
        rows.push(("UNSUBSCRIBE", packet(0xA2, &[b"\x00\x01\x00", &filter[..]].concat()), MALFORMED));
    }
    assert_all_refused(&rows);
}

// covers: MQTT-1.5.7-1, MQTT-1.5.4-1, MQTT-1.5.4-2
#[test]
fn user_properties_must_be_valid_strings_in_every_packet() {
    let mut rows = Vec::new();
    for (name, value) in [(&b"\xFF"[..], &b"v"[..]), (b"n", b"\xFF"), (b"\x00", b"v"), (b"n", b"a\x00")] {
        let props = Props::new().user(name, value);
        let bytes = props.bytes();
        rows.push(("SUBSCRIBE", Subscribe::new(1, &[("t", 0)]).props(props).encode(V5), MALFORMED));
        rows.push(("UNSUBSCRIBE", packet(0xA2, &[b"\x00\x01", &bytes[..], b"\x00\x01t"].concat()), MALFORMED));
        rows.push(("PUBACK", packet(0x40, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED));
        rows.push(("PUBREC", packet(0x50, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED));
        rows.push(("PUBREL", packet(0x62, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED));
        rows.push(("PUBCOMP", packet(0x70, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED));
        rows.push(("DISCONNECT", packet(0xE0, &[b"\x00", &bytes[..]].concat()), MALFORMED));
    }
    assert_all_refused(&rows);
}

// covers: MQTT-4.13.1-1
#[test]
fn properties_must_belong_to_their_packet() {
    let foreign = Props::new().u16(property::RECEIVE_MAXIMUM, 1);
    let bytes = foreign.bytes();
    assert_all_refused(&[
        ("PUBLISH", Publish::new("t", "x").props(foreign.clone()).encode(V5), MALFORMED),
        ("SUBSCRIBE", Subscribe::new(1, &[("t", 0)]).props(foreign.clone()).encode(V5), MALFORMED),
        ("UNSUBSCRIBE", packet(0xA2, &[b"\x00\x01", &bytes[..], b"\x00\x01t"].concat()), MALFORMED),
        ("PUBACK", packet(0x40, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED),
        ("PUBREL", packet(0x62, &[b"\x00\x01\x00", &bytes[..]].concat()), MALFORMED),
        ("DISCONNECT", packet(0xE0, &[b"\x00", &bytes[..]].concat()), MALFORMED),
        ("unknown property", packet(0x30, b"\x00\x01t\x02\x7F\x00x"), MALFORMED),
        ("property identifier 0", packet(0x30, b"\x00\x01t\x02\x00\x00x"), MALFORMED),
        (
            "server keep-alive from a client",
            Publish::new("t", "x").props(Props::new().u16(0x13, 1)).encode(V5),
            MALFORMED,
        ),
    ]);
}

// covers: MQTT-4.13.1-1
#[test]
fn properties_must_be_single_and_have_possible_values() {
    let publish = |props: Props| Publish::new("t", "x").props(props).encode(V5);
    let expiry = Props::new().u32(property::MESSAGE_EXPIRY, 1).u32(property::MESSAGE_EXPIRY, 1);
    let format = Props::new().byte(property::PAYLOAD_FORMAT, 1).byte(property::PAYLOAD_FORMAT, 1);
    let content = Props::new().data(property::CONTENT_TYPE, "a").data(property::CONTENT_TYPE, "a");
    let identifier = Props::new().var(property::SUBSCRIPTION_ID, 1).var(property::SUBSCRIPTION_ID, 2);
    let subscribe = |props: Props| Subscribe::new(1, &[("t", 0)]).props(props).encode(V5);
    assert_all_refused(&[
        ("expiry twice", publish(expiry), PROTOCOL_ERROR),
        ("payload format twice", publish(format), PROTOCOL_ERROR),
        ("content type twice", publish(content), PROTOCOL_ERROR),
        ("subscription identifier twice", subscribe(identifier), PROTOCOL_ERROR),
        ("subscription identifier 0", subscribe(Props::new().var(property::SUBSCRIPTION_ID, 0)), PROTOCOL_ERROR),
    ]);
}

// covers: MQTT-3.8.3-2, MQTT-3.10.3-2
#[test]
fn subscribe_and_unsubscribe_need_a_filter() {
    assert_all_refused(&[
        ("SUBSCRIBE", Subscribe::new(1, &[]).encode(V5), PROTOCOL_ERROR),
        ("UNSUBSCRIBE", Unsubscribe { id: 1, filters: &[] }.encode(V5), PROTOCOL_ERROR),
    ]);
}

// covers: MQTT-3.8.3-5
#[test]
fn impossible_subscription_options_are_refused() {
    let subscribe = |options: u8| Subscribe::new(1, &[("t", options)]).encode(V5);
    assert_all_refused(&[
        ("reserved bit 6", subscribe(0x40), MALFORMED),
        ("reserved bit 7", subscribe(0x80), MALFORMED),
        ("QoS 3", subscribe(0x03), PROTOCOL_ERROR),
        ("retain handling 3", subscribe(0x30), PROTOCOL_ERROR),
    ]);
}

// covers: MQTT-2.2.1-3
#[test]
fn requests_with_identifier_zero_are_refused() {
    let mut world = World::new();
    for bytes in [Subscribe::new(0, &[("t", 0)]).encode(V5), Unsubscribe { id: 0, filters: &["t"] }.encode(V5)] {
        let conn = world.client("a");
        world.send(conn, bytes);
        let packets = world.packets(conn);
        let told = matches!(packets.as_slice(), [Packet::Disconnect { code: 0x81 | 0x82, .. }]);
        assert!(told && world.is_closed(conn), "{packets:?}");
    }
}

// covers: MQTT-4.13.1-1, MQTT-3.14.4-1
#[test]
fn nothing_behind_a_malformed_packet_is_processed() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "#", 0);
    let conn = world.client("a");
    let bytes = [Publish::new("t", "before").encode(V5), packet(0x30, b""), Publish::new("t", "after").encode(V5)];
    world.send(conn, bytes.concat());
    world.assert_disconnected(conn, MALFORMED);
    assert_eq!(world.payloads(listener), ["before"]);
}

// covers: MQTT-4.13.1-1
#[test]
fn thousands_of_malformed_connections_disturb_nobody() {
    let mut world = World::new();
    let bystander = world.client("bystander");
    world.subscribe(bystander, "t", 1);
    for number in 0..2_000_u32 {
        let conn = world.open();
        let mut bytes = Connect::v5(&format!("client {number}")).bytes();
        let position = number as usize % bytes.len();
        bytes[position] ^= 1 << (number % 8);
        bytes.extend(packet(0x30, &[]));
        world.send(conn, bytes);
        world.fail(conn);
    }
    world.assert_undisturbed(bystander);
}
