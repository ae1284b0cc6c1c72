//! Queues of deliveries whose events and bytes are counted over all sessions.

use whimbrel_event::{Qos, Time};

use super::queue::{Queue, Queued};
use crate::stats::Stats;

/// The QoS of the next delivery that has not expired; counts those before it as expired.
pub(super) fn first_live(queue: &mut Queue, now: Time, stats: &mut Stats) -> Option<Qos> {
    if queue.is_empty() {
        return None;
    }
    let (first, expired, bytes) = queue.first_live(now);
    stats.queued_events -= expired as u64;
    stats.queued_bytes -= bytes as u64;
    stats.dropped_expired += expired as u64;
    first.map(|entry| entry.qos)
}

/// Takes out the next delivery that has not expired; counts the expired ones.
pub(super) fn pop(queue: &mut Queue, now: Time, stats: &mut Stats) -> Option<Queued> {
    let (events, bytes) = (queue.len(), queue.bytes());
    let (entry, expired) = queue.pop_live(now);
    stats.queued_events -= (events - queue.len()) as u64;
    stats.queued_bytes -= (bytes - queue.bytes()) as u64;
    stats.dropped_expired += expired as u64;
    entry
}

/// Appends `entry`, and drops the oldest until both bounds hold; returns the number that was
/// dropped (`entry` itself, if it alone exceeds a bound).
pub(crate) fn push_bounded(queue: &mut Queue, entry: Queued, bound: usize, total: usize, stats: &mut Stats) -> u64 {
    let weight = entry.weight();
    let mut dropped = 0;
    while queue.bytes() + weight > bound || stats.queued_bytes as usize + weight > total {
        dropped += 1;
        let Some(oldest) = queue.pop() else {
            queue.record_lost(entry.serial);
            return dropped;
        };
        queue.record_lost(oldest.serial);
        stats.queued_events -= 1;
        stats.queued_bytes -= oldest.weight() as u64;
    }
    stats.queued_events += 1;
    stats.queued_bytes += weight as u64;
    queue.push(entry);
    dropped
}
