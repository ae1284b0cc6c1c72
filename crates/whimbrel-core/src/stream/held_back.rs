//! Best-effort events of another broker's stream that wait behind a hole, as the copy of an event
//! that is missing there may still come by another path.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Tick, Time};

/// Most events of one stream that wait.
pub(super) const HELD_EVENTS_MAX: usize = 256;

/// Bytes of the events of one stream that wait, at most.
pub(super) const HELD_BYTES_MAX: usize = 1 << 20;

/// What an event that has waited keeps of its slack: it has yet to be delivered. In addition to
/// this, a part of its deadline, one in [`RESERVED_ONE_IN`].
const RESERVED: Duration = Duration::from_millis(1);

/// See [`RESERVED`].
const RESERVED_ONE_IN: u32 = 16;

/// What has become of an event that was to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HoldOutcome {
    /// It has passed: there is no hole before it.
    Passed,
    /// It waits.
    Waits,
    /// There was no room for it.
    Full,
}

/// The events of one stream that wait, by their ticks, and until when each may.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    until: BTreeMap<Tick, Time>,
}

impl HeldBack {
    /// How long an event may wait for copies that should have come after `copies`; its deadline and
    /// what is left of that; not at all without one.
    pub(super) fn span(copies: Duration, deadline: Option<Duration>, slack: Option<Duration>) -> Duration {
        let reserved = RESERVED + deadline.unwrap_or(Duration::ZERO) / RESERVED_ONE_IN;
        slack.map_or(Duration::ZERO, |slack| copies.min(slack.saturating_sub(reserved)))
    }

    /// Holds an event back. Returns false if there is no room.
    #[must_use]
    pub(super) fn hold(&mut self, tick: Tick, until: Time) -> bool {
        let has_room = self.until.len() < HELD_EVENTS_MAX;
        if has_room {
            self.until.insert(tick, until);
        }
        has_room
    }

    /// The last of the events that may wait no longer; it and those before it are no longer held.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Tick> {
        let due = self.until.iter().rev().find(|(_, until)| **until <= now).map(|(tick, _)| *tick)?;
        self.record_passed(due);
        Some(due)
    }

    /// Records that the stream was passed up to a tick.
    pub(super) fn record_passed(&mut self, upto: Tick) {
        if self.until.first_key_value().is_some_and(|(first, _)| *first <= upto) {
            self.until = self.until.split_off(&Tick(upto.0 + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_event_waits_for_copies_as_long_as_it_is_still_in_time_afterwards() {
        let deadline = Some(MILLI * 80);
        assert_eq!(HeldBack::span(MILLI * 10, deadline, Some(MILLI * 40)), MILLI * 10);
        assert_eq!(HeldBack::span(MILLI * 60, deadline, Some(MILLI * 40)), MILLI * 34);
        assert_eq!(HeldBack::span(MILLI * 60, deadline, Some(MILLI)), Duration::ZERO);
        assert_eq!(HeldBack::span(MILLI * 60, None, None), Duration::ZERO, "it is not in a hurry");
    }

    #[test]
    fn the_event_that_may_wait_least_lets_those_before_it_go() {
        let mut held = HeldBack::default();
        for (tick, until) in [(10, 50), (20, 30), (30, 40)] {
            assert!(held.hold(Tick(tick), at(until)));
        }
        assert_eq!(held.take_due(at(29)), None);
        assert_eq!((held.take_due(at(30)), held.take_due(at(39))), (Some(Tick(20)), None));
        held.record_passed(Tick(30));
        assert_eq!(held.take_due(at(60)), None);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut held = HeldBack::default();
        assert!((0..HELD_EVENTS_MAX as u64).all(|tick| held.hold(Tick(tick), at(tick))));
        assert!(!held.hold(Tick(1_000), at(1_000)));
    }
}
