//! Crashes at every point: what was reported durable is there, in order; nothing is invented; a
//! torn end is no damage.

use std::collections::BTreeMap;

use crate::common::{Model, SMALL, Work, fates, look};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{Log, OpenError, Stepped, Ticket};

/// Opens it, possibly after crashes in the middle of opening.
fn reopen(mut twin: Twin, rng: &mut fastrand::Rng, place: &str) -> Twin {
    for _ in 0..rng.u32(0..3) {
        twin.fail_from(rng.u64(0..8));
        match Log::open(&twin, SMALL, 7) {
            Ok(_) | Err(OpenError::Storage(_)) => {}
            Err(error) => panic!("{place}: {error}"),
        }
        twin = twin.crashed(fates(rng));
    }
    twin
}

/// One life: opens, compares, works until the disk fails. Returns the disk after the crash and what
/// must be, and may be, on it.
fn live(twin: &Twin, base: &BTreeMap<u64, Model>, (steps, crash_at): (u32, u64), rng: &mut fastrand::Rng) -> Life {
    let (log, report) = Log::open(twin, SMALL, 7).unwrap();
    assert_eq!(report.damages, []);
    let mut work = Work::new(Stepped::new(log, twin));
    twin.fail_from(twin.operations() + crash_at);
    for _ in 0..steps {
        work.step(rng);
        if work.journal.log.poisoned().is_some() {
            break;
        }
    }
    let (sure, most) = (work.journal.log.committed(), work.journal.log.accepted());
    let possible = (sure.0..=most.0).map(|ticket| work.model(base, Ticket(ticket))).collect();
    Life { twin: twin.crashed(fates(rng)), possible, operations: twin.operations() }
}

struct Life {
    twin: Twin,
    possible: Vec<BTreeMap<u64, Model>>,
    operations: u64,
}

fn judge(life: Life, rng: &mut fastrand::Rng, place: &str) -> (Twin, BTreeMap<u64, Model>) {
    let twin = reopen(life.twin, rng, place);
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(report.damages, [], "{place}");
    let found = look(&Stepped::new(log, &twin));
    if !life.possible.contains(&found) {
        let brief = |models: &BTreeMap<u64, Model>| {
            let one = |(id, m): (&u64, &Model)| {
                let ticks: Vec<u64> = m.records.keys().copied().collect();
                format!("{id}: last {} chopped {} reserved {} ticks {ticks:?}", m.last, m.chopped, m.reserved)
            };
            models.iter().map(one).collect::<Vec<_>>().join("\n")
        };
        let possible: Vec<String> = life.possible.iter().map(brief).collect();
        panic!("{place}: found\n{}\nwhich is none of\n{}", brief(&found), possible.join("\nor\n"));
    }
    (twin, found)
}

#[test]
fn a_crash_at_each_operation_of_a_workload_loses_nothing_that_was_committed() {
    for seed in 0..4 {
        let run = |crash_at| {
            let mut rng = fastrand::Rng::with_seed(seed);
            live(&Twin::new(), &BTreeMap::new(), (1500, crash_at), &mut rng)
        };
        let operations = run(u64::MAX / 2).operations;
        assert!(operations > 200, "the workload writes");
        for crash_at in 0..operations {
            let mut rng = fastrand::Rng::with_seed(seed * 1_000_000 + crash_at);
            judge(run(crash_at), &mut rng, &format!("seed {seed}, crash at {crash_at}"));
        }
    }
}

#[test]
fn many_lives_with_crashes_also_while_opening_lose_nothing() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut twin, mut base) = (Twin::new(), BTreeMap::new());
        for life in 0..6 {
            let crash_at = rng.u64(0..400);
            let lived = live(&twin, &base, (3000, crash_at), &mut rng);
            (twin, base) = judge(lived, &mut rng, &format!("seed {seed}, life {life}"));
        }
    }
}

#[test]
fn a_failed_sync_poisons_and_what_only_readers_saw_is_made_durable_before_it_counts() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let twin = Twin::new();
        let (log, _) = Log::open(&twin, SMALL, 7).unwrap();
        let mut work = Work::new(Stepped::new(log, &twin));
        twin.fail_sync(twin.operations() + rng.u64(0..200));
        for _ in 0..2000 {
            work.step(&mut rng);
        }
        let Some(fault) = work.journal.log.poisoned().cloned() else { continue };
        let sure = work.journal.log.committed();
        let (done, refused) = (work.done.len(), work.journal.log.open_stream(crate::common::id(99)).unwrap_err());
        assert_eq!(refused, whimbrel_journal::Refused::Poisoned(fault));
        work.step(&mut rng);
        assert_eq!(work.done.len(), done, "nothing more is accepted");
        // The program starts again, and the system still has the pages that never reached the disk.
        let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
        assert_eq!(report.damages, []);
        let mut again = Work::new(Stepped::new(log, &twin));
        let base = look(&again.journal);
        let possible = |ticket| work.model(&BTreeMap::new(), Ticket(ticket)) == base;
        assert!((sure.0..=work.journal.log.accepted().0).any(possible), "seed {seed}");
        for _ in 0..300 {
            again.step(&mut rng);
        }
        // Then the power fails.
        let possible: Vec<_> = (again.journal.log.committed().0..=again.journal.log.accepted().0)
            .map(|ticket| again.model(&base, Ticket(ticket)))
            .collect();
        let life = Life { twin: twin.crashed(|| Fate::Old), possible, operations: 0 };
        judge(life, &mut rng, &format!("seed {seed}"));
    }
}
