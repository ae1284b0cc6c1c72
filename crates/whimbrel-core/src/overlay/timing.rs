//! Deadlines of the overlay, found by time and by purpose.

use std::collections::BTreeSet;

use whimbrel_event::Time;

use super::Due;

/// Deadlines, of which several may have the same purpose. Each step takes the logarithm of their
/// number: there is one for each broker that is told of silence.
#[derive(Debug, Default)]
pub(super) struct OverlayTimers {
    by_time: BTreeSet<(Time, Due)>,
    by_due: BTreeSet<(Due, Time)>,
}

impl OverlayTimers {
    pub(super) fn insert(&mut self, at: Time, due: Due) {
        self.by_time.insert((at, due));
        self.by_due.insert((due, at));
    }

    pub(super) fn remove(&mut self, at: Time, due: Due) {
        self.by_time.remove(&(at, due));
        self.by_due.remove(&(due, at));
    }

    /// The first deadline.
    pub(super) fn first(&self) -> Option<(Time, Due)> {
        self.by_time.first().copied()
    }

    /// The first deadline for a purpose.
    pub(super) fn first_of(&self, due: Due) -> Option<Time> {
        self.by_due.range((due, Time::ZERO)..).next().filter(|(known, _)| *known == due).map(|(_, at)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Removes all deadlines for a purpose.
    pub(super) fn drop_all(&mut self, due: Due) {
        while let Some(at) = self.first_of(due) {
            self.remove(at, due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_found_by_when_and_by_what_for() {
        let at = Time::from_nanos;
        let mut timers = OverlayTimers::default();
        for (when, due) in [(5, Due::Quiet(2)), (7, Due::Announce), (3, Due::Quiet(2)), (9, Due::Quiet(1))] {
            timers.insert(at(when), due);
        }
        assert_eq!(timers.first(), Some((at(3), Due::Quiet(2))));
        assert_eq!(
            [Due::Announce, Due::Quiet(1), Due::Expire].map(|due| timers.first_of(due)),
            [Some(at(7)), Some(at(9)), None]
        );
        timers.remove(at(3), Due::Quiet(2));
        assert_eq!(timers.first_of(Due::Quiet(2)), Some(at(5)));
        timers.drop_all(Due::Quiet(2));
        assert_eq!((timers.first(), timers.first_of(Due::Quiet(2))), (Some((at(7), Due::Announce)), None));
        assert_eq!(timers.by_time.len(), timers.by_due.len());
    }
}
