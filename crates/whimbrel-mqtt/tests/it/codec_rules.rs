//! Each rule that a single packet can break, with the reason code and the cause that its sender is
//! told.

use whimbrel_event::AttributesBuf;
use whimbrel_mqtt::codec::{
    Ack, AckProperties, ConnAck, EncodeError, Packet, PacketId, ReasonCode, Version, answer_version, decode, frame,
};

use Version::{V4, V5};

const MALFORMED: ReasonCode = ReasonCode::MALFORMED_PACKET;
const PROTOCOL: ReasonCode = ReasonCode::PROTOCOL_ERROR;
const TOPIC: ReasonCode = ReasonCode::TOPIC_NAME_INVALID;

/// Asserts that a packet is refused for this reason, with a cause that contains these words.
fn refused(version: Version, first_byte: u8, body: &[u8], reason: ReasonCode, words: &str) {
    let error = decode(version, first_byte, body).expect_err(words);
    assert_eq!(error.reason, reason, "{error} instead of {words}");
    assert!(error.cause.contains(words), "{error} instead of {words}");
}

/// A CONNECT with these flags, of MQTT 5 with this property section, and this payload.
fn connect(level: u8, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    [&b"\0\x04MQTT"[..], &[level, flags, 0, 60], properties, payload].concat()
}

#[test]
fn fixed_header() {
    refused(V5, 0x00, b"", MALFORMED, "type 0");
    refused(V4, 0xf0, b"", MALFORMED, "type 15");
    for first_byte in [0x11, 0x21, 0x41, 0x52, 0x60, 0x6a, 0x80, 0x92, 0xa0, 0xb1, 0xc1, 0xd8, 0xe1, 0xf4] {
        refused(V5, first_byte, &[0, 1], MALFORMED, "fixed header");
    }
    refused(V5, 0x36, b"\0\x01a\0\x01\0", MALFORMED, "QoS is 3");
    refused(V5, 0x38, b"\0\x01a\0", MALFORMED, "DUP");
    let error = frame(&[0x30, 0xff, 0x7f], 1000).expect_err("16,383 bytes");
    assert_eq!(error.reason, ReasonCode::PACKET_TOO_LARGE);
}

#[test]
fn protocol_names_and_versions() {
    let unsupported = ReasonCode::UNSUPPORTED_PROTOCOL_VERSION;
    refused(V5, 0x10, &connect(6, 2, &[0], &[0, 0]), unsupported, "level");
    refused(V4, 0x10, &connect(3, 2, &[], &[0, 0]), unsupported, "level");
    refused(V4, 0x10, b"\0\x06MQIsdp\x03\x02\0\0\0\0", unsupported, "3.1");
    refused(V4, 0x10, b"\0\x04MQTS\x04\x02\0\0\0\0", unsupported, "protocol name");
    refused(V4, 0x10, b"GET / HTTP/1.1\r\n\r\n", MALFORMED, "ends within a field");
    let answers: [(&[u8], _); 7] = [
        (b"\0\x04MQTT\x04", Some(V4)),
        (b"\0\x04MQTT\x05", Some(V5)),
        (b"\0\x04MQTT\x06", Some(V5)),
        (b"\0\x04MQTT\x84", Some(V4)),
        (b"\0\x06MQIsdp\x03", Some(V4)),
        (b"\0\x04HTTP\x05", Some(V5)),
        (b"\0\x04HTTP\x04", None),
    ];
    for (body, version) in answers {
        assert_eq!(answer_version(body), version, "{body:?}");
    }
    assert_eq!(answer_version(b"\0\x04MQTT"), None);
}

