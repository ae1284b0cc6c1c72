//! Space is bounded, given back, and its end is no disaster.

use crate::common::{SMALL, fill, id, open, payload, read_all, until_not_busy};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{
    Log, MAP_SEGMENTS, Need, Options, RELOCATION_SHARE, RESERVE_SEGMENTS, Refused, Stepped, check, perform_chore,
};

fn chop_and_fill_again(twin: &Twin, bound: u64, mut give_room: impl FnMut(&mut Stepped<'_, Twin>)) {
    let mut journal = open(twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let mut last = fill(&mut journal, a, 0);
    assert!(last * 500 > bound / 2, "only {last} records in {bound} bytes");
    for _ in 0..20 {
        assert_eq!(journal.log.append(a, last + 1, &[]), Err(Refused::Full));
        assert_eq!(journal.log.poisoned(), None);
        assert_eq!(read_all(&journal, a).last().map(|(tick, _)| *tick), Some(last));
        journal = open(twin);
        give_room(&mut journal);
        let keep = last - 20;
        journal.log.reserve(a, last + 1000).unwrap();
        journal.log.chop(a, keep).unwrap();
        journal.settle();
        assert_eq!(read_all(&journal, a).len(), 20);
        let before = last;
        last = fill(&mut journal, a, last);
        assert!(last > before + 100, "space came back");
    }
}

#[test]
fn a_full_journal_refuses_takes_chops_and_goes_on() {
    chop_and_fill_again(&Twin::new(), SMALL.max_bytes, |_| {});
}

#[test]
fn a_full_disk_refuses_takes_chops_and_goes_on() {
    let twin = Twin::new();
    twin.set_room(Some(750 << 10));
    chop_and_fill_again(&twin, 500 << 10, |_| {});
}

#[test]
fn a_full_disk_is_tried_again() {
    let twin = Twin::new();
    twin.set_room(Some(400 << 10));
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let last = fill(&mut journal, a, 0);
    twin.set_room(Some(800 << 10));
    assert_eq!(journal.log.append(a, last + 1, &[]), Err(Refused::Full));
    assert!(journal.log.wants_retry());
    journal.log.retry_space();
    assert!(fill(&mut journal, a, last) > last + 200);
}

#[test]
fn reservations_alone_never_fill_a_full_journal() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let last = fill(&mut journal, a, 0);
    for upto in 1..20_000 {
        journal.log.reserve(a, last + upto).unwrap();
        journal.settle();
    }
    assert_eq!(read_all(&journal, a).len() as u64, last);
    let journal = open(&twin);
    assert_eq!(journal.log.info(a).unwrap().reserved, last + 19_999);
}

#[test]
fn data_does_not_take_the_room_that_changes_make_for_themselves() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let (b, _) = journal.log.open_stream(id(2)).unwrap();
    let mut last = fill(&mut journal, a, 0);
    for round in 1..400 {
        // What is changed may need a new segment; data must not fill that one.
        journal.log.reserve(b, round).unwrap();
        while journal.write() {}
        last = fill(&mut journal, a, last);
    }
    journal.log.chop(a, last - 20).unwrap();
    journal.settle();
    assert!(fill(&mut journal, a, last) > last + 100, "space came back");
    assert_eq!(open(&twin).log.info(b).unwrap().reserved, 399);
}

