//! Retention holds given to other brokers: the interest of their durable subscriptions, for which
//! events are logged, and how far the log is held for them.
//!
//! A hold outlives links, restarts of both brokers, and partitions. The log is held until the other
//! broker reports that it needs it no more; [`HoldRecord`] has its last report. An entry of a later
//! version of its interest than the report's is held from where that entry began.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Tick, Time};

use super::keys::{DurableNo, put_selector, selector_of};
use super::numbers::HoldNo;
use super::own_ticks::{OWN, OwnTicks, ReadTicks, ordinary_ticks, put_ticks, ticks};
use super::wire::{ByteReader, MapValue, put_bytes, put_varint};
use super::write_queue::BatchNo;
use crate::cursor::NOTHING;
use crate::route;
use whimbrel_wire::PreviousIdentity;

/// Most brokers with holds, including those whose sessions have moved to other brokers, or that
/// were forfeited. Others are told that there is no log.
pub(crate) const HOLDS_GIVEN_MAX: usize = 1_024;

/// Most dropped entries of a broker, not covered by a report yet, that are kept apart.
const DROPPED_MAX: usize = 64;

/// One entry of a broker's durable interest: topic filter and selector.
pub(crate) type InterestKey = (Box<str>, Option<Box<str>>);

/// One entry of a broker's durable interest, as held here.
#[derive(Debug)]
pub(crate) struct HeldInterest {
    /// Its number among the broker's entries; not used again while the broker has a hold.
    pub(crate) number: u32,
    /// The version of the broker's interest that it came with.
    pub(crate) version: u64,
    /// Matching events were logged after these ticks.
    pub(crate) begin: OwnTicks,
    /// Its handle in the index.
    pub(crate) in_index: route::DurableInterest,
}

/// An entry as it is written, with filter and selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldInterestRecord<'a> {
    pub(crate) version: u64,
    pub(crate) begin: OwnTicks,
    pub(crate) filter: &'a str,
    pub(crate) selector: Option<&'a str>,
}

impl<'a> HeldInterestRecord<'a> {
    fn read_with(bytes: &mut ByteReader<'a>, ticks: ReadTicks) -> Option<Self> {
        let (version, begin) = (bytes.varint()?, ticks(bytes)?);
        Some(HeldInterestRecord { version, begin, filter: bytes.text()?, selector: selector_of(bytes)? })
    }
}

impl<'a> MapValue<'a> for HeldInterestRecord<'a> {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.version);
        put_ticks(out, &self.begin);
        put_bytes(out, self.filter.as_bytes());
        put_selector(out, self.selector);
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        Self::read_with(bytes, ticks)
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'a>) -> Option<Self> {
        (version == 1).then(|| Self::read_with(bytes, ordinary_ticks)).flatten()
    }
}

/// The hold of a broker, as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HoldRecord {
    /// The broker's name.
    pub(crate) name: Box<str>,
    /// The incarnation that sent the last report, and the number of that report.
    pub(crate) report: (u64, u64),
    /// The version of the interest that the report covers.
    pub(crate) version: u64,
    /// The broker needs all events behind these ticks; [`NOTHING`]: none of that stream.
    pub(crate) needed: OwnTicks,
    /// Brokers with copies of its sessions.
    pub(crate) replicas: Vec<HostId>,
    /// The replicas that have adopted all sessions of which they had copies.
    pub(crate) taken_over: Vec<HostId>,
    /// The broker will never come back: another host has its name, or it was forgotten.
    pub(crate) has_ended: bool,
    /// When the broker last reported.
    pub(crate) at: Time,
    /// Up to here events may have been given up that the broker may still have needed; [`NOTHING`]:
    /// all, and nothing is held any more.
    pub(crate) forfeited: OwnTicks,
    /// The broker's number in filter records; `None` only while a record of an earlier version is
    /// being restored.
    pub(crate) number: Option<HoldNo>,
    /// Filter records name the broker after these ticks, for entries held then.
    pub(crate) named: OwnTicks,
}

fn put_hosts(out: &mut Vec<u8>, hosts: &[HostId]) {
    put_varint(out, hosts.len() as u64);
    hosts.iter().for_each(|host| put_varint(out, host.as_u64()));
}

fn hosts(bytes: &mut ByteReader<'_>) -> Option<Vec<HostId>> {
    (0..bytes.varint()?).map(|_| bytes.varint().map(HostId::new)).collect()
}

