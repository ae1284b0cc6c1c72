//! Durable shared subscriptions. Each has a session of its own, which is remembered and has one
//! durable subscription. Position, holds, catch-up from the log and restart are therefore those of
//! any other subscription. Deliveries to that session are handed out among the members.
//!
//! A shared subscription becomes durable with the first member whose session is remembered, and
//! stays so until it ends with its last member. Its own session is written before that member, and
//! ends after the last one. It is served while a member is attached. When none is, the members'
//! unsettled events are delivered to it again once a member comes back.

use whimbrel_event::{Qos, Time};
use whimbrel_selector::{Selector, SharedFilter, TopicFilter};

use crate::api::{Durability, Filter, Output, Refusal};
use crate::broker::Broker;
use crate::route::{self, IndexSpot};
use crate::session::{Abandoned, Account, Fulfilled, ReassignedDelivery, Settled, own_client_id};
use crate::subscription::SubscriptionSpec;

/// The identifier of an own session's subscription if other brokers have members: then a restart
/// does not end it, though it has no member here.
const FOR_OTHERS: u32 = 1;

/// The request of a shared subscription's own session.
fn asked_by_own<'a>(text: &'a str, selector: Option<&'a Selector>, identifier: u32) -> Filter<'a> {
    // Members may get an event twice after a crash anyway, so at least once is enough here.
    let spec = SubscriptionSpec::new(Qos::AtLeastOnce);
    let spec = SubscriptionSpec { durability: Durability::Durable, retain_as_published: true, identifier, ..spec };
    Filter::again(text, selector, spec)
}

impl Broker {
    /// Makes a session a member of a shared subscription, or changes its membership. A member asks
    /// for the selector of the others, or is the only one.
    pub(crate) fn join_group(
        &mut self,
        index: u32,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
    ) -> Result<u32, Refusal> {
        let id = self.find_or_place(asked.filter);
        let is_other = self.groups.selector(id) != asked.selector;
        if is_other && !self.groups.is_alone(id, index) {
            return Err(Refusal::OtherSelector);
        }
        if is_other && self.groups.own(id).is_some() {
            self.ask_by_own(id, asked.filter, asked.selector)?;
        }
        self.groups.select(id, asked.selector);
        if self.groups.is_home(id) {
            self.enter_index(id, filter, is_other);
        }
        self.groups.join(id, index, asked);
        Ok(id)
    }

    /// Whether a session's subscription is a membership: a shared one that is not of the shared
    /// subscription's own session.
    pub(crate) fn is_member(&self, index: u32, shared: &SharedFilter<'_>) -> bool {
        shared.group.is_some() && self.sessions.get(index).shares().is_none()
    }

    /// Prepares a session's request for membership in a durable shared subscription: has its events
    /// logged from now on, if they are not yet. Returns which shared subscription that is; it stays
    /// until [`Broker::expect_no_more`].
    ///
    /// # Errors
    /// When the log takes no more subscriptions, or other members have another selector.
    pub(crate) fn expect_member(
        &mut self,
        index: u32,
        asked: &Filter<'_>,
        shared: &SharedFilter<'_>,
    ) -> Result<Option<u32>, Refusal> {
        if !self.is_member(index, shared) || !asked.spec.is_durable() {
            return Ok(None);
        }
        let known = self.groups.find(asked.filter);
        let is_other = known.is_some_and(|id| self.groups.selector(id) != asked.selector);
        if is_other && known.is_some_and(|id| !self.groups.is_alone(id, index)) {
            return Err(Refusal::OtherSelector);
        }
        let own = known.and_then(|id| self.groups.own(id));
        if own.is_none() && self.overlay.has_to_seek(self.now) {
            // Other brokers may have its position. That is sought when the member has joined.
            let id = self.find_or_place(asked.filter);
            self.groups.expect_member(id);
            return Ok(Some(id));
        }
        if own.is_none() {
            self.store.disk.check_subscription(true, true)?;
        }
        let id = self.find_or_place(asked.filter);
        let is_home = self.groups.is_home(id);
        if own.is_none() && is_home {
            // The request is within the bounds of the member's session, and so within those of this
            // one.
            self.begin_own(id, asked.filter);
        }
        if is_home && (own.is_none() || is_other) {
            self.ask_by_own(id, asked.filter, asked.selector)?;
        }
        self.groups.expect_member(id);
        Ok(Some(id))
    }

    /// An expected member has joined, or will not.
    pub(crate) fn expect_no_more(&mut self, id: u32) {
        self.groups.expect_no_more(id);
        self.end_if_empty(id);
    }

