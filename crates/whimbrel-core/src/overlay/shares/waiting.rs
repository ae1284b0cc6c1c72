//! The wait of a SUBSCRIBE with shared subscriptions for their homes.

use whimbrel_event::{HostId, Time};

use super::super::confirm::{Made, Waiter};
use crate::api::{Output, Refusal};
use crate::broker::Broker;
use crate::shared::MemberState;
use crate::store::Key;

impl Broker {
    /// Answers the requests whose homes have answered, or whose time is over.
    pub(crate) fn confirm_shares(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        for waiter in core::mem::take(&mut overlay.waiting.sharing) {
            let is_copied = self.is_copied(now, waiter.what.index, waiter.copied);
            if waiter.due > now && (self.waits_for_home(&waiter) || !is_copied) {
                self.overlay.waiting.sharing.push(waiter);
            } else {
                let is_written = self.store.write_queue.last() <= self.store.commit_queue.committed();
                self.answer_made(now, waiter, is_written, out);
            }
        }
    }

    /// Whether the home of one of these subscriptions has not confirmed it.
    pub(in super::super) fn waits_for_home(&self, waiter: &Waiter) -> bool {
        let mut made = waiter.what.made.iter().filter(|(_, _, result)| result.is_ok());
        made.any(|(asked, ..)| self.waits_for(&asked.filter).is_some())
    }

    /// The home that has not confirmed a shared subscription; `Some(None)` if the home is not
    /// known.
    fn waits_for(&self, text: &str) -> Option<Option<HostId>> {
        match self.groups.find(text).map(|id| self.groups.state(id)) {
            Some(MemberState::Waits(home)) => Some(home),
            _ => None,
        }
    }

    /// Ends the subscriptions that their homes have refused. Returns the homes that have not
    /// answered.
    pub(in super::super) fn refuse_shares(&mut self, index: u32, made: &mut Made) -> Vec<Option<HostId>> {
        let mut waited = Vec::new();
        for (asked, _, result) in made.iter_mut().filter(|(_, _, result)| result.is_ok()) {
            waited.extend(self.waits_for(&asked.filter));
            let state = self.groups.find(&asked.filter).map(|id| self.groups.state(id));
            if state != Some(MemberState::Refused) {
                continue;
            }
            *result = Err(Refusal::OtherSelector);
            self.sessions.stats.subscriptions_refused += 1;
            if self.remembers(index) {
                let number = self.sessions.get(index).memory.number;
                self.store.write_queue.forget(|key| Key::Subscription(number, &asked.filter).put(key));
                self.store.write_queue.seal();
            }
            self.end_subscriptions(index, &[&asked.filter]);
        }
        waited.sort_unstable();
        waited.dedup();
        waited
    }
}
