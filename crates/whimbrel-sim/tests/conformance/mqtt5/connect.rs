//! CONNECT (3.1): its form, its flags, keep-alive, and one client id at a time.

use whimbrel_mqtt::{Config, Limits};

use crate::wire::{Connect, PINGREQ, Packet, Props, Publish, Subscribe, Will, field, packet, property};
use crate::world::{World, quiet, seconds};

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;

/// Sends what should not be accepted on a new connection; returns the code with which it was
/// refused, if any was told. A client of an older version is told in the form of 3.1.1 that its
/// version is not served.
#[track_caller]
fn refusal(world: &mut World, bytes: Vec<u8>) -> Option<u8> {
    let conn = world.open();
    world.send(conn, bytes);
    assert!(world.is_closed(conn), "the connection is closed");
    if world.peek(conn) == [0x20, 2, 0, 1] {
        return Some(0x84);
    }
    match world.packets(conn).as_slice() {
        [] => None,
        [Packet::Connack { present: false, code, .. }] => Some(*code),
        other => panic!("nothing or a refusing CONNACK expected, got {other:?}"),
    }
}

#[track_caller]
fn assert_all_refused(rows: &[(&str, Vec<u8>, u8)]) {
    let mut world = World::new();
    let bystander = world.client("bystander");
    for (what, bytes, code) in rows {
        let told = refusal(&mut world, bytes.clone());
        assert_eq!(told, Some(*code), "{what}");
        world.assert_undisturbed(bystander);
    }
}

/// The bytes of a CONNECT with one of them changed; offset 0 is the packet's first.
fn patched(connect: &Connect, offset: usize, value: u8) -> Vec<u8> {
    let mut bytes = connect.bytes();
    bytes[offset] = value;
    bytes
}

// covers: MQTT-3.1.0-1, MQTT-3.2.0-1, MQTT-3.14.0-1, MQTT-4.13.1-1
#[test]
fn the_first_packet_must_be_connect() {
    let mut world = World::new();
    let first = [
        packet(0xC0, &[]),
        packet(0xE0, &[]),
        packet(0xF0, &[]),
        packet(0x30, b"\x00\x01t\x00x"),
        packet(0x82, b"\x00\x01\x00\x00\x01t\x00"),
        packet(0x40, &[0, 1]),
        packet(0x20, &[0, 0, 0]),
    ];
    for bytes in first {
        let conn = world.open();
        world.send(conn, bytes.clone());
        assert!(world.is_closed(conn), "{bytes:x?} was accepted as the first packet");
        assert_eq!(world.packets(conn), [], "nothing is sent before CONNACK");
    }
}

// covers: MQTT-3.1.0-2, MQTT-3.2.0-2, MQTT-4.13.1-1
#[test]
fn a_second_connect_is_a_protocol_error() {
    let mut world = World::new();
    let conn = world.client("a");
    world.send(conn, Connect::v5("a"));
    world.assert_disconnected(conn, PROTOCOL_ERROR);
}

// covers: MQTT-3.1.4-1
#[test]
fn a_connection_without_connect_is_closed_in_time() {
    let limits = Limits { connect_timeout: seconds(5), ..Limits::default() };
    let mut world = World::with(Config { limits, ..quiet() });
    let silent = world.open();
    let started = world.open();
    world.send(started, Connect::v5("a").bytes()[..10].to_vec());
    world.advance(seconds(4));
    assert!(!world.is_closed(silent) && !world.is_closed(started));
    world.advance(seconds(2));
    assert!(world.is_closed(silent) && world.is_closed(started));
    assert_eq!(world.packets(silent), []);
}

// covers: MQTT-3.1.2-1, MQTT-3.1.4-1
#[test]
fn other_protocol_names_are_refused() {
    let named = |name: &[u8]| {
        let mut body = field(name);
        body.extend([5, 2, 0, 0, 0]);
        body.extend(field(b"a"));
        packet(0x10, &body)
    };
    let names = [&b"mqtt"[..], b"AMQP", b"MQTTX", b"MQT", b"", b"MQ\0T", b"\xFF"];
    assert_all_refused(&names.map(|name| ("name", named(name), 0x84)));
}

// covers: MQTT-3.1.2-2, MQTT-3.1.4-1, MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-3.2.2-8, MQTT-4.13.2-1
#[test]
fn other_protocol_versions_are_refused() {
    let a = Connect::v5("a");
    assert_all_refused(&[
        ("MQTT 3.1", [&b"\x10\x0F\x00\x06MQIsdp\x03\x02\x00\x00"[..], b"\x00\x01a"].concat(), 0x84),
        ("version 0", patched(&a, 8, 0), 0x84),
        ("version 3", patched(&a, 8, 3), 0x84),
        ("version 6", patched(&a, 8, 6), 0x84),
        ("version 255", patched(&a, 8, 255), 0x84),
        ("bridge bit", patched(&a, 8, 0x85), 0x84),
    ]);
}

