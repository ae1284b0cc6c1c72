//! Positions of durable subscriptions are written, and events that all of them have acknowledged
//! are given up.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, Qos, Tick, Time};

use super::keys::{DurableNo, Key};
use super::own_ticks::{OWN, OwnTicks};
use super::remote_holds::RemoteHolds;
use super::wire::MapValue;
use super::{BatchNo, Disk, StreamName};
use crate::broker::Broker;
use crate::cursor::{Cursor, NOTHING, Positions, early_grace};

/// Interval of writing positions: after a crash, acknowledgements of the last interval are lost,
/// and those events are delivered again.
pub(crate) const POSITIONS_EVERY: Duration = Duration::from_millis(10);

/// Interval of giving up parts of the log.
pub(crate) const CHOP_EVERY: Duration = Duration::from_millis(250);

/// Positions that are written in one go; the others follow in the next.
const POSITIONS_MAX: usize = 8192;

/// Tags of deliveries that are forgotten in one batch.
const FORGOTTEN_MAX: usize = 256;

/// Subscriptions whose holds are counted in one go.
const COUNT_MAX: usize = 65_536;

/// Places of subscriptions that a round visits in one go.
const ROUND_MAX: usize = 65_536;

/// Per own stream, the number of holders by the tick after which each holds it.
#[derive(Debug, Default)]
pub(crate) struct Holds([BTreeMap<Tick, u32>; OWN]);

impl Holds {
    /// Moves one holder from the ticks `before` to the ticks `after`.
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

    /// Up to where a stream has no holder; [`NOTHING`] if there is none at all.
    fn released(&self, own: usize) -> Tick {
        self.0[own].first_key_value().map_or(NOTHING, |(tick, _)| *tick)
    }
}

/// A round in which all connected, caught-up subscriptions have their positions written, also those
/// that receive nothing. It comes before older events are given up early, so that after a crash no
/// subscription is told of a gap although it missed nothing. While a stream is given up early, that
/// costs one write per such subscription in each [`crate::Limits::max_retain`].
#[derive(Debug)]
struct ReleaseRound {
    /// Where the own streams stood when the round began: a lower bound of the positions that it
    /// writes.
    target: OwnTicks,
    /// Where other brokers' streams stood then.
    remote: Positions,
    /// The next place to visit.
    place: u32,
}

/// Which part of the log is given up, and when.
#[derive(Debug, Default)]
pub(crate) struct Release {
    /// Holds of all durable subscriptions.
    pub(crate) holds: Holds,
    /// Holds of connected, caught-up durable subscriptions.
    pub(crate) connected: Holds,
    /// Holds of both kinds on other brokers' streams.
    pub(crate) remote: RemoteHolds,
    /// The last event of each stream that was logged.
    pub(crate) logged: OwnTicks,
    /// The last tick that was given up in each stream.
    pub(crate) chopped: OwnTicks,
    /// The last tick of each stream that was given up although it was held.
    pub(crate) early: OwnTicks,
    /// Each connected, caught-up subscription has a written position at or beyond this, or holds
    /// the streams.
    assured: OwnTicks,
    /// The round that will raise `assured`, if one is under way.
    round: Option<ReleaseRound>,
    /// Up to where all holders are known: each subscription that may want an event before this was
    /// counted since.
    counted: OwnTicks,
    /// Durable subscriptions whose positions are to be written, with their cursors.
    moved: BTreeMap<DurableNo, u32>,
    count_at: Time,
    chop_at: Time,
}

