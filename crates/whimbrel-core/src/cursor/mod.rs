//! Subscriptions that are told what they miss: semi-durable ones, and those with notices.
//!
//! A tracked subscription is either *live*, and gets what the consolidated stream passes, or it
//! *lags*: then it reads the cache from where it stands, over as many turns as its client and the
//! other sessions want, and becomes live in the very step in which it reaches the end. A live one
//! has no position of its own: it stands where the consolidated stream does.

mod catchup;
mod common;
mod durable;
mod gaps;
mod lifecycle;
mod low_watermark;
mod notice;
mod positions;
mod remote;
mod remote_logs;
mod replay;
mod resume;
mod session_turns;
mod silence;
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
pub use gaps::GapReason;
pub(crate) use gaps::{Gap, Gaps};
pub(crate) use lifecycle::Follow;
pub(crate) use low_watermark::early_grace;
pub use notice::NOTICE_TOPIC;
pub(crate) use notice::{NO_PUBEND, gap as notice_of, gap_of};
pub(crate) use positions::{Common, Positions};
pub(crate) use remote_logs::RemoteLogs;
pub(crate) use start::{AHEAD_MAX, Begin};
pub(crate) use verdicts::Verdicts;

use crate::api::Naming;
use crate::cache::PartitionSet;
use crate::session::{Marks, Terms};
use crate::stats::GapClass;

/// Stands for a tracked subscription that has ended, where something of it is still in flight.
pub(crate) const ENDED: u32 = u32::MAX - 1;

/// As [`ENDED`], of one whose client kept the position.
pub(crate) const ENDED_BY_TOKEN: u32 = u32::MAX - 2;

/// Who has a turn to catch up.
#[derive(Debug, Default)]
pub(crate) struct CatchUpTurns {
    /// Sessions that wait for their turn; at most one entry per session that lives, and those of
    /// sessions that ended since.
    pub(crate) queue: VecDeque<u32>,
    /// The serial of the last event when they last had theirs.
    pub(crate) upto: u64,
}

/// When a subscription is told that nothing came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceTimer {
    /// When it was last told anything.
    pub(crate) told_at: Time,
    /// When it is to be told that nothing came.
    pub(crate) due: Option<Time>,
}

/// Since when a subscription is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    /// It has had nothing that lies beyond that tick from before it began here, or was changed
    /// last.
    pub(crate) here: Tick,
    pub(crate) in_force: InForce,
    /// It began at a place that was named, or elsewhere: there may be a gap before it of which its
    /// client does not know.
    pub(crate) is_named: bool,
}

/// Since when what a subscription wants of other brokers comes here for its own sake: the cache has
/// it, or says that it lacks something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InForce {
    /// No version of the own interest is known that has it.
    Untold,
    /// That version has it, and not all brokers have said that they know of that.
    Named(u64),
    /// After that tick, in each stream that was followed when they had said so.
    After(Tick),
}

impl InForce {
    /// That version has it, if none had before.
    pub(crate) fn name(&mut self, version: u64) {
        if *self == InForce::Untold {
            *self = InForce::Named(version);
        }
    }

    /// All have said that they know of a version: this one's, or that of something else which was
    /// asked for before.
    pub(crate) fn settle(&mut self, version: u64, after: impl FnOnce() -> Tick) {
        if *self == InForce::Named(version) {
            *self = InForce::After(after());
        }
    }
}

/// What the core keeps of a tracked subscription, beside what the router knows.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) id: u32,
    pub(crate) session: u32,
    /// Its number in the router.
    pub(crate) subscription: u32,
    /// Who does not want to get its own events back.
    pub(crate) without: Publisher,
    pub(crate) qos: Qos,
    pub(crate) marks: Marks,
    /// It gets what came while its client was away.
    pub(crate) keeps: bool,
    pub(crate) notices: bool,
    /// The client keeps the position.
    pub(crate) by_token: bool,
    /// Its client is back, and has not said yet where it begins.
    pub(crate) awaiting_start: bool,
    /// It lags behind the consolidated stream.
    pub(crate) catch_up: Option<Box<CatchUp>>,
    /// Streams that it is ahead of: what is at or below these positions it has had before.
    pub(crate) ahead: Positions,
    /// Streams of brokers that may not know yet that it is there: up to where it has had what it
    /// wants of them. What comes beyond comes for others' sake, and a gap before it.
    pub(crate) unsettled: Positions,
    /// Up to where its client has acknowledged, if it keeps the position.
    pub(crate) acknowledged: Positions,
    pub(crate) began: Began,
    pub(crate) silence: SilenceTimer,
    /// For which division of the cache the following was found out: the partitions that may have
    /// what it wants.
    pub(crate) division: u64,
    pub(crate) partitions: PartitionSet,
    /// What a durable one has beside others.
    pub(crate) durable: Option<Box<Durable>>,
}

