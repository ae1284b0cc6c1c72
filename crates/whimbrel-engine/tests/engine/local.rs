//! The acknowledgement of the disk: what waits until it is sent, and what a start gives the stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::{RequestFate, TwinEngine};
use whimbrel_engine::{Acknowledgement, Behind, QUEUE_BYTES_MAX, StreamEnd, StreamStartError, Subject};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{Log, SECTOR, Stepped, Storage};

use crate::common::{Model, SMALL, Work, look};
use crate::homes::{Place, RunningStart, of_stream_alone, of_stream_alone_by, started};

/// A disk with what some work has acknowledged there, and nothing of it in the stream.
fn worked_locally(start: &RunningStart, seed: u64, steps: u32) -> Result<(Place, Vec<BTreeMap<u64, Model>>), String> {
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Local);
    let (storage, _) = start(place.again(1)).map_err(|error| error.to_string())?;
    let (log, _) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    let mut work = Work::new(Stepped::new(log, &storage));
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..steps).for_each(|_| work.step(&mut rng));
    work.journal.settle();
    let upto = work.journal.log.committed();
    let possible = (0..=upto.0).map(|ticket| work.model(&BTreeMap::new(), whimbrel_journal::Ticket(ticket)));
    Ok((place, possible.collect()))
}

/// A place whose start ends after so many requests, and whether it did not end.
fn ended_after(start: &RunningStart, place: &Place, requests: u64) -> (Place, bool) {
    let place = Place { engine: Arc::new(place.engine.copied()), ..place.crashed(2, || Fate::Old) };
    let mut answered = 0;
    place.engine.set_fates(move || {
        answered += 1;
        if answered > requests { RequestFate::EndBefore } else { RequestFate::Answered }
    });
    let has_begun = start(place.again(2)).is_ok();
    place.engine.heal();
    (place, has_begun)
}

/// Most requests of a start that are tried.
const REQUESTS_MAX: u64 = 60;

/// A start ends after each of the records that it appends; tells what is wrong with the stream.
pub fn a_start_ends_at_each_record(start: &RunningStart) -> Result<(), String> {
    let (place, possible) = worked_locally(start, 4, 700)?;
    for requests in 0..REQUESTS_MAX {
        let (place, has_begun) = ended_after(start, &place, requests);
        let found = of_stream_alone_by(start, &place.engine)?;
        if !possible.contains(&found) {
            return Err(format!("after {requests} requests the stream has what no disk could have"));
        }
        if has_begun {
            return if Some(&found) == possible.last() { Ok(()) } else { Err("something is missing".into()) };
        }
    }
    Err("a start takes more requests than are tried".into())
}

#[test]
fn the_stream_is_at_each_moment_what_a_crash_could_have_left() {
    assert_eq!(a_start_ends_at_each_record(&started), Ok(()));
}

#[test]
fn a_start_that_ended_is_tried_again() {
    let (place, possible) = worked_locally(&started, 4, 700).expect("it works");
    for requests in 0..REQUESTS_MAX {
        let (place, has_begun) = ended_after(&started, &place, requests);
        started(place.crashed(3, || Fate::Old)).expect("it starts");
        assert_eq!(of_stream_alone(&place.engine).as_ref(), Ok(possible.last().expect("there is one")));
        if has_begun {
            return;
        }
    }
    panic!("a start takes more requests than are tried");
}

/// A broker with a stream in between; tells what is wrong.
pub fn another_owner_was_there(start: &RunningStart) -> Result<(), String> {
    let (place, possible) = worked_locally(start, 6, 600)?;
    let (storage, _) = start(Place::new(&place.engine, 5, Acknowledgement::Both)).map_err(|error| error.to_string())?;
    let (log, _) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    let mut work = Work::new(Stepped::new(log, &storage));
    work.append(1, 1, 100);
    work.journal.settle();
    let of_other = look(&work.journal);
    let commits = match start(place.crashed(6, || Fate::Old)) {
        Err(StreamStartError::Diverged { commits }) => commits,
        other => return Err(format!("the start is not refused: {:?}", other.map(|(_, report)| report))),
    };
    if commits == 0 || commits > possible.len() as u64 {
        return Err(format!("{commits} commits are told of {}", possible.len()));
    }
    let mut place = place.crashed(7, || Fate::Old);
    place.options.discards_local = true;
    let (storage, report) = start(place).map_err(|error| error.to_string())?;
    let (log, _) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    if look(&Stepped::new(log, &storage)) != of_other || report.discarded != commits {
        return Err(format!("the stream is not what is there: {report:?}"));
    }
    Ok(())
}

#[test]
fn what_cannot_be_appended_any_more_refuses_the_start() {
    assert_eq!(another_owner_was_there(&started), Ok(()));
}

