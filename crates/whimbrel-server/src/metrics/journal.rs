//! Metrics of the journal; without a data directory all are 0.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use super::encoding::put;
use crate::store::StoreAccount;

/// Name, help text, and how the number is read.
type Row = (&'static str, &'static str, fn(&StoreAccount) -> u64);

const COUNTERS: [Row; 9] = [
    ("whimbrel_journal_commits", "Commits to the disk, each with one sync", |s| s.counters.commits),
    ("whimbrel_journal_records", "Records that were made durable", |s| s.counters.records),
    ("whimbrel_journal_record_bytes", "Bytes of these records", |s| s.counters.record_bytes),
    ("whimbrel_journal_moved_bytes", "Bytes of records that were written again to free their files", |s| {
        s.counters.moved_bytes
    }),
    ("whimbrel_journal_written_bytes", "Bytes written to the disk, directories and padding included", |s| {
        s.counters.frame_bytes
    }),
    ("whimbrel_journal_busy", "Submissions of which a part waited for the next commit", |s| s.busy),
    ("whimbrel_journal_filled", "How often the journal became full", |s| s.full),
    ("whimbrel_journal_damaged", "Parts of the journal that were found damaged", |s| s.damaged),
    ("whimbrel_journal_reads", "Parts of the journal that were read for subscriptions that lag", |s| s.reads),
];

const GAUGES: [Row; 8] = [
    ("whimbrel_journal_full", "1 while the journal has no room, and publishes that must be logged are refused", |s| {
        u64::from(s.is_full)
    }),
    ("whimbrel_journal_failed", "1 from a failed write or sync until the broker is restarted", |s| {
        u64::from(s.is_poisoned)
    }),
    ("whimbrel_journal_segments", "Files of the journal", |s| s.files),
    ("whimbrel_journal_bytes", "Bytes of these files", |s| s.bytes),
    ("whimbrel_journal_max_bytes", "Bytes that these files may take (journal.max_log)", |s| s.max_bytes),
    ("whimbrel_journal_retained_bytes", "Bytes of records that are kept", |s| s.retained_bytes),
    ("whimbrel_journal_entries", "Sessions, subscriptions, positions and retained messages that are remembered", |s| {
        s.map.keys as u64
    }),
    ("whimbrel_journal_entry_bytes", "Bytes of these", |s| s.map.live),
];

/// Encodes the journal's gauges and counters, and the time for which clients were held up for it.
pub fn encode(
    encoder: &mut DescriptorEncoder,
    store: &StoreAccount,
    latency: &Histogram,
    congested: Duration,
) -> fmt::Result {
    let help = "How long what was given to the journal took to become durable";
    put(encoder, "whimbrel_journal_commit_seconds", help, latency)?;
    for (name, help, read) in COUNTERS {
        put(encoder, name, help, &ConstCounter::new(read(store)))?;
    }
    let help = "How long clients were not read because too much waited for the disk";
    put(encoder, "whimbrel_journal_congested_seconds", help, &ConstCounter::new(congested.as_secs_f64()))?;
    for (name, help, read) in GAUGES {
        put(encoder, name, help, &ConstGauge::new(read(store)))?;
    }
    Ok(())
}
