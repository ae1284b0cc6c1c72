//! Counts of events.

use crate::semi_durable::outage::Observed;

/// An outage of one subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// The length, seconds.
    pub length: f64,
    /// Events that it missed.
    pub missed: u64,
    /// Events among these that it never received.
    pub lost: u64,
}

/// The counts of the events that subscribers wanted and that are counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Events, once for each subscriber that wanted them.
    pub expected: u64,
    /// Events among these that were received.
    pub delivered: u64,
    /// Events that were not received.
    pub lost: u64,
    /// The importance of all expected events.
    pub expected_importance: u64,
    /// The importance of the lost events.
    pub lost_importance: u64,
    /// Lost events that were in no gap.
    pub silent: u64,
    /// Lost events although the cache was large enough for everything published since.
    pub uncovered: u64,
    /// Events that arrived again or out of order.
    pub repeated: u64,
    /// Outages, in no order.
    pub outages: Vec<Outage>,
    /// Bytes of all packets to subscribers.
    pub bytes: u64,
    /// Bytes among these that name the event for a resumption.
    pub name_bytes: u64,
    /// Packets to subscribers.
    pub packets: u64,
}

impl Tally {
    /// The percentage of events that were lost.
    pub fn loss(&self) -> f64 {
        percent(self.lost, self.expected)
    }

    /// The percentage of importance that was lost.
    pub fn importance_loss(&self) -> f64 {
        percent(self.lost_importance, self.expected_importance)
    }

    /// The lost part of the events that were missed in outages.
    pub fn lost_of_missed(&self) -> f64 {
        let (lost, missed) =
            self.outages.iter().fold((0, 0), |(lost, missed), one| (lost + one.lost, missed + one.missed));
        lost as f64 / missed as f64
    }

    /// The lengths of the outages.
    pub fn observed(&self) -> Observed {
        Observed(self.outages.iter().map(|outage| outage.length).collect())
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.expected_importance += other.expected_importance;
        self.lost_importance += other.lost_importance;
        self.silent += other.silent;
        self.uncovered += other.uncovered;
        self.repeated += other.repeated;
        self.outages.extend(other.outages);
        self.bytes += other.bytes;
        self.name_bytes += other.name_bytes;
        self.packets += other.packets;
    }
}

/// The counts of all events.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// By class of subscribers, each with its own partition.
    pub classes: Vec<Tally>,
}

impl Outcome {
    /// The sum over all classes.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.classes.iter().for_each(|tally| total.add(tally.clone()));
        total
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
