//! An UNSUBSCRIBE is answered when the replica of its session knows of it: until then whoever went
//! on from that copy would have the subscriptions again.

use whimbrel_event::Time;

use super::confirm::{CONFIRM_MAX, WAITING_MAX};
use super::{Due, Overlay};
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
    /// What its replica has to know of its session.
    copied: u64,
    pub(super) due: Time,
}

impl Broker {
    /// Answers an UNSUBSCRIBE, at once or when the replica of its session knows of it; at the
    /// latest after [`CONFIRM_MAX`].
    ///
    /// `existed`: of each of its filters, whether there was such a subscription.
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
        let overlay =
            self.overlay.as_deref_mut().filter(|overlay| !is_copied && overlay.waiting.ending.len() < WAITING_MAX);
        let Some(overlay) = overlay else {
            out.unsubscribed(whom.link, tag, &existed);
            return self.sessions.pump(index, now, out);
        };
        let due = now + CONFIRM_MAX;
        overlay.waiting.ending.push(UnansweredUnsubscribe { whom, tag, index, existed, copied, due });
        overlay.set_timer(due, Due::Confirm);
    }

    /// Replicas have told what they know: whoever waited for that is answered, and whoever has
    /// waited for as long as it may.
    pub(super) fn answer_ends(&mut self, now: Time, out: &mut dyn Output) {
        let waiting = |overlay: &mut Overlay| core::mem::take(&mut overlay.waiting.ending);
        for ending in self.overlay.as_deref_mut().map(waiting).unwrap_or_default() {
            let UnansweredUnsubscribe { whom, tag, index, .. } = ending;
            if self.sessions.attached_to(whom.link) != Some(index) || self.sessions.whom(whom.link) != whom {
                continue;
            }
            if ending.due > now && !self.is_copied(now, index, ending.copied) {
                self.overlay.as_deref_mut().expect("it was there").waiting.ending.push(ending);
                continue;
            }
            out.unsubscribed(whom.link, tag, &ending.existed);
            self.sessions.pump(index, now, out);
        }
    }
}