#[test]
fn one_slow_stream_does_not_pin_old_segments() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (slow, _) = journal.log.open_stream(id(0)).unwrap();
    let (fast, _) = journal.log.open_stream(id(1)).unwrap();
    let mut kept = Vec::new();
    for tick in 1..60_000u64 {
        let (stream, bytes) =
            if tick % 200 == 0 { (slow, payload(0, tick, 300)) } else { (fast, payload(1, tick, 300)) };
        loop {
            match journal.log.append(stream, tick, &[&bytes]) {
                Ok(_) => break,
                Err(Refused::Busy) => assert!(journal.write() | journal.chore()),
                Err(error) => panic!("{error} at tick {tick}"),
            }
        }
        if tick % 200 == 0 {
            kept.push((tick, bytes));
        }
        if tick % 100 == 0 {
            journal.log.chop(fast, tick - 50).unwrap();
            journal.settle();
            assert!(journal.log.files() * u64::from(SMALL.segment_bytes) <= SMALL.max_bytes);
        }
    }
    let counters = journal.log.counters();
    assert!(counters.frame_bytes > 15 * SMALL.max_bytes, "the log went round many times: {counters:?}");
    assert!(
        counters.moved_bytes > 0 && counters.moved_bytes * RELOCATION_SHARE <= counters.record_bytes,
        "{counters:?}"
    );
    assert!(journal.log.files() < 16, "{} files for {} bytes", journal.log.files(), kept.len() * 300);
    assert_eq!(read_all(&journal, slow), kept);
    assert_eq!(read_all(&open(&twin), slow), kept);
}

#[test]
fn a_copy_that_ends_while_no_segment_is_written_keeps_the_states_of_the_streams() {
    for fate in [Fate::Old, Fate::New, Fate::Garbage] {
        let twin = Twin::new();
        let mut journal = open(&twin);
        let (a, _) = journal.log.open_stream(id(1)).unwrap();
        let mut tick = 0;
        let mut append = |journal: &mut Stepped<'_, Twin>| {
            tick += 1;
            until_not_busy(journal, |log| log.append(a, tick, &[&payload(1, tick, 3000)])).unwrap();
            tick
        };
        // The first file would be taken first.
        let cut = journal.log.begin_cut();
        // Appended and chopped at once, until the next write is the end of the segment.
        loop {
            let last = append(&mut journal);
            journal.log.chop(a, last).unwrap();
            let before = journal.log.counters();
            assert!(journal.write());
            if journal.log.counters() == before {
                break;
            }
        }
        let last = journal.log.info(a).unwrap().last;
        journal.log.end_cut();
        drop(cut);
        // A crash in the middle of the beginning of the next one.
        twin.fail_from(twin.operations() + 2);
        assert!(journal.write());
        assert!(journal.log.poisoned().is_some(), "it was not synced");
        let left = twin.crashed(|| fate);
        let mut journal = open(&left);
        let info = journal.log.info(a).unwrap();
        assert_eq!((info.last, info.chopped), (last, last), "{fate:?}");
        // It goes on in another segment, not behind the end of this one.
        journal.log.append(a, last + 1, &[b"more"]).unwrap();
        journal.settle();
        assert_eq!(read_all(&journal, a), [(last + 1, b"more".to_vec())]);
        assert_eq!(read_all(&open(&left), a), [(last + 1, b"more".to_vec())]);
        assert!(check(&left).unwrap().is_whole());
    }
}

#[test]
fn what_nobody_needs_is_removed() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let last = fill(&mut journal, a, 0);
    journal.log.chop(a, last).unwrap();
    journal.settle();
    // One that is written, what is kept, one more that there always is, and eight.
    assert_eq!(journal.log.files(), u64::from(RESERVE_SEGMENTS + MAP_SEGMENTS) + 10);
}

#[test]
fn what_is_removed_or_free_at_the_opening_is_used_again() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let most = fill(&mut journal, a, 0);
    journal.log.remove(a).unwrap();
    journal.settle();
    let (b, _) = journal.log.open_stream(id(2)).unwrap();
    let again = fill(&mut journal, b, 0);
    assert!(again >= most - most / 20, "{again} of {most}");
    journal.log.chop(b, again - 10).unwrap();
    // The chop is not told by the newest segment, but by what that one says of the streams.
    for tick in again + 1..=again + 150 {
        until_not_busy(&mut journal, |log| log.append(b, tick, &[&payload(1, tick, 500)])).unwrap();
    }
    while journal.write() {}
    let mut journal = open(&twin);
    let again = again + 150;
    // A copy that ends gives back what is not used, and nothing that is used.
    journal.log.append(b, again + 1, &[&payload(1, again + 1, 500)]).unwrap();
    journal.settle();
    let cut = journal.log.begin_cut();
    assert!(cut.files().count() <= 5, "the others are free");
    journal.log.end_cut();
    let last = fill(&mut journal, b, again + 1);
    assert!(last - again >= most - most / 3, "{} of {most}", last - again);
    let records: Vec<_> = (again - 159..=last).map(|tick| (tick, payload(1, tick, 500))).collect();
    assert!(read_all(&journal, b) == records && read_all(&open(&twin), b) == records);
}

