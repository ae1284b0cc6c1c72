//! What this broker owes others: their durable subscriptions' interest, for which events are
//! logged, and how far the log is held for them.
//!
//! It outlives links, restarts of both, and partitions. What a broker is owed is held until it says
//! that it needs it no more; [`HoldRecord`] has that as it was reported last. What it began to want
//! with a later version of its interest than the report knows of is held from where that began.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Tick, Time};

use super::keys::{DurableNo, MapValue, OWN, OwnTicks, put_selector, put_ticks, selector_of, ticks};
use super::numbers::HoldNo;
use super::wire::{ByteReader, put_bytes, put_varint};
use super::write_queue::BatchNo;
use crate::cursor::NOTHING;
use crate::route;
use whimbrel_wire::PreviousIdentity;

/// Brokers that are owed something, those included whose sessions have gone to others or have been
/// given up. Others are told that there is no log.
pub(crate) const HOLDS_GIVEN_MAX: usize = 1_024;

/// Entries that have gone, and of which a broker has not reported, that are told apart.
const DROPPED_MAX: usize = 64;

/// One thing that a broker's durable subscriptions want: topic filter and selector.
pub(crate) type InterestKey = (Box<str>, Option<Box<str>>);

/// What is kept of one such thing.
#[derive(Debug)]
pub(crate) struct HeldInterest {
    /// Its number among those of its broker; never given twice while that is owed something.
    pub(crate) number: u32,
    /// With which version of the broker's interest it came.
    pub(crate) version: u64,
    /// What it wants was logged after these ticks.
    pub(crate) begin: OwnTicks,
    /// By which it is in the index.
    pub(crate) in_index: route::DurableInterest,
}

/// As it is written, with what it wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldInterestRecord<'a> {
    pub(crate) version: u64,
    pub(crate) begin: OwnTicks,
    pub(crate) filter: &'a str,
    pub(crate) selector: Option<&'a str>,
}

impl<'a> MapValue<'a> for HeldInterestRecord<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.version);
        put_ticks(out, &self.begin);
        put_bytes(out, self.filter.as_bytes());
        put_selector(out, self.selector);
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        let (version, begin) = (bytes.varint()?, ticks(bytes)?);
        Some(HeldInterestRecord { version, begin, filter: bytes.text()?, selector: selector_of(bytes)? })
    }
}

/// How far the log is held for a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HoldRecord {
    /// What it is called.
    pub(crate) name: Box<str>,
    /// Its life in which it reported last, and the number of that report.
    pub(crate) report: (u64, u64),
    /// Up to which version of its interest that speaks.
    pub(crate) version: u64,
    /// It needs all behind these ticks; [`NOTHING`]: nothing of that stream.
    pub(crate) needed: OwnTicks,
    /// Who has copies of its sessions.
    pub(crate) replicas: Vec<HostId>,
    /// Who of these has said that all that it had of them is taken over.
    pub(crate) taken_over: Vec<HostId>,
    /// It will never come back: another one has its name, or it was forgotten.
    pub(crate) has_ended: bool,
    /// When it was heard of last.
    pub(crate) at: Time,
    /// Up to here what it was owed may have been given up although it had not said so; [`NOTHING`]:
    /// all, and nothing is held any more.
    pub(crate) forfeited: OwnTicks,
    /// How filter records name it; `None` only between reading what an earlier version has written
    /// and going on from that.
    pub(crate) number: Option<HoldNo>,
    /// They do so after these ticks, as far as it was owed what it wanted.
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
    const VERSION: u8 = 2;

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
        let hold = Self::read_older(1, bytes)?;
        let number = bytes.varint()?.checked_sub(1).map(u16::try_from).transpose().ok()?.map(HoldNo);
        Some(HoldRecord { number, named: ticks(bytes)?, ..hold })
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (version == 1).then_some(())?;
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
}

/// What one broker is owed.
#[derive(Debug)]
pub(crate) struct HoldGiven {
    pub(crate) record: HoldRecord,
    pub(crate) entries: BTreeMap<InterestKey, HeldInterest>,
    /// Of entries that have gone before it has reported where it stands under them: their versions,
    /// and after which ticks they count.
    pub(crate) dropped: Vec<(u64, OwnTicks)>,
    /// The number of the last entry.
    pub(crate) last: u32,
    /// The version of its interest of which everything is in the entries.
    pub(crate) version: u64,
    /// With which batch that is durable, and what it has reported.
    pub(crate) batch: BatchNo,
    /// What the log is held for, as it was counted.
    pub(crate) counted: OwnTicks,
    /// What it needs for those who are there and live, if it has said so in this life of this
    /// broker.
    pub(crate) connected: Option<OwnTicks>,
    /// When it reported last in this life, or this life began.
    pub(crate) heard: Time,
    /// When its hold was written.
    pub(crate) written: Time,
}

impl HoldGiven {
    /// Nothing is owed yet; what is to be will be under that number in filter records after these
    /// ticks.
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

    /// As it was written; its entries follow.
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

    /// An entry has gone. If it has not said yet what it needs under that one, it may need all of
    /// it: others that have come may cover it.
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

