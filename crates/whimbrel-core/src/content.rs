//! Events as selectors see them.

use std::sync::Arc;

use whimbrel_event::{Event, EventId, EventRef, Time};
use whimbrel_selector::{Datum, Subject};

/// Names that begin so are the system's own: they travel with the attributes but are none.
const RESERVED: &str = "w-";

/// An accepted event as selectors see it.
pub(crate) struct Content<'a> {
    pub(crate) event: EventRef<'a>,
    pub(crate) id: EventId,
    pub(crate) accepted: Time,
}

impl<'a> Content<'a> {
    /// An event that was kept.
    pub(crate) fn of(event: &'a Arc<Event>) -> Self {
        Content { event: event.view(), id: event.id(), accepted: event.accepted() }
    }
}

impl Subject for Content<'_> {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        let visible = self.event.attributes.iter().filter(|(name, _)| !name.starts_with(RESERVED));
        visible.for_each(|(name, value)| visit(name, Datum::Unread(value)));
    }

    fn payload(&self) -> &[u8] {
        self.event.payload
    }

    fn importance(&self) -> Option<u8> {
        Some(self.event.importance)
    }

    fn accepted_ms(&self) -> Option<i64> {
        i64::try_from(self.accepted.as_nanos() / 1_000_000).ok()
    }

    fn message_id(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}
