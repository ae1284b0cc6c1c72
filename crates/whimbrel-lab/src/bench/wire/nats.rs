//! The NATS client protocol, with JetStream's publish and push-consume.

use super::{Ack, Frame, QoS, Template, WireError};

/// The inbox of JetStream's acknowledgements for messages published to a topic; the publishing
/// connection subscribes to it.
pub fn accepted_inbox(subject: &str) -> String {
    format!("_INBOX.accepted.{subject}")
}

/// The subscription id of [`accepted_inbox`].
pub const ACCEPTED_SID: u32 = 9;

/// The subscription id of the load's own subscription.
pub const LOAD_SID: u32 = 1;

/// The subscription id of replies to requests during the set-up.
pub const REPLY_SID: u32 = 2;

/// The longest control line that nats-server sends (its `max_control_line`), bytes.
const MAX_CONTROL_LINE: usize = 4096;

/// Appends CONNECT and PING; the server answers with PONG once it has accepted the connection.
pub fn connect(out: &mut Vec<u8>, name: &str) {
    let options = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"1\",\"protocol\":1,\"name\":\"{name}\"}}\r\n"
    );
    out.extend_from_slice(options.as_bytes());
    ping(out);
}

/// Appends PING: its PONG means that everything before it was processed.
pub fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PING\r\n");
}

/// Appends PONG.
pub fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PONG\r\n");
}

/// Appends a subscription.
pub fn subscribe(out: &mut Vec<u8>, subject: &str, sid: u32) {
    out.extend_from_slice(format!("SUB {subject} {sid}\r\n").as_bytes());
}

/// Appends a message.
pub fn publish(out: &mut Vec<u8>, subject: &[u8], body: &[u8]) {
    out.extend_from_slice(b"PUB ");
    out.extend_from_slice(subject);
    out.extend_from_slice(format!(" {}\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

/// Appends a request whose reply is sent to `inbox`.
pub fn request(out: &mut Vec<u8>, subject: &str, inbox: &str, body: &[u8]) {
    out.extend_from_slice(format!("PUB {subject} {inbox} {}\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

/// A message template; at QoS 1 it asks JetStream for an acknowledgement.
pub(super) fn template(subject: &str, qos: QoS, body: usize) -> Template {
    let mut bytes = Vec::new();
    match qos {
        QoS::AtMostOnce => publish(&mut bytes, subject.as_bytes(), &vec![b'.'; body]),
        QoS::AtLeastOnce => request(&mut bytes, subject, &accepted_inbox(subject), &vec![b'.'; body]),
    }
    let stamp_at = bytes.len() - body - 2;
    Template { bytes, packet_id_at: None, stamp_at }
}

/// Parses one frame; see [`super::parse`].
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    let searched = &bytes[..bytes.len().min(MAX_CONTROL_LINE)];
    let Some(end) = searched.iter().position(|&byte| byte == b'\n') else {
        if bytes.len() >= MAX_CONTROL_LINE {
            return Err(WireError::Malformed("a control line without an end"));
        }
        return Ok(None);
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(WireError::Malformed("a control line without CR"))?;
    let frame = match line.first() {
        Some(b'M') => return message(line, end + 1, bytes),
        Some(b'P') if line == b"PING" => Frame::Ping,
        Some(b'P') if line == b"PONG" => Frame::Ready,
        Some(b'-') => return Err(WireError::Refused(String::from_utf8_lossy(line).into_owned())),
        Some(b'+' | b'I') => Frame::Ignored,
        _ => return Err(WireError::Malformed("an unknown control line")),
    };
    Ok(Some((frame, end + 1)))
}

/// `MSG <subject> <sid> [reply] <bytes>`, whose body starts at `body_at`.
fn message<'a>(line: &'a [u8], body_at: usize, bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, WireError> {
    const BAD: WireError = WireError::Malformed("a MSG line without its fields");
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let sid = fields.next().ok_or(BAD)?;
    let next = fields.next().ok_or(BAD)?;
    let (reply, size) = match fields.next() {
        Some(size) => (Some(next), size),
        None => (None, next),
    };
    let size = decimal(size).ok_or(BAD)?;
    let Some(body) = bytes.get(body_at..body_at + size) else { return Ok(None) };
    let Some(end) = bytes.get(body_at + size..body_at + size + 2) else { return Ok(None) };
    if end != b"\r\n" {
        return Err(WireError::Malformed("a message body longer than it said"));
    }
    let length = body_at + size + 2;
    if decimal(sid) == Some(ACCEPTED_SID as usize) {
        if body.windows(7).any(|part| part == b"\"error\"") {
            return Err(WireError::Refused(String::from_utf8_lossy(body).into_owned()));
        }
        return Ok(Some((Frame::Accepted(None), length)));
    }
    let ack = reply.map_or(Ack::None, Ack::Subject);
    Ok(Some((Frame::Message { properties: &[], body, ack }, length)))
}

/// A decimal number of at most seven digits (nats-server's bodies are limited to 1 MB).
fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 7 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::super::stamp;
    use super::*;

    #[test]
    fn a_published_message_comes_back_as_one() {
        let template = Template::new(super::super::Protocol::Nats, "b.0", QoS::AtMostOnce, 100);
        let mut out = Vec::new();
        template.write(&mut out, 77, 0);
        assert!(out.starts_with(b"PUB b.0 100\r\n"));
        let mut delivered = b"MSG b.0 1 100\r\n".to_vec();
        delivered.extend_from_slice(&out[13..]);
        let (frame, length) = parse(&delivered).expect("well formed").expect("whole");
        assert_eq!(length, delivered.len());
        let Frame::Message { body, ack: Ack::None, .. } = frame else {
            panic!("a message was expected, got {frame:?}")
        };
        assert_eq!(stamp(body), Ok(77));
    }

    #[test]
    fn replies_are_acknowledgements_to_give_and_accepted_ones_are_counted() {
        let (frame, _) = parse(b"MSG b.0 1 $JS.ACK.1 8\r\n12345678\r\n").expect("well formed").expect("whole");
        assert_eq!(frame, Frame::Message { properties: &[], body: b"12345678", ack: Ack::Subject(b"$JS.ACK.1") });
        let (frame, _) = parse(b"MSG _INBOX.accepted 9 8\r\n{\"seq\":1\r\n").expect("well formed").expect("whole");
        assert_eq!(frame, Frame::Accepted(None));
        let refused = parse(b"MSG _INBOX.accepted 9 12\r\n{\"error\":{}}\r\n");
        assert!(refused.is_err(), "{refused:?}");
    }

    #[test]
    fn errors_and_nonsense_are_told() {
        assert!(matches!(parse(b"-ERR 'Authorization Violation'\r\n"), Err(WireError::Refused(_))));
        for bytes in [&b"MSG b.0 1\r\n"[..], b"MSG b.0 1 x\r\n", b"HELLO\r\n", b"PING\n", b"MSG b 1 1\r\nabc"] {
            assert!(matches!(parse(bytes), Err(WireError::Malformed(_))), "{bytes:?}");
        }
        assert!(matches!(parse(&[b'I'; MAX_CONTROL_LINE]), Err(WireError::Malformed(_))));
    }
}
