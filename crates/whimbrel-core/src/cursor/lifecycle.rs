//! Cursors begin and end, and their clients leave and return.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventId, PubendId, Publisher, Qos, Tick, Time};
use whimbrel_selector::SharedFilter;

use super::{Began, Begin, Cursor, Durable, Gap, GapReason, Gaps, InForce, NO_PUBEND, Positions, SilenceTimer};
use crate::api::{Durability, Filter, Reason, Start};
use crate::broker::Broker;
use crate::cache::PartitionSet;
use crate::confirming::Confirmed;
use crate::route::NO_CURSOR;
use crate::session::Marks;
use crate::store::{Key, OWN};

/// A shorter absence does not count in the statistics for the worth of cached events.
const AWAY_MIN: Duration = Duration::from_millis(100);

/// A longer absence counts as this one in those statistics.
const AWAY_MAX: Duration = Duration::from_secs(24 * 3600);

/// A cursor that is about to begin or to change.
pub(crate) struct Follow<'a> {
    /// The session.
    pub(crate) index: u32,
    pub(crate) asked: &'a Filter<'a>,
    /// The present cursor of the subscription.
    pub(crate) cursor: Option<u32>,
    pub(crate) partitions: PartitionSet,
    pub(crate) begin: Begin,
    /// Set if it is durable.
    pub(crate) confirmed: Option<&'a Confirmed>,
}

impl Broker {
    /// Makes, changes or ends the cursor of a subscription, `subscription` in the router; returns
    /// the cursor.
    pub(crate) fn follow(&mut self, now: Time, subscription: u32, follow: Follow<'_>) -> u32 {
        let Follow { index, asked, cursor, partitions, begin, confirmed } = follow;
        let spec = asked.spec;
        if !spec.needs_cursor() {
            if let Some(cursor) = cursor {
                self.sessions.untrack_queue(index, cursor);
                self.unfollow(cursor, asked.filter);
            }
            return NO_CURSOR;
        }
        let filter = SharedFilter::parse(asked.filter).expect("it was checked").filter;
        let is_volatile = confirmed.is_some() && self.router.may_be_volatile(filter);
        let without = if spec.no_local { self.sessions.get(index).publisher } else { Publisher::UNKNOWN };
        let new = Cursor {
            id: NO_CURSOR,
            session: index,
            subscription,
            without,
            qos: spec.granted_qos(),
            marks: Marks::of(&spec),
            keeps: spec.durability != Durability::Nondurable,
            notices: spec.notices,
            by_token: spec.by_token,
            awaiting_start: false,
            catch_up: None,
            ahead: Positions::default(),
            unsettled: Positions::default(),
            acknowledged: Positions::default(),
            began: Began { here: self.streams.reached(now), in_force: InForce::Untold, is_named: false },
            silence: SilenceTimer { told_at: now, due: None },
            division: self.division.number,
            partitions,
            durable: confirmed.map(|confirmed| Box::new(Durable::new(confirmed, is_volatile))),
        };
        let id = match cursor {
            None => {
                self.sessions.add_cursor_after(index, self.serial);
                self.cursors.insert(new)
            }
            Some(id) => {
                self.change(id, new, confirmed);
                id
            }
        };
        if let Begin::CatchUp(catch_up) = begin {
            self.begin_at(now, id, asked, catch_up);
        }
        if confirmed.is_some() {
            self.await_grants(id);
        }
        if spec.by_token && self.cursors.get(id).acknowledged.is_empty() {
            // From now on the client reports its position; so far that is where it has answered
            // everything.
            self.cursors.get_mut(id).acknowledged = self.settled_position(index, id);
        }
        self.cursors.touch(id);
        if self.sessions.is_attached(index) {
            self.watch_silence(now, id);
        } else if self.cursors.get(id).catch_up.is_none() {
            // The client has left before the cursor was made.
            self.fall_behind(id, None, false);
            if !self.cursors.get(id).keeps {
                self.give_up(id);
            }
        }
        id
    }