impl MapValue<'_> for HoldRecord {
    const VERSION: u8 = 3;

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_varint(out, self.report.0);
        put_varint(out, self.report.1);
        put_varint(out, self.version);
        put_ticks(out, &self.needed);
        put_hosts(out, &self.replicas);
        put_hosts(out, &self.taken_over);
        out.push(u8::from(self.has_ended));
        put_varint(out, self.at.as_nanos());
        put_ticks(out, &self.forfeited);
        put_varint(out, self.number.map_or(0, |number| u64::from(number.0) + 1));
        put_ticks(out, &self.named);
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let hold = Self::read_first(bytes, ticks)?;
        hold.with_number(bytes, ticks)
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        match version {
            1 => Self::read_first(bytes, ordinary_ticks),
            2 => Self::read_first(bytes, ordinary_ticks)?.with_number(bytes, ordinary_ticks),
            _ => None,
        }
    }
}

impl HoldRecord {
    /// Reads the fields of the first version.
    fn read_first(bytes: &mut ByteReader<'_>, ticks: ReadTicks) -> Option<Self> {
        Some(HoldRecord {
            name: bytes.text()?.into(),
            report: (bytes.varint()?, bytes.varint()?),
            version: bytes.varint()?,
            needed: ticks(bytes)?,
            replicas: hosts(bytes)?,
            taken_over: hosts(bytes)?,
            has_ended: bytes.u8()? == 1,
            at: Time::from_nanos(bytes.varint()?),
            forfeited: ticks(bytes)?,
            number: None,
            named: [NOTHING; OWN],
        })
    }

    /// Reads the fields that the second version has in addition.
    fn with_number(self, bytes: &mut ByteReader<'_>, ticks: ReadTicks) -> Option<Self> {
        let number = bytes.varint()?.checked_sub(1).map(u16::try_from).transpose().ok()?.map(HoldNo);
        Some(HoldRecord { number, named: ticks(bytes)?, ..self })
    }
}

/// The hold that was given to one broker.
#[derive(Debug)]
pub(crate) struct HoldGiven {
    pub(crate) record: HoldRecord,
    pub(crate) entries: BTreeMap<InterestKey, HeldInterest>,
    /// Entries dropped before a report covered them: their versions, and after which ticks they
    /// count.
    pub(crate) dropped: Vec<(u64, OwnTicks)>,
    /// The number of the last entry.
    pub(crate) last: u32,
    /// The version of the broker's interest that the entries have completely.
    pub(crate) version: u64,
    /// The batch with which entries and report are durable.
    pub(crate) batch: BatchNo,
    /// The ticks that the log is held from, as last counted.
    pub(crate) counted: OwnTicks,
    /// The ticks that it needs for connected, caught-up subscriptions, if reported since this
    /// broker began.
    pub(crate) connected: Option<OwnTicks>,
    /// When the broker last reported, or this broker began.
    pub(crate) heard: Time,
    /// When its record was last written.
    pub(crate) written: Time,
}

impl HoldGiven {
    /// A hold without entries. Filter records will name it by that number after these ticks.
    pub(crate) fn new(now: Time, name: &str, (number, named): (HoldNo, OwnTicks)) -> HoldGiven {
        let hold = HoldRecord {
            name: name.into(),
            report: (0, 0),
            version: 0,
            needed: [NOTHING; OWN],
            replicas: Vec::new(),
            taken_over: Vec::new(),
            has_ended: false,
            at: now,
            forfeited: [Tick(0); OWN],
            number: Some(number),
            named,
        };
        HoldGiven::restored(now, hold)
    }

    /// A hold as it was written; its entries are added afterwards.
    pub(crate) fn restored(now: Time, hold: HoldRecord) -> HoldGiven {
        HoldGiven {
            record: hold,
            entries: BTreeMap::new(),
            dropped: Vec::new(),
            last: 0,
            version: 0,
            batch: BatchNo(0),
            counted: [NOTHING; OWN],
            connected: None,
            heard: now,
            written: now,
        }
    }

    /// Records a dropped entry. If no report covers it yet, the broker may need all its events, as
    /// new entries may cover it.
    pub(crate) fn record_dropped(&mut self, interest: &HeldInterest) {
        if interest.version <= self.record.version {
            return;
        }
        if self.dropped.len() < DROPPED_MAX {
            self.dropped.push((interest.version, interest.begin));
        } else if let Some((version, begin)) = self.dropped.last_mut() {
            *version = interest.version.max(*version);
            *begin = core::array::from_fn(|own| begin[own].min(interest.begin[own]));
        }
    }

