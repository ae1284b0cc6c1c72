//! WebSocket of a client (RFC 6455), as far as a load needs it: the upgrade, binary messages out,
//! and the bytes of binary messages in, however they are fragmented and cut.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

/// The path of MQTT.
const PATH: &str = "/mqtt";

/// The subprotocol that both sides must name (MQTT-6.0.0-3).
const SUBPROTOCOL: &str = "mqtt";

/// The nonce of every upgrade: that of the RFC's example. It protects from caches that answer
/// instead of a server, and there are none.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The answer to [`NONCE`], from the RFC.
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Most bytes of the answer to an upgrade.
const ANSWER_MAX: usize = 16 << 10;

/// Most bytes of a frame's payload that is sent: less than the largest message that brokers take.
pub const FRAME_MAX: usize = 256 << 10;

/// Most bytes of a control frame's payload.
const CONTROL_MAX: u64 = 125;

/// Bytes of the longest header of a frame without a mask.
const HEADER_MAX: usize = 10;

/// The key with which payloads are masked. Zero changes no byte, which spares the generator a pass
/// over them; a server cannot know that before it has applied it, and does as much as with others.
const MASK: [u8; 4] = [0; 4];

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The request for an upgrade.
pub fn request(address: SocketAddr) -> String {
    format!(
        "GET {PATH} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    )
}

/// The length of the answer to [`request`] at the start of `bytes`, once it is complete.
///
/// # Errors
/// When it is a refusal, no HTTP, or longer than 16 KiB.
pub fn answered(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        ensure!(bytes.len() < ANSWER_MAX, "the answer to the upgrade has more than {ANSWER_MAX} bytes");
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end]).context("the answer to the upgrade is no text")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 101 "), "the upgrade was answered with {status:?}");
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    for (wanted, value) in [("sec-websocket-accept", ACCEPTED), ("sec-websocket-protocol", SUBPROTOCOL)] {
        let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, found)| found.trim());
        ensure!(found == Some(value), "the upgrade was answered with {wanted} {found:?} instead of {value:?}");
    }
    Ok(Some(end + 4))
}

