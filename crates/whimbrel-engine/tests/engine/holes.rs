//! Replicas that lack records: what another one has is found; what none has refuses the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::TwinEngine;
use whimbrel_engine::{Acknowledgement, RecordNumber, StartError, Subject};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, Stepped};

use crate::common::{Model, SMALL, Work, look};
use crate::lives::{Start, started};

/// A stream with what some work has committed.
fn worked(start: &Start, seed: u64) -> (Arc<TwinEngine>, BTreeMap<u64, Model>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let engine = Arc::new(TwinEngine::new());
    let (storage, _) =
        start(Arc::new(Twin::new()), Arc::clone(&engine), 1, Acknowledgement::Engine).expect("the broker starts");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    for _ in 0..1_500 {
        work.step(&mut rng);
        if rng.u32(0..40) == 0 {
            storage.cut().expect("it is answered");
        }
    }
    work.journal.settle();
    let model = work.model(&BTreeMap::new(), work.journal.log.committed());
    (engine, model)
}

fn started_again(start: &Start, engine: &Arc<TwinEngine>) -> Result<(BTreeMap<u64, Model>, u64), String> {
    let (storage, report) = start(Arc::new(Twin::new()), Arc::clone(engine), 2, Acknowledgement::Engine)
        .map_err(|error| error.to_string())?;
    let (log, opened) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    if !opened.damages.is_empty() {
        return Err(format!("damaged: {:?}", opened.damages));
    }
    Ok((look(&Stepped::new(log, &storage)), report.found_elsewhere))
}

/// One replica lacks records; tells what is wrong.
pub fn one_replica_lacks_some(start: &Start, seed: u64) -> Result<(), String> {
    let (engine, model) = worked(start, seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let commits = engine.records().into_iter().filter(|(_, subject)| *subject != Subject::Epoch);
    let hidden: Vec<RecordNumber> = commits.map(|(number, _)| number).filter(|_| rng.u32(0..10) == 0).collect();
    let lacking = hidden.len();
    engine.hide(hidden);
    let (found, elsewhere) = started_again(start, &engine)?;
    if found != model {
        return Err("what was committed is not there".into());
    }
    if lacking > 5 && elsewhere == 0 {
        return Err("nothing was asked for elsewhere".into());
    }
    Ok(())
}

#[test]
fn a_record_that_one_replica_lacks_is_had_from_another_one() {
    for seed in 0..50 {
        assert_eq!(one_replica_lacks_some(&started, seed), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_record_that_no_replica_has_refuses_the_start_or_is_of_no_use() {
    let mut refused = 0;
    for seed in 0..20 {
        let (engine, model) = worked(&started, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let commits = engine.records().into_iter().filter(|(_, subject)| *subject != Subject::Epoch);
        let numbers: Vec<RecordNumber> = commits.map(|(number, _)| number).collect();
        engine.lose(numbers[rng.usize(..numbers.len())]);
        match started_again(&started, &engine) {
            Ok((found, _)) => assert_eq!(found, model, "seed {seed}"),
            Err(error) => {
                refused += 1;
                assert!(error.ends_with("is missing at all replicas"), "seed {seed}: {error}");
            }
        }
    }
    assert!(refused > 5, "{refused} of 20 starts were refused");
}

#[test]
fn the_last_record_of_the_stream_must_be_there() {
    let (engine, _) = worked(&started, 3);
    let (last, _) = *engine.records().last().expect("there are some");
    engine.lose(last);
    let again = started(Arc::new(Twin::new()), engine, 2, Acknowledgement::Both);
    assert_eq!(again.map(|_| ()), Err(StartError::Missing { number: last }));
}
