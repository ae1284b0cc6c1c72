//! What a durable subscription has of other brokers' reliable streams: their logs count for it as its own broker's does.
//!
//! What the cache here lacks is read there. Until it has come the stream is *set aside* for the subscription: it goes on with the others, also live, and gets
//! nothing of this one.

use std::collections::BTreeSet;

use whimbrel_event::{Event, EventId, HostId, Predecessors, PredecessorsBuf, PubendId, Tick, Time};

use super::catchup::{Reader, Turn};
use super::replay::Step;
use super::{Durable, Far, Gap, GapReason, Positions, Track};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::PREDECESSOR_MAX;
use crate::store::DurableNo;

/// Streams that are noted as having waited; those that do not wait any more are forgotten then.
const BARRED_MAX: usize = 16;

/// A stream whose next event comes after some of other streams: their publisher has moved in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Barred {
    pub(crate) pubend: PubendId,
    pub(crate) after: PredecessorsBuf,
    /// Until when that is waited for.
    pub(crate) until: Time,
    /// It has been waited for.
    pub(crate) is_over: bool,
}

impl Barred {
    /// Whether this is one of the events that it waits for.
    fn waits_for(&self, event: EventId) -> bool {
        self.after.iter().any(|waited| waited == event)
    }
}

impl Track {
    /// Whether a stream is set aside for it.
    pub(crate) fn is_aside(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.far.aside.has(pubend))
    }

    /// Where it stands in a stream that it has fallen behind in, or that is set aside for it.
    fn stands(&self, lag: &super::Lag, pubend: PubendId) -> Tick {
        let aside = self.durable.as_deref().filter(|durable| durable.far.aside.has(pubend));
        aside.map_or_else(|| lag.positions.get(pubend), |durable| durable.far.aside.get(pubend))
    }

    /// The events of other streams that it has to have got, or passed, before this one, and has not.
    pub(super) fn lacks_before(&self, lag: &super::Lag, id: EventId, after: Predecessors<'_>) -> PredecessorsBuf {
        let Some(durable) = self.durable.as_deref().filter(|_| !after.is_empty()) else {
            return PredecessorsBuf::new();
        };
        // Once they were waited for in vain, they are passed. A stream that has rejoined for another reason waits on.
        let barred = || durable.far.barred.iter().filter(|barred| barred.pubend == id.pubend && barred.is_over);
        let is_waited = |after: EventId| barred().any(|barred| barred.waits_for(after));
        let is_lacking = |after: &EventId| {
            after.pubend != id.pubend && self.stands(lag, after.pubend) < after.tick && !is_waited(*after)
        };
        after.iter().filter(is_lacking).collect()
    }

    /// Whether it is not known yet from where on its selector counts in a stream.
    fn awaits_selector(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.awaits_selector(pubend))
    }

    /// Until its own interest is in force it waits for these streams: where their logs count for it
    /// from where it stands, else from what has been passed here. What would be a gap before that
    /// only because nobody had asked for it here waits as well: with the version of the interest
    /// their host tells whether there was anything.
    pub(crate) fn wait_for(&mut self, passed: impl Iterator<Item = (PubendId, Tick)>) {
        let mut unsettled = Positions::default();
        for (pubend, passed) in passed {
            let is_logged = self.has_far_log(pubend);
            let lag = self.lag.as_deref_mut();
            let had = lag.as_ref().map_or(Tick(0), |lag| lag.positions.get(pubend));
            let from = match is_logged {
                // It may stand where the stream began.
                true => had.max(Tick(1)),
                false => lag.and_then(|lag| lag.gaps.take_unasked(pubend)).unwrap_or(had.max(passed)),
            };
            if from != Tick(0) {
                unsettled.set(pubend, from);
            }
        }
        self.unsettled = unsettled;
    }

    /// Whether another broker's log has what it lacks of a stream.
    pub(crate) fn has_far_log(&self, pubend: PubendId) -> bool {
        self.durable.as_deref().is_some_and(|durable| durable.far.since.has(pubend))
    }
}

