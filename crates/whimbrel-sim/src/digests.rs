//! Digests of the bytes that brokers send, one per stream. They show whether two versions of the
//! broker behave the same.
//!
//! A stream is the bytes that one broker sends to one connection of a client, or on one channel of
//! one link to another broker. A digest covers the bytes of its stream and the times at which they
//! were sent, but not how they were cut into pieces, nor the order in which the streams were served
//! within a step: those may change without a visible difference.

use std::collections::BTreeMap;
use std::fmt;

use whimbrel_core::Channel;
use whimbrel_event::{FNV_OFFSET, Time, fnv1a};
use whimbrel_mqtt::ConnId;

use crate::trunk::Side;

/// A sequence of bytes whose order is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stream {
    /// From a broker to all clients that used this connection, one after another.
    Client {
        /// The broker's number.
        broker: usize,
        /// The connection's number there.
        conn: u32,
    },
    /// From a broker to another one.
    Link {
        /// The sending broker's number.
        broker: usize,
        /// The connection's number in its world.
        line: usize,
        /// Whether the sending broker is the one that was dialed.
        is_dialed: bool,
        /// The channel's number.
        channel: u8,
    },
}

impl Stream {
    /// The stream of a client's connection.
    pub fn client(broker: usize, conn: ConnId) -> Stream {
        Stream::Client { broker, conn: conn.0 }
    }

    /// The stream of a channel of a link.
    pub fn link(broker: usize, (line, side): (usize, Side), channel: Channel) -> Stream {
        Stream::Link { broker, line, is_dialed: side == Side::Far, channel: channel as u8 }
    }
}

/// A digest that is not finished, and the last moment that it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digest {
    value: u64,
    at: Time,
}

impl Default for Digest {
    fn default() -> Self {
        Digest { value: FNV_OFFSET, at: Time::ZERO }
    }
}

impl Digest {
    /// Adds a moment and the kind of what follows it.
    fn mark(&mut self, now: Time, kind: u8) {
        self.value = fnv1a(fnv1a(self.value, &now.as_nanos().to_le_bytes()), &[kind]);
        self.at = now;
    }
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Digests {
    streams: BTreeMap<Stream, Digest>,
}

/// The byte that follows a time in a digest: bytes come next, or the connection ends.
const BYTES: u8 = 0;
const END: u8 = 1;

impl Digests {
    /// Adds bytes that are sent now.
    pub fn record_bytes(&mut self, now: Time, stream: Stream, bytes: &[u8]) {
        let digest = self.streams.entry(stream).or_default();
        if digest.at != now {
            digest.mark(now, BYTES);
        }
        digest.value = fnv1a(digest.value, bytes);
    }

    /// Adds that the broker ends the connection now.
    pub fn record_end(&mut self, now: Time, stream: Stream) {
        self.streams.entry(stream).or_default().mark(now, END);
    }

    /// One number for all streams.
    pub fn total(&self) -> u64 {
        self.streams.values().fold(FNV_OFFSET, |total, digest| fnv1a(total, &digest.value.to_le_bytes()))
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// A line for each stream.
impl fmt::Display for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stream, digest) in &self.streams {
            match stream {
                Stream::Client { broker, conn } => write!(f, "b{broker} client {conn}")?,
                Stream::Link { broker, line, is_dialed, channel } => {
                    let end = if *is_dialed { "dialed" } else { "dialing" };
                    write!(f, "b{broker} link {line} {end} channel {channel}")?;
                }
            }
            writeln!(f, " {:016x}", digest.value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Stream = Stream::Client { broker: 0, conn: 1 };
    const OTHER: Stream = Stream::Client { broker: 0, conn: 2 };

    fn digests(sent: &[(u64, Stream, &[u8])]) -> Digests {
        let mut digests = Digests::default();
        for (at, stream, bytes) in sent {
            digests.record_bytes(Time::from_nanos(*at), *stream, bytes);
        }
        digests
    }

    #[test]
    fn pieces_and_the_order_between_streams_do_not_count() {
        let whole = digests(&[(1, ONE, b"ab"), (1, OTHER, b"c"), (2, ONE, b"d")]);
        let pieces = digests(&[(1, OTHER, b"c"), (1, ONE, b"a"), (1, ONE, b"b"), (2, ONE, b"d")]);
        assert_eq!(whole.total(), pieces.total());
        assert_eq!(whole, pieces);
    }

    #[test]
    fn bytes_moments_streams_and_ends_count() {
        let sent = digests(&[(1, ONE, b"ab"), (2, ONE, b"c")]);
        let others = [
            digests(&[(1, ONE, b"ab"), (2, ONE, b"d")]),
            digests(&[(1, ONE, b"ab"), (3, ONE, b"c")]),
            digests(&[(1, ONE, b"abc")]),
            digests(&[(1, ONE, b"ab"), (2, OTHER, b"c")]),
            digests(&[(1, ONE, b"a"), (2, ONE, b"bc")]),
        ];
        for other in &others {
            assert_ne!(sent.total(), other.total(), "{other}");
        }
        let mut ended = sent.clone();
        ended.record_end(Time::from_nanos(2), ONE);
        assert_ne!(sent.total(), ended.total());
    }
}
