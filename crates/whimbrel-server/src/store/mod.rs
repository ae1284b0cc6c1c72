//! The broker's data directory: opening it, checking it, and its journal while the broker runs.
//!
//! The core says what is to be written (`whimbrel_core::store`). [`Store`] gives it to the journal
//! at the end of each turn, under the machine's lock and in the core's order, and tells the core
//! how far it is durable. The journal's own threads write, sync and read, and leave their reports
//! in a [`Signal`]. Locks are taken in one order: machine, journal; the journal's threads call with
//! neither, and never wait for the machine's.

pub mod check;
mod import;
mod lock;
mod null;
mod open;
mod put;
mod read;
mod signal;
mod streams;
mod submit;

use std::sync::Arc;

use whimbrel_journal::{Counters, Journal, MapInfo, Storage, StreamUse};

pub use import::import;
pub use lock::Lock;
pub(crate) use open::open;
pub use open::{JOURNAL, OpenError, Opened, Opening};
pub use signal::Signal;
pub use submit::Store;

/// A journal on any kind of disk.
pub(crate) type Disk = Journal<Arc<dyn Storage + Send + Sync>>;

/// Disk usage of a journal's event streams, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Usage of each event stream, by the index of its pubend.
    pub events: [StreamUse; streams::PUBENDS],
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes that all segments may take.
    pub max_bytes: u64,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Number of times that the journal became full.
    full: u64,
    /// Number of times that the engine did not answer for too long.
    overdue: u64,
    /// Submissions that left writes waiting for room in the next commit.
    busy: u64,
    /// Parts of streams found damaged.
    damaged: u64,
    /// Parts of streams read.
    reads: u64,
}

/// The journal's numbers for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreAccount {
    /// Counters of writes since the start.
    pub counters: Counters,
    /// Number of segment files, including empty ones.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that these files may take.
    pub max_bytes: u64,
    /// Bytes of records that are kept.
    pub retained_bytes: u64,
    /// The durable map of sessions, subscriptions and retained messages.
    pub map: MapInfo,
    /// The journal refuses events for want of room.
    pub is_full: bool,
    /// A write or a sync has failed: nothing more is written.
    pub is_poisoned: bool,
    /// Number of times that the journal became full.
    pub full: u64,
    /// Number of times that the engine did not answer for too long.
    pub overdue: u64,
    /// Submissions that left writes waiting for room in the next commit.
    pub busy: u64,
    /// Parts of streams found damaged.
    pub damaged: u64,
    /// Parts of streams read for cursors in catch-up.
    pub reads: u64,
}
