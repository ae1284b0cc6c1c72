//! The hand-over between appenders, writer and chores, in many interleavings: the same source, with
//! locks that a scheduler controls.

use std::sync::Arc;

use shuttle::thread;
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    Chore, Fault, Log, Options, Refused, Storage, StreamId, Ticket, WriteStep, perform_chore, perform_write,
};

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../src/handover.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is the source of the library")]
mod handover;

use handover::{Handover, Progress};

const SMALL: Options = Options { segment_bytes: 32 << 10, batch_bytes: 4096, max_bytes: 1 << 20 };

/// Appenders that wait for each record or only for the last, and a journal that is closed behind
/// them.
fn run(appenders: u64, records: u64, wait_each: bool) {
    let twin = Twin::new();
    let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
    let shared = Arc::new(Handover::new(log, twin));
    let told = Arc::new(shuttle::sync::Mutex::new(Ticket(0)));
    let (writer, chores, sink) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&told));
    let writer = thread::spawn(move || {
        writer.run_writer(&mut |told| match told.progress {
            Progress::Committed(ticket) => {
                let mut last = sink.lock().unwrap();
                assert!(ticket > *last, "told in order");
                *last = ticket;
            }
            Progress::Poisoned(fault) => panic!("{fault}"),
        });
    });
    let chores = thread::spawn(move || chores.run_chores());
    let threads: Vec<_> = (0..appenders)
        .map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let id = StreamId { kind: 0, id: number };
                let (stream, mut ticket) = shared.submit_wait(|log| log.open_stream(id)).unwrap();
                for tick in 1..=records {
                    ticket = shared.submit_wait(|log| log.append(stream, tick, &[&[1; 1500]])).unwrap();
                    if wait_each {
                        shared.wait(ticket).unwrap();
                        assert!(shared.with(|log| log.info(stream).unwrap().last) >= tick);
                    }
                }
                shared.wait(ticket).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    shared.close();
    writer.join().unwrap();
    chores.join().unwrap();
    let accepted = shared.with(|log| log.accepted());
    assert_eq!((accepted, *told.lock().unwrap()), (Ticket(appenders * (records + 1)), accepted));
}

#[test]
fn every_interleaving_tried_commits_everything_and_ends() {
    shuttle::check_random(|| run(3, 4, false), 300);
    shuttle::check_random(|| run(2, 3, true), 300);
    shuttle::check_pct(|| run(3, 4, true), 300, 3);
}

#[test]
fn a_failing_disk_leaves_nobody_waiting() {
    let round = || {
        let twin = Twin::new();
        let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
        twin.fail_from(twin.operations() + 6);
        let shared = Arc::new(Handover::new(log, twin));
        let (writer, chores) = (Arc::clone(&shared), Arc::clone(&shared));
        let writer = thread::spawn(move || writer.run_writer(&mut |_| {}));
        let chores = thread::spawn(move || chores.run_chores());
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let open = shared.submit_wait(|log| log.open_stream(StreamId { kind: 0, id: number }));
                    let Ok((stream, _)) = open else { return };
                    for tick in 1..20 {
                        let appended = shared.submit_wait(|log| log.append(stream, tick, &[&[1; 1000]]));
                        match appended.and_then(|ticket| shared.wait(ticket)) {
                            Ok(()) => {}
                            Err(Refused::Poisoned(_)) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    panic!("the disk fails before that");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.close();
        writer.join().unwrap();
        chores.join().unwrap();
    };
    shuttle::check_random(round, 300);
}

#[test]
fn whoever_waits_for_room_is_let_go_when_the_journal_is_closed() {
    let round = || {
        let twin = Twin::new();
        let (log, _) = Log::open(&twin, SMALL, 1).unwrap();
        let shared = Arc::new(Handover::new(log, twin));
        let waiting = Arc::clone(&shared);
        let waiting = thread::spawn(move || waiting.submit_wait(|_| Err::<(), _>(Refused::Busy)));
        shared.close();
        assert_eq!(waiting.join().unwrap(), Err(Refused::Busy));
    };
    shuttle::check_random(round, 300);
}