    /// Up to where a cursor has got and its client has answered.
    pub(crate) fn settled_position(&self, index: u32, id: u32) -> Positions {
        let untold = self.cursors.get(id).catch_up.as_ref().map(|catch_up| catch_up.untold());
        let mut positions = untold.unwrap_or_else(|| self.streams.positions().collect());
        self.cursors.get(id).step_back_to_settled(&mut positions);
        self.unanswered(index, id, true).into_iter().for_each(|id| step_back(&mut positions, id));
        positions
    }

    /// Events waiting or in flight for a cursor; those sent on the present connection only
    /// `with_sent`.
    fn unanswered(&self, index: u32, id: u32, with_sent: bool) -> Vec<EventId> {
        let session = self.sessions.get(index);
        let waits = session.follow.queue.iter().filter(|entry| entry.cursor == id).map(|entry| entry.event.id());
        let flies = session.inflight.open_of_cursor(id).filter(|(_, sent)| with_sent || !sent).map(|(id, _)| id);
        flies.chain(waits).collect()
    }

    /// Whether an event of a stream, or the notice of a gap, is unanswered or still to be sent.
    pub(crate) fn has_unanswered(&self, id: u32, pubend: PubendId) -> bool {
        let index = self.cursors.get(id).session;
        let mut gaps = self.sessions.get(index).inflight.unanswered_gaps(id);
        gaps.any(|gap| gap.pubend == pubend)
            || self.unanswered(index, id, true).into_iter().any(|event| event.pubend == pubend)
    }

    /// Changes the options of a cursor, which stays where it is.
    fn change(&mut self, id: u32, mut new: Cursor, confirmed: Option<&Confirmed>) {
        let old = self.cursors.get_mut(id);
        let old_session = old.session;
        if let Some(mut durable) = old.durable.take() {
            match confirmed {
                Some(confirmed) => {
                    let is_volatile = new.durable.as_ref().is_some_and(|durable| durable.may_be_volatile);
                    durable.may_be_volatile = is_volatile;
                    let text = self.router.get(old.subscription).selector.as_deref();
                    durable.change(confirmed, text, self.router.fences());
                    new.durable = Some(durable);
                }
                None => {
                    let (inflight, mut waker) = self.sessions.inflight_mut(old_session);
                    inflight.lose_loading(id, &mut waker, |_| true);
                    let text = self.router.get(old.subscription).text.clone();
                    self.forget_durable(old_session, &text, &durable);
                }
            }
        }
        let old = self.cursors.get(id);
        if old.by_token && !new.by_token || old.without != new.without {
            // Events that it has passed, or had at another broker, may be wanted under the new
            // options if they are read again.
            self.mark_all(id, &mut new);
        }
        let old = self.cursors.get_mut(id);
        let (catch_up, silence) = (old.catch_up.take(), old.silence);
        let (ahead, mut acknowledged) = (core::mem::take(&mut old.ahead), core::mem::take(&mut old.acknowledged));
        let unsettled = core::mem::take(&mut old.unsettled);
        if !new.by_token {
            acknowledged = Positions::default();
        }
        let awaiting_start = old.awaiting_start && new.by_token;
        let (session, freed, lags) = (old.session, old.awaiting_start && !new.by_token, catch_up.is_some());
        let number = new.durable.as_deref().map(|durable| durable.number);
        // An event that it had at another broker may be beyond all that were passed here.
        let began = Began { here: old.began.here.max(new.began.here), ..old.began };
        *old = Cursor { id, catch_up, silence, ahead, unsettled, acknowledged, awaiting_start, began, ..new };
        if let Some((number, confirmed)) = number.zip(confirmed)
            && confirmed.until.is_some()
        {
            let known = self.router.get(self.cursors.get(id).subscription);
            let (text, selector) = (known.text.clone(), known.selector.clone());
            self.router.keep_old_interest(number, &text, selector.as_deref());
            self.detach_all_streams(id);
        }
        if freed && lags {
            self.sessions.get_mut(session).follow.lagging.push_back(id);
        }
    }

