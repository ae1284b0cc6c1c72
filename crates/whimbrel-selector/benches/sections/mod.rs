//! The parts of the report.

pub mod bystanders;
pub mod cells;
pub mod churn;
pub mod counting;
pub mod growth;
pub mod memory;
pub mod once;
pub mod options;
pub mod peer;

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use whimbrel_selector::{MatchIndex, Place, Scan, TopicFilter, TopicName};

use crate::mixes::{Event, Workload};

/// All selectors of a workload under one filter.
pub struct Indexed {
    pub index: MatchIndex<u32>,
    pub places: Vec<Place>,
}

/// Under which all selectors stand.
pub fn filter() -> TopicFilter<'static> {
    TopicFilter::new("fleet/+/position").expect("a filter")
}

/// On which all events are published.
pub fn topic() -> TopicName<'static> {
    TopicName::new("fleet/7/position").expect("a topic")
}

impl Indexed {
    pub fn new(workload: &Workload) -> Indexed {
        let mut index = MatchIndex::new(workload.plan.seed);
        index.set_fences(Arc::clone(&workload.fences));
        let mut places = Vec::with_capacity(workload.plan.count);
        for number in 0..workload.plan.count {
            places.push(index.insert(filter(), Some(&workload.selector(number)), number as u32).0);
        }
        Indexed { index, places }
    }

    /// How many matches.
    pub fn run(&mut self, events: &[Event]) -> usize {
        let mut matches = 0;
        for event in events {
            self.index.for_each_match(topic(), event, |_| matches += 1);
        }
        matches
    }

    pub fn keys(&mut self, event: &Event) -> Vec<u32> {
        let mut keys = Vec::new();
        self.index.for_each_match(topic(), event, |key| keys.push(key));
        keys.sort_unstable();
        keys
    }
}

/// All selectors of a workload, compiled, one after the other.
pub fn scan(workload: &Workload) -> Scan<u32> {
    let mut scan = Scan::new(Arc::clone(&workload.fences));
    (0..workload.plan.count).for_each(|number| scan.push(&workload.selector(number), number as u32));
    scan
}

/// Processor time of this thread, nanoseconds: other programs on the same machine cost it less than
/// they cost the time of day.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds for each of `count` that `work` does.
pub fn time(count: usize, work: impl FnOnce()) -> f64 {
    let start = now();
    work();
    (now() - start) as f64 / count as f64
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Least squares slope of `y` over `x`, both by their logarithms.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let product: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let square: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    product / square
}