impl Broker {
    /// Something of another broker's stream does not come here by itself. A durable subscription reads it there; `false`: it cannot.
    pub(crate) fn read_far_instead(&mut self, id: u32, pubend: PubendId, (from, to): (Tick, Tick)) -> bool {
        if fault!(self, GapTaken) {
            return false;
        }
        let has_ended = self.streams.has_ended(pubend.host());
        let track = self.tracks.get(id);
        if has_ended || !track.has_far_log(pubend) {
            return false;
        }
        let (is_live, is_aside) = (track.lag.is_none(), track.is_aside(pubend));
        if is_live && !is_aside {
            self.fall_behind(id, None, false);
            let lag = self.tracks.get_mut(id).lag.as_mut().expect("it lags now");
            lag.positions.set(pubend, lag.positions.get(pubend).min(from));
        }
        let track = self.tracks.get_mut(id);
        let durable = track.durable.as_deref_mut().expect("it has a far log");
        durable.far.holes.advance(pubend, to);
        let session = track.session;
        // It holds that now, wherever it stood.
        self.tracks.touch(id);
        let track = self.tracks.get(id);
        if is_aside && !track.unsettled.has(pubend) && !track.awaits_selector(pubend) {
            self.rejoin(id, pubend);
        }
        if self.sessions.is_attached(session) {
            self.catch_up_soon(id);
        }
        true
    }

    /// As [`Broker::read_far_instead`], of a stream that has waited for the own interest: it stands where that began, also if it lags for another stream's sake
    /// since a moment ago, and so where that is now. If the stream was set aside in that moment, it was there.
    pub(crate) fn read_unsettled(&mut self, id: u32, pubend: PubendId, (from, to): (Tick, Tick)) -> bool {
        let has_ended = self.streams.has_ended(pubend.host());
        let track = self.tracks.get_mut(id);
        let (is_read, is_aside) = (!has_ended && track.has_far_log(pubend), track.is_aside(pubend));
        let lag = track.lag.as_deref_mut().map(|lag| &mut lag.positions);
        let aside = track.durable.as_deref_mut().filter(|_| is_aside).map(|durable| &mut durable.far.aside);
        if let Some(positions) = aside.or(lag).filter(|_| is_read) {
            positions.set(pubend, positions.get(pubend).min(from));
        }
        self.read_far_instead(id, pubend, (from, to))
    }

    /// A stream that was set aside is followed again, from where the subscription stands in it.
    pub(crate) fn rejoin(&mut self, id: u32, pubend: PubendId) {
        let Some(durable) = self.tracks.durable_mut(id).filter(|durable| durable.far.aside.has(pubend)) else { return };
        let (number, at) = (durable.number, durable.far.aside.get(pubend));
        durable.far.aside.remove(pubend);
        self.store.far_reads.leave(pubend, number);
        if self.tracks.get(id).lag.is_none() {
            self.fall_behind(id, None, false);
        }
        let next = self.cache.serial_for(pubend, at);
        let track = self.tracks.get_mut(id);
        let (session, lag) = (track.session, track.lag.as_mut().expect("it lags now"));
        lag.positions.set(pubend, at);
        lag.next = lag.next.min(next);
        let has_kept = |durable: &&mut Durable| !durable.far.later.is_empty() || !durable.far.told.is_empty();
        if let Some(durable) = track.durable.as_deref_mut().filter(has_kept) {
            let Far { later, told, .. } = &mut *durable.far;
            for (kept, gaps) in [(later, &mut lag.gaps), (told, &mut lag.told)] {
                kept.iter().filter(|gap| gap.pubend == pubend).for_each(|gap| gaps.add(*gap));
                kept.retain(|gap| gap.pubend != pubend);
            }
        }
        if self.sessions.is_attached(session) {
            self.catch_up_soon(id);
        }
    }

    /// Whoever lags keeps where it stands in streams that were set aside as in others, and waits for nothing.
    pub(crate) fn take_back_aside(&mut self, id: u32) {
        let Some(durable) = self.tracks.durable(id) else { return };
        for (pubend, _) in durable.far.aside.clone().iter() {
            self.rejoin(id, pubend);
        }
        if let Some(durable) = self.tracks.durable_mut(id).filter(|durable| !durable.far.barred.is_empty()) {
            durable.far.barred.clear();
        }
    }

