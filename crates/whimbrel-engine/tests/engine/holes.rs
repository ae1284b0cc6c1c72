//! Replicas that lack records: what another one has is found; what none has refuses the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::{RequestFate, TwinEngine};
use whimbrel_engine::{
    Acknowledgement, Engine, EngineError, RecordNumber, Replicated, StartOptions, StreamRecord, StreamStartError,
    Subject,
};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, Stepped, Storage};

use crate::common::{Model, SMALL, Work, look};
use crate::homes::{MarkTwin, Place, RunningStart, started};

/// A stream with what some work has committed.
fn worked(start: &RunningStart, seed: u64) -> (Arc<TwinEngine>, BTreeMap<u64, Model>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let engine = Arc::new(TwinEngine::new());
    let (storage, _) = start(Place::new(&engine, 1, Acknowledgement::Engine)).expect("the broker starts");
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

fn started_again(start: &RunningStart, engine: &Arc<TwinEngine>) -> Result<(BTreeMap<u64, Model>, u64), String> {
    let (storage, report) = start(Place::new(engine, 2, Acknowledgement::Engine)).map_err(|error| error.to_string())?;
    let (log, opened) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    if !opened.damages.is_empty() {
        return Err(format!("damaged: {:?}", opened.damages));
    }
    Ok((look(&Stepped::new(log, &storage)), report.found_elsewhere))
}

/// One replica lacks records; tells what is wrong.
pub fn one_replica_lacks_some(start: &RunningStart, seed: u64) -> Result<(), String> {
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
    let again = started(Place::new(&engine, 2, Acknowledgement::Both));
    assert_eq!(again.map(|_| ()), Err(StreamStartError::Missing { number: last }));
}

/// The last commit before two starts, of which the first one did nothing; tells what is wrong.
pub fn the_end_is_hidden(start: &RunningStart) -> Result<(), String> {
    let (engine, model) = worked(start, 5);
    let (last, _) = *engine.records().last().expect("there are some");
    started_again(start, &engine)?;
    engine.hide([last, last + 1]);
    let (found, elsewhere) = started_again(start, &engine)?;
    if found == model && elsewhere > 0 { Ok(()) } else { Err("the last commit is not there".into()) }
}

#[test]
fn the_last_commit_is_found_behind_the_epochs_of_later_starts() {
    assert_eq!(the_end_is_hidden(&started), Ok(()));
}

#[test]
fn an_epoch_is_greater_than_all_before_although_a_replica_lacks_some() {
    let (engine, _) = worked(&started, 6);
    let start = || started(Place::new(&engine, 2, Acknowledgement::Engine)).expect("started");
    let epochs = |engine: &TwinEngine| -> Vec<RecordNumber> {
        let all = engine.records().into_iter().filter(|(_, subject)| *subject == Subject::Epoch);
        all.map(|(number, _)| number).collect()
    };
    assert_eq!(start().1.epoch, 4);
    assert_eq!(start().1.epoch, 6);
    // The one that tells the newest epoch knows the first only; the one that is read has all.
    engine.hide(epochs(&engine)[1..].to_vec());
    let engine = Apart(&engine);
    let options = Place::new(&Arc::default(), 2, Acknowledgement::Engine).options;
    let begun = Replicated::start(Arc::new(Twin::new()), engine, Arc::new(MarkTwin::default()), options);
    let (_, report) = begun.expect("started");
    assert_eq!(report.epoch, 8);
}

/// An engine whose records are read at another replica than the one that tells epochs.
struct Apart<'a>(&'a TwinEngine);

impl Engine for Apart<'_> {
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        self.0.append(subject, last, record, meanwhile)
    }

    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
        self.0.take(newest, record)
    }

    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
        self.0.epoch()
    }

    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        let at = self.0.records().into_iter().map(|(number, _)| number);
        match at.filter(|number| *number >= from).min() {
            Some(number) => self.0.find(number),
            None => Ok(None),
        }
    }

    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.0.find(number)
    }

    fn record_bytes_max(&self) -> usize {
        self.0.record_bytes_max()
    }

    fn last(&self) -> Result<RecordNumber, EngineError> {
        self.0.last()
    }

    fn cut(&self, slot: u32, below: RecordNumber) -> Result<bool, EngineError> {
        self.0.cut(slot, below)
    }
}

#[test]
fn a_refused_start_leaves_the_disk_as_it_was() {
    let (engine, _) = worked(&started, 7);
    let place = Place::new(&engine, 2, Acknowledgement::Both);
    started(place.again(2)).expect("started");
    let contents = |disk: &Twin| -> Vec<Option<Vec<u8>>> {
        let slots = disk.slots().expect("they are listed");
        slots.into_iter().map(|(slot, _)| disk.contents(slot)).collect()
    };
    let before = contents(&place.disk);
    let commits = engine.records().into_iter().filter(|(_, subject)| *subject != Subject::Epoch);
    let (last, _) = commits.max().expect("there are some");
    // Without a mark all records are read.
    let discards = |engine: &Arc<TwinEngine>| Place {
        mark: Arc::default(),
        engine: Arc::clone(engine),
        options: StartOptions { discards_local: true, ..place.options },
        ..place.again(3)
    };
    engine.lose(last);
    let again = started(discards(&engine));
    assert_eq!(again.map(|_| ()), Err(StreamStartError::Missing { number: last }));
    assert!(!before.is_empty() && before == contents(&place.disk));
    // Nor does an empty stream remove a journal: that of another broker, or one that was made anew.
    let empty = started(discards(&Arc::default()));
    assert_eq!(empty.map(|_| ()), Err(StreamStartError::Empty));
    assert_eq!(before, contents(&place.disk));
}

#[test]
fn what_is_of_no_use_is_removed_after_a_restart_too() {
    let mut rng = fastrand::Rng::with_seed(8);
    let engine = Arc::new(TwinEngine::new());
    let (storage, _) = started(Place::new(&engine, 1, Acknowledgement::Engine)).expect("started");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    (0..20_000).for_each(|_| work.step(&mut rng));
    let before = engine.records().len();
    let (storage, _) = started(Place::new(&engine, 2, Acknowledgement::Engine)).expect("started");
    while storage.cut().expect("it is answered") {}
    assert!(before > 2 * engine.records().len(), "{before} records, and then {}", engine.records().len());
    assert!(started_again(&started, &engine).is_ok());
}

#[test]
fn a_stream_that_was_made_anew_ends_its_owner() {
    let (engine, _) = worked(&started, 9);
    let (storage, _) = started(Place::new(&engine, 2, Acknowledgement::Engine)).expect("started");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    engine.make_anew();
    work.append(9, 1, 10);
    work.journal.settle();
    let fault = work.journal.log.poisoned().expect("its next commit is refused").to_string();
    assert!(fault.contains("ends before records that it had acknowledged"), "{fault}");
}

#[test]
fn a_broker_that_stops_does_not_wait_for_its_engine() {
    let (engine, _) = worked(&started, 10);
    let (storage, _) = started(Place::new(&engine, 2, Acknowledgement::Engine)).expect("started");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    engine.set_fates(|| RequestFate::RequestLost);
    storage.stop();
    work.append(9, 1, 10);
    work.journal.settle();
    assert!(work.journal.log.poisoned().is_some());
}
