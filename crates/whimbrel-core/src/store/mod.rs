//! Durable state: the core says what is to be written, and in which order, and is told how far it
//! is durable.
//!
//! The core does no IO. It produces a sequence of *batches* ([`Batch`]). After a crash each batch
//! is there as a whole or not at all, and the disk holds a prefix of the sequence. The driver takes
//! batches with [`crate::Broker::batch`] and [`crate::Broker::submitted`], in order, and says with
//! [`crate::Input::Committed`] how far they are durable. Before that, no client and no other broker
//! is told of what a batch holds: events, answers and subscriptions wait in the *commit queue*, in
//! the order in which they were accepted.

mod among;
mod carried;
mod carry;
mod commit_queue;
mod copied;
mod durable_position;
mod filter;
mod flight;
mod holds_given;
mod import;
mod keep;
mod keys;
mod numbers;
mod own_ticks;
mod placed;
mod position;
mod position_head;
mod profile_record;
mod publishers;
mod reads;
mod release;
mod remote_holds;
mod remote_reads;
mod restore;
mod survey;
mod ticks;
mod wire;
mod write_queue;
mod written;
#[cfg(test)]
mod written_tests;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Packed, Tick, Time};

use crate::api::Refusal;

pub(crate) use carried::{Moving, NAMED_MAX, join, split, without_labelled_will};
pub(crate) use carry::SessionSource;
pub(crate) use commit_queue::{Answer, CommitQueue, HeldEvent, Recipient, Wait};
pub(crate) use copied::{Lost, LostParts};
pub(crate) use durable_position::{DurablePosition, Flight, FlightStream, RemotePosition};
pub(crate) use filter::{FilterRecords, LogPlan, RECORDS_BYTES, stream_of};
pub(crate) use holds_given::{
    EndedHostRecord, HOLDS_GIVEN_MAX, HeldInterest, HeldInterestRecord, HoldGiven, HoldRecord, HoldsGiven, InterestKey,
    RestoredHolds,
};
pub(crate) use keys::{DurableNo, Key, SessionNo, put_selector, selector_of};
pub use numbers::HOLDS_SHARD;
pub(crate) use numbers::Numbers;
pub(crate) use own_ticks::{CompactTicks, OWN, OwnTicks, ReadTicks, ordinary_ticks, own_place, put_ticks, ticks};
pub(crate) use placed::{AttachmentRecord, KnownBrokerRecord};
pub(crate) use position::PositionBases;
pub(crate) use profile_record::{ProfileRecord, put_profile, read_profile};
pub(crate) use publishers::{Numbered, Publishers};
pub(crate) use reads::{FETCH_BYTES, LENDER, Reads, WantedPart};
pub use reads::{Fetch, Fetched, event_of_record};
pub(crate) use release::Release;
pub(crate) use remote_reads::{FilterEntries, REMOTE_MEMBERS_MAX, RemoteReads, ToldPart};
pub use restore::{LogState, RestoreError, Restoring, StreamState};
pub(crate) use survey::SURVEYOR;
pub(crate) use wire::{ByteReader, MapValue, put_bytes, put_varint};
pub(crate) use write_queue::WriteQueue;
pub use write_queue::{Batch, BatchNo};
pub(crate) use written::WrittenPosition;

/// The format of a logged event, its first byte.
pub const EVENT_FORMAT: u8 = 1;

/// Leading bytes of a packed event that its record does not repeat: they are the record's stream
/// and tick.
pub const EVENT_HEAD: usize = 16;

/// A stream of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StreamName {
    /// The events of the reliable pubend with that index. A record is [`EVENT_FORMAT`] and then the
    /// packed event without its first [`EVENT_HEAD`] bytes.
    Events(u8),
    /// Filter records: which durable subscriptions with a number of this shard logged events are
    /// for. They are given up together with the events of their pubend, by the implementation of
    /// the log: there are no writes for that.
    Filter {
        /// The pubend's index.
        pubend: u8,
        /// The subscriptions' shard; in [`HOLDS_SHARD`], the records name other brokers that events
        /// are logged for.
        shard: u16,
    },
    /// Holds no records: its reservation bounds the ticks of all own pubends.
    Ticks,
}