    /// What it needs, as it has said or has not said yet of entries that have gone.
    pub(crate) fn needed(&self) -> OwnTicks {
        let least =
            |needed: OwnTicks, (_, begin): &(u64, OwnTicks)| core::array::from_fn(|own| needed[own].min(begin[own]));
        self.dropped.iter().fold(self.record.needed, least)
    }

    /// What is behind these ticks is kept for it.
    pub(crate) fn holds(&self) -> OwnTicks {
        let mut held = self.needed();
        // Of these it did not know when it reported.
        for entry in self.entries.values().filter(|entry| entry.version > self.record.version) {
            for (held, begin) in held.iter_mut().zip(entry.begin) {
                *held = begin.min(*held);
            }
        }
        held
    }

    /// After which ticks all that it wants was logged.
    pub(crate) fn since(&self) -> OwnTicks {
        let mut since = [Tick(0); OWN];
        for entry in self.entries.values() {
            for (since, begin) in since.iter_mut().zip(entry.begin) {
                *since = begin.max(*since);
            }
        }
        since
    }

    /// By which number what it wants is named in the index.
    pub(crate) fn interest_owner(&self) -> Option<(DurableNo, u32)> {
        self.record.number.map(|number| (number.among_durable(), route::NO_CURSOR))
    }

    /// It was given up: nothing is held for it any more.
    pub(crate) fn is_forfeited(&self) -> bool {
        self.record.forfeited == [NOTHING; OWN]
    }

    /// It neither is owed anything nor ever has to be told of anything that was given up.
    pub(crate) fn is_settled(&self) -> bool {
        self.entries.is_empty() && self.needed() == [NOTHING; OWN] && !self.is_forfeited()
    }

    /// All who had copies of its sessions have taken them over.
    pub(crate) fn is_taken_over(&self) -> bool {
        let HoldRecord { replicas, taken_over: took, has_ended, .. } = &self.record;
        *has_ended && !replicas.is_empty() && replicas.iter().all(|replica| took.contains(replica))
    }
}

/// What was written of what others are owed.
#[derive(Debug, Default)]
pub(crate) struct RestoredHolds {
    pub(crate) holds: Vec<(HostId, HoldRecord)>,
    /// Each with its number, and as it was written.
    pub(crate) entries: Vec<(HostId, u32, Box<[u8]>)>,
    pub(crate) ended: BTreeMap<HostId, EndedHostRecord>,
}

/// A host that has ended, as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EndedHostRecord {
    pub(crate) reliable: u8,
    pub(crate) best_effort: u8,
    pub(crate) birth: Tick,
    /// Its streams have ended here, or later where more of them had come.
    pub(crate) upto: Tick,
    /// It was forgotten at this broker, which tells others so.
    pub(crate) is_retired: bool,
    /// What it was called; nothing if that is not known. The first version did not say so.
    pub(crate) name: Box<str>,
}

impl MapValue<'_> for EndedHostRecord {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.reliable, self.best_effort, u8::from(self.is_retired)]);
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
        let (reliable, best_effort, is_retired) = (bytes.u8()?, bytes.u8()?, bytes.u8()? == 1);
        let (birth, upto) = (Tick(bytes.varint()?), Tick(bytes.varint()?));
        Some(EndedHostRecord { reliable, best_effort, birth, upto, is_retired, name: "".into() })
    }
}

/// What others are owed, and who is never owed anything again.
#[derive(Debug, Default)]
pub(crate) struct HoldsGiven {
    pub(crate) of: BTreeMap<HostId, HoldGiven>,
    /// Hosts that were forgotten at this broker, those last that were last; at most
    /// [`whimbrel_wire::PREVIOUS_IDENTITIES_MAX`].
    pub(crate) retired: Vec<PreviousIdentity>,
}

impl HoldsGiven {
    /// The least number that no broker has.
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
            needed: [Tick(1), Tick(2), NOTHING, Tick(4)],
            replicas,
            taken_over: vec![HostId::new(32)],
            has_ended: true,
            ..HoldGiven::new(Time::from_nanos(5), "b1", (HoldNo(3), [Tick(6), Tick(5), Tick(4), Tick(9)])).record
        }
    }

    #[test]
    fn what_is_written_comes_back() {
        let mut out = Vec::new();
        hold().put_versioned(&mut out);
        assert_eq!(HoldRecord::read_versioned(&out), Some(hold()));
        // The number and four ticks that are near each other.
        out.truncate(out.len() - 5);
        out[0] = 1;
        let before = HoldRecord { number: None, named: [NOTHING; OWN], ..hold() };
        assert_eq!(HoldRecord::read_versioned(&out), Some(before), "as it was written before there were numbers");
        out.clear();
        let entry =
            HeldInterestRecord { version: 1 << 50, begin: [Tick(8); OWN], filter: "a/#", selector: Some("x = 1") };
        entry.put_versioned(&mut out);
        assert_eq!(HeldInterestRecord::read_versioned(&out), Some(entry));
        let name = "b1".into();
        let ended =
            EndedHostRecord { reliable: 4, best_effort: 4, birth: Tick(7), upto: Tick(9), is_retired: true, name };
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
