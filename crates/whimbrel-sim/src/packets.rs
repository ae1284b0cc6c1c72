//! A client's view of a byte stream: packets, encoded and decoded by a codec that is not the
//! broker's.

use std::fmt;
use std::sync::Arc;

use mqtt_protocol_core::mqtt::Version;
pub use mqtt_protocol_core::mqtt::packet::{Packet, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::MqttError;

/// Control packet types as the fixed header has them.
mod kind {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const CONNACK: u8 = 2;
    pub(super) const PUBLISH: u8 = 3;
    pub(super) const PUBACK: u8 = 4;
    pub(super) const PUBREC: u8 = 5;
    pub(super) const PUBREL: u8 = 6;
    pub(super) const PUBCOMP: u8 = 7;
    pub(super) const SUBSCRIBE: u8 = 8;
    pub(super) const SUBACK: u8 = 9;
    pub(super) const UNSUBSCRIBE: u8 = 10;
    pub(super) const UNSUBACK: u8 = 11;
    pub(super) const PINGREQ: u8 = 12;
    pub(super) const PINGRESP: u8 = 13;
    pub(super) const DISCONNECT: u8 = 14;
    pub(super) const AUTH: u8 = 15;
}

/// Bytes that are not an MQTT packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The mistake.
    pub why: String,
    /// The packet, as far as it is known.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:02x?}", self.why, self.bytes)
    }
}

impl std::error::Error for Malformed {}

/// The length of the packet at the start of `stream`, header included. `None` while the header is
/// incomplete.
///
/// # Errors
/// When the remaining length has more than four bytes, or more than it needs.
pub fn packet_length(stream: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut remaining = 0;
    for at in 0..4 {
        let Some(byte) = stream.get(1 + at) else { return Ok(None) };
        remaining |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            if at > 0 && *byte == 0 {
                return Err(malformed("remaining length in more bytes than it needs", stream));
            }
            return Ok(Some(2 + at + remaining));
        }
    }
    Err(malformed("remaining length of more than four bytes", stream))
}

/// Cuts off the packet that starts at `*at` in `stream`, and moves `*at` to its end. `None` while
/// it is incomplete.
///
/// # Errors
/// When the bytes cannot be a packet of that protocol version.
pub fn next_packet(version: Version, stream: &[u8], at: &mut usize) -> Result<Option<Packet>, Malformed> {
    let rest = &stream[*at..];
    let Some(length) = packet_length(rest)? else { return Ok(None) };
    if rest.len() < length {
        return Ok(None);
    }
    let packet = decode(version, &rest[..length])?;
    *at += length;
    Ok(Some(packet))
}

/// The protocol version that a CONNECT names, once enough bytes of it are there.
pub fn greeted_version(bytes: &[u8]) -> Option<Version> {
    let header = 1 + bytes.get(1..)?.iter().take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let name = usize::from(u16::from_be_bytes([*bytes.get(header)?, *bytes.get(header + 1)?]));
    match bytes.get(header + 2 + name)? {
        3 | 4 => Some(Version::V3_1_1),
        _ => Some(Version::V5_0),
    }
}

/// Decodes one packet, which must fill `bytes`.
///
/// # Errors
/// When it is no packet of that protocol version; flags of the fixed header and left-over bytes are
/// checked too.
pub fn decode(version: Version, bytes: &[u8]) -> Result<Packet, Malformed> {
    let Some(length) = packet_length(bytes)? else { return Err(malformed("incomplete header", bytes)) };
    if length != bytes.len() {
        return Err(malformed("length does not fit", bytes));
    }
    let header = length - remaining(bytes);
    let (kind, flags, body) = (bytes[0] >> 4, bytes[0] & 0x0f, &bytes[header..]);
    let wanted = if matches!(kind, kind::PUBREL | kind::SUBSCRIBE | kind::UNSUBSCRIBE) { 2 } else { 0 };
    if kind != kind::PUBLISH && flags != wanted {
        return Err(malformed("reserved flags of the fixed header", bytes));
    }
    let decoded = match version {
        Version::V5_0 => decode_v5(kind, flags, body),
        _ => decode_v311(kind, flags, body),
    };
    match decoded {
        Ok((packet, used)) if used == body.len() => Ok(packet),
        Ok((_, used)) => Err(malformed(&format!("{} bytes left over", body.len() - used), bytes)),
        Err(error) => Err(malformed(&format!("{error:?}"), bytes)),
    }
}

