//! Publishers' own numbers of their events: one that is not greater than the last is a repeat.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::Time;

use super::keys::Key;
use super::wire::{ByteReader, MapValue, put_varint};
use super::write_queue::{BatchNo, WriteQueue};

/// Most publishers whose numbers are known.
const PUBLISHERS_MAX: usize = 1_000_000;

/// A publisher without a numbered event for this long can be forgotten to make room for another.
const LIFETIME_MIN: Duration = Duration::from_secs(24 * 3600);

/// The last number that a publisher gave to an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbered {
    pub(crate) last: u64,
    /// When, in whole hours since 1970.
    pub(crate) hour: u32,
    /// The attachment of its client; 0: unknown, or at another broker.
    pub(crate) epoch: u64,
    /// When that attachment began, a broker that may have greater numbers of the client did not
    /// answer.
    pub(crate) maybe_repeats: bool,
}

impl MapValue<'_> for Numbered {
    const VERSION: u8 = 3;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.last);
        put_varint(out, self.hour.into());
        put_varint(out, self.epoch);
        out.push(u8::from(self.maybe_repeats));
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let numbered = Numbered::read_older(2, bytes)?;
        Some(Numbered { maybe_repeats: bytes.u8()? == 1, ..numbered })
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (1..=2).contains(&version).then_some(())?;
        let (last, hour) = (bytes.varint()?, bytes.small()?);
        // Earlier versions did not write whether all brokers had answered.
        Some(Numbered { last, hour, epoch: if version == 2 { bytes.varint()? } else { 0 }, maybe_repeats: true })
    }
}

/// One publisher.
#[derive(Clone, Copy, Debug)]
struct PublisherNumbers {
    numbered: Numbered,
    /// The batch that must be durable before a repeat may be answered.
    batch: BatchNo,
}

/// Publishers' numbers, by client id.
#[derive(Debug, Default)]
pub(crate) struct Publishers {
    all: BTreeMap<Box<str>, PublisherNumbers>,
    /// By the hour of the last numbered event.
    by_age: BTreeSet<(u32, Box<str>)>,
    /// Publishers whose last number is not written.
    dirty: BTreeSet<Box<str>>,
    /// When the broker was restarted; it may have forgotten numbers of events that it had not
    /// logged.
    restarted_at: Option<Time>,
}

fn hour(now: Time) -> u32 {
    u32::try_from(now.as_nanos() / 3_600_000_000_000).unwrap_or(u32::MAX)
}

impl Publishers {
    /// Records that the broker was restarted.
    pub(crate) fn record_restart(&mut self, now: Time) {
        self.restarted_at = Some(now);
    }

    /// Whether the broker was restarted less than `span` ago.
    pub(crate) fn restarted_within(&self, now: Time, span: Duration) -> bool {
        self.restarted_at.is_some_and(|at| now.since(at) < span)
    }

    /// If a number is a repeat: the batch that must be durable before that may be answered.
    pub(crate) fn is_repeat(&self, client_id: &str, number: u64) -> Option<BatchNo> {
        let known = self.all.get(client_id)?;
        (number <= known.numbered.last).then_some(known.batch)
    }

    /// The last number that a publisher gave, if it is durable, or need not be.
    pub(crate) fn last(&self, client_id: &str, committed: BatchNo) -> Option<u64> {
        let known = self.all.get(client_id)?;
        (known.batch <= committed).then_some(known.numbered.last)
    }

    /// The last number that a publisher gave, durable or not.
    pub(crate) fn known(&self, client_id: &str) -> Option<u64> {
        self.all.get(client_id).map(|known| known.numbered.last)
    }

    /// Whether the last number of a publisher is known to be of an event here.
    pub(crate) fn has_published(&self, client_id: &str) -> bool {
        self.all.get(client_id).is_some_and(|known| known.numbered.epoch > 0)
    }

    /// Publishers that have numbered an event here in this hour or the last one, latest first, with
    /// their last numbers.
    pub(crate) fn recent(&self, now: Time) -> impl Iterator<Item = (&str, Numbered)> {
        let oldest = hour(now).saturating_sub(1);
        let recent = self.by_age.iter().rev().take_while(move |(hour, _)| *hour >= oldest);
        let of = recent.filter_map(|(_, client)| Some((&**client, self.all.get(client)?.numbered)));
        of.filter(|(_, numbered)| numbered.epoch > 0)
    }

