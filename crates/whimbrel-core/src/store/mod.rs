//! What is to outlive the process: the core says what is to be written, in which order, and is told
//! how far it is durable.
//!
//! The core does no IO. What it wants written is a sequence of *batches* ([`Batch`]), each of which
//! is there as a whole after a crash or not at all; after a crash the disk holds a prefix of the
//! sequence. The driver takes them with [`crate::Broker::batch`] and [`crate::Broker::submitted`],
//! in order, and says with [`crate::Input::Committed`] how far they are durable. Nobody is told of
//! what an batch holds before that: events, answers and subscriptions wait in the *line*, in the
//! order in which they were accepted.

mod among;
mod carried;
mod carry;
mod carry_flights;
mod commit_queue;
mod copied;
mod current_position;
mod durable_position;
mod filter;
mod flight;
mod holds_given;
mod keep;
mod keys;
mod merge;
mod numbers;
mod placed;
mod position_base;
mod profile;
mod publishers;
mod reads;
mod release;
mod remote_holds;
mod remote_reads;
mod restore;
mod subscription_record;
mod survey;
mod ticks;
mod trouble;
mod wire;
mod write_queue;
mod written;
#[cfg(test)]
mod written_tests;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Packed, Tick, Time};

pub(crate) use carried::{Moving, NAMED_MAX, join, split};
pub(crate) use carry::SessionSource;
pub(crate) use commit_queue::{Answer, CommitQueue, HeldEvent, Recipient, Wait};
pub(crate) use copied::{Lost, LostParts};
pub(crate) use durable_position::{DurablePosition, Flight, FlightStream, RemotePosition};
pub(crate) use filter::{FilterRecords, LogPlan, RECORDS_BYTES, stream_of};
pub(crate) use holds_given::{
    EndedHostRecord, HOLDS_GIVEN_MAX, HeldInterest, HeldInterestRecord, HoldGiven, HoldRecord, HoldsGiven, InterestKey,
    RestoredHolds,
};
pub(crate) use keys::{DurableNo, Key, MapValue, OWN, OwnTicks, SessionNo};
pub use numbers::HOLDS_SHARD;
pub(crate) use numbers::Numbers;
pub(crate) use placed::{AttachmentRecord, KnownBrokerRecord};
pub(crate) use position_base::PositionBases;
pub(crate) use profile::Profiles;
pub use profile::{Persistence, Profile};
pub(crate) use publishers::{Numbered, Publishers};
pub(crate) use reads::{FETCH_BYTES, LENDER, Reads, WantedPart};
pub use reads::{Fetch, Fetched, event_of_record};
pub(crate) use release::Release;
pub(crate) use remote_reads::{FilterEntries, REMOTE_MEMBERS_MAX, RemoteReads, ToldPart};
pub use restore::{LogState, RestoreError, Restoring, StreamState};
pub(crate) use subscription_record::{FormerSelector, SubscriptionRecord};
pub(crate) use survey::SURVEYOR;
pub(crate) use wire::{ByteReader, put_bytes, put_varint};
pub(crate) use write_queue::WriteQueue;
pub use write_queue::{Batch, BatchNo};
pub(crate) use written::Written;

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
    /// Which durable subscriptions logged events are for, as far as their numbers belong to that
    /// part of all. It is given up together with the events of its pubend, by whoever gives up
    /// these: there are no writes for that.
    Filter {
        /// The pubend's index.
        pubend: u8,
        /// Subscriptions with numbers of this part of all; in [`HOLDS_SHARD`] it is other brokers
        /// that events are logged for.
        shard: u16,
    },
    /// Holds no records: what is reserved of it bounds the ticks of all own pubends.
    Ticks,
}

/// One thing that a batch writes.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Appends an event to its stream.
    Event {
        /// The pubend's index.
        pubend: u8,
        /// Its tick.
        tick: Tick,
        /// The event.
        event: Packed<'a>,
    },
    /// Appends another record.
    Record {
        /// Where.
        stream: StreamName,
        /// At which tick.
        tick: Tick,
        /// Its bytes.
        body: &'a [u8],
    },
    /// Sets a key of the map.
    Put {
        /// Which.
        key: &'a [u8],
        /// To what.
        value: &'a [u8],
    },
    /// Removes a key of the map, if it is there.
    Forget {
        /// Which.
        key: &'a [u8],
    },
    /// Gives up a stream's records, and with those of a stream of events its filter records of all
    /// shards.
    Chop {
        /// Of which stream.
        stream: StreamName,
        /// Up to this tick, itself included.
        upto: Tick,
    },
    /// Reserves ticks of [`StreamName::Ticks`].
    Reserve {
        /// Up to this one.
        upto: Tick,
    },
}

impl<'a> Write<'a> {
    /// The bytes of an event's record, in parts.
    pub fn event_parts(event: Packed<'a>) -> [&'a [u8]; 2] {
        [&[EVENT_FORMAT], &event.as_bytes()[EVENT_HEAD..]]
    }
}

/// What the core keeps of what is to be written.
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
    /// What other brokers are owed.
    pub(crate) holds_given: HoldsGiven,
    pub(crate) survey: survey::FilterSurvey,
    /// Topics whose retained message has changed with an event that is not logged.
    pub(crate) lazy_topics: BTreeSet<Box<str>>,
    pub(crate) lazily_at: Time,
    /// Brokers that there were before the start, with their names.
    pub(crate) known: BTreeMap<HostId, KnownBrokerRecord<Box<str>>>,
    /// Of which the streams have their host after the log has failed.
    pub(crate) spare_seed: u64,
    /// Up to where ticks are reserved, or will be.
    pub(crate) reserving: Tick,
    /// The farthest tick that was used when that was looked at last.
    pub(crate) used: Tick,
}

impl Store {
    pub(crate) fn is_congested(&self) -> bool {
        // While the log is full, what frees it must be read all the same.
        self.commit_queue.is_congested() || self.disk == Disk::Open && self.write_queue.is_congested()
    }
}

/// What the log takes at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Disk {
    /// There is no log: everything lives as long as the process.
    #[default]
    None,
    /// Everything.
    Open,
    /// No events; what frees space, and what little the broker has to remember, as far as it goes.
    Full,
    /// Nothing any more: a write or a sync has failed. What became of the batches that are not
    /// committed is not known.
    Poisoned,
}
