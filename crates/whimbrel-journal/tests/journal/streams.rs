//! What a journal does when nothing goes wrong.

use crate::common::{SMALL, id, look, open, payload, read_all};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Counters, Log, Options, ReadBuffer, Refused, Stepped, StreamUse, Wanted, check};

#[test]
fn what_is_appended_is_read_and_survives_reopening() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let (b, _) = journal.log.open_stream(id(2)).unwrap();
    journal.log.append(a, 5, &[b"one"]).unwrap();
    journal.log.append(b, 1, &[]).unwrap();
    let ticket = journal.log.append(a, u64::MAX, &[b"la", b"st"]).unwrap();
    assert!(journal.log.committed() < ticket);
    assert_eq!(read_all(&journal, a), [], "nothing is visible before it is durable");
    journal.settle();
    assert_eq!(journal.log.committed(), ticket);
    for _ in 0..2 {
        let (a, _) = journal.log.open_stream(id(1)).unwrap();
        let (b, _) = journal.log.open_stream(id(2)).unwrap();
        assert_eq!(read_all(&journal, a), [(5, b"one".to_vec()), (u64::MAX, b"last".to_vec())]);
        assert_eq!(read_all(&journal, b), [(1, vec![])]);
        let refused = Err(Refused::NotIncreasing { tick: u64::MAX, last: u64::MAX });
        assert_eq!(journal.log.append(a, u64::MAX, &[]), refused);
        journal = open(&twin);
    }
}

#[test]
fn a_workload_of_many_segments_matches_the_model_before_and_after_reopening() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let twin = Twin::new();
        let mut work = crate::common::Work::new(open(&twin));
        for _ in 0..4000 {
            work.step(&mut rng);
        }
        work.journal.settle();
        let model = work.model(&Default::default(), work.journal.log.accepted());
        assert_eq!(look(&work.journal), model, "seed {seed}");
        assert_eq!(look(&open(&twin)), model, "seed {seed}, opened again");
    }
}

#[test]
fn reading_obeys_range_and_budget() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    for tick in (10..=1000).step_by(10) {
        journal.log.append(a, tick, &[&payload(1, tick, 100)]).unwrap();
        journal.settle();
    }
    let mut buffer = ReadBuffer::default();
    let mut ticks = Vec::new();
    let wanted = Wanted { from: 95, to: 205, budget: 250 };
    let next = journal.read(a, wanted, &mut buffer, &mut |tick, _| ticks.push(tick)).unwrap();
    assert_eq!((ticks.as_slice(), next), ([100, 110, 120].as_slice(), Some(130)));
    let next =
        journal.read(a, Wanted { from: 130, budget: usize::MAX, ..wanted }, &mut buffer, &mut |t, _| ticks.push(t));
    assert_eq!(next, Ok(None));
    assert_eq!(ticks, (100..=200).step_by(10).collect::<Vec<_>>());
    let wanted = Wanted { from: 1001, to: u64::MAX, budget: 0 };
    assert_eq!(journal.read(a, wanted, &mut buffer, &mut |_, _| panic!("there is nothing")), Ok(None));
}

#[test]
fn one_stream_is_read_from_among_others_across_segments() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let streams: Vec<_> = (0..5).map(|n| journal.log.open_stream(id(n)).unwrap().0).collect();
    for tick in 1..1500u64 {
        let stream = if tick % 50 == 0 { 0 } else { 1 + tick % 4 };
        while journal.log.append(streams[stream as usize], tick, &[&payload(stream, tick, 300)]).is_err() {
            assert!(journal.write() | journal.chore());
        }
    }
    journal.settle();
    assert!(journal.log.files() > 5);
    for budget in [1, 1000, usize::MAX] {
        let records = crate::common::try_read_all(&journal, streams[0], budget).unwrap();
        let expected: Vec<_> = (50..1500).step_by(50).map(|tick| (tick, payload(0, tick, 300))).collect();
        assert_eq!(records, expected);
    }
}

#[test]
fn the_longest_record_fits_and_a_longer_one_is_refused() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let max = SMALL.record_max();
    assert_eq!(journal.log.append(a, 1, &[&vec![1; max + 1]]), Err(Refused::TooLong { bytes: max + 1, max }));
    for tick in 1..=100 {
        while journal.log.append(a, tick, &[&vec![tick as u8; max]]).is_err() {
            assert!(journal.write() | journal.chore());
        }
    }
    journal.settle();
    assert_eq!(read_all(&journal, a).len(), 100);
    assert_eq!(read_all(&open(&twin), a)[99], (100, vec![100; max]));
}

