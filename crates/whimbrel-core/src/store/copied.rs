//! A broker is restored from a copy of its log that was made some time ago.
//!
//! All that was written after the copy is gone, and clients know of it: events that they have got,
//! positions, tags. So that a gap is not taken for silence, the part of each stream between the
//! last event of the copy and the moment of the restart is *lost*, for durable subscriptions too.
//! That is written, because a position may come back much later. All ticks from now on are greater
//! than that moment. Clients are told once that their sessions are new, so that they forget their
//! tags: deliveries in flight here and there need not be the same. Subscriptions stay, and
//! positions as they were.
//!
//! Here are the lost parts. `store/restore.rs` makes them, `cursor/replay.rs` tells them as gaps.

use whimbrel_event::{Tick, Time};

use super::own_ticks::OWN;
use super::wire::{ByteReader, MapValue, put_varint};

/// Most lost parts of a stream that are kept; of more, the first two and the range between them
/// become one.
const LOST_MAX: usize = 16;

/// Lost parts of one stream: each after the first tick, up to the second. Ascending.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LostParts(Vec<(Tick, Tick)>);

impl LostParts {
    /// Each part's range: after the first tick, up to the second.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Tick, Tick)> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, from: Tick, to: Tick) {
        match self.0.last_mut() {
            // Nothing was logged in between.
            Some(last) if from <= last.1 => last.1 = to.max(last.1),
            _ => self.0.push((from, to)),
        }
        if self.0.len() > LOST_MAX {
            let first = self.0.remove(0);
            self.0[0].0 = first.0;
        }
    }
}

impl MapValue<'_> for LostParts {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (from, to) in &self.0 {
            put_varint(out, from.0);
            put_varint(out, to.0.saturating_sub(from.0));
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let part = |bytes: &mut ByteReader<'_>| {
            let from = bytes.varint()?;
            Some((Tick(from), Tick(from.checked_add(bytes.varint()?)?)))
        };
        (0..bytes.varint()?).map(|_| part(bytes)).collect::<Option<Vec<_>>>().map(LostParts)
    }
}

/// Lost parts of each own reliable stream, as the broker was restored from a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost(pub(crate) [LostParts; OWN]);

impl Lost {
    /// When the broker was last restored from a copy; a client's state from before need not fit.
    pub(crate) fn since(&self) -> Option<Time> {
        let ends = self.0.iter().filter_map(|parts| parts.0.last()).map(|(_, to)| *to);
        ends.max().map(|to| Time::from_nanos(to.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_parts_come_back_and_stay_few() {
        let mut parts = LostParts::default();
        for at in 1..=40 {
            parts.add(Tick(at * 100), Tick(at * 100 + 10));
        }
        assert_eq!(parts.0.len(), LOST_MAX);
        assert_eq!((parts.0[0].0, parts.0[LOST_MAX - 1].1), (Tick(100), Tick(4010)), "none is forgotten");
        let mut out = Vec::new();
        parts.put_versioned(&mut out);
        assert_eq!(LostParts::read_versioned(&out), Some(parts));
    }

    #[test]
    fn a_copy_that_is_taken_up_twice_loses_one_part() {
        let mut parts = LostParts::default();
        parts.add(Tick(5), Tick(10));
        parts.add(Tick(5), Tick(20));
        assert_eq!(parts.0, [(Tick(5), Tick(20))]);
    }
}
