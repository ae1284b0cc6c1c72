//! The broker's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use whimbrel_event::Time;

/// Start time plus a monotonic clock: never runs backwards, and follows no later step of the system's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    base_nanos: u64,
}

impl Clock {
    /// Reads the system's clock once. A system clock before 1970 counts as 1970.
    pub fn start() -> Self {
        let base = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), base_nanos: u64::try_from(base.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.base_nanos).after(self.start.elapsed())
    }

    /// The moment `at` on the runtime's clock.
    pub fn instant(&self, at: Time) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.start + at.since(Time::from_nanos(self.base_nanos)))
    }
}
