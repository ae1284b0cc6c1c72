//! Other brokers' reliable streams for a durable subscription: their logs count for it as its own
//! broker's does.
//!
//! Events that the cache here lacks are read there. Until then the stream is *detached* from the
//! cursor, which continues with the others, even caught up, and gets nothing of this one.

use std::collections::BTreeSet;

use whimbrel_event::{Event, EventId, HostId, Predecessors, PredecessorsBuf, PubendId, Tick, Time};

use super::catchup::{CursorReader, Turn};
use super::replay::ReplayStep;
use super::{Cursor, Durable, Gap, GapReason, Positions, RemoteLogs};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::PREDECESSOR_MAX;
use crate::store::DurableNo;

/// Records of blocked streams above which those that no longer wait are forgotten.
const BLOCKED_MAX: usize = 16;

/// A stream whose next event has predecessors in other streams: their publisher has moved in
/// between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockedStream {
    pub(crate) pubend: PubendId,
    pub(crate) after: PredecessorsBuf,
    /// When the wait ends.
    pub(crate) until: Time,
    /// The wait is over.
    pub(crate) is_over: bool,
}

impl BlockedStream {
    /// Whether an event is one of the predecessors.
    fn waits_for(&self, event: EventId) -> bool {
        self.after.iter().any(|waited| waited == event)
    }
}

impl Cursor {
    /// Whether a stream is detached from the cursor.
    pub(crate) fn is_detached(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.remote.detached.has(pubend))
    }

    /// The cursor's position in a stream, from catch-up or of the detached stream.
    fn position_in(&self, catch_up: &super::CatchUp, pubend: PubendId) -> Tick {
        let detached = self.durable.as_deref().filter(|durable| durable.remote.detached.has(pubend));
        detached.map_or_else(|| catch_up.positions.get(pubend), |durable| durable.remote.detached.get(pubend))
    }

    /// The predecessors of an event in other streams that the cursor has not got or passed yet.
    pub(super) fn lacks_before(
        &self,
        catch_up: &super::CatchUp,
        id: EventId,
        after: Predecessors<'_>,
    ) -> PredecessorsBuf {
        let Some(durable) = self.durable.as_deref().filter(|_| !after.is_empty()) else {
            return PredecessorsBuf::new();
        };
        // A predecessor counts as passed once the wait for it is over. A stream that has rejoined
        // for another reason waits on.
        let blocked = || durable.remote.blocked.iter().filter(|blocked| blocked.pubend == id.pubend && blocked.is_over);
        let is_waited = |after: EventId| blocked().any(|blocked| blocked.waits_for(after));
        let is_lacking = |after: &EventId| {
            after.pubend != id.pubend && self.position_in(catch_up, after.pubend) < after.tick && !is_waited(*after)
        };
        after.iter().filter(is_lacking).collect()
    }

    /// Whether it is unknown yet since when the selector counts in a stream.
    fn awaits_selector(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.awaits_selector(pubend))
    }

    /// Sets which streams the cursor waits for until its own interest is in force: from its
    /// position where the log counts, else from what was passed here. A gap before that with only
    /// the reason [`GapReason::NotBuffered`] waits as well: with the version of the interest, the
    /// host tells whether there was any event.
    pub(crate) fn wait_for(&mut self, passed: impl Iterator<Item = (PubendId, Tick)>) {
        let mut unsettled = Positions::default();
        for (pubend, passed) in passed {
            let is_logged = self.has_remote_log(pubend);
            let catch_up = self.catch_up.as_deref_mut();
            let had = catch_up.as_ref().map_or(Tick(0), |catch_up| catch_up.positions.get(pubend));
            let from = match is_logged {
                // The cursor may stand where the stream began.
                true => had.max(Tick(1)),
                false => catch_up.and_then(|catch_up| catch_up.gaps.take_unasked(pubend)).unwrap_or(had.max(passed)),
            };
            if from != Tick(0) {
                unsettled.set(pubend, from);
            }
        }
        self.unsettled = unsettled;
    }

    /// Whether another broker's log has the events that the cursor lacks of a stream.
    pub(crate) fn has_remote_log(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.remote.since.has(pubend))
    }
}

