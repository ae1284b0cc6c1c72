//! Deadlines, found by time and by purpose.

use std::collections::BTreeSet;

use whimbrel_event::Time;

/// Deadlines, of which several may have the same purpose. Each operation takes the logarithm of
/// their number; the first one is at hand.
#[derive(Debug)]
pub struct Deadlines<D> {
    by_time: BTreeSet<(Time, D)>,
    by_due: BTreeSet<(D, Time)>,
    /// The first of `by_time`: asked for at each input.
    first: Option<(Time, D)>,
}

impl<D> Default for Deadlines<D> {
    fn default() -> Self {
        Deadlines { by_time: BTreeSet::new(), by_due: BTreeSet::new(), first: None }
    }
}

impl<D: Copy + Ord> Deadlines<D> {
    /// Adds a deadline.
    pub fn insert(&mut self, at: Time, due: D) {
        self.by_time.insert((at, due));
        if self.first.is_none_or(|first| (at, due) < first) {
            self.first = Some((at, due));
        }
        self.by_due.insert((due, at));
    }

    /// Adds a deadline unless an earlier one for the same purpose is there; a later one is
    /// replaced.
    pub fn set_once(&mut self, at: Time, due: D) {
        let known = self.first_of(due);
        if known.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = known {
            self.remove(known, due);
        }
        self.insert(at, due);
    }

    /// Removes a deadline, if it is there.
    pub fn remove(&mut self, at: Time, due: D) {
        self.by_time.remove(&(at, due));
        self.by_due.remove(&(due, at));
        if self.first == Some((at, due)) {
            self.first = self.by_time.first().copied();
        }
    }

    /// The first deadline.
    #[inline]
    pub fn first(&self) -> Option<(Time, D)> {
        self.first
    }

    /// The first deadline for a purpose.
    pub fn first_of(&self, due: D) -> Option<Time> {
        self.by_due.range((due, Time::ZERO)..).next().filter(|(known, _)| *known == due).map(|(_, at)| *at)
    }

    /// The number of deadlines.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// Removes all deadlines for a purpose.
    pub fn drop_all(&mut self, due: D) {
        while let Some(at) = self.first_of(due) {
            self.remove(at, due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    enum Due {
        Announce,
        Quiet(u32),
        Expire,
    }

    #[test]
    fn deadlines_are_found_by_when_and_by_what_for() {
        let at = Time::from_nanos;
        let mut deadlines = Deadlines::default();
        for (when, due) in [(5, Due::Quiet(2)), (7, Due::Announce), (3, Due::Quiet(2)), (9, Due::Quiet(1))] {
            deadlines.insert(at(when), due);
        }
        assert_eq!(deadlines.first(), Some((at(3), Due::Quiet(2))));
        assert_eq!(
            [Due::Announce, Due::Quiet(1), Due::Expire].map(|due| deadlines.first_of(due)),
            [Some(at(7)), Some(at(9)), None]
        );
        deadlines.remove(at(3), Due::Quiet(2));
        assert_eq!(deadlines.first_of(Due::Quiet(2)), Some(at(5)));
        deadlines.drop_all(Due::Quiet(2));
        assert_eq!((deadlines.first(), deadlines.first_of(Due::Quiet(2))), (Some((at(7), Due::Announce)), None));
        assert_eq!(deadlines.by_time.len(), deadlines.by_due.len());
    }
}
