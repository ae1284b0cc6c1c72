//! The input and output of the broker: a digest of everything, and the last part as text.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use mqtt_protocol_core::mqtt::Version;
use whimbrel_event::{FNV_OFFSET, Time, fnv1a};
use whimbrel_mqtt::ConnId;

use crate::check::{Outcome, Seen};
use crate::digests::{Digests, Stream};
use crate::packets::{next_packet, packet_length};
use crate::speech::{Heard, Said};

/// The number of entries that are kept for the story of a failure, by default.
pub const KEPT: usize = 120;

/// Characters of one packet's text in the story, at most.
const WORDS_MAX: usize = 260;

/// One entry of the story.
#[derive(Clone, Debug)]
enum Entry {
    Opened(ConnId),
    In(ConnId, Version, Vec<u8>),
    Out(ConnId, Version, Vec<u8>),
    Gone(ConnId),
    Closed(ConnId),
    Drain,
    Crash,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Trace {
    digest: u64,
    kept_max: usize,
    kept: VecDeque<(Time, Entry)>,
    /// For the story: the version of each connection, and the bytes of its next packet so far.
    heard: BTreeMap<ConnId, (Option<Version>, Vec<u8>)>,
    streams: Digests,
}

impl Trace {
    /// An empty trace that keeps its last `kept_max` entries, at least one.
    pub fn new(kept_max: usize) -> Self {
        Trace {
            digest: FNV_OFFSET,
            kept_max,
            kept: VecDeque::new(),
            heard: BTreeMap::new(),
            streams: Digests::default(),
        }
    }

    /// Records an input of the broker.
    pub fn note_seen(&mut self, now: Time, seen: Seen<'_>) {
        self.mix(&now.as_nanos().to_le_bytes());
        match seen {
            Seen::Opened(conn) => {
                self.heard.insert(conn, (None, Vec::new()));
                self.add(now, Entry::Opened(conn));
            }
            Seen::Bytes(conn, bytes) => self.bytes_in(now, conn, bytes),
            Seen::Gone(conn) => self.add(now, Entry::Gone(conn)),
            Seen::Nothing => {}
            Seen::Drain => self.add(now, Entry::Drain),
        }
    }

    /// Records that the broker's machine stops and starts again.
    pub fn note_crash(&mut self, now: Time) {
        self.add(now, Entry::Crash);
    }

    /// The protocol version of a connection, as far as its first bytes tell.
    pub fn version(&self, conn: ConnId) -> Version {
        self.heard.get(&conn).and_then(|(version, _)| *version).unwrap_or(Version::V5_0)
    }

    /// Records an output of the broker.
    pub fn note_outcome(&mut self, now: Time, outcome: &Outcome) {
        for (conn, bytes) in &outcome.sends {
            let version = self.version(*conn);
            self.mix_bytes(3, *conn, bytes);
            self.streams.record_bytes(now, Stream::client(0, *conn), bytes);
            self.add(now, Entry::Out(*conn, version, bytes.clone()));
        }
        for conn in &outcome.closes {
            self.streams.record_end(now, Stream::client(0, *conn));
            self.add(now, Entry::Closed(*conn));
        }
    }

    /// Collects whole packets, which are easier to read than the pieces that arrive.
    fn bytes_in(&mut self, now: Time, conn: ConnId, bytes: &[u8]) {
        self.mix_bytes(2, conn, bytes);
        let (version, mut stream) = self.heard.remove(&conn).unwrap_or_default();
        stream.extend_from_slice(bytes);
        let level = stream.windows(7).find(|w| w.starts_with(&[0, 4, b'M', b'Q', b'T', b'T'])).map(|w| w[6]);
        let version = version.or(level.map(|level| if level == 5 { Version::V5_0 } else { Version::V3_1_1 }));
        let mut rest = &stream[..];
        loop {
            let length = match packet_length(rest) {
                Ok(Some(length)) if length <= rest.len() => length,
                Ok(_) => break,
                Err(_) => rest.len(),
            };
            self.add(now, Entry::In(conn, version.unwrap_or(Version::V5_0), rest[..length].to_vec()));
            rest = &rest[length..];
        }
        let rest = rest.to_vec();
        self.heard.insert(conn, (version, rest));
    }

    /// The digest of the run: equal for two runs in which the same happened.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Digests of what the broker sent, one for each connection.
    pub fn streams(&self) -> &Digests {
        &self.streams
    }

    fn add(&mut self, now: Time, entry: Entry) {
        match &entry {
            Entry::Opened(conn) => self.mix_bytes(1, *conn, &[]),
            Entry::Gone(conn) => self.mix_bytes(4, *conn, &[]),
            Entry::Closed(conn) => self.mix_bytes(5, *conn, &[]),
            Entry::Drain => self.mix(&[6]),
            Entry::Crash => self.mix(&[7]),
            Entry::In(..) | Entry::Out(..) => {}
        }
        if self.kept.len() == self.kept_max {
            self.kept.pop_front();
        }
        self.kept.push_back((now, entry));
    }

    fn mix_bytes(&mut self, kind: u8, conn: ConnId, bytes: &[u8]) {
        self.mix(&[kind]);
        self.mix(&conn.0.to_le_bytes());
        self.mix(bytes);
    }

    /// FNV-1a.
    fn mix(&mut self, bytes: &[u8]) {
        self.digest = fnv1a(self.digest, bytes);
    }

    /// The last entries, one line each.
    pub fn story(&self, began: Time) -> String {
        let mut story = String::new();
        for (at, entry) in &self.kept {
            let at = at.since(began).as_secs_f64();
            let words = match entry {
                Entry::Opened(conn) => vec![format!("{:>4}    opened", conn.0)],
                Entry::In(conn, version, bytes) => words(conn, "-> ", *version, bytes),
                Entry::Out(conn, version, bytes) => words(conn, " <-", *version, bytes),
                Entry::Gone(conn) => vec![format!("{:>4}    gone", conn.0)],
                Entry::Closed(conn) => vec![format!("{:>4}    closed by the broker", conn.0)],
                Entry::Drain => vec!["        drain".to_owned()],
                Entry::Crash => vec!["        crash".to_owned()],
            };
            for line in words {
                writeln!(story, "{at:>12.6} {line}").expect("writing to a string");
            }
        }
        story
    }
}

/// The packets in a piece of a stream; only the length of parts of packets at its start or end.
fn words(conn: &ConnId, direction: &str, version: Version, bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    let mut line = |text: String| {
        let short: String = text.chars().take(WORDS_MAX).collect();
        lines.push(format!("{:>4} {direction} {short}", conn.0));
    };
    while at < bytes.len() {
        match next_packet(version, bytes, &mut at) {
            Ok(Some(packet)) if direction == "-> " => match Said::try_from(packet) {
                Ok(said) => line(format!("{said:?}")),
                Err(_) => line("a packet that only brokers send".to_owned()),
            },
            Ok(Some(packet)) => line(format!("{:?}", Heard::from(packet))),
            Ok(None) | Err(_) => {
                line(format!("{} bytes: {:02x?}", bytes.len() - at, &bytes[at..bytes.len().min(at + 24)]));
                break;
            }
        }
    }
    lines
}
