//! One connection between two brokers, and the wish that there is one.

use std::time::Duration;

use whimbrel_core::{Channel, PeerLink};
use whimbrel_event::Time;

use crate::trunk::{Shape, Side, Trunk};

/// Streams of a connection.
const STREAMS: usize = 3;

/// What each of them is for.
pub(super) const CHANNELS: [Channel; STREAMS] = [Channel::Control, Channel::Reliable, Channel::BestEffort];

/// How long it takes at first until a connection that is gone is made again.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);

/// And at most.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A connection that has lasted for so long was a good one.
pub(super) const STEADY: Duration = Duration::from_secs(3);

/// A connection that is there.
pub(super) struct Line {
    /// Which edge made it.
    pub(super) edge: usize,
    pub(super) opened: Time,
    pub(super) trunk: Trunk,
    /// Whose it is, and what it is called there; by side.
    pub(super) ends: [(usize, PeerLink); 2],
    pub(super) is_open: [bool; 2],
    /// What the brokers know to be unsent; by side and stream.
    pub(super) unsent: [[usize; STREAMS]; 2],
}

impl Line {
    pub(super) fn new(opened: Time, edge: usize, trunk: Trunk, ends: [(usize, PeerLink); 2]) -> Line {
        Line { edge, opened, trunk, ends, is_open: [true; 2], unsent: [[0; STREAMS]; 2] }
    }

    /// Sends something; how much is unsent now.
    pub(super) fn write(&mut self, now: Time, from: Side, channel: Channel, bytes: &[u8]) -> usize {
        let Some(stream) = CHANNELS.iter().position(|known| *known == channel) else {
            // One that is not taken is lost, as others are.
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

    /// How long it takes until the other side hears of what one side does.
    pub(super) fn delay(&self, from: Side) -> Duration {
        self.trunk.typical(from)
    }
}

/// A connection that is to be there whenever it can.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// Who dials, and whom.
    pub(super) ends: (usize, usize),
    pub(super) shape: Shape,
    /// Dials although there is a connection between the two.
    pub(super) is_stubborn: bool,
    /// The dialed one has turned out to be the dialing one.
    pub(super) is_loop: bool,
    /// What the near and the far end send is lost.
    pub(super) is_cut: [bool; 2],
    pub(super) line: Option<usize>,
    pub(super) dial_at: Time,
    pub(super) pause: Duration,
}

impl Edge {
    pub(super) fn new(ends: (usize, usize), shape: Shape) -> Edge {
        let (is_stubborn, is_loop, is_cut) = (false, false, [false; 2]);
        Edge { ends, shape, is_stubborn, is_loop, is_cut, line: None, dial_at: Time::ZERO, pause: PAUSE_MIN }
    }

    /// Whether there is a connection, and what both ends send arrives.
    pub(super) fn is_linked(&self) -> bool {
        self.line.is_some() && !self.is_cut.contains(&true)
    }
}
