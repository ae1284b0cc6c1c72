//! Subscriptions that recover or are told what they miss: durable and semi-durable ones, and those
//! with notices.
//!
//! The cursor of such a subscription is either *caught up*, and gets what the consolidated stream
//! passes, or in *catch-up*: then it reads the cache from its position, over as many turns as its
//! client and the other sessions need, and becomes caught up in the step in which it reaches the
//! end. A caught-up cursor has no position of its own: it stands where the consolidated stream
//! does.

mod catchup;
mod common;
mod durable;
mod expected;
mod gaps;
mod lifecycle;
mod notice;
mod positions;
mod remote;
mod remote_logs;
mod replay;
mod start;
mod telling;
mod token;
mod verdicts;
#[cfg(test)]
mod waiting_tests;

use std::collections::VecDeque;

use whimbrel_event::{EventId, PubendId, Publisher, Qos, Tick, Time};

pub(crate) use catchup::CATCH_UP_SLICE;
use common::InCommon;
pub(crate) use durable::{Durable, FormerInterest, NOTHING};
pub(crate) use expected::{DueNotice, ExpectedEvents};
pub use gaps::GapReason;
pub(crate) use gaps::{Gap, Gaps};
pub(crate) use lifecycle::early_grace;
pub use notice::NOTICE_TOPIC;
pub(crate) use notice::{NO_PUBEND, gap as notice_of, gap_of};
pub(crate) use positions::{Common, Positions};
pub(crate) use remote_logs::RemoteLogs;
pub(crate) use start::{AHEAD_MAX, BeginAt, Follow};
pub(crate) use verdicts::Verdicts;

use crate::api::Naming;
use crate::cache::PartitionSet;
use crate::session::{Marks, Terms};
use crate::stats::GapClass;

/// Stands for an ended cursor of which deliveries are still in flight.
pub(crate) const ENDED: u32 = u32::MAX - 1;

/// As [`ENDED`], if its client kept the position.
pub(crate) const ENDED_BY_TOKEN: u32 = u32::MAX - 2;

/// Sessions whose cursors wait to continue catch-up.
#[derive(Debug, Default)]
pub(crate) struct CatchUpTurns {
    /// Sessions that wait for their turn: at most one entry per session, and those of sessions that
    /// ended since.
    pub(crate) queue: VecDeque<u32>,
    /// The serial of the last event at their last turn.
    pub(crate) upto: u64,
}

/// When a subscription is told of silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceTimer {
    /// When it was last told anything.
    pub(crate) told_at: Time,
    /// When it is to be told of silence next.
    pub(crate) due: Option<Time>,
}

/// Since when a cursor is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    /// The cursor has had nothing beyond that tick from before it began here, or was last changed.
    pub(crate) here: Tick,
    pub(crate) in_force: InForceSince,
    /// The cursor began at a named place, or at another broker: there may be a gap before it that
    /// its client does not know of.
    pub(crate) is_named: bool,
}

/// Since when other brokers send events for this interest's own sake: the cache has them, or says
/// what it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InForceSince {
    /// In no known version of the own interest.
    Untold,
    /// In that version, which not all brokers have confirmed.
    Named(u64),
    /// After that tick, in each stream that was followed when all had confirmed.
    After(Tick),
}

impl InForceSince {
    /// Records the first version that has it.
    pub(crate) fn name(&mut self, version: u64) {
        if *self == InForceSince::Untold {
            *self = InForceSince::Named(version);
        }
    }

    /// All brokers have confirmed a version: this interest's, or that of an earlier change.
    pub(crate) fn settle(&mut self, version: u64, after: impl FnOnce() -> Tick) {
        if *self == InForceSince::Named(version) {
            *self = InForceSince::After(after());
        }
    }
}

/// The core's state of a tracked subscription, beside the router's.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) id: u32,
    pub(crate) session: u32,
    /// The subscription's number in the router.
    pub(crate) subscription: u32,
    /// The publisher whose events it does not want: its own, with no-local.
    pub(crate) without: Publisher,
    pub(crate) qos: Qos,
    pub(crate) marks: Marks,
    /// Events from while its client was away are delivered later.
    pub(crate) keeps: bool,
    pub(crate) notices: bool,
    /// The client keeps the position.
    pub(crate) by_token: bool,
    /// The client is back, and has not told yet where to start.
    pub(crate) awaiting_start: bool,
    /// State of catch-up; `None` if caught up.
    pub(crate) catch_up: Option<Box<CatchUp>>,
    /// Streams that the cursor is ahead of: it has had events up to these positions before.
    pub(crate) ahead: Positions,
    /// Streams of brokers that may not know of its interest yet: up to where it has had all wanted
    /// events. Events beyond come for other subscriptions' sake, with gaps before them.
    pub(crate) unsettled: Positions,
    /// Up to where its client has acknowledged, if the client keeps the position.
    pub(crate) acknowledged: Positions,
    pub(crate) began: Began,
    pub(crate) silence: SilenceTimer,
    /// The division of the cache for which `partitions` was computed: those that may have wanted
    /// events.
    pub(crate) division: u64,
    pub(crate) partitions: PartitionSet,
    /// State of a durable subscription.
    pub(crate) durable: Option<Box<Durable>>,
}

