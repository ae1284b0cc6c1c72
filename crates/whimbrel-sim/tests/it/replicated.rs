//! Worlds in which brokers have their logs on replicated engines: no promise is broken in any of
//! them, whichever process of a broker ends, with its disk or without, or goes on beside its
//! successor.
//!
//! `WHIMBREL_SEEDS` sets how many seeds are played (500), `WHIMBREL_SEED` the first (0) or the one
//! to replay, `WHIMBREL_TRACE` how much of its story is told.

use whimbrel_sim::overlay::roam::{Report, replay_replicated, run_replicated};
use whimbrel_sim::overlay::{self, run_replicated as run_fixed};

use crate::seeds::{number, play};

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 500;

/// Worlds with retained messages and best-effort events, in which sessions stay where they are.
const FIXED: u64 = 200;

/// Entries of the story of a failure, unless told otherwise.
const KEPT: usize = 400;

#[test]
fn no_promise_is_broken_on_an_engine() {
    let (first, count) = (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    let reports = play(first, count, run_replicated, |report| !report.violations.is_empty());
    let all = reports.iter().flat_map(|report| report.violations.iter().map(|broken| (report.seed, broken)));
    let all: Vec<String> = all.map(|(seed, broken)| format!("seed {seed}: {broken}")).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    let sum = |part: fn(&Report) -> u64| reports.iter().map(part).sum::<u64>();
    let totals = [
        ("published", sum(|report| report.counts.published)),
        ("delivered", sum(|report| report.counts.delivered)),
        ("repeated", sum(|report| report.counts.repeated)),
        ("due", sum(|report| report.counts.due)),
        ("moved", sum(|report| report.counts.moved)),
        ("resumed", sum(|report| report.counts.resumed)),
        ("logged", sum(|report| report.counts.logged)),
        ("crashes", sum(|report| report.crashes as u64)),
        ("successions", sum(|report| report.successions)),
        ("stopped", sum(|report| report.stopped)),
        ("strayed", sum(|report| report.strayed)),
    ];
    println!("{count} seeds from {first}: {totals:?}, excused {}", sum(|report| report.counts.excused));
    if count >= SEEDS {
        let missing: Vec<_> = totals.iter().filter(|(_, times)| *times < 20).collect();
        assert!(missing.is_empty(), "worlds that provoke too little: {missing:?}");
    }
}

/// The same with retained messages and events of all QoS, for clients that stay at their brokers.
#[test]
fn what_is_retained_or_owed_outlives_disks() {
    let (first, count) =
        (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").map_or(FIXED, |n| n.min(FIXED)));
    let reports = play(first, count, |seed| run_fixed(seed, None), |report| !report.violations.is_empty());
    let all = reports.iter().flat_map(|report| report.violations.iter().map(|broken| (report.seed, broken)));
    let all: Vec<String> = all.map(|(seed, broken)| format!("seed {seed}: {broken}")).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    let sum = |part: fn(&overlay::Report) -> u64| reports.iter().map(part).sum::<u64>();
    let totals = [
        ("due", sum(|report| report.counts.due)),
        ("crashes", sum(|report| report.crashes)),
        ("resumed", sum(|report| report.counts.resumed)),
        ("clearing", sum(|report| report.counts.clearing)),
        ("survived", sum(|report| report.counts.survived)),
    ];
    println!("{count} seeds from {first}: {totals:?}");
    let missing: Vec<_> = totals.iter().filter(|(_, times)| count >= FIXED && *times < 20).collect();
    assert!(missing.is_empty(), "worlds that provoke too little: {missing:?}");
}

#[test]
fn a_seed_is_all_there_is_to_a_run() {
    for seed in [1, 2, 3] {
        let (one, other) = (run_replicated(seed), run_replicated(seed));
        assert_eq!((one.digest, one.counts), (other.digest, other.counts), "seed {seed}");
    }
}

/// Plays one seed again and tells the last of its story, of as many entries as `WHIMBREL_TRACE`
/// says; with `WHIMBREL_FIXED`, of a world with retained messages.
#[test]
fn replay() {
    let kept = number("WHIMBREL_TRACE").map_or(KEPT, |kept| kept as usize);
    let seed = number("WHIMBREL_SEED").unwrap_or(1);
    if number("WHIMBREL_FIXED").is_some() {
        let report = run_fixed(seed, Some(kept.max(1)));
        println!("{report}");
        assert!(report.violations.is_empty(), "seed {seed} breaks {} rules", report.violations.len());
        return;
    }
    let report = replay_replicated(seed, kept.max(1));
    println!("{report}");
    assert!(report.violations.is_empty(), "seed {} breaks {} rules", report.seed, report.violations.len());
}
