//! Events that subscriptions with notices expect, and that do not come: known ones by their
//! deadlines, and one in each period of a topic's profile.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{Event, EventId, Time};

use crate::topic::TopicPeriod;

/// Most events whose deadlines are awaited at once; further ones are not told when overdue.
const AWAITED_MAX: usize = 1_024;

/// Most profiles with a period that count for one subscription, the first in their order.
const PERIODS_PER_CURSOR_MAX: usize = 16;

/// After this time it is checked again whether an event that was told to be overdue has come: until
/// then it is not told anew.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// A profile with a period under which a subscription expects events.
#[derive(Debug)]
struct ExpectedPeriod {
    of: TopicPeriod,
    /// When the last event came, or the subscription began to expect one.
    last: Time,
    /// It was told that none came since.
    is_told: bool,
}

/// A known event that has not been passed.
#[derive(Debug)]
struct AwaitedEvent {
    /// Its deadline, or when it is checked again.
    at: Time,
    /// Its content, if that is here, has room and was not told yet.
    event: Option<Event>,
    is_told: bool,
}

/// Bytes of events that are kept while they are awaited; beyond that their content is not known
/// when they are told.
const AWAITED_BYTES_MAX: usize = 4 << 20;

/// A notice that is due.
#[derive(Debug)]
pub(crate) enum DueNotice {
    /// This event has not come by its deadline; with its content, if that is here.
    Overdue(EventId, Option<Event>),
    /// The subscription of this cursor has had no event under this filter for its period.
    Stalled(u32, Box<str>),
}

/// See the module's documentation. It holds only subscriptions with notices whose clients are
/// connected; without any it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct ExpectedEvents {
    /// By cursor: whether a topic that it wants may have a deadline.
    listeners: BTreeMap<u32, bool>,
    /// At most [`AWAITED_MAX`].
    awaited: BTreeMap<EventId, AwaitedEvent>,
    /// Their deadlines; of those that were told, when they are checked again.
    awaited_at: BTreeSet<(Time, EventId)>,
    /// The weight of their content.
    awaited_bytes: usize,
    /// By cursor.
    periods: BTreeMap<u32, Vec<ExpectedPeriod>>,
    /// When a cursor's periods are checked next.
    periods_at: BTreeSet<(Time, u32)>,
    /// Known events for which there was no room.
    untold: u64,
}