impl Cursor {
    /// The kind of subscription, for counting gaps.
    pub(crate) fn gap_class(&self) -> GapClass {
        match (&self.durable, self.keeps) {
            (Some(_), _) => GapClass::Durable,
            (None, true) => GapClass::SemiDurable,
            (None, false) => GapClass::Nondurable,
        }
    }

    /// Whether no-local excludes events of that publisher.
    pub(crate) fn is_own(&self, publisher: Publisher) -> bool {
        self.without != Publisher::UNKNOWN && self.without == publisher
    }

    /// Whether an event of an own stream goes to it without further checks, and an acknowledgement
    /// only moves its position: it is caught up, in no stream ahead, unsettled or detached, and its
    /// client has no event beyond its position.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let has_no_exception = |durable: &Durable| durable.remote.detached.is_empty() && durable.rare.beyond.is_empty();
        let is_in_step = self.catch_up.is_none() && self.ahead.is_empty() && self.unsettled.is_empty();
        is_in_step && self.durable.as_deref().is_none_or(has_no_exception)
    }

    /// Whether the cursor had an event at another broker, before it came here.
    pub(crate) fn has_had(&mut self, id: EventId) -> bool {
        if self.ahead.is_empty() {
            return false;
        }
        if id.tick <= self.ahead.get(id.pubend) {
            return true;
        }
        self.ahead.remove(id.pubend);
        false
    }

    /// Whether an event before this one may be missing, as its broker did not know of the interest.
    pub(crate) fn is_unsettled(&self, id: EventId) -> bool {
        let from = self.unsettled.get(id.pubend);
        from != Tick(0) && from < id.tick
    }

    /// The subscription is given an event of another broker's stream, or told of a gap, up to
    /// `tick`: its written position must not be behind that any more.
    pub(crate) fn mark(&mut self, pubend: PubendId, tick: Tick) {
        if let Some(durable) = self.durable.as_deref_mut().filter(|durable| durable.remote.since.has(pubend)) {
            durable.remote.written.mark(pubend, tick);
        }
    }

    /// The cursor gets an event: returns the gap of possibly missing ones before it.
    pub(crate) fn settle(&mut self, id: EventId) -> Option<Gap> {
        let EventId { pubend, tick } = id;
        let from = self.unsettled.get(pubend);
        if from == Tick(0) || from >= tick {
            return None;
        }
        self.unsettled.set(pubend, tick);
        Some(Gap { pubend, from, to: Tick(tick.0 - 1), reason: GapReason::NotBuffered })
    }

    /// Everything up to `to` was read in the stream's log, also events sent without this interest.
    pub(crate) fn record_read(&mut self, pubend: PubendId, to: Tick) {
        if self.unsettled.has(pubend) {
            self.unsettled.advance(pubend, to);
        }
    }

    /// A gap was told: it is not read once its stream is settled, or attached again.
    pub(crate) fn record_told(&mut self, gap: Gap) {
        let remote = self.durable.as_deref_mut().and_then(|durable| durable.remote.in_use());
        let detached = remote.map(|remote| &mut remote.detached);
        for waiting in [Some(&mut self.unsettled), detached].into_iter().flatten() {
            if waiting.has(gap.pubend) && gap.from <= waiting.get(gap.pubend) {
                waiting.advance(gap.pubend, gap.to);
            }
        }
    }

    /// Gaps that its client knows from another broker, also of detached streams.
    pub(crate) fn told(&self) -> impl Iterator<Item = Gap> {
        let of_catch_up = self.catch_up.iter().flat_map(|catch_up| catch_up.told.iter());
        of_catch_up.chain(self.durable.iter().flat_map(|durable| &durable.remote.told)).copied()
    }

    /// Moves positions back to where a gap is still to be told, or a log to be read: a token beyond
    /// would hide that.
    pub(crate) fn step_back_to_settled(&self, positions: &mut Positions) {
        let detached = self.durable.as_deref().map_or(const { &Positions::new() }, |durable| &durable.remote.detached);
        for (pubend, tick) in self.unsettled.iter().chain(detached.iter()) {
            positions.set(pubend, positions.get(pubend).min(tick));
        }
    }

    /// Whether it may lack events of some stream although it is caught up.
    pub(crate) fn is_behind_somewhere(&self) -> bool {
        !self.unsettled.is_empty() || self.durable.as_deref().is_some_and(|durable| !durable.remote.detached.is_empty())
    }

    /// The terms of an event that was published with that QoS and retain flag.
    pub(crate) fn terms(&self, qos: Qos, retain: bool) -> Terms {
        Terms { cursor: self.id, ..self.marks.terms(qos.min(self.qos), retain) }
    }

    /// The terms of a notice with that QoS.
    pub(crate) fn terms_of_notice(&self, qos: Qos) -> Terms {
        Terms { naming: Naming::beside(self.marks.named), ..self.terms(qos, false) }
    }
}