#[test]
fn connect_flags_and_payload() {
    refused(V4, 0x10, &connect(4, 0x01, &[], &[0, 0]), MALFORMED, "reserved connect flag");
    refused(V4, 0x10, &connect(4, 0x08, &[], &[0, 0]), MALFORMED, "without the will flag");
    refused(V5, 0x10, &connect(5, 0x20, &[0], &[0, 0]), MALFORMED, "without the will flag");
    refused(V4, 0x10, &connect(4, 0x1c, &[], b"\0\0\0\x01w\0\0"), MALFORMED, "will QoS is 3");
    refused(V4, 0x10, &connect(4, 0x04, &[], b"\0\0\0\0\0\0"), TOPIC, "will topic is empty");
    refused(V4, 0x10, &connect(4, 0x04, &[], b"\0\0\0\x01+\0\0"), TOPIC, "wildcard");
    refused(V4, 0x10, &connect(4, 0x40, &[], b"\0\0\0\x01p"), MALFORMED, "without the user name");
    assert!(decode(V5, 0x10, &connect(5, 0x40, &[0], b"\0\0\0\x01p")).is_ok(), "MQTT 5 allows it");
    refused(V4, 0x10, &connect(4, 0x02, &[], b"\0\x02\xc3\x28"), MALFORMED, "client identifier");
    refused(V4, 0x10, &connect(4, 0x02, &[], b"\0\x03\xed\xa0\x80"), MALFORMED, "client identifier");
    refused(V4, 0x10, &connect(4, 0x02, &[], b"\0\x01\0"), MALFORMED, "client identifier");
    refused(V4, 0x10, &connect(4, 0x82, &[], b"\0\0\0\x01\xff"), MALFORMED, "user name");
    refused(V4, 0x10, &connect(4, 0x02, &[], b"\0\0x"), MALFORMED, "after the end");
    refused(V4, 0x10, &connect(4, 0x02, &[], b"\0\x05ab"), MALFORMED, "ends within a field");
}

#[test]
fn properties() {
    for (section, reason, words) in [
        (&b"\x03\x21\0\0"[..], PROTOCOL, "receive maximum is 0"),
        (b"\x05\x27\0\0\0\0", PROTOCOL, "maximum packet size is 0"),
        (b"\x02\x17\x02", PROTOCOL, "request problem"),
        (b"\x02\x19\x02", PROTOCOL, "request response"),
        (b"\x06\x22\0\x01\x22\0\x01", PROTOCOL, "repeated"),
        (b"\x03\x16\0\0", PROTOCOL, "without an authentication method"),
        (b"\x03\x23\0\x01", MALFORMED, "not permitted"),
        (b"\x02\x7f\x01", MALFORMED, "not permitted"),
        (b"\x02\xa6\x01", MALFORMED, "not permitted"),
        (b"\x06\x26\0\x01\0\0\0", MALFORMED, "name of a user property"),
        (b"\x06\x26\0\0\0\x01\xff", MALFORMED, "value of a user property"),
        (b"\x02\x21\0", MALFORMED, "ends within a field"),
        (b"\x7f\x21\0\x01", MALFORMED, "property length"),
        (b"\x80\x00", MALFORMED, "more bytes than it needs"),
    ] {
        refused(V5, 0x10, &connect(5, 2, section, &[0, 0]), reason, words);
    }
}

#[test]
fn publish() {
    let publish = |section: &[u8]| [&b"\0\x01a"[..], section].concat();
    refused(V5, 0x30, &publish(b"\x03\x23\0\0"), ReasonCode::TOPIC_ALIAS_INVALID, "topic alias is 0");
    refused(V5, 0x30, &publish(b"\x02\x01\x02"), PROTOCOL, "payload format");
    refused(V5, 0x30, &publish(b"\x02\x0b\0"), PROTOCOL, "subscription identifier is 0");
    refused(V5, 0x30, &publish(b"\x04\x08\0\x01#"), TOPIC, "response topic");
    refused(V5, 0x30, &publish(b"\x02\x24\x01"), MALFORMED, "not permitted");
    refused(V5, 0x30, b"\0\0\0", PROTOCOL, "topic name is empty");
    refused(V4, 0x30, b"\0\0", PROTOCOL, "topic name is empty");
    refused(V4, 0x30, b"\0\x02a+", TOPIC, "wildcard");
    refused(V4, 0x30, b"\0\x02a\0", MALFORMED, "U+0000");
    refused(V4, 0x30, b"\0\x01\xff", MALFORMED, "not UTF-8");
    refused(V4, 0x32, b"\0\x01a\0\0", PROTOCOL, "packet identifier is 0");
    let body = publish(b"\x02\x0b\x01");
    let with_ids = decode(V5, 0x30, &body).expect("a server may send it");
    assert_eq!(with_ids.check_from_client().map_err(|e| e.reason), Err(PROTOCOL));
    assert!(decode(V5, 0x30, b"\0\0\x03\x23\0\x01").is_ok(), "the alias stands for the topic");
}

