//! Positions of durable subscriptions are written, and what all of them have acknowledged is given
//! up.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Qos, Tick, Time};

use super::keys::{DurableNo, Key, MapValue, OWN, OwnTicks};
use super::remote_holds::RemoteHolds;
use super::{BatchNo, Disk, StreamName};
use crate::broker::Broker;
use crate::cursor::{Cursor, NOTHING, Positions, early_grace};

/// Positions are written at most so often: after a crash, what was acknowledged since the last time
/// comes again.
pub(crate) const POSITIONS_EVERY: Duration = Duration::from_millis(10);

/// The log is given up at most so often.
pub(crate) const CHOP_EVERY: Duration = Duration::from_millis(250);

/// Positions that are written at once; the others have their turn next.
const POSITIONS_MAX: usize = 8192;

/// Tags of deliveries that are forgotten in one batch.
const FORGOTTEN_MAX: usize = 256;

/// Subscriptions that are counted at once.
const COUNT_MAX: usize = 65_536;

/// Places of subscriptions that a round looks at in one go.
const ROUND_MAX: usize = 65_536;

/// What the streams are held for, by those who hold them.
#[derive(Debug, Default)]
pub(crate) struct Holds([BTreeMap<Tick, u32>; OWN]);

impl Holds {
    /// Somebody holds the streams from other ticks on.
    pub(crate) fn change(&mut self, before: &OwnTicks, after: &OwnTicks) {
        for ((ticks, before), after) in self.0.iter_mut().zip(before).zip(after) {
            if before == after {
                continue;
            }
            if *after != NOTHING {
                *ticks.entry(*after).or_default() += 1;
            }
            if *before != NOTHING {
                let count = ticks.get_mut(before).expect("what is held is counted");
                *count -= 1;
                if *count == 0 {
                    ticks.remove(before);
                }
            }
        }
    }

    /// Up to where nobody holds a stream; [`NOTHING`] if nobody holds anything.
    fn released(&self, own: usize) -> Tick {
        self.0[own].first_key_value().map_or(NOTHING, |(tick, _)| *tick)
    }
}

/// Everybody who is there and live has the position written, also those for whom nothing comes:
/// before what is older is given up early, so that nobody who has missed nothing is told so after a
/// crash. While a stream is given up early that takes one write per such subscription and
/// [`crate::Limits::max_retain`].
#[derive(Debug)]
struct ReleaseRound {
    /// Where the streams stood when it began, and so at least where they will stand whose positions
    /// are written.
    target: OwnTicks,
    /// The same of other brokers' streams.
    remote: Positions,
    /// The place that is looked at next.
    place: u32,
}

/// What is given up of the log, and when.
#[derive(Debug, Default)]
pub(crate) struct Release {
    /// What all durable subscriptions hold.
    pub(crate) holds: Holds,
    /// What those hold that are there and live.
    pub(crate) connected: Holds,
    /// What both hold of other brokers' streams.
    pub(crate) remote: RemoteHolds,
    /// The last event of each stream that was logged.
    pub(crate) logged: OwnTicks,
    /// Up to where the streams were given up.
    pub(crate) chopped: OwnTicks,
    /// Up to where they were given up although somebody held them.
    pub(crate) early: OwnTicks,
    /// The written positions of those who are there and live are here, or further on, or they hold
    /// the streams.
    assured: OwnTicks,
    /// That is being brought about.
    round: Option<ReleaseRound>,
    /// Up to where it is known who holds the streams: nobody who may want what came before has not
    /// been counted since.
    counted: OwnTicks,
    /// Subscriptions whose positions have to be written, with their cursors.
    moved: BTreeMap<DurableNo, u32>,
    count_at: Time,
    chop_at: Time,
}

impl Broker {
    /// Has what is written lazily made into batches; the driver calls it before it takes them.
    pub fn flush(&mut self, now: Time) {
        if !self.has_log() {
            return;
        }
        self.renew_reservation(now);
        if !self.cursors.has_dirty() {
            // Also where there is nobody who could hold anything.
            self.store.release.counted = self.streams.logged().positions();
        } else if now >= self.store.release.count_at {
            self.renew_base(now);
            self.count_holds(now);
        }
        if self.can_write_positions() {
            self.write_positions();
        }
        self.go_round();
        self.check_bases();
        if now >= self.store.release.chop_at {
            self.chop(now);
        }
        self.write_lazily(now);
    }

    /// When [`Broker::flush`] has something to do.
    pub(crate) fn flush_due(&self) -> Option<Time> {
        if !self.has_log() {
            return None;
        }
        let Release { count_at, chop_at, .. } = self.store.release;
        let count = (self.cursors.has_dirty() || self.store.bases.looks()).then_some(count_at);
        let chop = (self.can_chop() || self.store.release.round.is_some()).then_some(chop_at);
        let is_lazy = !self.store.lazy_topics.is_empty() || self.store.publishers.has_dirty();
        let lazy = is_lazy.then_some(self.store.lazily_at);
        [count, chop, lazy].into_iter().flatten().min()
    }