impl ExpectedEvents {
    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let awaited = self.awaited_at.first().map(|(at, _)| *at);
        let period = self.periods_at.first().map(|(at, _)| *at);
        [awaited, period].into_iter().flatten().min()
    }

    /// The number of known events that were not awaited, as there were too many.
    pub(crate) fn untold(&self) -> u64 {
        self.untold
    }

    /// A subscription with notices has a client, or profiles have changed: it expects an event in
    /// each of these periods, and may want some with a deadline. Periods that it had go on.
    pub(crate) fn listen(
        &mut self,
        now: Time,
        cursor: u32,
        has_deadline: bool,
        periods: impl Iterator<Item = TopicPeriod>,
    ) {
        self.unschedule(cursor);
        self.listeners.insert(cursor, has_deadline);
        let had = self.periods.remove(&cursor).unwrap_or_default();
        let begin = |of: TopicPeriod| {
            let is_it = |had: &&ExpectedPeriod| had.of.filter == of.filter && had.of.period == of.period;
            let (last, is_told) = had.iter().find(is_it).map_or((now, false), |had| (had.last, had.is_told));
            ExpectedPeriod { of, last, is_told }
        };
        let periods: Vec<ExpectedPeriod> = periods.take(PERIODS_PER_CURSOR_MAX).map(begin).collect();
        if !periods.is_empty() {
            self.periods.insert(cursor, periods);
            self.schedule(cursor);
        }
    }

    /// A subscription has ended, or its client has left.
    pub(crate) fn leave(&mut self, cursor: u32) {
        self.listeners.remove(&cursor);
        self.unschedule(cursor);
        self.periods.remove(&cursor);
        if self.listeners.is_empty() {
            self.awaited.clear();
            self.awaited_at.clear();
            self.awaited_bytes = 0;
        }
    }

    /// A subscription is caught up: it may have been given any events before.
    pub(crate) fn restart(&mut self, now: Time, cursor: u32) {
        self.unschedule(cursor);
        for period in self.periods.get_mut(&cursor).into_iter().flatten() {
            period.last = now;
        }
        self.schedule(cursor);
    }

    fn unschedule(&mut self, cursor: u32) {
        if let Some(at) = self.periods.get(&cursor).and_then(|periods| next_of(periods)) {
            self.periods_at.remove(&(at, cursor));
        }
    }

    fn schedule(&mut self, cursor: u32) {
        if let Some(at) = self.periods.get(&cursor).and_then(|periods| next_of(periods)) {
            self.periods_at.insert((at, cursor));
        }
    }

    /// A subscription is given an event of a topic under that profile.
    pub(crate) fn record_delivered(&mut self, now: Time, cursor: u32, profile: u32) {
        let is_it = |period: &&mut ExpectedPeriod| period.of.profile == profile;
        if !self.periods.contains_key(&cursor) {
            return;
        }
        self.unschedule(cursor);
        let periods = self.periods.get_mut(&cursor).expect("it was just there");
        if let Some(period) = periods.iter_mut().find(is_it) {
            (period.last, period.is_told) = (now, false);
        }
        self.schedule(cursor);
    }

    /// Whether events are awaited at all.
    pub(crate) fn is_listened_to(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Awaits an event that is known to exist and not passed on yet; `by` is its deadline.
    pub(crate) fn await_event(&mut self, by: Time, id: EventId, event: Option<Event>) {
        let event = event.filter(|event| self.awaited_bytes + event.weight() <= AWAITED_BYTES_MAX);
        if let Some(known) = self.awaited.get_mut(&id) {
            if known.event.is_none() && !known.is_told {
                self.awaited_bytes += event.as_ref().map_or(0, Event::weight);
                known.event = event;
            }
            return;
        }
        if self.awaited.len() >= AWAITED_MAX {
            self.untold += 1;
            return;
        }
        self.awaited_bytes += event.as_ref().map_or(0, Event::weight);
        self.awaited.insert(id, AwaitedEvent { at: by, event, is_told: false });
        self.awaited_at.insert((by, id));
    }

    /// An event is passed on.
    pub(crate) fn record_passed(&mut self, id: EventId) {
        if self.awaited.is_empty() {
            return;
        }
        if let Some(passed) = self.awaited.remove(&id) {
            self.awaited_at.remove(&(passed.at, id));
            self.awaited_bytes -= passed.event.as_ref().map_or(0, Event::weight);
        }
    }

    /// What is due next, if anything is: an overdue event, or a period that has passed without an
    /// event. `lacks`: whether an event, or the silence in its place, is still to come.
    pub(crate) fn take_due(&mut self, now: Time, lacks: impl Fn(EventId) -> bool) -> Option<DueNotice> {
        while let Some((_, id)) = self.awaited_at.first().copied().filter(|(at, _)| *at <= now) {
            self.awaited_at.pop_first();
            let awaited = self.awaited.get_mut(&id).expect("each deadline is of an awaited event");
            let event = awaited.event.take();
            self.awaited_bytes -= event.as_ref().map_or(0, Event::weight);
            if !lacks(id) {
                self.awaited.remove(&id);
                continue;
            }
            awaited.at = now + TOLD_AGAIN;
            self.awaited_at.insert((awaited.at, id));
            if !core::mem::replace(&mut awaited.is_told, true) {
                return Some(DueNotice::Overdue(id, event));
            }
        }
        while let Some((_, cursor)) = self.periods_at.first().copied().filter(|(at, _)| *at <= now) {
            self.unschedule(cursor);
            let periods = self.periods.get_mut(&cursor).expect("only these are scheduled");
            let passed = periods.iter_mut().find(|period| !period.is_told && period.last + period.of.period <= now);
            let filter = passed.map(|period| {
                period.is_told = true;
                period.of.filter.clone()
            });
            self.schedule(cursor);
            if let Some(filter) = filter {
                return Some(DueNotice::Stalled(cursor, filter));
            }
        }
        None
    }

    /// The subscriptions with notices whose clients are connected, and whether each may want events
    /// with a deadline.
    pub(crate) fn listeners(&self) -> Vec<(u32, bool)> {
        self.listeners.iter().map(|(cursor, has_deadline)| (*cursor, *has_deadline)).collect()
    }
}

/// When the first period ends without an event, of those that were not told.
fn next_of(periods: &[ExpectedPeriod]) -> Option<Time> {
    periods.iter().filter(|period| !period.is_told).map(|period| period.last + period.of.period).min()
}
