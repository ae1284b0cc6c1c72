//! What a client that takes too little has missed of events at QoS 0, while its session reads what
//! is retained: a reading brings these in their place.

use super::Sessions;

impl Sessions {
    /// Whether an event at QoS 0 may have been dropped since the session began to read, as its
    /// client takes too little.
    pub(crate) fn has_lost(&self, index: u32, serial: u64) -> bool {
        self.get(index).passing.may_have_lost(serial)
    }

    /// The first event at QoS 0 since the session began to read that its client has not got: it was
    /// dropped, or waits.
    pub(crate) fn first_missed(&self, index: u32) -> Option<u64> {
        let passing = &self.get(index).passing;
        let waiting = passing.first().map(|entry| entry.serial).filter(|serial| *serial != 0);
        passing.first_lost().into_iter().chain(waiting).min()
    }

    /// The session begins to read: what was dropped before is of no interest.
    pub(crate) fn forget_lost(&mut self, index: u32) {
        let session = self.get_mut(index);
        if session.passing.first_lost().is_some() {
            session.passing.forget_lost();
        }
    }
}
