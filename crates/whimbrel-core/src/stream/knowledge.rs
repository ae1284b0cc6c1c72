//! Knowledge of one stream.

use core::marker::PhantomData;
use core::mem;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use whimbrel_event::{Event, PubendId, Tick};

/// The most entries (runs of silent or lost ticks, and events) that are kept of one stream.
pub const KNOWLEDGE_ENTRIES_MAX: usize = 8_192;

/// The most bytes of events that are kept of one stream. A single event may be larger.
pub const KNOWLEDGE_BYTES_MAX: usize = 8 << 20;

/// An interest that knowledge is about. Silence means that there is no event that *this* interest
/// wants.
pub trait Interest: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

/// The broker's interest at one version, which its consolidated stream follows.
#[derive(Clone, Copy, Debug)]
pub enum Consolidated {}

/// The interest of one subscription in catch-up.
#[derive(Clone, Copy, Debug)]
pub enum CatchUpInterest {}

impl sealed::Sealed for Consolidated {}
impl sealed::Sealed for CatchUpInterest {}
impl Interest for Consolidated {}
impl Interest for CatchUpInterest {}

/// The state of one tick. Of two sources the one with the greater state is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TickState {
    /// Unknown (Q).
    Unknown,
    /// Its event, if there was one, is gone for good (L).
    Lost,
    /// There is no event that the interest wants (S).
    Silence,
    /// There is an event (D).
    Data,
}

/// A part of a stream, as [`Knowledge::advance`] passes it. Ranges exclude their first tick and
/// include their last.
#[derive(Debug)]
pub enum Passed {
    /// An event.
    Data(Event),
    /// A lost range.
    Lost {
        /// The tick before the range.
        after: Tick,
        /// Its last tick.
        upto: Tick,
    },
    /// A range without an event.
    Silence {
        /// The tick before the range.
        after: Tick,
        /// Its last tick.
        upto: Tick,
    },
}

/// Knowledge of one stream under a fixed interest, after Bhola, Strom, Bagchi, Zhao, Auerbach,
/// "Exactly-once Delivery in a Content-based Publish-Subscribe System" (2002).
///
/// Each tick is unknown, lost, silent, or holds an event, and knowledge grows in this order:
/// learning and merging take the greater state per tick. So they are commutative, associative and
/// idempotent; the order, the ways and the number of repetitions in which knowledge arrives do not
/// matter. Ticks that the stream's reader has passed, up to the *base*, are forgotten, and later
/// knowledge of them is ignored.
///
/// Its size is bounded by [`KNOWLEDGE_ENTRIES_MAX`] and [`KNOWLEDGE_BYTES_MAX`]. Beyond that the
/// ticks farthest from the base become unknown again, so that distant ticks never take the room of
/// the next ones.
///
/// Ranges are given as the tick before them and their last tick.
///
/// Silence under one interest says nothing about another. Therefore this compiles
///
/// ```
/// # use whimbrel_core::stream::*;
/// fn both(one: &mut Knowledge<CatchUpInterest>, other: &Knowledge<CatchUpInterest>) {
///     one.merge(other);
/// }
/// ```
///
/// and this does not:
///
/// ```compile_fail,E0308
/// # use whimbrel_core::stream::*;
/// fn both(one: &mut Knowledge<CatchUpInterest>, other: &Knowledge<Consolidated>) {
///     one.merge(other);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Knowledge<I: Interest> {
    pubend: PubendId,
    base: Tick,
    /// The ticks that are not unknown, as runs by the tick before each: disjoint, above the base,
    /// and none continues another of the same kind. A tick with an event counts as silent here, so
    /// that a stream without holes is one run.
    runs: BTreeMap<Tick, Run>,
    /// The events, each within a silent run.
    events: BTreeMap<Tick, Event>,
    /// The weight of all events, bytes.
    bytes: usize,
    forgotten: u64,
    interest: PhantomData<fn() -> I>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    upto: Tick,
    state: RunState,
}

/// In the order of [`TickState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RunState {
    Lost,
    Silence,
}

impl<I: Interest> Knowledge<I> {
    /// Knowledge of a stream of which nothing is known after `base`, and nothing before it is of
    /// interest.
    pub fn new(pubend: PubendId, base: Tick) -> Self {
        Knowledge {
            pubend,
            base,
            runs: BTreeMap::new(),
            events: BTreeMap::new(),
            bytes: 0,
            forgotten: 0,
            interest: PhantomData,
        }
    }

