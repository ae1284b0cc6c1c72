//! A subscription begins: its position, and its cursor.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventId, PubendId, Publisher, Qos, Tick, Time};
use whimbrel_selector::{SharedFilter, TopicFilter};

use super::lifecycle::{AWAY_MAX, step_back};
use super::{Began, CatchUp, Cursor, Durable, Gap, GapReason, Gaps, InForceSince, NOTHING, Positions, SilenceTimer};
use crate::api::{Durability, Filter, Refusal, Start};
use crate::broker::Broker;
use crate::cache::PartitionSet;
use crate::caching::is_buffered;
use crate::route::NO_CURSOR;
use crate::session::Marks;
use crate::store::OwnTicks;
use crate::subscription::{LoggedFrom, remembered};

/// With event ids as position, pubends without one begin this much before the least tick named.
const ASSUMED: Duration = Duration::from_secs(60);

/// Bound of the difference between brokers' clocks; a position further ahead is refused.
pub(crate) const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Most pubends of unknown brokers in a position; each of them is a gap.
const STRANGERS_MAX: usize = 64;

/// How a subscription begins.
#[derive(Debug)]
pub(crate) enum BeginAt {
    /// At its present position; a new one with the next event.
    Keep,
    /// Behind the consolidated stream, or at most where that stands.
    CatchUp(Box<CatchUp>),
}

/// A cursor that is about to begin or to change.
pub(crate) struct Follow<'a> {
    /// The session.
    pub(crate) index: u32,
    pub(crate) asked: &'a Filter<'a>,
    /// The present cursor of the subscription.
    pub(crate) cursor: Option<u32>,
    pub(crate) partitions: PartitionSet,
    pub(crate) begin: BeginAt,
    /// Set if it is durable.
    pub(crate) logged: Option<&'a LoggedFrom>,
}

impl Broker {
    /// The start that is recorded for a requested subscription: the interest of a durable one is
    /// logged after the ticks in `assigned`. One that is not logged will have got everything up to
    /// its start, as far as known; later events are lost with the process.
    pub(crate) fn record_start(
        &self,
        index: u32,
        cursor: Option<u32>,
        asked: &Filter<'_>,
        assigned: &OwnTicks,
    ) -> OwnTicks {
        let goes_on = cursor.is_none() && self.resumes(index, asked);
        if asked.spec.is_durable() && !goes_on {
            return *assigned;
        }
        let mut positions: Positions = self.streams.births().collect();
        let named: Vec<(PubendId, Tick)> = match (asked.start, cursor.filter(|cursor| *cursor != NO_CURSOR)) {
            (Start::Own, None) => return *assigned,
            (Start::Own, Some(id)) if self.cursors.get(id).by_token => {
                self.cursors.get(id).acknowledged.iter().collect()
            }
            (Start::Own, Some(id)) => self.settled_position(index, id).iter().collect(),
            (Start::Token(token, later), _) => {
                let of_token = self.streams.positions_in(token);
                of_token.iter().chain(later.iter().map(|id| (id.pubend, id.tick))).collect()
            }
            (Start::After(ids), _) => ids.iter().map(|id| (id.pubend, id.tick)).collect(),
            (Start::Since(at), _) => return assigned.map(|tick| tick.min(Tick(at.as_nanos()))),
            (Start::Earliest, _) => Vec::new(),
        };
        named.into_iter().for_each(|(pubend, tick)| positions.advance(pubend, tick));
        let host = self.streams.own.host();
        core::array::from_fn(|own| positions.get(host.reliable(own as u8)).min(assigned[own]))
    }

