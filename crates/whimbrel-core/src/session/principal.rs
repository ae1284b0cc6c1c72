//! The principal that a session belongs to.

use super::Session;
use crate::api::SessionPrincipal;
use crate::overlay::Attachment;

/// Whether two principals are known and differ: where one of them is not known, access is free.
pub(crate) fn is_foreign(principal: Option<&str>, stranger: Option<&str>) -> bool {
    principal.zip(stranger).is_some_and(|(principal, stranger)| principal != stranger)
}

impl Session {
    /// Whether it belongs to another principal than the one that asks for it, which may not take
    /// it.
    pub(crate) fn is_foreign_to(&self, asking: Option<&SessionPrincipal>) -> bool {
        is_foreign(self.memory.principal.as_deref(), asking.and_then(SessionPrincipal::stranger))
    }

    /// Whether it was begun while the session that its client had elsewhere could not be reached,
    /// and its client has neither subscribed nor published yet: it may not have heard of it.
    pub(crate) fn is_begun_anew(&self) -> bool {
        let is_unused = self.subscriptions.is_empty() && self.memory.pending.unreleased.is_empty();
        let place = self.memory.roam.as_deref().filter(|place| is_unused && place.last.is_empty());
        place.is_some_and(Attachment::awaits_resumption)
    }

    /// Whether it was given to another broker.
    pub(crate) fn is_given(&self) -> bool {
        self.memory.roam.as_deref().is_some_and(|place| place.given.is_some())
    }
}
