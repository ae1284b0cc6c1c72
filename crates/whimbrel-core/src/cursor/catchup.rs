//! Catch-up: a cursor reads the cache, in turns, until it stands where the consolidated stream
//! does. A session has turns: for its waiting events, for its cursors in catch-up, and for retained
//! messages that it reads.

use core::ops::ControlFlow;

use whimbrel_event::{Event, EventId, HostId, Packed, PredecessorsBuf, PubendId, Qos, Tick, Time};
use whimbrel_selector::SharedFilter;

use super::{CatchUp, Cursor, Gap, GapReason};
use crate::api::Output;
use crate::broker::Broker;
use crate::cache::{CacheItem, NextRead};
use crate::copies::EventCopies;
use crate::retained::REPLAY_SLICE;
use crate::route::Router;
use crate::session::{Publication, Sessions};
use crate::store::own_place;
use crate::stream::Sources;

/// Slots of the cache that are checked, and gaps that are told, in one turn.
pub(crate) const CATCH_UP_SLICE: usize = 256;

/// Bytes of events that are checked in one turn: selectors may read payloads.
const CATCH_UP_WEIGHT: usize = 64 << 10;

/// How far a turn got.
pub(super) enum Turn {
    /// The cursor is caught up.
    CaughtUp,
    /// The client takes no more at the moment.
    Blocked,
    /// The turn is used up.
    Over,
}

impl Broker {
    /// Continues the catch-up of a session's cursors, as far as its client takes events and the
    /// turn allows.
    pub(crate) fn catch_up(&mut self, now: Time, index: u32, budget: &mut usize, out: &mut dyn Output) {
        while self.sessions.get(index).takes_any() {
            let Some(id) = self.next_to_catch_up(index) else { return };
            let turn = self.catch_up_one(now, id, budget, out);
            let follow = &mut self.sessions.get_mut(index).follow;
            follow.lagging.pop_front();
            match turn {
                Turn::CaughtUp => {}
                // Other cursors of the session would find the same window.
                Turn::Blocked => return follow.lagging.push_back(id),
                Turn::Over => {
                    follow.lagging.push_back(id);
                    return self.turn_soon(index);
                }
            }
        }
    }

    fn catch_up_one(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut dyn Output) -> Turn {
        self.cursors.touch(id);
        self.check_division(id);
        let replayed = self.replay(now, id, budget, out);
        if let Some(turn) = replayed {
            return turn;
        }
        let mut catch_up = self.cursors.get_mut(id).catch_up.take().expect("a cursor that lags");
        self.record_incomplete(id, &mut catch_up);
        let Broker { cursors, router, cache, copies, sessions, streams, serial, .. } = self;
        let last = *serial;
        let is_alone = cursors.lagging() == 1;
        let cursor = cursors.get_mut(id);
        let lost = catch_up.why_lost();
        let is_durable = cursor.durable.is_some();
        // Events that a durable cursor lacks of own streams were read from the log.
        let remote = cursor.durable.as_deref().map(|durable| durable.remote.since.clone()).unwrap_or_default();
        let of_log = |pubend| {
            is_durable
                && (streams.own_reliable(pubend).is_some() || remote.has(pubend) && !streams.has_ended_in(pubend))
        };
        let (from, partitions) = (catch_up.next, cursor.partitions.clone());
        let whose = (streams.logged().host(), is_alone);
        let mut reader =
            CursorReader::new(now, whose, (cursor, &mut catch_up), (router, copies, sessions, streams), out);
        let next = cache.read(from, &partitions, *budget, |item| match item {
            CacheItem::Hole { pubend, to, .. } if of_log(pubend) => {
                reader.record_hole(pubend, to);
                ControlFlow::Continue(())
            }
            CacheItem::Hole { pubend, from, to } => {
                let from = Tick(from.0 - 1).max(reader.catch_up.positions.get(pubend));
                reader.catch_up.gaps.add(Gap { pubend, from, to, reason: lost });
                ControlFlow::Continue(())
            }
            CacheItem::Event { event, .. } if of_log(event.id().pubend) && reader.lacks(event.id()) => {
                ControlFlow::Continue(())
            }
            // Its host ended, and the broker has forgotten the stream: no gap is told any more.
            CacheItem::Event { event, .. } if !streams.knows(event.id().pubend) => ControlFlow::Continue(()),
            CacheItem::Event { serial, event } => reader.check_event(serial, event),
        });
        let (blocked, caught_up) = reader.end_turn(&next, (from, last), budget);
        let blocked_on = reader.blocked_on;
        cursors.get_mut(id).catch_up = Some(catch_up);
        if let Some((event, after)) = blocked_on {
            self.block_on_predecessor(now, id, event, after);
            return Turn::Over;
        }
        if caught_up && !self.unblock(now, id) {
            let catch_up = self.cursors.get_mut(id).catch_up.take().expect("it lags");
            self.finish_catch_up(id, &catch_up);
            return Turn::CaughtUp;
        }
        if blocked { Turn::Blocked } else { Turn::Over }
    }

