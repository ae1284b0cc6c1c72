//! What became of the events of a run.

use std::time::Duration;

use whimbrel_event::Time;

use super::judge::{DelayCauses, EventKey, Judge, LateEvent};
use super::scene::{ALL_PAIRS, BROKERS, DEADLINE, PAIRS, PUBLISHERS, SHOWN};
use super::stage::AreaWorld;
use super::truth::{Floor, Truth};

/// Latencies are counted in steps of this, up to [`BINS`] of them; longer ones in the last.
pub const BIN: Duration = Duration::from_millis(1);

/// See [`BIN`].
pub const BINS: usize = 250;

/// An event that no router can deliver within this time is cut off.
const CUT_OFF: Duration = Duration::from_secs(1);

/// Of the shown pair, one event of this many is in the series, as in the paper.
const SERIES_STEP: usize = 1_000;

/// Counts of the events of a pair, each by its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairTally {
    /// Events that were published.
    pub sent: f64,
    /// Events that arrived.
    pub arrived: f64,
    /// Events that did not arrive within the deadline, lost ones included.
    pub late: f64,
    /// Events that did not arrive.
    pub lost: f64,
    /// Those of them that a router could have delivered within [`CUT_OFF`].
    pub lost_with_way: f64,
    /// Events that no router could have delivered in time.
    pub floor_late: f64,
    /// Events that no router could have delivered within [`CUT_OFF`].
    pub floor_lost: f64,
    /// Events that were published while the direct path was slower than the deadline, or lost
    /// everything.
    pub direct_bad: f64,
    /// The sum of the latencies, milliseconds.
    pub latency_ms: f64,
    /// Events that arrived, by latency.
    pub bins: Vec<f64>,
}

impl PairTally {
    /// The mean latency of those that arrived, milliseconds; not finite without any.
    pub fn mean_ms(&self) -> f64 {
        self.latency_ms / self.arrived
    }

    fn add(&mut self, other: &PairTally) {
        self.sent += other.sent;
        self.arrived += other.arrived;
        self.late += other.late;
        self.lost += other.lost;
        self.lost_with_way += other.lost_with_way;
        self.floor_late += other.floor_late;
        self.floor_lost += other.floor_lost;
        self.direct_bad += other.direct_bad;
        self.latency_ms += other.latency_ms;
        self.bins.resize(BINS, 0.0);
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, more)| *bin += more);
    }
}

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunTally {
    /// By pair.
    pub pairs: [PairTally; PAIRS],
    /// Of the shown pair: seconds since the first event that counts, and the latency in ms.
    pub series: Vec<(f64, f64)>,
    /// Events that arrived again at a subscriber.
    pub repeated: u64,
    /// Why events were late that had a way in time, if their hops were recorded; each counts once.
    pub causes: DelayCauses,
}

impl RunTally {
    /// As [`RunTally::of`], with the causes of late events; `settled`: how long it takes at most
    /// until all have followed a change.
    pub fn judged(world: &AreaWorld, truth: &Truth, settled: Duration, weight: impl Fn(Time) -> f64) -> RunTally {
        let mut tally = RunTally::of(world, truth, &weight);
        if let Some(log) = &world.audience.hops {
            let judge = Judge { truth, hosts: &world.hosts(), settled };
            tally.causes = judge.count(log, &late_events(world, truth, weight));
        }
        tally
    }

    /// The counts of all events by a weight, which depends on when they were published.
    pub fn of(world: &AreaWorld, truth: &Truth, weight: impl Fn(Time) -> f64) -> RunTally {
        let mut floor = Floor::new(truth, BROKERS);
        let mut tally = RunTally { repeated: world.audience.repeated, ..RunTally::default() };
        for (index, pair) in ALL_PAIRS.iter().enumerate() {
            let from = PUBLISHERS[pair.topic];
            let of_pair = &mut tally.pairs[index];
            of_pair.bins.resize(BINS, 0.0);
            let mut first = None;
            for (number, sent) in world.audience.sent[pair.topic].iter().enumerate() {
                let weight = weight(*sent);
                if weight == 0.0 {
                    continue;
                }
                let first = *first.get_or_insert(*sent);
                let direct = truth.way(from, pair.to, *sent);
                let least = floor.takes(from, pair.to, *sent);
                let latency = world.audience.arrival(index, number).map(|at| at.since(*sent));
                let when = |is: bool| if is { weight } else { 0.0 };
                of_pair.sent += weight;
                of_pair.floor_late += when(least.is_none_or(|least| least > DEADLINE));
                of_pair.floor_lost += when(least.is_none_or(|least| least > CUT_OFF));
                of_pair.direct_bad += when(!direct.carries() || direct.delay > DEADLINE);
                of_pair.late += when(latency.is_none_or(|latency| latency > DEADLINE));
                of_pair.lost += when(latency.is_none());
                of_pair.lost_with_way += when(latency.is_none() && least.is_some_and(|least| least <= CUT_OFF));
                let Some(latency) = latency else { continue };
                of_pair.arrived += weight;
                let millis = latency.as_secs_f64() * 1e3;
                of_pair.latency_ms += weight * millis;
                let bin = (latency.as_nanos() / BIN.as_nanos()) as usize;
                of_pair.bins[bin.min(BINS - 1)] += weight;
                if index == SHOWN && number % SERIES_STEP == 0 {
                    tally.series.push((sent.since(first).as_secs_f64(), millis));
                }
            }
        }
        tally
    }

    /// The share of all events that counts as `of` says, per cent.
    pub fn share(&self, of: impl Fn(&PairTally) -> f64) -> f64 {
        let (part, whole) =
            self.pairs.iter().fold((0.0, 0.0), |(part, whole), pair| (part + of(pair), whole + pair.sent));
        100.0 * part / whole
    }
}

/// The events that count and were late or lost, and which an omniscient router would have delivered
/// in time.
fn late_events(world: &AreaWorld, truth: &Truth, weight: impl Fn(Time) -> f64) -> Vec<LateEvent> {
    let mut floor = Floor::new(truth, BROKERS);
    let mut late = Vec::new();
    for (index, pair) in ALL_PAIRS.iter().enumerate() {
        for (number, published) in world.audience.sent[pair.topic].iter().enumerate() {
            let arrival = world.audience.arrival(index, number);
            let is_late = arrival.is_none_or(|at| at.since(*published) > DEADLINE) && weight(*published) > 0.0;
            let mut had_way =
                || floor.takes(PUBLISHERS[pair.topic], pair.to, *published).is_some_and(|least| least <= DEADLINE);
            if is_late && had_way() {
                let key = EventKey { topic: pair.topic, number };
                late.push(LateEvent { key, to: pair.to, published: *published });
            }
        }
    }
    late
}

/// The sums by pair of several runs.
pub fn sums<'a>(runs: impl IntoIterator<Item = &'a RunTally>) -> [PairTally; PAIRS] {
    let mut sums: [PairTally; PAIRS] = Default::default();
    for run in runs {
        sums.iter_mut().zip(&run.pairs).for_each(|(sum, pair)| sum.add(pair));
    }
    sums
}

/// A mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
