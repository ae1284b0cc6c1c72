//! How long deliveries take, by what their subscriptions are promised.
//!
//! An event's tick is the moment at which its broker accepted it, so nothing has to be noted on the
//! way: one of many deliveries is looked at when it is handed out.

use core::time::Duration;

use whimbrel_core::{Delivery, GapClass, LatencyHistogram};
use whimbrel_event::Time;

use super::MqttBroker;

/// Of so many deliveries one is timed. A prime: fan-outs are round numbers, and each of their
/// receivers is to be met equally often.
const EVERY: u32 = 61;

/// The latencies of deliveries.
#[derive(Debug)]
pub(super) struct Timing {
    /// Deliveries until one is timed.
    left: u32,
    /// Those that were timed in the present step: to which subscription, and how long it took. At
    /// most one of [`EVERY`] deliveries of a step.
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

    /// Times a delivery to a client whose connection was opened at `since`. What was published
    /// before is no latency of the broker: it was asked for later, or the client was away.
    #[cold]
    pub(super) fn time(&mut self, now: Time, since: Time, delivery: &Delivery<'_>) {
        self.left = EVERY;
        let accepted = Time::from_nanos(delivery.id.tick.0);
        if accepted >= since && !delivery.repeated && !delivery.retain {
            self.timed.push((delivery.cursor, now.since(accepted)));
        }
    }
}

impl MqttBroker {
    /// How long deliveries took from the moment at which an event was accepted to that at which it
    /// was handed to a client that was connected, by class: of every 61st delivery. Clocks of other
    /// brokers are taken as they are.
    pub fn latencies(&self) -> impl Iterator<Item = (GapClass, &LatencyHistogram)> {
        GapClass::ALL.into_iter().zip(&self.edge.timing.of)
    }

    /// Adds what was timed in the present step.
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
