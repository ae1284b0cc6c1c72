//! Catch-up from the log: a durable subscription reads events that the cache has dropped. Parts
//! that the log has lost are gaps.

use whimbrel_event::{Event, EventId, PredecessorsBuf, Tick, Time};

use super::catchup::{CursorReader, Turn};
use super::{CatchUp, Gap, GapReason, RemoteLogs};
use crate::api::Output;
use crate::broker::Broker;
use crate::store::{FETCH_BYTES, Fetched, LENDER, LogPlan, OWN, OwnTicks, SURVEYOR, StreamName, WantedPart, stream_of};

/// Result of a step of reading the log.
pub(super) enum ReplayStep {
    /// The stream was read as far as the cache lacks it.
    Done,
    /// More of the stream can be read.
    More,
    /// The cursor's turn ends.
    Turn(Turn),
}

/// Next wanted event of a stream.
enum Ahead {
    /// A read is under way to find out.
    Unknown,
    /// No event is wanted up to there.
    Nothing(Tick),
    /// An event behind `after` is wanted; nothing is known beyond `upto`.
    Wanted { after: Tick, upto: Tick },
}

impl Broker {
    /// Gives a durable cursor in catch-up the events that the cache lacks. `None`: the cache has
    /// the rest.
    pub(super) fn replay(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut dyn Output) -> Option<Turn> {
        self.cursors.get(id).durable.as_ref()?;
        let mut has_read = false;
        // Own streams may continue that have waited for an event of another one.
        let mut goes_on = true;
        while goes_on {
            for own in 0..OWN {
                loop {
                    match self.replay_step(now, id, own, budget, out) {
                        ReplayStep::Done => break,
                        ReplayStep::More => has_read = true,
                        ReplayStep::Turn(turn) => return Some(turn),
                    }
                }
            }
            match self.replay_remote(now, id, budget, out) {
                Ok(has_read_remote) => (goes_on, has_read) = (has_read_remote, has_read | has_read_remote),
                Err(turn) => return Some(turn),
            }
        }
        if has_read {
            // The cache is read from where the log ends.
            let next = self.first_of_catch_up(id);
            self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").next = next;
        }
        None
    }

    fn replay_step(&mut self, now: Time, id: u32, own: usize, budget: &mut usize, out: &mut dyn Output) -> ReplayStep {
        let pubend = self.streams.logged().host().reliable(own as u8);
        let passed = self.streams.logged().positions()[own];
        let cursor = self.cursors.get(id);
        if cursor.is_detached(pubend) {
            return ReplayStep::Done;
        }
        let (catch_up, durable) =
            (cursor.catch_up.as_ref().expect("it lags"), cursor.durable.as_ref().expect("it is durable"));
        let at = catch_up.positions.get(pubend);
        let lacks = self.cache.incomplete(&cursor.partitions, pubend).max(durable.rare.holes[own]).min(passed);
        if at >= lacks {
            return ReplayStep::Done;
        }
        let (start, early) = (durable.start.get(own), self.store.release.early[own]);
        let start = if fault!(self, LogBeforeStart) { Tick(0) } else { start };
        let early = if fault!(self, EarlyIsSilence) { Tick(0) } else { early };
        let (is_volatile, unnamed) = (durable.may_be_volatile, durable.remote.unnamed[own]);
        let forgiven = catch_up.forgiven.get(pubend);
        let gaps = &mut self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").gaps;
        // Events from before its interest was confirmed were logged only by chance, and so were
        // those of volatile topics.
        let unlogged = if is_volatile { lacks } else { start.min(lacks) };
        if unlogged > forgiven {
            gaps.add(Gap { pubend, from: at, to: unlogged, reason: GapReason::Overwritten });
        }
        gaps.add(Gap { pubend, from: at, to: early.min(lacks), reason: GapReason::Released });
        // But by that chance, events may be there that were wanted at its previous broker.
        let from = if is_volatile || at < unnamed { at } else { at.max(start) };
        if from >= lacks {
            self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").positions.set(pubend, lacks);
            return ReplayStep::Done;
        }
        if *budget == 0 {
            return ReplayStep::Turn(Turn::Over);
        }
        match self.read_ahead(id, (own, from, lacks), budget) {
            Ahead::Unknown => ReplayStep::Turn(Turn::Blocked),
            Ahead::Nothing(upto) => {
                self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").positions.set(pubend, upto);
                ReplayStep::More
            }
            Ahead::Wanted { .. } if *budget == 0 => ReplayStep::Turn(Turn::Over),
            Ahead::Wanted { after, upto } => self.replay_slice(now, id, (own, from), (after, upto), budget, out),
        }
    }