#[test]
fn chopping_beyond_the_end_leaves_nothing_and_forbids_what_it_covers() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    journal.log.append(a, 10, &[b"x"]).unwrap();
    journal.log.chop(a, 50).unwrap();
    assert_eq!(journal.log.append(a, 50, &[b"x"]), Err(Refused::NotIncreasing { tick: 50, last: 50 }));
    journal.log.append(a, 51, &[b"y"]).unwrap();
    journal.settle();
    assert_eq!(read_all(&journal, a), [(51, b"y".to_vec())]);
    let mut journal = open(&twin);
    assert_eq!(read_all(&journal, a), [(51, b"y".to_vec())]);
    journal.log.chop(a, u64::MAX).unwrap();
    journal.settle();
    let journal = open(&twin);
    assert_eq!(read_all(&journal, a), []);
    assert_eq!(journal.log.info(a).unwrap().last, 51);
}

#[test]
fn a_stream_born_after_reopening_is_another() {
    let twin = Twin::new();
    let (a, _) = {
        let mut journal = open(&twin);
        let born = journal.log.open_stream(id(1)).unwrap();
        journal.log.append(born.0, 1, &[b"a"]).unwrap();
        journal.settle();
        born
    };
    let mut journal = open(&twin);
    let (b, _) = journal.log.open_stream(id(2)).unwrap();
    assert_ne!(a, b);
    journal.log.append(b, 1, &[b"b"]).unwrap();
    journal.settle();
    for journal in [journal, open(&twin)] {
        assert_eq!(journal.log.streams().collect::<Vec<_>>(), [(id(1), a), (id(2), b)]);
        assert_eq!(
            (read_all(&journal, a), read_all(&journal, b)),
            (vec![(1, b"a".to_vec())], vec![(1, b"b".to_vec())])
        );
    }
}

#[test]
fn what_is_written_is_counted_and_what_a_stream_takes_up_is_told() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let (b, _) = journal.log.open_stream(id(2)).unwrap();
    journal.settle();
    let counters = journal.log.counters();
    assert_eq!((counters.commits, counters.records, counters.record_bytes, counters.moved_bytes), (1, 0, 0, 0));
    assert_eq!(journal.log.usage(a), Some(StreamUse::default()));
    for round in 1..=100 {
        // A byte for the length, and one for the distance where there are two.
        for tick in [10 * round, 10 * round + 1] {
            journal.log.append(a, tick, &[&[1; 100]]).unwrap();
        }
        journal.log.append(b, round, &[&[1; 50]]).unwrap();
        journal.settle();
    }
    let Counters { commits, records, record_bytes, moved_bytes, frame_bytes, segments } = journal.log.counters();
    assert_eq!((commits, records, record_bytes, moved_bytes), (101, 300, 100 * (101 + 102 + 51), 0));
    assert_eq!((frame_bytes, segments), (101 * 512, 0), "each is one sector");
    assert_eq!(journal.log.retained_bytes(), record_bytes);
    let usage = |journal: &Stepped<'_, Twin>, stream| journal.log.usage(stream).unwrap();
    assert_eq!(usage(&journal, a), StreamUse { bytes: 100 * 203, segments: 1, oldest: Some(0) });
    assert_eq!(usage(&journal, b), StreamUse { bytes: 100 * 51, segments: 1, oldest: Some(0) });
    // What is chopped and lies in one piece with what is not, is not given back.
    journal.log.chop(a, 500).unwrap();
    journal.log.chop(b, 100).unwrap();
    journal.settle();
    assert_eq!(usage(&journal, a), StreamUse { bytes: 100 * 203, segments: 1, oldest: Some(500) });
    assert_eq!(usage(&journal, b), StreamUse::default());
    assert_eq!(journal.log.retained_bytes(), 100 * 203);
    while journal.log.counters().segments < 3 {
        let tick = journal.log.info(a).unwrap().last + 1;
        journal.log.append(a, tick, &[&[1; 1000]]).unwrap();
        journal.settle();
    }
    let counters = journal.log.counters();
    let told = usage(&journal, a);
    assert_eq!((told.bytes, told.segments, told.oldest), (counters.record_bytes - 100 * 51, 4, Some(500)));
    assert_eq!(journal.log.retained_bytes(), told.bytes);
    let again = open(&twin);
    assert_eq!((usage(&again, a), again.log.retained_bytes()), (told, told.bytes));
    assert!(check(&twin).unwrap().is_whole());
}