    /// Adds what the cache has dropped for good to the gaps of a cursor.
    fn record_incomplete(&self, id: u32, catch_up: &mut CatchUp) {
        let Broker { cursors, cache, streams, .. } = self;
        let cursor = cursors.get(id);
        // Events that a durable cursor lacks of own streams were read from the log.
        let of_log = |pubend| {
            let is_own = streams.own_reliable(pubend).is_some();
            cursor.durable.is_some() && (is_own || cursor.has_remote_log(pubend) && !streams.has_ended_in(pubend))
        };
        for (pubend, _) in streams.positions().filter(|(pubend, _)| !of_log(*pubend)) {
            let to = cache.incomplete(&cursor.partitions, pubend);
            if to > catch_up.forgiven.get(pubend) {
                let from = catch_up.positions.get(pubend);
                let is_older = streams.is_before_this_process(pubend, from);
                let reason = if is_older { GapReason::Lost } else { catch_up.why_lacking(pubend) };
                catch_up.gaps.add(Gap { pubend, from, to, reason });
            }
        }
    }

    /// Makes a cursor caught up that stands where the consolidated stream does, or ahead of it.
    fn finish_catch_up(&mut self, id: u32, catch_up: &CatchUp) {
        let Broker { cursors, streams, sessions, expected, now, .. } = self;
        let cursor = cursors.get_mut(id);
        cursor.ahead = streams.ahead_of(&catch_up.positions);
        cursor.durable.iter_mut().for_each(|durable| durable.rest());
        let session = cursor.session;
        cursors.set_caught_up(id);
        expected.restart(*now, id);
        let (inflight, mut waker) = sessions.inflight_mut(session);
        let remote = cursors.durable(id).map(|durable| &durable.remote);
        // Deliveries whose events it has passed without finding them are gone. Streams, own ones
        // too, that are detached or not known here yet are still to be read.
        let is_gone = |event: EventId| {
            let remote = remote.filter(|_| !streams.has_ended_in(event.pubend));
            remote.is_none_or(|remote| {
                let has_passed = || streams.followed(event.pubend).is_some_and(|passed| passed >= event.tick);
                !remote.detached.has(event.pubend) && (!remote.since.has(event.pubend) || has_passed())
            })
        };
        inflight.lose_loading(id, &mut waker, is_gone);
    }

    /// Computes the partitions with a cursor's wanted events anew, if the cache was divided anew.
    fn check_division(&mut self, id: u32) {
        let cursor = self.cursors.get_mut(id);
        if cursor.division != self.division.number {
            let text = &self.router.get(cursor.subscription).text;
            let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
            (cursor.division, cursor.partitions) = (self.division.number, self.cache.candidates(filter, None));
        }
    }

    /// Sets a caught-up cursor to catch-up from the end of the consolidated stream; if it has not
    /// had the event there, `missed`, from before that.
    pub(crate) fn fall_behind(&mut self, id: u32, missed: Option<EventId>, slow: bool) {
        let cursor = self.cursors.get(id);
        let (mut positions, mut next) = (self.streams.ahead_positions(&cursor.ahead), self.serial + 1);
        if let Some(id) = missed {
            next = self.serial;
            positions.set(id.pubend, Tick(id.tick.0 - 1));
        }
        let session = cursor.session;
        self.cursors.touch(id);
        self.sessions.stats.fell_behind += u64::from(slow);
        self.cursors.get_with_common(id).1.fall_behind(&mut positions);
        self.cursors.begin_catch_up(id, Box::new(CatchUp { next, slow, ..CatchUp::at(positions) }));
        self.sessions.get_mut(session).follow.lagging.push_back(id);
    }
}

