//! Starts that are refused, what they say, and what the directory is then; and marks.

use std::sync::Arc;

use whimbrel_engine::twin::TwinEngine;
use whimbrel_engine::{Acknowledgement, DirectoryMark, StartOptions, StreamStartError, begin_without_engine};
use whimbrel_journal::twin::Fate;
use whimbrel_journal::{Log, Stepped};

use crate::common::{SMALL, Work, look};
use crate::homes::{MarkTwin, Place, RunningStart, of_stream_alone, started};

/// A place where some work was done with its engine.
fn worked(acknowledgement: Acknowledgement) -> Place {
    let place = Place::new(&Arc::default(), 1, acknowledgement);
    let (storage, _) = started(place.again(1)).expect("it starts");
    work_a_little(&storage, 1);
    place
}

fn work_a_little(storage: &impl whimbrel_journal::Storage, seed: u64) {
    let (log, _) = Log::open(storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, storage));
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..500).for_each(|_| work.step(&mut rng));
    work.journal.settle();
}

#[test]
fn a_directory_without_its_mark_is_not_believed() {
    let place = Place { mark: Arc::default(), ..worked(Acknowledgement::Both).again(2) };
    assert_eq!(started(place.again(2)).map(|_| ()), Err(StreamStartError::Unmarked));
    let options = StartOptions { discards_local: true, ..place.options };
    let (_, report) = started(Place { options, ..place.again(3) }).expect("it starts");
    assert!(report.is_made_anew && report.discarded > 0, "{report:?}");
    // A mark that cannot be read is none.
    let place = worked(Acknowledgement::Both);
    place.mark.store(b"a later version").expect("it is stored");
    assert_eq!(started(place).map(|_| ()), Err(StreamStartError::Unmarked));
}

#[test]
fn a_stream_that_was_made_anew_or_is_another_one_is_refused() {
    let place = worked(Acknowledgement::Both);
    let other: Arc<TwinEngine> = Arc::default();
    let remade = |place: &Place, owner| match started(place.again(owner)).map(|_| ()) {
        Err(StreamStartError::Remade { marked, last }) => (marked, last),
        other => panic!("{other:?}"),
    };
    let place = Place { engine: Arc::clone(&other), ..place };
    assert_eq!(remade(&place, 2).1, 0);
    // It has grown since, under another owner.
    let (storage, _) = started(Place::new(&other, 9, Acknowledgement::Engine)).expect("it starts");
    work_a_little(&storage, 3);
    assert!(remade(&place, 3).1 > 20);
    let options = StartOptions { discards_local: true, ..place.options };
    remade(&Place { options, ..place }, 4);
}

#[test]
fn a_journal_is_appended_to_an_empty_stream_if_that_is_wanted() {
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Both);
    work_a_little(&place.disk, 5);
    let seen = look(&Stepped::new(Log::open(&place.disk, SMALL, 7).expect("it opens").0, &place.disk));
    assert_eq!(started(place.again(1)).map(|_| ()), Err(StreamStartError::Empty));
    let options = StartOptions { imports: true, ..place.options };
    let (_, report) = started(Place { options, ..place.again(2) }).expect("it starts");
    assert!(report.pushed > 1 && !report.is_made_anew, "{report:?}");
    assert_eq!(of_stream_alone(&place.engine), Ok(seen));
}

#[test]
fn what_was_logged_without_an_engine_is_appended_later() {
    for acknowledgement in [Acknowledgement::Both, Acknowledgement::Local] {
        let place = worked(acknowledgement).crashed(2, || Fate::Old);
        begin_without_engine(&place.mark).expect("the files are whole");
        work_a_little(&place.disk, 8);
        let seen = look(&Stepped::new(Log::open(&place.disk, SMALL, 7).expect("it opens").0, &place.disk));
        let (_, report) = started(place.crashed(3, || Fate::Old)).expect("it starts");
        assert!(report.pushed > 0, "{report:?}");
        assert_eq!(of_stream_alone(&place.engine), Ok(seen));
    }
}

#[test]
fn what_the_engine_alone_had_refuses_a_start_after_one_without_it() {
    let place = worked(Acknowledgement::Engine).crashed(2, || Fate::Old);
    begin_without_engine(&place.mark).expect("the files are whole, as far as the mark can tell");
    work_a_little(&place.disk, 8);
    let before = of_stream_alone(&place.engine);
    let again = started(place.crashed(3, || Fate::Old)).map(|_| ());
    assert!(matches!(again, Err(StreamStartError::Diverged { commits: 1.. })), "{again:?}");
    let options = StartOptions { discards_local: true, ..place.options };
    started(Place { options, ..place.crashed(4, || Fate::Old) }).expect("it starts");
    assert_eq!(of_stream_alone(&place.engine), before);
}

#[test]
fn files_that_are_half_made_are_not_opened_without_an_engine() {
    let place = worked(Acknowledgement::Both);
    let fresh = Place::new(&place.engine, 2, Acknowledgement::Both);
    fresh.disk.fail_from(2);
    assert!(matches!(started(fresh.again(2)).map(|_| ()), Err(StreamStartError::Disk(_))));
    let fresh = fresh.crashed(3, || Fate::Old);
    let refused = begin_without_engine(&fresh.mark).expect_err("it is refused").to_string();
    assert!(refused.contains("the directory is not whole"), "{refused}");
    let (_, report) = started(fresh).expect("it starts");
    assert!(report.is_made_anew);
    begin_without_engine(&MarkTwin::default()).expect("it has no engine");
}

/// The disk fails while a mark is stored and files are synced; tells what is wrong.
pub fn a_disk_fails_at_a_checkpoint(start: &RunningStart) -> Result<(), String> {
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Engine);
    let (storage, _) = start(place.again(1)).map_err(|error| error.to_string())?;
    let (log, _) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    let mut work = Work::new(Stepped::new(log, &storage));
    let mut append = || {
        work.append(1, 1, 900);
        work.journal.settle();
    };
    append();
    storage.checkpoint().map_err(|error| error.to_string())?;
    append();
    place.disk.fail_from(place.disk.operations());
    if storage.checkpoint().is_ok() {
        return Err("the files were not synced".into());
    }
    let seen = of_stream_alone(&place.engine)?;
    let (storage, _) = start(place.crashed(2, || Fate::Old)).map_err(|error| error.to_string())?;
    let (log, _) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    if look(&Stepped::new(log, &storage)) == seen { Ok(()) } else { Err("the files lack what was committed".into()) }
}

#[test]
fn a_mark_tells_of_files_that_are_synced_only() {
    assert_eq!(a_disk_fails_at_a_checkpoint(&started), Ok(()));
}
