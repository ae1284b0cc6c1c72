//! A journal on three real servers: `NATS_SERVER` names the program of a server; without
//! it nothing is tested here. `make test-engine` builds it and sets the variable.

#[path = "../cluster/mod.rs"]
mod cluster;
mod flipped_bits;
mod loop_disks;
mod power_loss;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, SERVERS};
use whimbrel_engine::nats::Nats;
use whimbrel_engine::{Acknowledgement, DirectoryMark, Engine, Replicated, StartOptions, StartReport, Subject};
use whimbrel_journal::file::Directory;
use whimbrel_journal::{Fault, Journal, Log, Options, ReadBuffer, StreamId, Wanted};

const STREAM: StreamId = StreamId { kind: 1, id: 7 };

type Storage = Arc<Replicated<Directory, Nats>>;

/// A mark in a file beside a folder.
struct MarkFile(PathBuf);

impl MarkFile {
    fn beside(folder: &Path) -> MarkFile {
        MarkFile(folder.with_extension("mark"))
    }
}

impl DirectoryMark for MarkFile {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(fs::read(&self.0).ok())
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Fault> {
        fs::write(&self.0, bytes).map_err(|error| Fault::Failed(error.to_string()))
    }
}

/// A disk and a stream of a cluster.
fn start(cluster: &Cluster, folder: &Path, owner: u64, acknowledgement: Acknowledgement) -> (Storage, StartReport) {
    let disk = Directory::open(folder).expect("the folder opens");
    let options = StartOptions { owner, acknowledgement, discards_local: false, imports: false };
    let engine = cluster.connect("north");
    let begun = Replicated::start(disk, engine, MarkFile::beside(folder), options);
    let (storage, report) = begun.expect("the stream is taken");
    (Arc::new(storage), report)
}

fn journal_on(storage: &Storage) -> Journal<Storage> {
    journal_with(storage, Options { segment_bytes: 1 << 20, batch_bytes: 64 << 10, max_bytes: 64 << 20 })
}

fn journal_with(storage: &Storage, options: Options) -> Journal<Storage> {
    let (log, opened) = Log::open(storage, options, 7).expect("the journal opens");
    assert_eq!(opened.damages, []);
    Journal::start(Arc::clone(storage), log, |_| {}).expect("threads start")
}

/// A journal on a cluster and a disk.
fn open(cluster: &Cluster, folder: &Path, owner: u64) -> (Journal<Storage>, StartReport) {
    let (storage, report) = start(cluster, folder, owner, Acknowledgement::Both);
    (journal_on(&storage), report)
}

fn payload(tick: u64) -> Vec<u8> {
    (0..400).map(|at| (tick.wrapping_mul(31) + at) as u8).collect()
}

/// Appends records with these ticks; they are durable when it returns.
fn append(journal: &Journal<Storage>, ticks: std::ops::Range<u64>) {
    let (stream, mut last) = journal.open_stream(STREAM).expect("it is taken");
    for tick in ticks {
        last = journal.append(stream, tick, &[&payload(tick)]).expect("it is taken");
    }
    journal.wait(last).expect("it becomes durable");
}

fn ticks_of(journal: &Journal<Storage>) -> Vec<u64> {
    let (stream, _) = journal.open_stream(STREAM).expect("it is taken");
    let (mut ticks, mut from, mut buffer) = (Vec::new(), Some(0), ReadBuffer::default());
    while let Some(next) = from {
        let wanted = Wanted { from: next, to: u64::MAX, budget: 1 << 20 };
        let mut sink = |tick: u64, bytes: &[u8]| {
            assert_eq!(bytes, payload(tick));
            ticks.push(tick);
        };
        from = journal.read(stream, wanted, &mut buffer, &mut sink).expect("it is whole");
    }
    ticks
}

#[test]
fn a_journal_outlives_its_disk_and_any_server() {
    let Some(mut cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |number: u64| folders.path().join(number.to_string());
    let (journal, report) = open(&cluster, &folder(1), 1);
    assert_eq!((report.epoch, report.records), (2, 0));
    append(&journal, 1..3_000);
    // One of them leads the stream.
    for number in 0..SERVERS {
        cluster.kill(number);
        let begin = 3_000 + 1_000 * number as u64;
        append(&journal, begin..begin + 1_000);
        cluster.run(number);
    }
    drop(journal);
    fs::remove_dir_all(folder(1)).expect("it is removed");
    let (journal, report) = open(&cluster, &folder(2), 2);
    assert_eq!(report.epoch, 4);
    assert_eq!(ticks_of(&journal), (1..6_000).collect::<Vec<_>>());
    append(&journal, 6_000..6_100);
    // All of them are killed, and the disk is lost after it.
    (0..SERVERS).for_each(|number| cluster.kill(number));
    (0..SERVERS).for_each(|number| cluster.run(number));
    append(&journal, 6_100..6_200);
    drop(journal);
    let (journal, _) = open(&cluster, &folder(3), 3);
    assert_eq!(ticks_of(&journal), (1..6_200).collect::<Vec<_>>());
}

#[test]
fn a_former_owner_is_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let (former, _) = open(&cluster, &folders.path().join("a"), 1);
    append(&former, 1..100);
    let (successor, report) = open(&cluster, &folders.path().join("b"), 2);
    assert_eq!((report.epoch, ticks_of(&successor).len()), (4, 99));
    append(&successor, 100..200);
    let (stream, _) = former.open_stream(STREAM).expect("it is taken");
    let refused = former.append(stream, 100, &[b"late"]).and_then(|ticket| former.wait(ticket));
    let refused = refused.expect_err("another owner has the stream").to_string();
    assert!(refused.contains("another broker has taken this broker's stream"), "{refused}");
    append(&successor, 200..300);
    assert_eq!(ticks_of(&successor), (1..300).collect::<Vec<_>>());
}

