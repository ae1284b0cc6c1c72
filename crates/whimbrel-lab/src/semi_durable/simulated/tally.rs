//! What became of events.

use crate::semi_durable::outage::Observed;

/// An outage of one subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Seconds.
    pub length: f64,
    /// Events that it missed.
    pub missed: u64,
    /// Of these, those that it never got.
    pub lost: u64,
}

/// What became of the events that subscribers wanted and that are counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Events, once for each subscriber that wanted it.
    pub expected: u64,
    /// Those that came.
    pub delivered: u64,
    /// Those that did not come.
    pub lost: u64,
    /// The importance of all together.
    pub expected_importance: u64,
    /// The importance of those that did not come.
    pub lost_importance: u64,
    /// Those that did not come and were in no gap.
    pub silent: u64,
    /// Those that did not come although the cache was large enough for what had been published
    /// since.
    pub uncovered: u64,
    /// Events that came again or out of order.
    pub repeated: u64,
    /// Outages, in no order.
    pub outages: Vec<Outage>,
    /// Bytes of all packets to subscribers.
    pub bytes: u64,
    /// Of these, bytes that name the event for the subscriber to resume with.
    pub name_bytes: u64,
    /// Packets to subscribers.
    pub packets: u64,
}

impl Tally {
    /// Percent of the events that were lost.
    pub fn loss(&self) -> f64 {
        percent(self.lost, self.expected)
    }

    /// Percent of the importance that was lost.
    pub fn importance_loss(&self) -> f64 {
        percent(self.lost_importance, self.expected_importance)
    }

    /// Of the events that outages made miss, the part that was lost.
    pub fn lost_of_missed(&self) -> f64 {
        let (lost, missed) =
            self.outages.iter().fold((0, 0), |(lost, missed), one| (lost + one.lost, missed + one.missed));
        lost as f64 / missed as f64
    }

    /// The lengths of the outages.
    pub fn observed(&self) -> Observed {
        Observed(self.outages.iter().map(|outage| outage.length).collect())
    }

    /// Takes another's figures in.
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

/// What became of all events.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// By class of subscribers, each with a partition of its own.
    pub classes: Vec<Tally>,
}

impl Outcome {
    /// All classes together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.classes.iter().for_each(|tally| total.add(tally.clone()));
        total
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
