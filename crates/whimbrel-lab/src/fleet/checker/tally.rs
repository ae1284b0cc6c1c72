//! Counts of arrivals, as the checker judged them.

use super::Promise;

/// Counts of what happened to one subscriber, or to several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Tally {
    /// Messages that had to arrive.
    pub expected: u64,
    /// Messages among these that arrived, each counted once.
    pub delivered: u64,
    /// Messages among these that were missed while the subscriber had no connection, and arrived
    /// after its return.
    pub recovered: u64,
    /// Messages that did not arrive and that the broker has told as a gap.
    pub reported: u64,
    /// Messages that did not arrive and that were not told as a gap.
    pub lost: u64,
    /// Messages, not counted as expected, that a nondurable subscriber missed while it had no
    /// connection.
    pub missed: u64,
    /// Arrivals beyond the first, except `redelivered`.
    pub duplicated: u64,
    /// Repetitions that the broker marked as possible ones after a broken connection: no promise is
    /// broken.
    pub redelivered: u64,
    /// First arrivals after a later message of the same vehicle.
    pub reordered: u64,
    /// First arrivals after a later message that their vehicle published at another broker, while
    /// the earlier one's broker could not be reached: no promise is broken.
    pub overtaken: u64,
    /// Arrivals with other content than was published.
    pub altered: u64,
    /// Arrivals that were not published, or that do not match the subscription.
    pub foreign: u64,
    /// Messages, not counted as expected, that are too close to the border of a fence to tell
    /// whether they match.
    pub bordering: u64,
    /// Messages whose publisher was not told that the broker has them, and that did not arrive: no
    /// promise is broken.
    pub excused: u64,
}

impl Tally {
    /// The number of broken promises; losses count only where they are forbidden.
    pub fn faults(&self, promise: Promise) -> u64 {
        let lost = if promise == Promise::BestEffort { 0 } else { self.lost };
        lost + self.duplicated + self.reordered + self.altered + self.foreign
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.recovered += other.recovered;
        self.reported += other.reported;
        self.lost += other.lost;
        self.missed += other.missed;
        self.duplicated += other.duplicated;
        self.redelivered += other.redelivered;
        self.reordered += other.reordered;
        self.overtaken += other.overtaken;
        self.altered += other.altered;
        self.foreign += other.foreign;
        self.bordering += other.bordering;
        self.excused += other.excused;
    }
}
