//! Cursors change and end, and their clients leave and return.
//!
//! A cursor whose client has left stands at one tick in most streams. Each stream moves at least
//! once in [`QUIET_MAX`](crate::stream::QUIET_MAX), so the position of a cursor whose client
//! leaves now is another tick for each stream, and for each moment. But between the low watermark,
//! which all streams have passed, and that position there are mostly no events that the cursor
//! wants or has had. So it stands as well at the watermark, and takes no memory of its own.
//! Written positions rely on that, too ([`crate::store::WrittenPosition`]): a range that would be
//! read again is silence.

use core::time::Duration;

use whimbrel_event::{EventId, PubendId, Reliability, Tick, Time};

use super::positions::COMMON_MIN;
use super::{Began, Cursor, Durable, Gap, GapReason, NO_PUBEND, Positions};
use crate::api::Reason;
use crate::broker::Broker;
use crate::route::NO_CURSOR;
use crate::store::{Key, OWN};
use crate::stream::{WATERMARK_AGE, low_watermark_of};
use crate::subscription::LoggedFrom;

/// A shorter absence does not count in the statistics for the worth of cached events.
const AWAY_MIN: Duration = Duration::from_millis(100);

/// A longer absence counts as this one in those statistics.
pub(super) const AWAY_MAX: Duration = Duration::from_secs(24 * 3600);

