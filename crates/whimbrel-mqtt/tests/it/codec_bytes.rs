//! Packets as the specification writes them, byte for byte.

use whimbrel_event::AttributesBuf;
use whimbrel_mqtt::codec::{
    Ack, Codes, CodesAck, ConnAck, Connect, ConnectProperties, Filter, Filters, Packet, PacketId, Publish,
    PublishProperties, QoS, ReasonCode, Subscribe, SubscribeProperties, SubscriptionIds, Version, Will, WillProperties,
    decode, encode_publish, frame,
};

fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

/// Encodes, compares with `bytes`, decodes, compares with `packet`.
fn check(version: Version, packet: &Packet<'_>, bytes: &[u8]) {
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("small");
    assert_eq!(out, bytes, "{packet:?}");
    assert_eq!(packet.encoded_len(version), Ok(bytes.len()));
    let frame = frame(bytes, bytes.len()).expect("well-formed").expect("complete");
    assert_eq!(frame.whole.len(), bytes.len());
    assert_eq!(decode(version, frame.first_byte, frame.body).as_ref(), Ok(packet));
}

#[test]
fn connect_of_both_versions() {
    let connect = Connect {
        version: Version::V4,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        properties: ConnectProperties::default(),
        client_id: "id",
        will: Some(Will {
            topic: "w",
            payload: b"x",
            qos: QoS::AtLeastOnce,
            retain: true,
            properties: WillProperties::default(),
        }),
        user_name: Some("u"),
        password: Some(b"p"),
    };
    let bytes = b"\x10\x1a\0\x04MQTT\x04\xee\0\x3c\0\x02id\0\x01w\0\x01x\0\x01u\0\x01p";
    check(Version::V4, &Packet::Connect(connect), bytes);
    let bytes = b"\x10\x1a\0\x04MQTT\x84\xee\0\x3c\0\x02id\0\x01w\0\x01x\0\x01u\0\x01p";
    check(Version::V4, &Packet::Connect(Connect { bridge: true, ..connect }), bytes);
    let connect = Connect {
        version: Version::V5,
        properties: ConnectProperties { session_expiry: Some(10), ..ConnectProperties::default() },
        will: connect
            .will
            .map(|will| Will { properties: WillProperties { delay: Some(5), ..WillProperties::default() }, ..will }),
        ..connect
    };
    let bytes =
        b"\x10\x26\0\x04MQTT\x05\xee\0\x3c\x05\x11\0\0\0\x0a\0\x02id\x05\x18\0\0\0\x05\0\x01w\0\x01x\0\x01u\0\x01p";
    check(Version::V5, &Packet::Connect(connect), bytes);
}

#[test]
fn publish_of_both_versions() {
    let plain = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: true,
        topic: "a/b",
        packet_id: None,
        properties: PublishProperties::EMPTY,
        payload: b"hi",
    };
    check(Version::V4, &Packet::Publish(plain), b"\x31\x07\0\x03a/bhi");
    check(Version::V5, &Packet::Publish(plain), b"\x31\x08\0\x03a/b\0hi");
    let mut user = AttributesBuf::new();
    user.push("k", "v");
    let full = Publish {
        dup: true,
        qos: QoS::ExactlyOnce,
        packet_id: Some(id(0x1234)),
        properties: PublishProperties {
            text_payload: Some(true),
            subscription_ids: SubscriptionIds::list(&[1, 200]),
            user: user.as_attributes().into(),
            ..PublishProperties::EMPTY
        },
        ..plain
    };
    let bytes = b"\x3d\x18\0\x03a/b\x12\x34\x0e\x01\x01\x0b\x01\x0b\xc8\x01\x26\0\x01k\0\x01vhi";
    check(Version::V5, &Packet::Publish(full), bytes);
}

#[test]
fn one_encoding_serves_many_receivers() {
    let publish = Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: "a",
        packet_id: Some(id(1)),
        properties: PublishProperties::EMPTY,
        payload: b"p",
    };
    let mut appended = AttributesBuf::new();
    appended.push("w-id", "1:2");
    let mut out = b"before".to_vec();
    let layout = encode_publish(Version::V5, &publish, appended.as_attributes(), &mut out).expect("small");
    let mut copy = out[out.len() - layout.len..].to_vec();
    layout.patch(&mut copy, true, QoS::ExactlyOnce, true, Some(id(0xabcd)));
    let frame = frame(&copy, copy.len()).expect("well-formed").expect("complete");
    let Ok(Packet::Publish(decoded)) = decode(Version::V5, frame.first_byte, frame.body) else {
        panic!("no PUBLISH: {copy:?}");
    };
    assert_eq!((decoded.dup, decoded.qos, decoded.retain), (true, QoS::ExactlyOnce, true));
    assert_eq!((decoded.packet_id, decoded.payload), (Some(id(0xabcd)), &b"p"[..]));
    assert_eq!(decoded.properties.user.get("w-id"), Some("1:2"));
}

#[test]
fn answers_of_both_versions() {
    let refusal = Packet::ConnAck(ConnAck::refusal(ReasonCode::NOT_AUTHORIZED));
    check(Version::V4, &refusal, &[0x20, 2, 0, 5]);
    check(Version::V5, &refusal, &[0x20, 3, 0, 0x87, 0]);
    for version in [Version::V4, Version::V5] {
        check(version, &Packet::PubAck(Ack::success(id(9))), &[0x40, 2, 0, 9]);
        check(version, &Packet::PubRel(Ack::success(id(9))), &[0x62, 2, 0, 9]);
        check(version, &Packet::PingReq, &[0xc0, 0]);
        check(version, &Packet::PingResp, &[0xd0, 0]);
    }
    let refused = Ack { reason: ReasonCode::QUOTA_EXCEEDED, ..Ack::success(id(9)) };
    check(Version::V5, &Packet::PubRec(refused), &[0x50, 3, 0, 9, 0x97]);
    let suback = CodesAck { packet_id: id(1), codes: Codes(&[2, 0x80]), properties: Default::default() };
    check(Version::V4, &Packet::SubAck(suback), &[0x90, 4, 0, 1, 2, 0x80]);
    check(Version::V5, &Packet::UnsubAck(CodesAck { codes: Codes(&[0x11]), ..suback }), &[0xb0, 4, 0, 1, 0, 0x11]);
}

#[test]
fn subscribe_of_both_versions() {
    let filters = [Filter::new("a/#", QoS::AtLeastOnce), Filter::new("+", QoS::ExactlyOnce)];
    let subscribe =
        Subscribe { packet_id: id(7), properties: SubscribeProperties::default(), filters: Filters::list(&filters) };
    check(Version::V4, &Packet::Subscribe(subscribe), b"\x82\x0c\0\x07\0\x03a/#\x01\0\x01+\x02");
    let filters = [Filter { no_local: true, retain_as_published: true, ..filters[0] }];
    let subscribe = Subscribe {
        properties: SubscribeProperties { subscription_id: Some(3), ..SubscribeProperties::default() },
        filters: Filters::list(&filters),
        ..subscribe
    };
    check(Version::V5, &Packet::Subscribe(subscribe), b"\x82\x0b\0\x07\x02\x0b\x03\0\x03a/#\x0d");
}