    /// Gives a cursor the wanted events of a part of the log behind `after`, or asks for that part.
    fn replay_slice(
        &mut self,
        now: Time,
        id: u32,
        (own, from): (usize, Tick),
        (after, upto): (Tick, Tick),
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> ReplayStep {
        let pubend = self.streams.logged().host().reliable(own as u8);
        let stream = StreamName::Events(own as u8);
        let cursor = self.cursors.get_mut(id);
        let (session, durable) = (cursor.session, cursor.durable.as_deref_mut().expect("it is durable"));
        let plan = durable.rare.plan.as_deref_mut().expect("it has looked ahead");
        let Some(slice) = self.store.reads.slice(stream, after) else {
            self.store.reads.ask(session, WantedPart { stream, after, upto, bytes: plan.bytes });
            return ReplayStep::Turn(Turn::Blocked);
        };
        let upto = slice.upto.min(upto);
        let first = slice.events.partition_point(|event| event.id().tick <= after.max(from));
        let wanted = slice.events[first..].iter().take_while(|event| event.id().tick <= upto);
        let mut wanted = wanted.filter(|event| plan.wants(event.id().tick));
        // Cheap: events are handles.
        let events: Vec<Event> = wanted.by_ref().take(*budget).cloned().collect();
        let upto = wanted.next().map_or(upto, |event| Tick(event.id().tick.0 - 1));
        plan.record_found(events.len());
        let lost = slice.lost.map(|(from, to)| (from.max(after), to.min(upto)));
        if let Some((from, to)) = lost.filter(|(from, to)| plan.next(*from).is_some_and(|tick| tick <= *to)) {
            let gaps = &mut cursor.catch_up.as_mut().expect("it lags").gaps;
            gaps.add(Gap { pubend, from, to, reason: GapReason::Lost });
        }
        *budget -= events.len().clamp(1, *budget);
        let Broker { cursors, router, copies, sessions, streams, .. } = self;
        let is_alone = cursors.lagging() == 1;
        let cursor = cursors.get_mut(id);
        let mut catch_up = cursor.catch_up.take().expect("it lags");
        let whose = (pubend.host(), is_alone);
        let mut reader =
            CursorReader::new(now, whose, (cursor, &mut catch_up), (router, copies, sessions, streams), out);
        let is_whole = !events.iter().any(|event| reader.check_logged(event).is_break());
        let (is_blocked, blocked) = (reader.blocked, reader.blocked_on);
        if is_whole {
            catch_up.positions.set(pubend, upto);
        }
        cursor.catch_up = Some(catch_up);
        self.end_slice(now, id, (is_blocked, is_whole), blocked)
    }

    /// Ends a part of an own or another broker's log, of which a cursor was given as much as it
    /// takes. An event that has to wait for one of another stream detaches its stream.
    pub(super) fn end_slice(
        &mut self,
        now: Time,
        id: u32,
        (is_blocked, is_whole): (bool, bool),
        blocked: Option<(EventId, PredecessorsBuf)>,
    ) -> ReplayStep {
        if let Some((event, after)) = blocked {
            self.block_on_predecessor(now, id, event, after);
            return ReplayStep::Done;
        }
        match (is_blocked, is_whole) {
            (true, _) => ReplayStep::Turn(Turn::Blocked),
            (false, false) => ReplayStep::Turn(Turn::Over),
            (false, true) => ReplayStep::More,
        }
    }

    /// Finds the next wanted event of a stream, behind `from` and up to `lacks`.
    fn read_ahead(&mut self, id: u32, (own, from, lacks): (usize, Tick, Tick), budget: &mut usize) -> Ahead {
        let passed = self.streams.logged().positions()[own];
        let cursor = self.cursors.get_mut(id);
        let (session, durable) = (cursor.session, cursor.durable.as_deref_mut().expect("it is durable"));
        let (number, newest) = (durable.number, durable.newest.get(own));
        let unnamed = durable.remote.unnamed[own];
        let known = durable.rare.plan.take().filter(|plan| plan.is_about(own, from));
        let plan = durable.rare.plan.insert(known.unwrap_or_else(|| Box::new(LogPlan::new(own, from))));
        if plan.upto <= from {
            let since = self.store.filters.since[own].max(unnamed);
            if from < since {
                // The subscription was not named before that.
                plan.extend(since.min(lacks), None);
                plan.bytes = FETCH_BYTES;
            } else if newest <= from {
                plan.extend(lacks, Some(Vec::new()));
            } else {
                let stream = stream_of(own, number);
                let reads = &self.store.reads;
                // An event that is not durable yet has no record to be read, and its absence would
                // be believed later.
                let ends = (newest <= passed).then_some(newest);
                let part = plan.follow_chain((ends, from, lacks), number, |tick| reads.slice(stream, Tick(tick.0 - 1)));
                if part.is_none() && plan.upto <= from && fault!(self, ChainBelieved) {
                    plan.extend(lacks, Some(Vec::new()));
                }
                let part = part.or_else(|| plan.read_on((from, lacks), number, reads.slice(stream, from), budget));
                if let Some((after, upto, bytes)) = part {
                    self.store.reads.ask(session, WantedPart { stream, after, upto, bytes });
                    return Ahead::Unknown;
                }
            }
        }
        let upto = plan.upto.min(lacks);
        match plan.next(from).filter(|tick| *tick <= upto) {
            Some(tick) => Ahead::Wanted { after: Tick(tick.0 - 1), upto },
            None => Ahead::Nothing(upto),
        }
    }

    /// A part of the log was read: sessions that waited for it have their turn.
    pub(crate) fn fetched(&mut self, fetched: &Fetched<'_>) {
        if !self.store.reads.is_open(fetched.number) {
            return;
        }
        let host = self.streams.logged().host();
        for session in self.store.reads.keep(fetched, host) {
            match session {
                SURVEYOR => self.survey(),
                LENDER => self.lend_soon(self.now),
                session => self.wake(session),
            }
        }
    }

    /// Gives a session a turn for catch-up, if it is attached and has cursors in catch-up.
    pub(crate) fn wake(&mut self, index: u32) {
        if self.sessions.is_attached(index) && !self.sessions.get(index).follow.lagging.is_empty() {
            self.turn_soon(index);
        }
    }

    /// As [`Broker::record_lost`], for a cursor in catch-up from these ticks, even if its position
    /// is ahead: events without a hold are given up, and with them the place of a lost part.
    pub(crate) fn record_lost_of(&mut self, cursor: u32, at: &OwnTicks) {
        if let Some(mut catch_up) = self.cursors.get_mut(cursor).catch_up.take() {
            self.record_lost_behind(Some(cursor), &mut catch_up, at);
            self.cursors.get_mut(cursor).catch_up = Some(catch_up);
        }
    }

    /// Adds the lost parts behind the positions of a cursor to its gaps.
    pub(crate) fn record_lost(&mut self, cursor: Option<u32>, catch_up: &mut CatchUp) {
        let host = self.streams.logged().host();
        let at = core::array::from_fn(|own| catch_up.positions.get(host.reliable(own as u8)));
        self.record_lost_behind(cursor, catch_up, &at);
    }

    /// A part of a remote stream that this broker has lost may be in the log there: if that log
    /// counts for the subscription, it is read.
    fn record_lost_behind(&mut self, cursor: Option<u32>, catch_up: &mut CatchUp, at: &OwnTicks) {
        let host = self.streams.logged().host();
        for ((own, parts), at) in (0..).zip(&self.store.lost.0).zip(at) {
            for (from, to) in parts.iter() {
                let from = *at.max(from);
                catch_up.gaps.add(Gap { pubend: host.reliable(own), from, to: *to, reason: GapReason::Lost });
            }
        }
        let Broker { streams, cursors, .. } = self;
        let mut remote =
            cursor.and_then(|cursor| cursors.durable_mut(cursor)).and_then(|durable| durable.remote.in_use());
        for (pubend, parts) in streams.lost() {
            let counts = |remote: &RemoteLogs| remote.since.has(pubend) && !streams.has_ended_in(pubend);
            let mut remote = remote.as_deref_mut().filter(|remote| counts(remote));
            for (from, to) in parts.iter() {
                let from = catch_up.positions.get(pubend).max(*from);
                let until = remote.as_deref_mut().map_or(*to, |remote| {
                    remote.holes.advance(pubend, *to);
                    remote.since.get(pubend).min(*to)
                });
                catch_up.gaps.add(Gap { pubend, from, to: until, reason: GapReason::Lost });
            }
        }
    }
}

impl CursorReader<'_> {
    /// The tag with which an event was in flight before the broker restarted, or at another broker.
    pub(super) fn was_flying(&self, id: EventId) -> Option<u16> {
        let loading = self.sessions.get(self.cursor.session).inflight.loading(self.cursor.id, id)?;
        Some(loading).filter(|_| self.catch_up.positions.get(id.pubend) < id.tick && !self.has_had(id))
    }

    /// Whether an event beyond the position was acknowledged, before a restart or since.
    pub(super) fn has_had(&self, id: EventId) -> bool {
        self.cursor.durable.as_deref().is_some_and(|durable| durable.rare.beyond.contains(&id))
    }
}
