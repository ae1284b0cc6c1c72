//! Filter records: for which durable subscriptions an event was logged. With them, catch-up finds
//! the few events of the log that it wants, without reading the others.
//!
//! A record belongs to one event and has its tick, in a stream of its own per pubend and *shard* of
//! the subscriptions' numbers. It names, ascending, the subscriptions that want the event, and with
//! each the tick of the previous event that it wanted: a chain through the log, of which the
//! subscription knows the last member (`Durable::newest`). Records are hints: a named subscription
//! is matched again. A name must never be missing, so a record without names means all
//! subscriptions. If a chain breaks, after a restart for instance, all records are read instead.
//!
//! Other brokers with retention holds are named in the same way, each as one, in a shard of their
//! own, by their numbers alone.
//!
//! After the persistent filtering subsystem of Gryphon ("Scalably supporting durable subscriptions
//! in a publish/subscribe system", 2003).

use std::collections::BTreeMap;

use whimbrel_event::Tick;

use super::StreamName;
use super::keys::DurableNo;
use super::own_ticks::OwnTicks;
use super::reads::{FETCH_BYTES, POINT_BYTES, Slice};
use super::write_queue::WriteQueue;
use crate::cursor::Cursors;
use crate::route::{Router, TargetKind};

/// The format of a record, its first byte: names of [`NAME`] bytes.
const FORMAT: u8 = 1;

/// The format of a record of brokers, without previous ticks: numbers within the shard alone, two
/// bytes each.
const BARE: u8 = 2;

/// Bytes of one name: two for the number within the shard, seven for the distance (ns) to its
/// previous event.
const NAME: usize = 9;

/// Largest distance that a name can have, nanoseconds; about two years.
const DISTANCE_MAX: u64 = (1 << 56) - 1;

/// Most subscriptions that the records of one event name; of more, all are meant. Bounds the
/// records of an event to 128 KiB.
const NAMES_MAX: usize = (128 << 10) / NAME;

/// Most events that are found by following the chain; beyond, all records are read.
const CHAIN_MAX: usize = 64;

/// Bytes of brokers' records that are searched in a turn, about.
pub(crate) const RECORDS_BYTES: usize = 64 << 10;

/// Number of records whose search costs as much as one event.
const LOOKS: usize = 16;

/// The shard of a number, and the number within it.
fn split(number: DurableNo) -> (u16, u16) {
    ((number.0 >> 16) as u16, number.0 as u16)
}

/// The stream in which a subscription is named for the events of a pubend.
pub(crate) fn stream_of(own: usize, number: DurableNo) -> StreamName {
    StreamName::Filter { pubend: own as u8, shard: split(number).0 }
}

/// The result of a search for a subscription in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NamedIn {
    /// The subscription does not want the event.
    No,
    /// The subscription may want the event.
    Perhaps,
    /// The subscription wants the event, and none between that tick and this one.
    After(Tick),
}

/// Searches the record at `tick` for a subscription.
pub(crate) fn look_up(tick: Tick, body: &[u8], number: DurableNo) -> NamedIn {
    if let Some(numbers) = bare_numbers(body) {
        let number = split(number).1.to_le_bytes();
        return if numbers.contains(&number) { NamedIn::Perhaps } else { NamedIn::No };
    }
    let Some(names) = known_names(body) else { return NamedIn::Perhaps };
    match names.binary_search_by_key(&split(number).1, number_of) {
        Err(_) => NamedIn::No,
        Ok(at) => {
            let mut distance = [0; 8];
            distance[..NAME - 2].copy_from_slice(&names[at][2..]);
            match u64::from_le_bytes(distance) {
                0 => NamedIn::Perhaps,
                distance => NamedIn::After(Tick(tick.0.saturating_sub(distance))),
            }
        }
    }
}

/// The numbers within the shard that a record names; `None`: all subscriptions are meant.
pub(super) fn names(body: &[u8]) -> Option<impl Iterator<Item = u16>> {
    known_names(body).map(|names| names.iter().map(number_of))
}