impl Broker {
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
    pub(super) fn unanswered(&self, index: u32, id: u32, with_sent: bool) -> Vec<EventId> {
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
    pub(super) fn change(&mut self, id: u32, mut new: Cursor, logged: Option<&LoggedFrom>) {
        let old = self.cursors.get_mut(id);
        let old_session = old.session;
        if let Some(mut durable) = old.durable.take() {
            match logged {
                Some(logged) => {
                    let is_volatile = new.durable.as_ref().is_some_and(|durable| durable.may_be_volatile);
                    durable.may_be_volatile = is_volatile;
                    let text = self.router.get(old.subscription).selector.as_deref();
                    durable.change(logged, text, self.router.fences());
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
        if let Some((number, logged)) = number.zip(logged)
            && logged.until.is_some()
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

    /// The cursor begins at another place: forgets its detached streams.
    pub(super) fn forget_detached(&mut self, id: u32) {
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
        self.let_go_of_log(&durable.held.all(), &durable.remote.held, durable.is_connected);
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
        if !cursor.unsettled.is_empty() {
            self.overlay.waiting.forget(id);
        }
        self.overlay.logs.received.forget(id);
        if let Some(at) = cursor.silence.due {
            self.timers.remove(at, Reason::Silence, id);
        }
        self.expected.leave(id);
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
            self.expected.leave(id);
            if self.cursors.get(id).catch_up.is_none() {
                self.fall_behind(id, None, false);
            }
        }
    }

    /// Turns all events that a cursor has not had into gaps, although its client was connected: the
    /// cursor keeps no events from while its client is away.
    pub(super) fn give_up(&mut self, id: u32) {
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
pub(super) fn step_back(positions: &mut Positions, id: EventId) {
    if id.pubend != NO_PUBEND {
        positions.set(id.pubend, positions.get(id.pubend).min(Tick(id.tick.0 - 1)));
    }
}

impl Broker {
    /// Whether a cursor at `at` in a stream of another broker may as well stand at `watermark`,
    /// before that: it was given nothing in between, waits for nothing there, and would be told of
    /// nothing.
    pub(crate) fn is_silent_between(&self, cursor: &Cursor, pubend: PubendId, watermark: Tick, at: Tick) -> bool {
        let Some(spoke) = self.streams.spoke(pubend) else { return false };
        if self.streams.has_ended_in(pubend) || cursor.unsettled.has(pubend) || !self.is_kept_from(watermark) {
            return false;
        }
        // Events that it had before it began here need not have been passed here.
        let is_still = spoke <= watermark && at <= self.streams.passed(pubend);
        let Some(durable) = cursor.durable.as_deref() else { return is_still && cursor.began.here <= watermark };
        if cursor.by_token && cursor.began.here > watermark {
            return false;
        }
        let remote = &durable.remote;
        // Streams of one broker count together; the interest in best-effort ones is known there
        // since then as well.
        let is_reliable = pubend.reliability() == Reliability::Reliable;
        let counted = if is_reliable { pubend } else { pubend.host().pubend(0) };
        let counts = remote.counts_from(counted, |_| watermark).is_some_and(|since| since <= watermark);
        // If the newest wanted event is unknown, the log is held until the cursor stands where the
        // stream was passed.
        let waits = remote.detached.has(pubend)
            || remote.holes.get(pubend) > watermark
            || remote.newest.get(pubend) > watermark;
        let is_silence = || match is_reliable {
            true => remote.written.given(pubend, &self.store.bases) <= watermark,
            // Events that it had at another broker need not have been passed here.
            false => is_still && remote.unnamed.iter().all(|tick| *tick <= watermark),
        };
        counts && !waits && is_silence()
    }

    /// Whether logs that are given up early are kept as long for a cursor at that tick as for one
    /// at the streams' present positions.
    fn is_kept_from(&self, watermark: Tick) -> bool {
        let age = self.now.since(Time::from_nanos(watermark.0));
        self.sessions.limits.max_retain.is_none_or(|max| age <= early_grace(max))
    }

    /// Moves a kept cursor whose client has left to the watermark, wherever that makes no
    /// difference.
    pub(super) fn align_to_watermark(&mut self, id: u32) {
        let cursor = self.cursors.get(id);
        let Some(catch_up) = cursor.catch_up.as_deref().filter(|_| cursor.keeps) else { return };
        let watermark = self.streams.low_watermark();
        let told = |pubend| catch_up.gaps.iter().chain(catch_up.told.iter()).any(|gap| gap.pubend == pubend);
        let Some(alike) = self.alike(cursor, &catch_up.positions, watermark, told) else { return };
        let (cursor, common) = self.cursors.get_with_common(id);
        let Some(catch_up) = cursor.catch_up.as_deref_mut() else { return };
        common.align(&mut catch_up.positions, alike, watermark);
    }

    /// As [`Broker::align_to_watermark`], for acknowledged positions: a token names each stream.
    pub(super) fn align_acknowledged(&mut self, id: u32) {
        let cursor = self.cursors.get(id);
        let others = cursor.acknowledged.iter().filter(|(pubend, _)| self.streams.spoke(*pubend).is_some());
        let watermark = low_watermark_of(others.map(|(_, tick)| tick));
        let Some(alike) = self.alike(cursor, &cursor.acknowledged, watermark, |_| false) else { return };
        let (cursor, common) = self.cursors.get_with_common(id);
        common.align(&mut cursor.acknowledged, alike, watermark);
    }

    /// The streams in which a cursor at these positions may as well stand at `watermark`, if they
    /// are most.
    fn alike(
        &self,
        cursor: &Cursor,
        positions: &Positions,
        watermark: Tick,
        is_told: impl Fn(PubendId) -> bool,
    ) -> Option<Vec<PubendId>> {
        // A durable cursor must not move behind the last base.
        let base = |pubend| match cursor.durable {
            Some(_) => self.store.bases.tick_of_current(pubend),
            None => Tick(0),
        };
        let is_alike = |(pubend, at): &(PubendId, Tick)| {
            *at > watermark
                && base(*pubend) <= watermark
                && !is_told(*pubend)
                && self.is_silent_between(cursor, *pubend, watermark, *at)
        };
        let alike: Vec<PubendId> = positions.iter().filter(is_alike).map(|(pubend, _)| pubend).collect();
        (alike.len() >= COMMON_MIN && alike.len() * 2 >= positions.iter().count()).then_some(alike)
    }
}

/// For how much longer a log that is given up early is kept: a cursor whose client has left may
/// stand that much earlier than where it had everything.
pub(crate) fn early_grace(max_retain: Duration) -> Duration {
    WATERMARK_AGE.min(max_retain / 8)
}
