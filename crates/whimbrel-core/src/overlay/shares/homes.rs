//! The choice of the home of a shared subscription: the first broker in a rendezvous hash of the
//! subscription's whole text over the brokers that can be reached.
//!
//! The home changes when it can no longer be reached, or when another broker is the choice and the
//! set of brokers has not changed for [`STILL`]. The old home continues until the new one has
//! confirmed the members' interest. The own session of a durable shared subscription moves to the
//! new home as clients' sessions move: from the old home while that can be reached, otherwise from
//! a copy.

use core::time::Duration;

use whimbrel_event::{HostId, Time};
use whimbrel_selector::{Selector, SharedFilter, TopicFilter};

use super::super::rendezvous::Candidates;
use super::super::roam::Attachment;
use crate::api::{Output, Reason};
use crate::broker::Broker;
use crate::session::{own_client_id, shared_text};
use crate::shared::Counting;
use crate::subscription::{CONFIRM_MAX, has_confirmed};

/// How long the set of brokers must be unchanged before a home that can be reached is replaced.
pub(crate) const STILL: Duration = Duration::from_secs(2);

impl Broker {
    /// Updates the candidates if other brokers can be reached than before.
    pub(in super::super) fn check_candidates(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        overlay.net.ways();
        let others = overlay.net.topology().states().filter(|state| state.host != overlay.net.host());
        // A home's session moves as those of clients do.
        let moves = overlay.moves_sessions;
        let others = others.filter(|state| moves && overlay.net.routes().is_reachable(state.host));
        let others = others.map(|state| (state.host, &*state.name));
        let candidates = Candidates::new(others.chain([(overlay.net.host(), overlay.net.name())]));
        let brokers = &mut self.groups.brokers;
        if brokers.candidates != candidates {
            (brokers.candidates, brokers.changed_at, brokers.is_unsettled) = (candidates, now, true);
            self.settle_homes(now, out);
            self.share_soon(now);
        }
    }

    pub(super) fn is_candidate(&self, host: HostId) -> bool {
        self.groups.brokers.candidates.has(host)
    }

    /// The broker that is to be the home; `None` if that is not known yet.
    pub(crate) fn choice(&self, now: Time, text: &str) -> Option<HostId> {
        if !self.overlay.is_open() {
            return None;
        }
        let overlay = &self.overlay;
        if overlay.net.is_young(now) {
            None
        } else {
            self.groups.brokers.candidates.first(text).or(Some(overlay.net.host()))
        }
    }

    /// Whether this broker is to be the home.
    pub(super) fn is_chosen(&self, now: Time, text: &str) -> bool {
        self.choice(now, text).is_some_and(|host| self.overlay.net.host() == host)
    }

    /// The shared subscription written as `text`. A new one gets its home.
    pub(crate) fn find_or_place(&mut self, text: &str) -> u32 {
        if let Some(id) = self.groups.find(text) {
            return id;
        }
        let id = self.groups.find_or_create(text);
        let now = self.now;
        if self.overlay.is_open() && !self.is_chosen(now, text) {
            self.groups.set_home(id, false);
            self.groups.begin_visit(id).home = self.choice(now, text);
            self.groups.brokers.is_unsettled = true;
            self.share_soon(now);
        }
        id
    }

    /// Checks the homes of existing shared subscriptions when the overlay is opened.
    pub(in super::super) fn open_shares(&mut self, now: Time) {
        self.groups.post.begin(now);
        let is_young = self.overlay.net.is_young(now);
        for id in self.groups.ids().filter(|_| is_young) {
            if self.groups.own(id).is_none() {
                self.leave_index_of(id);
                self.groups.set_home(id, false);
                self.groups.begin_visit(id);
                self.groups.ask_anew(id);
            }
        }
        self.groups.brokers.is_unsettled = true;
        self.share_soon(now);
    }

    /// Changes homes that are not the choice.
    pub(super) fn settle_homes(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &self.overlay;
        let (host, is_young) = (overlay.net.host(), overlay.net.is_young(now));
        let brokers = &mut self.groups.brokers;
        if is_young || !brokers.is_unsettled {
            return;
        }
        let is_still = now.since(brokers.changed_at) >= STILL;
        brokers.is_unsettled = false;
        for id in self.groups.ids() {
            // The subscription may have ended with an earlier one, whose home has refused it.
            if !self.groups.is_used(id) {
                continue;
            }
            let Some(choice) = self.choice(now, self.groups.text(id)) else { continue };
            let visited = self.groups.visit(id).and_then(|visit| visit.home);
            let present = visited.or(self.groups.is_home(id).then_some(host));
            if present == Some(choice) {
                continue;
            }
            let is_lost = present.is_none_or(|present| present != host && !self.is_candidate(present));
            if !is_lost && !is_still {
                self.groups.brokers.is_unsettled = true;
            } else if choice == host {
                self.begin_home(now, id, out);
            } else {
                self.visit_home(id, choice);
            }
        }
    }