impl Broker {
    /// A range of another broker's stream is missing here. A durable cursor reads it from the log
    /// there; `false` if it cannot.
    pub(crate) fn read_remote_instead(&mut self, id: u32, pubend: PubendId, (from, to): (Tick, Tick)) -> bool {
        if fault!(self, GapTaken) {
            return false;
        }
        let has_ended = self.streams.has_ended(pubend.host());
        let cursor = self.cursors.get(id);
        if has_ended || !cursor.has_remote_log(pubend) {
            return false;
        }
        let (is_live, is_aside) = (cursor.catch_up.is_none(), cursor.is_detached(pubend));
        if is_live && !is_aside {
            self.fall_behind(id, None, false);
            let catch_up = self.cursors.get_mut(id).catch_up.as_mut().expect("it lags now");
            catch_up.positions.set(pubend, catch_up.positions.get(pubend).min(from));
        }
        let cursor = self.cursors.get_mut(id);
        let durable = cursor.durable.as_deref_mut().expect("it has a far log");
        durable.remote.holes.advance(pubend, to);
        let session = cursor.session;
        // From now on it holds that range, wherever it stood.
        self.cursors.touch(id);
        let cursor = self.cursors.get(id);
        if is_aside && !cursor.unsettled.has(pubend) && !cursor.awaits_selector(pubend) {
            self.rejoin(id, pubend);
        }
        if self.sessions.is_attached(session) {
            self.catch_up_soon(id);
        }
        true
    }

    /// As [`Broker::read_remote_instead`], for a stream that has waited for the own interest: moves
    /// the position back to `from`, where the wait began, also if the cursor just began catch-up
    /// because of another stream, or the stream was just detached.
    pub(crate) fn read_unsettled(&mut self, id: u32, pubend: PubendId, (from, to): (Tick, Tick)) -> bool {
        let has_ended = self.streams.has_ended(pubend.host());
        let cursor = self.cursors.get_mut(id);
        let (is_read, is_aside) = (!has_ended && cursor.has_remote_log(pubend), cursor.is_detached(pubend));
        let catch_up = cursor.catch_up.as_deref_mut().map(|catch_up| &mut catch_up.positions);
        let detached = cursor.durable.as_deref_mut().filter(|_| is_aside).map(|durable| &mut durable.remote.detached);
        if let Some(positions) = detached.or(catch_up).filter(|_| is_read) {
            positions.set(pubend, positions.get(pubend).min(from));
        }
        self.read_remote_instead(id, pubend, (from, to))
    }

    /// Attaches a detached stream again, at the cursor's position in it.
    pub(crate) fn rejoin(&mut self, id: u32, pubend: PubendId) {
        let Some(durable) = self.cursors.durable_mut(id).filter(|durable| durable.remote.detached.has(pubend)) else {
            return;
        };
        let (number, at) = (durable.number, durable.remote.detached.get(pubend));
        durable.remote.detached.remove(pubend);
        self.store.remote_reads.leave(pubend, number);
        if self.cursors.get(id).catch_up.is_none() {
            self.fall_behind(id, None, false);
        }
        let next = self.cache.serial_for(pubend, at);
        let cursor = self.cursors.get_mut(id);
        let (session, catch_up) = (cursor.session, cursor.catch_up.as_mut().expect("it lags now"));
        catch_up.positions.set(pubend, at);
        catch_up.next = catch_up.next.min(next);
        let has_kept = |durable: &&mut Durable| !durable.remote.later.is_empty() || !durable.remote.told.is_empty();
        if let Some(durable) = cursor.durable.as_deref_mut().filter(has_kept) {
            let RemoteLogs { later, told, .. } = &mut *durable.remote;
            for (kept, gaps) in [(later, &mut catch_up.gaps), (told, &mut catch_up.told)] {
                kept.iter().filter(|gap| gap.pubend == pubend).for_each(|gap| gaps.add(*gap));
                kept.retain(|gap| gap.pubend != pubend);
            }
        }
        if self.sessions.is_attached(session) {
            self.catch_up_soon(id);
        }
    }

    /// Attaches all detached streams of a cursor again, which is or will be in catch-up, and ends
    /// its waits.
    pub(crate) fn reattach_streams(&mut self, id: u32) {
        let Some(durable) = self.cursors.durable(id) else { return };
        for (pubend, _) in durable.remote.detached.clone().iter() {
            self.rejoin(id, pubend);
        }
        if let Some(durable) = self.cursors.durable_mut(id).filter(|durable| !durable.remote.blocked.is_empty()) {
            durable.remote.blocked.clear();
        }
    }

