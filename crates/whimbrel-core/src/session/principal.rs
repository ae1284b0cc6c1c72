//! Whose a session is.

use super::Session;
use crate::api::SessionPrincipal;

/// Whether what is one's is not another's: where one of them is not known, it is everybody's.
pub(crate) fn is_foreign(principal: Option<&str>, stranger: Option<&str>) -> bool {
    principal.zip(stranger).is_some_and(|(principal, stranger)| principal != stranger)
}

impl Session {
    /// Whether it is somebody else's than of whoever asks for it, and stays that one's.
    pub(crate) fn is_foreign_to(&self, asking: Option<&SessionPrincipal>) -> bool {
        is_foreign(self.memory.principal.as_deref(), asking.and_then(SessionPrincipal::stranger))
    }

    /// Whether it was given to another broker.
    pub(crate) fn is_given(&self) -> bool {
        self.memory.roam.as_deref().is_some_and(|place| place.given.is_some())
    }
}