    /// The ticks that the broker needs events behind: as reported, and for dropped entries not
    /// covered by a report.
    pub(crate) fn needed(&self) -> OwnTicks {
        let least =
            |needed: OwnTicks, (_, begin): &(u64, OwnTicks)| core::array::from_fn(|own| needed[own].min(begin[own]));
        self.dropped.iter().fold(self.record.needed, least)
    }

    /// Events behind these ticks are kept for the broker.
    pub(crate) fn holds(&self) -> OwnTicks {
        let mut held = self.needed();
        // The last report did not cover these.
        for entry in self.entries.values().filter(|entry| entry.version > self.record.version) {
            for (held, begin) in held.iter_mut().zip(entry.begin) {
                *held = begin.min(*held);
            }
        }
        held
    }

    /// After which ticks events were logged for all entries.
    pub(crate) fn since(&self) -> OwnTicks {
        let mut since = [Tick(0); OWN];
        for entry in self.entries.values() {
            for (since, begin) in since.iter_mut().zip(entry.begin) {
                *since = begin.max(*since);
            }
        }
        since
    }

    /// The owner of its entries in the index.
    pub(crate) fn interest_owner(&self) -> Option<(DurableNo, u32)> {
        self.record.number.map(|number| (number.among_durable(), route::NO_CURSOR))
    }

    /// Whether the hold was forfeited: nothing is held any more.
    pub(crate) fn is_forfeited(&self) -> bool {
        self.record.forfeited == [NOTHING; OWN]
    }

    /// Whether the broker needs nothing, and never has to be told of events that were given up.
    pub(crate) fn is_settled(&self) -> bool {
        self.entries.is_empty() && self.needed() == [NOTHING; OWN] && !self.is_forfeited()
    }

    /// Whether all replicas have adopted the sessions of a broker that has ended.
    pub(crate) fn is_taken_over(&self) -> bool {
        let HoldRecord { replicas, taken_over: took, has_ended, .. } = &self.record;
        *has_ended && !replicas.is_empty() && replicas.iter().all(|replica| took.contains(replica))
    }
}

/// Holds given, as read after a restart.
#[derive(Debug, Default)]
pub(crate) struct RestoredHolds {
    pub(crate) holds: Vec<(HostId, HoldRecord)>,
    /// Each with its number, as it was written.
    pub(crate) entries: Vec<(HostId, u32, Box<[u8]>)>,
    pub(crate) ended: BTreeMap<HostId, EndedHostRecord>,
}

/// A host that has ended, as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EndedHostRecord {
    pub(crate) reliable: u8,
    pub(crate) further: u8,
    pub(crate) birth: Tick,
    /// Its streams end here, or later where more of them was received.
    pub(crate) upto: Tick,
    /// The host was forgotten at this broker, which tells others so.
    pub(crate) is_retired: bool,
    /// Its name; empty if unknown, as in the first version.
    pub(crate) name: Box<str>,
}

impl MapValue<'_> for EndedHostRecord {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.reliable, self.further, u8::from(self.is_retired)]);
        put_varint(out, self.birth.0);
        put_varint(out, self.upto.0);
        put_bytes(out, self.name.as_bytes());
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let ended = EndedHostRecord::read_older(1, bytes)?;
        Some(EndedHostRecord { name: bytes.text()?.into(), ..ended })
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        if version != 1 {
            return None;
        }
        let (reliable, further, is_retired) = (bytes.u8()?, bytes.u8()?, bytes.u8()? == 1);
        let (birth, upto) = (Tick(bytes.varint()?), Tick(bytes.varint()?));
        Some(EndedHostRecord { reliable, further, birth, upto, is_retired, name: "".into() })
    }
}

/// Holds given, by host, and hosts that never get one again.
#[derive(Debug, Default)]
pub(crate) struct HoldsGiven {
    pub(crate) of: BTreeMap<HostId, HoldGiven>,
    /// Hosts forgotten at this broker, oldest first; at most
    /// [`whimbrel_wire::PREVIOUS_IDENTITIES_MAX`].
    pub(crate) retired: Vec<PreviousIdentity>,
}