#[test]
fn records_are_removed_a_thousand_at_a_time() {
    let Some(cluster) = Cluster::start() else { return };
    let nats = cluster.connect("north");
    let (one, other) = (Subject::Slot(1), Subject::Slot(11));
    let mut last = 0;
    for number in 0..2_500 {
        let subject = if number % 5 == 4 { other } else { one };
        last = nats.append(subject, last, b"record", &mut || {}).expect("it is appended");
    }
    assert_eq!((nats.cut(1, last), nats.cut(1, last), nats.cut(1, last)), (Ok(true), Ok(true), Ok(false)));
    let kept = |number| nats.find(number).expect("it is answered").is_some();
    assert_eq!([1, 4, 5, last - 1, last].map(kept), [false, false, true, false, true]);
    assert_eq!(nats.read(1).expect("it is answered").map(|found| found.number), Some(5));
    assert_eq!(nats.read(last + 1), Ok(None));
}

#[test]
fn a_restart_with_its_directory_reads_what_is_behind_the_mark() {
    let Some(cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = folders.path().join("a");
    let (storage, _) = start(&cluster, &folder, 1, Acknowledgement::Both);
    let journal = journal_on(&storage);
    append(&journal, 1..3_000);
    assert_eq!(storage.checkpoint(), Ok(true));
    let marked = storage.standing().last;
    append(&journal, 3_000..3_100);
    drop((journal, storage));
    let (journal, report) = open(&cluster, &folder, 2);
    assert!(!report.is_made_anew && report.pushed == 0, "{report:?}");
    assert!(marked > 20 && (1..=100).contains(&report.records), "{marked} are marked, {report:?}");
    assert_eq!(ticks_of(&journal), (1..3_100).collect::<Vec<_>>());
}

#[test]
fn what_the_disk_acknowledged_while_no_server_ran_is_appended_later() {
    let Some(mut cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| folders.path().join(name);
    let (storage, _) = start(&cluster, &folder("a"), 1, Acknowledgement::Local);
    let journal = journal_on(&storage);
    append(&journal, 1..500);
    while storage.send().expect("it is sent") {}
    (0..SERVERS).for_each(|number| cluster.kill(number));
    append(&journal, 500..1_500);
    let behind = storage.standing().behind;
    assert!(behind.commits > 0 && behind.bytes > 400_000, "{behind:?}");
    drop((journal, storage));
    (0..SERVERS).for_each(|number| cluster.run(number));
    let (storage, report) = start(&cluster, &folder("a"), 2, Acknowledgement::Local);
    assert!(report.pushed > 0 && !report.is_made_anew, "{report:?}");
    let journal = journal_on(&storage);
    append(&journal, 1_500..1_600);
    while storage.send().expect("it is sent") {}
    drop((journal, storage));
    let (journal, _) = open(&cluster, &folder("b"), 3);
    assert_eq!(ticks_of(&journal), (1..1_600).collect::<Vec<_>>());
}

#[test]
fn a_stream_of_long_records_is_read_from_nothing() {
    /// More bytes than the servers let wait for a client.
    const ALL_BYTES: u64 = 96 << 20;
    const RECORD_BYTES: usize = 3 << 20;
    let Some(cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let options = Options { segment_bytes: 32 << 20, batch_bytes: 4 << 20, max_bytes: 1 << 30 };
    let (storage, _) = start(&cluster, &folders.path().join("a"), 1, Acknowledgement::Both);
    let journal = journal_with(&storage, options);
    let (stream, _) = journal.open_stream(STREAM).expect("it is taken");
    let count = ALL_BYTES / RECORD_BYTES as u64;
    for tick in 1..=count {
        let last = journal.append(stream, tick, &[&vec![tick as u8; RECORD_BYTES]]).expect("it is taken");
        journal.wait(last).expect("it becomes durable");
    }
    drop((journal, storage));
    let begun = Instant::now();
    let (storage, report) = start(&cluster, &folders.path().join("b"), 2, Acknowledgement::Both);
    println!("{} bytes in {:?}", report.bytes, begun.elapsed());
    let journal = journal_with(&storage, options);
    let (stream, last) = journal.open_stream(STREAM).expect("it is taken");
    let mut found = 0;
    let (mut buffer, mut from) = (ReadBuffer::default(), Some(0));
    while let Some(next) = from {
        let wanted = Wanted { from: next, to: u64::MAX, budget: RECORD_BYTES };
        let mut sink = |tick: u64, bytes: &[u8]| {
            found += 1;
            assert!(tick == found && bytes.len() == RECORD_BYTES && bytes.iter().all(|byte| *byte == tick as u8));
        };
        from = journal.read(stream, wanted, &mut buffer, &mut sink).expect("it is whole");
    }
    assert_eq!(found, count, "{last:?}");
}

#[test]
fn a_server_that_hangs_is_left_for_another_one() {
    /// Until a server is left, and the others have chosen a leader.
    const WITHIN: Duration = Duration::from_secs(30);
    let Some(cluster) = Cluster::start() else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let (journal, _) = open(&cluster, &folders.path().join("a"), 1);
    append(&journal, 1..100);
    // The owner is connected to one of them.
    for number in 0..SERVERS {
        cluster.signal(number, "STOP");
        let (begun, tick) = (Instant::now(), 100 + 10 * number as u64);
        append(&journal, tick..tick + 10);
        cluster.signal(number, "CONT");
        assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    }
    assert_eq!(ticks_of(&journal), (1..130).collect::<Vec<_>>());
}