/// A turn of one cursor.
pub(super) struct CursorReader<'a> {
    pub(super) now: Time,
    pub(super) host: HostId,
    pub(super) cursor: &'a mut Cursor,
    pub(super) catch_up: &'a mut CatchUp,
    pub(super) router: &'a mut Router,
    pub(super) copies: &'a mut EventCopies,
    /// No other cursor is in catch-up: copies need not be shared.
    pub(super) is_alone: bool,
    pub(super) sessions: &'a mut Sessions,
    pub(super) streams: &'a Sources,
    /// The client takes no more at the moment.
    pub(super) blocked: bool,
    /// Bytes of the events that were checked.
    pub(super) weight: usize,
    /// The cache has holes in streams that are logged.
    pub(super) has_holes: bool,
    /// The event at which the turn ended, and its predecessors in other streams, not passed yet.
    pub(super) blocked_on: Option<(EventId, PredecessorsBuf)>,
    pub(super) out: &'a mut dyn Output,
}

impl<'a> CursorReader<'a> {
    /// A reader for a turn of one cursor in catch-up; `host` is this one, `is_alone` as the field.
    pub(super) fn new(
        now: Time,
        (host, is_alone): (HostId, bool),
        (cursor, catch_up): (&'a mut Cursor, &'a mut CatchUp),
        (router, copies, sessions, streams): (&'a mut Router, &'a mut EventCopies, &'a mut Sessions, &'a Sources),
        out: &'a mut dyn Output,
    ) -> Self {
        let (blocked, weight, has_holes, blocked_on) = (false, 0, false, None);
        CursorReader {
            now,
            host,
            cursor,
            catch_up,
            router,
            copies,
            is_alone,
            sessions,
            streams,
            blocked,
            weight,
            has_holes,
            blocked_on,
            out,
        }
    }
}

