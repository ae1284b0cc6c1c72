//! Worlds of many brokers: no promise is broken in any of them, and a seed is all there is to a
//! run.
//!
//! `WHIMBREL_SEEDS` sets how many seeds are played (500), `WHIMBREL_SEED` the first (0) or the one
//! to replay, `WHIMBREL_TRACE` how much of its story is told.

use whimbrel_sim::overlay::{Report, Size, replay as play_again, run, run_sized};

use crate::seeds::{number, play};

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 500;

/// Entries of the story of a failure, unless told otherwise.
const KEPT: usize = 200;

#[test]
fn no_promise_is_broken_in_any_world() {
    let (first, count) = (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    let reports = play(first, count, run, |report| !report.violations.is_empty());
    let all = reports.iter().flat_map(|report| report.violations.iter().map(|broken| (report.seed, broken)));
    let all: Vec<String> = all.map(|(seed, broken)| format!("seed {seed}: {broken}")).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    let sum = |part: fn(&Report) -> u64| reports.iter().map(part).sum::<u64>();
    let totals = [
        ("published", sum(|report| report.counts.published)),
        ("delivered", sum(|report| report.counts.delivered)),
        ("remote", sum(|report| report.counts.remote)),
        ("due", sum(|report| report.counts.due)),
        ("gaps", sum(|report| report.counts.gaps)),
        ("excused", sum(|report| report.counts.excused)),
        ("returned", sum(|report| report.counts.returned)),
        ("pending", sum(|report| report.counts.pending)),
        ("received", sum(|report| report.received)),
        ("unwanted", sum(|report| report.unwanted)),
        ("nacks", sum(|report| report.nacks)),
        ("conditions", sum(|report| report.conditions)),
        ("rerouted", sum(|report| report.rerouted)),
        ("crashes", sum(|report| report.crashes)),
        ("resumed", sum(|report| report.counts.resumed)),
        ("clearing", sum(|report| report.counts.clearing)),
        ("survived", sum(|report| report.counts.survived)),
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
        assert_eq!((one.digest, one.counts), (other.digest, other.counts), "seed {seed}");
    }
    assert_ne!(run(1).digest, run(2).digest);
}

/// Plays one seed again and tells the last of its story, of as many entries as `WHIMBREL_TRACE`
/// says.
#[test]
fn replay() {
    let kept = number("WHIMBREL_TRACE").map_or(KEPT, |kept| kept as usize);
    let report = play_again(number("WHIMBREL_SEED").unwrap_or(1), Size::Drawn, kept.max(1));
    println!("{report}");
    assert!(report.violations.is_empty(), "seed {} breaks {} rules", report.seed, report.violations.len());
}

#[test]
fn a_hundred_brokers_keep_every_promise() {
    let report = run_sized(1, Size::Of(100));
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.counts.remote > 100, "events travel: {report}");
}
