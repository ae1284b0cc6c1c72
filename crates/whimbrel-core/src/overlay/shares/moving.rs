//! The move of a durable shared subscription's own session to a new home, as clients' sessions
//! move: from the old home while that can be reached, otherwise from a copy.

use whimbrel_event::Time;
use whimbrel_selector::Selector;

use super::super::roam::Attachment;
use crate::api::{Output, Reason};
use crate::broker::Broker;
use crate::session::{own_client_id, shared_text};

impl Broker {
    /// Seeks the own session of a durable shared subscription whose home is here; it begins here if
    /// it exists nowhere.
    pub(crate) fn adopt_group(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let is_wanted = self.groups.is_home(id) && self.groups.lasts(id) && self.groups.own(id).is_none();
        if !is_wanted || !self.has_log() {
            return;
        }
        if self.has_to_seek(now) {
            let client = own_client_id(self.groups.text(id));
            self.groups.set_sought(id, true);
            return self.seek(now, &client, None, out);
        }
        self.begin_group(now, id);
    }

    /// Creates the own session here.
    fn begin_group(&mut self, now: Time, id: u32) {
        self.groups.set_sought(id, false);
        let is_there = self.sessions.find(&own_client_id(self.groups.text(id))).is_some();
        if is_there || self.store.disk.check_subscription(true, true).is_err() {
            return;
        }
        let text: Box<str> = self.groups.text(id).into();
        self.groups.forget_origins(id, &mut self.sessions);
        self.begin_own(id, &text);
        let selector: Option<Selector> = self.groups.selector(id).cloned();
        // After a refusal there is no position: the next member asks again.
        let is_asked = self.ask_by_own(id, &text, selector.as_ref()).is_ok();
        self.sessions.stats.subscriptions_refused += u64::from(!is_asked);
        self.share_soon(now);
    }

    /// Attaches the own session of a shared subscription here, in the directory of all brokers'
    /// sessions.
    pub(crate) fn place_own(&mut self, own: u32) {
        let now = self.now;
        if self.has_to_seek(now) {
            let connected_at = now.as_nanos();
            let place = Attachment::new(now, connected_at / 1_000_000, connected_at);
            self.sessions.get_mut(own).memory.roam = Some(Box::new(place));
            self.record_place(now, own);
        }
    }

    /// Handles the end of a search that no connection waits for: the session may be that of a
    /// shared subscription whose home is here. `is_nowhere`: no broker has it.
    pub(in super::super) fn share_sought(&mut self, now: Time, client: &str, is_nowhere: bool, out: &mut dyn Output) {
        let Some(text) = shared_text(client) else { return };
        let Some(id) = self.groups.find(text) else { return };
        if !self.groups.is_home(id) || self.groups.own(id).is_some() || !self.groups.lasts(id) {
            return;
        }
        let found = self.sessions.find(client).filter(|index| {
            let session = self.sessions.get(*index);
            session.memory.roam.as_deref().is_none_or(|place| place.given.is_none()) && !session.is_attached()
        });
        match found {
            Some(index) => self.adopt_own(now, id, index, out),
            None if is_nowhere => self.begin_group(now, id),
            // It is sought again.
            None => {}
        }
    }

    /// Adopts the own session of a shared subscription that has arrived.
    fn adopt_own(&mut self, now: Time, id: u32, index: u32, out: &mut dyn Output) {
        self.groups.set_sought(id, false);
        self.groups.forget_origins(id, &mut self.sessions);
        let session = self.sessions.get_mut(index);
        session.groups = smallvec::smallvec![id];
        if let Some(at) = session.expires_at.take() {
            // It ends with the last member.
            self.timers.remove(at, Reason::SessionExpiry, index);
        }
        let session = self.sessions.get_mut(index);
        session.expires_at = Some(now.after(session.expiry));
        self.groups.set_own(id, index);
        let text: Box<str> = self.groups.text(id).into();
        let Some(known) = self.router.find(index, &text) else {
            let selector = self.groups.selector(id).cloned();
            let is_asked = self.ask_by_own(id, &text, selector.as_ref()).is_ok();
            self.sessions.stats.subscriptions_refused += u64::from(!is_asked);
            return;
        };
        let was = self.router.get(known).selector.as_deref().map(crate::subscription::remembered);
        let wanted = self.groups.selector(id).cloned();
        if was != wanted {
            let is_asked = self.ask_by_own(id, &text, wanted.as_ref()).is_ok();
            self.sessions.stats.subscriptions_refused += u64::from(!is_asked);
        }
        self.own_confirmed(now, index, out);
        self.confirm_shares(now, out);
    }

    /// Gives up the own session of a shared subscription to another broker, from where members here
    /// are served from now on.
    pub(in super::super) fn let_go_of_share(&mut self, now: Time, index: u32) {
        let groups = core::mem::take(&mut self.sessions.get_mut(index).groups);
        if self.sessions.is_attached(index) {
            self.sessions.unbind_within(index);
            self.leave_streams(index);
            let session = self.sessions.get_mut(index);
            session.expires_at = Some(now.after(session.expiry));
            self.sessions.rest(index);
        }
        for id in groups {
            if self.groups.own(id) != Some(index) {
                continue;
            }
            self.groups.lose_own(id);
            self.groups.keep_until(id, None);
            self.groups.forget_origins(id, &mut self.sessions);
            self.cease_home(id);
            self.groups.begin_visit(id);
            self.groups.ask_anew(id);
            self.groups.brokers.is_unsettled = true;
            self.share_soon(now);
        }
    }
}
