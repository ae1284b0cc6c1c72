//! Waiting deliveries of a session: until its window, its connection or its client's return admits
//! them.

use std::collections::VecDeque;

use whimbrel_event::{Event, Qos, Time};

use crate::api::Naming;
use crate::lazy::at_rest;
use crate::route::NO_CURSOR;

/// One waiting delivery.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) event: Event,
    pub(crate) identifier: u32,
    pub(crate) group: u32,
    /// The delivery to the shared subscription's own session that this one settles; 0: none.
    pub(crate) origin: u16,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) naming: Naming,
    /// The cursor that it is for, or [`crate::route::NO_CURSOR`].
    pub(crate) cursor: u32,
    /// Its number in the consolidated stream; 0: not known.
    pub(crate) serial: u64,
}

impl Queued {
    /// An entry that waits in a shared subscription for any member; `origin` as in
    /// [`Queued::origin`].
    pub(crate) fn shared(event: Event, group: u32, origin: u16) -> Queued {
        let (qos, naming) = (event.qos(), Naming::None);
        Queued { event, identifier: 0, group, origin, qos, retain: false, naming, cursor: NO_CURSOR, serial: 0 }
    }

    /// Its cost while it waits, bytes. The event is counted in every queue that holds it, which
    /// overstates it.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Queued>() + self.event.weight()
    }
}

/// A first-in, first-out queue that knows its bytes. Its user bounds it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: VecDeque<Queued>,
    bytes: usize,
    /// When the first entry was added after it was last empty.
    since: Time,
    /// The first and the last event that a bound has dropped, by their numbers in the consolidated
    /// stream; 0: none.
    lost: (u64, u64),
}

at_rest!(Queue, Queue::new());

impl Queue {
    pub(crate) const fn new() -> Self {
        Queue { entries: VecDeque::new(), bytes: 0, since: Time::ZERO, lost: (0, 0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The first entry that has not expired. Drops those before it, and returns their number and
    /// bytes.
    pub(crate) fn first_live(&mut self, now: Time) -> (Option<&Queued>, usize, usize) {
        let (mut expired, mut bytes) = (0, 0);
        while let Some(entry) = self.entries.front().filter(|entry| entry.event.is_expired(now)) {
            (expired, bytes) = (expired + 1, bytes + entry.weight());
            self.pop();
        }
        (self.entries.front(), expired, bytes)
    }

    /// The first entry, expired or not.
    pub(crate) fn first(&self) -> Option<&Queued> {
        self.entries.front()
    }

    /// The entry at a place, expired or not; the first is at 0.
    pub(crate) fn get(&self, at: usize) -> Option<&Queued> {
        self.entries.get(at)
    }

    /// Takes out the entry at a place. Costs a move of those before it.
    pub(crate) fn remove(&mut self, at: usize) -> Option<Queued> {
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.weight();
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
        Some(entry)
    }

    /// All entries, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.entries.iter()
    }

    /// Drops the entries that are not `kept`; returns their number and bytes.
    pub(crate) fn purge(&mut self, kept: impl Fn(&Queued) -> bool) -> (usize, usize) {
        let (entries, bytes) = (self.entries.len(), self.bytes);
        self.entries.retain(kept);
        self.bytes = self.entries.iter().map(Queued::weight).sum();
        (entries - self.entries.len(), bytes - self.bytes)
    }

    /// Records the time if the queue is empty: an entry is about to be added.
    pub(crate) fn record_arrival(&mut self, now: Time) {
        if self.entries.is_empty() {
            self.since = now;
        }
    }

    /// Records that a bound has dropped the event with this number.
    pub(crate) fn record_lost(&mut self, serial: u64) {
        if serial == 0 {
            return;
        }
        let first = if self.lost.0 == 0 { serial } else { self.lost.0 };
        self.lost = (first, serial);
    }

    /// Whether the event with this number may have been dropped: it lies between the first and the
    /// last dropped one.
    pub(crate) fn may_have_lost(&self, serial: u64) -> bool {
        self.lost.0 != 0 && (self.lost.0..=self.lost.1).contains(&serial)
    }

    /// The first event that a bound has dropped.
    pub(crate) fn first_lost(&self) -> Option<u64> {
        Some(self.lost.0).filter(|first| *first != 0)
    }

    /// Forgets which events a bound has dropped so far.
    pub(crate) fn forget_lost(&mut self) {
        self.lost = (0, 0);
    }

    /// The time since when the queue has not been empty.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, entry: Queued) {
        self.bytes += entry.weight();
        self.entries.push_back(entry);
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.weight();
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
        Some(entry)
    }

    /// Takes out the next entry that has not expired. Drops those before it, and returns their
    /// number.
    pub(crate) fn pop_live(&mut self, now: Time) -> (Option<Queued>, usize) {
        let mut expired = 0;
        while let Some(entry) = self.pop() {
            if !entry.event.is_expired(now) {
                return (Some(entry), expired);
            }
            expired += 1;
        }
        (None, expired)
    }

    /// Puts an entry back before all others.
    pub(crate) fn push_front(&mut self, entry: Queued) {
        self.bytes += entry.weight();
        self.entries.push_front(entry);
    }
}