/// The remaining length of a packet whose header is complete.
fn remaining(packet: &[u8]) -> usize {
    let mut remaining = 0;
    for (at, byte) in packet[1..].iter().take(4).enumerate() {
        remaining |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    remaining
}

fn malformed(why: &str, bytes: &[u8]) -> Malformed {
    Malformed { why: why.to_owned(), bytes: bytes.to_vec() }
}

fn wrap<P: Into<Packet>>((packet, used): (P, usize)) -> (Packet, usize) {
    (packet.into(), used)
}

fn decode_v5(kind: u8, flags: u8, body: &[u8]) -> Result<(Packet, usize), MqttError> {
    match kind {
        kind::CONNECT => v5_0::Connect::parse(body).map(wrap),
        kind::CONNACK => v5_0::Connack::parse(body).map(wrap),
        kind::PUBLISH => v5_0::Publish::parse(flags, Arc::from(body)).map(wrap),
        kind::PUBACK => v5_0::Puback::parse(body).map(wrap),
        kind::PUBREC => v5_0::Pubrec::parse(body).map(wrap),
        kind::PUBREL => v5_0::Pubrel::parse(body).map(wrap),
        kind::PUBCOMP => v5_0::Pubcomp::parse(body).map(wrap),
        kind::SUBSCRIBE => v5_0::Subscribe::parse(body).map(wrap),
        kind::SUBACK => v5_0::Suback::parse(body).map(wrap),
        kind::UNSUBSCRIBE => v5_0::Unsubscribe::parse(body).map(wrap),
        kind::UNSUBACK => v5_0::Unsuback::parse(body).map(wrap),
        kind::PINGREQ => v5_0::Pingreq::parse(body).map(wrap),
        kind::PINGRESP => v5_0::Pingresp::parse(body).map(wrap),
        kind::DISCONNECT => v5_0::Disconnect::parse(body).map(wrap),
        kind::AUTH => v5_0::Auth::parse(body).map(wrap),
        _ => Err(MqttError::MalformedPacket),
    }
}

fn decode_v311(kind: u8, flags: u8, body: &[u8]) -> Result<(Packet, usize), MqttError> {
    match kind {
        kind::CONNECT => v3_1_1::Connect::parse(body).map(wrap),
        kind::CONNACK => v3_1_1::Connack::parse(body).map(wrap),
        kind::PUBLISH => v3_1_1::Publish::parse(flags, Arc::from(body)).map(wrap),
        kind::PUBACK => v3_1_1::Puback::parse(body).map(wrap),
        kind::PUBREC => v3_1_1::Pubrec::parse(body).map(wrap),
        kind::PUBREL => v3_1_1::Pubrel::parse(body).map(wrap),
        kind::PUBCOMP => v3_1_1::Pubcomp::parse(body).map(wrap),
        kind::SUBSCRIBE => v3_1_1::Subscribe::parse(body).map(wrap),
        kind::SUBACK => v3_1_1::Suback::parse(body).map(wrap),
        kind::UNSUBSCRIBE => v3_1_1::Unsubscribe::parse(body).map(wrap),
        kind::UNSUBACK => v3_1_1::Unsuback::parse(body).map(wrap),
        kind::PINGREQ => v3_1_1::Pingreq::parse(body).map(wrap),
        kind::PINGRESP => v3_1_1::Pingresp::parse(body).map(wrap),
        kind::DISCONNECT => v3_1_1::Disconnect::parse(body).map(wrap),
        _ => Err(MqttError::MalformedPacket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_into_packets() {
        let stream = [0xd0, 0x00, 0x40, 0x02, 0x00, 0x07, 0xd0];
        let mut at = 0;
        let ping = next_packet(Version::V5_0, &stream, &mut at).expect("well-formed");
        assert!(matches!(ping, Some(Packet::V5_0Pingresp(_))));
        let Some(Packet::V5_0Puback(ack)) = next_packet(Version::V5_0, &stream, &mut at).expect("well-formed") else {
            panic!("a PUBACK follows")
        };
        assert_eq!(ack.packet_id(), 7);
        assert_eq!(next_packet(Version::V5_0, &stream, &mut at), Ok(None));
        assert_eq!(at, 6);
    }

    #[test]
    fn what_is_no_packet_is_told_apart() {
        assert!(packet_length(&[0xd0, 0x80, 0x80, 0x80, 0x80, 0x01]).is_err());
        assert!(packet_length(&[0xd0, 0x80, 0x00]).is_err());
        assert!(decode(Version::V3_1_1, &[0x41, 0x02, 0x00, 0x07]).is_err(), "PUBACK with a flag");
        assert!(decode(Version::V3_1_1, &[0xd0, 0x01, 0x00]).is_err(), "PINGRESP with a body");
        assert!(decode(Version::V3_1_1, &[0xf0, 0x00]).is_err(), "AUTH in 3.1.1");
    }
}