// covers: MQTT-3.1.2-3, MQTT-3.1.2-11, MQTT-3.1.2-12, MQTT-3.1.2-13, MQTT-2.1.3-1, MQTT-3.1.4-1
#[test]
fn impossible_connect_flags_are_malformed() {
    let plain = Connect::v5("a");
    let willing = plain.clone().will(Will::new("w", "x"));
    assert_all_refused(&[
        ("reserved flag", plain.with_flags(plain.flags() | 0x01), MALFORMED),
        ("will QoS 1 without will", plain.with_flags(plain.flags() | 0x08), MALFORMED),
        ("will QoS 2 without will", plain.with_flags(plain.flags() | 0x10), MALFORMED),
        ("will retain without will", plain.with_flags(plain.flags() | 0x20), MALFORMED),
        ("will QoS 3", willing.with_flags(willing.flags() | 0x18), MALFORMED),
        ("reserved bits of the first byte", patched(&plain, 0, 0x11), MALFORMED),
    ]);
}

// covers: MQTT-3.1.2-9, MQTT-3.1.2-16, MQTT-3.1.2-17, MQTT-3.1.2-18, MQTT-3.1.2-19, MQTT-3.1.3-3
// covers: MQTT-3.1.4-1
#[test]
fn fields_must_be_those_that_the_flags_name() {
    let plain = Connect::v5("a");
    let named = Connect { user_name: Some(b"u".to_vec()), ..plain.clone() };
    let secret = Connect { password: Some(b"p".to_vec()), ..plain.clone() };
    let willing = plain.clone().will(Will::new("w", "x"));
    let mut no_client_id = field(b"MQTT");
    no_client_id.extend([5, 2, 0, 0, 0]);
    assert_all_refused(&[
        ("user name flag without user name", plain.with_flags(plain.flags() | 0x80), MALFORMED),
        ("user name without its flag", named.with_flags(plain.flags()), MALFORMED),
        ("password flag without password", plain.with_flags(plain.flags() | 0x40), MALFORMED),
        ("password without its flag", secret.with_flags(plain.flags()), MALFORMED),
        ("will flag without will", plain.with_flags(plain.flags() | 0x04), MALFORMED),
        ("will without its flag", willing.with_flags(plain.flags()), MALFORMED),
        ("no client id", packet(0x10, &no_client_id), MALFORMED),
        ("nothing after the flags", packet(0x10, b"\x00\x04MQTT\x05\x02"), MALFORMED),
    ]);
    let told = refusal(&mut World::new(), packet(0x10, &[]));
    assert_eq!(told, None, "in which version?");
}

// covers: MQTT-3.1.3-1
#[test]
fn all_fields_of_the_payload_are_read_in_their_order() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "wills/#", 0);
    let connect = Connect {
        user_name: Some(b"user".to_vec()),
        password: Some(b"\x00\xFFsecret".to_vec()),
        ..Connect::v5("a").will(Will::new("wills/a", "gone").props(Props::new().data(property::CONTENT_TYPE, "text")))
    };
    let conn = world.connect(&connect);
    world.fail(conn);
    let will = world.message(listener);
    assert_eq!((will.topic.as_str(), will.text()), ("wills/a", "gone"));
    assert_eq!(will.props.text(property::CONTENT_TYPE), Some("text"));
}

// covers: MQTT-3.1.2-16, MQTT-3.1.2-19
#[test]
fn a_password_may_come_without_a_user_name() {
    let mut world = World::new();
    let conn = world.connect(&Connect { password: Some(b"token".to_vec()), ..Connect::v5("a") });
    world.assert_undisturbed(conn);
}

