//! What lies between a journal and its disk, and what a journal says of itself.

use std::sync::Arc;

use crate::common::{SMALL, id, open};
use whimbrel_journal::file::{Directory, View};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{Damage, Fault, Journal, Log, OpenError, Options, Refused, SEGMENTS_MIN, Storage, Tick};

/// Bytes that are no multiple of what is written at once when a file is made.
const ODD: u64 = (2 << 20) + 4096;

#[test]
fn files_are_made_whole_written_read_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Storage + Send + Sync> = Arc::new(Directory::open(place.path()).unwrap());
    disk.create(3, ODD).unwrap();
    disk.create(1, 4096).unwrap();
    std::fs::write(place.path().join("3.segment"), "no segment").unwrap();
    std::fs::write(place.path().join("00000009.segment.unfinished"), "a file that was being made").unwrap();
    assert_eq!(disk.slots().unwrap(), [(1, 4096), (3, ODD)]);
    assert!(!place.path().join("00000009.segment.unfinished").exists());
    let mut bytes = vec![1; ODD as usize];
    disk.read(3, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a new file holds zeros");
    disk.write(3, ODD - 5, b"where").unwrap();
    disk.sync(3).unwrap();
    disk.settle(3).unwrap();
    let mut read = [0; 5];
    disk.read(3, ODD - 5, &mut read).unwrap();
    assert_eq!(&read, b"where");
    assert!(disk.read(3, ODD - 4, &mut read).is_err(), "beyond the end");
    disk.remove(1).unwrap();
    assert_eq!(disk.slots().unwrap(), [(3, ODD)]);
    assert!(disk.read(1, 0, &mut read).is_err() && disk.sync(1).is_err() && disk.settle(1).is_err());
    assert_eq!(disk.name(3), place.path().join("00000003.segment").display().to_string());
    assert_eq!(Arc::new(Twin::new()).name(3), "segment file 3");
}

#[test]
fn a_directory_may_be_named_from_where_the_program_runs() {
    let place = tempfile::Builder::new().prefix(".journal-").tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let name = std::path::Path::new(place.path().file_name().unwrap());
    Directory::open(name).unwrap().create(0, 4096).unwrap();
    assert_eq!(Directory::open(place.path()).unwrap().slots().unwrap(), [(0, 4096)]);
}

#[test]
fn a_disk_without_room_is_told_from_one_that_fails() {
    let place = tempfile::tempdir().unwrap();
    let disk = Directory::open(place.path()).unwrap();
    // Linux has a file to which nothing can ever be written for want of space.
    std::os::unix::fs::symlink("/dev/full", disk.path_of(0)).unwrap();
    assert_eq!(disk.write(0, 0, b"more"), Err(Fault::Full));
    assert!(matches!(disk.write(1, 0, b"more"), Err(Fault::Failed(why)) if why.contains("00000001.segment: ")));
}

#[test]
fn a_view_changes_nothing_and_sees_what_is_there() {
    let place = tempfile::tempdir().unwrap();
    assert!(View::open(&place.path().join("nothing")).is_err());
    assert!(View::open(place.path()).unwrap().slots().unwrap().is_empty(), "without a lock there was never a journal");
    let disk = Directory::open(place.path()).unwrap();
    assert!(matches!(View::open(place.path()), Err(Fault::Failed(why)) if why.ends_with("in use by another process")));
    disk.create(0, 4096).unwrap();
    disk.create(7, 8192).unwrap();
    disk.write(7, 100, b"here").unwrap();
    drop(disk);
    let view = View::open(place.path()).unwrap();
    assert_eq!((view.slots().unwrap(), view.bytes().unwrap()), (vec![(0, 4096), (7, 8192)], 12_288));
    assert!(view.create(8, 4096).is_err());
    view.remove(0).unwrap();
    view.write(7, 100, b"gone").unwrap();
    let mut read = [0; 4];
    view.read(7, 100, &mut read).unwrap();
    assert_eq!((&read, view.slots().unwrap().len()), (b"here", 2));
    assert!(view.read(7, 8190, &mut read).is_err());
    assert_eq!(view.name(7), place.path().join("00000007.segment").display().to_string());
}