    /// Makes another broker the home, now or as soon as it confirms.
    fn visit_home(&mut self, id: u32, home: HostId) {
        let before = self.groups.visit(id).and_then(|visit| visit.home).filter(|host| self.is_candidate(*host));
        let visit = self.groups.begin_visit(id);
        visit.previous_home = visit.previous_home.or(before).filter(|previous| *previous != home);
        visit.home = Some(home);
        self.groups.ask_anew(id);
    }

    /// Makes this broker the home. The previous one continues until other brokers know of that.
    pub(super) fn begin_home(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let was_home = self.groups.is_home(id);
        let before = self.groups.visit(id).and_then(|visit| visit.home).filter(|host| self.is_candidate(*host));
        if let Some(visit) = self.groups.visit_mut(id) {
            (visit.home, visit.previous_home, visit.answer) = (None, before.filter(|_| !was_home), None);
        }
        self.groups.set_home(id, true);
        if !was_home {
            let text: Box<str> = self.groups.text(id).into();
            let filter = SharedFilter::parse(&text).expect("it was checked").filter;
            self.enter_index(id, filter, false);
            self.adopt_group(now, id, out);
        }
        self.groups.end_visit(id);
        self.share_soon(now);
        self.confirm_shares(now, out);
    }

    /// Ends this broker's role as home: another one has the members' interest.
    pub(super) fn cease_home(&mut self, id: u32) {
        if !self.groups.is_home(id) {
            return;
        }
        self.groups.set_home(id, false);
        self.groups.set_sought(id, false);
        self.groups.clear_branches(id);
        self.groups.set_counting(id, Counting::Yes);
        self.leave_index_of(id);
        if let Some(own) = self.groups.own(id) {
            self.groups.lose_own(id);
            self.groups.forget_origins(id, &mut self.sessions);
            self.end_own(own);
        }
    }

    /// Enters a shared subscription into the index, unless its own session's subscription is there
    /// for it.
    pub(crate) fn enter_index(&mut self, id: u32, filter: TopicFilter<'_>, is_other: bool) {
        if self.groups.durable(id).is_some() {
            return;
        }
        let selector = self.groups.selector(id).cloned();
        let spot = match self.groups.spot_mut(id).take() {
            None => {
                self.count_anew(id);
                self.router.insert_group(id, filter, selector.as_ref())
            }
            Some(spot) if is_other => {
                self.count_anew(id);
                self.router.update_group(id, filter, spot, selector.as_ref())
            }
            Some(spot) => spot,
        };
        *self.groups.spot_mut(id) = Some(spot);
    }

    /// Waits until the other brokers know of the interest.
    pub(crate) fn count_anew(&mut self, id: u32) {
        let now = self.now;
        let overlay = &mut self.overlay;
        if overlay.net.topology().len() > 1 {
            overlay.net.tell_interest_soon(now);
            self.groups.set_counting(id, Counting::Next(now + CONFIRM_MAX));
            self.groups.brokers.is_counting = true;
            self.share_soon(now);
        }
    }

    /// Assigns the own interest's new version to the subscriptions that wait for it.
    pub(crate) fn name_share_versions(&mut self, version: u64) {
        if !self.groups.brokers.is_counting {
            return;
        }
        for id in self.groups.ids() {
            if let Counting::Next(until) = self.groups.counting(id) {
                self.groups.set_counting(id, Counting::From(version, until));
            }
        }
    }

    /// Ends the wait of subscriptions whose version all of `awaited` have confirmed.
    pub(crate) fn count_shares(&mut self, now: Time, awaited: &[HostId], out: &mut dyn Output) {
        if !core::mem::take(&mut self.groups.brokers.is_counting) {
            return;
        }
        for id in self.groups.ids() {
            match self.groups.counting(id) {
                Counting::Yes => continue,
                Counting::From(version, _) if self.is_known_to(awaited, version, self.groups.own(id).is_some()) => {
                    self.count_now(now, id, out);
                }
                Counting::From(..) | Counting::Next(_) => self.groups.brokers.is_counting = true,
            }
        }
    }

    fn is_known_to(&self, hosts: &[HostId], version: u64, is_durable: bool) -> bool {
        if !self.overlay.is_open() {
            return true;
        }
        let is_granted = |host| !is_durable || self.overlay.logs.received.is_granted(host, version);
        hosts.iter().all(|host| is_granted(*host) && has_confirmed(&self.streams, *host, version))
    }

    /// Ends a subscription's wait for other brokers: all have confirmed, or the time is over.
    pub(super) fn count_now(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        self.groups.set_counting(id, Counting::Yes);
        self.answer_branches(now, id, out);
        if self.groups.is_home(id) && self.groups.visit(id).is_some_and(|visit| visit.home.is_none()) {
            self.leave_previous_home(now, id, out);
            self.groups.end_visit(id);
        }
    }
}

impl Broker {
    /// Seeks the own session of a durable shared subscription whose home is here; it begins here if
    /// it exists nowhere.
    pub(crate) fn adopt_group(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let is_wanted = self.groups.is_home(id) && self.groups.lasts(id) && self.groups.own(id).is_none();
        if !is_wanted || !self.has_log() {
            return;
        }
        if self.overlay.has_to_seek(now) {
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
        if self.overlay.has_to_seek(now) {
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