#[test]
fn a_start_elsewhere_that_commits_nothing_refuses_nothing() {
    let (place, possible) = worked_locally(&started, 7, 600).expect("it works");
    started(Place::new(&place.engine, 5, Acknowledgement::Both)).expect("it starts");
    let (_, report) = started(place.crashed(6, || Fate::Old)).expect("it starts");
    assert!(report.pushed > 0 && report.epoch == 7, "{report:?}");
    assert_eq!(of_stream_alone(&place.engine).as_ref(), Ok(possible.last().expect("there is one")));
}

#[test]
fn commits_are_sent_one_by_one_and_then_a_start_reads_none() {
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Local);
    let (storage, _) = started(place.again(1)).expect("it starts");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    let mut rng = fastrand::Rng::with_seed(3);
    (0..3_000).for_each(|_| work.step(&mut rng));
    work.journal.settle();
    let commits = storage.standing().behind.commits;
    assert!(commits > 100 && storage.standing().last == 1, "{:?}", storage.standing());
    for behind in (0..commits).rev() {
        assert!(storage.wait_for_commits());
        assert_eq!(storage.send(), Ok(true));
        assert_eq!(storage.standing().behind.commits, behind);
    }
    assert_eq!((storage.send(), storage.standing().behind), (Ok(false), Behind::default()));
    assert_eq!((storage.checkpoint(), storage.checkpoint()), (Ok(true), Ok(false)));
    let seen = look(&work.journal);
    assert_eq!(of_stream_alone(&place.engine), Ok(seen));
    let (_, report) = started(place.crashed(2, || Fate::Old)).expect("it starts");
    assert_eq!((report.records, report.pushed, report.is_made_anew), (0, 0, false));
    storage.stop();
    assert!(!storage.wait_for_commits());
}

#[test]
fn a_full_queue_is_waited_for_until_it_is_sent_or_the_broker_stops() {
    // The header of a segment.
    let other = Twin::new();
    Log::open(&other, SMALL, 7).expect("the journal opens");
    let header = other.contents(0).expect("it is there")[..SECTOR].to_vec();
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Local);
    let (storage, _) = started(place.again(1)).expect("it starts");
    let part = vec![7; QUEUE_BYTES_MAX as usize / 4];
    place.engine.set_record_bytes_max(2 * part.len());
    storage.create(0, 2 * QUEUE_BYTES_MAX).expect("there is room");
    storage.write(0, 0, &header).expect("it is written");
    storage.sync(0).expect("it is durable");
    let commit = || {
        storage.write(0, 4096, &part).expect("it is written");
        storage.sync(0)
    };
    (0..3).for_each(|_| commit().expect("there is room in the queue"));
    std::thread::scope(|scope| {
        // The header has taken the room for the whole of this one.
        let waits = scope.spawn(commit);
        assert_eq!(storage.send(), Ok(true));
        assert_eq!(waits.join().expect("it ends"), Ok(()));
        assert_eq!(storage.standing().behind, Behind { commits: 4, bytes: QUEUE_BYTES_MAX });
        let waits = scope.spawn(commit);
        storage.stop();
        assert!(waits.join().expect("it ends").is_err());
    });
}

#[test]
fn an_engine_that_refuses_ends_the_journal() {
    let place = Place::new(&Arc::default(), 1, Acknowledgement::Local);
    let (storage, _) = started(place.again(1)).expect("it starts");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    started(Place::new(&place.engine, 2, Acknowledgement::Both)).expect("another one starts");
    work.append(1, 1, 10);
    work.journal.settle();
    assert_eq!(work.journal.log.poisoned(), None);
    let refused = storage.send().expect_err("another owner has the stream").to_string();
    assert_eq!((storage.standing().ended, refused), (Some(StreamEnd::Taken), StreamEnd::Taken.to_string()));
    assert!(!storage.wait_for_commits());
    work.append(1, 1, 10);
    work.journal.settle();
    assert!(work.journal.log.poisoned().is_some());
    assert!(storage.checkpoint().is_err());
}

#[test]
fn a_long_commit_is_several_records() {
    let engine: Arc<TwinEngine> = Arc::default();
    engine.set_record_bytes_max(1_500);
    let (storage, _) = started(Place::new(&engine, 1, Acknowledgement::Engine)).expect("it starts");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    for stream in 1..4 {
        (0..3).for_each(|_| work.append(stream, 1, 900));
    }
    let before = engine.records().len();
    work.journal.settle();
    let records = engine.records().split_off(before);
    assert!(records.len() > 2 && records.iter().all(|(_, subject)| matches!(subject, Subject::Slot(_))), "{records:?}");
    assert_eq!(of_stream_alone(&engine), Ok(look(&work.journal)));
    engine.set_record_bytes_max(100);
    work.append(1, 1, 10);
    work.journal.settle();
    let fault = work.journal.log.poisoned().expect("no record fits").to_string();
    assert!(fault.contains("too short for a table of 1 segments"), "{fault}");
}
