//! The journal with its threads, on real files.

use std::sync::{Arc, Mutex, mpsc};

use whimbrel_journal::file::Directory;
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    Fault, Journal, Log, OpenError, Options, Progress, ReadBuffer, Refused, Storage, Stream, StreamId, Ticket, Wanted,
    WriterReport, check,
};

const SMALL: Options = Options { segment_bytes: 256 << 10, batch_bytes: 16 << 10, max_bytes: 16 << 20 };

fn id(id: u64) -> StreamId {
    StreamId { kind: 0, id }
}

fn ticks<S: Storage + Send + Sync>(journal: &Journal<S>, stream: Stream) -> Vec<u64> {
    let mut ticks = Vec::new();
    let wanted = Wanted { from: 0, to: u64::MAX, budget: usize::MAX };
    let end = journal.read(stream, wanted, &mut ReadBuffer::default(), &mut |tick, bytes| {
        assert_eq!(bytes, tick.to_le_bytes().repeat(30));
        ticks.push(tick);
    });
    assert_eq!(end, Ok(None));
    ticks
}

fn append<S: Storage + Send + Sync>(journal: &Journal<S>, stream: Stream, tick: u64) -> Ticket {
    journal.append(stream, tick, &[&tick.to_le_bytes().repeat(30)]).unwrap()
}

#[test]
fn many_threads_append_and_everything_they_waited_for_is_there() {
    let place = tempfile::tempdir().unwrap();
    let (sender, told) = mpsc::channel();
    let (journal, report) =
        Journal::open(place.path(), SMALL, move |told| sender.send(told.progress).unwrap()).unwrap();
    assert!(report.created);
    let last = std::thread::scope(|scope| {
        let journal = &journal;
        let threads: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    let (stream, _) = journal.open_stream(id(number)).unwrap();
                    let mut ticket = Ticket(0);
                    for tick in 1..=500 {
                        ticket = append(journal, stream, tick);
                        if tick % 50 == 0 {
                            journal.wait(ticket).unwrap();
                            assert_eq!(ticks(journal, stream).len() as u64, tick, "what is durable is read");
                        }
                    }
                    ticket
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    journal.close().unwrap();
    let progress: Vec<_> = told.iter().collect();
    assert_eq!(progress.last(), Some(&Progress::Committed(last)));
    let tickets = progress.iter().map(|progress| match progress {
        Progress::Committed(ticket) => *ticket,
        Progress::Poisoned(fault) => panic!("{fault}"),
    });
    assert!(tickets.is_sorted_by(|a, b| a < b), "each tells something new");

    let (journal, report) = Journal::open(place.path(), SMALL, |_| {}).unwrap();
    assert_eq!((report.created, report.damages), (false, vec![]));
    assert_eq!(journal.streams().len(), 8);
    for (_, stream) in journal.streams() {
        assert_eq!(ticks(&journal, stream), (1..=500).collect::<Vec<_>>());
    }
}

#[test]
fn a_second_process_is_kept_out() {
    let place = tempfile::tempdir().unwrap();
    let journal = Journal::open(place.path(), SMALL, |_| {}).unwrap();
    let refused = Journal::open(place.path(), SMALL, |_| {}).unwrap_err();
    assert!(
        matches!(&refused, OpenError::Storage(Fault::Failed(why)) if why.ends_with("in use by another process")),
        "{refused}"
    );
    drop(journal);
    Journal::open(place.path(), SMALL, |_| {}).unwrap();
}

#[test]
fn a_copy_of_a_running_journal_opens_as_it_was() {
    let (place, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (journal, _) = Journal::open(place.path(), SMALL, |_| {}).unwrap();
    let (stream, _) = journal.open_stream(id(1)).unwrap();
    let sure = (1..=5000).fold(Ticket(0), |_, tick| append(&journal, stream, tick));
    journal.wait(sure).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for tick in 5001..=15_000 {
                append(&journal, stream, tick);
                if tick % 1000 == 0 {
                    journal.chop(stream, tick - 2000).unwrap();
                }
            }
        });
        journal.backup(&Directory::open(target.path()).unwrap()).unwrap();
        writer.join().unwrap();
    });
    assert!(check(&Directory::open(target.path()).unwrap()).unwrap().is_whole());
    let (copy, report) = Journal::open(target.path(), SMALL, |_| {}).unwrap();
    assert_eq!((report.created, report.damages, report.torn), (false, vec![], None));
    let found = ticks(&copy, stream);
    let (first, last) = (found[0], *found.last().unwrap());
    assert!(last >= 5000 && found == (first..=last).collect::<Vec<_>>(), "{first} to {last}");
}

