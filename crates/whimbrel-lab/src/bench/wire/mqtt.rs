//! The part of MQTT 3.1.1 and 5.0 that a load generator needs.

use super::{Ack, Frame, QoS, STAMP_BYTES, Template, WireError};

const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const SUBACK: u8 = 9;
const DISCONNECT: u8 = 14;

/// Properties of MQTT 5.
const USER_PROPERTY: u8 = 0x26;
const REASON_STRING: u8 = 0x1F;
const SESSION_EXPIRY: u8 = 0x11;
const RECEIVE_MAXIMUM: u8 = 0x21;

/// A DISCONNECT without a reason.
pub const DISCONNECT_PACKET: &[u8] = &[0xE0, 0];

/// The user property of a SUBACK with the token of the subscription's start.
const TOKEN: &str = "w-token";

/// The user property of a SUBACK that names a broker that does not know of the subscription.
const PENDING: &str = "w-pending";

/// Reason codes and return codes from here on are failures.
const FAILURE: u8 = 0x80;

/// The largest Remaining Length has this many bytes.
const MAX_LENGTH_BYTES: usize = 4;

/// Appends a CONNECT with a clean session, the longest keep-alive (18 hours; rumqttd refuses to do
/// without) and, in MQTT 5, the default Receive Maximum of 65,535.
pub fn connect(out: &mut Vec<u8>, v5: bool, client_id: &str) {
    let mut rest = vec![0, 4, b'M', b'Q', b'T', b'T', if v5 { 5 } else { 4 }, 0x02, 0xFF, 0xFF];
    if v5 {
        rest.push(0);
    }
    string(&mut rest, client_id);
    packet(out, 0x10, &rest);
}

/// Appends a CONNECT of MQTT 3.1.1 to a session that outlives the connection, with the longest
/// keep-alive.
pub fn connect_lasting_311(out: &mut Vec<u8>, client_id: &str) {
    let mut rest = vec![0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0xFF, 0xFF];
    string(&mut rest, client_id);
    packet(out, 0x10, &rest);
}

/// Appends a CONNECT of MQTT 5 with the longest keep-alive: with a clean start and a session that
/// ends with the connection, or for a session that outlives it by `lasting` seconds; with a Receive
/// Maximum if it differs from 65,535.
pub fn connect_5(out: &mut Vec<u8>, client_id: &str, lasting: Option<u32>, receive_maximum: Option<u16>) {
    let mut properties = Vec::new();
    if let Some(seconds) = lasting {
        properties.push(SESSION_EXPIRY);
        properties.extend_from_slice(&seconds.to_be_bytes());
    }
    if let Some(maximum) = receive_maximum {
        properties.push(RECEIVE_MAXIMUM);
        properties.extend_from_slice(&maximum.to_be_bytes());
    }
    let clean_start = u8::from(lasting.is_none()) << 1;
    let mut rest = vec![0, 4, b'M', b'Q', b'T', b'T', 5, clean_start, 0xFF, 0xFF];
    length(&mut rest, properties.len());
    rest.extend_from_slice(&properties);
    string(&mut rest, client_id);
    packet(out, 0x10, &rest);
}

/// Appends a SUBSCRIBE to one topic filter; `user` properties are for MQTT 5 only.
pub fn subscribe(out: &mut Vec<u8>, v5: bool, packet_id: u16, (filter, qos): (&str, QoS), user: &[(&str, &str)]) {
    let mut rest = packet_id.to_be_bytes().to_vec();
    if v5 {
        properties(&mut rest, user);
    }
    string(&mut rest, filter);
    rest.push(u8::from(qos == QoS::AtLeastOnce));
    packet(out, 0x82, &rest);
}

/// Appends a PUBACK (the same bytes mean success in both versions).
pub fn puback(out: &mut Vec<u8>, packet_id: u16) {
    let [high, low] = packet_id.to_be_bytes();
    out.extend_from_slice(&[0x40, 2, high, low]);
}