/// One thing that a batch writes.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Appends an event to its stream.
    Event {
        /// The pubend's index.
        pubend: u8,
        /// The event's tick.
        tick: Tick,
        /// The event.
        event: Packed<'a>,
    },
    /// Appends a record that is not an event.
    Record {
        /// The stream that it is appended to.
        stream: StreamName,
        /// The record's tick.
        tick: Tick,
        /// The record's bytes.
        body: &'a [u8],
    },
    /// Sets a key of the map.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Removes a key of the map, if it is there.
    Forget {
        /// The key.
        key: &'a [u8],
    },
    /// Gives up a stream's records, and with those of a stream of events its filter records of all
    /// shards.
    Chop {
        /// The stream.
        stream: StreamName,
        /// Up to this tick, itself included.
        upto: Tick,
    },
    /// Reserves ticks of [`StreamName::Ticks`].
    Reserve {
        /// The last reserved tick.
        upto: Tick,
    },
}

impl<'a> Write<'a> {
    /// The bytes of an event's record, in parts.
    pub fn event_parts(event: Packed<'a>) -> [&'a [u8]; 2] {
        [&[EVENT_FORMAT], &event.as_bytes()[EVENT_HEAD..]]
    }
}

/// The core's side of durability: what is to be written, what waits for it, and what is read back.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) disk: Disk,
    pub(crate) write_queue: WriteQueue,
    pub(crate) commit_queue: CommitQueue,
    pub(crate) numbers: Numbers,
    pub(crate) reads: Reads,
    pub(crate) remote_reads: RemoteReads,
    pub(crate) release: Release,
    pub(crate) bases: PositionBases,
    pub(crate) publishers: Publishers,
    pub(crate) filters: FilterRecords,
    pub(crate) lost: Lost,
    /// Retention holds that other brokers have on the own logs.
    pub(crate) holds_given: HoldsGiven,
    pub(crate) survey: survey::FilterSurvey,
    /// Topics whose retained message has changed with an event that is not logged.
    pub(crate) lazy_topics: BTreeSet<Box<str>>,
    pub(crate) lazily_at: Time,
    /// Brokers known from before the start, with their names.
    pub(crate) known: BTreeMap<HostId, KnownBrokerRecord<Box<str>>>,
    /// Seed from which the streams get a new host after the log has failed.
    pub(crate) spare_seed: u64,
    /// The last tick that is reserved, or whose reservation is in the write queue.
    pub(crate) reserving: Tick,
    /// The farthest used tick at the last check.
    pub(crate) used: Tick,
}

impl Store {
    pub(crate) fn is_congested(&self) -> bool {
        // While the log is full, inputs that free space must be read all the same.
        self.commit_queue.is_congested() || self.disk == Disk::Open && self.write_queue.is_congested()
    }
}

/// The state of the log: which writes it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Disk {
    /// There is no log: everything lives as long as the process.
    #[default]
    None,
    /// Everything.
    Open,
    /// No events; only writes that free space, and the broker's own small records, as far as space
    /// goes.
    Full,
    /// Nothing any more: a write or a sync has failed. Whether uncommitted batches are on disk is
    /// unknown.
    Poisoned,
}

impl Disk {
    /// Checks whether the log takes a durable subscription: another one, or a change.
    pub(crate) fn check_subscription(self, is_durable: bool, is_new: bool) -> Result<(), Refusal> {
        match self {
            // A client that comes back frees log, so a subscription that exists is not refused.
            Disk::Full if is_durable && is_new => Err(Refusal::LogFull),
            Disk::Poisoned if is_durable => Err(Refusal::LogFailed),
            Disk::None | Disk::Open | Disk::Full | Disk::Poisoned => Ok(()),
        }
    }
}