impl CursorReader<'_> {
    /// Ends a turn that read the cache from the serial `from`, with `last` the newest one. Returns
    /// whether the client takes no more, and whether the end was reached.
    fn end_turn(&mut self, next: &NextRead, (from, last): (u64, u64), budget: &mut usize) -> (bool, bool) {
        // Each turn uses some of the budget.
        *budget = budget.saturating_sub(next.looked_at.max(1));
        if self.blocked || self.blocked_on.is_some() {
            return (self.blocked, false);
        }
        self.catch_up.next = next.serial;
        if self.weight >= CATCH_UP_WEIGHT {
            *budget = 0;
        }
        if self.has_holes {
            // The holes are read from the log first, and then the cache behind them.
            self.catch_up.next = from;
        } else if next.exhausted {
            self.catch_up.next = last + 1;
            return self.tell_rest(budget);
        }
        (false, false)
    }

    /// Records that a logged stream has a hole in the cache: up to `to` it is read from the log.
    fn record_hole(&mut self, pubend: PubendId, to: Tick) {
        let durable = self.cursor.durable.as_deref_mut().expect("a durable subscription");
        if durable.remote.detached.has(pubend) || to <= self.catch_up.positions.get(pubend) {
            return;
        }
        self.has_holes = true;
        if durable.remote.since.has(pubend) {
            durable.remote.holes.advance(pubend, to);
        } else {
            let hole = &mut durable.rare.holes[own_place(pubend)];
            *hole = to.max(*hole);
        }
    }

    /// Whether events before this one in its stream are to be read from the log first.
    fn lacks(&self, id: EventId) -> bool {
        let durable = self.cursor.durable.as_deref().expect("a durable subscription");
        let hole = match durable.remote.since.has(id.pubend) {
            true => durable.remote.holes.get(id.pubend),
            false => durable.rare.holes[own_place(id.pubend)],
        };
        hole > self.catch_up.positions.get(id.pubend)
    }

    /// Checks an event from the log.
    pub(super) fn check_logged(&mut self, event: &Event) -> ControlFlow<()> {
        let next = self.catch_up.next;
        let looked = match self.was_flying(event.id()) {
            Some(tag) => self.fly_again(tag, event.clone()),
            None => self.check_next(0, event.packed(), Some(event)),
        };
        // The log has no serials.
        self.catch_up.next = next;
        let EventId { pubend, tick } = event.id();
        if self.catch_up.positions.get(pubend) >= tick {
            // Otherwise it would be read and given again when the stream is settled.
            self.cursor.record_read(pubend, tick);
        }
        looked
    }

    /// Whether an event has predecessors in other streams that were not passed; then its stream
    /// waits for them.
    fn must_wait(&mut self, event: Packed<'_>) -> bool {
        let missing = self.cursor.lacks_before(self.catch_up, event.id(), event.view().headers.after);
        self.blocked_on = (!missing.is_empty()).then(|| (event.id(), missing));
        self.blocked_on.is_some()
    }

    /// Sends an event again, with its tag, that was in flight before the broker restarted.
    fn fly_again(&mut self, tag: u16, event: Event) -> ControlFlow<()> {
        let EventId { pubend, tick } = event.id();
        // The event was sent in order then, but the client may have got neither, and other streams
        // are read at their own pace.
        if self.must_wait(event.packed()) {
            return ControlFlow::Break(());
        }
        self.cursor.mark(pubend, tick);
        let told = self.catch_up.gaps.before(pubend, tick).is_none_or(|gap| self.tell(gap));
        let session = self.cursor.session;
        if !told || !self.sessions.get(session).takes_repeated() {
            self.blocked = true;
            return ControlFlow::Break(());
        }
        let retain = event.packed().retain() && self.cursor.marks.retain_as_published;
        self.sessions.get_mut(session).inflight.loaded(tag, event, retain);
        self.sessions.pump(session, self.now, self.out);
        self.cursor.silence.told_at = self.now;
        self.catch_up.gaps.passed(pubend, tick);
        self.catch_up.positions.set(pubend, tick);
        ControlFlow::Continue(())
    }

    fn check_event(&mut self, serial: u64, packed: Packed<'_>) -> ControlFlow<()> {
        match self.was_flying(packed.id()).filter(|_| !self.cursor.is_detached(packed.id().pubend)) {
            Some(tag) => {
                let looked = self.fly_again(tag, Event::copied(packed));
                if self.blocked || self.blocked_on.is_some() {
                    self.catch_up.next = serial;
                }
                looked
            }
            None => self.check_next(serial, packed, None),
        }
    }

    fn check_next(&mut self, serial: u64, packed: Packed<'_>, kept: Option<&Event>) -> ControlFlow<()> {
        let EventId { pubend, tick } = packed.id();
        if self.catch_up.positions.get(pubend) >= tick || self.cursor.is_detached(pubend) {
            return ControlFlow::Continue(());
        }
        let is_hidden = self.catch_up.told.hides(packed.id());
        let is_wanted = !is_hidden && self.wants(serial, packed);
        if is_hidden || is_wanted {
            // If it were read again, it would be given again.
            self.cursor.mark(pubend, tick);
        }
        if is_wanted && !self.has_had(packed.id()) {
            if self.must_wait(packed) {
                self.catch_up.next = serial;
                return ControlFlow::Break(());
            }
            let qos = packed.qos().min(self.cursor.qos);
            // Earlier events of a log were read, or are a gap already.
            let gap = if kept.is_none() { self.cursor.settle(packed.id()) } else { None };
            gap.into_iter().for_each(|gap| self.catch_up.gaps.add(gap));
            let told = match self.catch_up.gaps.before(pubend, tick) {
                Some(gap) => self.tell(gap),
                None => true,
            };
            if !told || !self.sessions.get(self.cursor.session).takes_tracked(qos) {
                (self.catch_up.next, self.blocked) = (serial, true);
                return ControlFlow::Break(());
            }
            let terms = self.cursor.terms(packed.qos(), packed.retain());
            let mut publication = Publication::of_packed(packed, serial);
            publication.kept = kept.cloned();
            if kept.is_none() && qos > Qos::AtMostOnce && self.sessions.get(self.cursor.session).is_persistent() {
                publication.kept =
                    Some(if self.is_alone { Event::copied(packed) } else { self.copies.of(serial, packed) });
            }
            let taken = self.sessions.offer_tracked(self.cursor.session, &mut publication, terms, self.out);
            assert!(taken, "it was asked whether it takes the event");
            self.sessions.stats.deliveries_recovered += 1;
            self.cursor.silence.told_at = self.now;
            self.catch_up.gaps.passed(pubend, tick);
        }
        self.catch_up.positions.set(pubend, tick);
        self.weight += packed.as_bytes().len();
        if self.weight >= CATCH_UP_WEIGHT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn wants(&mut self, serial: u64, event: Packed<'_>) -> bool {
        if event.is_expired(self.now) || self.cursor.is_own(event.publisher()) {
            return false;
        }
        let number = self.cursor.subscription;
        let is_own = event.id().pubend.host() == self.host;
        if let Some(wanted) = self.cursor.wanted_before(event, is_own) {
            return wanted && self.router.is_under(number, event);
        }
        if serial == 0 { self.router.wants(number, event) } else { self.router.wants_cached(number, serial, event) }
    }
}

