//! One connection: its streams, cut into packets, and the answers that are due on it.

use std::collections::BTreeMap;
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Packet;
use whimbrel_event::Time;
use whimbrel_mqtt::ConnId;

use super::tracked::Start;
use super::{Checker, Rule, Seen};
use crate::packets::{Malformed, next_packet};
use crate::speech::{Ack, Heard, Said};

/// How long the broker may take for something that it could do at once.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// How much later than the protocol allows a silent connection may be ended.
const SILENCE_SLACK: Duration = Duration::from_secs(2);

/// An answer that the client waits for.
#[derive(Clone, Debug)]
pub(super) enum Due {
    Connack {
        session_present: bool,
    },
    /// PUBACK or PUBREC, and whether a subscription matched the message.
    Accepted {
        ack: Ack,
        id: u16,
        matched: bool,
    },
    /// PUBREL for a delivery after its PUBREC; `known`: there was such a delivery.
    Release {
        id: u16,
        known: bool,
    },
    /// PUBCOMP for a PUBREL; `known`: the broker had the message.
    Complete {
        id: u16,
        known: bool,
    },
    Suback {
        id: u16,
        codes: Vec<u8>,
        /// A tracked subscription that begins.
        start: Option<Box<Start>>,
    },
    Unsuback {
        id: u16,
        existed: Vec<bool>,
    },
    Pong,
}

/// Why a connection is at its end, though the broker may not have closed it yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The client sent DISCONNECT.
    Left,
    /// The client's end was closed.
    Gone,
    /// Another connection took the client id over.
    TakenOver,
    /// The client broke the protocol.
    Breached,
    /// The broker closed it of its own accord.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) version: Option<Version>,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    pub(super) client_id: Option<String>,
    pub(super) due: Vec<(Time, Due)>,
    pub(super) over: Option<(Ending, Time)>,
    /// Whether CONNACK was seen.
    pub(super) greeted: bool,
    /// The code of the broker's DISCONNECT.
    pub(super) dismissed: Option<u8>,
    pub(super) receive_maximum: usize,
    pub(super) packet_maximum: usize,
    pub(super) alias_maximum: u16,
    pub(super) aliases_in: BTreeMap<u16, String>,
    pub(super) aliases_out: BTreeMap<u16, String>,
    pub(super) keep_alive: Duration,
    opened: Time,
    last_packet: Time,
    last_byte: Time,
    /// Whether bytes wait for the client at the broker's end.
    pub(super) behind: bool,
    /// The greatest sequence number of a delivery that was repeated on this connection.
    pub(super) resent: u64,
}

impl Line {
    pub(super) fn new(now: Time) -> Self {
        Line {
            version: None,
            inbound: Vec::new(),
            outbound: Vec::new(),
            client_id: None,
            due: Vec::new(),
            over: None,
            greeted: false,
            dismissed: None,
            receive_maximum: u16::MAX.into(),
            packet_maximum: usize::MAX,
            alias_maximum: 0,
            aliases_in: BTreeMap::new(),
            aliases_out: BTreeMap::new(),
            keep_alive: Duration::ZERO,
            opened: now,
            last_packet: now,
            last_byte: now,
            behind: false,
            resent: 0,
        }
    }

    /// The client's next packet.
    fn next_said(&mut self) -> Option<Result<Said, String>> {
        let version = match self.version {
            Some(version) => version,
            None => match greeting_version(&self.inbound)? {
                Ok(version) => *self.version.insert(version),
                Err(why) => return Some(Err(why)),
            },
        };
        let packet = next(version, &mut self.inbound)?;
        Some(
            packet.map_err(|malformed| malformed.to_string()).and_then(|(packet, _)| {
                Said::try_from(packet).map_err(|_| "a packet that only brokers send".to_owned())
            }),
        )
    }
}

/// Cuts the first packet off `stream`, and returns it with its length.
fn next(version: Version, stream: &mut Vec<u8>) -> Option<Result<(Packet, usize), Malformed>> {
    let mut at = 0;
    let packet = next_packet(version, stream, &mut at).transpose()?;
    stream.drain(..at);
    Some(packet.map(|packet| (packet, at)))
}

/// The protocol version of the CONNECT at the start of a stream; `None`: not known yet.
fn greeting_version(stream: &[u8]) -> Option<Result<Version, String>> {
    if *stream.first()? != 0x10 {
        return Some(Err("the first packet is no CONNECT".to_owned()));
    }
    let header = 2 + stream[1..].iter().take(4).position(|byte| byte & 0x80 == 0)?;
    let name = stream.get(header..header + 6)?;
    if name != [0, 4, b'M', b'Q', b'T', b'T'] {
        return Some(Err("the protocol name is not MQTT".to_owned()));
    }
    match stream.get(header + 6)? {
        4 => Some(Ok(Version::V3_1_1)),
        5 => Some(Ok(Version::V5_0)),
        other => Some(Err(format!("protocol version {other}"))),
    }
}

impl Checker {
    pub(super) fn bytes_in(&mut self, conn: ConnId, bytes: &[u8]) {
        let now = self.now;
        let line = self.lines.get_mut(&conn).expect("bytes come over connections that were opened");
        line.inbound.extend_from_slice(bytes);
        line.last_byte = now;
        while let Some(line) = self.lines.get_mut(&conn).filter(|line| line.over.is_none()) {
            match line.next_said() {
                None => return,
                Some(Ok(said)) => {
                    line.last_packet = now;
                    self.packets += 1;
                    if let Err(why) = self.said(conn, said) {
                        self.breach(conn, why);
                    }
                }
                Some(Err(why)) => self.breach(conn, &why),
            }
        }
    }