impl Cursor {
    /// What it is promised, for counting gaps.
    pub(crate) fn gap_class(&self) -> GapClass {
        match (&self.durable, self.keeps) {
            (Some(_), _) => GapClass::Durable,
            (None, true) => GapClass::SemiDurable,
            (None, false) => GapClass::Nondurable,
        }
    }

    /// Whether it does not want events of that publisher.
    pub(crate) fn is_own(&self, publisher: Publisher) -> bool {
        self.without != Publisher::UNKNOWN && self.without == publisher
    }

    /// Whether it got an event elsewhere, before it came here.
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

    /// Whether something before an event may not have come, as its broker did not know that it was
    /// wanted.
    pub(crate) fn is_unsettled(&self, id: EventId) -> bool {
        let from = self.unsettled.get(id.pubend);
        from != Tick(0) && from < id.tick
    }

    /// It is given an event of another broker's stream, or told what it misses of that, up to
    /// there: what is written of its position is not behind that any more.
    pub(crate) fn mark(&mut self, pubend: PubendId, tick: Tick) {
        if let Some(durable) = self.durable.as_deref_mut().filter(|durable| durable.remote.since.has(pubend)) {
            durable.remote.written.mark(pubend, tick);
        }
    }

    /// It gets an event now: what may not have come before it.
    pub(crate) fn settle(&mut self, id: EventId) -> Option<Gap> {
        let EventId { pubend, tick } = id;
        let from = self.unsettled.get(pubend);
        if from == Tick(0) || from >= tick {
            return None;
        }
        self.unsettled.set(pubend, tick);
        Some(Gap { pubend, from, to: Tick(tick.0 - 1), reason: GapReason::NotBuffered })
    }

    /// Everything up to there has been read in its log, also if nobody here knew that it was
    /// wanted.
    pub(crate) fn record_read(&mut self, pubend: PubendId, to: Tick) {
        if self.unsettled.has(pubend) {
            self.unsettled.advance(pubend, to);
        }
    }

    /// A gap has been told: what it hides is not read once its stream is settled, or followed
    /// again.
    pub(crate) fn record_told(&mut self, gap: Gap) {
        let detached = self.durable.as_deref_mut().map(|durable| &mut durable.remote.detached);
        for waiting in [Some(&mut self.unsettled), detached].into_iter().flatten() {
            if waiting.has(gap.pubend) && gap.from <= waiting.get(gap.pubend) {
                waiting.advance(gap.pubend, gap.to);
            }
        }
    }

    /// Gaps that its client knows from another broker, also of streams that are set aside.
    pub(crate) fn told(&self) -> impl Iterator<Item = Gap> {
        let of_catch_up = self.catch_up.iter().flat_map(|catch_up| catch_up.told.iter());
        of_catch_up.chain(self.durable.iter().flat_map(|durable| &durable.remote.told)).copied()
    }

    /// Where a gap is still to be told, or something to be read elsewhere, a token that lies behind
    /// it would hide it.
    pub(crate) fn step_back_to_settled(&self, positions: &mut Positions) {
        let detached = self.durable.as_deref().map_or(const { &Positions::new() }, |durable| &durable.remote.detached);
        for (pubend, tick) in self.unsettled.iter().chain(detached.iter()) {
            positions.set(pubend, positions.get(pubend).min(tick));
        }
    }

    /// Whether it may lack something of a stream although it is live.
    pub(crate) fn is_behind_somewhere(&self) -> bool {
        !self.unsettled.is_empty() || self.durable.as_deref().is_some_and(|durable| !durable.remote.detached.is_empty())
    }

    /// Under which terms it gets an event that was published with that QoS and that retain mark.
    pub(crate) fn terms(&self, qos: Qos, retain: bool) -> Terms {
        Terms { cursor: self.id, ..self.marks.terms(qos.min(self.qos), retain) }
    }

    /// Under which terms it gets a notice with that QoS.
    pub(crate) fn terms_of_notice(&self, qos: Qos) -> Terms {
        Terms { naming: Naming::beside(self.marks.named), ..self.terms(qos, false) }
    }
}

/// Where a subscription stands that is behind the consolidated stream.
#[derive(Debug)]
pub(crate) struct CatchUp {
    /// The serial of the event that it looks at next.
    pub(crate) next: u64,
    /// Per pubend, up to where it has been told everything, or it is in `gaps`.
    pub(crate) positions: Positions,
    pub(crate) gaps: Gaps,
    /// Gaps that the client may know from another broker, and what came behind them: nothing comes
    /// out of them any more.
    pub(crate) told: Gaps,
    /// Per pubend, up to where nobody expects that the cache has everything: it began with the
    /// earliest that there was.
    pub(crate) forgiven: Positions,
    /// It fell behind because its client does not take as much as comes.
    pub(crate) slow: bool,
}

impl CatchUp {
    /// One that begins there, and of which the serial is not known yet.
    pub(crate) fn at(positions: Positions) -> CatchUp {
        let (gaps, told, forgiven) = <(Gaps, Gaps, Positions)>::default();
        CatchUp { next: 0, positions, gaps, told, forgiven, slow: false }
    }

