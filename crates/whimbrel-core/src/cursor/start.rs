//! The position at which a subscription begins.

use core::time::Duration;

use whimbrel_event::{CheckpointToken, EventId, PubendId, Tick, Time};
use whimbrel_selector::{SharedFilter, TopicFilter};

use super::{CatchUp, Gap, GapReason, Gaps, InForce, NOTHING, Positions};
use crate::api::{Durability, Filter, Refusal, Start};
use crate::broker::Broker;
use crate::cache::PartitionSet;
use crate::confirming::remembered;
use crate::route::NO_CURSOR;
use crate::store::OwnTicks;

/// With event ids as position, pubends without one begin this much before the least tick named.
const ASSUMED: Duration = Duration::from_secs(60);

/// Bound of the difference between brokers' clocks; a position further ahead is refused.
pub(crate) const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Most pubends of unknown brokers in a position; each of them is a gap.
const STRANGERS_MAX: usize = 64;

/// How a subscription begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// At its present position; a new one with the next event.
    Keep,
    /// Behind the consolidated stream, or at most where that stands.
    CatchUp(Box<CatchUp>),
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
                token.pubends().chain(later.iter().map(|id| (id.pubend, id.tick))).collect()
            }
            (Start::After(ids), _) => ids.iter().map(|id| (id.pubend, id.tick)).collect(),
            (Start::Since(at), _) => return assigned.map(|tick| tick.min(Tick(at.as_nanos()))),
            (Start::Earliest, _) => Vec::new(),
        };
        named.into_iter().for_each(|(pubend, tick)| positions.advance(pubend, tick));
        let host = self.streams.own.host();
        core::array::from_fn(|own| positions.get(host.pubend(own as u8)).min(assigned[own]))
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
    ) -> Result<Begin, Refusal> {
        let mut catch_up = match asked.start {
            Start::Own => {
                let awaiting_start = cursor.map(|id| self.cursors.get(id)).filter(|cursor| cursor.awaiting_start);
                let Some(awaiting_start) = awaiting_start else { return Ok(Begin::Keep) };
                let mut catch_up =
                    self.checked(now, (awaiting_start.acknowledged.clone(), Tick(0)), Gaps::default())?;
                self.record_lost(cursor, &mut catch_up);
                let in_force = self.in_force_for(cursor, asked);
                let may_lack = self.cursors.get(cursor.expect("it is there")).began.is_named || in_force.is_none();
                if may_lack && !self.is_buffered(filter, asked.selector) {
                    // The client may have been told before, but has not reported that it knows.
                    self.record_unbuffered(cursor, in_force.unwrap_or(InForce::Untold), &mut catch_up);
                }
                return Ok(Begin::CatchUp(Box::new(CatchUp {
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
            self.record_younger(asked.start, &mut catch_up);
        } else if !self.is_buffered(filter, asked.selector) {
            let in_force = self.in_force_for(cursor, asked).unwrap_or(InForce::Untold);
            self.record_unbuffered(cursor, in_force, &mut catch_up);
        }
        Ok(Begin::CatchUp(Box::new(catch_up)))
    }

    /// Since when a requested interest is in force, if the subscription had the same so far.
    fn in_force_for(&self, cursor: Option<u32>, asked: &Filter<'_>) -> Option<InForce> {
        let cursor = cursor.map(|id| self.cursors.get(id))?;
        let known = self.router.get(cursor.subscription).selector.as_deref();
        let is_same = known == asked.selector.map(ToString::to_string).as_deref();
        is_same.then_some(cursor.began.in_force)
    }

    /// Adds gaps for events from before the own interest was in force, unless a log counts for
    /// them: they were sent for other subscriptions' sake. If it is unknown since when, that is
    /// some tick beyond the passed ones.
    pub(super) fn record_unbuffered(&self, cursor: Option<u32>, in_force: InForce, catch_up: &mut CatchUp) {
        let remote = cursor.and_then(|id| self.cursors.durable(id)).map(|durable| &durable.remote.since);
        for (pubend, passed, since) in self.streams.remote_reaches() {
            let reach = match in_force {
                // The tick may be late for all other streams, from a broker whose clock is ahead.
                InForce::After(tick) => tick.min(passed.max(since)),
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
        let is_buffered = self.is_buffered(filter, known.selector.as_deref().map(remembered).as_ref());
        if !is_buffered {
            self.record_unbuffered(Some(id), InForce::Untold, catch_up);
        }
        is_buffered
    }

    /// Adds gaps for events that a durable subscription had acknowledged, and asks for again, but
    /// that were given up since.
    fn record_released(&self, cursor: Option<u32>, catch_up: &mut CatchUp) {
        let Some(durable) = cursor.and_then(|id| self.cursors.durable(id)) else { return };
        let position = self.durable_position(cursor.expect("it is durable"));
        for (own, chopped) in self.store.release.chopped.iter().enumerate() {
            let pubend = self.streams.logged().host().pubend(own as u8);
            let (from, to) =
                (catch_up.positions.get(pubend).max(durable.start[own]), position.acked[own].min(*chopped));
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
                    let from = self.nameable(pubend, Tick(since.as_nanos()));
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

    /// `tick`, or the last one before it that a token can name in that stream.
    fn nameable(&self, pubend: PubendId, tick: Tick) -> Tick {
        self.streams.closed(pubend).map_or(tick, |closed| tick.min(closed))
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
        let mut positions: Positions = token.pubends().collect();
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
            let assumed = self.nameable(pubend, assumed);
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
        let is_alone = self.overlay.is_none();
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
        if self.overlay.as_deref().is_some_and(|overlay| overlay.net.knows_no_others()) {
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

    /// The token of a subscription at these positions, which has not been told of these gaps.
    pub(crate) fn token_at(&self, positions: &Positions, gaps: &Gaps) -> CheckpointToken {
        let mut untold = positions.clone();
        for gap in gaps.iter().filter(|gap| self.streams.knows(gap.pubend)) {
            untold.set(gap.pubend, gap.from.min(positions.get(gap.pubend)));
        }
        let latest = untold.iter().map(|(_, tick)| tick).max().unwrap_or_default();
        self.token_of(latest, &untold)
    }

    /// The token of all caught-up subscriptions. Closes the own streams up to now, so that new
    /// events are later; a stream with waiting events is named with its passed position.
    pub(crate) fn caught_up_token(&mut self, now: Time) -> CheckpointToken {
        let common = self.streams.close(now);
        self.token_of(common, &self.streams.positions().collect())
    }

    fn token_of(&self, common: Tick, positions: &Positions) -> CheckpointToken {
        let mut token = self.streams.token(self.sessions.limits.deployment, common);
        for (pubend, _) in self.streams.positions() {
            token.set(pubend, positions.get(pubend));
        }
        // Named streams of unknown brokers may be known elsewhere.
        for (pubend, tick) in positions.iter().filter(|(pubend, _)| !self.streams.knows(*pubend)) {
            // If the token is full, they begin at their birth.
            let _ = token.advance(EventId { pubend, tick });
        }
        token
    }
}