/// Appends a PUBLISH of MQTT 5 with user properties and without a packet identifier (QoS 0), or
/// with this one (QoS 1).
pub fn publish_with(out: &mut Vec<u8>, topic: &str, packet_id: Option<u16>, user: &[(&str, &str)], body: &[u8]) {
    let mut rest = Vec::with_capacity(topic.len() + body.len() + 64);
    string(&mut rest, topic);
    if let Some(packet_id) = packet_id {
        rest.extend_from_slice(&packet_id.to_be_bytes());
    }
    properties(&mut rest, user);
    rest.extend_from_slice(body);
    packet(out, 0x30 | u8::from(packet_id.is_some()) << 1, &rest);
}

/// Appends the properties of MQTT 5 that are user properties.
fn properties(rest: &mut Vec<u8>, user: &[(&str, &str)]) {
    let mut all = Vec::new();
    for (name, value) in user {
        all.push(USER_PROPERTY);
        string(&mut all, name);
        string(&mut all, value);
    }
    length(rest, all.len());
    rest.extend_from_slice(&all);
}

/// The value of the first user property of a name; `properties` begin with their length.
fn user_property<'a>(bytes: &'a [u8], wanted: &str) -> Result<&'a str, WireError> {
    let cut = WireError::Malformed("properties that end too early");
    let (length, taken) = variable_integer(bytes)?.ok_or(cut)?;
    let mut rest = bytes.get(taken..taken + length).unwrap_or_default();
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            USER_PROPERTY => {
                let (name, after) = take_string(after)?;
                let (value, after) = take_string(after)?;
                if name == wanted {
                    return Ok(value);
                }
                rest = after;
            }
            REASON_STRING => rest = take_string(after)?.1,
            _ => return Err(WireError::Malformed("a property that this packet does not have")),
        }
    }
    Ok("")
}

fn take_string(bytes: &[u8]) -> Result<(&str, &[u8]), WireError> {
    let cut = WireError::Malformed("a string that ends too early");
    let Some((length, rest)) = number(bytes).map(usize::from).zip(bytes.get(2..)) else { return Err(cut) };
    let Some((text, rest)) = rest.split_at_checked(length) else { return Err(cut) };
    let text = std::str::from_utf8(text).map_err(|_| WireError::Malformed("a string that is no UTF-8"))?;
    Ok((text, rest))
}

/// A PUBLISH template, with user properties for MQTT 5.
pub(super) fn template(v5: bool, topic: &str, qos: QoS, body: usize, user: &[(&str, &str)]) -> Template {
    let mut rest = Vec::new();
    string(&mut rest, topic);
    let packet_id_at = (qos == QoS::AtLeastOnce).then_some(rest.len());
    if packet_id_at.is_some() {
        rest.extend_from_slice(&[0, 0]);
    }
    if v5 {
        properties(&mut rest, user);
    }
    let stamp_at = rest.len();
    rest.resize(stamp_at + body.max(STAMP_BYTES), b'.');
    let mut bytes = Vec::new();
    packet(&mut bytes, 0x30 | u8::from(qos == QoS::AtLeastOnce) << 1, &rest);
    let header = bytes.len() - rest.len();
    Template { bytes, packet_id_at: packet_id_at.map(|at| at + header), stamp_at: stamp_at + header }
}

/// Parses one packet; see [`super::parse`].
pub(super) fn parse(v5: bool, bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    let Some((&first, after)) = bytes.split_first() else { return Ok(None) };
    let Some((length, length_bytes)) = variable_integer(after)? else { return Ok(None) };
    let header = 1 + length_bytes;
    let Some(rest) = bytes.get(header..header + length) else { return Ok(None) };
    let frame = match first >> 4 {
        PUBLISH => publish(v5, first, rest)?,
        PUBACK => match (number(rest), rest.get(2)) {
            (_, Some(&code)) if code >= FAILURE => return Err(refused("PUBACK", code)),
            (Some(id), _) => Frame::Accepted(Some(id)),
            (None, _) => return Err(WireError::Malformed("a PUBACK without a packet identifier")),
        },
        CONNACK => match rest.get(1) {
            Some(0) => Frame::Ready,
            Some(&code) => return Err(refused("CONNACK", code)),
            None => return Err(WireError::Malformed("a CONNACK without a code")),
        },
        SUBACK => match rest.last() {
            Some(&code) if code >= FAILURE => return Err(refused("SUBACK", code)),
            Some(_) if v5 => {
                let pending = !user_property(&rest[2..], PENDING)?.is_empty();
                Frame::Subscribed { token: user_property(&rest[2..], TOKEN)?, pending }
            }
            Some(_) => Frame::Subscribed { token: "", pending: false },
            None => return Err(WireError::Malformed("a SUBACK without a code")),
        },
        DISCONNECT => return Err(refused("DISCONNECT", rest.first().copied().unwrap_or(0))),
        _ => Frame::Ignored,
    };
    Ok(Some((frame, header + length)))
}