    /// Marks all that a cursor, which is about to be `new`, has passed of other brokers' streams as
    /// given.
    fn mark_all(&self, id: u32, new: &mut Cursor) {
        let cursor = self.cursors.get(id);
        let at = |pubend| match &cursor.catch_up {
            Some(catch_up) => catch_up.positions.get(pubend),
            None => self.streams.passed(pubend).max(cursor.ahead.get(pubend)),
        };
        let Some(durable) = new.durable.as_deref_mut() else { return };
        let streams: Vec<PubendId> = durable.remote.since.iter().map(|(pubend, _)| pubend).collect();
        streams.into_iter().for_each(|pubend| durable.remote.written.mark(pubend, at(pubend)));
    }

    /// Begins at a place that the client has named.
    fn begin_at(&mut self, now: Time, id: u32, asked: &Filter<'_>, catch_up: Box<super::CatchUp>) {
        let index = self.cursors.get(id).session;
        self.sessions.stats.resumed += 1;
        let newest = catch_up.positions.iter().map(|(_, tick)| tick).max().unwrap_or_default();
        let follow = &mut self.sessions.get_mut(index).follow;
        let says_when_it_left = matches!(asked.start, Start::Token(..) | Start::After(_));
        if says_when_it_left && !core::mem::replace(&mut follow.away_known, true) {
            self.cache.observe_outage(now.since(Time::from_nanos(newest.0)).min(AWAY_MAX));
        }
        self.sessions.purge_cursor(index, id);
        self.forget_detached(id);
        let cursor = self.cursors.get_mut(id);
        let (inflight, mut waker) = self.sessions.inflight_mut(index);
        inflight.let_go(&mut waker, |cursor| cursor == id, false);
        inflight.leave_behind(id, cursor.by_token, &mut waker);
        let is_had = |durable: &&mut Durable| !durable.rare.beyond.is_empty();
        if (cursor.by_token || cursor.qos < Qos::ExactlyOnce)
            && let Some(durable) = cursor.durable.as_deref_mut().filter(is_had)
        {
            durable.rare.beyond.clear();
        }
        let is_listed = cursor.catch_up.is_some() && !cursor.awaiting_start;
        cursor.awaiting_start = false;
        cursor.began.here = cursor.began.here.max(newest);
        cursor.began.is_named |= !matches!(asked.start, Start::Own);
        cursor.ahead = Positions::default();
        // Earlier events are not waited for any more.
        let waits = |(pubend, from): (PubendId, Tick)| (pubend, from.max(catch_up.positions.get(pubend)));
        cursor.unsettled = cursor.unsettled.iter().map(waits).collect();
        if cursor.by_token {
            let before = core::mem::replace(&mut cursor.acknowledged, catch_up.untold());
            let chopped = self.store.release.chopped.iter().filter(|_| cursor.durable.is_some());
            for (own, chopped) in chopped.enumerate() {
                // Acknowledged events that were given up are told as a gap even if asked for again.
                let pubend = self.streams.logged().host().pubend(own as u8);
                cursor.acknowledged.advance(pubend, before.get(pubend).min(*chopped));
            }
        }
        if let Some(durable) = cursor.durable.as_deref_mut().filter(|_| !cursor.by_token) {
            // Earlier events were delivered at another broker.
            let streams: Vec<PubendId> = durable.remote.since.iter().map(|(pubend, _)| pubend).collect();
            streams.into_iter().for_each(|pubend| durable.remote.written.mark(pubend, catch_up.positions.get(pubend)));
        }
        self.cursors.begin_catch_up(id, catch_up);
        if !is_listed {
            self.sessions.get_mut(index).follow.lagging.push_back(id);
        }
    }

    /// The cursor begins at another place: forgets its detached streams.
    fn forget_detached(&mut self, id: u32) {
        let Some(durable) = self.cursors.durable_mut(id).filter(|durable| !durable.remote.detached.is_empty()) else {
            return;
        };
        durable.remote.blocked.clear();
        durable.remote.later.clear();
        durable.remote.told.clear();
        let (number, detached) = (durable.number, core::mem::take(&mut durable.remote.detached));
        detached.iter().for_each(|(pubend, _)| self.store.remote_reads.leave(pubend, number));
    }