    /// Why the cache lacks what it still wanted.
    pub(crate) fn why_lost(&self) -> GapReason {
        if self.slow { GapReason::Slow } else { GapReason::Overwritten }
    }

    /// The same of one stream: nobody had asked here for what came before it began, if it has begun
    /// since its client left.
    pub(crate) fn why_lacking(&self, pubend: PubendId) -> GapReason {
        if self.positions.has(pubend) { self.why_lost() } else { GapReason::NotBuffered }
    }

    /// Up to where it has been told everything, gaps included, also in streams that are not known
    /// here.
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

/// All tracked subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    slots: Vec<Option<Box<Cursor>>>,
    free: Vec<u32>,
    catching_up: usize,
    /// Durable ones whose position may have moved since it was written.
    dirty: VecDeque<u32>,
    /// What many of them have in common.
    common: InCommon,
}

impl Cursors {
    /// Adds a subscription that is live, and numbers it.
    pub(crate) fn insert(&mut self, cursor: Cursor) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some(Box::new(Cursor { id, catch_up: None, ..cursor }));
        id
    }

    /// What is durable of a subscription that may have ended, or is none.
    pub(crate) fn durable(&self, id: u32) -> Option<&Durable> {
        self.slots.get(id as usize)?.as_ref()?.durable.as_deref()
    }

    /// Whether that is still the cursor of that subscription.
    pub(crate) fn is_of(&self, id: u32, subscription: u32) -> bool {
        let cursor = self.slots.get(id as usize).and_then(Option::as_ref);
        cursor.is_some_and(|cursor| cursor.subscription == subscription)
    }

    /// As [`Cursors::durable`].
    pub(crate) fn durable_mut(&mut self, id: u32) -> Option<&mut Durable> {
        self.slots.get_mut(id as usize)?.as_mut()?.durable.as_deref_mut()
    }

    /// Where a subscription that may have ended, or is none, lags.
    pub(crate) fn catch_up_mut(&mut self, id: u32) -> Option<&mut CatchUp> {
        self.slots.get_mut(id as usize)?.as_mut()?.catch_up.as_deref_mut()
    }

    /// The position of a subscription may have moved.
    pub(crate) fn touch(&mut self, id: u32) {
        let durable =
            self.slots.get_mut(id as usize).and_then(Option::as_mut).and_then(|cursor| cursor.durable.as_mut());
        if durable.is_some_and(|durable| !core::mem::replace(&mut durable.dirty, true)) {
            self.dirty.push_back(id);
        }
    }

    /// Whether a position may have moved since it was written.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A subscription whose position may have moved, which counts as written from now on.
    pub(crate) fn pop_dirty(&mut self) -> Option<u32> {
        while let Some(id) = self.dirty.pop_front() {
            let durable = self.slots[id as usize].as_mut().and_then(|cursor| cursor.durable.as_mut());
            // It may have ended, and another may have its place.
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

    /// The track with that number, if there is one.
    pub(crate) fn find(&self, id: u32) -> Option<&Cursor> {
        self.slots.get(id as usize)?.as_deref()
    }

    pub(crate) fn get(&self, id: u32) -> &Cursor {
        self.slots[id as usize].as_ref().expect("a cursor in use")
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Cursor {
        self.slots[id as usize].as_mut().expect("a cursor in use")
    }

    /// A subscription, with what many have in common.
    pub(crate) fn get_with_common(&mut self, id: u32) -> (&mut Cursor, &mut InCommon) {
        (self.slots[id as usize].as_mut().expect("a cursor in use"), &mut self.common)
    }

    /// A subscription lags from now on, from there.
    pub(crate) fn begin_catch_up(&mut self, id: u32, catch_up: Box<CatchUp>) {
        let cursor = self.slots[id as usize].as_mut().expect("a cursor in use");
        if cursor.catch_up.replace(catch_up).is_none() {
            self.catching_up += 1;
        }
    }

    /// A subscription that lagged, and whose lag has been taken out, is live from now on.
    pub(crate) fn set_caught_up(&mut self, id: u32) {
        assert!(self.get(id).catch_up.is_none(), "who is live has no lag");
        self.catching_up -= 1;
    }

    /// Whether that is a subscription whose client keeps the position, or has been one.
    pub(crate) fn is_by_token(&self, id: u32) -> bool {
        id == ENDED_BY_TOKEN
            || self.slots.get(id as usize).and_then(Option::as_ref).is_some_and(|cursor| cursor.by_token)
    }

    /// Places at which there are subscriptions, or were.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// What is at these places, from that one on.
    pub(crate) fn from(&self, place: u32) -> impl Iterator<Item = (u32, Option<&Cursor>)> {
        (place..).zip(self.slots.iter().skip(place as usize)).map(|(id, slot)| (id, slot.as_deref()))
    }

    /// All of them, ascending.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.map(|(id, _)| id as u32).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of subscriptions that lag, those of absent clients included.
    pub(crate) fn lagging(&self) -> usize {
        self.catching_up
    }
}