/// The numbers in a record of brokers; `None` if it is none, or not valid.
fn bare_numbers(body: &[u8]) -> Option<&[[u8; 2]]> {
    let Some((&BARE, numbers)) = body.split_first() else { return None };
    let (numbers, rest) = numbers.as_chunks::<2>();
    (!numbers.is_empty() && rest.is_empty()).then_some(numbers)
}

/// The names in a record of subscriptions; `None` if it has none, or is not valid.
fn known_names(body: &[u8]) -> Option<&[[u8; NAME]]> {
    let Some((&FORMAT, names)) = body.split_first() else { return None };
    let (names, rest) = names.as_chunks::<NAME>();
    (!names.is_empty() && rest.is_empty()).then_some(names)
}

/// The number within its shard of a named subscription.
fn number_of(name: &[u8; NAME]) -> u16 {
    u16::from_le_bytes([name[0], name[1]])
}

/// Writes a record with these names, as brokers or as subscriptions.
fn put_names(out: &mut Vec<u8>, tick: Tick, is_of_holds: bool, names: &[(DurableNo, Tick)]) {
    out.push(if is_of_holds { BARE } else { FORMAT });
    for (number, before) in names {
        match is_of_holds {
            true => out.extend_from_slice(&split(*number).1.to_le_bytes()),
            false => put_name(out, tick, (*number, *before)),
        }
    }
}

fn put_name(out: &mut Vec<u8>, tick: Tick, (number, before): (DurableNo, Tick)) {
    out.extend_from_slice(&split(number).1.to_le_bytes());
    let distance = tick.0.saturating_sub(before.0);
    let distance = if distance > DISTANCE_MAX { 0 } else { distance };
    out.extend_from_slice(&distance.to_le_bytes()[..NAME - 2]);
}

/// State and counters of writing filter records.
#[derive(Debug, Default)]
pub(crate) struct FilterRecords {
    /// Logged events after these ticks have records.
    pub(crate) since: OwnTicks,
    /// Durable targets of the event that is being accepted.
    pub(crate) wanted: Vec<(TargetKind, u32)>,
    /// Subscriptions that wait for their confirmation, and the last event that each wanted.
    pub(crate) asking: BTreeMap<DurableNo, OwnTicks>,
    /// Kept for its memory.
    names: Vec<(DurableNo, Tick)>,
    /// Number of records written.
    pub(crate) records: u64,
    /// Number of names in them.
    pub(crate) named: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
}

impl FilterRecords {
    /// A fault: leaves brokers' retention holds, or else all other durable interests, out of the
    /// next record.
    pub(crate) fn leave_out(&mut self, holds: bool, router: &Router) {
        let is_hold = |to: u32| router.interest_owner(to).is_some_and(|(number, _)| number.is_hold());
        self.wanted.retain(|(kind, to)| *kind != TargetKind::Interest || is_hold(*to) != holds);
    }

    /// Writes the records of the logged event at that tick to the open batch.
    pub(crate) fn name(
        &mut self,
        (own, tick): (usize, Tick),
        cursors: &mut Cursors,
        router: &Router,
        write_queue: &mut WriteQueue,
    ) {
        let FilterRecords { wanted, asking, names, .. } = self;
        names.clear();
        for (kind, to) in wanted.drain(..) {
            let (number, cursor) = match kind {
                TargetKind::Interest => match router.interest_owner(to) {
                    Some((number, _)) if number.is_hold() => {
                        names.push((number, tick));
                        continue;
                    }
                    Some((number, cursor)) => (Some(number), cursor),
                    None => continue,
                },
                _ => (None, to),
            };
            let durable = cursors.durable_mut(cursor).filter(|durable| number.is_none_or(|it| it == durable.number));
            let (number, before) = match (durable, number) {
                (Some(durable), _) => {
                    let before = durable.newest.get(own);
                    durable.newest.set(own, tick);
                    (durable.number, before)
                }
                (None, Some(number)) => match asking.get_mut(&number) {
                    Some(newest) => (number, core::mem::replace(&mut newest[own], tick)),
                    None => continue,
                },
                (None, None) => continue,
            };
            names.push((number, before));
        }
        // A subscription that is being changed may have its old interest match as well: then its
        // tick is this event's the second time.
        names.sort_unstable();
        names.dedup_by_key(|(number, _)| *number);
        let is_blind = names.len() > NAMES_MAX;
        for shard in names.chunk_by(|(a, _), (b, _)| split(*a).0 == split(*b).0) {
            let stream = stream_of(own, shard[0].0);
            let named = if is_blind { &[] } else { shard };
            let bytes = write_queue.record(stream, tick, |out| put_names(out, tick, shard[0].0.is_hold(), named));
            self.records += 1;
            self.named += named.len() as u64;
            self.bytes += bytes as u64;
        }
    }
}