    /// The client broke the protocol: the connection must end, and its will is due.
    fn breach(&mut self, conn: ConnId, _why: &str) {
        self.end_line(conn, Ending::Breached, true);
    }

    pub(super) fn gone(&mut self, conn: ConnId) {
        if self.lines[&conn].over.is_none() {
            self.end_line(conn, Ending::Gone, true);
        }
        self.lines.remove(&conn);
    }

    /// Marks a connection as at its end, and detaches the session from it.
    pub(super) fn end_line(&mut self, conn: ConnId, over: Ending, publish_will: bool) {
        let line = self.lines.get_mut(&conn).expect("a known connection");
        line.over = Some((over, self.now));
        let id = line.client_id.clone();
        if let Some(id) = id.filter(|id| self.book.sessions.get(id).is_some_and(|s| s.conn == Some(conn))) {
            self.detach(&id, publish_will);
        }
    }

    /// The broker ends a connection; its reason is checked after the packets that it sent before.
    pub(super) fn broker_closes(&mut self, conn: ConnId, seen: Seen<'_>) {
        if self.lines[&conn].over.is_none() {
            self.kicks += 1;
            let id = self.lines[&conn].client_id.as_ref();
            let shares = id.and_then(|id| self.book.sessions.get(id)).is_some_and(|session| !session.shares.is_empty());
            let speaker = matches!(seen, Seen::Bytes(speaker, _) if speaker == conn);
            self.unsure |= !self.draining && (self.kicks > 1 || shares || speaker && self.packets > 1);
            self.end_line(conn, Ending::Closed, true);
        }
    }

    pub(super) fn bytes_out(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&conn) else {
            self.broken(Rule::Close, format!("bytes for {conn:?}, which is closed"));
            return;
        };
        line.outbound.extend_from_slice(bytes);
        loop {
            let line = self.lines.get_mut(&conn).expect("seen above");
            let version = line.version.unwrap_or(Version::V5_0);
            match next(version, &mut line.outbound) {
                None => break,
                Some(Ok((packet, length))) => {
                    if length > line.packet_maximum {
                        let what = format!("{length} bytes for {conn:?}, which accepts {}", line.packet_maximum);
                        self.broken(Rule::PacketSize, what);
                    }
                    self.heard(conn, Heard::from(packet));
                }
                Some(Err(malformed)) => {
                    line.outbound.clear();
                    self.broken(Rule::WellFormed, format!("on {conn:?}: {malformed}"));
                    break;
                }
            }
        }
        if !self.lines[&conn].outbound.is_empty() {
            self.broken(Rule::WellFormed, format!("half a packet for {conn:?}"));
        }
    }

    /// Checks that the broker had a reason to close, and told the right one.
    pub(super) fn judge_close(&mut self, conn: ConnId) {
        let Some(line) = self.lines.remove(&conn) else { return };
        let (over, _) = line.over.expect("marked when the broker closed");
        let session = line.client_id.as_ref().and_then(|id| self.book.sessions.get(id));
        let limbo = self.limbo.get(&conn).map(|limbo| &limbo.session);
        let overflowed = session.into_iter().chain(limbo).any(|s| s.overflowed.is_some());
        let silent = !line.keep_alive.is_zero() && self.now >= line.last_packet + line.keep_alive * 3 / 2;
        let mute = line.client_id.is_none() && self.now >= line.opened + self.bounds.connect_timeout;
        // The reasons that justify the end, each with its code.
        let reasons = [
            (over == Ending::TakenOver, Some(0x8e)),
            (over == Ending::Left, None),
            (over == Ending::Gone, None),
            (self.draining, Some(0x8b)),
            (overflowed, Some(0x97)),
            (silent, Some(0x8d)),
            (mute, None),
        ];
        let mut codes = reasons.iter().filter(|(holds, _)| *holds).map(|(_, code)| *code);
        let right = match line.dismissed {
            _ if over == Ending::Breached => true,
            Some(code) => codes.any(|reason| reason == Some(code)),
            None => codes.next().is_some(),
        };
        if !right {
            let who = line.client_id.as_deref().unwrap_or("a stranger");
            let what = format!("{conn:?} of {who} closed with {:02x?}, {over:?}", line.dismissed);
            self.broken(Rule::Close, what);
        }
    }

    /// Checks for connections that should have ended by now, and answers that should have been
    /// given.
    pub(super) fn check_lines(&mut self) {
        let mut late = Vec::new();
        for (conn, line) in &self.lines {
            let who = line.client_id.as_deref().unwrap_or("a stranger");
            let silence = self.now.since(line.last_byte);
            if let Some((over, since)) = line.over {
                if over != Ending::Gone && self.now > since + GRACE {
                    late.push((Rule::Abandon, format!("{conn:?} of {who} is still open, {over:?} since {since:?}")));
                }
            } else if !line.keep_alive.is_zero() && silence > line.keep_alive * 3 / 2 + SILENCE_SLACK {
                late.push((Rule::Abandon, format!("{conn:?} of {who} is still open, silent for {silence:?}")));
            } else if line.client_id.is_none()
                && self.now.since(line.opened) > self.bounds.connect_timeout + SILENCE_SLACK
            {
                late.push((Rule::Abandon, format!("{conn:?} is still open without a CONNECT")));
            } else if let Some((since, due)) = line.due.first()
                && self.now > *since + GRACE
                && !line.behind
            {
                late.push((Rule::Answers, format!("{who} on {conn:?} waits for {due:?} since {since:?}")));
            }
        }
        for (rule, what) in late {
            self.broken(rule, what);
        }
    }
}