fn publish(v5: bool, first: u8, rest: &[u8]) -> Result<Frame<'_>, WireError> {
    let topic = number(rest).ok_or(WireError::Malformed("a PUBLISH without a topic"))?;
    let mut at = 2 + usize::from(topic);
    let mut ack = Ack::None;
    if first & 0x06 != 0 {
        let id =
            rest.get(at..).and_then(number).ok_or(WireError::Malformed("a PUBLISH without its packet identifier"))?;
        ack = Ack::Packet(id);
        at += 2;
    }
    let mut properties: &[u8] = &[];
    if v5 {
        let cut = || WireError::Malformed("a PUBLISH without its properties");
        let rest = rest.get(at..).unwrap_or_default();
        let (length, bytes) = variable_integer(rest)?.ok_or_else(cut)?;
        properties = rest.get(bytes..bytes + length).ok_or_else(cut)?;
        at += bytes + length;
    }
    let body = rest.get(at..).ok_or(WireError::Malformed("a PUBLISH shorter than its own header"))?;
    Ok(Frame::Message { properties, body, ack })
}

/// The last user property of a name among the properties of a PUBLISH.
pub fn last_property<'a>(mut properties: &'a [u8], name: &str) -> Option<&'a str> {
    fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        bytes.get(2..)?.split_at_checked(usize::from(number(bytes)?))
    }
    let mut found = None;
    while let Some((identifier, rest)) = properties.split_first() {
        properties = match identifier {
            0x01 => rest.get(1..)?,
            0x02 => rest.get(4..)?,
            0x23 => rest.get(2..)?,
            0x0B => rest.get(variable_integer(rest).ok()??.1..)?,
            0x03 | 0x08 | 0x09 => text(rest)?.1,
            &USER_PROPERTY => {
                let (key, rest) = text(rest)?;
                let (value, rest) = text(rest)?;
                if key == name.as_bytes() {
                    found = std::str::from_utf8(value).ok();
                }
                rest
            }
            _ => return None,
        };
    }
    found
}

fn refused(packet: &str, code: u8) -> WireError {
    WireError::Refused(format!("{packet} with code {code:#04x}"))
}

fn number(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|two| u16::from_be_bytes(*two))
}

/// A variable byte integer and its length; `None` if it is incomplete.
#[inline]
fn variable_integer(bytes: &[u8]) -> Result<Option<(usize, usize)>, WireError> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(MAX_LENGTH_BYTES).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() >= MAX_LENGTH_BYTES {
        return Err(WireError::Malformed("a variable byte integer of more than four bytes"));
    }
    Ok(None)
}

fn string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("names of the generator are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn packet(out: &mut Vec<u8>, first: u8, rest: &[u8]) {
    out.push(first);
    length(out, rest.len());
    out.extend_from_slice(rest);
}

