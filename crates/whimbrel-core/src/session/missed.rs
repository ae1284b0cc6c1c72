//! QoS 0 events that a client which reads too slowly has missed while its session reads retained
//! messages: a reading delivers these in their place.

use super::Sessions;

impl Sessions {
    /// Whether a QoS 0 event may have been dropped since the session began to read, as its client
    /// reads too slowly.
    pub(crate) fn has_lost(&self, index: u32, serial: u64) -> bool {
        self.get(index).passing.may_have_lost(serial)
    }

    /// The first QoS 0 event since the session began to read that its client has not got: it was
    /// dropped, or waits.
    pub(crate) fn first_missed(&self, index: u32) -> Option<u64> {
        let passing = &self.get(index).passing;
        let waiting = passing.first().map(|entry| entry.serial).filter(|serial| *serial != 0);
        passing.first_lost().into_iter().chain(waiting).min()
    }

    /// Forgets which events were dropped before: the session begins to read.
    pub(crate) fn forget_lost(&mut self, index: u32) {
        let session = self.get_mut(index);
        if session.passing.first_lost().is_some() {
            session.passing.forget_lost();
        }
    }
}
