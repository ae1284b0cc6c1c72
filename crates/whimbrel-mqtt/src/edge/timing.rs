//! Latencies of deliveries by the class of their subscriptions.
//!
//! The latency of sampled deliveries is taken when they are handed out. That of an event from
//! another broker is the age with which it came, and the time that it has been here: clocks are not
//! compared.

use core::time::Duration;

use whimbrel_core::{Delivery, GapClass, LatencyHistogram};
use whimbrel_event::Time;

use super::MqttBroker;

/// One delivery in this number is timed. A prime: fan-outs are round numbers, and each of their
/// receivers is to be sampled equally often.
const EVERY: u32 = 61;

/// The latencies of deliveries.
#[derive(Debug)]
pub(super) struct Timing {
    /// Deliveries until the next one is timed.
    left: u32,
    /// Samples of the current step: cursor and latency. At most one in [`EVERY`] deliveries of a
    /// step.
    timed: Vec<(u32, Duration)>,
    of: [LatencyHistogram; GapClass::ALL.len()],
}

impl Timing {
    pub(super) fn new() -> Timing {
        Timing { left: EVERY, timed: Vec::new(), of: Default::default() }
    }

    /// Whether the next delivery is to be timed.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Times a delivery to a client whose connection was opened at `since`. Events published before
    /// that have no latency of the broker's: they were asked for later, or the client was away.
    #[cold]
    pub(super) fn time(&mut self, now: Time, since: Time, delivery: &Delivery<'_>) {
        self.left = EVERY;
        let accepted = delivery.accepted.accepted_here();
        if accepted >= since && !delivery.repeated && !delivery.retain {
            self.timed.push((delivery.cursor, now.since(accepted)));
        }
    }
}

impl MqttBroker {
    /// Latencies of deliveries by class, from the time at which an event was accepted to that at
    /// which it was handed to a connected client: of every 61st delivery.
    pub fn latencies(&self) -> impl Iterator<Item = (GapClass, &LatencyHistogram)> {
        GapClass::ALL.into_iter().zip(&self.edge.timing.of)
    }

    /// Adds the samples of the current step.
    #[inline]
    pub(super) fn settle_timing(&mut self) {
        if !self.edge.timing.timed.is_empty() {
            let timing = &mut self.edge.timing;
            for (track, latency) in timing.timed.drain(..) {
                timing.of[self.core.class_of(track) as usize].record(latency);
            }
        }
    }
}