impl Broker {
    /// Continues a session whose client takes more: waiting events and catch-up; first one, then
    /// the other, and the next time the other way round. Retained messages beyond a slice are read
    /// in a turn of their own.
    pub(crate) fn resume(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let mut budget = REPLAY_SLICE;
        if self.retained.replays.take_turn(index) {
            self.read_retained(now, index, &mut budget, out);
        }
        let session = self.sessions.get_mut(index);
        // While deliveries of a previous connection are to be sent again, catch-up waits.
        let ready = session.takes_any();
        let catches_up = !session.follow.lagging.is_empty() && !session.follow.catching_up;
        let first = catches_up && ready && session.follow.catches_up_first;
        if catches_up {
            session.follow.catches_up_first = !first;
        }
        if first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
        self.sessions.pump(index, now, out);
        self.take_shared(now, index, out);
        if catches_up && !first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
        // Waiting events may have been in the way of reading.
        if self.retained.replays.may_read(index) {
            self.read_retained(now, index, &mut budget, out);
        }
    }

    /// As [`Broker::resume`], when a place in the client's window has become free. While less than
    /// half of the window is free, catch-up waits for the end of the turn, when more answers may
    /// have come: to begin reading costs more than an event.
    pub(crate) fn resume_answered(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        let waits = !session.follow.lagging.is_empty() && session.takes_any() && !session.inflight.is_half_free();
        if waits {
            self.turn_soon(index);
        }
        self.resume(now, index, out);
    }

    /// The next cursor of a session for catch-up, without those that have to read retained messages
    /// first.
    pub(super) fn next_to_catch_up(&mut self, index: u32) -> Option<u32> {
        let Broker { sessions, retained, cursors, .. } = self;
        if !retained.replays.has(index) {
            return sessions.get(index).follow.lagging.front().copied();
        }
        let is_free = |id: &u32| !retained.replays.holds(index, cursors.get(*id).subscription);
        let lagging = &mut sessions.get_mut(index).follow.lagging;
        let at = lagging.iter().position(is_free)?;
        lagging.rotate_left(at);
        lagging.front().copied()
    }

    /// Gives a cursor in catch-up a turn at the end of this one.
    pub(crate) fn catch_up_soon(&mut self, id: u32) {
        self.turn_soon(self.cursors.get(id).session);
    }

    /// Gives a session a turn of its own at the end of this one, for catch-up or reading.
    pub(crate) fn turn_soon(&mut self, index: u32) {
        if !core::mem::replace(&mut self.sessions.get_mut(index).follow.catching_up, true) {
            if self.catching_up.queue.is_empty() {
                // Events accepted while no session waited do not add to the work of a turn.
                self.catching_up.upto = self.serial;
            }
            self.catching_up.queue.push_back(index);
        }
    }

    /// Gives sessions that wait their turns for catch-up: in all, a slice of work plus one unit for
    /// each event accepted since the last time.
    pub(crate) fn continue_catching_up(&mut self, now: Time, out: &mut dyn Output) {
        let accepted = self.serial - core::mem::replace(&mut self.catching_up.upto, self.serial);
        let mut budget = CATCH_UP_SLICE + accepted as usize;
        while budget > 0
            && let Some(index) = self.catching_up.queue.pop_front()
        {
            // The session may have ended, and another may have its number.
            if self.sessions.take_turn(index) {
                self.retained.replays.begin_turn(index);
                let slice = budget.min(CATCH_UP_SLICE);
                let mut left = slice;
                self.catch_up(now, index, &mut left, out);
                self.read_retained(now, index, &mut left, out);
                budget -= (slice - left).max(1);
            }
        }
    }
}