    /// Creates the own session of a shared subscription.
    pub(crate) fn begin_own(&mut self, id: u32, text: &str) {
        let own = self.sessions.create(&own_client_id(text));
        let (expiry, now) = (self.sessions.limits.session_expiry_max, self.now);
        let session = self.sessions.get_mut(own);
        (session.expiry, session.expires_at) = (expiry, Some(now.after(expiry)));
        session.groups.push(id);
        self.remember_session(own, None);
        self.groups.set_own(id, own);
        self.place_own(own);
    }

    /// Requests through the own session what a member asks for.
    ///
    /// # Errors
    /// When the log takes no more subscriptions, or the selector has changed too often.
    pub(crate) fn ask_by_own(&mut self, id: u32, text: &str, selector: Option<&Selector>) -> Result<(), Refusal> {
        let own = self.groups.own(id).expect("it asks with its own session");
        let assigned = self.streams.own.assigned();
        let identifier = if self.groups.branches(id).iter().any(|branch| branch.lasts) { FOR_OTHERS } else { 0 };
        self.write_within(own, &asked_by_own(text, selector, identifier), &assigned)?;
        self.groups.select(id, selector);
        Ok(())
    }

    /// Whether the own session's record says that other brokers have members.
    pub(crate) fn is_for_others(&self, id: u32) -> bool {
        let known = self.groups.own(id).and_then(|own| self.router.find(own, self.groups.text(id)));
        known.is_some_and(|known| self.router.get(known).spec.identifier == FOR_OTHERS)
    }

    /// The request of a shared subscription's own session is durable.
    pub(crate) fn own_confirmed(&mut self, now: Time, own: u32, out: &mut dyn Output) {
        let session = self.sessions.get(own);
        let (Some(&id), Some(text)) = (session.groups.first(), session.shares()) else { return };
        if self.router.find(own, text).is_none() {
            return;
        }
        let text: Box<str> = text.into();
        let spot = self.groups.set_durable(id);
        self.leave_index(id, &text, spot);
        self.attend(now, id, out);
        // It has a retention hold now, where it only had an announced interest before.
        self.count_anew(id);
        self.answer_branches(now, id, out);
        self.confirm_shares(now, out);
    }

    /// Serves the own sessions of a session's shared subscriptions, as a member may have come.
    pub(crate) fn attend_all(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        self.adopt_groups(now, index, out);
        for at in 0..self.sessions.get(index).groups.len() {
            let id = self.sessions.get(index).groups[at];
            self.attend(now, id, out);
            self.groups.record_said(id);
        }
    }

    /// Has the home remember a session's durable shared subscriptions.
    pub(crate) fn adopt_groups(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        if !self.overlay.is_open() {
            return;
        }
        let all = self.sessions.get(index).groups.clone();
        for id in all {
            if self.groups.is_used(id) {
                self.adopt_group(now, id, out);
            }
        }
    }

    pub(crate) fn attend(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let Some(own) = self.groups.durable(id).filter(|own| !self.sessions.is_attached(*own)) else { return };
        if !self.groups.is_attended(id, &self.sessions) {
            return;
        }
        let unsettled = self.groups.unsettled_of_members(id, &self.sessions);
        self.sessions.bind_within(own, unsettled.into_iter());
        self.sessions.get_mut(own).expires_at = None;
        self.return_to_streams(now, own, None);
        self.resume(now, own, out);
    }

    /// A member of a shared subscription has left. If none is attached any more, waiting events
    /// stay in the log.
    pub(crate) fn desert(&mut self, now: Time, id: u32) {
        if self.groups.visit(id).is_some() && !self.groups.is_attended(id, &self.sessions) {
            self.groups.give_back(id, &mut self.sessions);
        }
        let Some(own) = self.groups.durable(id) else { return };
        if self.groups.is_attended(id, &self.sessions) {
            return;
        }
        self.groups.desert(id, &mut self.sessions);
        if !self.sessions.is_attached(own) {
            return;
        }
        self.sessions.unbind_within(own);
        self.leave_streams(own);
        let session = self.sessions.get_mut(own);
        // It ends with the last member and not by this time, which only tells since when no member
        // has been attached.
        session.expires_at = Some(now.after(session.expiry));
        self.sessions.rest(own);
    }

