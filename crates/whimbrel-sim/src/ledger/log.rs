//! The contents of the broker's log, and its machine: durable events stay durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_core::store::{Disk, LogState};
use whimbrel_event::{Packed, Time};

use super::follow::Follow;
use super::{Ledger, mark_of};
use crate::check::Rule;
use crate::disk::{Logged, packed_of};

/// An acknowledgement this long before a crash is durable.
const ACK_GRACE: Duration = Duration::from_secs(1);

/// The index of a pubend and a tick.
type At = (u8, u64);

/// The contents of the log, now and before.
#[derive(Default, Debug)]
pub(super) struct Log {
    /// Where each durable event is, by mark.
    pub(super) places: BTreeMap<String, At>,
    /// The marks of the events that it holds.
    pub(super) present: BTreeMap<At, String>,
    /// All events that it ever held, each with the step from which on.
    pub(super) ever: BTreeMap<At, (String, u64)>,
    /// The marks of durable events.
    pub(super) durable: BTreeSet<String>,
}

/// The history of the machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// When it crashed.
    crashes: Vec<Time>,
    /// The state of the disk: which writes the log takes.
    pub(super) disk: Disk,
    /// When the log last took everything: events published until then may be refused.
    pub(super) refusals_until: Time,
    /// Whether the broker has given up something that was not acknowledged.
    pub(super) has_released: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Machine { crashes: Vec::new(), disk: Disk::Open, refusals_until: Time::ZERO, has_released: false }
    }
}

impl Machine {
    /// Whether an acknowledgement at a moment may not have become durable.
    pub(super) fn may_repeat(&self, at: Time) -> bool {
        let trouble = self.refusals_until >= at || self.disk != Disk::Open;
        let next = self.crashes.iter().find(|crash| at < **crash);
        next.is_some_and(|crash| *crash < at + ACK_GRACE || trouble)
    }
}

impl Ledger {
    /// Events have become durable.
    pub(crate) fn logged(&mut self, now: Time, events: Vec<Logged>) {
        self.now = now;
        for (pubend, tick, record) in events {
            let Some(mark) = self.mark_in(&record) else { continue };
            if self.refused.contains(&mark) {
                self.broken(Rule::Answers, format!("{mark} was refused, and is in the log at {pubend}:{tick}"));
            }
            let place = *self.log.places.entry(mark.clone()).or_insert((pubend, tick));
            if place != (pubend, tick) && self.facts.get(&mark).is_some_and(|fact| fact.once) {
                self.broken(Rule::Duplicate, format!("{mark} is in the log at {place:?} and at {:?}", (pubend, tick)));
            }
            self.log.durable.insert(mark.clone());
            self.log.ever.entry((pubend, tick)).or_insert((mark.clone(), self.steps));
            self.log.present.insert((pubend, tick), mark);
        }
    }

    /// The broker's machine has stopped, and the log was opened again. `found`: the events that it
    /// holds; `state`: how far its streams were given up.
    pub(crate) fn crashed(&mut self, now: Time, found: Vec<Logged>, state: &LogState) {
        self.now = now;
        self.counts.crashes += 1;
        self.machine.crashes.push(now);
        self.names.crashed(self.steps);
        self.lines.clear();
        self.follows.values_mut().for_each(Follow::crash);
        let mut log = BTreeMap::new();
        for (pubend, tick, record) in &found {
            let Some(mark) = self.mark_in(record) else { continue };
            log.insert((*pubend, *tick), mark);
        }
        for (place, mark) in std::mem::take(&mut self.log.present) {
            let (pubend, tick) = place;
            match log.get(&place) {
                Some(other) if *other == mark => {}
                Some(other) => {
                    self.broken(Rule::EventId, format!("{place:?} was {mark}, and is {other} after a crash"));
                }
                None if tick <= state.events[usize::from(pubend)].chopped.0 => {}
                None => self.broken(Rule::Durable, format!("{mark} was durable at {place:?}, and is gone")),
            }
        }
        self.logged(now, found);
        self.told(now, Disk::Open);
    }

    /// The log takes more or less than before.
    pub(crate) fn told(&mut self, now: Time, disk: Disk) {
        if self.machine.disk != Disk::Open {
            self.machine.refusals_until = now;
        }
        self.machine.disk = disk;
    }

    /// The broker reports that it has given up something that was not acknowledged.
    pub(crate) fn note_released(&mut self) {
        self.machine.has_released = true;
    }

    /// The mark in a record of the log.
    fn mark_in(&mut self, record: &[u8]) -> Option<String> {
        mark_of(Packed::kept(&packed_of(record)).view().payload)
    }
}
