//! Damage in the files of a broker that was killed: what is missing is told, and nothing else is
//! missing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::book::Name;
use crate::broker::{Plan, Store, overwrite, segments};
use crate::calm::{Calm, one_by_each_rule};
use crate::judge::{Fault, demand, judge};
use crate::publisher::mark;
use crate::weather::Weather;

/// Events before the damage.
const EVENTS: u32 = 400;

/// Bytes of an event: more than a mark, so that the middle of a record can be hit.
const EVENT: usize = 300;

/// Where the bytes of an event begin: a file below the data directory, and the place in it.
fn place(directory: &Path, number: u32) -> Option<(PathBuf, u64)> {
    let wanted = mark(Name { publisher: 1, number }).into_bytes();
    segments(directory).into_iter().find_map(|file| {
        let bytes = std::fs::read(&file).expect("readable");
        let at = bytes.windows(wanted.len()).position(|window| window == wanted)?;
        Some((file, at as u64))
    })
}

/// A broker that has [`EVENTS`] events for three absent subscribers and was killed.
async fn killed(directory: &TempDir) -> Calm {
    let plan = Plan::new(Store::at(directory.path()));
    let mut calm = Calm::begin(plan, Weather::new(Duration::from_secs(120)), &one_by_each_rule()).await;
    for _ in 0..EVENTS {
        assert!(calm.publish(EVENT).await, "there is room");
    }
    calm.kill();
    calm
}

#[test]
fn an_event_is_found_in_the_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("journal")).expect("made");
    let file = directory.path().join("journal").join("00000000.segment");
    std::fs::write(&file, [&[0; 5000], mark(Name { publisher: 1, number: 12 }).as_bytes(), b"..."].concat())
        .expect("written");
    std::fs::write(directory.path().join("journal.lock"), "storm-1-000013;").expect("written");
    assert_eq!(place(directory.path(), 12), Some((file.clone(), 5000)));
    assert_eq!(place(directory.path(), 13), None);
    overwrite(&file, 5000, b"S");
    assert_eq!(place(directory.path(), 12), None);
    assert_eq!(std::fs::metadata(&file).expect("there").len(), 5018, "its length stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_is_told_as_a_gap_and_everything_else_comes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut calm = killed(&directory).await;
    let hit = EVENTS / 2;
    let (file, at) = place(directory.path(), hit).expect("an acknowledged event is in the files");
    overwrite(&file, at + 100, b"!");
    calm.start().await.unwrap_or_else(|log| panic!("one damaged event stops the broker: {log}"));
    let subscribers = calm.release();
    let log = calm.plan.log();
    let book = calm.end(subscribers).await;
    let verdicts = judge(&book);
    for verdict in &verdicts {
        let is_hit = |fault: &Fault| *fault == Fault::Reported(Name { publisher: 1, number: hit });
        assert_eq!(verdict.count(is_hit), 1, "{} did not miss the damaged event", verdict.subscription);
        assert!(verdict.delivered + 5 > EVENTS as usize, "{} misses more than a commit", verdict.subscription);
    }
    demand(&verdicts, |fault| matches!(fault, Fault::Reported(_) | Fault::Gap(_)));
    let slot = file.file_stem().expect("a name").to_string_lossy().parse::<u32>().expect("it is a number");
    assert!(
        log.contains(&format!("segment file {slot}, offset ")),
        "the broker does not say where the damage is: {log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_that_is_cut_costs_what_was_in_it_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut calm = killed(&directory).await;
    let (file, at) = place(directory.path(), EVENTS).expect("an acknowledged event is in the files");
    let length = std::fs::metadata(&file).expect("there").len();
    overwrite(&file, at + 100, &vec![0; (length - at - 100) as usize]);
    calm.start().await.unwrap_or_else(|log| panic!("a torn end stops the broker: {log}"));
    for _ in 0..10 {
        assert!(calm.publish(EVENT).await, "behind a torn end it goes on");
    }
    let subscribers = calm.release();
    let book = calm.end(subscribers).await;
    let cut = Name { publisher: 1, number: EVENTS };
    demand(&judge(&book), |fault| *fault == Fault::Lost(cut));
}
