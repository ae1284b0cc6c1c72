//! The input of a broker, replayed to a core that has a processor to itself.
//!
//! Brokers of a simulation take turns on one processor, and the memory of all others passes through
//! its caches between two turns of one. A deployed broker has its machine's caches to itself. As a
//! core is deterministic, the same inputs at the same times make it do the same again, alone.

use std::time::Duration;

use whimbrel_core::{
    Accepted, Broker, Channel, Delivery, Granted, Kick, Link, LinkOutput, Output, PeerLink, Refusal, Sent,
};
use whimbrel_event::{Qos, Time};

use super::Task;
use super::birth::Birth;
use super::give::give;
use super::meter::Meter;

/// All inputs of a process, in order.
#[derive(Debug, Default)]
pub struct Tape {
    birth: Option<Birth>,
    came: Vec<(Time, Task)>,
}

/// The result of a replay of a [`Tape`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The processor time of its turns from a moment on, each with the planning of its next
    /// deadline.
    pub spent: Duration,
    /// The bytes that it gave to links in all: the same as the broker's own, or it did something
    /// else.
    pub said: u64,
}

impl Tape {
    /// A process begins; the input of its predecessor is forgotten.
    pub(super) fn begin(&mut self, birth: Birth) {
        *self = Tape { birth: Some(birth), came: Vec::new() };
    }

    pub(super) fn keep(&mut self, at: Time, task: &Task) {
        self.came.push((at, task.clone()));
    }

    /// Replays all input to a core that starts as the process did, and measures from a moment on.
    ///
    /// # Panics
    /// If no process has begun.
    pub(super) fn play(self, born: impl Fn(Birth) -> Broker, from: Time) -> Replayed {
        let mut core = born(self.birth.expect("a process has begun"));
        let mut count = Count(0);
        let mut turn = |(at, task): (Time, Task)| {
            give(&mut core, at, task, &mut count);
            core.flush(at);
            std::hint::black_box(core.next_deadline());
        };
        let before = self.came.partition_point(|(at, _)| *at <= from);
        let mut came = self.came.into_iter();
        came.by_ref().take(before).for_each(&mut turn);
        let began = Meter::clock();
        came.for_each(turn);
        Replayed { spent: Meter::clock().saturating_sub(began), said: count.0 }
    }
}

/// Counts the bytes for links; clients take everything.
struct Count(u64);

impl LinkOutput for Count {
    fn peer_bytes(&mut self, _: PeerLink, _: Channel, bytes: &[u8]) -> usize {
        self.0 += bytes.len() as u64;
        0
    }
}

impl Output for Count {
    fn attached(&mut self, _: Link, _: bool) {}
    fn refused(&mut self, _: Link, _: Refusal) {}
    fn kicked(&mut self, _: Link, _: Kick) {}
    fn subscribed(&mut self, _: Link, _: u16, _: &[Result<Granted, Refusal>], _: &[Box<str>]) {}
    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}
    fn accepted(&mut self, _: Link, _: u16, _: Qos, _: Accepted) {}
    fn completed(&mut self, _: Link, _: u16, _: bool) {}
    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, _: Link, _: &Delivery<'_>) -> Sent {
        Sent::Open
    }
}
