//! The names of messages as events, and the messages that lie in a gap.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_client::{EventId, Gap, HostId, PubendId, Tick};

use super::MAX_BEHIND;
use crate::fleet::regions::{REGIONS_MAX, Sites};

/// The number of gaps of one subscriber that are remembered; adjoining gaps count as one. Beyond it
/// the oldest is forgotten, and messages in it count as lost.
const GAPS: usize = 4_096;

/// Whether a subscriber was told that a message is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    No,
    /// The message's name is not known, and there is a gap where it must lie: it may still arrive.
    Perhaps,
    Yes,
}

/// The greatest difference between the ticks of two brokers at the same moment, ns: they follow
/// their clocks, and a stream is ahead by a bounded time.
const SKEW: u64 = 2_000_000_000;
/// The number of a vehicle's messages before and after an unnamed one that are examined to find
/// where it may lie.
const LOOKED_AT: usize = 64;

/// The knowledge of a message.
struct Known {
    seq: u64,
    /// The brokers that it was handed to.
    sites: Sites,
    /// Its name, once a subscriber was told it; the later one, if it was accepted twice.
    id: Option<EventId>,
}

/// Messages by vehicle and number: the brokers that may have them, and their names as told to
/// subscribers.
#[derive(Default)]
pub(super) struct Names {
    vehicles: Vec<VecDeque<Known>>,
    /// By region: the host whose streams its broker has.
    hosts: [Option<HostId>; REGIONS_MAX],
}

impl Names {
    pub(super) fn new(vehicles: usize) -> Names {
        let hosts = [None; REGIONS_MAX];
        Names { vehicles: (0..vehicles).map(|_| VecDeque::new()).collect(), hosts }
    }

    fn entry(&mut self, vehicle: u32, seq: u64) -> &mut Known {
        let known = &mut self.vehicles[vehicle as usize];
        let at = match known.binary_search_by_key(&seq, |known| known.seq) {
            Ok(at) => at,
            Err(at) => {
                known.insert(at, Known { seq, sites: Sites::NONE, id: None });
                at
            }
        };
        // A subscriber is never further behind.
        let at = if known.len() > 2 * MAX_BEHIND && at > 0 {
            known.pop_front();
            at - 1
        } else {
            at
        };
        &mut known[at]
    }

    /// A vehicle hands a message to brokers.
    pub(super) fn hand(&mut self, vehicle: u32, seq: u64, sites: Sites) {
        let known = self.entry(vehicle, seq);
        known.sites = known.sites.and(sites);
    }

    /// A subscriber was told the name of a vehicle's message.
    pub(super) fn learn(&mut self, vehicle: u32, seq: u64, id: EventId) {
        let known = self.entry(vehicle, seq);
        if known.id.is_none_or(|before| before.tick < id.tick) {
            known.id = Some(id);
        }
        if let Some(region) = known.sites.single() {
            self.hosts[region] = Some(id.pubend.host());
        }
    }

    fn of(&self, vehicle: usize, seq: u64) -> Option<&Known> {
        let known = &self.vehicles[vehicle];
        known.binary_search_by_key(&seq, |known| known.seq).ok().map(|at| &known[at])
    }

    /// The brokers that a message was handed to.
    pub(super) fn sites(&self, vehicle: usize, seq: u64) -> Sites {
        self.of(vehicle, seq).map_or(Sites::NONE, |known| known.sites)
    }

    /// The stream of a message for a subscriber that was told this name of it. Without a name, the
    /// names told to other subscribers decide, unless the message was handed to several brokers, of
    /// which more than one may have accepted it.
    pub(super) fn stream_of(&self, vehicle: usize, seq: u64, told: Option<EventId>) -> Option<PubendId> {
        let known =
            || self.of(vehicle, seq).filter(|known| known.sites == Sites::NONE || known.sites.single().is_some());
        told.or_else(|| known()?.id).map(|id| id.pubend)
    }

