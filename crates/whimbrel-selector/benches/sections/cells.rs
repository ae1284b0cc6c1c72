//! Time per event: the index against all selectors one by one.

use core::hint::black_box;

use super::options::{Options, label};
use super::{Indexed, median, scan, time};
use crate::mixes::{Plan, Workload};

/// Programs that the scan runs in one round, about.
const SCANNED: usize = 20_000_000;

/// What was measured for one plan.
pub struct Measured {
    /// Share of the selectors that matched.
    pub share: f64,
    /// Per event.
    pub matches: f64,
    pub evaluations: f64,
    /// Nanoseconds per event.
    pub index: f64,
    pub scan: f64,
    pub distinct: usize,
}

pub fn print(options: &Options) {
    println!(
        "\nTime per event. share: of the selectors that match; eval: selectors evaluated by the index; per: for each match."
    );
    println!(
        "{:30} {:>8} {:>9} {:>8} {:>11} {:>12} {:>7} {:>8} {:>8} {:>8} {:>6}",
        "mix, fields, values, attributes",
        "count",
        "distinct",
        "share %",
        "index ns",
        "scan ns",
        "ns/sel",
        "ratio",
        "matches",
        "eval",
        "per"
    );
    for plan in options.plans() {
        let cell = measure(plan, options, options.with != "index-alone");
        println!(
            "{:30}  {:>8} {:>9} {:>8.4} {:>11.0} {:>12.0} {:>7.2} {:>8.1} {:>8.1} {:>8.1} {:>6.2}",
            label(&plan),
            plan.count,
            cell.distinct,
            cell.share * 100.0,
            cell.index,
            cell.scan,
            cell.scan / plan.count as f64,
            cell.scan / cell.index,
            cell.matches,
            cell.evaluations,
            cell.evaluations / cell.matches,
        );
    }
}

pub fn measure(plan: Plan, options: &Options, with_scan: bool) -> Measured {
    let workload = Workload::calibrated(plan);
    let mut indexed = Indexed::new(&workload);
    let events = &workload.events;
    // Also warms up what the index learns from events.
    let before = indexed.index.cost();
    let matches = indexed.run(events) as f64 / events.len() as f64;
    let evaluations = (indexed.index.cost().evaluations - before.evaluations) as f64 / events.len() as f64;
    let mut rounds = (Vec::new(), Vec::new());
    let mut scanned = with_scan.then(|| scan(&workload));
    let some = (SCANNED / plan.count).clamp(10, events.len());
    if let Some(scan) = &mut scanned {
        for event in &events[..some.min(50)] {
            let mut keys = Vec::new();
            scan.for_each_true(event, |key| keys.push(key));
            assert_eq!(indexed.keys(event), keys, "the index and the scan disagree: {plan:?} {event:?}");
        }
    }
    for _ in 0..options.rounds {
        rounds.0.push(time(events.len(), || {
            black_box(indexed.run(events));
        }));
        if let Some(scan) = &mut scanned {
            rounds.1.push(time(some, || {
                events[..some].iter().for_each(|event| {
                    scan.for_each_true(event, |key| {
                        black_box(key);
                    })
                });
            }));
        }
    }
    Measured {
        share: matches / plan.count as f64,
        matches,
        evaluations,
        index: median(rounds.0),
        scan: if with_scan { median(rounds.1) } else { f64::NAN },
        distinct: indexed.index.selectors(),
    }
}
