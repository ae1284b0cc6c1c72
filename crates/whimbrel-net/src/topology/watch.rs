//! Reactions to changes of the topology; where there are many brokers, changes are handled in
//! batches.
//!
//! Among many links some delay changes all the time. Paths take n log n to compute, and n brokers
//! make n times as many changes: a computation at each would cost more than n². So the first change
//! after a pause is handled at once, and the next ones together, after a pause that grows with the
//! number of brokers. An event whose next link has gone down meanwhile is repaired on its path, as
//! always.

use core::time::Duration;

use whimbrel_event::Time;

use super::{FEW_BROKERS, Topology};
use crate::route::{HeldChanges, MapOutages, Routes};

/// The pause between two computations of paths, per broker beyond [`FEW_BROKERS`]: they take some
/// hundredth of a processor at most.
pub const WAYS_PAUSE: Duration = Duration::from_micros(50);

/// The version of the topology that was handled last, and the earliest time of the next change.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The version of the topology, and of its structure.
    version: u64,
    structure: u64,
    ways_at: Time,
    /// The earliest time of the next change that only costs cause.
    costs_at: Time,
    /// See [`Pace::ways_every`](crate::Pace::ways_every).
    ways_every: Duration,
}

/// The result of a look at the topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watched {
    /// It is the one that was handled last.
    Same,
    /// It has changed, and is handled at this time.
    Later(Time),
    /// It has changed, and the paths are computed anew.
    Changed,
}

impl Watch {
    /// No topology was handled. `ways_every`: see [`Pace::ways_every`](crate::Pace::ways_every).
    pub(crate) fn new(ways_every: Duration) -> Watch {
        Watch { version: 0, structure: 0, ways_at: Time::ZERO, costs_at: Time::ZERO, ways_every }
    }

    /// Lets paths be computed again if the pause is over at this moment.
    pub(crate) fn hold(&self, now: Time, routes: &mut Routes) {
        routes.hold(match (now < self.ways_at, now < self.costs_at) {
            (true, _) => HeldChanges::All,
            (false, true) => HeldChanges::Costs,
            (false, false) => HeldChanges::Nothing,
        });
    }

    /// Computes the paths anew if the topology has changed, at most once per pause.
    pub(crate) fn check(
        &mut self,
        now: Time,
        topology: &Topology,
        routes: &mut Routes,
        outages: &mut MapOutages,
    ) -> Watched {
        if self.version == topology.version() {
            return Watched::Same;
        }
        if now < self.ways_at {
            return Watched::Later(self.ways_at);
        }
        if self.structure == topology.structure() && now < self.costs_at {
            return Watched::Later(self.costs_at);
        }
        (self.version, self.structure) = (topology.version(), topology.structure());
        routes.update(topology);
        routes.record_outages(now, outages);
        self.ways_at = now + WAYS_PAUSE * beyond_few(topology);
        self.costs_at = now + self.ways_every;
        self.hold(now, routes);
        Watched::Changed
    }
}

/// The number of brokers beyond [`FEW_BROKERS`].
pub(crate) fn beyond_few(topology: &Topology) -> u32 {
    topology.len().saturating_sub(FEW_BROKERS) as u32
}