impl HoldsGiven {
    /// The least unused number.
    pub(crate) fn free_number(&self) -> HoldNo {
        let used: BTreeSet<HoldNo> = self.of.values().filter_map(|hold_given| hold_given.record.number).collect();
        let free = (0..).map(HoldNo).find(|number| !used.contains(number));
        free.expect("there are fewer brokers than numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> HoldRecord {
        let replicas = vec![HostId::new(32), HostId::new(48)];
        HoldRecord {
            report: (3, 7),
            version: 9,
            needed: [1, 2, u64::MAX, 4, 5, 6, 7, 3].map(Tick),
            replicas,
            taken_over: vec![HostId::new(32)],
            has_ended: true,
            ..HoldGiven::new(Time::from_nanos(5), "b1", (HoldNo(3), [6, 5, 4, 9, 8, 7, 6, 9].map(Tick))).record
        }
    }

    #[test]
    fn what_is_written_comes_back() {
        let mut out = Vec::new();
        hold().put_versioned(&mut out);
        assert_eq!(HoldRecord::read_versioned(&out), Some(hold()));
        out.clear();
        let entry =
            HeldInterestRecord { version: 1 << 50, begin: [Tick(8); OWN], filter: "a/#", selector: Some("x = 1") };
        entry.put_versioned(&mut out);
        assert_eq!(HeldInterestRecord::read_versioned(&out), Some(entry));
        let name = "b1".into();
        let ended = EndedHostRecord { reliable: 4, further: 4, birth: Tick(7), upto: Tick(9), is_retired: true, name };
        let mut other = Vec::new();
        ended.put_versioned(&mut other);
        assert_eq!(EndedHostRecord::read_versioned(&other), Some(ended.clone()));
        let first = EndedHostRecord { name: "".into(), ..ended };
        assert_eq!(EndedHostRecord::read_versioned(&[1, 4, 4, 1, 7, 9]), Some(first), "the first version had no names");
        for end in 0..out.len() {
            assert_eq!(HeldInterestRecord::read_versioned(&out[..end]), None);
        }
    }

    #[test]
    fn earlier_versions_can_be_read() {
        let own = [3, 7, 9, 10, 2, 2, 2, 0, 0, 1, 5, 16, 0, 0, 0];
        let first = [&[1, 2, b'b', b'1'][..], &own].concat();
        let hold = HoldRecord {
            needed: [5, 6, 7, 8, 5, 5, 5, 5].map(Tick),
            replicas: Vec::new(),
            taken_over: Vec::new(),
            forfeited: [Tick(8); OWN],
            number: None,
            named: [NOTHING; OWN],
            ..hold()
        };
        assert_eq!(HoldRecord::read_versioned(&first), Some(hold.clone()), "before there were numbers");
        let second = [&[2, 2, b'b', b'1'][..], &own, &[4, 20, 0, 0, 1]].concat();
        let named = [10, 10, 10, 9, 9, 9, 9, 9].map(Tick);
        let numbered = HoldRecord { number: Some(HoldNo(3)), named, ..hold };
        assert_eq!(HoldRecord::read_versioned(&second), Some(numbered), "before there were deadlines");
        let interest = HeldInterestRecord { version: 7, begin: [Tick(10); OWN], filter: "a", selector: None };
        assert_eq!(HeldInterestRecord::read_versioned(&[1, 7, 20, 0, 0, 0, 1, b'a', 0, 0]), Some(interest));
    }

    #[test]
    fn the_least_number_is_given_that_nobody_has() {
        let mut holds_given = HoldsGiven::default();
        for (host, number) in [(16, 0), (32, 1), (48, 2)] {
            assert_eq!(holds_given.free_number(), HoldNo(number));
            holds_given.of.insert(HostId::new(host), HoldGiven::new(Time::ZERO, "", (HoldNo(number), [Tick(0); OWN])));
        }
        holds_given.of.remove(&HostId::new(32));
        assert_eq!(holds_given.free_number(), HoldNo(1));
    }

    #[test]
    fn one_that_has_ended_is_taken_over_when_all_of_its_deputies_have_said_so() {
        let mut hold_given = HoldGiven::restored(Time::ZERO, hold());
        assert!(!hold_given.is_taken_over());
        hold_given.record.taken_over.push(HostId::new(48));
        assert!(hold_given.is_taken_over());
        hold_given.record.has_ended = false;
        assert!(!hold_given.is_taken_over(), "it may come back");
        hold_given.record = HoldRecord { has_ended: true, replicas: Vec::new(), ..hold_given.record };
        assert!(!hold_given.is_taken_over(), "nobody had copies, and its own disk may be found");
    }
}
