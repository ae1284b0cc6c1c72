//! Relocation: how much of it there is, what it can do with odd frames, and with segments that
//! cannot be read.

use crate::common::mapping::restore;
use crate::common::{SMALL, fill, id, open, payload, places, read_all, try_read_all, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    HEAD, Log, MAP_SEGMENTS, Options, RELOCATION_SHARE, RESERVE_SEGMENTS, ReadError, Refused, Stepped, Stream, check,
};

/// A record that is like no other.
fn record(number: u64, tick: u64) -> Vec<u8> {
    [&tick.to_be_bytes()[..], &payload(number, tick, 292)].concat()
}

const LARGE: Options = Options { segment_bytes: 512 << 10, batch_bytes: 16 << 10, max_bytes: 8 << 20 };

/// A journal of some segments in which one of ten records is of a slow stream; returns it with the
/// last tick.
fn mixed<'a>(twin: &'a Twin, options: Options, bytes: u64) -> (Stepped<'a, Twin>, [Stream; 2], u64) {
    let mut journal = Stepped::new(Log::open(twin, options, 7).unwrap().0, twin);
    let streams = [0, 1].map(|number| journal.log.open_stream(id(number)).unwrap().0);
    let mut tick = 0;
    while journal.log.counters().record_bytes < bytes {
        tick += 1;
        let number = u64::from(tick % 10 != 0);
        let record = record(number, tick);
        until_not_busy(&mut journal, |log| log.append(streams[number as usize], tick, &[&record])).unwrap();
    }
    journal.settle();
    (journal, streams, tick)
}

fn slow(last: u64) -> Vec<(u64, Vec<u8>)> {
    (10..=last).step_by(10).map(|tick| (tick, record(0, tick))).collect()
}

#[test]
fn while_there_is_space_relocation_takes_its_share_and_no_more() {
    let step = u64::from(SMALL.batch_bytes) / 4;
    for scarce in [false, true] {
        let twin = Twin::new();
        let ample = Options { max_bytes: 4 << 20, ..SMALL };
        let (mut journal, [slow_stream, fast], last) = mixed(&twin, ample, 600 << 10);
        let mut earned = 0;
        if scarce {
            // No further file may be made, but those there are suffice for now. What was earned
            // before is forgotten.
            let bound = journal.log.files() * u64::from(SMALL.segment_bytes);
            let options = Options { max_bytes: bound, ..SMALL };
            journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
        } else {
            assert_eq!(journal.log.counters().moved_bytes, 0, "nothing is given up yet");
            earned = 4 * step;
        }
        journal.log.chop(fast, last).unwrap();
        journal.settle();
        let moved = journal.log.counters().moved_bytes;
        assert!(moved <= earned && moved + step >= earned, "{moved} of {earned}");
        let before = journal.log.counters().record_bytes;
        for tick in last + 1..=last + 60 {
            journal.log.append(fast, tick, &[&[1; 100]]).unwrap();
            journal.settle();
        }
        earned += (journal.log.counters().record_bytes - before) / RELOCATION_SHARE;
        let moved = journal.log.counters().moved_bytes;
        assert!(moved > 0 && moved <= earned, "{moved} of {earned}");
        assert_eq!(read_all(&journal, slow_stream), slow(last));
    }
}

#[test]
fn long_records_and_many_in_one_frame_are_relocated_from_wherever_they_lie_in_a_segment() {
    // Of the slow stream: how many records in a frame, of how many bytes, and in how many frames
    // there are any.
    for (together, bytes, every) in [(1, 7000, 20), (12, 900, 60), (3, 100, 200), (1, 4080, 3)] {
        let twin = Twin::new();
        let mut journal = Stepped::new(Log::open(&twin, LARGE, 7).unwrap().0, &twin);
        let streams = [0, 1].map(|number| journal.log.open_stream(id(number)).unwrap().0);
        let mut kept = Vec::new();
        let mut tick = 0;
        for commit in 0..1500u64 {
            let (number, count, length) = if commit % every == 0 { (0, together, bytes) } else { (1, 6, 2000) };
            for _ in 0..count {
                tick += 1;
                let record = payload(number, tick, length);
                until_not_busy(&mut journal, |log| log.append(streams[number as usize], tick, &[&record])).unwrap();
                if number == 0 {
                    kept.push((tick, record));
                }
            }
            if commit % 40 == 0 {
                journal.log.chop(streams[1], tick.saturating_sub(50)).unwrap();
                // What is kept stays below a quarter of the journal.
                let first = kept.len().saturating_sub((2 << 20) / bytes);
                if first > 0 {
                    journal.log.chop(streams[0], kept[first - 1].0).unwrap();
                    kept.drain(..first);
                }
            }
            // What one commit moves is bounded, but for a record that is longer than that.
            let most = (LARGE.batch_bytes / 4).max(bytes as u32 + 10).into();
            let moved = |journal: &Stepped<'_, Twin>| journal.log.counters().moved_bytes;
            loop {
                let before = moved(&journal);
                let more = journal.write() || journal.chore();
                assert!(moved(&journal) - before <= most, "{} of {most}", moved(&journal) - before);
                if !more {
                    break;
                }
            }
        }
        let counters = journal.log.counters();
        assert!(counters.moved_bytes > kept.len() as u64 * 90, "{bytes}: {counters:?}");
        assert!(read_all(&journal, streams[0]) == kept, "{bytes}");
        let (log, report) = Log::open(&twin, LARGE, 7).unwrap();
        assert_eq!(report.damages, []);
        assert!(read_all(&Stepped::new(log, &twin), streams[0]) == kept, "{bytes}");
        assert!(check(&twin).unwrap().is_whole());
    }
}