    /// While the log is full the write queue is kept for what frees it.
    fn can_write_positions(&self) -> bool {
        !self.store.release.moved.is_empty() && (self.store.disk == Disk::Open || self.store.write_queue.is_empty())
    }

    fn can_chop(&self) -> bool {
        (0..OWN).any(|own| self.releasable(own) > self.store.release.chopped[own])
    }

    /// Up to where a stream of which something is left can be given up: as far as it is known who
    /// holds it.
    fn releasable(&self, own: usize) -> Tick {
        let Release { holds, logged, chopped, counted, .. } = &self.store.release;
        if fault!(self, ReleasesInFlight) && logged[own] > chopped[own] {
            return counted[own];
        }
        if logged[own] <= chopped[own] { Tick(0) } else { holds.released(own).min(counted[own]) }
    }

    /// Counts anew what subscriptions hold that may have moved.
    fn count_holds(&mut self, now: Time) {
        self.store.release.count_at = now.after(POSITIONS_EVERY);
        for _ in 0..COUNT_MAX {
            let Some(id) = self.cursors.pop_dirty() else { break };
            let position = self.written_position(id);
            let (cursor, common) = self.cursors.get_with_common(id);
            let (index, is_live) = (cursor.session, cursor.catch_up.is_none());
            let durable = cursor.durable.as_deref_mut().expect("durable subscriptions are dirty");
            durable.remote.pass_unsure(&position.remote);
            let mut held = durable.hold(&position.acked);
            // What it wants and has not passed yet is behind what is given up. A gap that it is to
            // be told may lie before.
            let passed = self.streams.logged().positions();
            for (own, held) in held.iter_mut().enumerate() {
                let has_got = (*held).max(self.store.release.chopped[own]);
                *held = if has_got >= durable.newest[own].min(passed[own]) { NOTHING } else { *held };
            }
            if fault!(self, ForgetsAbsent) && !self.sessions.is_attached(index) {
                held = [NOTHING; OWN];
            }
            let is_connected = is_live && self.sessions.is_attached(index);
            let connected = |is_connected, held: &OwnTicks| if is_connected { *held } else { [NOTHING; OWN] };
            let Release { holds, connected: all_connected, remote, .. } = &mut self.store.release;
            holds.change(&durable.held, &held);
            all_connected.change(&connected(durable.is_connected, &durable.held), &connected(is_connected, &held));
            let streams = &self.streams;
            let mut remote_held = durable.hold_remote(&position, |pubend| streams.begun(pubend));
            common.hold(&mut remote_held);
            if !remote_held.is_empty() || !durable.remote.held.is_empty() {
                remote.change((&durable.remote.held, durable.is_connected), (&remote_held, is_connected));
                durable.remote.held = remote_held;
            }
            (durable.held, durable.is_connected) = (held, is_connected);
            // What had another selector, or has been gone on with, is looked at stream by stream.
            if durable.old.is_empty() && !durable.remote.resumes {
                common.align_since(&mut durable.remote, &position.remote);
            }
            let (number, has_done) = (durable.number, !durable.done.is_empty());
            common.share(cursor);
            if has_done || self.is_unwritten(id, &position) {
                self.store.release.moved.insert(number, id);
            }
        }
        if !self.cursors.has_dirty() {
            self.store.release.counted = self.streams.logged().positions();
        }
    }

    /// Counts anew what all subscriptions hold that may have moved, as many as are counted in one
    /// go, also if that was done just now.
    pub(crate) fn count_all_holds(&mut self, now: Time) {
        if self.has_log() && self.cursors.has_dirty() {
            self.count_holds(now);
        }
    }

    /// Writes the positions that have moved.
    fn write_positions(&mut self) {
        for _ in 0..POSITIONS_MAX {
            let Some((number, id)) = self.store.release.moved.pop_first() else { return };
            // It may have ended, and another may have its place.
            if self.cursors.durable(id).is_some_and(|durable| durable.number == number) {
                self.write_position(id);
            }
        }
    }

    /// Writes the position of a durable subscription, and forgets the deliveries that are over with
    /// it. With which batch that is durable.
    pub(crate) fn write_position(&mut self, id: u32) -> BatchNo {
        let position = self.written_position(id);
        let cursor = self.cursors.get_mut(id);
        let index = cursor.session;
        let durable = cursor.durable.as_deref_mut().expect("it is durable");
        let number = durable.number;
        let streams = &self.streams;
        durable.beyond.retain(|id| {
            let acked = match streams.own_reliable(id.pubend) {
                Some(own) => Some(position.acked[own]),
                None => position.remote(id.pubend),
            };
            acked.is_some_and(|acked| id.tick > acked)
        });
        let done = core::mem::take(&mut durable.done);
        self.write_changed(id, &position);
        let session = self.sessions.get_mut(index);
        for (at, tag) in (1..).zip(done) {
            // Another delivery that is written may have it.
            let is_used = session.inflight.slot(tag).is_some_and(|slot| slot.qos == Qos::ExactlyOnce);
            if !is_used {
                self.store.write_queue.forget(|key| Key::InFlight(session.memory.number, tag).put(key));
            }
            if at % FORGOTTEN_MAX == 0 {
                // What a crash leaves of them lies behind the position, or is noted as beyond it.
                self.store.write_queue.seal();
            }
        }
        // What a SUBSCRIBE that waits has written must stay.
        let is_settled = self.sessions.get(index).memory.structural == 0;
        let durable = self.cursors.durable_mut(id).filter(|_| is_settled);
        let forgotten = durable.map_or(0, |durable| durable.forget_old(&position));
        if forgotten > 0 {
            let text = self.router.get(self.cursors.get(id).subscription).text.clone();
            (0..forgotten).for_each(|_| self.router.drop_old_interest(number, &text));
            self.remember_subscription(index, &text);
        }
        self.store.write_queue.seal()
    }