#[test]
fn a_file_that_is_being_made_or_removed_counts() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    assert_eq!(journal.log.files(), 1);
    let chore = journal.log.next_chore().unwrap();
    assert_eq!(journal.log.files(), 2);
    assert_eq!(journal.log.next_chore(), None, "one at a time");
    journal.log.chore_done(perform_chore(&twin, chore));
    assert_eq!(journal.log.files(), 2);
}

#[test]
fn who_drives_a_journal_is_told_when_to_look_for_chores_and_when_to_try_again() {
    let twin = Twin::new();
    twin.set_room(Some(8 * u64::from(SMALL.segment_bytes)));
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    assert!(!journal.log.wants_chore() && !journal.log.wants_retry());
    let last = fill(&mut journal, a, 0);
    journal.log.wants_chore();
    assert_eq!(journal.log.append(a, last + 1, &[]), Err(Refused::Full));
    assert!(journal.log.wants_retry());
    assert!(journal.log.wants_chore() && !journal.log.wants_chore(), "once");
    // With enough files, whether another can be made does not matter.
    journal.log.chop(a, last).unwrap();
    while journal.write() {}
    assert!(!journal.log.wants_retry());
}

#[test]
fn whatever_is_accepted_finds_its_place_also_where_there_is_little() {
    for segments in 1..5 {
        for seed in 0..10 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let twin = Twin::new();
            twin.set_room(Some(segments * u64::from(SMALL.segment_bytes)));
            let mut journal = open(&twin);
            let streams = [0, 1, 2].map(|number| journal.log.open_stream(id(number)).unwrap().0);
            let (mut ticks, mut ends) = ([0; 3], 0);
            // With more files, changes go round in the reserve without an end.
            let (turns, ends_at) = if segments > 2 { (5_000, 0) } else { (50_000, 10) };
            for _ in 0..turns {
                let number = rng.usize(0..3);
                let (stream, tick) = (streams[number], ticks[number] + 1);
                let log = &mut journal.log;
                if rng.u32(0..100) < 40 {
                    let appended = log.append(stream, tick, &[&vec![1; rng.usize(0..3900)]]);
                    ticks[number] = if appended.is_ok() { tick } else { tick - 1 };
                } else {
                    // Changes that give nothing back, so that the reserve is used up, too.
                    let asked = log.require(Need { changes: 1, ..Need::default() });
                    let upto = log.info(stream).map_or(0, |info| info.reserved) + 1 + rng.u64(0..1 << 20);
                    let done = log.reserve(stream, upto).map(drop);
                    assert!(done == Ok(()) || done == Err(Refused::Busy) || asked == done, "{asked:?}, {done:?}");
                    assert!(asked.is_err() || done.is_ok(), "{asked:?}, {done:?}");
                    ends += u32::from(done == Err(Refused::Full));
                }
                match rng.u32(0..10) {
                    0..4 => drop(journal.write()),
                    4 => drop(journal.chore()),
                    _ => {}
                }
                if ends_at > 0 && ends >= ends_at {
                    break;
                }
            }
            assert!(ends >= ends_at, "{segments} segments, seed {seed}: the end is told");
            journal.settle();
            assert_eq!(journal.log.committed(), journal.log.accepted(), "{segments} segments, seed {seed}");
            assert_eq!(journal.log.poisoned(), None);
            let again = open(&twin);
            for stream in streams {
                assert_eq!(again.log.info(stream), journal.log.info(stream));
            }
        }
    }
}