    /// A subscription is not durable any more: releases its holds, and forgets its written position
    /// and last deliveries.
    fn forget_durable(&mut self, index: u32, text: &str, durable: &Durable) {
        for (pubend, _) in durable.remote.detached.iter() {
            self.store.remote_reads.leave(pubend, durable.number);
        }
        for _ in &durable.rare.old {
            self.router.drop_old_interest(durable.number, text);
        }
        self.let_go_of_log(&durable.held, &durable.remote.held, durable.is_connected);
        let number = self.sessions.get(index).memory.number;
        self.forget_position(durable.number, &durable.remote.written);
        if durable.remote.unnamed != [Tick(0); OWN] {
            self.store.write_queue.forget(|key| Key::Unnamed(durable.number).put(key));
        }
        for tag in &durable.rare.done {
            self.store.write_queue.forget(|key| Key::InFlight(number, *tag).put(key));
        }
    }

    /// Removes a cursor; `text` is its topic filter as asked.
    pub(crate) fn unfollow(&mut self, id: u32, text: &str) {
        let cursor = self.cursors.remove(id);
        if let Some(overlay) = self.overlay.as_deref_mut().filter(|_| !cursor.unsettled.is_empty()) {
            overlay.waiting.forget(id);
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.logs.received.forget(id);
        }
        if let Some(at) = cursor.silence.due {
            self.timers.remove(at, Reason::Silence, id);
        }
        if cursor.catch_up.is_some() {
            self.sessions.get_mut(cursor.session).follow.lagging.retain(|other| *other != id);
        }
        if let Some(durable) = &cursor.durable {
            self.forget_durable(cursor.session, text, durable);
        }
        self.sessions.purge_cursor(cursor.session, id);
        let (inflight, mut waker) = self.sessions.inflight_mut(cursor.session);
        inflight.forget_cursor(id, cursor.by_token, &mut waker);
    }

    /// The position at which a cursor begins that was just made or changed.
    pub(crate) fn begins(&mut self, now: Time, index: u32, asked: &Filter<'_>) -> CheckpointToken {
        if let Start::Token(token, later) = asked.start {
            let mut begins = token.clone();
            // Where the token has no room, it begins a little earlier.
            if later.iter().all(|id| begins.advance(*id).is_ok()) {
                return begins;
            }
            return token.clone();
        }
        let id = self.router.find(index, asked.filter).expect("it has just been made");
        let cursor = self.router.get(id).cursor;
        if cursor == NO_CURSOR {
            return self.caught_up_token(now);
        }
        let of_cursor = self.cursors.get(cursor);
        // Events sent on this connection reach the client before this answer.
        let unsent = self.unanswered(index, cursor, false);
        let is_here = of_cursor.ahead.is_empty() && !of_cursor.is_behind_somewhere();
        if of_cursor.catch_up.is_none() && is_here && unsent.is_empty() {
            return self.caught_up_token(now);
        }
        let catch_up = of_cursor.catch_up.as_ref();
        let mut positions =
            catch_up.map_or_else(|| self.ahead_positions(&of_cursor.ahead), |catch_up| catch_up.positions.clone());
        of_cursor.step_back_to_settled(&mut positions);
        for id in &unsent {
            step_back(&mut positions, *id);
        }
        self.token_at(&positions, catch_up.map_or(&Gaps::default(), |catch_up| &catch_up.gaps))
    }

    /// The positions of a caught-up cursor that is ahead of some streams.
    pub(super) fn ahead_positions(&self, ahead: &Positions) -> Positions {
        let mut positions: Positions = self.streams.positions().collect();
        for (pubend, tick) in ahead.iter() {
            positions.advance(pubend, tick);
        }
        positions
    }