#[test]
fn subscribe_and_unsubscribe() {
    refused(V5, 0x82, b"\0\x01\0", PROTOCOL, "no topic filter");
    refused(V4, 0xa2, b"\0\x01", PROTOCOL, "no topic filter");
    refused(V5, 0x82, b"\0\0\0\0\x01a\0", PROTOCOL, "packet identifier is 0");
    for (version, options, reason, words) in [
        (V4, 0x03, MALFORMED, "QoS is 3"),
        (V4, 0x04, MALFORMED, "reserved bit"),
        (V5, 0x03, PROTOCOL, "QoS is 3"),
        (V5, 0x40, MALFORMED, "reserved bit"),
        (V5, 0x30, PROTOCOL, "retain handling"),
    ] {
        let section: &[u8] = if version == V5 { &[0] } else { &[] };
        refused(version, 0x82, &[b"\0\x01", section, b"\0\x01a", &[options]].concat(), reason, words);
    }
    refused(V5, 0x82, b"\0\x01\0\0\x0a$share/g/a\x04", PROTOCOL, "shared");
    refused(V5, 0x82, b"\0\x01\x04\x0b\x01\x0b\x02\0\x01a\0", PROTOCOL, "repeated");
    refused(V4, 0x82, b"\0\x01\0\x01a", MALFORMED, "ends within a field");
    refused(V5, 0xa2, b"\0\x01\0\0\x01\xff", MALFORMED, "topic filter");
}

#[test]
fn answers() {
    refused(V5, 0x40, b"\0\x01\x05", PROTOCOL, "reason code");
    refused(V5, 0x62, b"\0\x01\x10", PROTOCOL, "reason code");
    refused(V4, 0x40, b"\0\x01\0", MALFORMED, "after the end");
    refused(V4, 0x40, b"\0\0", PROTOCOL, "packet identifier is 0");
    refused(V4, 0x20, b"\0\x06", MALFORMED, "return code");
    refused(V5, 0x20, b"\x02\0\0", MALFORMED, "acknowledge flags");
    refused(V5, 0x20, b"\x01\x87\0", PROTOCOL, "has a session");
    refused(V5, 0x90, b"\0\x01\0", PROTOCOL, "no reason code");
    refused(V4, 0x90, b"\0\x01\x03", MALFORMED, "return code");
    refused(V4, 0xb0, b"\0\x01\0", MALFORMED, "after the end");
    refused(V5, 0xe0, b"\x05", PROTOCOL, "reason code");
    refused(V4, 0xe0, b"\0", MALFORMED, "after the end");
    refused(V5, 0xf0, b"\x18\0", PROTOCOL, "authentication method");
    refused(V5, 0xc0, b"x", MALFORMED, "after the end");
}

#[test]
fn an_answer_gives_up_its_diagnostics_to_fit() {
    let mut user = AttributesBuf::new();
    user.push("name", "value");
    let properties = AckProperties { reason_string: Some("because"), user: user.as_attributes().into() };
    let packet_id = PacketId::new(1).expect("not 0");
    let packet = Packet::PubAck(Ack { packet_id, reason: ReasonCode::QUOTA_EXCEEDED, properties });
    let whole = packet.encoded_len(V5).expect("small");
    for (max, expected) in [(whole, whole), (whole - 1, 16), (16, 16), (15, 5), (5, 5)] {
        let mut out = Vec::new();
        packet.encode_within(V5, max, &mut out).expect("it fits when shortened");
        assert_eq!(out.len(), expected, "at most {max}");
    }
    let mut out = Vec::new();
    assert_eq!(packet.encode_within(V5, 4, &mut out), Err(EncodeError::PacketTooLarge));
    assert!(out.is_empty());
}

#[test]
fn fields_that_are_too_long_are_not_encoded() {
    let long = "x".repeat(65_536);
    let mut packet = ConnAck::refusal(ReasonCode::UNSPECIFIED_ERROR);
    packet.properties.reason_string = Some(&long);
    let mut out = vec![7];
    assert_eq!(Packet::ConnAck(packet).encode(V5, &mut out), Err(EncodeError::FieldTooLong));
    assert_eq!(out, [7]);
    packet.properties.reason_string = Some(&long[1..]);
    assert_eq!(Packet::ConnAck(packet).encode(V5, &mut out), Ok(()));
}
