//! How a broker chooses paths, and how fast it measures, tells and follows the state of links.

use core::time::Duration;

use crate::link::estimate::{LINK_DEAD_AFTER, PROBE_EVERY};

/// Least time between two announcements of the own link state, whatever causes them.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(100);

/// A link is dead when nothing was received over it for this many intervals of probes.
const DEAD_PROBES: u32 = 4;

/// How the paths of events and messages are chosen.
///
/// Invariant of [`Routing::Direct`]: a broker that was ever at the other end of a link of this
/// process is reached over that link or not at all, and no path is changed while an event is on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Routing {
    /// To a broker that is or was a neighbour in this process, over the link to it only; to others,
    /// over the fewest links.
    Direct,
    /// Over the paths of least cost, computed anew when the topology has changed.
    Best,
    /// As [`Routing::Best`]; a link that is down is passed round while its change is not known
    /// everywhere.
    #[default]
    Reactive,
}

/// The times of measuring links, telling of them, and following what is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The interval of the probes of a link.
    pub probe_every: Duration,
    /// The least time between two own link states of which the later one is caused by measured
    /// values. One that is caused by a link that is new or gone has to wait for
    /// [`ANNOUNCE_EVERY`] only.
    pub announce_every: Duration,
    /// The least time from a computation of paths to the next one that only changed costs cause;
    /// zero: none.
    pub ways_every: Duration,
    /// By how much another path has to be better than the present one to be taken, per cent of the
    /// present one's cost: see [`Routes`](crate::route::Routes). Below 100.
    pub threshold_percent: u8,
}

impl Pace {
    /// The pace of a broker unless it is told otherwise.
    pub const DEFAULT: Pace = Pace {
        probe_every: PROBE_EVERY,
        announce_every: ANNOUNCE_EVERY,
        ways_every: Duration::ZERO,
        threshold_percent: 10,
    };

    /// The pace of Kim, Karenos, Ye, Reason, Lei, Shagin, "Efficacy of Techniques for
    /// Responsiveness in a Wide-Area Publish/Subscribe System" (2010), section 3.
    pub const PAPER: Pace = Pace {
        probe_every: Duration::from_secs(5),
        announce_every: Duration::from_secs(10),
        ways_every: Duration::from_secs(30),
        threshold_percent: 20,
    };

    /// The time without a byte after which a link is dead.
    pub const fn dead_after(self) -> Duration {
        self.probe_every.saturating_mul(DEAD_PROBES)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Pace::DEFAULT
    }
}

const _: () = assert!(Pace::DEFAULT.dead_after().as_nanos() == LINK_DEAD_AFTER.as_nanos(), "one bound for both");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_dead_after_four_probes_in_each_preset() {
        let seconds = [Pace::DEFAULT, Pace::PAPER].map(|pace| pace.dead_after().as_secs());
        assert_eq!(seconds, [2, 20]);
    }
}
