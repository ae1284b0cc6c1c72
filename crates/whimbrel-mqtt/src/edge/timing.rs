//! Latencies of deliveries by the class of their subscriptions, and whether deliveries of topics
//! with a deadline were in time.
//!
//! The latency of sampled deliveries is taken when they are handed out. That of an event from
//! another broker is the age with which it came, and the time that it has been here: clocks are not
//! compared.

use core::time::Duration;

use whimbrel_core::{Delivery, GapClass, LatencyHistogram, TopicDeliveries};
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
    /// Deliveries with a deadline of the current step, by topics that follow each other.
    deadlines: Vec<TopicDeliveries>,
}

impl Timing {
    pub(super) fn new() -> Timing {
        Timing { left: EVERY, timed: Vec::new(), of: Default::default(), deadlines: Vec::new() }
    }

    /// Whether the next delivery is to be timed.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Counts a delivery of an event with a deadline to a client whose connection was opened at
    /// `since`. Repetitions and retained messages have none.
    #[cold]
    pub(super) fn count_deadline(&mut self, now: Time, since: Time, delivery: &Delivery<'_>) {
        let accepted = &delivery.accepted;
        let Some(deadline_ms) = accepted.event.deadline_ms.filter(|_| !delivery.repeated && !delivery.retain) else {
            return;
        };
        if self.deadlines.last().is_none_or(|last| *last.topic != *accepted.event.topic) {
            self.deadlines.push(TopicDeliveries { topic: accepted.event.topic.into(), ..TopicDeliveries::default() });
        }
        let of_topic = self.deadlines.last_mut().expect("it was pushed");
        if accepted.late_by(now).is_none() {
            let slack_us = accepted.slack(now).map_or(0, |slack| slack.as_micros() as u64);
            of_topic.punctuality.record_in_time(slack_us, u64::from(deadline_ms) * 1_000);
        } else if accepted.accepted_here() < since {
            of_topic.punctuality.after_absence += 1;
        } else {
            match of_topic.late.last_mut().filter(|(id, _)| *id == accepted.id) {
                Some((_, count)) => *count += 1,
                None => of_topic.late.push((accepted.id, 1)),
            }
        }
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

    /// Adds the deliveries with a deadline of the current step.
    #[cold]
    fn settle_deadlines(&mut self) {
        for deliveries in self.edge.timing.deadlines.drain(..) {
            self.core.record_deliveries(&deliveries);
        }
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
        if !self.edge.timing.deadlines.is_empty() {
            self.settle_deadlines();
        }
    }
}
