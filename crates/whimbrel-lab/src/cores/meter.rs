//! The processor time of brokers' cores, by this thread's CPU clock.

use std::time::Duration;

use nix::time::ClockId;
use whimbrel_core::{Broker, Channel};

use super::{Ask, Task};

/// The kind of a core's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A client published.
    Publish,
    /// An event arrived from another broker.
    Event,
    /// Silence arrived on the channels of events.
    Silence,
    /// All other traffic between brokers, and deadlines.
    Control,
    /// Clients that connect, leave and subscribe.
    Client,
}

impl Kind {
    pub(super) fn of(task: &Task) -> Kind {
        match task {
            Task::Ask(Ask::Publish(..)) => Kind::Publish,
            Task::Ask(_) => Kind::Client,
            Task::Bytes(_, Channel::Urgent | Channel::Reliable | Channel::BestEffort, _) => Kind::Silence,
            _ => Kind::Control,
        }
    }
}

/// The number of events that have arrived at a broker from others, for itself or to be passed on.
pub(super) fn events_come(core: &Broker) -> u64 {
    core.overlay_stats().map_or(0, |stats| stats.events_received + stats.net.events_relayed)
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Meter {
    /// By broker and kind: the time, and the number of turns.
    all: Vec<[(Duration, u64); 5]>,
    /// The time that one reading of the clock takes.
    clock: Duration,
}

impl Meter {
    /// A meter for a number of brokers.
    pub fn new(brokers: usize) -> Meter {
        let reads = 1_000;
        let began = Meter::clock();
        (0..reads).for_each(|_| {
            Meter::clock();
        });
        let clock = (Meter::clock() - began) / (reads + 1);
        Meter { all: vec![Default::default(); brokers], clock }
    }

    pub(super) fn clock() -> Duration {
        ClockId::CLOCK_THREAD_CPUTIME_ID.now().map_or(Duration::ZERO, Duration::from)
    }

    /// The time spent since a reading of the clock.
    pub(super) fn since(&self, began: Duration) -> Duration {
        Meter::clock().saturating_sub(began).saturating_sub(self.clock)
    }

    pub(super) fn add(&mut self, broker: usize, kind: Kind, spent: Duration) {
        let (sum, turns) = &mut self.all[broker][kind as usize];
        (*sum, *turns) = (*sum + spent, *turns + 1);
    }

    /// A broker's time for a kind of turns, and their number.
    pub fn of(&self, broker: usize, kind: Kind) -> (Duration, u64) {
        self.all[broker][kind as usize]
    }

    /// All brokers' time for a kind of turns.
    pub fn sum(&self, kind: Kind) -> Duration {
        self.all.iter().map(|kinds| kinds[kind as usize].0).sum()
    }
}
