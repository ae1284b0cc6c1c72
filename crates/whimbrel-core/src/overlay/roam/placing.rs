//! Where a session is, and for which attachment of its client, as it is written.

use whimbrel_event::Time;

use super::{Attachment, GivenSession, settling};
use crate::broker::Broker;
use crate::overlay::Due;
use crate::store::{AttachmentRecord, Key, MapValue};

impl Attachment {
    /// As it was written.
    pub(crate) fn restored(now: Time, placed: &AttachmentRecord) -> Attachment {
        let given = placed.given.map(|whom| Box::new(GivenSession::unasked(now, whom, now)));
        let is_given = given.is_some();
        let (settling, maybe_repeats) = ((!is_given).then_some(1), placed.maybe_repeats);
        let after = placed.after.clone();
        Attachment { given, settling, maybe_repeats, after, ..Attachment::new(now, placed.epoch, placed.connected_at) }
    }

    fn placed(&self) -> AttachmentRecord {
        let given = self.given.as_deref().map(|given| (given.to, given.epoch));
        let (epoch, connected_at, maybe_repeats) = (self.epoch, self.connected_at, self.maybe_repeats);
        AttachmentRecord { epoch, connected_at, given, maybe_repeats, after: self.after.clone() }
    }
}

impl Broker {
    /// A session has another place than before, or is for another attachment: that is written and
    /// told.
    pub(crate) fn record_place(&mut self, now: Time, index: u32) {
        let session = self.sessions.get(index);
        let Some(place) = session.memory.roam.as_deref() else { return };
        let (placed, is_given, client) = (place.placed(), place.given.is_some(), session.client_id.clone());
        let placed = match fault!(self, PredecessorUnwritten) {
            true => AttachmentRecord { after: whimbrel_event::PredecessorsBuf::new(), ..placed },
            false => placed,
        };
        if self.remembers(index) {
            let number = session.memory.number;
            self.store.write_queue.put(|key| Key::Placed(number).put(key), |value| placed.put_versioned(value));
            self.store.write_queue.seal();
        }
        let overlay = &mut self.overlay;
        if is_given {
            overlay.roam.given.insert(client.clone(), 0);
            overlay.set_once(now + settling::SETTLE_EVERY, Due::Settle);
        } else {
            overlay.roam.given.remove(&client);
        }
        self.record_changed(now, index, true);
        self.record_claim(now, &client);
    }

    /// What is written of a session's place is forgotten.
    pub(crate) fn forget_place(&mut self, index: u32) {
        let memory = &self.sessions.get(index).memory;
        if memory.roam.is_some() && self.remembers(index) {
            let number = self.sessions.get(index).memory.number;
            self.store.write_queue.forget(|key| Key::Placed(number).put(key));
            self.store.write_queue.seal();
        }
    }
}