/// Appends a variable byte integer.
fn length(out: &mut Vec<u8>, mut length: usize) {
    loop {
        let byte = (length % 128) as u8;
        length /= 128;
        if length == 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_has_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        connect(&mut out, false, "a");
        assert_eq!(out, b"\x10\x0d\0\x04MQTT\x04\x02\xff\xff\0\x01a");
        out.clear();
        connect(&mut out, true, "a");
        assert_eq!(out, b"\x10\x0e\0\x04MQTT\x05\x02\xff\xff\0\0\x01a");
    }

    #[test]
    fn subscribe_has_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        subscribe(&mut out, false, 1, ("b/#", QoS::AtMostOnce), &[]);
        assert_eq!(out, b"\x82\x08\0\x01\0\x03b/#\0");
        out.clear();
        subscribe(&mut out, true, 1, ("b/#", QoS::AtLeastOnce), &[]);
        assert_eq!(out, b"\x82\x09\0\x01\0\0\x03b/#\x01");
        out.clear();
        subscribe(&mut out, true, 1, ("b/#", QoS::AtMostOnce), &[("a", "bc")]);
        assert_eq!(out, b"\x82\x11\0\x01\x08\x26\0\x01a\0\x02bc\0\x03b/#\0");
    }

    #[test]
    fn a_publish_with_properties_is_read_as_it_was_written() {
        let mut out = Vec::new();
        publish_with(&mut out, "t", Some(7), &[("index", "42")], b"body");
        assert_eq!(out, b"\x32\x16\0\x01t\0\x07\x0c\x26\0\x05index\0\x0242body");
        let whole = parse(true, &out).expect("well formed");
        assert_eq!(
            whole,
            Some((Frame::Message { properties: &out[8..20], body: b"body", ack: Ack::Packet(7) }, out.len()))
        );
    }

    #[test]
    fn the_token_of_a_suback_is_read_among_other_properties() {
        let token = |bytes: &'static [u8]| match parse(true, bytes) {
            Ok(Some((Frame::Subscribed { token, pending: false }, _))) => Ok(token),
            other => Err(other),
        };
        assert_eq!(token(b"\x90\x04\0\x01\0\0"), Ok(""));
        let with_reason = b"\x90\x16\0\x01\x12\x1f\0\x01r\x26\0\x07w-token\0\x02Ab\0";
        assert_eq!(token(with_reason), Ok("Ab"));
        assert!(token(b"\x90\x08\0\x01\x04\x26\0\x07w\0").is_err(), "a string beyond the properties");
        let pending = parse(true, b"\x90\x13\0\x01\x0f\x26\0\x09w-pending\0\x01b\0");
        assert_eq!(pending, Ok(Some((Frame::Subscribed { token: "", pending: true }, 21))));
    }

    #[test]
    fn refusals_are_errors() {
        for bytes in [&b"\x20\x02\0\x05"[..], b"\x90\x03\0\x01\x80", b"\xe0\x01\x8b"] {
            assert!(matches!(parse(false, bytes), Err(WireError::Refused(_))), "{bytes:?}");
        }
        assert!(matches!(parse(true, b"\x40\x03\0\x01\x97"), Err(WireError::Refused(_))));
    }

    #[test]
    fn malformed_packets_are_errors() {
        for bytes in [&b"\x30\xff\xff\xff\xff\x01"[..], b"\x30\x02\0\x05", b"\x32\x03\0\x01a", b"\x40\x01\0", b"\x20\0"]
        {
            assert!(matches!(parse(false, bytes), Err(WireError::Malformed(_))), "{bytes:?}");
        }
    }

    #[test]
    fn properties_of_a_delivered_message_are_skipped() {
        let bytes = b"\x30\x10\0\x01b\x04\x23\0\x01\x11\0\0\0\0\0\0\0\x05";
        let (frame, length) = parse(true, bytes).expect("well formed").expect("whole");
        assert_eq!(length, bytes.len());
        let Frame::Message { properties, body, ack: Ack::None } = frame else { panic!("a message was expected") };
        assert_eq!((body, properties), (&b"\0\0\0\0\0\0\0\x05"[..], &b"\x23\0\x01\x11"[..]));
    }

    #[test]
    fn the_last_user_property_of_a_name_is_found() {
        let template = template(true, "t", QoS::AtLeastOnce, 8, &[("v", "17"), ("w-id", "ab:0"), ("w-id", "ab:1")]);
        let mut out = Vec::new();
        template.write(&mut out, 5, 1);
        let (frame, length) = parse(true, &out).expect("well formed").expect("whole");
        assert_eq!(length, out.len());
        let Frame::Message { properties, .. } = frame else { panic!("a message was expected, got {frame:?}") };
        assert_eq!([last_property(properties, "v"), last_property(properties, "w-id")], [Some("17"), Some("ab:1")]);
        assert_eq!(last_property(properties, "w"), None);
    }
}