// covers: MQTT-3.1.3-4, MQTT-3.1.3-8, MQTT-3.1.3-11, MQTT-3.1.3-12, MQTT-1.5.4-1, MQTT-1.5.4-2
// covers: MQTT-1.5.7-1
#[test]
fn strings_of_connect_must_be_valid() {
    let plain = Connect::v5("a");
    let id = |client_id: &[u8]| Connect { client_id: client_id.to_vec(), ..plain.clone() }.bytes();
    let user = |name: &[u8]| Connect { user_name: Some(name.to_vec()), ..plain.clone() }.bytes();
    let topic = |topic: &[u8]| {
        let will = Will { topic: topic.to_vec(), ..Will::new("", "x") };
        plain.clone().will(will).bytes()
    };
    let props = |props: Props| plain.clone().props(props).bytes();
    assert_all_refused(&[
        ("client id with U+0000", id(b"a\x00b"), MALFORMED),
        ("client id cut in a character", id(b"a\xC3"), MALFORMED),
        ("client id with a surrogate", id(b"\xED\xA0\x80"), MALFORMED),
        ("client id in over-long form", id(b"\xC0\xAF"), MALFORMED),
        ("client id above U+10FFFF", id(b"\xF4\x90\x80\x80"), MALFORMED),
        ("user name with U+0000", user(b"\x00"), MALFORMED),
        ("user name that is not UTF-8", user(b"\xFF"), MALFORMED),
        ("will topic with U+0000", topic(b"w\x00"), MALFORMED),
        ("will topic that is not UTF-8", topic(b"\xFE"), MALFORMED),
        ("user property name that is not UTF-8", props(Props::new().user(b"\xFF", b"v")), MALFORMED),
        ("user property value with U+0000", props(Props::new().user(b"n", b"\x00")), MALFORMED),
    ]);
}

// covers: MQTT-3.1.2-9, MQTT-4.7.0-1, MQTT-4.7.3-1, MQTT-3.1.4-2
#[test]
fn a_will_topic_must_be_a_topic_name() {
    let mut world = World::new();
    for topic in ["", "a/+", "#"] {
        let told = refusal(&mut world, Connect::v5("a").will(Will::new(topic, "x")).bytes());
        assert!(told.is_none_or(|code| [0x90, 0x81, 0x82].contains(&code)), "{topic:?} refused with {told:x?}");
    }
}

// covers: MQTT-3.1.4-1, MQTT-4.13.1-1
#[test]
fn properties_of_connect_must_be_possible() {
    let plain = Connect::v5("a");
    let props = |props: Props| plain.clone().props(props).bytes();
    let will_props = |props: Props| plain.clone().will(Will::new("w", "x").props(props)).bytes();
    let expiry = || Props::new().u32(property::SESSION_EXPIRY, 1);
    assert_all_refused(&[
        ("session expiry twice", props(expiry().u32(property::SESSION_EXPIRY, 1)), PROTOCOL_ERROR),
        ("receive maximum 0", props(Props::new().u16(property::RECEIVE_MAXIMUM, 0)), PROTOCOL_ERROR),
        ("maximum packet size 0", props(Props::new().u32(property::MAXIMUM_PACKET_SIZE, 0)), PROTOCOL_ERROR),
        ("request problem information 2", props(Props::new().byte(property::REQUEST_PROBLEM_INFO, 2)), PROTOCOL_ERROR),
        (
            "request response information 2",
            props(Props::new().byte(property::REQUEST_RESPONSE_INFO, 2)),
            PROTOCOL_ERROR,
        ),
        ("authentication data without method", props(Props::new().data(property::AUTH_DATA, "x")), PROTOCOL_ERROR),
        ("a property of PUBLISH", props(Props::new().u16(property::TOPIC_ALIAS, 1)), MALFORMED),
        ("an unknown property", props(Props::new().byte(0x7F, 1)), MALFORMED),
        ("will delay outside of the will", props(Props::new().u32(property::WILL_DELAY, 1)), MALFORMED),
        ("session expiry in the will", will_props(expiry()), MALFORMED),
        ("payload format 2 in the will", will_props(Props::new().byte(property::PAYLOAD_FORMAT, 2)), PROTOCOL_ERROR),
        ("a property cut off", patched(&plain.clone().props(expiry()), 12, 4), MALFORMED),
    ]);
}

// covers: MQTT-3.1.3-5
#[test]
fn client_ids_of_letters_and_digits_are_allowed() {
    let mut world = World::new();
    for id in ["a", "Z", "0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "xyzXYZ0123456789"] {
        assert!((1..=23).contains(&id.len()));
        let conn = world.client(id);
        world.assert_undisturbed(conn);
    }
}

// covers: MQTT-3.1.3-6, MQTT-3.1.3-7, MQTT-3.2.2-16
#[test]
fn an_empty_client_id_gets_a_unique_one() {
    let mut world = World::new();
    let mut assigned = Vec::new();
    for _ in 0..10 {
        match world.try_connect(&Connect::v5("").expiry(100)) {
            (_, Packet::Connack { code: 0, props, .. }) => {
                assigned.push(props.text(property::ASSIGNED_CLIENT_ID).expect("an assigned client id").to_owned());
            }
            (_, other) => panic!("refused: {other:?}"),
        }
    }
    let resumed = world.reconnect(&Connect::v5(&assigned[3]).resume());
    assert!(resumed.1, "the assigned id names the session");
    assigned.sort();
    assigned.dedup();
    assert_eq!(assigned.len(), 10, "assigned ids differ");
}