#[test]
fn whoever_waits_is_told_of_the_poison_and_durable_records_are_still_read() {
    let twin = Twin::new();
    let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
    let (sender, told) = mpsc::channel();
    let journal = Journal::start(twin, log, move |told| drop(sender.send(told.progress))).unwrap();
    let (stream, _) = journal.open_stream(id(1)).unwrap();
    let sure = append(&journal, stream, 1);
    journal.wait(sure).unwrap();
    journal.storage().fail_from(0);
    let lost = append(&journal, stream, 2);
    let fault = Fault::Failed("the disk is gone".into());
    assert_eq!(journal.wait(lost), Err(Refused::Poisoned(fault.clone())));
    assert_eq!(journal.try_append(stream, 3, &[]), Err(Refused::Poisoned(fault.clone())));
    assert_eq!(ticks(&journal, stream), [1]);
    assert_eq!(journal.close(), Err(Refused::Poisoned(fault.clone())));
    assert_eq!(told.iter().last(), Some(Progress::Poisoned(fault)));
}

#[test]
fn a_journal_that_is_full_lends_its_reserve_through_its_handle() {
    let options = Options { segment_bytes: 64 << 10, batch_bytes: 4096, max_bytes: 512 << 10 };
    let twin = Twin::new();
    let (log, _) = Log::open(&twin, options, 1).unwrap();
    let journal = Journal::start(twin, log, |_| {}).unwrap();
    let (stream, _) = journal.open_stream(id(1)).unwrap();
    let refused = (1..).find_map(|tick| journal.append(stream, tick, &[&[1; 1000]]).err().map(|error| (tick, error)));
    let (tick, error) = refused.unwrap();
    assert_eq!(error, Refused::Full);
    journal.lend_reserve(true);
    let ticket = journal.append(stream, tick, &[&[1; 1000]]).unwrap();
    journal.wait(ticket).unwrap();
    journal.lend_reserve(false);
    assert_eq!(journal.append(stream, tick + 1, &[&[1; 1000]]), Err(Refused::Full));
}

#[test]
fn a_full_disk_is_tried_again_without_being_asked() {
    let options = Options { segment_bytes: 64 << 10, batch_bytes: 4096, max_bytes: 16 << 20 };
    let twin = Twin::new();
    twin.set_room(Some(512 << 10));
    let (log, _) = Log::open(&twin, options, 1).unwrap();
    let journal = Journal::start(twin, log, |_| {}).unwrap();
    let (stream, _) = journal.open_stream(id(1)).unwrap();
    let append = |tick| journal.append(stream, tick, &[&[1; 1000]]);
    let refused = (1..).find_map(|tick| append(tick).err().map(|error| (tick, error)));
    let (tick, error) = refused.unwrap();
    assert_eq!(error, Refused::Full);
    journal.storage().set_room(None);
    while append(tick) == Err(Refused::Full) {
        // tidy: poll — the next try to make a file, after FULL_RETRY
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(append(tick + 1).map(drop), Ok(()));
}

#[test]
fn a_panic_of_whoever_is_told_comes_out_when_the_journal_is_closed() {
    let twin = Twin::new();
    let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
    let journal = Journal::start(twin, log, |_| panic!("it was told")).unwrap();
    let (_, ticket) = journal.open_stream(id(1)).unwrap();
    journal.wait(ticket).unwrap();
    let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| journal.close()));
    assert_eq!(closed.unwrap_err().downcast_ref(), Some(&"it was told"));
}

#[test]
fn readers_follow_records_that_are_relocated_under_them() {
    let twin = Twin::new();
    let options = Options { segment_bytes: 64 << 10, batch_bytes: 4096, max_bytes: 1 << 20 };
    let (log, _) = Log::open(&twin, options, 1).unwrap();
    let journal = Journal::start(twin, log, |_| {}).unwrap();
    let (slow, _) = journal.open_stream(id(1)).unwrap();
    let (fast, _) = journal.open_stream(id(2)).unwrap();
    std::thread::scope(|scope| {
        let (journal, (done, rest)) = (&journal, mpsc::channel::<()>());
        scope.spawn(move || {
            for tick in 1..40_000u64 {
                let stream = if tick % 100 == 0 { slow } else { fast };
                append(journal, stream, tick);
                if tick % 200 == 0 {
                    journal.chop(fast, tick - 100).unwrap();
                }
            }
            drop(done);
        });
        let mut rounds = 0;
        while rounds < 3 || rest.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let seen = ticks(journal, slow);
            assert!(seen.iter().zip(1..).all(|(tick, number)| *tick == number * 100));
            rounds += 1;
        }
    });
    assert_eq!(ticks(&journal, slow).len(), 399);
    assert!(journal.submit(|log| Ok(log.counters())).unwrap().moved_bytes > 0);
}

#[test]
fn a_writer_that_has_nothing_left_says_so_and_may_drop_the_journal() {
    let twin = Twin::new();
    let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
    let kept: Arc<Mutex<Option<Journal<Twin>>>> = Arc::default();
    let (mine, (sender, told)) = (Arc::clone(&kept), mpsc::channel());
    let journal = Journal::start(twin, log, move |told| {
        drop(mine.lock().unwrap().take());
        sender.send(told).unwrap();
    });
    let mut place = kept.lock().unwrap();
    let journal = place.insert(journal.unwrap());
    let (_, born) = journal.open_stream(id(1)).unwrap();
    drop(place);
    assert_eq!(told.recv().unwrap(), WriterReport { progress: Progress::Committed(born), is_idle: true });
    assert!(told.recv().is_err(), "the writer has ended");
}