    /// Records a number that a publisher gave at another broker; returns the record to be written.
    pub(crate) fn learn(&mut self, client_id: &str, number: u64, now: Time) -> Numbered {
        let known = self.all.get(client_id).map_or(0, |known| known.numbered.last);
        let numbered = Numbered { last: number.max(known), hour: hour(now), epoch: 0, maybe_repeats: false };
        self.keep(client_id, numbered, BatchNo(0));
        numbered
    }

    /// Whether a publisher's number can be recorded. If need be, one that has been silent for
    /// [`LIFETIME_MIN`] makes room.
    pub(crate) fn has_room(&mut self, client_id: &str, now: Time) -> bool {
        if self.all.len() < PUBLISHERS_MAX || self.all.contains_key(client_id) {
            return true;
        }
        let old = hour(now).saturating_sub(u32::try_from(LIFETIME_MIN.as_secs() / 3600).unwrap_or(u32::MAX));
        match self.by_age.first() {
            Some((age, _)) if *age < old => {
                let (_, oldest) = self.by_age.pop_first().expect("just seen");
                self.all.remove(&oldest);
                // Its written number is forgotten with the lazy writes.
                self.dirty.insert(oldest);
                true
            }
            _ => false,
        }
    }

    /// Records the number of an accepted event. For a logged event it is written in the event's
    /// batch, else lazily.
    pub(crate) fn record(
        &mut self,
        client_id: &str,
        (number, now, (epoch, maybe_repeats)): (u64, Time, (u64, bool)),
        (is_logged, has_log): (bool, bool),
        write_queue: &mut WriteQueue,
    ) {
        let numbered = Numbered { last: number, hour: hour(now), epoch, maybe_repeats };
        self.keep(client_id, numbered, if is_logged { write_queue.next() } else { BatchNo(0) });
        if is_logged {
            write_queue.put(|key| Key::Number(client_id).put(key), |value| numbered.put_versioned(value));
            self.dirty.remove(client_id);
        } else if has_log && !self.dirty.contains(client_id) {
            self.dirty.insert(client_id.into());
        }
    }

    /// A fault: as [`Publishers::record`], but the number is not written with its event.
    pub(crate) fn record_apart(&mut self, client_id: &str, (number, now): (u64, Time), write_queue: &WriteQueue) {
        let numbered = Numbered { last: number, hour: hour(now), epoch: 0, maybe_repeats: false };
        self.keep(client_id, numbered, write_queue.next());
        self.dirty.insert(client_id.into());
    }

    /// Sets the number of a publisher, and the batch that has it.
    pub(crate) fn keep(&mut self, client_id: &str, numbered: Numbered, batch: BatchNo) {
        match self.all.get_mut(client_id) {
            Some(known) => {
                if known.numbered.hour != numbered.hour {
                    self.by_age.remove(&(known.numbered.hour, client_id.into()));
                    self.by_age.insert((numbered.hour, client_id.into()));
                }
                let batch = batch.max(known.batch);
                *known = PublisherNumbers { numbered, batch };
            }
            None => {
                self.by_age.insert((numbered.hour, client_id.into()));
                self.all.insert(client_id.into(), PublisherNumbers { numbered, batch });
            }
        }
    }

    /// Takes back an event with that number, and all later ones.
    pub(crate) fn take_back(&mut self, client_id: &str, number: u64) {
        if let Some(known) = self.all.get_mut(client_id) {
            known.numbered.last = known.numbered.last.min(number.saturating_sub(1));
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The number of publishers whose numbers are to be written lazily.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Lazily writes the numbers of at most `most` publishers, except those with an event in a
    /// batch that the driver has not taken: it may be refused, and then neither its number nor a
    /// greater one must be known.
    pub(crate) fn write_dirty(&mut self, most: usize, write_queue: &mut WriteQueue) {
        let mut early = Vec::new();
        for _ in 0..most {
            let Some(client_id) = self.dirty.pop_first() else { break };
            if self.all.get(&client_id).is_some_and(|known| !write_queue.is_taken(known.batch)) {
                early.push(client_id);
                continue;
            }
            let key = |key: &mut Vec<u8>| Key::Number(&client_id).put(key);
            match self.all.get(&client_id) {
                Some(known) => write_queue.put(key, |value| known.numbered.put_versioned(value)),
                None => write_queue.forget(key),
            }
            write_queue.seal();
        }
        self.dirty.extend(early);
    }
}