#[test]
fn what_is_said_of_many_streams_fits_behind_their_frames() {
    // As long as it can be: the ticks are far apart, and every stream is in every part of the
    // segment.
    let options = Options { segment_bytes: 1 << 20, batch_bytes: 16 << 10, max_bytes: 64 << 20 };
    for bytes in [1, 20, 45, 70, 90, 110] {
        let twin = Twin::new();
        let mut journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
        let count = u64::from(options.streams_max());
        let streams: Vec<_> = (0..count)
            .map(|number| until_not_busy(&mut journal, |log| log.open_stream(id(number))).unwrap().0)
            .collect();
        journal.settle();
        for tick in (1..128).map(|number| number << 57) {
            for stream in &streams {
                until_not_busy(&mut journal, |log| log.append(*stream, tick, &[&vec![1; bytes]])).unwrap();
            }
            journal.settle();
            assert_eq!(journal.log.poisoned(), None);
        }
        assert!(journal.log.counters().segments > 0);
        assert!(check(&twin).unwrap().is_whole());
        let (log, report) = Log::open(&twin, options, 7).unwrap();
        assert_eq!(report.damages, []);
        let again = Stepped::new(log, &twin);
        for stream in streams.iter().step_by(10) {
            assert_eq!(read_all(&again, *stream).len(), 127);
        }
    }
}

#[test]
fn the_first_opening_reads_little_whatever_is_in_the_log() {
    let twin = Twin::new();
    let options = Options { segment_bytes: 1 << 20, batch_bytes: 16 << 10, max_bytes: 64 << 20 };
    let mut journal = Stepped::new(Log::open(&twin, options, 1).unwrap().0, &twin);
    let streams: Vec<_> = (0..40).map(|n| journal.log.open_stream(id(n)).unwrap().0).collect();
    for tick in 1..100_000u64 {
        let stream = streams[(tick % 40) as usize];
        while journal.log.append(stream, tick, &[&payload(1, tick, 400)]).is_err() {
            assert!(journal.write() | journal.chore());
        }
    }
    journal.settle();
    let before = twin.bytes_read();
    let (log, report) = Log::open(&twin, options, 1).unwrap();
    let read = twin.bytes_read() - before;
    assert_eq!(read, report.bytes_read);
    let longest_frame = 2 * u64::from(options.batch_bytes);
    let piece = 256 << 10;
    let bound = report.tail_bytes + longest_frame + 2 * piece + 4096 * report.files as u64;
    assert!(report.files > 40 && read <= bound, "{read} bytes of {} files, bound {bound}", report.files);
    assert_eq!(read_all(&Stepped::new(log, &twin), streams[7]).len(), 2500);
}

#[test]
fn streams_that_do_not_fit_into_the_head_are_all_found() {
    let twin = Twin::new();
    let options = Options { segment_bytes: 256 << 10, batch_bytes: 16 << 10, max_bytes: 16 << 20 };
    let mut journal = Stepped::new(Log::open(&twin, options, 1).unwrap().0, &twin);
    let count = options.streams_max() as u64;
    for number in 0..=count {
        loop {
            match journal.log.open_stream(id(number)) {
                Ok(_) => break,
                Err(Refused::Busy) => assert!(journal.write() | journal.chore()),
                Err(error) => {
                    assert_eq!((number, error), (count, Refused::TooManyStreams(count as u32)));
                    break;
                }
            }
        }
    }
    assert_eq!(journal.log.streams().count() as u64, count, "one more is refused");
    let streams: Vec<_> = journal.log.streams().map(|(_, stream)| stream).collect();
    // Far apart, so that what is said of each stream is long.
    for tick in (1..40).map(|number| number << 57) {
        for stream in &streams {
            while journal.log.append(*stream, tick, &[&payload(1, tick, 50)]).is_err() {
                assert!(journal.write() | journal.chore());
            }
        }
    }
    journal.settle();
    let before = twin.bytes_read();
    let (log, report) = Log::open(&twin, options, 1).unwrap();
    assert_eq!(report.damages, []);
    assert_eq!(report.bytes_read, twin.bytes_read() - before);
    assert!(check(&twin).unwrap().is_whole());
    let journal = Stepped::new(log, &twin);
    for stream in streams {
        assert_eq!(read_all(&journal, stream).len(), 39);
    }
}
