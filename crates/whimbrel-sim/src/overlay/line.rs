//! A connection between two brokers, and the edge that makes it.

use std::time::Duration;

use whimbrel_core::{Channel, PeerLink};
use whimbrel_event::Time;

use crate::trunk::{Shape, Side, Trunk};
use crate::wan::WanProfile;

/// The number of streams of a connection.
const STREAMS: usize = Channel::STREAMS;

/// The channel of each stream.
pub(super) const CHANNELS: [Channel; STREAMS] =
    [Channel::Control, Channel::Urgent, Channel::Reliable, Channel::BestEffort];

/// The first pause before a lost connection is made again.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest such pause.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// After a connection that has lasted this long the pause begins at its least.
pub(super) const STEADY: Duration = Duration::from_secs(3);

/// A connection that is open, at least at one end.
pub(super) struct Line {
    /// The edge that made it.
    pub(super) edge: usize,
    pub(super) opened: Time,
    pub(super) trunk: Trunk,
    /// By side: the broker, and its name for the link.
    pub(super) ends: [(usize, PeerLink); 2],
    pub(super) is_open: [bool; 2],
    /// By side and stream: the unsent bytes that the broker was last told of.
    pub(super) unsent: [[usize; STREAMS]; 2],
}

impl Line {
    pub(super) fn new(opened: Time, edge: usize, trunk: Trunk, ends: [(usize, PeerLink); 2]) -> Line {
        Line { edge, opened, trunk, ends, is_open: [true; 2], unsent: [[0; STREAMS]; 2] }
    }

    /// Sends bytes; returns how many are unsent now.
    pub(super) fn write(&mut self, now: Time, from: Side, channel: Channel, bytes: &[u8]) -> usize {
        let Some(stream) = CHANNELS.iter().position(|known| *known == channel) else {
            // A datagram that is not taken is lost, like any other.
            let _ = self.trunk.send(now, from, bytes.to_vec());
            return 0;
        };
        if self.trunk.write(now, from, stream, bytes.to_vec()).is_err() {
            return 0;
        }
        let unsent = self.trunk.unsent(from, stream);
        self.unsent[from as usize][stream] = unsent;
        unsent
    }

    /// How long it takes until one side's action is noticed at the other.
    pub(super) fn delay(&self, from: Side) -> Duration {
        self.trunk.typical(from)
    }
}

/// A connection that is to be kept open between two brokers.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The broker that dials, and the one that it dials.
    pub(super) ends: (usize, usize),
    pub(super) shape: Shape,
    /// The paths of both directions while nothing disturbs them.
    pub(super) at_first: [WanProfile; 2],
    /// Dials although the two have a connection already.
    pub(super) is_stubborn: bool,
    /// The dialed broker has turned out to be the dialing one.
    pub(super) is_loop: bool,
    /// Whether everything that the near and the far end send is lost.
    pub(super) is_cut: [bool; 2],
    pub(super) line: Option<usize>,
    pub(super) dial_at: Time,
    pub(super) pause: Duration,
}

impl Edge {
    pub(super) fn new(ends: (usize, usize), shape: Shape) -> Edge {
        let (is_stubborn, is_loop, is_cut) = (false, false, [false; 2]);
        let at_first = shape.profiles;
        Edge { ends, shape, at_first, is_stubborn, is_loop, is_cut, line: None, dial_at: Time::ZERO, pause: PAUSE_MIN }
    }

    /// Whether there is a connection on which both ends' data arrives.
    pub(super) fn is_linked(&self) -> bool {
        self.line.is_some() && !self.is_cut.contains(&true)
    }
}
