//! How many events were in time, on any map.

use whimbrel_event::Time;

use super::area::Area;
use super::stage::AreaWorld;

/// Counts of events at their subscribers, each by its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LateCount {
    /// Events, once for each subscriber.
    pub sent: f64,
    /// Those of them that did not arrive within the deadline, lost ones included.
    pub late: f64,
}

impl LateCount {
    /// Counts an event at one subscriber by when it arrived.
    pub fn record(&mut self, area: &Area, weight: f64, sent: Time, arrival: Option<Time>) {
        self.sent += weight;
        if arrival.is_none_or(|at| at.since(sent) > area.deadline) {
            self.late += weight;
        }
    }

    /// What has become of the events of a world, by a weight that depends on when they were
    /// published.
    pub fn of(world: &AreaWorld, weight: impl Fn(Time) -> f64) -> LateCount {
        let mut reach = LateCount::default();
        for (index, flow) in world.area.flows.iter().enumerate() {
            for (number, sent) in world.audience.sent[flow.topic].iter().enumerate() {
                let weight = weight(*sent);
                if weight > 0.0 {
                    reach.record(&world.area, weight, *sent, world.audience.arrival(index, number));
                }
            }
        }
        reach
    }

    /// The share that was late, per cent.
    pub fn late(&self) -> f64 {
        100.0 * self.late / self.sent
    }
}

/// The part of the gap between one path and the best that can be which a version covers, per cent;
/// `None`: there is no gap.
pub fn covered(one_path: f64, best: f64, late: f64) -> Option<f64> {
    (one_path > best).then(|| 100.0 * (one_path - late) / (one_path - best))
}