    /// The client of a session has left. Its unacknowledged events of shared subscriptions go to
    /// other members, or back into the log.
    pub(crate) fn leave_work(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let all = self.sessions.get(index).groups.to_vec();
        let mut moved = all.clone();
        let is_elsewhere = |id: u32| self.groups.durable(id).is_some() || self.groups.visit(id).is_some();
        moved.retain(|id| is_elsewhere(*id) || self.groups.is_attended(*id, &self.sessions));
        self.move_work(now, index, moved, out);
        for id in all {
            if self.groups.is_leaving(id, index) && !self.sessions.get(index).inflight.has_of_group(id) {
                self.sessions.get_mut(index).groups.retain(|other| *other != id);
                self.groups.leave(id, index, false);
            }
            self.desert(now, id);
            // Events that waited for this member may fit no other, and are in the way of the rest.
            self.groups.hand_out(id, now, &mut self.sessions, out);
            self.groups.record_said(id);
        }
    }

    /// Ends the memberships of an ending session that it had unsubscribed from. Returns their
    /// shared subscriptions.
    pub(crate) fn leave_leaving(&mut self, index: u32) -> Vec<u32> {
        let mut left = core::mem::take(&mut self.sessions.get_mut(index).groups).to_vec();
        left.retain(|id| self.groups.is_leaving(*id, index));
        left.iter().for_each(|id| self.groups.leave(*id, index, false));
        left
    }

    /// A session ends that was a member of these shared subscriptions, which live on: its
    /// unacknowledged events go to other members.
    pub(crate) fn end_work(&mut self, now: Time, index: u32, lives: Vec<u32>, out: &mut dyn Output) {
        self.move_work(now, index, lives.clone(), out);
        // The protocol forbids giving these to another client.
        let unsettled: Vec<_> = self.sessions.get(index).inflight.unsettled_of_groups().collect();
        for (id, origin) in unsettled.into_iter().filter(|(id, _)| lives.contains(id)) {
            self.sessions.stats.dropped_session_ended += 1;
            self.sessions.fulfil(self.groups.account(id), origin);
        }
        for id in lives {
            self.desert(now, id);
            self.groups.hand_out(id, now, &mut self.sessions, out);
            self.groups.record_said(id);
        }
    }

    /// Gives the unacknowledged events of a member that is gone to other members. Costs one look at
    /// each of its deliveries, however many shared subscriptions there are.
    fn move_work(&mut self, now: Time, index: u32, mut groups: Vec<u32>, out: &mut dyn Output) {
        groups.sort_unstable();
        let (inflight, mut waker) = self.sessions.inflight_mut(index);
        let mut taken = inflight.take_groups(&groups, &mut waker);
        let session = self.sessions.get_mut(index);
        let is_kept = session.memory.is_kept;
        for ReassignedDelivery { tag, .. } in taken.iter().filter(|taken| taken.is_written && is_kept) {
            session.memory.pending.abandoned.push(Abandoned { tag: *tag, group: route::NO_GROUP, origin: 0 });
        }
        if !session.memory.pending.abandoned.is_empty() {
            let number = session.memory.number;
            self.sessions.dropped.push((index, number));
        }
        self.sessions.stats.shared_moved += taken.len() as u64;
        taken.sort_by_key(|taken| taken.group);
        for taken in taken.chunk_by(|a, b| a.group == b.group) {
            self.groups.put_back(taken[0].group, taken, &mut self.sessions);
            self.groups.hand_out(taken[0].group, now, &mut self.sessions, out);
        }
    }

    /// Hands events that wait in its shared subscriptions to a session that may have room.
    pub(crate) fn take_shared(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        for at in 0..self.sessions.get(index).groups.len() {
            let group = self.sessions.get(index).groups[at];
            self.groups.hand_out(group, now, &mut self.sessions, out);
        }
    }

    /// A session's membership ends. Tells whether the shared subscription lives on.
    pub(crate) fn leave_group(&mut self, index: u32, id: u32, stays: bool) -> bool {
        self.groups.leave(id, index, stays);
        self.end_if_empty(id)
    }

    /// Removes a shared subscription from the index, if it is there: it has ended, or its own
    /// session stands there in its place.
    fn leave_index(&mut self, id: u32, text: &str, spot: Option<IndexSpot>) {
        if let Some(spot) = spot {
            let filter = SharedFilter::parse(text).expect("it was checked").filter;
            self.router.remove_group(id, filter, spot);
        }
    }

    /// As [`Broker::leave_index`], for the spot that the shared subscription has now.
    pub(crate) fn leave_index_of(&mut self, id: u32) {
        let (text, spot): (Box<str>, _) = (self.groups.text(id).into(), self.groups.spot_mut(id).take());
        self.leave_index(id, &text, spot);
    }