    /// A durable subscription has ended, and holds nothing any more.
    pub(crate) fn let_go_of_log(&mut self, held: &OwnTicks, remote: &Positions, is_connected: bool) {
        let none = const { &Positions::new() };
        self.store.release.remote.change((remote, is_connected), (none, false));
        let nothing = [NOTHING; OWN];
        self.store.release.holds.change(held, &nothing);
        if is_connected {
            self.store.release.connected.change(held, &nothing);
        }
    }

    /// Gives up what nobody holds any more, and what is held longer than it may be.
    fn chop(&mut self, now: Time) {
        self.store.release.chop_at = now.after(CHOP_EVERY);
        for own in 0..OWN {
            let early = self.early(now, own);
            let released = self.releasable(own);
            let name = StreamName::Events(own as u8);
            let release = &mut self.store.release;
            let is_left = release.logged[own] > release.chopped[own];
            let done = released.max(release.chopped[own]).max(release.early[own]);
            if is_left && early > done && early > release.assured[own] {
                self.begin_round();
            }
            let release = &mut self.store.release;
            let early = early.min(release.assured[own]);
            if is_left && early > done {
                release.early[own] = early;
                // First it is known that something may be missing, then it is.
                self.store.write_queue.put(|key| Key::Early(own as u8).put(key), |value| early.put_versioned(value));
                self.store.write_queue.seal();
            }
            let upto = early.max(released);
            let release = &mut self.store.release;
            if upto > release.chopped[own] && release.logged[own] > release.chopped[own] {
                release.chopped[own] = upto;
                // One that proves acknowledgement needs nothing before it, and may be what lets
                // everything else go on.
                let is_urgent = self.store.disk == Disk::Full && early <= released;
                self.store.write_queue.chop(name, upto, is_urgent);
            }
        }
    }

    /// Goes on with a round, and ends it when all positions that it is about are on their way to
    /// the disk.
    fn go_round(&mut self) {
        let Some(round) = &mut self.store.release.round else { return };
        let part = self.cursors.from(round.place).take(ROUND_MAX);
        let is_connected = |cursor: &Cursor| cursor.durable.as_deref().is_some_and(|durable| durable.is_connected);
        let connected: Vec<u32> =
            part.filter(|(_, cursor)| cursor.is_some_and(is_connected)).map(|(id, _)| id).collect();
        round.place = round.place.saturating_add(ROUND_MAX as u32);
        let is_through = round.place >= self.cursors.places();
        connected.into_iter().for_each(|id| self.cursors.touch(id));
        let release = &mut self.store.release;
        if is_through
            && !self.cursors.has_dirty()
            && release.moved.is_empty()
            && let Some(ReleaseRound { target, remote, .. }) = release.round.take()
        {
            release.assured = target;
            release.remote.assure(remote);
        }
    }

    /// Everybody who is there and live has the position written, unless that is going on: where it
    /// refers to a base, to one that is made now.
    pub(crate) fn begin_round(&mut self) {
        if self.store.release.round.is_none() {
            self.make_base(self.now);
            let (target, remote) = (self.streams.logged().positions(), self.base_positions());
            self.store.release.round = Some(ReleaseRound { target, remote, place: 0 });
        }
    }

    /// Up to where a stream may be given up although some who are behind hold it.
    fn early(&self, now: Time, own: usize) -> Tick {
        let Some(max) = self.sessions.limits.max_retain else { return Tick(0) };
        if !self.store.release.moved.is_empty() {
            // Whoever has just got further may not hold the stream any more, and would be told a
            // gap after a crash.
            return Tick(0);
        }
        // Nobody who is here stands earlier in the own streams than it may.
        let grace = if self.overlay.is_some() { early_grace(max) } else { Duration::ZERO };
        let age = Tick(now.as_nanos().saturating_sub(max.saturating_add(grace).as_nanos() as u64));
        let connected = age.min(self.store.release.counted[own]).min(self.store.release.connected.released(own));
        // Who has not reported for so long is not there. Who has not reported at all since this
        // broker began may be.
        let holds_given = self
            .store
            .holds_given
            .of
            .values()
            .filter(|hold_given| now.since(hold_given.heard) < max && !hold_given.is_forfeited());
        holds_given.map(|hold_given| hold_given.connected.unwrap_or(hold_given.counted)[own]).fold(connected, Tick::min)
    }
}
