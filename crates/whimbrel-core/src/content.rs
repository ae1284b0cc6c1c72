//! Events as selectors see them.

use whimbrel_event::AcceptedEvent;
use whimbrel_selector::{Datum, Subject};

/// Attributes with this prefix are the system's own: they travel with the attributes, but selectors
/// do not see them.
const RESERVED: &str = "w-";

/// An accepted event as selectors see it.
pub(crate) struct Content<'a>(pub(crate) &'a AcceptedEvent<'a>);

impl Subject for Content<'_> {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        let visible = self.0.event.attributes.iter().filter(|(name, _)| !name.starts_with(RESERVED));
        visible.for_each(|(name, value)| visit(name, Datum::Unread(value)));
    }

    fn payload(&self) -> &[u8] {
        self.0.event.payload
    }

    fn importance(&self) -> Option<u8> {
        Some(self.0.event.importance)
    }

    fn accepted_ms(&self) -> Option<i64> {
        i64::try_from(self.0.accepted.as_nanos() / 1_000_000).ok()
    }

    fn message_id(&self) -> Option<String> {
        Some(self.0.id.to_string())
    }

    fn correlation_id(&self) -> Option<&str> {
        core::str::from_utf8(self.0.event.headers.correlation?).ok()
    }

    fn content_type(&self) -> Option<&str> {
        self.0.event.headers.content_type
    }
}

/// A reliable event with nothing but the required fields.
#[cfg(test)]
pub(crate) fn plain<'a>(topic: &'a str, payload: &'a [u8], importance: u8) -> whimbrel_event::EventRef<'a> {
    whimbrel_event::EventRef {
        topic,
        attributes: whimbrel_event::Attributes::EMPTY,
        payload,
        headers: whimbrel_event::Headers::EMPTY,
        qos: whimbrel_event::Qos::AtLeastOnce,
        reliability: whimbrel_event::Reliability::Reliable,
        importance,
        expires: None,
        deadline_ms: None,
        publisher: whimbrel_event::Publisher::UNKNOWN,
    }
}