/// The events that a cursor in catch-up may want in a part of the log.
#[derive(Debug)]
pub(crate) struct LogPlan {
    own: usize,
    from: Tick,
    /// End of the part; nothing is known beyond.
    pub(crate) upto: Tick,
    /// Ticks of events in the part that may be wanted, ascending; `None`: all may be.
    pub(crate) ticks: Option<Vec<Tick>>,
    /// Progress of following the chain.
    pub(crate) chain: Chain,
    /// Bytes of events per read: more where wanted events lie close together.
    pub(crate) bytes: usize,
    /// Number of records of the part that were searched.
    looked_at: usize,
}

/// How far the chain of a subscription's wanted events was followed.
#[derive(Debug)]
pub(crate) enum Chain {
    /// Not followed yet.
    Untried,
    /// Followed from the newest event down to before `next`; up to `upto`, only `found` is wanted.
    Followed { found: Vec<Tick>, next: Tick, upto: Tick },
    /// Broken, or longer than [`CHAIN_MAX`].
    Broken,
}

impl LogPlan {
    /// A plan that knows nothing.
    pub(crate) fn new(own: usize, from: Tick) -> Self {
        LogPlan { own, from, upto: from, ticks: None, chain: Chain::Untried, bytes: POINT_BYTES, looked_at: 0 }
    }

    /// Whether the plan covers, or can be extended from, a tick of a stream.
    pub(crate) fn is_about(&self, own: usize, from: Tick) -> bool {
        self.own == own && self.from <= from && from <= self.upto
    }

    /// Replaces the plan by that of the next part, up to `upto`.
    pub(crate) fn extend(&mut self, upto: Tick, ticks: Option<Vec<Tick>>) {
        (self.from, self.upto, self.ticks) = (self.upto, upto, ticks);
    }

