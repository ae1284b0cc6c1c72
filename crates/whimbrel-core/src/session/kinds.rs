//! The kinds of streams that a session has published to since the profiles of topics changed last.

use whimbrel_event::Reliability;

use crate::stream::StreamKind;

/// See the module's documentation. The first reliable event in a kind of streams has to say what
/// the session may have published before in the others: its topic may have been of another kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindsUsed {
    /// The number of changes of profiles before; wraps around.
    epoch: u16,
    /// A bit for each kind of reliable streams.
    used: u8,
}

impl KindsUsed {
    /// Of a session that has not published yet: nothing is before its events.
    pub(crate) fn all(epoch: u16) -> KindsUsed {
        KindsUsed { epoch, used: u8::MAX }
    }

    /// Whether an event of this kind need not say what is before it.
    #[inline]
    pub(crate) fn has(self, epoch: u16, kind: StreamKind) -> bool {
        let bit = bit(kind);
        bit == 0 || self.epoch == epoch && self.used & bit != 0
    }

    /// Records an event of this kind. Returns whether it has to say what may be before it.
    pub(crate) fn record(&mut self, epoch: u16, kind: StreamKind) -> bool {
        let is_first = !self.has(epoch, kind);
        let used = if self.epoch == epoch { self.used } else { 0 };
        *self = KindsUsed { epoch, used: used | bit(kind) };
        is_first
    }
}

/// The bit of a kind of reliable streams; 0 for best effort, of which no order is promised across
/// streams.
#[inline]
fn bit(kind: StreamKind) -> u8 {
    match kind {
        StreamKind::Ordinary(Reliability::Reliable) => 1,
        StreamKind::Deadline(Reliability::Reliable) => 2,
        StreamKind::DeadlineVolatile => 4,
        StreamKind::Ordinary(Reliability::BestEffort) | StreamKind::Deadline(Reliability::BestEffort) => 0,
        StreamKind::DeadlineDatagram => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_of_each_kind_after_a_change_says_what_is_before_it() {
        let [ordinary, deadline, volatile] = StreamKind::RELIABLE;
        let best_effort = StreamKind::Deadline(Reliability::BestEffort);
        let mut kinds = KindsUsed::all(7);
        assert_eq!([ordinary, deadline, best_effort].map(|kind| kinds.record(7, kind)), [false; 3]);
        assert_eq!([best_effort, deadline, deadline].map(|kind| kinds.record(8, kind)), [false, true, false]);
        assert!(kinds.has(8, deadline) && kinds.has(8, best_effort) && !kinds.has(8, volatile));
        assert_eq!([volatile, ordinary, volatile].map(|kind| kinds.record(8, kind)), [true, true, false]);
        assert!(!kinds.has(9, ordinary) && kinds.has(9, best_effort));
    }
}
