//! The properties and events of a connection, and why it refuses data.

use std::time::Duration;

use crate::wan::WanProfile;

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The first.
    Near,
    /// The second.
    Far,
}

impl Side {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Side::Near => 0,
            Side::Far => 1,
        }
    }
}

/// The properties of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The path from the near side, and the one from the far side.
    pub profiles: [WanProfile; 2],
    /// Streams in each direction, 1 to [`super::STREAMS_MAX`].
    pub streams: usize,
    /// Bytes of a stream that are in flight or unread, at least 1.
    pub window: usize,
    /// A side that receives nothing for this long ends.
    pub idle: Duration,
    /// How long until a side sends a keep-alive packet, more than zero.
    pub keep_alive: Duration,
}

impl Shape {
    /// Four streams, windows of 1 MiB, ending after 10 s of silence, over the same path in both
    /// directions.
    pub const fn over(profile: WanProfile) -> Shape {
        Shape {
            profiles: [profile, profile],
            streams: 4,
            window: 1 << 20,
            idle: Duration::from_secs(10),
            keep_alive: Duration::from_secs(2),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing was received from the other side for the idle time.
    Idle,
    /// By [`super::Trunk::reset`].
    Reset,
}

/// An event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The next bytes of a stream, cut anywhere.
    Bytes {
        /// The receiving side.
        to: Side,
        /// The stream.
        stream: usize,
        /// The bytes, not empty.
        bytes: Vec<u8>,
    },
    /// A datagram.
    Datagram {
        /// The receiving side.
        to: Side,
        /// The datagram's bytes.
        bytes: Vec<u8>,
    },
    /// The connection has ended for one side. It is the last event there.
    Closed {
        /// The side.
        side: Side,
        /// The cause.
        why: End,
    },
}

/// Why data was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The connection has ended on this side.
    Closed,
    /// [`super::UNSENT_MAX`] bytes wait already, or [`super::DATAGRAMS_MAX`] datagrams.
    Full,
    /// A datagram of more than [`super::PACKET_MAX`] bytes.
    TooLong,
}