    /// Follows the chain of wanted events, from the newest whose record can be read, back to the
    /// cursor's position, as far as records were read. If it gets there, the plan covers the log up
    /// to `lacks`. Otherwise returns the part of the filter stream to read, if that is worthwhile.
    pub(crate) fn follow_chain<'a>(
        &mut self,
        (newest, from, lacks): (Option<Tick>, Tick, Tick),
        number: DurableNo,
        read: impl Fn(Tick) -> Option<&'a Slice>,
    ) -> Option<(Tick, Tick, usize)> {
        let chain = core::mem::replace(&mut self.chain, Chain::Broken);
        let (mut found, mut next, upto) = match (chain, newest) {
            (Chain::Untried, None) => {
                self.chain = Chain::Untried;
                return None;
            }
            (Chain::Untried, Some(newest)) => (Vec::new(), newest, lacks),
            (Chain::Followed { found, next, upto }, _) => (found, next, upto),
            (Chain::Broken, _) => return None,
        };
        while next > from {
            if found.len() >= CHAIN_MAX {
                return None;
            }
            let Some(slice) = read(next) else {
                let part = (Tick(next.0 - 1), next, POINT_BYTES);
                self.chain = Chain::Followed { found, next, upto };
                return Some(part);
            };
            let at = slice.records.binary_search_by_key(&next, |(tick, _)| *tick).ok()?;
            let NamedIn::After(before) = look_up(next, &slice.records[at].1, number) else { return None };
            found.push(next);
            next = before;
        }
        found.reverse();
        self.extend(upto, Some(found));
        self.chain = Chain::Untried;
        None
    }

    /// Extends the plan, unless it already covers `from`, with a part of the filter stream that was
    /// read. Without a slice, returns the part to read.
    pub(crate) fn read_on(
        &mut self,
        (from, lacks): (Tick, Tick),
        number: DurableNo,
        slice: Option<&Slice>,
        budget: &mut usize,
    ) -> Option<(Tick, Tick, usize)> {
        if self.upto > from {
            return None;
        }
        let Some(slice) = slice else { return Some((from, lacks, FETCH_BYTES)) };
        let upto = slice.upto.min(lacks);
        if slice.lost.is_some() {
            self.extend(upto, None);
            return None;
        }
        let first = slice.records.partition_point(|(tick, _)| *tick <= from);
        let part = slice.records[first..].iter().take_while(|(tick, _)| *tick <= upto);
        let mut looked_at = 0;
        let may_want =
            part.inspect(|_| looked_at += 1).filter(|(tick, body)| look_up(*tick, body, number) != NamedIn::No);
        let ticks = may_want.map(|(tick, _)| *tick).collect();
        *budget = budget.saturating_sub(looked_at / LOOKS);
        self.looked_at = looked_at;
        self.extend(upto, Some(ticks));
        None
    }

    /// Whether at least one of `of` events with records may be wanted.
    pub(crate) fn is_dense(&self, of: usize) -> bool {
        self.ticks.as_ref().is_none_or(|ticks| ticks.len() * of >= self.looked_at)
    }

    /// The first event behind a tick that may be wanted.
    pub(crate) fn next(&self, from: Tick) -> Option<Tick> {
        match &self.ticks {
            None => Some(Tick(from.0 + 1)),
            Some(ticks) => ticks.get(ticks.partition_point(|tick| *tick <= from)).copied(),
        }
    }

    /// Whether an event may be wanted.
    pub(crate) fn wants(&self, tick: Tick) -> bool {
        self.ticks.as_ref().is_none_or(|ticks| ticks.binary_search(&tick).is_ok())
    }

    /// Adapts the size of reads to the number of wanted events in the last one.
    pub(crate) fn record_found(&mut self, found: usize) {
        let next = if found > 1 { self.bytes * 2 } else { self.bytes / 2 };
        self.bytes = next.clamp(POINT_BYTES, FETCH_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::numbers::HoldNo;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whoever_is_named_is_found_and_nobody_else(names: std::collections::BTreeMap<u16, u64>, tick: u64, other: u16) {
            let tick = Tick(tick);
            let mut body = vec![FORMAT];
            for (number, before) in &names {
                put_name(&mut body, tick, (DurableNo((7 << 16) + u32::from(*number)), Tick(*before)));
            }
            prop_assert!(body.len() <= 8 + 16 * names.len());
            for (number, before) in &names {
                let named = look_up(tick, &body, DurableNo((7 << 16) + u32::from(*number)));
                let is_far = tick.0.checked_sub(*before).is_none_or(|distance| distance == 0 || distance > DISTANCE_MAX);
                prop_assert_eq!(named, if is_far { NamedIn::Perhaps } else { NamedIn::After(Tick(*before)) });
            }
            let stranger = look_up(tick, &body, DurableNo((7 << 16) + u32::from(other)));
            prop_assert!(names.is_empty() || names.contains_key(&other) || stranger == NamedIn::No);
        }

        #[test]
        fn brokers_are_named_by_their_numbers(numbers: std::collections::BTreeSet<u16>, other: u16) {
            let names: Vec<_> = numbers.iter().map(|number| (HoldNo(*number).among_durable(), Tick(9))).collect();
            let mut body = Vec::new();
            put_names(&mut body, Tick(9), true, &names);
            prop_assert_eq!(body.len(), 1 + 2 * numbers.len());
            let is_named = numbers.is_empty() || numbers.contains(&other);
            let named = if is_named { NamedIn::Perhaps } else { NamedIn::No };
            prop_assert_eq!(look_up(Tick(9), &body, HoldNo(other).among_durable()), named);
        }

        #[test]
        fn what_cannot_be_read_means_everybody(body: Vec<u8>, number: u32) {
            let is_whole = body.first() == Some(&FORMAT) && body.len() > 1 && (body.len() - 1) % NAME == 0;
            let is_bare = body.first() == Some(&BARE) && body.len() > 1 && (body.len() - 1) % 2 == 0;
            prop_assert!(is_whole || is_bare || look_up(Tick(9), &body, DurableNo(number)) == NamedIn::Perhaps);
        }
    }
}
