//! Copies of cached events, for sessions that have to keep them until they are acknowledged.

use std::collections::BTreeMap;

use whimbrel_event::{Event, Packed, WeakEvent};

/// Number of remembered copies at which unused ones are first removed.
const SWEEP_MIN: usize = 1024;

/// At most one copy of each cached event, however many subscribers it waits for. Remembers at most
/// twice the number of copies in use, or [`SWEEP_MIN`].
#[derive(Debug)]
pub(crate) struct EventCopies {
    /// By serial.
    known: BTreeMap<u64, WeakEvent>,
    sweep_at: usize,
}

impl Default for EventCopies {
    fn default() -> Self {
        EventCopies { known: BTreeMap::new(), sweep_at: SWEEP_MIN }
    }
}

impl EventCopies {
    /// The copy of the cached event with that serial.
    pub(crate) fn of(&mut self, serial: u64, event: Packed<'_>) -> Event {
        if let Some(kept) = self.known.get(&serial).and_then(WeakEvent::upgrade) {
            return kept;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, copy| copy.upgrade().is_some());
            self.sweep_at = SWEEP_MIN.max(self.known.len() * 2);
        }
        let kept = Event::copied(event);
        self.known.insert(serial, kept.downgrade());
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::plain;
    use whimbrel_event::{EventId, PubendId, Tick, Time};

    fn event(tick: u64) -> Event {
        Event::keep(EventId { pubend: PubendId(1), tick: Tick(tick) }, Time::ZERO, &plain("a", b"x", 5))
    }

    #[test]
    fn a_copy_is_shared_while_somebody_has_it_and_forgotten_after() {
        let mut copies = EventCopies::default();
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