#[test]
fn a_lock_that_cannot_be_looked_at_is_not_taken_for_none() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("journal.lock", place.path().join("journal.lock")).unwrap();
    assert!(View::open(place.path()).is_err(), "a loop of links");
}

#[test]
fn after_a_write_that_failed_nothing_is_written() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (stream, _) = journal.log.open_stream(id(1)).unwrap();
    journal.settle();
    let step = journal.log.append(stream, 1, &[b"one"]).map(|_| journal.log.next_write()).unwrap().unwrap();
    journal.log.append(stream, 2, &[b"two"]).unwrap();
    let fault = Fault::Failed("the sync failed".into());
    let committed = journal.log.committed();
    assert_eq!(journal.log.written(step, Err(fault.clone())), committed);
    assert!(journal.log.next_write().is_none() && journal.log.next_chore().is_none());
    assert_eq!(journal.log.poisoned(), Some(&fault));
    assert_eq!(journal.log.reserve(stream, 5), Err(Refused::Poisoned(fault)));
}

#[test]
fn two_journals_have_two_identities() {
    let place = tempfile::tempdir().unwrap();
    let disk = Directory::open(place.path()).unwrap();
    let drawn: std::collections::BTreeSet<u64> = (0..8).map(|_| disk.random().unwrap()).collect();
    assert_eq!(drawn.len(), 8);
}

#[test]
fn settings_that_make_no_sense_are_refused_and_those_at_the_bounds_are_not() {
    let check = |options| Log::open(&Twin::new(), options, 7).map(drop);
    let (batch, segment) = (SMALL.batch_bytes, SMALL.segment_bytes);
    let least = u64::from(SEGMENTS_MIN) * u64::from(segment);
    assert_eq!(check(Options { max_bytes: least, ..SMALL }), Ok(()));
    assert_eq!(check(Options { segment_bytes: 8 * batch, max_bytes: least, ..SMALL }), Ok(()));
    for wrong in [
        Options { batch_bytes: 4095, ..SMALL },
        Options { segment_bytes: segment + 512, ..SMALL },
        Options { segment_bytes: (1 << 30) + 4096, max_bytes: u64::MAX, ..SMALL },
        Options { segment_bytes: 7 * batch, ..SMALL },
        Options { max_bytes: least - 1, ..SMALL },
    ] {
        assert!(matches!(check(wrong), Err(OpenError::Options { .. })), "{wrong:?}");
    }
}

#[test]
fn damage_says_what_it_costs() {
    let told = |file, lost| Damage { file, offset: 512, lost, what: "it is gone" }.to_string();
    assert_eq!(told(Some(3), None), "segment file 3, offset 512: it is gone; nothing is lost, a copy is whole");
    let stream = whimbrel_journal::StreamId { kind: 2, id: 31 };
    assert_eq!((format!("{stream}"), format!("{stream:?}")), ("2:1f".into(), "2:1f".into()));
    assert_eq!(told(None, Some((stream, 4, 9))), "it is gone; stream 2:1f lost ticks 5 to 9");
    let all = told(None, Some((stream, 4, Tick::MAX)));
    assert_eq!(all, "it is gone; stream 2:1f may have lost everything after tick 4");
}