    /// Gives a durable subscription that lags what the cache lacks of other brokers' streams. Whether something was read; or how its turn ends.
    pub(super) fn replay_far(
        &mut self,
        now: Time,
        id: u32,
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> Result<bool, Turn> {
        let far = self.tracks.durable(id).map(|durable| &durable.far);
        let Some(far) = far.filter(|far| !far.since.is_empty() || !far.barred.is_empty()) else { return Ok(false) };
        let streams: Vec<PubendId> = far.since.iter().map(|(pubend, _)| pubend).collect();
        let mut has_read = self.unbar(now, id);
        loop {
            for pubend in &streams {
                loop {
                    match self.replay_far_step(now, id, *pubend, budget, out) {
                        Step::Done => break,
                        Step::More => has_read = true,
                        Step::Turn(turn) => return Err(turn),
                    }
                }
            }
            // Bounded: each turn ends the wait of a stream for an event, and none begins to wait for the same again.
            if !self.unbar(now, id) {
                return Ok(has_read);
            }
            has_read = true;
        }
    }

    fn replay_far_step(
        &mut self,
        now: Time,
        id: u32,
        pubend: PubendId,
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> Step {
        let has_ended = self.streams.has_ended(pubend.host());
        let Some(passed) = self.streams.followed(pubend) else { return Step::Done };
        let track = self.tracks.get(id);
        let durable = track.durable.as_deref().expect("it is durable");
        if durable.far.aside.has(pubend) {
            return Step::Done;
        }
        let (lag, since) = (track.lag.as_ref().expect("it lags"), durable.far.since.get(pubend));
        let unsure = durable.far.unsure.get(pubend);
        let (at, forgiven) = (lag.positions.get(pubend), lag.forgiven.get(pubend));
        // A hole may reach beyond what the consolidated stream has passed: nothing of that comes here either.
        let lacks = self.cache.incomplete(&track.partitions, pubend).min(passed).max(durable.far.holes.get(pubend));
        let (number, is_volatile) = (durable.number, durable.may_be_volatile);
        if at >= lacks {
            // Until its broker knows of it, what comes of a stream comes for others' sake.
            if (track.unsettled.has(pubend) || durable.awaits_selector(pubend)) && !has_ended {
                self.set_aside(id, pubend, at);
            }
            return Step::Done;
        }
        let gaps = &mut self.tracks.get_mut(id).lag.as_mut().expect("it lags").gaps;
        if has_ended {
            gaps.add(Gap { pubend, from: at, to: lacks, reason: GapReason::Lost });
        } else {
            // What came before its interest was confirmed was logged only by chance.
            // What its topics let go is told with what was logged among it, when that has been read.
            let unlogged = since.max(unsure).min(lacks);
            if unlogged > forgiven && !is_volatile {
                gaps.add(Gap { pubend, from: at, to: unlogged, reason: GapReason::Overwritten });
            }
        }
        let from = if is_volatile { at } else { at.max(since) };
        if from >= lacks || has_ended {
            self.tracks.get_mut(id).lag.as_mut().expect("it lags").positions.set(pubend, lacks);
            return Step::More;
        }
        if *budget == 0 {
            return Step::Turn(Turn::Over);
        }
        if self.store.far_reads.slice(pubend, from, number).is_none() {
            self.set_aside(id, pubend, from);
            self.store.far_reads.wait(pubend, number, id);
            self.read_far_soon(now, pubend);
            return Step::Done;
        }
        self.replay_far_slice(now, id, (pubend, at, from, lacks), budget, out)
    }

    /// Another selector counts in another broker's stream from when that knows of it: until then the stream is set aside.
    pub(crate) fn set_all_aside(&mut self, id: u32) {
        let track = self.tracks.get(id);
        let Some(durable) = track.durable.as_deref() else { return };
        let at = |pubend| match &track.lag {
            Some(lag) => lag.positions.get(pubend),
            None => self.streams.passed(pubend).max(track.ahead.get(pubend)),
        };
        let streams = durable.far.since.iter().map(|(pubend, _)| pubend);
        let streams: Vec<(PubendId, Tick)> =
            streams.filter(|pubend| !durable.far.aside.has(*pubend)).map(|pubend| (pubend, at(pubend))).collect();
        streams.into_iter().for_each(|(pubend, at)| self.set_aside(id, pubend, at));
    }

    fn set_aside(&mut self, id: u32, pubend: PubendId, at: Tick) {
        let lag = self.tracks.get_mut(id).lag.as_mut();
        let (gap, told) = lag.map_or((None, None), |lag| (lag.gaps.cut(pubend, at), lag.told.cut(pubend, at)));
        let durable = self.tracks.durable_mut(id).expect("it is durable");
        durable.far.aside.set(pubend, at);
        // Told before what is read of the stream it would hide that.
        durable.far.later.extend(gap);
        durable.far.told.extend(told);
        self.sessions.stats.streams_set_aside += 1;
    }

    /// Gives a subscription what it wants of a part that was read.
    fn replay_far_slice(
        &mut self,
        now: Time,
        id: u32,
        (pubend, at, from, lacks): (PubendId, Tick, Tick, Tick),
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> Step {
        let number = self.tracks.durable(id).expect("it is durable").number;
        let slice = self.store.far_reads.slice(pubend, from, number).expect("the caller has looked");
        let upto = slice.upto.min(lacks);
        let first = slice.events.partition_point(|event| event.id().tick <= from);
        let mut wanted = slice.events[first..].iter().take_while(|event| event.id().tick <= upto);
        // Cheap: they are handles.
        let events: Vec<Event> = wanted.by_ref().take(*budget).cloned().collect();
        let upto = wanted.next().map_or(upto, |event| Tick(event.id().tick.0 - 1));
        let released = slice.released.min(upto);
        let lost = slice.lost.iter().map(|(after, to)| ((*after).max(from), (*to).min(upto)));
        let lost: BTreeSet<(Tick, Tick)> = lost.filter(|(after, to)| after < to).collect();
        *budget -= events.len().clamp(1, *budget);
        let host = self.streams.logged().host();
        let Broker { tracks, router, copies, sessions, streams, .. } = self;
        let is_alone = tracks.lagging() == 1;
        let track = tracks.get_mut(id);
        let mut lag = track.lag.take().expect("it lags");
        let released = if fault!(self, FarEarlyIsSilence) { Tick(0) } else { released };
        let is_volatile = track.durable.as_deref().is_some_and(|durable| durable.may_be_volatile);
        if is_volatile && upto > lag.forgiven.get(pubend) {
            lag.gaps.add(Gap { pubend, from: at, to: upto, reason: GapReason::Overwritten });
        }
        if released > from {
            lag.gaps.add(Gap { pubend, from: at, to: released, reason: GapReason::Released });
        }
        let mut reader =
            Reader::new(now, (host, is_alone), (track, &mut lag), (router, copies, sessions, streams), out);
        let mut is_whole = true;
        for event in &events {
            for (after, to) in lost.iter().filter(|(_, to)| *to < event.id().tick) {
                let gap = Gap { pubend, from: *after, to: *to, reason: GapReason::Lost };
                if reader.lag.positions.get(pubend) < *to {
                    reader.lag.gaps.add(gap);
                }
            }
            if reader.look_at_logged(event).is_break() {
                is_whole = false;
                break;
            }
        }
        let (is_blocked, barred) = (reader.blocked, reader.barred);
        if is_whole {
            for (after, to) in lost.iter().filter(|(_, to)| *to > lag.positions.get(pubend)) {
                lag.gaps.add(Gap { pubend, from: *after, to: *to, reason: GapReason::Lost });
            }
            lag.positions.set(pubend, upto);
            track.note_read(pubend, upto);
        }
        track.lag = Some(lag);
        self.end_slice(now, id, (is_blocked, is_whole), barred)
    }

    /// An event comes after one of another stream that a subscription has not passed yet: its stream is set aside until then.
    pub(super) fn bar(&mut self, now: Time, id: u32, event: EventId, after: PredecessorsBuf) {
        let until = now + PREDECESSOR_MAX;
        let upto = Tick(event.tick.0 - 1);
        self.set_aside(id, event.pubend, upto);
        let durable = self.tracks.durable_mut(id).expect("streams are set aside for durable ones");
        let number = durable.number;
        let Far { barred, aside, .. } = &mut *durable.far;
        // Its stream has rejoined in between, for another reason: what it waits for already, it waits for no longer than before.
        let waits = |barred: &Barred| barred.pubend == event.pubend && !barred.is_over;
        if let Some(at) = barred.iter().position(waits) {
            let known = &mut barred[at];
            if after.iter().any(|after| known.waits_for(after)) {
                known.after = after;
                return;
            }
            barred.remove(at);
        }
        if barred.len() >= BARRED_MAX {
            barred.retain(|barred| aside.has(barred.pubend));
        }
        barred.push(Barred { pubend: event.pubend, after, until, is_over: false });
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.bar(until, (number, id));
        }
    }

    /// Streams go on that have waited for events of others for long enough, or need not wait for them any more. Whether there were some.
    pub(super) fn unbar(&mut self, now: Time, id: u32) -> bool {
        let barred = self.tracks.durable(id).map(|durable| durable.far.barred.clone()).unwrap_or_default();
        let mut is_any = false;
        for (at, Barred { pubend, after, until, is_over, .. }) in barred.into_iter().enumerate() {
            let track = self.tracks.get(id);
            // One that waits no more may be set aside for another reason.
            if is_over || !track.is_aside(pubend) {
                continue;
            }
            let lag = track.lag.as_deref().expect("it lags");
            let is_met = after.iter().all(|after| track.stands(lag, after.pubend) >= after.tick);
            let is_missing = |after: &EventId| track.stands(lag, after.pubend) < after.tick;
            let may_come = after.iter().filter(is_missing).any(|after| self.may_come(now, after.pubend.host()));
            if until <= now || !may_come {
                if let Some(overlay) = self.overlay.as_deref_mut() {
                    overlay.stats.order_breaks += u64::from(!is_met);
                }
                if let Some(barred) = self.tracks.durable_mut(id).and_then(|durable| durable.far.barred.get_mut(at)) {
                    barred.is_over = true;
                }
                self.rejoin(id, pubend);
                is_any = true;
            }
        }
        is_any
    }

    /// Whether something of a host may still come.
    fn may_come(&self, now: Time, host: HostId) -> bool {
        let is_own = host == self.streams.own.host() || host == self.streams.logged().host();
        let is_there = |overlay: &crate::overlay::Overlay| overlay.may_come_from(now, host);
        is_own || self.overlay.as_deref().is_some_and(is_there) && !self.streams.has_ended(host)
    }

    /// Subscriptions whose streams have waited for others for as long as they may have their turn.
    pub(crate) fn unbar_overdue(&mut self, overdue: Vec<(DurableNo, u32)>) {
        for (number, id) in overdue {
            let is_it = |durable: &super::Durable| durable.number == number && !durable.far.barred.is_empty();
            if !self.tracks.durable(id).is_some_and(is_it) {
                continue;
            }
            if self.tracks.get(id).lag.is_none() {
                self.fall_behind(id, None, false);
            }
            if self.sessions.is_attached(self.tracks.get(id).session) {
                self.catch_up_soon(id);
            }
        }
    }

    /// Streams have ended: what was to be read of them cannot be any more, and what has not been told as a gap is lost.
    pub(crate) fn far_ended(&mut self, host: HostId) {
        self.store.far_reads.give_up(host);
        for id in self.tracks.ids() {
            // What it has passed of them is written as it is, so that it is not told again as lost.
            self.tracks.touch(id);
            let aside = self.tracks.durable(id).map(|durable| durable.far.aside.clone()).unwrap_or_default();
            for (pubend, _) in aside.iter().filter(|(pubend, _)| pubend.host() == host) {
                self.rejoin(id, pubend);
            }
            if let Some(lag) = self.tracks.get_mut(id).lag.as_deref_mut() {
                lag.gaps.end(host);
            }
        }
    }
}