    /// Whether a message lies in one of these gaps. An unnamed message lies somewhere between its
    /// vehicle's messages before and after it, in a stream of a broker that it was handed to; there
    /// must be a gap there.
    pub(super) fn look(&self, vehicle: usize, seq: u64, gaps: &Gaps) -> Told {
        let (names, sites) = (&self.vehicles[vehicle], self.sites(vehicle, seq));
        let after = names.partition_point(|known| known.seq < seq);
        if let Some(id) = names.get(after).filter(|known| known.seq == seq).and_then(|known| known.id) {
            return if gaps.contains(id) { Told::Yes } else { Told::No };
        }
        let before = || names.range(..after).rev().take(LOOKED_AT).filter_map(|known| known.id);
        let after = || names.range(after..).take(LOOKED_AT).filter_map(|known| known.id);
        let is_told = match sites == Sites::NONE {
            // There is a single broker, and nothing more is known.
            true => before().next().zip(after().next()).is_some_and(|(before, after)| {
                before.pubend == after.pubend && gaps.touch(before.pubend, before.tick, after.tick)
            }),
            false => {
                let hosts = (0..REGIONS_MAX).filter(|region| sites.meets(Sites::one(*region)));
                let mut hosts = hosts.filter_map(|region| self.hosts[region]);
                hosts.any(|host| is_between(host, (before(), after()), gaps))
            }
        };
        if is_told { Told::Perhaps } else { Told::No }
    }
}

/// Whether there is a gap in a stream of a host where a message lies between its vehicle's messages
/// with these names, nearest first. Names in other brokers' streams only tell the time.
fn is_between(
    host: HostId,
    (mut before, mut after): (impl Iterator<Item = EventId>, impl Iterator<Item = EventId>),
    gaps: &Gaps,
) -> bool {
    let (last, next) = (before.next(), after.next());
    let of_host = |id: &EventId| id.pubend.host() == host;
    let low = last.into_iter().chain(before).find(of_host);
    let high = next.into_iter().chain(after).find(of_host);
    let earliest = last.map_or(Tick(0), |id| Tick(id.tick.0.saturating_sub(SKEW)));
    let latest = next.map_or(Tick(u64::MAX), |id| Tick(id.tick.0.saturating_add(SKEW)));
    let from = low.map_or(earliest, |id| id.tick);
    let to = high.map_or(latest, |id| id.tick);
    match low.or(high) {
        Some(id) => gaps.touch(id.pubend, from, to),
        None => gaps.touch_host(host, from, to),
    }
}

/// The gaps that one subscriber was told: by stream, ranges that do not touch, each from a tick
/// (exclusive) to one (inclusive).
#[derive(Default)]
pub(super) struct Gaps {
    streams: BTreeMap<PubendId, BTreeMap<Tick, Tick>>,
    count: usize,
}

impl Gaps {
    /// A single gap.
    pub(super) fn of(gap: Gap) -> Gaps {
        let mut gaps = Gaps::default();
        gaps.add(gap);
        gaps
    }

    pub(super) fn add(&mut self, gap: Gap) {
        let ranges = self.streams.entry(gap.pubend).or_default();
        let (mut from, mut to) = (gap.from, gap.to);
        // It is merged with the ranges that it touches.
        while let Some((&start, &end)) = ranges.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            (from, to) = (from.min(start), to.max(end));
            ranges.remove(&start);
            self.count -= 1;
        }
        ranges.insert(from, to);
        self.count += 1;
        if self.count > GAPS {
            let oldest = self.streams.values_mut().filter(|ranges| !ranges.is_empty());
            let oldest = oldest.min_by_key(|ranges| ranges.first_key_value().map(|(_, to)| *to));
            self.count -= usize::from(oldest.and_then(BTreeMap::pop_first).is_some());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is a gap between two ticks of a stream.
    fn touch(&self, pubend: PubendId, before: Tick, after: Tick) -> bool {
        let last = self.streams.get(&pubend).and_then(|ranges| ranges.range(..after).next_back());
        last.is_some_and(|(_, to)| before < *to)
    }

    /// Whether there is a gap between two ticks in any stream of a host.
    fn touch_host(&self, host: HostId, before: Tick, after: Tick) -> bool {
        self.streams.keys().any(|pubend| pubend.host() == host && self.touch(*pubend, before, after))
    }

    /// Whether an event lies in a gap.
    pub(super) fn contains(&self, id: EventId) -> bool {
        let last = self.streams.get(&id.pubend).and_then(|ranges| ranges.range(..id.tick).next_back());
        last.is_some_and(|(_, to)| id.tick <= *to)
    }
}