    /// Gives a durable cursor in catch-up the events of other brokers' streams that the cache
    /// lacks. Returns whether some were read; or how its turn ends.
    pub(super) fn replay_remote(
        &mut self,
        now: Time,
        id: u32,
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> Result<bool, Turn> {
        let remote = self.cursors.durable(id).map(|durable| &durable.remote);
        let Some(remote) = remote.filter(|remote| !remote.since.is_empty() || !remote.blocked.is_empty()) else {
            return Ok(false);
        };
        let streams: Vec<PubendId> = remote.since.iter().map(|(pubend, _)| pubend).collect();
        let mut has_read = self.unblock(now, id);
        loop {
            for pubend in &streams {
                loop {
                    match self.replay_remote_step(now, id, *pubend, budget, out) {
                        ReplayStep::Done => break,
                        ReplayStep::More => has_read = true,
                        ReplayStep::Turn(turn) => return Err(turn),
                    }
                }
            }
            // Bounded: each round ends the wait of a stream for an event, and no stream begins to
            // wait for the same event again.
            if !self.unblock(now, id) {
                return Ok(has_read);
            }
            has_read = true;
        }
    }

    fn replay_remote_step(
        &mut self,
        now: Time,
        id: u32,
        pubend: PubendId,
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> ReplayStep {
        let has_ended = self.streams.has_ended(pubend.host());
        let Some(passed) = self.streams.followed(pubend) else { return ReplayStep::Done };
        let cursor = self.cursors.get(id);
        let durable = cursor.durable.as_deref().expect("it is durable");
        if durable.remote.detached.has(pubend) {
            return ReplayStep::Done;
        }
        let (catch_up, since) = (cursor.catch_up.as_ref().expect("it lags"), durable.remote.since.get(pubend));
        let unsure = durable.remote.unsure.get(pubend);
        let (at, forgiven) = (catch_up.positions.get(pubend), catch_up.forgiven.get(pubend));
        // A hole may reach beyond what the consolidated stream has passed: no events of it are sent
        // here either.
        let lacks = self.cache.incomplete(&cursor.partitions, pubend).min(passed).max(durable.remote.holes.get(pubend));
        let (number, is_volatile) = (durable.number, durable.may_be_volatile);
        if at >= lacks {
            // Until its broker knows of the interest, events of a stream are sent for other
            // subscriptions' sake.
            if (cursor.unsettled.has(pubend) || durable.awaits_selector(pubend)) && !has_ended {
                self.detach_stream(id, pubend, at);
            }
            return ReplayStep::Done;
        }
        let gaps = &mut self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").gaps;
        if has_ended {
            gaps.add(Gap { pubend, from: at, to: lacks, reason: GapReason::Lost });
        } else {
            // Events from before its interest was confirmed were logged only by chance. A gap of
            // volatile topics is told together with logged events among it, once these were read.
            let unlogged = since.max(unsure).min(lacks);
            if unlogged > forgiven && !is_volatile {
                gaps.add(Gap { pubend, from: at, to: unlogged, reason: GapReason::Overwritten });
            }
        }
        let from = if is_volatile { at } else { at.max(since) };
        if from >= lacks || has_ended {
            self.cursors.get_mut(id).catch_up.as_mut().expect("it lags").positions.set(pubend, lacks);
            return ReplayStep::More;
        }
        if *budget == 0 {
            return ReplayStep::Turn(Turn::Over);
        }
        if self.store.remote_reads.slice(pubend, from, number).is_none() {
            self.detach_stream(id, pubend, from);
            self.store.remote_reads.wait(pubend, number, id);
            self.read_remote_soon(now, pubend);
            return ReplayStep::Done;
        }
        self.replay_remote_slice(now, id, (pubend, at, from, lacks), budget, out)
    }

    /// Detaches all streams of a cursor with a new selector, until other brokers know of that and
    /// it counts there.
    pub(crate) fn detach_all_streams(&mut self, id: u32) {
        let cursor = self.cursors.get(id);
        let Some(durable) = cursor.durable.as_deref() else { return };
        let at = |pubend| match &cursor.catch_up {
            Some(catch_up) => catch_up.positions.get(pubend),
            None => self.streams.passed(pubend).max(cursor.ahead.get(pubend)),
        };
        let streams = durable.remote.since.iter().map(|(pubend, _)| pubend);
        let streams: Vec<(PubendId, Tick)> =
            streams.filter(|pubend| !durable.remote.detached.has(*pubend)).map(|pubend| (pubend, at(pubend))).collect();
        streams.into_iter().for_each(|(pubend, at)| self.detach_stream(id, pubend, at));
    }

    fn detach_stream(&mut self, id: u32, pubend: PubendId, at: Tick) {
        let catch_up = self.cursors.get_mut(id).catch_up.as_mut();
        let (gap, told) =
            catch_up.map_or((None, None), |catch_up| (catch_up.gaps.cut(pubend, at), catch_up.told.cut(pubend, at)));
        let durable = self.cursors.durable_mut(id).expect("it is durable");
        durable.remote.detached.set(pubend, at);
        // If it were told before events of the stream are read, it would hide them.
        durable.remote.later.extend(gap);
        durable.remote.told.extend(told);
        self.sessions.stats.streams_set_aside += 1;
    }

    /// Gives a cursor the wanted events of a part that was read.
    fn replay_remote_slice(
        &mut self,
        now: Time,
        id: u32,
        (pubend, at, from, lacks): (PubendId, Tick, Tick, Tick),
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> ReplayStep {
        let number = self.cursors.durable(id).expect("it is durable").number;
        let slice = self.store.remote_reads.slice(pubend, from, number).expect("the caller has looked");
        let upto = slice.upto.min(lacks);
        let first = slice.events.partition_point(|event| event.id().tick <= from);
        let mut wanted = slice.events[first..].iter().take_while(|event| event.id().tick <= upto);
        // Cheap: events are handles.
        let events: Vec<Event> = wanted.by_ref().take(*budget).cloned().collect();
        let upto = wanted.next().map_or(upto, |event| Tick(event.id().tick.0 - 1));
        let released = slice.released.min(upto);
        let lost = slice.lost.iter().map(|(after, to)| ((*after).max(from), (*to).min(upto)));
        let lost: BTreeSet<(Tick, Tick)> = lost.filter(|(after, to)| after < to).collect();
        *budget -= events.len().clamp(1, *budget);
        let host = self.streams.logged().host();
        let Broker { cursors, router, copies, sessions, streams, .. } = self;
        let is_alone = cursors.lagging() == 1;
        let cursor = cursors.get_mut(id);
        let mut catch_up = cursor.catch_up.take().expect("it lags");
        let released = if fault!(self, FarEarlyIsSilence) { Tick(0) } else { released };
        let is_volatile = cursor.durable.as_deref().is_some_and(|durable| durable.may_be_volatile);
        if is_volatile && upto > catch_up.forgiven.get(pubend) {
            catch_up.gaps.add(Gap { pubend, from: at, to: upto, reason: GapReason::Overwritten });
        }
        if released > from {
            catch_up.gaps.add(Gap { pubend, from: at, to: released, reason: GapReason::Released });
        }
        let mut reader =
            CursorReader::new(now, (host, is_alone), (cursor, &mut catch_up), (router, copies, sessions, streams), out);
        let mut is_whole = true;
        for event in &events {
            for (after, to) in lost.iter().filter(|(_, to)| *to < event.id().tick) {
                let gap = Gap { pubend, from: *after, to: *to, reason: GapReason::Lost };
                if reader.catch_up.positions.get(pubend) < *to {
                    reader.catch_up.gaps.add(gap);
                }
            }
            if reader.check_logged(event).is_break() {
                is_whole = false;
                break;
            }
        }
        let (is_blocked, blocked) = (reader.blocked, reader.blocked_on);
        if is_whole {
            for (after, to) in lost.iter().filter(|(_, to)| *to > catch_up.positions.get(pubend)) {
                catch_up.gaps.add(Gap { pubend, from: *after, to: *to, reason: GapReason::Lost });
            }
            catch_up.positions.set(pubend, upto);
            cursor.record_read(pubend, upto);
        }
        cursor.catch_up = Some(catch_up);
        self.end_slice(now, id, (is_blocked, is_whole), blocked)
    }

    /// An event has a predecessor in another stream that the cursor has not passed yet: detaches
    /// the event's stream until then.
    pub(super) fn block_on_predecessor(&mut self, now: Time, id: u32, event: EventId, after: PredecessorsBuf) {
        let until = now + PREDECESSOR_MAX;
        let upto = Tick(event.tick.0 - 1);
        self.detach_stream(id, event.pubend, upto);
        let durable = self.cursors.durable_mut(id).expect("streams are set aside for durable ones");
        let number = durable.number;
        let RemoteLogs { blocked, detached, .. } = &mut *durable.remote;
        // If its stream has rejoined in between, for another reason, the deadline of a wait for the
        // same events stays.
        let waits = |blocked: &BlockedStream| blocked.pubend == event.pubend && !blocked.is_over;
        if let Some(at) = blocked.iter().position(waits) {
            let known = &mut blocked[at];
            if after.iter().any(|after| known.waits_for(after)) {
                known.after = after;
                return;
            }
            blocked.remove(at);
        }
        if blocked.len() >= BLOCKED_MAX {
            blocked.retain(|blocked| detached.has(blocked.pubend));
        }
        blocked.push(BlockedStream { pubend: event.pubend, after, until, is_over: false });
        self.overlay.block_until(until, (number, id));
    }

    /// Continues streams that have waited for predecessors for long enough, or need not wait any
    /// more. Returns whether there were any.
    pub(super) fn unblock(&mut self, now: Time, id: u32) -> bool {
        let blocked = self.cursors.durable(id).map(|durable| durable.remote.blocked.clone()).unwrap_or_default();
        let mut is_any = false;
        for (at, BlockedStream { pubend, after, until, is_over, .. }) in blocked.into_iter().enumerate() {
            let cursor = self.cursors.get(id);
            // A stream that no longer waits may be detached for another reason.
            if is_over || !cursor.is_detached(pubend) {
                continue;
            }
            let catch_up = cursor.catch_up.as_deref().expect("it lags");
            let is_met = after.iter().all(|after| cursor.position_in(catch_up, after.pubend) >= after.tick);
            let is_missing = |after: &EventId| cursor.position_in(catch_up, after.pubend) < after.tick;
            let may_come = after.iter().filter(is_missing).any(|after| self.may_come(now, after.pubend.host()));
            if until <= now || !may_come {
                self.overlay.stats.order_breaks += u64::from(!is_met);
                if let Some(blocked) =
                    self.cursors.durable_mut(id).and_then(|durable| durable.remote.blocked.get_mut(at))
                {
                    blocked.is_over = true;
                }
                self.rejoin(id, pubend);
                is_any = true;
            }
        }
        is_any
    }

    /// Whether events of a host may still arrive.
    fn may_come(&self, now: Time, host: HostId) -> bool {
        let is_own = host == self.streams.own.host() || host == self.streams.logged().host();
        is_own || self.overlay.may_come_from(now, host) && !self.streams.has_ended(host)
    }

    /// Gives a turn to cursors whose streams have waited for predecessors for as long as they may.
    pub(crate) fn unblock_overdue(&mut self, overdue: Vec<(DurableNo, u32)>) {
        for (number, id) in overdue {
            let is_it = |durable: &super::Durable| durable.number == number && !durable.remote.blocked.is_empty();
            if !self.cursors.durable(id).is_some_and(is_it) {
                continue;
            }
            if self.cursors.get(id).catch_up.is_none() {
                self.fall_behind(id, None, false);
            }
            if self.sessions.is_attached(self.cursors.get(id).session) {
                self.catch_up_soon(id);
            }
        }
    }

    /// Streams have ended: missing events cannot be read any more, and untold gaps are lost.
    pub(crate) fn remote_ended(&mut self, host: HostId) {
        self.store.remote_reads.give_up(host);
        for id in self.cursors.ids() {
            // The position passed in them is written as it is, so that it is not told again as
            // lost.
            self.cursors.touch(id);
            let detached = self.cursors.durable(id).map(|durable| durable.remote.detached.clone()).unwrap_or_default();
            for (pubend, _) in detached.iter().filter(|(pubend, _)| pubend.host() == host) {
                self.rejoin(id, pubend);
            }
            if let Some(catch_up) = self.cursors.get_mut(id).catch_up.as_deref_mut() {
                catch_up.gaps.end(host);
            }
        }
    }
}