    /// The cursors of a session.
    pub(crate) fn cursors_of(&self, index: u32) -> Vec<u32> {
        let all = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id).cursor);
        all.filter(|cursor| *cursor != NO_CURSOR).collect()
    }

    /// The client of a session has left: its cursors stay where they are, and waiting events stay
    /// in the cache.
    pub(crate) fn leave_streams(&mut self, index: u32) {
        let cursors = self.cursors_of(index);
        self.stay_behind(index);
        for entry in self.sessions.take_tracked(index).iter() {
            let catch_up = self.cursors.get_mut(entry.cursor).catch_up.as_mut().expect("all of the session's lag now");
            if entry.event.id().pubend != NO_PUBEND {
                catch_up.next = catch_up.next.min(entry.serial);
                step_back(&mut catch_up.positions, entry.event.id());
            }
        }
        for id in cursors {
            if !self.cursors.get(id).keeps {
                self.give_up(id);
            }
            self.align_to_watermark(id);
        }
        let Broker { sessions, cursors, .. } = self;
        let (inflight, mut waker) = sessions.inflight_mut(index);
        inflight.let_go(&mut waker, |cursor| cursors.is_by_token(cursor), true);
    }

    /// Sets the cursors of a session without a client to catch-up.
    pub(crate) fn stay_behind(&mut self, index: u32) {
        for id in self.cursors_of(index) {
            self.cursors.touch(id);
            self.reattach_streams(id);
            if let Some(due) = self.cursors.get_mut(id).silence.due.take() {
                self.timers.remove(due, Reason::Silence, id);
            }
            if self.cursors.get(id).catch_up.is_none() {
                self.fall_behind(id, None, false);
            }
        }
    }

    /// Turns all events that a cursor has not had into gaps, although its client was connected: the
    /// cursor keeps no events from while its client is away.
    fn give_up(&mut self, id: u32) {
        let catch_up = self.cursors.get_mut(id).catch_up.as_mut().expect("who has left lags");
        for (pubend, to) in self.streams.positions() {
            let from = catch_up.positions.get(pubend);
            if from < to {
                catch_up.gaps.add(Gap { pubend, from, to, reason: GapReason::Slow });
                catch_up.positions.set(pubend, to);
            }
        }
    }

    /// The client of a session is back after `away`. Cursors that keep nothing continue with new
    /// events; if the client keeps the position, it has to report it first.
    pub(crate) fn return_to_streams(&mut self, now: Time, index: u32, away: Option<Duration>) {
        self.sessions.get_mut(index).follow.away_known = false;
        let mut keeps = false;
        for id in self.cursors_of(index) {
            let (next, passed) = (self.serial + 1, self.streams.positions().collect());
            let cursor = self.cursors.get_mut(id);
            keeps |= cursor.keeps;
            let catch_up = cursor.catch_up.as_mut().expect("who was away lags");
            catch_up.slow = false;
            if !cursor.keeps {
                (catch_up.next, catch_up.positions) = (next, passed);
            }
            cursor.awaiting_start = cursor.by_token;
            self.watch_silence(now, id);
        }
        let mut lagging = self.cursors_of(index);
        lagging.retain(|id| !self.cursors.get(*id).awaiting_start);
        self.sessions.get_mut(index).follow.lagging = lagging.into();
        if let Some(away) = away.filter(|away| keeps && *away >= AWAY_MIN) {
            self.cache.observe_outage(away.min(AWAY_MAX));
            self.sessions.get_mut(index).follow.away_known = true;
        }
    }

    /// The client that asked for a subscription by token has left, and a different one is
    /// connected: nothing is delivered until that reports its position.
    pub(crate) fn await_start(&mut self, index: u32, text: &str) {
        let Some(id) = self.router.cursor_of(index, text).filter(|id| self.cursors.get(*id).by_token) else { return };
        if fault!(self, BeginsForAnother) {
            return;
        }
        if self.cursors.get(id).catch_up.is_none() {
            self.fall_behind(id, None, false);
        }
        self.cursors.get_mut(id).awaiting_start = true;
        self.sessions.get_mut(index).follow.lagging.retain(|other| *other != id);
    }
}

/// Moves positions before an event that is missing or not acknowledged. Notices are in no stream.
fn step_back(positions: &mut Positions, id: EventId) {
    if id.pubend != NO_PUBEND {
        positions.set(id.pubend, positions.get(id.pubend).min(Tick(id.tick.0 - 1)));
    }
}