    /// The stream.
    pub fn pubend(&self) -> PubendId {
        self.pubend
    }

    /// The last tick that was passed.
    pub fn base(&self) -> Tick {
        self.base
    }

    /// Learns that the range has no event that the interest wants.
    pub fn silence(&mut self, after: Tick, upto: Tick) {
        self.raise(after, upto, RunState::Silence);
        self.keep_bounds();
    }

    /// The last tick that is not unknown.
    pub fn last(&self) -> Tick {
        self.runs.last_key_value().map_or(self.base, |(_, run)| run.upto)
    }

    /// Forgets all silence: another interest wants more. Events and lost ranges stay.
    pub fn unlearn_silence(&mut self) {
        self.runs.retain(|_, run| run.state == RunState::Lost);
        let ticks: Vec<Tick> = self.events.keys().copied().collect();
        ticks.into_iter().for_each(|tick| self.raise(Tick(tick.0 - 1), tick, RunState::Silence));
    }

    /// Learns that the events of a range, if it had any, are gone for good.
    pub fn lost(&mut self, after: Tick, upto: Tick) {
        self.raise(after, upto, RunState::Lost);
        self.keep_bounds();
    }

    /// Learns of an event.
    ///
    /// # Panics
    /// When it is of another stream.
    pub fn data(&mut self, event: Event) {
        self.put(event);
        self.keep_bounds();
    }

    /// Learns everything that `other` knows. Their bases may differ: this one's stays.
    ///
    /// # Panics
    /// When it is of another stream.
    pub fn merge(&mut self, other: &Knowledge<I>) {
        assert_eq!(self.pubend, other.pubend, "knowledge of different streams");
        for (&after, run) in &other.runs {
            self.raise(after, run.upto, run.state);
        }
        for event in other.events.values() {
            self.put(event.clone());
        }
        self.keep_bounds();
    }

    /// The state of a tick; unknown up to the base.
    pub fn at(&self, tick: Tick) -> TickState {
        if self.events.contains_key(&tick) {
            return TickState::Data;
        }
        match self.runs.range(..tick).next_back() {
            Some((_, run)) if run.upto >= tick => match run.state {
                RunState::Lost => TickState::Lost,
                RunState::Silence => TickState::Silence,
            },
            _ => TickState::Unknown,
        }
    }

    /// The event at a tick that is not passed, if it is known.
    pub(crate) fn event(&self, tick: Tick) -> Option<&Event> {
        self.events.get(&tick)
    }

    /// The tick before the first unknown one.
    pub fn doubt_horizon(&self) -> Tick {
        let adjacent =
            |horizon: Tick, (after, run): (&Tick, &Run)| if *after == horizon { Ok(run.upto) } else { Err(horizon) };
        self.runs.iter().try_fold(self.base, adjacent).unwrap_or_else(|horizon| horizon)
    }

    /// Passes everything up to the doubt horizon, in the order of ticks, and makes that the base.
    pub fn advance(&mut self, visit: impl FnMut(Passed)) {
        self.advance_while(|_| true, visit);
    }

    /// As [`Knowledge::advance`], up to the first event that may not be passed yet: that one stays,
    /// with all ticks behind it.
    pub fn advance_while(&mut self, may_pass: impl Fn(&Event) -> bool, mut visit: impl FnMut(Passed)) {
        while let Some(first) = self.runs.first_entry().filter(|first| *first.key() == self.base) {
            let Run { upto, state } = first.remove();
            if state == RunState::Lost {
                visit(Passed::Lost { after: mem::replace(&mut self.base, upto), upto });
                continue;
            }
            while let Some(first) = self.events.first_entry().filter(|first| *first.key() <= upto) {
                if !may_pass(first.get()) {
                    let before = Tick(first.key().0 - 1);
                    if self.base < before {
                        visit(Passed::Silence { after: mem::replace(&mut self.base, before), upto: before });
                    }
                    self.runs.insert(self.base, Run { upto, state });
                    return;
                }
                let (tick, event) = first.remove_entry();
                self.bytes -= event.weight();
                let after = mem::replace(&mut self.base, tick);
                if after.0 + 1 < tick.0 {
                    visit(Passed::Silence { after, upto: Tick(tick.0 - 1) });
                }
                visit(Passed::Data(event));
            }
            if self.base < upto {
                visit(Passed::Silence { after: mem::replace(&mut self.base, upto), upto });
            }
        }
    }