    /// Ends a shared subscription if it has no members; tells whether it lives on.
    pub(crate) fn end_if_empty(&mut self, id: u32) -> bool {
        if !self.groups.is_empty(id) {
            return true;
        }
        let gone = self.groups.remove(id, &mut self.sessions);
        self.leave_index(id, &gone.text, gone.spot);
        for index in gone.leaving {
            let session = self.sessions.get_mut(index);
            session.groups.retain(|other| *other != id);
            session.inflight.forget_groups(&[id]);
        }
        if let Some(own) = gone.own {
            self.end_own(own);
        }
        false
    }

    /// Ends the own session of a shared subscription.
    pub(crate) fn end_own(&mut self, own: u32) {
        if self.sessions.is_attached(own) {
            self.sessions.unbind_within(own);
        }
        self.forget_session(own);
        self.forget_place(own);
        self.record_ended_session(self.now, own);
        for id in core::mem::take(&mut self.sessions.get_mut(own).subscriptions) {
            self.remove_subscription(own, id, false);
        }
        self.sessions.remove(own);
    }

    /// If a shared subscription ends with this member: its durable interest, which is logged for
    /// until that end is durable.
    pub(crate) fn interest_if_last(
        &mut self,
        index: u32,
        id: u32,
        filter: TopicFilter<'_>,
    ) -> Option<route::DurableInterest> {
        self.groups.durable(id).filter(|_| self.groups.is_alone(id, index))?;
        let selector = self.groups.selector(id).cloned();
        Some(self.router.insert_interest(filter, selector.as_ref(), None))
    }

    /// Hands deliveries to own sessions of shared subscriptions out to members, and settles there
    /// the events that members have settled.
    pub(crate) fn share_out(&mut self, now: Time, out: &mut dyn Output) {
        while let Some(handed) = self.sessions.handed.pop_front() {
            let (own, number) = (handed.session, handed.number);
            if self.sessions.is_numbered(own, number) && self.sessions.is_attached(own) {
                let id = self.sessions.get(own).groups[0];
                self.groups.hand(id, handed, now, &mut self.sessions, out);
            }
        }
        for taken in core::mem::take(&mut self.sessions.returned) {
            self.sessions.stats.shared_moved += 1;
            let id = taken.group;
            self.groups.put_back(id, &[taken], &mut self.sessions);
            self.groups.hand_out(id, now, &mut self.sessions, out);
        }
        while let Some(Fulfilled { account, number, tag }) = self.sessions.fulfilled.pop() {
            match account {
                Account::Own(own) if self.sessions.is_numbered(own, number) => self.settle_within(own, tag),
                Account::Visit(id, serial) if self.groups.has(id, serial) => self.groups.settle_here(id, tag),
                Account::None | Account::Own(_) | Account::Visit(..) => {}
            }
        }
    }

    /// Settles a delivery to the own session of a shared subscription.
    fn settle_within(&mut self, own: u32, tag: u16) {
        let (inflight, mut waker) = self.sessions.inflight_mut(own);
        let Some(slot) = inflight.slot(tag) else { return };
        let (cursor, id) = (slot.cursor, slot.id);
        if inflight.settle(tag, crate::Settlement::Acknowledged, &mut waker) != Settled::Done {
            return;
        }
        self.cursors.touch(cursor);
        self.record_beyond(cursor, Some(id), false);
        self.record_moved(own);
    }

    /// After a restart, reassembles a shared subscription from the records of its own session
    /// (`index`) and of its members. One without a member for which it is durable was about to end.
    pub(crate) fn restore_own(&mut self, index: u32) {
        let Some(text) = self.sessions.get(index).shares().map(Box::<str>::from) else { return };
        let place = self.sessions.get(index).memory.roam.as_deref();
        if place.is_some_and(|place| place.given.is_some()) {
            // It belongs to another home now, and goes when it is safe there.
            return;
        }
        let known = self.router.find(index, &text).map(|id| self.router.get(id));
        let is_for_others = known.is_some_and(|known| known.spec.identifier == FOR_OTHERS);
        let known = known.map(|known| known.selector.clone());
        let id = self.groups.find(&text).filter(|id| self.groups.lasts(*id));
        let id = id.or_else(|| {
            let id = is_for_others.then(|| self.groups.find_or_create(&text))?;
            let until = self.now.after(self.sessions.get(index).expiry);
            self.groups.keep_until(id, Some(until));
            Some(id)
        });
        let (Some(selector), Some(id)) = (known, id) else { return self.end_own(index) };
        self.sessions.get_mut(index).groups.push(id);
        self.groups.set_own(id, index);
        // A changed selector may have been durable only here.
        let selector = selector.as_deref().map(crate::subscription::remembered);
        self.groups.select(id, selector.as_ref());
        let spot = self.groups.set_durable(id);
        self.leave_index(id, &text, spot);
    }
}
