//! What processors spend on what brokers' cores do, by this thread's CPU clock.

use std::time::Duration;

use nix::time::ClockId;
use whimbrel_core::{Broker, Channel};

use super::{Ask, Task};

/// What a turn of a core was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A client published.
    Publish,
    /// An event came from another broker.
    Event,
    /// Something else came on the ways that events take: silence.
    Silence,
    /// Everything else between brokers, and deadlines.
    Control,
    /// Clients that come, go and subscribe.
    Client,
}

impl Kind {
    pub(super) fn of(task: &Task) -> Kind {
        match task {
            Task::Ask(Ask::Publish(..)) => Kind::Publish,
            Task::Ask(_) => Kind::Client,
            Task::Bytes(_, Channel::Reliable | Channel::BestEffort, _) => Kind::Silence,
            _ => Kind::Control,
        }
    }
}

/// How many events have come to a broker from others, for itself or to be passed on.
pub(super) fn events_come(core: &Broker) -> u64 {
    core.overlay_stats().map_or(0, |stats| stats.events_received + stats.events_relayed)
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Meter {
    /// By broker and kind: how long, and how many turns.
    all: Vec<[(Duration, u64); 5]>,
    /// What reading the clock takes.
    clock: Duration,
}

impl Meter {
    /// For so many brokers; nothing is spent yet.
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

    /// What has been spent since that reading of the clock.
    pub(super) fn since(&self, began: Duration) -> Duration {
        Meter::clock().saturating_sub(began).saturating_sub(self.clock)
    }

    pub(super) fn add(&mut self, broker: usize, kind: Kind, spent: Duration) {
        let (sum, turns) = &mut self.all[broker][kind as usize];
        (*sum, *turns) = (*sum + spent, *turns + 1);
    }

    /// What a broker has spent on something, and in how many turns.
    pub fn of(&self, broker: usize, kind: Kind) -> (Duration, u64) {
        self.all[broker][kind as usize]
    }

    /// What all brokers have spent on something.
    pub fn sum(&self, kind: Kind) -> Duration {
        self.all.iter().map(|kinds| kinds[kind as usize].0).sum()
    }
}
