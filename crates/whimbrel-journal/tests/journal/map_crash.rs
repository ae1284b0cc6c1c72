//! Crashes of a map at every point: what is restored is what a prefix of all submissions has made,
//! with everything that was committed.

use crate::common::mapping::{HASTY, Held, Mapping, Shape, restore, streams};
use crate::common::{SMALL, fates, open};
use proptest::prelude::*;
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, Options, Stepped};

/// What was done during lives, so that a test can say that it has tested something.
#[derive(Debug, Default)]
struct Seen {
    operations: u64,
    copied: u64,
    cleaned: u64,
    moved: u64,
    segments: u64,
    full: u64,
}

/// One life: opens, works until the disk fails or the steps are done; returns the disk after the
/// crash and what may be on it.
fn live(
    (twin, options): (&Twin, Options),
    (shape, steps, crash_at): (Shape, u32, u64),
    rng: &mut fastrand::Rng,
    seen: &mut Seen,
) -> (Twin, Vec<Held>) {
    let (log, report) = Log::open(twin, options, 7).unwrap();
    assert_eq!(report.damages, []);
    let before = twin.operations();
    let mut work = Mapping::new(Stepped::new(log, twin), shape).expect("the journal takes streams");
    twin.fail_from(before + crash_at);
    for _ in 0..steps {
        work.step(rng);
        if work.journal.log.poisoned().is_some() {
            break;
        }
    }
    let (info, counters) = (work.map.info(), work.journal.log.counters());
    seen.operations = twin.operations() - before;
    seen.copied += info.copied;
    seen.cleaned += info.cleaned;
    seen.moved += counters.moved_bytes;
    seen.segments += counters.segments;
    seen.full += work.refused.get("full").copied().unwrap_or(0);
    (twin.crashed(fates(rng)), work.possible())
}

/// Opens what is left after a crash and says what is in it.
fn judge((twin, possible): &(Twin, Vec<Held>), options: Options, place: &str) {
    let (log, report) = Log::open(twin, options, 7).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(report.damages, [], "{place}");
    let mut journal = Stepped::new(log, twin);
    let [stream, other] = streams(&mut journal).expect("the journal takes streams");
    let values = restore(&journal, stream, 0).1;
    let found = Held { values, other: journal.log.info(other).map_or(0, |info| info.last.max(info.chopped)) };
    if !possible.contains(&found) {
        let brief = |held: &Held| {
            let values = held.values.iter().map(|(key, value)| (key[0], value.len(), value.first().copied()));
            format!("{} {:?}", held.other, values.collect::<Vec<_>>())
        };
        let possible: Vec<_> = possible.iter().map(brief).collect();
        panic!("{place}: found\n{}\nwhich is none of\n{}", brief(&found), possible.join("\n"));
    }
}

#[test]
fn a_crash_at_each_operation_restores_a_prefix_of_the_submissions() {
    let mut seen = Seen::default();
    for seed in 0..3 {
        let run = |crash_at, seen: &mut Seen| {
            let mut rng = fastrand::Rng::with_seed(seed);
            live((&Twin::new(), SMALL), (HASTY, 1800, crash_at), &mut rng, seen)
        };
        run(u64::MAX / 2, &mut seen);
        let operations = seen.operations;
        assert!(operations > 300, "the workload writes");
        for crash_at in (0..operations).step_by(2) {
            let left = run(crash_at + seed % 2, &mut seen);
            judge(&left, SMALL, &format!("seed {seed}, crash at {crash_at}"));
        }
    }
    assert!(seen.copied > 100_000 && seen.cleaned > 2 * seen.copied, "{seen:?}");
}

#[test]
fn many_lives_on_a_journal_that_relocates_and_fills_up_restore_what_was_committed() {
    let mut seen = Seen::default();
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let segments = [6, 8, 16][seed as usize % 3];
        let options = Options { max_bytes: segments * u64::from(SMALL.segment_bytes), ..SMALL };
        let shape = Shape {
            keys: [20, 80, 300][rng.usize(0..3)],
            clean_min: [3000, 30_000][rng.usize(0..2)],
            others: [20, 50, 85][rng.usize(0..3)],
            lag: [200, 3000, 20_000][rng.usize(0..3)],
        };
        let mut twin = Twin::new();
        for life in 0..6 {
            let crash_at = rng.u64(0..1500);
            let left = live((&twin, options), (shape, 5000, crash_at), &mut rng, &mut seen);
            judge(&left, options, &format!("seed {seed}, life {life}"));
            twin = left.0;
        }
    }
    assert!(seen.full > 1000 && seen.segments > 3000, "{seen:?}");
    assert!(seen.copied > 1_000_000 && seen.moved > 1_000_000 && seen.cleaned > seen.copied, "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Shrinks to few keys, few steps and an early crash.
    #[test]
    fn any_crash_restores_a_prefix(seed in 0u64..10_000, keys in 4u64..300, steps in 1u32..4000, crash_at in 0u64..900) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let left = live((&Twin::new(), SMALL), (Shape { keys, ..HASTY }, steps, crash_at), &mut rng, &mut Seen::default());
        judge(&left, SMALL, "a crash");
    }
}

#[test]
fn the_map_is_the_same_before_and_after_a_proper_end() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let twin = Twin::new();
        let mut work = Mapping::new(open(&twin), HASTY).unwrap();
        for _ in 0..5000 {
            work.step(&mut rng);
        }
        work.journal.settle();
        let before = work.map.info();
        let (map, values) = restore(&open(&twin), work.map.stream(), 0);
        assert_eq!(values, work.held.values);
        let after = map.info();
        assert_eq!((before.keys, before.live), (after.keys, after.live));
        assert!(after.held >= before.held, "what is cleaned and not chopped yet is there again");
    }
}