#[test]
fn chopping_or_reserving_the_same_again_writes_nothing() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let chopped = journal.log.chop(a, 5).unwrap();
    assert_eq!(journal.log.chop(a, 5), Ok(chopped));
    assert_eq!(journal.log.chop(a, 4), Ok(chopped));
    let reserved = journal.log.reserve(a, 9).unwrap();
    assert!(reserved > chopped);
    assert_eq!(journal.log.reserve(a, 9), Ok(reserved));
    assert_eq!(journal.log.reserve(a, 8), Ok(reserved));
    journal.settle();
    let commits = journal.log.counters().commits;
    journal.log.chop(a, 5).unwrap();
    journal.log.reserve(a, 9).unwrap();
    assert!(!journal.write());
    assert_eq!(journal.log.counters().commits, commits);
}

#[test]
fn changes_fill_their_part_of_a_batch_and_no_more() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    journal.settle();
    // An eighth of a batch, and four bytes for each change: one for kind and stream, two for the
    // tick, one for what it does not need.
    let most = u64::from(SMALL.batch_bytes) / 8 / 4;
    for upto in 128..128 + most {
        journal.log.chop(a, upto).unwrap();
    }
    assert_eq!(journal.log.chop(a, 1000), Err(Refused::Busy));
    assert_eq!(journal.log.reserve(a, 1000), Err(Refused::Busy));
    journal.settle();
    assert_eq!(journal.log.info(a).unwrap().chopped, 127 + most);
    journal.log.chop(a, 1000).unwrap();
}

#[test]
fn a_stream_of_a_removed_name_begins_empty() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (old, _) = journal.log.open_stream(id(1)).unwrap();
    journal.log.append(old, 10, &[b"old"]).unwrap();
    journal.settle();
    journal.log.remove(old).unwrap();
    let (new, _) = journal.log.open_stream(id(1)).unwrap();
    assert_ne!(old, new);
    assert_eq!(journal.log.append(old, 11, &[b"old"]), Err(Refused::Unknown));
    journal.log.append(new, 1, &[b"new"]).unwrap();
    journal.settle();
    for journal in [journal, open(&twin)] {
        let found: Vec<_> = journal.log.streams().collect();
        assert_eq!(found, [(id(1), new)]);
        assert_eq!(read_all(&journal, new), [(1, b"new".to_vec())]);
    }
}

#[test]
fn a_reservation_is_known_after_reopening_without_any_record() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    journal.log.reserve(a, 1_000_000).unwrap();
    journal.log.reserve(a, 5).unwrap();
    assert!(journal.log.info(a).is_none(), "the birth is not durable yet");
    journal.settle();
    assert_eq!(Stepped::new(Log::open(&twin, SMALL, 0).unwrap().0, &twin).log.info(a).unwrap().reserved, 1_000_000);
}

#[test]
fn the_bound_of_a_batch_may_change_between_openings() {
    let twin = Twin::new();
    let options = Options { segment_bytes: 256 << 10, max_bytes: 16 << 20, ..SMALL };
    let (a, _) = Log::open(&twin, options, 7).unwrap().0.open_stream(id(1)).unwrap();
    let mut tick = 0;
    for round in 0..30 {
        let options = Options { batch_bytes: [4096, 32 << 10, 5000][round % 3], ..options };
        let (log, report) = Log::open(&twin, options, 1).unwrap();
        assert_eq!((report.damages.as_slice(), report.torn), ([].as_slice(), None));
        let mut journal = Stepped::new(log, &twin);
        let (again, _) = journal.log.open_stream(id(1)).unwrap();
        assert_eq!(again, a);
        for _ in 0..3 {
            tick += 1;
            while journal.log.append(a, tick, &[&vec![tick as u8; options.record_max()]]).is_err() {
                assert!(journal.write() | journal.chore());
            }
        }
        journal.settle();
        assert_eq!(read_all(&journal, a).len() as u64, tick);
    }
}