    /// The unknown ranges between the base and the highest tick that is not unknown, in order.
    pub fn holes(&self) -> impl Iterator<Item = (Tick, Tick)> {
        let mut known = self.base;
        let gaps = self.runs.iter().map(move |(&after, run)| (mem::replace(&mut known, run.upto), after));
        gaps.filter(|(after, upto)| after < upto)
    }

    /// The number of kept entries: runs of silent or lost ticks, and events; at most
    /// [`KNOWLEDGE_ENTRIES_MAX`].
    pub fn entries(&self) -> usize {
        self.runs.len() + self.events.len()
    }

    /// The weight of the kept events, bytes; at most [`KNOWLEDGE_BYTES_MAX`] unless it is a single
    /// one.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of entries so far that became unknown again because a bound was exceeded.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn put(&mut self, event: Event) {
        let id = event.id();
        assert_eq!(self.pubend, id.pubend, "an event of another stream");
        if id.tick <= self.base {
            return;
        }
        self.raise(Tick(id.tick.0 - 1), id.tick, RunState::Silence);
        if let Entry::Vacant(place) = self.events.entry(id.tick) {
            self.bytes += event.weight();
            place.insert(event);
        }
    }

    /// Raises each tick of the range that is above the base to `state`, unless it is that or more.
    fn raise(&mut self, after: Tick, upto: Tick, state: RunState) {
        let after = after.max(self.base);
        if after >= upto {
            return;
        }
        // Knowledge mostly comes in order: the range is behind all runs, or continues the last one.
        match self.runs.last_entry() {
            Some(last) if last.get().upto > after => {}
            Some(mut last) if last.get().upto == after && last.get().state == state => {
                last.get_mut().upto = upto;
                return;
            }
            _ => {
                self.runs.insert(after, Run { upto, state });
                return;
            }
        }
        let touched = self.touched(after, upto);
        let mut known = after;
        let mut pieces = Pieces::default();
        for (from, run) in touched {
            self.runs.remove(&from);
            pieces.push(known, from, state);
            pieces.push(from, run.upto.min(after), run.state);
            pieces.push(from.max(after), run.upto.min(upto), run.state.max(state));
            pieces.push(from.max(upto), run.upto, run.state);
            known = known.max(run.upto);
        }
        pieces.push(known, upto, state);
        self.runs.extend(pieces.0);
    }

    /// The runs that have a tick in the range, or next to it.
    fn touched(&self, after: Tick, upto: Tick) -> Vec<(Tick, Run)> {
        let before = self.runs.range(..after).next_back().filter(|(_, run)| run.upto >= after);
        before.into_iter().chain(self.runs.range(after..=upto)).map(|(&from, &run)| (from, run)).collect()
    }

    /// Forgets from the far end until the bounds hold. The nearest event is kept at any weight: the
    /// reader needs it next.
    fn keep_bounds(&mut self) {
        while self.entries() > KNOWLEDGE_ENTRIES_MAX || (self.bytes > KNOWLEDGE_BYTES_MAX && self.events.len() > 1) {
            self.forget_farthest();
        }
    }

    /// Forgets the last event and all ticks beyond it, or the last run if that is beyond the last
    /// event.
    fn forget_farthest(&mut self) {
        let (after, run) = self.runs.pop_last().expect("events are within runs");
        if let Some(last) = self.events.last_entry().filter(|last| *last.key() > after) {
            let (tick, event) = last.remove_entry();
            self.bytes -= event.weight();
            let upto = Tick(tick.0 - 1);
            if after < upto {
                self.runs.insert(after, Run { upto, ..run });
            }
        }
        self.forgotten += 1;
    }
}

/// Runs to be added, in order.
#[derive(Default)]
struct Pieces(Vec<(Tick, Run)>);

impl Pieces {
    /// Adds a range, unless it is empty; one that continues the last is made part of it.
    fn push(&mut self, after: Tick, upto: Tick, state: RunState) {
        if after >= upto {
            return;
        }
        match self.0.last_mut() {
            Some((_, last)) if last.upto == after && last.state == state => last.upto = upto,
            _ => self.0.push((after, Run { upto, state })),
        }
    }
}
