//! A stream of another broker, as far as it is known here.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{Event, EventId, PredecessorsBuf, PubendId, Reliability, Tick, Time};
use whimbrel_wire::{Dest, EventFrame};

use super::held_back::{HELD_BYTES_MAX, HeldBack, HoldOutcome};
use super::{Consolidated, Knowledge, TickState};
use crate::store::LostParts;

/// An event of another broker for this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteArrival<'a> {
    pub(crate) frame: &'a EventFrame<'a>,
    /// See [`NetEvent::Event`](whimbrel_net::NetEvent::Event).
    pub(crate) own: Dest,
    pub(crate) age: Duration,
    /// The age at which the last copy of it, or of an earlier event, should be here, if there are
    /// any.
    pub(crate) last: Option<Duration>,
}

/// A stream of another broker.
#[derive(Debug)]
pub(crate) struct RemoteStream {
    pub(crate) pubend: PubendId,
    pub(crate) birth: Tick,
    /// The tick up to which the consolidated stream has passed it.
    pub(crate) passed: Tick,
    /// The last passed tick that was not silent: an event, a lost tick, or the begin of the stream
    /// here.
    pub(crate) spoke: Tick,
    /// Knowledge beyond that.
    pub(crate) knowledge: Knowledge<Consolidated>,
    /// Events known beyond that which become retained messages.
    pub(crate) retained: BTreeSet<Tick>,
    /// Events known beyond that which name predecessors in other streams.
    pub(crate) predecessors: BTreeMap<Tick, PredecessorsBuf>,
    /// The latest version of the own interest that its host has reported to be in force; 0: none.
    pub(crate) told: u64,
    /// The tick after which that version is in force.
    pub(crate) since: Tick,
    /// The stream is followed with this version of the own interest, or a later one.
    pub(crate) least: u64,
    /// The deadline of the last event that had one.
    pub(crate) deadline: Option<Duration>,
    /// Best-effort events that wait for copies of earlier ones.
    pub(super) held: HeldBack,
    /// Nothing passes until the tick is known from which on it is followed.
    pub(crate) is_held: bool,
    /// The lost parts of the passed ticks.
    pub(crate) lost: LostParts,
    /// After the first of these ticks up to the second it had no event at all, by its host's last
    /// report.
    still: (Tick, Tick),
}

impl RemoteStream {
    /// A stream that begins behind this tick.
    pub(super) fn new(pubend: PubendId, birth: Tick, is_held: bool) -> RemoteStream {
        RemoteStream {
            pubend,
            birth,
            passed: birth,
            spoke: birth,
            knowledge: Knowledge::new(pubend, birth),
            retained: BTreeSet::new(),
            predecessors: BTreeMap::new(),
            told: 0,
            least: 0,
            since: Tick(0),
            deadline: None,
            held: HeldBack::default(),
            is_held,
            lost: LostParts::default(),
            still: (Tick(0), Tick(0)),
        }
    }

    /// Holds a best-effort event back if there is a hole before it. Without room for it, the hole
    /// is passed.
    pub(super) fn hold_back(&mut self, tick: Tick, until: Time) -> HoldOutcome {
        debug_assert_eq!(self.pubend.reliability(), Reliability::BestEffort, "other holes are not passed");
        if tick <= self.knowledge.base() {
            return HoldOutcome::Passed;
        }
        if self.knowledge.bytes() <= HELD_BYTES_MAX && self.held.hold(tick, until) {
            return HoldOutcome::Waits;
        }
        self.knowledge.silence(self.knowledge.base(), tick);
        HoldOutcome::Full
    }

    /// Passes the holes before best-effort events that have waited long enough.
    pub(super) fn release_held(&mut self, now: Time) {
        if let Some(upto) = self.held.take_due(now) {
            self.knowledge.silence(self.knowledge.base(), upto);
        }
    }

    /// Whether the event at a tick, or that there is none, is known.
    pub(super) fn knows(&self, tick: Tick) -> bool {
        tick <= self.knowledge.base() || self.knowledge.event(tick).is_some()
    }

    /// The event at tick `upto`, which was there at `then` by this broker's clock, and the one at
    /// `before`, which it was told to follow, as far as they are not passed: with their deadlines,
    /// and the content of the first.
    pub(super) fn awaited_upto(
        &self,
        upto: Tick,
        before: Option<Tick>,
        then: Time,
        deadline: Duration,
    ) -> impl Iterator<Item = (Time, EventId, Option<&Event>)> {
        let id = |tick| EventId { pubend: self.pubend, tick };
        let known = self.knowledge.event(upto).map(move |event| (event.id(), Some(event)));
        let is_between = |tick: Tick| self.passed < tick && tick < upto;
        let is_missing = |tick: &Tick| is_between(*tick) && self.knowledge.at(*tick) == TickState::Unknown;
        let missing = before.filter(is_missing).map(|tick| (id(tick), None));
        let both = known.into_iter().chain(missing);
        both.map(move |(of, event)| {
            let earlier = Duration::from_nanos(upto.0 - of.tick.0);
            ((then + deadline).before(earlier), of, event)
        })
    }

    /// Records that the consolidated stream has passed it up to a tick without an event.
    pub(super) fn record_passed(&mut self, upto: Tick) {
        self.passed = upto;
        // Lost events are not retained.
        if self.retained.first().is_some_and(|first| *first <= upto) {
            self.retained = self.retained.split_off(&Tick(upto.0 + 1));
        }
    }

    /// Records its host's report that there was no event after `from` up to `to`. An earlier report
    /// that touches this range stays valid.
    pub(crate) fn record_still(&mut self, (from, to): (Tick, Tick)) {
        if from < to && to > self.still.1 {
            let from = if from <= self.still.1 { from.min(self.still.0) } else { from };
            self.still = (from, to);
        }
    }

    /// A range without the parts at its begin and its end that are known to have had no event;
    /// `None`: nothing is left.
    pub(super) fn without_still(&self, from: Tick, to: Tick) -> Option<(Tick, Tick)> {
        let (begin, end) = self.still;
        let is_within = |tick: Tick| begin <= tick && tick <= end;
        let (from, to) = (if is_within(from) { end } else { from }, if is_within(to) { begin } else { to });
        (from < to).then_some((from, to))
    }
}
