//! The broker's data directory: what is in it, opening it, and the journal while the broker runs.
//!
//! The core says what is to be written (`whimbrel_core::store`); [`Store`] gives it to the journal
//! at the end of each turn, under the machine's lock and in the core's order, and tells the core
//! how far it is durable. The journal's own threads write, sync and read, and leave their news in a
//! [`Signal`]. Locks are taken in one order: machine, journal; the journal's threads call with
//! neither.

pub mod check;
mod open;
mod read;
mod signal;
mod streams;
mod submit;

use std::sync::Arc;

use whimbrel_journal::{Counters, Journal, MapInfo, Storage, StreamUse};

pub use open::{JOURNAL, Lock, OpenError, Opened, Opening, open};
pub use signal::Signal;
pub use submit::Store;
pub(crate) use submit::latency;

/// A journal on any kind of disk.
pub(crate) type Disk = Journal<Arc<dyn Storage + Send + Sync>>;

/// What a journal's streams of events take up, and what it may.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// By the index of their pubends.
    pub events: [StreamUse; streams::PUBENDS],
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that all may take.
    pub max_bytes: u64,
}

/// What is told of the journal in metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreAccount {
    /// What was written since the start.
    pub counters: Counters,
    /// Segment files, those included that hold nothing now.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that they may take.
    pub max_bytes: u64,
    /// Bytes of records that are kept.
    pub retained_bytes: u64,
    /// The durable map of sessions, subscriptions and retained messages.
    pub map: MapInfo,
    /// It refuses events for want of room.
    pub is_full: bool,
    /// A write or a sync has failed: nothing more is written.
    pub is_poisoned: bool,
    /// How often it became full.
    pub full: u64,
    /// Submissions after which something waited for room in the next commit.
    pub busy: u64,
    /// Parts of streams that were found damaged.
    pub damaged: u64,
    /// Parts of streams that were read for subscriptions that lag.
    pub reads: u64,
}
