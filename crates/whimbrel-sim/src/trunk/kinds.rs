//! What a connection is like, what comes out of it, and why something was not taken.

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

/// What a connection is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The path from the near side, and the one from the far side.
    pub profiles: [WanProfile; 2],
    /// Streams in each direction, 1 to [`super::STREAMS_MAX`].
    pub streams: usize,
    /// Bytes of a stream that are under way or unread, at least 1.
    pub window: usize,
    /// A side that hears nothing for so long ends.
    pub idle: Duration,
    /// How often each side lets itself be heard, more than nothing.
    pub keep_alive: Duration,
}

impl Shape {
    /// Three streams, windows of 1 MiB, ending after 10 s of silence, over the same path in both
    /// directions.
    pub const fn over(profile: WanProfile) -> Shape {
        Shape {
            profiles: [profile, profile],
            streams: 3,
            window: 1 << 20,
            idle: Duration::from_secs(10),
            keep_alive: Duration::from_secs(2),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Nothing was heard of the other side for the idle time.
    Idle,
    /// [`super::Trunk::reset`].
    Reset,
}

/// What comes out of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The next bytes of a stream, cut anywhere.
    Bytes {
        /// Who gets them.
        to: Side,
        /// Of which stream.
        stream: usize,
        /// Not empty.
        bytes: Vec<u8>,
    },
    /// A datagram.
    Datagram {
        /// Who gets it.
        to: Side,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// The connection has ended for one side. The last event there.
    Closed {
        /// Who is told.
        side: Side,
        /// Why.
        why: End,
    },
}

/// Why something was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The connection has ended on this side.
    Closed,
    /// [`super::UNSENT_MAX`] bytes wait already, or [`super::DATAGRAMS_MAX`] datagrams.
    Full,
    /// A datagram of more than [`super::PACKET_MAX`] bytes.
    TooLong,
}
