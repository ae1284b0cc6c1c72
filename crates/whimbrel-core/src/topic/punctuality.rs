//! Whether events of topics with a deadline are delivered in time, and why not.

use std::collections::VecDeque;

use whimbrel_event::EventId;

/// The upper bounds of the slack of deliveries in time, per cent of the deadline.
pub const SLACK_BOUNDS_PERCENT: [u64; 6] = [10, 25, 50, 75, 90, 100];

/// Why a delivery was late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LateCause {
    /// The event was late when it arrived from another broker.
    Path,
    /// It was late when it arrived, as it had been lost before and was asked for.
    Loss,
    /// It was in time until it waited at this broker: for the log, for an event before it, or for
    /// its client.
    Wait,
}

impl LateCause {
    /// All of them.
    pub const ALL: [LateCause; 3] = [LateCause::Path, LateCause::Loss, LateCause::Wait];

    /// In one word.
    pub fn name(self) -> &'static str {
        ["path", "loss", "wait"][self as usize]
    }
}

/// How many deliveries of a profile's topics were in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Punctuality {
    /// Deliveries in time, by their slack: the first bound of [`SLACK_BOUNDS_PERCENT`] that is not
    /// exceeded.
    pub in_time: [u64; SLACK_BOUNDS_PERCENT.len()],
    /// Late deliveries, by their causes.
    pub late: [u64; LateCause::ALL.len()],
    /// Deliveries after their deadline to clients that had been away, or subscribed later.
    pub after_absence: u64,
}

impl Punctuality {
    /// Counts a delivery in time: with `slack_us` left of `deadline_us`, which is positive.
    pub fn record_in_time(&mut self, slack_us: u64, deadline_us: u64) {
        let percent = slack_us.min(deadline_us) * 100 / deadline_us.max(1);
        let bucket = SLACK_BOUNDS_PERCENT.iter().position(|bound| percent <= *bound);
        self.in_time[bucket.unwrap_or(SLACK_BOUNDS_PERCENT.len() - 1)] += 1;
    }

    /// Adds the deliveries of another count.
    pub fn add(&mut self, other: &Punctuality) {
        self.in_time.iter_mut().zip(other.in_time).for_each(|(sum, count)| *sum += count);
        self.late.iter_mut().zip(other.late).for_each(|(sum, count)| *sum += count);
        self.after_absence += other.after_absence;
    }

    /// The share of deliveries that were in time, thousandths, rounded down; those after an absence
    /// do not count. `None` before the first one.
    pub fn in_time_permille(&self) -> Option<u64> {
        let in_time: u64 = self.in_time.iter().sum();
        let all = in_time + self.late.iter().sum::<u64>();
        (in_time * 1_000).checked_div(all)
    }
}

/// Deliveries of one topic, in which late ones have no cause yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicDeliveries {
    /// The topic.
    pub topic: Box<str>,
    /// The deliveries; none of [`Punctuality::late`].
    pub punctuality: Punctuality,
    /// Late events, and the number of their deliveries.
    pub late: Vec<(EventId, u64)>,
}

/// Most events whose causes are kept.
const LATE_ARRIVALS_MAX: usize = 1_024;

/// The latest events that were late when they arrived from other brokers.
#[derive(Debug, Default)]
pub(crate) struct LateArrivals {
    latest: VecDeque<(EventId, LateCause)>,
}

impl LateArrivals {
    /// Records an event; the oldest one is forgotten.
    pub(crate) fn record(&mut self, id: EventId, cause: LateCause) {
        if self.latest.len() >= LATE_ARRIVALS_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back((id, cause));
    }

    /// Why a delivery of an event was late. A look at the latest late events, newest first.
    pub(crate) fn cause_of(&self, id: EventId) -> LateCause {
        self.latest.iter().rev().find(|(known, _)| *known == id).map_or(LateCause::Wait, |(_, cause)| *cause)
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{HostId, Tick};

    use super::*;

    #[test]
    fn slack_is_counted_by_its_share_of_the_deadline() {
        let mut counted = Punctuality::default();
        for slack_us in [0, 5_000, 5_500, 13_000, 26_000, 40_000, 49_000, 50_000, 60_000] {
            counted.record_in_time(slack_us, 50_000);
        }
        assert_eq!(counted.in_time, [2, 1, 1, 1, 1, 3]);
        assert_eq!(counted.in_time_permille(), Some(1_000));
        let late = Punctuality { late: [1, 0, 2], after_absence: 100, ..Punctuality::default() };
        counted.add(&late);
        assert_eq!((counted.in_time_permille(), counted.after_absence), (Some(750), 100));
        assert_eq!(Punctuality::default().in_time_permille(), None);
    }

    #[test]
    fn the_latest_late_events_have_causes_and_all_others_waited_here() {
        let id = |tick| EventId { pubend: HostId::new(1 << 8).pubend(8), tick: Tick(tick) };
        let mut arrivals = LateArrivals::default();
        arrivals.record(id(1), LateCause::Loss);
        for tick in 2..=LATE_ARRIVALS_MAX as u64 {
            arrivals.record(id(tick), LateCause::Path);
        }
        assert_eq!(
            [0, 1, 2].map(|tick| arrivals.cause_of(id(tick))),
            [LateCause::Wait, LateCause::Loss, LateCause::Path]
        );
        arrivals.record(id(5_000), LateCause::Path);
        assert_eq!(arrivals.cause_of(id(1)), LateCause::Wait, "forgotten");
    }
}
