//! Answers to UNSUBSCRIBE: sent when the replica of the session knows of it. If the session went on
//! from an older copy, it would have the subscriptions again.

use whimbrel_event::Time;

use super::Due;
use super::confirm::{CONFIRM_MAX, WAITING_MAX};
use crate::api::Output;
use crate::broker::Broker;
use crate::store::Recipient;

/// An UNSUBSCRIBE that is done, and has not been answered.
#[derive(Debug)]
pub(super) struct UnansweredUnsubscribe {
    whom: Recipient,
    tag: u16,
    index: u32,
    existed: Vec<bool>,
    /// The version of the session that its replica must have.
    copied: u64,
    pub(super) due: Time,
}

impl Broker {
    /// Answers an UNSUBSCRIBE, at once or when the replica of its session knows of it; after
    /// [`CONFIRM_MAX`] at the latest.
    ///
    /// `existed`: for each of its filters, whether there was such a subscription.
    pub(crate) fn answer_end(
        &mut self,
        now: Time,
        (whom, tag): (Recipient, u16),
        index: u32,
        existed: Vec<bool>,
        out: &mut dyn Output,
    ) {
        let copied = self.structure_of(index);
        let is_copied = self.is_copied(now, index, copied);
        let overlay = &mut self.overlay;
        if !overlay.is_open() || is_copied || overlay.waiting.ending.len() >= WAITING_MAX {
            out.unsubscribed(whom.link, tag, &existed);
            return self.sessions.pump(index, now, out);
        }
        let due = now + CONFIRM_MAX;
        overlay.waiting.ending.push(UnansweredUnsubscribe { whom, tag, index, existed, copied, due });
        overlay.set_timer(due, Due::Confirm);
    }

    /// Answers the waiting UNSUBSCRIBEs whose replica has confirmed, or whose time is over.
    pub(super) fn answer_ends(&mut self, now: Time, out: &mut dyn Output) {
        for ending in core::mem::take(&mut self.overlay.waiting.ending) {
            let UnansweredUnsubscribe { whom, tag, index, .. } = ending;
            if self.sessions.attached_to(whom.link) != Some(index) || self.sessions.whom(whom.link) != whom {
                continue;
            }
            if ending.due > now && !self.is_copied(now, index, ending.copied) {
                self.overlay.waiting.ending.push(ending);
                continue;
            }
            out.unsubscribed(whom.link, tag, &ending.existed);
            self.sessions.pump(index, now, out);
        }
    }
}