    /// Where a subscription is to begin; `cursor` is its present one, `partitions` those of the
    /// cache with wanted events.
    ///
    /// # Errors
    /// When the position belongs to another deployment, lies ahead of what this broker can have
    /// sent, or names too many unknown pubends.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        (index, is_new): (u32, bool),
        (asked, filter): (&Filter<'_>, TopicFilter<'_>),
        cursor: Option<u32>,
        partitions: &PartitionSet,
    ) -> Result<BeginAt, Refusal> {
        let mut catch_up = match asked.start {
            Start::Own => {
                let awaiting_start = cursor.map(|id| self.cursors.get(id)).filter(|cursor| cursor.awaiting_start);
                let Some(awaiting_start) = awaiting_start else { return Ok(BeginAt::Keep) };
                let mut catch_up =
                    self.checked(now, (awaiting_start.acknowledged.clone(), Tick(0)), Gaps::default())?;
                self.record_lost(cursor, &mut catch_up);
                let in_force = self.in_force_for(cursor, asked);
                let may_lack = self.cursors.get(cursor.expect("it is there")).began.is_named || in_force.is_none();
                if may_lack && !is_buffered(&self.buffer, filter, asked.selector) {
                    // The client may have been told before, but has not reported that it knows.
                    self.record_unbuffered(cursor, in_force.unwrap_or(InForceSince::Untold), &mut catch_up);
                }
                return Ok(BeginAt::CatchUp(Box::new(CatchUp {
                    next: self.first_after(&catch_up.positions),
                    ..catch_up
                })));
            }
            _ if !matches!(asked.spec.durability, Durability::SemiDurable | Durability::Durable) => {
                return Err(Refusal::StartNotKept);
            }
            start => {
                // Later events lie after every position that can be named now.
                self.streams.close(now);
                self.named(now, start, partitions)?
            }
        };
        self.record_lost(cursor, &mut catch_up);
        self.record_released(cursor, &mut catch_up);
        catch_up.next = self.first_after(&catch_up.positions);
        if is_new && self.resumes(index, asked) {
            self.record_chopped(&mut catch_up);
            catch_up.add_younger(asked.start, &self.streams);
        } else if !is_buffered(&self.buffer, filter, asked.selector) {
            let in_force = self.in_force_for(cursor, asked).unwrap_or(InForceSince::Untold);
            self.record_unbuffered(cursor, in_force, &mut catch_up);
        }
        Ok(BeginAt::CatchUp(Box::new(catch_up)))
    }

    /// Since when a requested interest is in force, if the subscription had the same so far.
    fn in_force_for(&self, cursor: Option<u32>, asked: &Filter<'_>) -> Option<InForceSince> {
        let cursor = cursor.map(|id| self.cursors.get(id))?;
        let known = self.router.get(cursor.subscription).selector.as_deref();
        let is_same = known == asked.selector.map(ToString::to_string).as_deref();
        is_same.then_some(cursor.began.in_force)
    }

    /// Adds gaps for events from before the own interest was in force, unless a log counts for
    /// them: they were sent for other subscriptions' sake. If it is unknown since when, that is
    /// some tick beyond the passed ones.
    pub(super) fn record_unbuffered(&self, cursor: Option<u32>, in_force: InForceSince, catch_up: &mut CatchUp) {
        let remote = cursor.and_then(|id| self.cursors.durable(id)).map(|durable| &durable.remote.since);
        for (pubend, passed, since) in self.streams.remote_reaches() {
            let reach = match in_force {
                // The tick may be late for all other streams, from a broker whose clock is ahead.
                InForceSince::After(tick) => tick.min(passed.max(since)),
                _ => passed,
            };
            let counts = remote.filter(|remote| remote.has(pubend)).map_or(NOTHING, |remote| remote.get(pubend));
            let (from, to) = (catch_up.positions.get(pubend), counts.min(reach));
            // Events of an ended stream are at no broker any more.
            let has_ended = self.streams.has_ended_in(pubend);
            let reason = if has_ended { GapReason::Lost } else { GapReason::NotBuffered };
            catch_up.gaps.add(Gap { pubend, from, to, reason });
        }
    }

    /// As [`Broker::record_unbuffered`], for an imported subscription, whose interest may be in
    /// force at its previous broker, but not here.
    pub(crate) fn record_unbuffered_of(&self, id: u32, catch_up: &mut CatchUp) -> bool {
        let known = self.router.get(self.cursors.get(id).subscription);
        let filter = SharedFilter::parse(&known.text).expect("it was checked when it was made").filter;
        let is_buffered = is_buffered(&self.buffer, filter, known.selector.as_deref().map(remembered).as_ref());
        if !is_buffered {
            self.record_unbuffered(Some(id), InForceSince::Untold, catch_up);
        }
        is_buffered
    }

    /// Adds gaps for events that a durable subscription had acknowledged, and asks for again, but
    /// that were given up since.
    fn record_released(&self, cursor: Option<u32>, catch_up: &mut CatchUp) {
        let Some(durable) = cursor.and_then(|id| self.cursors.durable(id)) else { return };
        let position = self.durable_position(cursor.expect("it is durable"));
        for (own, chopped) in self.store.release.chopped.iter().enumerate() {
            let pubend = self.streams.logged().host().reliable(own as u8);
            let (from, to) =
                (catch_up.positions.get(pubend).max(durable.start.get(own)), position.acked[own].min(*chopped));
            catch_up.gaps.add(Gap { pubend, from, to, reason: GapReason::Released });
        }
    }

    fn named(&self, now: Time, start: Start<'_>, partitions: &PartitionSet) -> Result<CatchUp, Refusal> {
        match start {
            Start::Own => unreachable!("the caller has looked"),
            Start::Token(token, later) => self.after_token(now, token, later),
            Start::After(ids) => self.after_ids(now, ids),
            Start::Since(since) if since > now => Err(Refusal::FutureStart),
            Start::Since(since) => {
                let mut catch_up = CatchUp::at(Positions::default());
                for (pubend, birth) in self.streams.births() {
                    let from = self.streams.nameable(pubend, Tick(since.as_nanos()));
                    catch_up.positions.set(pubend, from.max(birth));
                    // Streams here before this one are gone.
                    catch_up.gaps.add(Gap { pubend, from, to: birth, reason: GapReason::Lost });
                }
                Ok(catch_up)
            }
            Start::Earliest => {
                let mut catch_up = CatchUp::at(self.streams.births().collect());
                let gone = |pubend| (pubend, self.cache.incomplete(partitions, pubend));
                catch_up.forgiven = self.streams.births().map(|(pubend, _)| gone(pubend)).collect();
                Ok(catch_up)
            }
        }
    }

    /// The serial of the first event that may lie after these positions.
    pub(crate) fn first_after(&self, positions: &Positions) -> u64 {
        let behind = self.streams.positions().filter(|(pubend, last)| positions.get(*pubend) < *last);
        let first = behind.map(|(pubend, _)| self.cache.serial_for(pubend, positions.get(pubend))).min();
        first.unwrap_or(self.serial + 1)
    }

    /// As [`Broker::first_after`], for a cursor in catch-up, without its detached streams.
    pub(super) fn first_of_catch_up(&self, id: u32) -> u64 {
        let cursor = self.cursors.get(id);
        let mut positions = cursor.catch_up.as_ref().expect("it lags").positions.clone();
        for (pubend, passed) in self.streams.positions().filter(|(pubend, _)| cursor.is_detached(*pubend)) {
            positions.set(pubend, passed);
        }
        self.first_after(&positions)
    }

    fn after_token(&self, now: Time, token: &CheckpointToken, later: &[EventId]) -> Result<CatchUp, Refusal> {
        if token.deployment() != self.sessions.limits.deployment {
            return Err(Refusal::OtherDeployment);
        }
        let mut positions = self.streams.positions_in(token);
        for id in later {
            positions.advance(id.pubend, id.tick);
        }
        self.checked(now, (positions, token.common()), Gaps::default())
    }

    fn after_ids(&self, now: Time, ids: &[EventId]) -> Result<CatchUp, Refusal> {
        let mut positions = Positions::default();
        for id in ids {
            positions.advance(id.pubend, id.tick);
        }
        let smallest = ids.iter().map(|id| id.tick.0).min().unwrap_or(0);
        let assumed = Tick(smallest.saturating_sub(ASSUMED.as_nanos() as u64));
        let mut gaps = Gaps::default();
        for (pubend, birth) in self.streams.births() {
            let assumed = self.streams.nameable(pubend, assumed);
            if ids.iter().all(|id| id.pubend != pubend) && birth < assumed {
                positions.set(pubend, assumed);
                gaps.add(Gap { pubend, from: birth, to: assumed, reason: GapReason::Assumed });
            }
        }
        self.checked(now, (positions, Tick(smallest)), gaps)
    }

    /// Positions that this broker can begin from: a position ahead of it is refused, an ended
    /// stream is a gap, and one that is not named begins at its birth. A stream that began before
    /// `named`, and has ended, is not named in tokens any more.
    fn checked(
        &self,
        now: Time,
        (mut positions, named): (Positions, Tick),
        mut gaps: Gaps,
    ) -> Result<CatchUp, Refusal> {
        let latest = Tick(now.after(AHEAD_MAX).as_nanos());
        // One of several brokers may not know all others yet, and each of them has its own clock.
        let is_alone = !self.overlay.is_open();
        let ended_hosts = |pubend: PubendId| self.streams.ended_at(pubend.host());
        let is_ended = |pubend: PubendId| !self.streams.knows(pubend) && (is_alone || ended_hosts(pubend).is_some());
        if !is_alone {
            self.bound_strangers(&mut positions, &mut gaps);
        }
        // The clock may have been set back since.
        let reached = self.streams.reached(now);
        if is_alone && positions.iter().filter(|(pubend, _)| is_ended(*pubend)).count() > STRANGERS_MAX {
            return Err(Refusal::TooManyStrangers);
        }
        for (pubend, tick) in positions.iter() {
            if self.streams.closed(pubend).map_or(is_alone && tick > latest, |closed| tick > closed) {
                return Err(Refusal::FutureStart);
            }
            if is_ended(pubend) {
                let to = ended_hosts(pubend).unwrap_or(reached.max(Tick(tick.0.saturating_add(1))));
                gaps.add(Gap { pubend, from: tick, to, reason: GapReason::Lost });
            }
        }
        positions.retain(|pubend| !is_ended(pubend));
        if fault!(self, StrangersForgotten) {
            positions.retain(|pubend| self.streams.knows(pubend));
        }
        // A token does not name an ended stream once its end was told, as may be the case here.
        for remote in self.streams.ended().flat_map(|host| self.streams.of_host(host)) {
            let (pubend, from, to) = (remote.pubend, remote.birth, remote.passed);
            if positions.get(pubend) == Tick(0) && named >= from {
                positions.set(pubend, to);
                gaps.add(Gap { pubend, from, to, reason: GapReason::Lost });
            }
        }
        for (pubend, birth) in self.streams.births() {
            positions.advance(pubend, birth);
        }
        Ok(CatchUp { gaps, ..CatchUp::at(positions) })
    }

    /// Keeps positions in unknown streams, which other brokers may know: at most [`STRANGERS_MAX`],
    /// those with the greatest ticks. A broker that knows no others yet keeps all.
    fn bound_strangers(&self, positions: &mut Positions, gaps: &mut Gaps) {
        if self.overlay.net.knows_no_others() {
            return;
        }
        let mut strangers: Vec<(Tick, PubendId)> = positions
            .iter()
            .filter(|(pubend, _)| !self.streams.knows(*pubend))
            .map(|(pubend, tick)| (tick, pubend))
            .collect();
        strangers.sort_unstable();
        strangers.truncate(strangers.len().saturating_sub(STRANGERS_MAX));
        for (from, pubend) in &strangers {
            let to = Tick(from.0.saturating_add(1));
            gaps.add(Gap { pubend: *pubend, from: *from, to, reason: GapReason::Lost });
        }
        positions.retain(|pubend| strangers.iter().all(|(_, stranger)| *stranger != pubend));
    }

    /// Makes, changes or ends the cursor of a subscription, `subscription` in the router; returns
    /// the cursor.
    pub(crate) fn follow(&mut self, now: Time, subscription: u32, follow: Follow<'_>) -> u32 {
        let Follow { index, asked, cursor, partitions, begin, logged } = follow;
        let spec = asked.spec;
        if !spec.needs_cursor() {
            if let Some(cursor) = cursor {
                self.sessions.untrack_queue(index, cursor);
                self.unfollow(cursor, asked.filter);
            }
            return NO_CURSOR;
        }
        let filter = SharedFilter::parse(asked.filter).expect("it was checked").filter;
        let is_volatile = logged.is_some() && self.router.may_be_volatile(filter);
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
            began: Began { here: self.streams.reached(now), in_force: InForceSince::Untold, is_named: false },
            silence: SilenceTimer { told_at: now, due: None },
            division: self.division.number,
            partitions,
            durable: logged.map(|logged| Box::new(Durable::new(logged, is_volatile))),
        };
        let id = match cursor {
            None => {
                self.sessions.add_cursor_after(index, self.serial);
                self.cursors.insert(new)
            }
            Some(id) => {
                self.change(id, new, logged);
                id
            }
        };
        if let BeginAt::CatchUp(catch_up) = begin {
            self.begin_at(now, id, asked, catch_up);
        }
        if logged.is_some() {
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
                let pubend = self.streams.logged().host().reliable(own as u8);
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
        let mut positions = catch_up
            .map_or_else(|| self.streams.ahead_positions(&of_cursor.ahead), |catch_up| catch_up.positions.clone());
        of_cursor.step_back_to_settled(&mut positions);
        for id in &unsent {
            step_back(&mut positions, *id);
        }
        self.token_at(&positions, catch_up.map_or(&Gaps::default(), |catch_up| &catch_up.gaps))
    }
}