// covers: MQTT-3.1.4-3, MQTT-3.14.4-1, MQTT-3.14.4-2, MQTT-4.13.2-1
#[test]
fn a_client_id_that_connects_again_takes_over() {
    let mut world = World::new();
    let first = world.client("a");
    let second = world.client("a");
    world.assert_disconnected(first, 0x8E);
    world.assert_undisturbed(second);
    let other = world.client("A");
    world.assert_undisturbed(second);
    world.assert_undisturbed(other);
}

// covers: MQTT-3.1.4-5, MQTT-3.1.0-1
#[test]
fn packets_may_follow_connect_before_connack_arrives() {
    let mut world = World::new();
    let conn = world.open();
    let mut bytes = Connect::v5("a").bytes();
    bytes.extend(packet(0x82, b"\x00\x05\x00\x00\x01t\x01"));
    bytes.extend(PINGREQ);
    world.send(conn, bytes);
    match world.packets(conn).as_slice() {
        [Packet::Connack { code: 0, .. }, Packet::Suback { id: 5, codes, .. }, Packet::Pingresp] => {
            assert_eq!(codes, &[1]);
        }
        other => panic!("CONNACK, SUBACK, PINGRESP expected, got {other:?}"),
    }
}

// covers: MQTT-3.1.4-6
#[test]
fn nothing_after_a_refused_connect_is_processed() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "t", 0);
    let conn = world.open();
    let mut bytes = Connect::v5("a").props(Props::new().data(property::AUTH_METHOD, "none-such")).bytes();
    bytes.extend(packet(0x30, b"\x00\x01t\x00x"));
    world.send(conn, bytes);
    assert!(world.is_closed(conn));
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-4.2.0-1
#[test]
fn a_byte_stream_may_be_cut_anywhere() {
    let mut world = World::new();
    let conn = world.open();
    let subscribe = packet(0x82, b"\x00\x05\x00\x00\x01t\x01");
    let publish = packet(0x32, b"\x00\x01t\x00\x07\x00payload");
    for byte in [Connect::v5("a").bytes(), subscribe, publish, packet(0xC0, &[])].concat() {
        assert!(!world.is_closed(conn));
        world.send(conn, [byte]);
    }
    let packets = world.packets(conn);
    assert!(
        matches!(packets.first(), Some(Packet::Connack { .. })) && matches!(packets.last(), Some(Packet::Pingresp)),
        "{packets:?}"
    );
    assert_eq!(packets.len(), 5, "CONNACK, SUBACK, PUBACK, PUBLISH, PINGRESP: {packets:?}");
}

// covers: MQTT-3.1.2-22, MQTT-3.2.2-22
#[test]
fn silence_for_one_and_a_half_keep_alives_ends_the_connection() {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "wills/#", 0);
    let connect = Connect::v5("a").keep_alive(10).will(Will::new("wills/a", "gone"));
    let (conn, answer) = world.try_connect(&connect);
    let Packet::Connack { code: 0, props, .. } = answer else { panic!("refused: {answer:?}") };
    assert!(!props.has(property::SERVER_KEEP_ALIVE), "the client's keep-alive is in force");
    world.advance(seconds(14));
    assert!(!world.is_closed(conn));
    world.advance(seconds(2));
    assert!(world.is_closed(conn), "after 16 s");
    let packets = world.packets(conn);
    assert!(matches!(packets.as_slice(), [] | [Packet::Disconnect { code: 0x8D, .. }]), "{packets:?}");
    assert_eq!(world.payloads(listener), ["gone"], "as if the network had failed");
}

// covers: MQTT-3.1.2-22
#[test]
fn any_packet_keeps_a_connection_alive() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v5("a").keep_alive(10));
    for _ in 0..3 {
        world.advance(seconds(13));
        world.assert_undisturbed(conn);
        world.advance(seconds(13));
        world.send(conn, Publish::new("u", "x"));
        world.advance(seconds(13));
        world.send(conn, Subscribe::new(1, &[("t", 0)]));
        assert_eq!(world.packets(conn).len(), 1);
    }
    assert!(!world.is_closed(conn));
}

// covers: MQTT-3.1.2-22
#[test]
fn keep_alive_zero_means_no_limit() {
    let mut world = World::new();
    let conn = world.connect(&Connect::v5("a").keep_alive(0));
    world.advance(seconds(1_000_000));
    world.assert_undisturbed(conn);
}