#[test]
fn a_segment_that_cannot_be_read_stays_as_it_is_and_the_others_are_relocated() {
    for what in ["index", "record", "end"] {
        let twin = Twin::new();
        let options = Options { max_bytes: 4 << 20, ..SMALL };
        let (mut journal, [slow_stream, fast], last) = mixed(&twin, options, 600 << 10);
        let hurt = check(&twin).unwrap().segments[3].clone();
        let bytes = twin.contents(hurt.slot).unwrap();
        let end = HEAD + hurt.bytes as usize;
        let mine: Vec<u64> = slow(last)
            .into_iter()
            .filter(|(_, record)| bytes.windows(record.len()).any(|window| window == record))
            .map(|(tick, _)| tick)
            .collect();
        let place = |tick: u64| {
            let record = record(0, tick);
            bytes.windows(300).position(|window| window == record).unwrap()
        };
        let lost = match what {
            "index" => {
                twin.corrupt(hurt.slot, end as u64, |bytes| bytes.fill(0xff), 40);
                None
            }
            "record" => {
                let middle = mine[mine.len() / 2];
                twin.corrupt(hurt.slot, place(middle) as u64, |bytes| bytes[0] ^= 1, 1);
                Some(middle)
            }
            _ => {
                // The frame that holds the last of them, up to the end of the segment.
                let last = place(mine[mine.len() - 1]);
                let begins = places(&twin, hurt.slot, end).into_iter().map(|(begin, _)| begin);
                let begin = begins.filter(|begin| *begin < last).max().unwrap();
                twin.corrupt(hurt.slot, begin as u64, |bytes| bytes.fill(0), end - begin);
                Some(mine[mine.len() - 1])
            }
        };
        let before = twin.contents(hurt.slot).unwrap();
        journal.log.chop(fast, last).unwrap();
        for tick in last + 1..last + 3000 {
            until_not_busy(&mut journal, |log| log.append(fast, tick, &[&record(1, tick)])).unwrap();
            if tick % 50 == 0 {
                journal.log.chop(fast, tick - 20).unwrap();
                journal.settle();
            }
        }
        assert!(journal.log.counters().moved_bytes > 30_000, "{what}: {:?}", journal.log.counters());
        assert!(twin.contents(hurt.slot).unwrap() == before, "{what}: it stays");
        assert!(journal.log.files() <= 20, "{what}: the others are used again, {} files", journal.log.files());
        match lost {
            None => assert_eq!(read_all(&journal, slow_stream), slow(last)),
            Some(tick) => {
                let error = try_read_all(&journal, slow_stream, 1).unwrap_err();
                let ReadError::Damaged(damage) = error else { panic!("{error}") };
                assert_eq!(damage.file, Some(hurt.slot));
                let (_, after, upto) = damage.lost.unwrap();
                assert!(after < tick && tick <= upto && upto <= mine[mine.len() - 1], "{what}: {damage}");
                // When it is chopped, the rest of the segment is relocated or given up.
                journal.log.chop(slow_stream, upto).unwrap();
                journal.settle();
                let rest: Vec<_> = slow(last).into_iter().filter(|(tick, _)| *tick > upto).collect();
                assert_eq!(read_all(&journal, slow_stream), rest);
            }
        }
    }
}

