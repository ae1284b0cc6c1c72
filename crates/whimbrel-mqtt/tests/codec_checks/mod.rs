//! What must hold for any bytes. Shared by the property tests, the bounded fuzz tests and the fuzz
//! targets.

#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

pub mod generate;
pub mod operations;
pub mod oracle;

use whimbrel_event::Attributes;
use whimbrel_mqtt::codec::{
    BarePublish, Packet, PacketType, Publish, PublishProperties, QoS, ReasonCode, Version, decode, decode_ack,
    decode_publish, encode_publish, frame,
};

/// Packets larger than this are not looked at.
pub const MAX: usize = 1 << 20;

/// The version that a packet is encoded in: a CONNECT says it itself.
fn version_of(version: Version, packet: &Packet<'_>) -> Version {
    match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    }
}

fn encode(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("what was decoded from a frame fits into one");
    assert_eq!(packet.encoded_len(version), Ok(out.len()));
    out
}

/// No bytes make the decoder panic; what it accepts, encoded and decoded again, says the same; a
/// second encoding is the same bytes. Returns whether any version accepted them.
pub fn decode_any(bytes: &[u8]) -> bool {
    let Ok(Some(cut)) = frame(bytes, MAX) else { return false };
    let mut accepted = false;
    for version in [Version::V4, Version::V5] {
        let Ok(packet) = decode(version, cut.first_byte, cut.body) else { continue };
        accepted = true;
        let version = version_of(version, &packet);
        let once = encode(version, &packet);
        let again = frame(&once, MAX).expect("well-formed").expect("complete");
        assert_eq!(again.whole.len(), once.len());
        let decoded = decode(version, again.first_byte, again.body);
        assert_eq!(decoded.as_ref(), Ok(&packet), "encoded as {once:02x?}");
        assert_eq!(encode(version, &packet), once);
        assert!(!format!("{packet:?}").is_empty());
        check_shortening(version, &packet, once.len());
    }
    check_prefixes(bytes, cut.whole.len());
    accepted
}

/// A packet that is too large is refused or made shorter, never larger than asked for.
fn check_shortening(version: Version, packet: &Packet<'_>, len: usize) {
    for max in [0, len / 2, len - 1, len] {
        let mut out = Vec::new();
        match packet.encode_within(version, max, &mut out) {
            Ok(_) => {
                assert!(out.len() <= max);
                let cut = frame(&out, MAX).expect("well-formed").expect("complete");
                let shorter = decode(version, cut.first_byte, cut.body).expect("a shortened packet is valid");
                assert_eq!(shorter.packet_type(), packet.packet_type());
            }
            Err(_) => assert!(out.is_empty() && max < len),
        }
    }
}

/// Of an incomplete packet, more is awaited.
fn check_prefixes(bytes: &[u8], len: usize) {
    for end in [0, 1, 2, len / 2, len - 1] {
        if end < len {
            assert_eq!(frame(&bytes[..end], MAX), Ok(None));
        }
    }
}

/// What a topic name must be, said as simply as possible.
fn expected_topic(name: &[u8]) -> Result<&str, ReasonCode> {
    let text = core::str::from_utf8(name).map_err(|_| ReasonCode::MALFORMED_PACKET)?;
    if text.chars().any(|c| c == '\0') {
        Err(ReasonCode::MALFORMED_PACKET)
    } else if text.chars().any(|c| c == '+' || c == '#') {
        Err(ReasonCode::TOPIC_NAME_INVALID)
    } else if text.is_empty() {
        Err(ReasonCode::PROTOCOL_ERROR)
    } else {
        Ok(text)
    }
}

/// The short ways for PUBLISH and acknowledgements agree with plain expectations and with the
/// general way.
pub fn publish_fast(bytes: &[u8]) {
    let topic = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    for version in [Version::V4, Version::V5] {
        let mut body = Vec::new();
        body.extend_from_slice(&(topic.len() as u16).to_be_bytes());
        body.extend_from_slice(topic);
        if version == Version::V5 {
            body.push(0);
        }
        body.extend_from_slice(b"payload");
        let decoded = decode_publish(version, 0x30, &body);
        assert_eq!(decoded.map(|publish| publish.topic).map_err(|e| e.reason), expected_topic(topic));
        if let Ok(publish) = decoded {
            assert_eq!((publish.payload, publish.properties), (&b"payload"[..], PublishProperties::EMPTY));
        }
        check_general_way(version, bytes);
    }
}

fn check_general_way(version: Version, bytes: &[u8]) {
    let Some((&first, body)) = bytes.split_first() else { return };
    let first_byte = 0x30 | first & 0x0f;
    let publish = decode_publish(version, first_byte, body);
    assert_eq!(publish.map(Packet::Publish), decode(version, first_byte, body));
    check_bare(version, first_byte, body);
    if let Ok(publish) = publish {
        check_patching(version, &publish);
    }
    for packet_type in [PacketType::PubAck, PacketType::PubRec, PacketType::PubRel, PacketType::PubComp] {
        let general = decode(version, packet_type.first_byte(), bytes).map(|packet| match packet {
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => ack,
            other => panic!("decoded as {other:?}"),
        });
        assert_eq!(decode_ack(version, packet_type, bytes), general);
    }
}

/// The short reading of a PUBLISH without properties agrees with the general one.
fn check_bare(version: Version, first_byte: u8, body: &[u8]) {
    let mut whole = vec![first_byte];
    let mut length = body.len();
    while length >= 0x80 {
        whole.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    whole.push(length as u8);
    whole.extend_from_slice(body);
    let Ok(Some(cut)) = frame(&whole, usize::MAX) else { return };
    match (BarePublish::read(version, &cut), decode_publish(version, first_byte, body)) {
        (Some(bare), Ok(publish)) => {
            let short = (bare.topic, bare.packet_id, bare.qos, bare.retain, bare.payload);
            let general = (publish.topic.as_bytes(), publish.packet_id, publish.qos, publish.retain, publish.payload);
            assert_eq!((short, publish.properties), (general, PublishProperties::EMPTY));
        }
        (Some(bare), Err(_)) => assert!(expected_topic(bare.topic).is_err(), "only its topic is not looked at"),
        (None, Ok(publish)) => assert_ne!(publish.properties, PublishProperties::EMPTY),
        (None, Err(_)) => {}
    }
}

/// A patched copy is what encoding for that receiver would have given.
fn check_patching(version: Version, publish: &Publish<'_>) {
    let mut copy = Vec::new();
    let layout = encode_publish(version, publish, Attributes::EMPTY, &mut copy).expect("it was a packet before");
    assert_eq!(layout.len, copy.len());
    let (qos, packet_id) = match publish.packet_id {
        None => (QoS::AtMostOnce, None),
        Some(_) => (QoS::ExactlyOnce, core::num::NonZeroU16::new(0xfedc)),
    };
    let dup = publish.packet_id.is_some() && !publish.dup;
    let other = Publish { dup, qos, retain: !publish.retain, packet_id, ..*publish };
    layout.patch(&mut copy, other.dup, other.qos, other.retain, other.packet_id);
    let mut direct = Vec::new();
    encode_publish(version, &other, Attributes::EMPTY, &mut direct).expect("it was a packet before");
    assert_eq!(copy, direct);
}
