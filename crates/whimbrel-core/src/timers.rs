//! Deadlines of sessions.

use std::collections::BTreeSet;

use whimbrel_event::Time;

use crate::api::Reason;

/// A set of deadlines: at most two per session and one per cursor, so bounded by the number of
/// these.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: BTreeSet<(Time, Reason, u32)>,
}

impl Timers {
    pub(crate) fn insert(&mut self, at: Time, reason: Reason, session: u32) {
        self.set.insert((at, reason, session));
    }

    pub(crate) fn remove(&mut self, at: Time, reason: Reason, session: u32) {
        self.set.remove(&(at, reason, session));
    }

    pub(crate) fn next(&self) -> Option<(Time, Reason)> {
        self.set.first().map(|(at, reason, _)| (*at, *reason))
    }

    /// Takes out the earliest deadline that is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Reason, u32)> {
        let (at, reason, session) = *self.set.first()?;
        if at > now {
            return None;
        }
        self.set.pop_first();
        Some((reason, session))
    }
}
