//! Answers of a client to its deliveries, and the end of these.

use whimbrel_event::{EventId, Qos};

use super::{Inflight, Settled, TAGS};
use crate::api::Settlement;
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::session::slot::{Slot, Stage};
use crate::session::wake::Waker;

impl Inflight {
    /// Applies an answer of the client.
    pub(crate) fn settle(&mut self, tag: u16, by: Settlement, waker: &mut Waker<'_>) -> Settled {
        let Some(index) = self.index(tag) else { return Settled::Unknown };
        let slot = &mut self.slots[index];
        if slot.stage == Stage::Loading && by == Settlement::Received {
            // It was sent on an earlier connection.
            slot.stage = Stage::ExpectCompleted;
            self.loading -= 1;
            return Settled::Received;
        }
        if matches!(slot.stage, Stage::Preparing | Stage::Loading) {
            return Settled::Unknown;
        }
        match (by, slot.stage, slot.qos) {
            (_, Stage::Settled, _) => return Settled::Unknown,
            (Settlement::Acknowledged, Stage::Expect, Qos::AtLeastOnce)
            | (Settlement::Completed, Stage::ExpectCompleted, _)
            | (Settlement::Refused, Stage::Expect, Qos::AtLeastOnce)
            | (Settlement::NotReceived, Stage::Expect | Stage::ExpectCompleted | Stage::Receiving, Qos::ExactlyOnce) => {
            }
            (Settlement::Received, Stage::Expect, Qos::ExactlyOnce) => {
                slot.stage = Stage::ExpectCompleted;
                slot.event = None;
                return Settled::Received;
            }
            // The first phase repeated: the client did not get the answer.
            (Settlement::Received, Stage::ExpectCompleted | Stage::Receiving, _) => return Settled::Received,
            // A delivery that was not sent on this connection cannot have been answered.
            _ => return if slot.sent { Settled::OtherKind } else { Settled::Unknown },
        }
        self.finish(index, waker);
        Settled::Done
    }

    /// Ends the oldest delivery if it is `tag` and its acknowledgement concerns nothing but this
    /// window and a plain cursor: it was sent once, at least once, for no shared subscription, and
    /// none is to be sent again. `is_plain` tells whether the cursor of a delivery is. Returns the
    /// cursor, or [`NO_CURSOR`]; `None` otherwise, and then nothing has happened.
    #[inline]
    pub(crate) fn acknowledge_oldest(&mut self, tag: u16, is_plain: impl FnOnce(u32, EventId) -> bool) -> Option<u32> {
        let oldest = self.slots.front()?;
        let Slot { id, cursor, sent, stage, qos, .. } = *oldest;
        let is_expected = sent && stage == Stage::Expect && qos == Qos::AtLeastOnce;
        let is_alone = oldest.group == NO_GROUP && !oldest.repeated;
        let is_next = self.tag(0) == tag && self.is_resent();
        if !(is_expected && is_alone && is_next) || cursor != NO_CURSOR && !is_plain(cursor, id) {
            return None;
        }
        self.slots.pop_front();
        self.occupied -= 1;
        self.first = tag % TAGS;
        if self.slots.front().is_some_and(|slot| slot.stage == Stage::Settled) {
            self.drop_settled();
        }
        Some(cursor)
    }

    /// Ends the delivery `tag`, which could not be sent at all.
    pub(crate) fn abandon(&mut self, tag: u16, waker: &mut Waker<'_>) {
        if let Some(index) = self.index(tag) {
            self.finish(index, waker);
        }
    }

    fn finish(&mut self, index: usize, waker: &mut Waker<'_>) {
        let slot = self.free(index, waker);
        // A notice holds for repeated reads as long as an earlier delivery is open.
        if !slot.is_notice() {
            slot.event = None;
        }
        self.drop_settled();
    }

    /// Ends the delivery at `index`, frees its place in the window and wakes the session. Returns
    /// the slot with its event. No place becomes free in another way.
    #[inline]
    pub(super) fn free(&mut self, index: usize, waker: &mut Waker<'_>) -> &mut Slot {
        let slot = &mut self.slots[index];
        self.occupied -= u16::from(core::mem::take(&mut slot.sent));
        slot.stage = Stage::Settled;
        waker.wake();
        slot
    }

    /// Removes settled slots that have none unsettled before them.
    pub(super) fn drop_settled(&mut self) {
        let unsent_from = self.slots.len() - self.unsent as usize;
        let mut popped: usize = 0;
        while self.slots.front().is_some_and(|s| s.stage == Stage::Settled) {
            self.slots.pop_front();
            popped += 1;
        }
        self.unsent -= popped.saturating_sub(unsent_from) as u16;
        self.prepared = self.prepared.min(self.unsent);
        self.first = ((self.first as usize + popped) % TAGS as usize) as u16;
    }
}