impl Broker {
    /// Makes batches of lazy writes; the driver calls it before it takes batches.
    pub fn flush(&mut self, now: Time) {
        if !self.has_log() {
            return;
        }
        self.store.renew_reservation(now, self.streams.own.farthest());
        if !self.cursors.has_dirty() {
            // Also while no subscription could hold anything.
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

    /// When [`Broker::flush`] has something to do next.
    pub(crate) fn flush_due(&self) -> Option<Time> {
        if !self.has_log() {
            return None;
        }
        let Release { count_at, chop_at, .. } = self.store.release;
        let count = (self.cursors.has_dirty() || self.store.bases.looks()).then_some(count_at);
        let can_chop = (0..OWN).any(|own| self.releasable(own) > self.store.release.chopped[own]);
        let chop = (can_chop || self.store.release.round.is_some()).then_some(chop_at);
        let is_lazy = !self.store.lazy_topics.is_empty() || self.store.publishers.has_dirty();
        let lazy = is_lazy.then_some(self.store.lazily_at);
        [count, chop, lazy].into_iter().flatten().min()
    }

    /// While the log is full, the write queue is reserved for writes that free space.
    fn can_write_positions(&self) -> bool {
        !self.store.release.moved.is_empty() && (self.store.disk == Disk::Open || self.store.write_queue.is_empty())
    }

    /// The last tick of a stream that can be given up, as far as holders are known; 0 if nothing is
    /// left.
    fn releasable(&self, own: usize) -> Tick {
        let Release { holds, logged, chopped, counted, .. } = &self.store.release;
        if fault!(self, ReleasesInFlight) && logged[own] > chopped[own] {
            return counted[own];
        }
        if logged[own] <= chopped[own] { Tick(0) } else { holds.released(own).min(counted[own]) }
    }

    /// Counts the holds of subscriptions that may have moved.
    fn count_holds(&mut self, now: Time) {
        self.store.release.count_at = now.after(POSITIONS_EVERY);
        for _ in 0..COUNT_MAX {
            let Some(id) = self.cursors.pop_dirty() else { break };
            let position = self.written_position(id);
            let (cursor, common) = self.cursors.get_with_common(id);
            let (index, is_live) = (cursor.session, cursor.catch_up.is_none());
            let durable = cursor.durable.as_deref_mut().expect("durable subscriptions are dirty");
            if let Some(remote) = durable.remote.in_use() {
                remote.pass_unsure(&position.remote);
            }
            let mut held = durable.hold(&position.acked);
            // An event that it wants and has not passed is behind what is given up. A gap that it
            // is to be told of may lie before.
            let passed = self.streams.logged().positions();
            for (own, held) in held.iter_mut().enumerate() {
                let has_got = (*held).max(self.store.release.chopped[own]);
                *held = if has_got >= durable.newest.get(own).min(passed[own]) { NOTHING } else { *held };
            }
            if fault!(self, ForgetsAbsent) && !self.sessions.is_attached(index) {
                held = [NOTHING; OWN];
            }
            let is_connected = is_live && self.sessions.is_attached(index);
            let connected = |is_connected, held: &OwnTicks| if is_connected { *held } else { [NOTHING; OWN] };
            let Release { holds, connected: all_connected, remote, .. } = &mut self.store.release;
            let held_before = durable.held.all();
            holds.change(&held_before, &held);
            all_connected.change(&connected(durable.is_connected, &held_before), &connected(is_connected, &held));
            let streams = &self.streams;
            let mut remote_held = durable.hold_remote(&position, |pubend| streams.begun(pubend));
            common.hold(&mut remote_held);
            if !remote_held.is_empty() || !durable.remote.held.is_empty() {
                remote.change((&durable.remote.held, durable.is_connected), (&remote_held, is_connected));
                durable.remote.held = remote_held;
            }
            durable.is_connected = is_connected;
            if held != held_before {
                durable.held = held.into();
            }
            // A subscription that had another selector, or that was resumed, is checked stream by
            // stream.
            let is_aligned = durable.rare.old.is_empty() && !durable.remote.resumes;
            if let Some(remote) = durable.remote.in_use().filter(|_| is_aligned) {
                common.align_since(remote, &position.remote);
            }
            let (number, has_done) = (durable.number, !durable.rare.done.is_empty());
            common.share(cursor);
            if has_done || self.is_unwritten(id, &position) {
                self.store.release.moved.insert(number, id);
            }
        }
        if !self.cursors.has_dirty() {
            self.store.release.counted = self.streams.logged().positions();
        }
    }

    /// Counts the holds of all subscriptions that may have moved, up to [`COUNT_MAX`], even if the
    /// last count is recent.
    pub(crate) fn count_all_holds(&mut self, now: Time) {
        if self.has_log() && self.cursors.has_dirty() {
            self.count_holds(now);
        }
    }

    /// Writes the positions that have moved, up to [`POSITIONS_MAX`].
    fn write_positions(&mut self) {
        for _ in 0..POSITIONS_MAX {
            let Some((number, id)) = self.store.release.moved.pop_first() else { return };
            // The subscription may have ended, and another may have its place.
            if self.cursors.durable(id).is_some_and(|durable| durable.number == number) {
                self.write_position(id);
            }
        }
    }

    /// Writes the position of a durable subscription, and forgets deliveries that are completed
    /// with it. Returns the batch with which that is durable.
    pub(crate) fn write_position(&mut self, id: u32) -> BatchNo {
        let position = self.written_position(id);
        let cursor = self.cursors.get_mut(id);
        let index = cursor.session;
        let durable = cursor.durable.as_deref_mut().expect("it is durable");
        let number = durable.number;
        let streams = &self.streams;
        let is_beyond = |id: &EventId| {
            let acked = match streams.own_reliable(id.pubend) {
                Some(own) => Some(position.acked[own]),
                None => position.remote(id.pubend),
            };
            acked.is_some_and(|acked| id.tick > acked)
        };
        let done = durable.rare.in_use().map_or(Vec::new(), |rare| {
            rare.beyond.retain(is_beyond);
            core::mem::take(&mut rare.done)
        });
        self.write_changed(id, &position);
        let session = self.sessions.get_mut(index);
        for (at, tag) in (1..).zip(done) {
            // A later delivery that is written may have the tag.
            let is_used = session.inflight.slot(tag).is_some_and(|slot| slot.qos == Qos::ExactlyOnce);
            if !is_used {
                self.store.write_queue.forget(|key| Key::InFlight(session.memory.number, tag).put(key));
            }
            if at % FORGOTTEN_MAX == 0 {
                // Events of tags that a crash leaves lie before the position, or are noted beyond.
                self.store.write_queue.seal();
            }
        }
        // Interests that a waiting SUBSCRIBE has written must stay.
        let is_settled = self.sessions.get(index).memory.pending.structural == 0;
        let durable = self.cursors.durable_mut(id).filter(|_| is_settled);
        let forgotten = durable.map_or(0, |durable| durable.forget_old(&position));
        if forgotten > 0 {
            let text = self.router.get(self.cursors.get(id).subscription).text.clone();
            (0..forgotten).for_each(|_| self.router.drop_old_interest(number, &text));
            self.remember_subscription(index, &text);
        }
        self.store.write_queue.seal()
    }

    /// Releases all holds of a durable subscription that has ended.
    pub(crate) fn let_go_of_log(&mut self, held: &OwnTicks, remote: &Positions, is_connected: bool) {
        let none = const { &Positions::new() };
        self.store.release.remote.change((remote, is_connected), (none, false));
        let nothing = [NOTHING; OWN];
        self.store.release.holds.change(held, &nothing);
        if is_connected {
            self.store.release.connected.change(held, &nothing);
        }
    }

    /// Gives up events without a hold, and events held longer than [`crate::Limits::max_retain`].
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
                // A crash in between leaves a note that events may be missing, never a gap without
                // a note.
                self.store.write_queue.put(|key| Key::Early(own as u8).put(key), |value| early.put_versioned(value));
                self.store.write_queue.seal();
            }
            let upto = early.max(released);
            let release = &mut self.store.release;
            if upto > release.chopped[own] && release.logged[own] > release.chopped[own] {
                release.chopped[own] = upto;
                // A chop that acknowledgements prove needs nothing before it, and it may be what
                // frees space.
                let is_urgent = self.store.disk == Disk::Full && early <= released;
                self.store.write_queue.chop(name, upto, is_urgent);
            }
        }
    }

    /// Continues a round, and ends it when all its positions are in the write queue.
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

    /// Begins a round, unless one is under way. Positions that refer to a base are written to a new
    /// one.
    pub(crate) fn begin_round(&mut self) {
        if self.store.release.round.is_none() {
            self.make_base(self.now);
            let (target, remote) = (self.streams.logged().positions(), self.base_positions());
            self.store.release.round = Some(ReleaseRound { target, remote, place: 0 });
        }
    }

    /// The last tick of a stream that may be given up although subscriptions that are behind hold
    /// it.
    fn early(&self, now: Time, own: usize) -> Tick {
        let Some(max) = self.sessions.limits.max_retain else { return Tick(0) };
        if !self.store.release.moved.is_empty() {
            // A subscription that has just moved on may not hold the stream any more, and after a
            // crash would be told of a gap.
            return Tick(0);
        }
        // The grace is for other brokers, whose cursors may have been moved back to the watermark.
        let grace = if self.overlay.is_open() { early_grace(max) } else { Duration::ZERO };
        let age = Tick(now.as_nanos().saturating_sub(max.saturating_add(grace).as_nanos() as u64));
        let connected = age.min(self.store.release.counted[own]).min(self.store.release.connected.released(own));
        // A broker that has not reported for `max` counts as away. One that has not reported since
        // this broker began may be connected.
        let holds_given = self
            .store
            .holds_given
            .of
            .values()
            .filter(|hold_given| now.since(hold_given.heard) < max && !hold_given.is_forfeited());
        holds_given.map(|hold_given| hold_given.connected.unwrap_or(hold_given.counted)[own]).fold(connected, Tick::min)
    }
}
