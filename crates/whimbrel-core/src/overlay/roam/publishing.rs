//! A client that publishes at one broker after the other.

use whimbrel_event::{EventId, EventRef, Headers, Reliability};

use super::Attachment;
use crate::broker::Core;
use crate::overlay::PREDECESSOR_MAX;

impl Core {
    /// A session's client has published an event, which was accepted.
    pub(crate) fn note_published(&mut self, index: u32, reliability: Reliability, is_remembered: bool) {
        let session = self.sessions.get_mut(index);
        let (now, binding) = (self.now, session.binding);
        let Some(place) = session.memory.roam.as_deref_mut().filter(|_| reliability == Reliability::Reliable) else {
            return;
        };
        let pubend = self.streams.own.host().pubend(binding);
        let tick = self.streams.own.assigned()[usize::from(binding)];
        place.last = Some(EventId { pubend, tick });
        // The first one may be for nobody at a broker that has others to hold back: all say so that may overtake what was before.
        if now.since(place.came) >= PREDECESSOR_MAX {
            place.after = None;
        }
        if is_remembered {
            self.note_moved(index);
        }
    }
}

/// What is said of an event because its publisher was at another broker before.
pub(crate) fn said_of<'a>(place: Option<&Attachment>, event: &EventRef<'a>, is_numbered: bool) -> Headers<'a> {
    let Some(place) = place.filter(|_| event.reliability == Reliability::Reliable) else { return event.headers };
    let (after, maybe_repeat) = (place.after.or(event.headers.after), is_numbered && place.maybe_repeats);
    Headers { after, maybe_repeat, ..event.headers }
}
