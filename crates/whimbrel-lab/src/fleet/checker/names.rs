//! Which event is which message, and which messages lie in a gap.

use std::collections::VecDeque;

use whimbrel_client::{EventId, Gap};

use super::MAX_BEHIND;

/// Gaps of one subscriber that are remembered; beyond it the oldest is forgotten, and what is in it counts as lost without a word.
const GAPS: usize = 4_096;

/// Whether a subscriber was told that a message is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    No,
    /// Nobody was told the message's name, and a gap is where it must lie: it may still come.
    Perhaps,
    Yes,
}

/// Names of events by vehicle and number, as subscribers were told them.
#[derive(Default)]
pub(super) struct Names(Vec<VecDeque<(u64, EventId)>>);

impl Names {
    pub(super) fn new(vehicles: usize) -> Names {
        Names((0..vehicles).map(|_| VecDeque::new()).collect())
    }

    /// A subscriber was told the name of a vehicle's message.
    pub(super) fn learn(&mut self, vehicle: u32, seq: u64, id: EventId) {
        let names = &mut self.0[vehicle as usize];
        let Err(place) = names.binary_search_by_key(&seq, |(seq, _)| *seq) else { return };
        names.insert(place, (seq, id));
        // A subscriber is never further behind.
        if names.len() > 2 * MAX_BEHIND {
            names.pop_front();
        }
    }

    /// Whether a message lies in one of these gaps. If nobody was told its name yet, it lies somewhere between its vehicle's messages before
    /// and after, and a gap has to be there.
    pub(super) fn look(&self, vehicle: usize, seq: u64, gaps: &Gaps) -> Told {
        let names = &self.0[vehicle];
        match names.binary_search_by_key(&seq, |(seq, _)| *seq) {
            Ok(at) if gaps.contains(names[at].1) => Told::Yes,
            Ok(_) => Told::No,
            Err(at) => {
                let before = at.checked_sub(1).map(|before| names[before].1);
                let neighbours = before.zip(names.get(at));
                match neighbours.is_some_and(|(before, (_, after))| gaps.touches(before, *after)) {
                    true => Told::Perhaps,
                    false => Told::No,
                }
            }
        }
    }
}

/// What one subscriber was told to be missing.
#[derive(Default)]
pub(super) struct Gaps(VecDeque<Gap>);

impl Gaps {
    pub(super) fn add(&mut self, gap: Gap) {
        if self.0.len() == GAPS {
            self.0.pop_front();
        }
        self.0.push_back(gap);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a gap is somewhere between two events of a stream.
    fn touches(&self, before: EventId, after: EventId) -> bool {
        let between = |gap: &Gap| gap.from < after.tick && before.tick < gap.to;
        before.pubend == after.pubend && self.0.iter().any(|gap| gap.pubend == before.pubend && between(gap))
    }

    fn contains(&self, id: EventId) -> bool {
        self.0.iter().any(|gap| gap.pubend == id.pubend && gap.from < id.tick && id.tick <= gap.to)
    }
}