/// State of a cursor that is behind the consolidated stream.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// The serial of the next event to check.
    pub(crate) next: u64,
    /// Per pubend, up to where everything was told, or is in `gaps`.
    pub(crate) positions: Positions,
    pub(crate) gaps: Gaps,
    /// Gaps that the client may know from another broker, as well as events behind them: no event
    /// in these gaps is delivered any more.
    pub(crate) told: Gaps,
    /// Per pubend, up to where the cache need not have everything: the cursor began with the
    /// earliest event that there was.
    pub(crate) forgiven: Positions,
    /// The cursor fell behind because its client was too slow.
    pub(crate) slow: bool,
}

impl CatchUp {
    /// Catch-up from these positions; the serial is not known yet.
    pub(crate) fn at(positions: Positions) -> CatchUp {
        let (gaps, told, forgiven) = <(Gaps, Gaps, Positions)>::default();
        CatchUp { next: 0, positions, gaps, told, forgiven, slow: false }
    }

    /// Why the cache lacks events that were still wanted.
    pub(crate) fn why_lost(&self) -> GapReason {
        if self.slow { GapReason::Slow } else { GapReason::Overwritten }
    }

    /// As [`CatchUp::why_lost`], for one stream: if it has begun since its client left, earlier
    /// events were not asked for here.
    pub(crate) fn why_lacking(&self, pubend: PubendId) -> GapReason {
        if self.positions.has(pubend) { self.why_lost() } else { GapReason::NotBuffered }
    }

    /// Up to where everything was told, gaps included, also in streams that are not known here.
    pub(crate) fn untold(&self) -> Positions {
        let mut positions = self.positions.clone();
        for gap in self.gaps.iter() {
            // A gap may lie further on; streams that are not known here have no other position.
            let is_before = gap.from < positions.get(gap.pubend) || !positions.has(gap.pubend);
            if is_before {
                positions.set(gap.pubend, gap.from);
            }
        }
        positions
    }
}

/// All cursors.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    slots: Vec<Option<Box<Cursor>>>,
    free: Vec<u32>,
    catching_up: usize,
    /// Durable cursors whose position may have moved since it was written.
    dirty: VecDeque<u32>,
    /// Storage for the parts of positions that many have in common.
    common: InCommon,
}

