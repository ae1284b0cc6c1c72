//! The clock of a machine.

use std::time::Duration;

use whimbrel_event::Time;

use crate::rig::START;

/// The greatest difference between a broker's clock and the world's, either way.
pub const AHEAD_MAX: Duration = Duration::from_secs(5 * 365 * 24 * 3600);

/// A clock that differs from the world's.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineClock {
    /// How far it was ahead when the world began, nanoseconds.
    pub(super) ahead: i64,
    /// By how much it is faster, parts per million.
    pub(super) ppm: i64,
}

impl MachineClock {
    /// What it shows at a moment of the world.
    pub(super) fn at(self, now: Time) -> Time {
        let drift = now.ahead_of(START) / 1_000_000 * self.ppm;
        Time::from_nanos(now.as_nanos().saturating_add_signed(self.ahead + drift))
    }

    /// The first moment of the world at which it shows this.
    pub(super) fn world(self, shown: Time) -> Time {
        let steady = Time::from_nanos(shown.as_nanos().saturating_add_signed(-self.ahead));
        let mut found = steady.by_clock_ahead(-(steady.ahead_of(START) / (1_000_000 + self.ppm) * self.ppm));
        // The division leaves less than a microsecond.
        while self.at(found) < shown {
            found = found.by_clock_ahead(100);
        }
        found
    }
}