#[test]
fn a_copy_that_is_damaged_takes_no_doubt_away() {
    let twin = Twin::new();
    let (mut journal, [slow_stream, fast], last) = mixed(&twin, Options { max_bytes: 4 << 20, ..SMALL }, 600 << 10);
    let tail = |journal: &mut Stepped<'_, Twin>| {
        let cut = journal.log.begin_cut();
        journal.log.end_cut();
        cut.files().last().map(|file| (file.slot, file.used)).unwrap()
    };
    let (slot, begin) = tail(&mut journal);
    journal.log.append(fast, last + 1, &[&record(1, last + 1)]).unwrap();
    while journal.write() {}
    let (same, end) = tail(&mut journal);
    journal.log.chop(fast, last).unwrap();
    journal.settle();
    assert_eq!((slot, slot), (same, tail(&mut journal).0));
    // A frame is lost, and behind it is a copy of records of the slow stream, damaged too; those
    // are still where they were before.
    let bytes = twin.contents(slot).unwrap();
    let copied = slow(last).into_iter().find_map(|(_, record)| {
        let behind = &bytes[end as usize..];
        behind.windows(record.len()).position(|window| window == record)
    });
    twin.corrupt(slot, begin, |bytes| bytes.fill(0), (end - begin) as usize);
    twin.corrupt(slot, end + copied.expect("some were copied") as u64, |bytes| bytes[0] ^= 1, 1);
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
    let doubts = report.damages.iter().filter_map(|damage| damage.lost.filter(|(.., to)| *to == u64::MAX));
    assert!(doubts.map(|(of, ..)| of).eq([id(0), id(1)]), "{report:?}");
    assert!(log.check_stream(slow_stream).is_err());
}

/// Fills a journal with two streams, of which the first has one record of five; returns the last
/// tick.
fn fill_two(journal: &mut Stepped<'_, Twin>, streams: [Stream; 2]) -> u64 {
    for tick in 1.. {
        let stream = streams[usize::from(tick % 5 > 0)];
        match until_not_busy(journal, |log| log.append(stream, tick, &[&record(1, tick)])) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Refused::Full);
                journal.settle();
                return tick - 1;
            }
        }
    }
    unreachable!("it is full before the numbers end")
}

#[test]
fn a_full_journal_is_not_called_full_while_a_chop_or_relocation_gives_space_back() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let streams = [0, 1].map(|number| journal.log.open_stream(id(number)).unwrap().0);
    let last = fill_two(&mut journal, streams);
    let append = |log: &mut Log, tick| log.append(streams[1], tick, &[&record(1, tick)]);
    assert_eq!(append(&mut journal.log, last + 1), Err(Refused::Full));
    journal.log.chop(streams[1], last).unwrap();
    assert_eq!(append(&mut journal.log, last + 1), Err(Refused::Busy), "a chop waits");
    let step = journal.log.next_write().unwrap();
    assert_eq!(append(&mut journal.log, last + 1), Err(Refused::Busy), "a chop is written");
    whimbrel_journal::perform_write(&twin, &step, &mut Vec::new()).unwrap();
    journal.log.written(step, Ok(()));
    assert_eq!(append(&mut journal.log, last + 1), Err(Refused::Busy), "a part of each segment is to be moved");
    let mut tick = last;
    while until_not_busy(&mut journal, |log| append(log, tick + 1)).is_ok() {
        tick += 1;
    }
    journal.settle();
    assert!(tick - last > last / 2, "{} records instead of {}", tick - last, last / 5 * 4);
    let kept: Vec<_> = (5..=last).step_by(5).map(|tick| (tick, record(1, tick))).collect();
    assert!(read_all(&journal, streams[0]) == kept && read_all(&open(&twin), streams[0]) == kept);
}

#[test]
fn relocation_goes_on_when_nothing_but_the_reserve_is_left() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let streams = [0, 1].map(|number| journal.log.open_stream(id(number)).unwrap().0);
    let (of_map, _) = journal.log.open_stream(id(100)).unwrap();
    let (mut map, _) = restore(&journal, of_map, u64::MAX);
    let last = fill_two(&mut journal, streams);
    let mut puts = 0u32;
    while until_not_busy(&mut journal, |log| map.put(log, &puts.to_be_bytes(), &[1; 500])).is_ok() {
        puts += 1;
    }
    journal.settle();
    let files = journal.log.files();
    let used = |journal: &mut Stepped<'_, Twin>| {
        let cut = journal.log.begin_cut();
        journal.log.end_cut();
        cut.files().count() as u64
    };
    assert_eq!(used(&mut journal), files - u64::from(RESERVE_SEGMENTS));
    // Each segment but those of the map keeps a fifth, and goes on giving back until there is more
    // than is kept.
    journal.log.chop(streams[1], last).unwrap();
    journal.settle();
    assert!(used(&mut journal) < files - u64::from(RESERVE_SEGMENTS + MAP_SEGMENTS), "{}", used(&mut journal));
    let kept: Vec<_> = (5..=last).step_by(5).map(|tick| (tick, record(1, tick))).collect();
    assert!(read_all(&journal, streams[0]) == kept && read_all(&open(&twin), streams[0]) == kept);
    assert!(fill(&mut journal, streams[1], last) > last + 500);
}
