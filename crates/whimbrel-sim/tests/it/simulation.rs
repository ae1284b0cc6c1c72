//! Whole worlds drawn from seeds: no rule is broken, and a seed is all there is to a run.
//!
//! `WHIMBREL_SEEDS` sets how many seeds are played (200), `WHIMBREL_SEED` the first (0) or the one
//! to replay.

use std::collections::BTreeMap;

use whimbrel_mqtt::Stats;
use whimbrel_sim::simulation::{self, run};
use whimbrel_sim::trace::KEPT;

use crate::seeds::{number, play};

/// Seeds that are played unless told otherwise.
const SEEDS: u64 = 200;

/// What the worlds are there to provoke, and how often the broker says it happened.
fn provoked(stats: &Stats) -> [(&'static str, u64); 23] {
    let core = &stats.core;
    [
        ("takeovers", core.takeovers),
        ("wills", core.wills_published),
        ("expired sessions", core.sessions_expired),
        ("repeated deliveries", core.deliveries_repeated),
        ("repeated publishes", core.publishes_repeated),
        ("shared work that moved", core.shared_moved),
        ("clients cut off for slowness", core.kicked_slow),
        ("best-effort drops", core.dropped_slow),
        ("full queues", core.dropped_queue_full),
        ("expired messages", core.dropped_expired),
        ("messages too large for a client", core.dropped_too_large),
        ("places to begin", core.resumed),
        ("refused places", core.starts_refused),
        ("deliveries out of the cache", core.deliveries_recovered),
        ("overwritten gaps", core.gaps_overwritten),
        ("gaps of slow clients", core.gaps_slow),
        ("falls behind", core.fell_behind),
        ("keep-alive timeouts", stats.keep_alive_timeouts),
        ("connect timeouts", stats.connect_timeouts),
        ("malformed packets", stats.ended.count(0x81)),
        ("protocol errors", stats.ended.count(0x82)),
        ("refused connections", stats.refused.total()),
        ("connections lost", stats.connections_lost),
    ]
}

#[test]
fn no_rule_is_broken_in_any_world() {
    let (first, count) = (number("WHIMBREL_SEED").unwrap_or(0), number("WHIMBREL_SEEDS").unwrap_or(SEEDS));
    let reports = play(first, count, run, |report| !report.violations.is_empty());
    let broken: Vec<String> = reports
        .iter()
        .flat_map(|report| report.violations.iter().map(|violation| format!("seed {}: {violation}", report.seed)))
        .collect();
    if let Some(failed) = reports.iter().find(|report| !report.violations.is_empty()) {
        panic!("{failed}\n\nall that was found:\n{}", broken.join("\n"));
    }
    let mut total = BTreeMap::new();
    for report in &reports {
        for (what, times) in provoked(&report.stats) {
            *total.entry(what).or_insert(0) += times;
        }
    }
    let cut_short = reports.iter().filter(|report| report.cut_short).count();
    let (published, delivered) = reports.iter().fold((0, 0), |(p, d), r| (p + r.published, d + r.delivered));
    println!(
        "{count} seeds from {first}: {published} messages published, {delivered} delivered, {cut_short} cut short, {total:?}"
    );
    assert!(cut_short as u64 <= count.div_ceil(8), "{cut_short} of {count} worlds could not be judged to their end");
    if count >= SEEDS {
        let missing: Vec<_> = total.iter().filter(|(_, times)| **times < 20).collect();
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

/// Plays one seed again and tells the last of its story, of as many entries as `WHIMBREL_TRACE`
/// says.
#[test]
fn replay() {
    let kept = number("WHIMBREL_TRACE").map_or(KEPT, |kept| kept as usize);
    let report = simulation::replay(number("WHIMBREL_SEED").unwrap_or(1), kept.max(1));
    println!("{report}");
    assert!(report.violations.is_empty(), "seed {} breaks {} rules", report.seed, report.violations.len());
}
