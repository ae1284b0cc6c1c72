//! Copies of cached events, made for those who have to keep them until they are acknowledged.

use hashbrown::HashTable;
use whimbrel_event::{Event, Packed, Seeded, WeakEvent};

/// Copies that are remembered before the first look for those that nobody has any more.
const SWEEP_MIN: usize = 1024;

/// At most one copy of each cached event, however many subscribers it waits for. Remembers as many as are waited for, and at most as many again.
#[derive(Debug)]
pub(crate) struct Copies {
    /// By serial.
    known: HashTable<(u64, WeakEvent)>,
    hasher: Seeded,
    sweep_at: usize,
}

impl Copies {
    pub(crate) fn new(seed: u64) -> Self {
        Copies { known: HashTable::new(), hasher: Seeded::new(seed), sweep_at: SWEEP_MIN }
    }

    /// The copy of the cached event with that serial.
    pub(crate) fn of(&mut self, serial: u64, event: Packed<'_>) -> Event {
        let Copies { known, hasher, sweep_at } = self;
        let hash = hasher.hash_one(serial);
        if let Some((_, copy)) = known.find_mut(hash, |(of, _)| *of == serial) {
            return copy.upgrade().unwrap_or_else(|| {
                let kept = Event::copied(event);
                *copy = kept.downgrade();
                kept
            });
        }
        if known.len() >= *sweep_at {
            known.retain(|(_, copy)| copy.upgrade().is_some());
            *sweep_at = SWEEP_MIN.max(known.len() * 2);
        }
        let kept = Event::copied(event);
        known.insert_unique(hash, (serial, kept.downgrade()), |(serial, _)| hasher.hash_one(*serial));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_event::{Attributes, EventId, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick, Time};

    fn event(tick: u64) -> Event {
        let event = EventRef {
            topic: "a",
            attributes: Attributes::EMPTY,
            payload: b"x",
            headers: Headers::EMPTY,
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance: 5,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        Event::keep(EventId { pubend: PubendId(1), tick: Tick(tick) }, Time::ZERO, &event)
    }

    #[test]
    fn a_copy_is_shared_while_somebody_has_it_and_forgotten_after() {
        let mut copies = Copies::new(1);
        let mut had = Vec::new();
        for serial in 0..10 * SWEEP_MIN as u64 {
            let cached = event(serial);
            let (one, two) = (copies.of(serial, cached.packed()), copies.of(serial, cached.packed()));
            assert!(core::ptr::eq(one.packed().as_bytes(), two.packed().as_bytes()));
            assert_eq!(one, cached);
            had.extend((serial % 100 == 0).then_some(one));
        }
        assert!(copies.known.len() <= SWEEP_MIN + had.len(), "{} copies of {}", copies.known.len(), had.len());
    }
}