impl Cursors {
    /// Adds a caught-up cursor, and numbers it.
    pub(crate) fn insert(&mut self, cursor: Cursor) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some(Box::new(Cursor { id, catch_up: None, ..cursor }));
        id
    }

    /// The durable state of a cursor; `None` if it has ended, or is not durable.
    pub(crate) fn durable(&self, id: u32) -> Option<&Durable> {
        self.slots.get(id as usize)?.as_ref()?.durable.as_deref()
    }

    /// Whether `id` is still the cursor of that subscription.
    pub(crate) fn is_of(&self, id: u32, subscription: u32) -> bool {
        let cursor = self.slots.get(id as usize).and_then(Option::as_ref);
        cursor.is_some_and(|cursor| cursor.subscription == subscription)
    }

    /// As [`Cursors::durable`].
    pub(crate) fn durable_mut(&mut self, id: u32) -> Option<&mut Durable> {
        self.slots.get_mut(id as usize)?.as_mut()?.durable.as_deref_mut()
    }

    /// The catch-up of a cursor; `None` if it has ended, or is caught up.
    pub(crate) fn catch_up_mut(&mut self, id: u32) -> Option<&mut CatchUp> {
        self.slots.get_mut(id as usize)?.as_mut()?.catch_up.as_deref_mut()
    }

    /// Marks that the position of a cursor may have moved.
    pub(crate) fn touch(&mut self, id: u32) {
        let durable =
            self.slots.get_mut(id as usize).and_then(Option::as_mut).and_then(|cursor| cursor.durable.as_mut());
        if durable.is_some_and(|durable| !core::mem::replace(&mut durable.dirty, true)) {
            self.dirty.push_back(id);
        }
    }

    /// Records that an event is passed which a cursor wants, of an own reliable stream or another
    /// one. Returns the cursor.
    #[inline]
    pub(crate) fn record_passed(&mut self, id: u32, event: EventId, is_own: bool) -> &mut Cursor {
        let Cursors { slots, dirty, .. } = self;
        let cursor = slots[id as usize].as_mut().expect("a cursor in use");
        if let Some(durable) = cursor.durable.as_deref_mut()
            && durable.record_newest(event, is_own)
            && !core::mem::replace(&mut durable.dirty, true)
        {
            dirty.push_back(id);
        }
        cursor
    }

    /// Whether a position may have moved since it was written.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes a cursor whose position may have moved; it counts as written from now on.
    pub(crate) fn pop_dirty(&mut self) -> Option<u32> {
        while let Some(id) = self.dirty.pop_front() {
            let durable = self.slots[id as usize].as_mut().and_then(|cursor| cursor.durable.as_mut());
            // The cursor may have ended, and another may have its place.
            if durable.is_some_and(|durable| core::mem::take(&mut durable.dirty)) {
                return Some(id);
            }
        }
        None
    }

    pub(crate) fn remove(&mut self, id: u32) -> Cursor {
        let cursor = self.slots[id as usize].take().expect("a cursor in use");
        self.catching_up -= usize::from(cursor.catch_up.is_some());
        self.free.push(id);
        *cursor
    }

    /// The cursor with that number, if there is one.
    pub(crate) fn find(&self, id: u32) -> Option<&Cursor> {
        self.slots.get(id as usize)?.as_deref()
    }

    pub(crate) fn get(&self, id: u32) -> &Cursor {
        self.slots[id as usize].as_ref().expect("a cursor in use")
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Cursor {
        self.slots[id as usize].as_mut().expect("a cursor in use")
    }

    /// A cursor, with the common storage.
    pub(crate) fn get_with_common(&mut self, id: u32) -> (&mut Cursor, &mut InCommon) {
        (self.slots[id as usize].as_mut().expect("a cursor in use"), &mut self.common)
    }

    /// Sets a cursor to catch-up.
    pub(crate) fn begin_catch_up(&mut self, id: u32, catch_up: Box<CatchUp>) {
        let cursor = self.slots[id as usize].as_mut().expect("a cursor in use");
        if cursor.catch_up.replace(catch_up).is_none() {
            self.catching_up += 1;
        }
    }

    /// Marks as caught up a cursor whose catch-up was taken out.
    pub(crate) fn set_caught_up(&mut self, id: u32) {
        assert!(self.get(id).catch_up.is_none(), "who is live has no lag");
        self.catching_up -= 1;
    }

    /// Whether the client of a cursor keeps the position, or kept it until the cursor ended.
    pub(crate) fn is_by_token(&self, id: u32) -> bool {
        id == ENDED_BY_TOKEN
            || self.slots.get(id as usize).and_then(Option::as_ref).is_some_and(|cursor| cursor.by_token)
    }

    /// Number of places, used or free.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The places from `place` on, with their cursors.
    pub(crate) fn from(&self, place: u32) -> impl Iterator<Item = (u32, Option<&Cursor>)> {
        (place..).zip(self.slots.iter().skip(place as usize)).map(|(id, slot)| (id, slot.as_deref()))
    }

    /// The numbers of all cursors, ascending.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.map(|(id, _)| id as u32).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of cursors in catch-up, those of absent clients included.
    pub(crate) fn lagging(&self) -> usize {
        self.catching_up
    }
}

#[cfg(test)]
mod size_tests {
    use super::*;

    /// Each absent subscription has all of them, so that a few bytes more are many at a million.
    #[test]
    fn the_types_of_an_absent_subscription_are_small() {
        let sizes = [
            ("cursor", size_of::<Cursor>(), 160),
            ("its durable state", size_of::<Durable>(), 80),
            ("its catch-up", size_of::<CatchUp>(), 80),
            ("its positions", size_of::<Positions>(), 8),
        ];
        for (what, bytes, most) in sizes {
            assert!(bytes <= most, "{what}: {bytes} bytes instead of {most}");
        }
    }
}
