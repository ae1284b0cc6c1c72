//! The broker's clock in a world, driven by the time that passes and by a wall clock that steps.

use whimbrel_event::{Clock, Time};

/// See the module's documentation. Time that passes stands for the monotonic clock.
#[derive(Debug)]
pub(crate) struct BrokerClock {
    clock: Clock,
    began: Time,
    /// How far the wall clock is ahead of the time that has passed, nanoseconds.
    wall_ahead: i64,
}

impl BrokerClock {
    /// A clock that is right.
    pub(crate) fn new(now: Time) -> Self {
        BrokerClock { clock: Clock::start(now, core::time::Duration::ZERO), began: now, wall_ahead: 0 }
    }

    /// The wall clock steps forward or back, by a number of nanoseconds.
    pub(crate) fn step_wall(&mut self, now: Time, nanos: i64) {
        self.wall_ahead += nanos;
        self.look_at_wall(now);
    }

    /// A process starts, reads the wall clock, and remembers nothing.
    pub(crate) fn restart(&mut self, now: Time) {
        let wall = Time::from_nanos(now.as_nanos().saturating_add_signed(self.wall_ahead));
        (self.clock, self.began) = (Clock::start(wall, core::time::Duration::ZERO), now);
    }

    /// Compares the clock with the wall clock, as a driver does now and then.
    pub(crate) fn look_at_wall(&mut self, now: Time) {
        let wall = Time::from_nanos(now.as_nanos().saturating_add_signed(self.wall_ahead));
        self.clock.observe(wall, now.since(self.began));
    }

    /// The time that it shows.
    pub(crate) fn read(&self, now: Time) -> Time {
        self.clock.read(now.since(self.began))
    }

    /// When it will show a time.
    pub(crate) fn when(&self, at: Time) -> Time {
        self.began + self.clock.when(at)
    }
}