#[test]
fn a_stream_that_is_stopped_or_removed_says_so_when_it_is_asked() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (stream, _) = journal.log.open_stream(id(1)).unwrap();
    let (other, _) = journal.log.open_stream(id(2)).unwrap();
    journal.log.append(stream, 5, &[b"five"]).unwrap();
    journal.settle();
    assert_eq!(journal.log.check_stream(stream), Ok(()));
    let damage = Damage { file: None, offset: 0, lost: Some((id(1), 4, 5)), what: "it was seen" };
    journal.log.stop(damage.clone());
    assert_eq!(journal.log.check_stream(stream), Err(Refused::Stopped(damage)));
    journal.log.remove(other).unwrap();
    assert_eq!(journal.log.check_stream(other), Err(Refused::Unknown));
    journal.log.chop(stream, 5).unwrap();
    journal.settle();
    assert_eq!(journal.log.check_stream(stream), Ok(()), "the damage is chopped");
    let late = Damage { file: None, offset: 0, lost: Some((id(1), 4, 5)), what: "it was seen before it was chopped" };
    journal.log.stop(late);
    assert_eq!(journal.log.check_stream(stream), Ok(()));
}

#[test]
fn what_a_handle_reserves_and_removes_is_so_after_the_next_opening() {
    let place = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(place.path(), SMALL, |_| {}).unwrap();
    let (kept, _) = journal.open_stream(id(1)).unwrap();
    let (gone, _) = journal.open_stream(id(2)).unwrap();
    journal.reserve(kept, 500).unwrap();
    let last = journal.remove(gone).unwrap();
    journal.wait(last).unwrap();
    assert!(journal.committed() >= last);
    assert_eq!(journal.streams(), [(id(1), kept)]);
    journal.close().unwrap();
    let (journal, _) = Journal::open(place.path(), SMALL, |_| {}).unwrap();
    assert_eq!(journal.streams(), [(id(1), kept)]);
    assert_eq!(journal.info(kept).unwrap().reserved, 500);
}

#[test]
fn the_twin_counts_fails_and_loses_as_it_is_told() {
    let twin = Twin::new();
    twin.create(0, 8192).unwrap();
    let begun = twin.operations();
    twin.write(0, 512, &[1; 1024]).unwrap();
    twin.sync(0).unwrap();
    twin.write(0, 1024, &[2; 1024]).unwrap();
    assert_eq!(twin.operations() - begun, 3);
    let after = |fate: fn() -> Fate| twin.crashed(fate).contents(0).unwrap();
    let (old, new) = (after(|| Fate::Old), after(|| Fate::New));
    let sectors = |bytes: &[u8]| bytes.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>();
    assert_eq!(sectors(&old)[..5], [0, 1, 1, 0, 0]);
    assert_eq!(sectors(&new)[..5], [0, 1, 2, 2, 0]);
    let garbage = after(|| Fate::Garbage);
    assert!(garbage[..1024] == old[..1024] && garbage[1024..2048] != old[1024..2048]);
    assert!(garbage[1024..2048] != new[1024..2048] && garbage[2048..] == old[2048..]);
    let failing = twin.crashed(|| Fate::Old);
    failing.fail_from(failing.operations() + 2);
    assert!(failing.write(0, 0, &[4; 512]).is_ok() && failing.sync(0).is_ok());
    assert!(failing.write(0, 0, &[5; 512]).is_err() && failing.sync(0).is_err() && failing.remove(0).is_err());
    assert_eq!(failing.crashed(|| Fate::New).contents(0).unwrap()[0], 4);
    twin.fail_sync(twin.operations() + 1);
    assert!(twin.write(0, 0, &[3; 512]).is_ok() && twin.sync(0).is_err());
    // Also a later sync does not bring it there.
    assert!(twin.write(0, 2048, &[6; 512]).is_ok() && twin.sync(0).is_ok());
    assert_eq!(sectors(&twin.contents(0).unwrap())[..5], [3, 1, 2, 2, 6]);
    assert_eq!(sectors(&after(|| Fate::New))[..5], [0, 1, 1, 0, 6]);
    // Nothing that was written before can be trusted to be there, and settling shows what is.
    twin.settle(0).unwrap();
    let mut bytes = [9; 512];
    twin.read(0, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512], "what could not be synced is forgotten");
}