/// Appends a frame of a client to `out`.
fn append(out: &mut Vec<u8>, first: u8, payload: &[u8]) {
    out.push(first);
    match payload.len() {
        length if length as u64 <= CONTROL_MAX => out.push(MASKED | length as u8),
        length if length <= usize::from(u16::MAX) => {
            out.push(MASKED | LENGTH_16);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | LENGTH_64);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    out.extend_from_slice(payload);
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Header,
    /// The payload of a frame of this kind, and the bytes of it that have not come.
    Payload(u8, u64),
}

/// One connection: frames made from packets, and bytes of packets taken out of frames.
#[derive(Debug)]
pub struct Unframer {
    awaited: Awaited,
    /// The header that is being received: at most [`HEADER_MAX`] bytes.
    header: Vec<u8>,
    /// Whether a message has begun whose last frame has not come.
    is_fragmented: bool,
    /// The control frame's payload that is being received: at most [`CONTROL_MAX`] bytes.
    control: Vec<u8>,
    /// The payload of the last ping, until it is answered; earlier ones need no answer.
    ping: Option<Vec<u8>>,
}

impl Default for Unframer {
    fn default() -> Unframer {
        let (header, control) = (Vec::with_capacity(HEADER_MAX), Vec::with_capacity(CONTROL_MAX as usize));
        Unframer { awaited: Awaited::Header, header, is_fragmented: false, control, ping: None }
    }
}

impl Unframer {
    /// Appends the answer to a ping, if one is due, and a binary message of `packets`, if there are
    /// any, to `out`.
    pub fn frame(&mut self, packets: &[u8], out: &mut Vec<u8>) {
        if let Some(payload) = self.ping.take() {
            append(out, FINAL | PONG, &payload);
        }
        let mut kind = BINARY;
        let mut chunks = packets.chunks(FRAME_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            let is_last = chunks.peek().is_none();
            append(out, if is_last { FINAL | kind } else { kind }, chunk);
            kind = CONTINUATION;
        }
    }

    /// Takes bytes of frames, cut anywhere, and appends payloads of binary messages to `into`.
    ///
    /// # Errors
    /// When the broker closes the connection, sends text, or breaks the protocol.
    pub fn take(&mut self, mut bytes: &[u8], into: &mut Vec<u8>) -> Result<()> {
        while let Some((first, rest)) = bytes.split_first() {
            match self.awaited {
                Awaited::Header => {
                    bytes = rest;
                    self.header.push(*first);
                    self.begin()?;
                }
                Awaited::Payload(kind, left) => {
                    let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let (payload, after) = bytes.split_at(length);
                    bytes = after;
                    let target = if kind >= CLOSE { &mut self.control } else { &mut *into };
                    target.extend_from_slice(payload);
                    self.advance(kind, left - length as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Awaits the payload, once the header is complete.
    fn begin(&mut self) -> Result<()> {
        let &[first, second, ref extended @ ..] = self.header.as_slice() else { return Ok(()) };
        ensure!(first & RESERVED == 0, "a WebSocket frame with reserved bits, {first:#04x}");
        ensure!(second & MASKED == 0, "a masked WebSocket frame from the broker");
        let wanted = match second {
            LENGTH_16 => 2,
            LENGTH_64 => 8,
            _ => 0,
        };
        if extended.len() < wanted {
            return Ok(());
        }
        let number = extended.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let length = if wanted == 0 { u64::from(second) } else { number };
        self.header.clear();
        let (kind, is_final) = (first & !(FINAL | RESERVED), first & FINAL != 0);
        match kind {
            CONTINUATION => ensure!(self.is_fragmented, "a WebSocket message without a beginning"),
            BINARY => ensure!(!self.is_fragmented, "a WebSocket message within another"),
            CLOSE | PING | PONG => {
                ensure!(is_final && length <= CONTROL_MAX, "a WebSocket control frame that is fragmented or too long");
            }
            TEXT => bail!("a WebSocket text message, and MQTT is binary"),
            kind => bail!("a WebSocket frame of unknown kind {kind}"),
        }
        if kind < CLOSE {
            self.is_fragmented = !is_final;
        }
        self.advance(kind, length)
    }

    /// Awaits `left` more bytes of a frame, or the next one.
    fn advance(&mut self, kind: u8, left: u64) -> Result<()> {
        if left > 0 {
            self.awaited = Awaited::Payload(kind, left);
            return Ok(());
        }
        self.awaited = Awaited::Header;
        let control = match kind {
            CLOSE | PING | PONG => std::mem::take(&mut self.control),
            _ => return Ok(()),
        };
        match kind {
            CLOSE => bail!("the broker closed the WebSocket{}", reason(&control)),
            PING => self.ping = Some(control),
            _ => {}
        }
        Ok(())
    }
}

/// The code and text of a close frame, to follow a message.
fn reason(payload: &[u8]) -> String {
    match payload {
        [high, low, text @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            format!(" with {code} {}", String::from_utf8_lossy(text))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
    use tokio_tungstenite::tungstenite::{Bytes, Message};

    use super::*;

    /// A frame of a server.
    fn sent(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..=125 => bytes.push(length as u8),
            length @ 126..=0xFFFF => {
                bytes.push(LENGTH_16);
                bytes.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                bytes.push(LENGTH_64);
                bytes.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8).collect()
    }

    /// What another implementation, as the server, makes of a client's bytes.
    fn read_by_server(bytes: Vec<u8>) -> Message {
        WebSocket::from_raw_socket(Cursor::new(bytes), Role::Server, None).read().expect("a message")
    }

    #[test]
    fn payloads_are_the_same_wherever_frames_are_cut() {
        let middle = pattern(130);
        let frames = [
            sent(BINARY, b"ab"),
            sent(FINAL | PING, b"once"),
            sent(CONTINUATION, b""),
            sent(CONTINUATION, &middle),
            sent(FINAL | PING, b"again"),
            sent(FINAL | CONTINUATION, b"c"),
            sent(FINAL | PONG, b""),
            sent(FINAL | BINARY, b"d"),
        ];
        let (bytes, wanted) = (frames.concat(), [b"ab", &middle[..], b"cd"].concat());
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let (mut unframer, mut found) = (Unframer::default(), Vec::new());
                for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    unframer.take(part, &mut found).expect("frames");
                }
                assert_eq!(found, wanted, "cut at {first} and {second}");
                assert_eq!(unframer.ping.as_deref(), Some(&b"again"[..]), "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn lengths_of_every_form_come_byte_by_byte() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 70_000] {
            let (mut unframer, mut found) = (Unframer::default(), Vec::new());
            for byte in sent(FINAL | BINARY, &pattern(length)) {
                unframer.take(&[byte], &mut found).expect("a frame");
            }
            assert_eq!((found, unframer.awaited), (pattern(length), Awaited::Header), "{length}");
        }
    }

    #[test]
    fn what_is_sent_is_masked_and_another_implementation_reads_it() {
        for length in [1, 125, 126, 65_535, 65_536, FRAME_MAX, FRAME_MAX + 1, 2 * FRAME_MAX + 7] {
            let mut out = Vec::new();
            Unframer::default().frame(&pattern(length), &mut out);
            assert_eq!(out[1] & MASKED, MASKED, "{length}");
            assert_eq!(read_by_server(out), Message::Binary(pattern(length).into()), "{length}");
        }
        let mut out = Vec::new();
        Unframer::default().frame(b"", &mut out);
        assert_eq!(out, b"", "no packets make no message");
    }

    #[test]
    fn the_last_ping_is_answered_once() {
        let (mut unframer, mut none) = (Unframer::default(), Vec::new());
        let pings = [sent(FINAL | PING, b"old"), sent(FINAL | PING, &pattern(125))].concat();
        unframer.take(&pings, &mut none).expect("pings");
        let mut out = Vec::new();
        unframer.frame(b"", &mut out);
        assert_eq!(read_by_server(out.clone()), Message::Pong(Bytes::from(pattern(125))));
        let answered = out.len();
        unframer.frame(b"", &mut out);
        assert_eq!((out.len(), none.len()), (answered, 0));
    }

    #[test]
    fn what_a_server_must_not_send_and_an_end_are_told() {
        let close = [&1001u16.to_be_bytes()[..], b"going away"].concat();
        let cases = [
            (sent(FINAL | CLOSE, &close), "closed the WebSocket with 1001 going away"),
            (sent(FINAL | CLOSE, b""), "closed the WebSocket"),
            (sent(FINAL | TEXT, b"x"), "text"),
            (sent(FINAL | 0x40 | BINARY, b"x"), "reserved"),
            (vec![FINAL | BINARY, MASKED | 1], "masked"),
            (sent(FINAL | CONTINUATION, b"x"), "without a beginning"),
            ([sent(BINARY, b"x"), sent(FINAL | BINARY, b"y")].concat(), "within another"),
            (sent(PING, b"x"), "control frame"),
            (sent(FINAL | PING, &pattern(126)), "control frame"),
            (sent(FINAL | 3, b"x"), "unknown kind 3"),
        ];
        for (bytes, told) in cases {
            let error = Unframer::default().take(&bytes, &mut Vec::new()).expect_err(told);
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn the_answer_to_an_upgrade_is_judged_once_it_is_complete() {
        let answer = |status: &str, accepted: &str, subprotocol: &str| {
            let headers = format!("upgrade: websocket\r\nSec-WebSocket-Accept: {accepted}\r\n{subprotocol}\r\n");
            format!("HTTP/1.1 {status}\r\n{headers}")
        };
        let named = "sec-websocket-protocol: mqtt\r\n";
        let good = answer("101 Switching Protocols", ACCEPTED, named);
        for length in 0..good.len() {
            assert_eq!(answered(&good.as_bytes()[..length]).expect("a beginning"), None, "{length} bytes");
        }
        assert_eq!(answered(format!("{good}more").as_bytes()).expect("accepted"), Some(good.len()));
        let bad = [
            (answer("404 Not Found", ACCEPTED, named), "404 Not Found"),
            (answer("101 Switching Protocols", "other", named), "sec-websocket-accept"),
            (answer("101 Switching Protocols", ACCEPTED, ""), "sec-websocket-protocol"),
            ("x".repeat(ANSWER_MAX), "more than 16384 bytes"),
        ];
        for (text, told) in bad {
            let error = answered(text.as_bytes()).expect_err(told);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
