//! What came to a broker, played again to a core that has a processor to itself.
//!
//! Brokers of a simulation take turns on one processor, and the memory of all others goes through
//! its caches between two turns of one. A broker of a deployment has its machine's caches for
//! itself. As a core is deterministic, the same inputs at the same moments make it do the same
//! again, alone.

use std::time::Duration;

use whimbrel_core::{Accepted, Broker, Channel, Delivery, Granted, Kick, Link, Output, PeerLink, Refusal, Sent};
use whimbrel_event::{Qos, Time};

use super::Task;
use super::birth::Birth;
use super::give::give;
use super::meter::Meter;

/// All that came to a process, in order.
#[derive(Debug, Default)]
pub struct Tape {
    birth: Option<Birth>,
    came: Vec<(Time, Task)>,
}

/// What a core did that was given a [`Tape`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// What its turns have taken of the processor from a moment on, each to the next deadline that
    /// comes of it.
    pub spent: Duration,
    /// Bytes that it gave to links in all: as many as the broker itself, or it did something else.
    pub said: u64,
}

impl Tape {
    /// A process begins; what came to the one before is forgotten.
    pub(super) fn begin(&mut self, birth: Birth) {
        *self = Tape { birth: Some(birth), came: Vec::new() };
    }

    pub(super) fn keep(&mut self, at: Time, task: &Task) {
        self.came.push((at, task.clone()));
    }

    /// Plays all that came to a core that begins as the process did, and measures from a moment on.
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

/// Counts what is said to links; clients take everything.
struct Count(u64);

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

    fn peer_bytes(&mut self, _: PeerLink, _: Channel, bytes: &[u8]) -> usize {
        self.0 += bytes.len() as u64;
        0
    }
}
