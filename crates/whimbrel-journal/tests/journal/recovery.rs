//! What opening says of each thing that it finds, down to the file and the offset, and what it does
//! with files that say nothing.

use std::collections::BTreeMap;

use crate::common::{SMALL, id, open, payload, places, try_read_all, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    Damage, HEAD, Log, OpenError, Options, ReadError, Refused, Report, SECTOR, Stepped, Storage, Stream, Tick, check,
};

const FIRST_COPY: &str = "the first copy of a frame's header is damaged";
const BOTH_COPIES: &str = "a frame is damaged in both copies of its header";
const HEADER: &str = "the header of the file is damaged";
const SUMMARY: &str = "the summary of the file is damaged";
const UNNAMED: &str = "nothing in the file says what it is; it is left alone";
const HOLE: &str = "no segment holds these records any more";
const DOUBT: &str = "a frame is lost that may have held the end of this stream";

/// Where the last durable frame ends: the file, and the offset in it.
fn tail(journal: &mut Stepped<'_, Twin>) -> (u32, u64) {
    let cut = journal.log.begin_cut();
    journal.log.end_cut();
    cut.files().last().map(|file| (file.slot, file.used)).expect("a segment is written")
}

/// Appends a record of some bytes, alone in its frame; returns the place of the frame, if no new
/// segment was begun for it.
fn alone(journal: &mut Stepped<'_, Twin>, (stream, number): (Stream, u64), tick: Tick) -> Option<(u32, u64, u64)> {
    let (before, begin) = tail(journal);
    journal.log.append(stream, tick, &[&payload(number, tick, 200)]).unwrap();
    journal.settle();
    let (slot, end) = tail(journal);
    (slot == before).then_some((slot, begin, end))
}

/// A journal with three streams in one segment, and the frames of the records 1, 2, … of these
/// numbers.
fn frames(twin: &Twin, numbers: &[u64]) -> ([Stream; 3], Vec<(u32, u64, u64)>) {
    let mut journal = open(twin);
    let streams = [0, 1, 2].map(|number| journal.log.open_stream(id(number)).unwrap().0);
    journal.settle();
    let place = |(tick, number): (u64, &u64)| {
        alone(&mut journal, (streams[*number as usize], *number), tick).expect("they fit into one segment")
    };
    (streams, (1..).zip(numbers).map(place).collect())
}

fn reopen(twin: &Twin) -> (Stepped<'_, Twin>, Report) {
    let (log, report) = Log::open(twin, SMALL, 7).unwrap();
    (Stepped::new(log, twin), report)
}

fn noted(file: u32, offset: u64, what: &'static str) -> Damage {
    Damage { file: Some(file), offset, lost: None, what }
}

fn hole(number: u64, after: Tick, last: Tick, what: &'static str) -> Damage {
    Damage { file: None, offset: 0, lost: Some((id(number), after, last)), what }
}

/// A journal with one stream in several sealed segments and one that is written, and for each tick
/// the file that it is in.
fn sealed(twin: &Twin) -> (Stream, BTreeMap<Tick, u32>) {
    let mut journal = open(twin);
    let (stream, _) = journal.log.open_stream(id(1)).unwrap();
    let mut files = BTreeMap::new();
    for tick in 1..=800 {
        until_not_busy(&mut journal, |log| log.append(stream, tick, &[&payload(1, tick, 300)])).unwrap();
        if tick % 4 == 0 {
            journal.settle();
            let (slot, _) = tail(&mut journal);
            files.extend((tick - 3..=tick).map(|tick| (tick, slot)));
        }
    }
    (stream, files)
}

fn all(ticks: impl Iterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
    ticks.map(|tick| (tick, payload(1, tick, 300))).collect()
}

fn read(journal: &Stepped<'_, Twin>, stream: Stream) -> Result<Vec<(u64, Vec<u8>)>, ReadError> {
    try_read_all(journal, stream, usize::MAX)
}

#[test]
fn a_first_header_that_is_damaged_is_named_and_nothing_is_lost() {
    let twin = Twin::new();
    let (streams, places) = frames(&twin, &[0, 1, 0, 1]);
    let (slot, begin, _) = places[2];
    twin.corrupt(slot, begin, |bytes| bytes.fill(0xff), 16);
    let (journal, report) = reopen(&twin);
    assert_eq!((report.damages, report.torn), (vec![noted(slot, begin, FIRST_COPY)], None));
    assert_eq!([0, 1].map(|n| read(&journal, streams[n]).unwrap().len()), [2, 2]);
    assert!(streams.iter().all(|stream| journal.log.check_stream(*stream).is_ok()));
}

#[test]
fn a_lost_frame_is_a_hole_for_who_goes_on_behind_it_and_a_doubt_for_who_does_not() {
    let twin = Twin::new();
    let (streams, places) = frames(&twin, &[0, 1, 2, 0, 1, 0]);
    let (slot, begin, end) = places[3];
    twin.corrupt(slot, begin, |bytes| bytes.fill(0), (end - begin) as usize);
    for _ in 0..2 {
        let (journal, report) = reopen(&twin);
        let expected = [noted(slot, begin, BOTH_COPIES), hole(0, 1, 4, HOLE), hole(2, 3, Tick::MAX, DOUBT)];
        assert_eq!(report.damages, expected, "the stream that lost nothing is not concerned");
        assert_eq!(streams.map(|stream| journal.log.check_stream(stream).is_ok()), [false, true, false]);
    }
    // What came between the two openings does not take the doubt away.
    let mut journal = reopen(&twin).0;
    journal.log.reserve(streams[1], 1000).unwrap();
    journal.settle();
    let report = reopen(&twin).1;
    assert!(report.damages.contains(&hole(2, 3, Tick::MAX, DOUBT)), "{report:?}");
    // Neither does a chop of what is there, but one of what may be lost.
    for (upto, doubtful) in [(2, true), (3, true), (4, false)] {
        journal.log.chop(streams[2], upto).unwrap();
        journal.settle();
        assert_eq!(journal.log.check_stream(streams[2]).is_err(), doubtful, "{upto}");
        let report = reopen(&twin).1;
        assert_eq!(report.damages.iter().any(|damage| damage.what == DOUBT), doubtful, "{upto}: {report:?}");
    }
}

#[test]
fn when_one_damage_of_a_stream_is_chopped_the_next_one_stops_it() {
    let twin = Twin::new();
    let (streams, places) = frames(&twin, &[0, 0, 0, 0, 0, 0]);
    for (slot, begin, end) in [places[1], places[3]] {
        twin.corrupt(slot, begin, |bytes| bytes.fill(0), (end - begin) as usize);
    }
    let (mut journal, _) = reopen(&twin);
    let stopped = |journal: &Stepped<'_, Twin>| journal.log.check_stream(streams[0]);
    assert_eq!(stopped(&journal), Err(Refused::Stopped(hole(0, 1, 2, HOLE))));
    for (upto, left) in [(2, Err(Refused::Stopped(hole(0, 3, 4, HOLE)))), (4, Ok(()))] {
        journal.log.chop(streams[0], upto).unwrap();
        journal.settle();
        assert_eq!(stopped(&journal), left);
    }
}

#[test]
fn what_is_wrong_with_a_file_that_nobody_needs_is_not_told() {
    let twin = Twin::new();
    let (stream, files) = sealed(&twin);
    let (mut journal, _) = reopen(&twin);
    journal.log.chop(stream, 700).unwrap();
    journal.settle();
    let slot = files[&300];
    for offset in [24, SECTOR as u64 + 4] {
        let twin = twin.crashed(|| unreachable!("everything is synced"));
        twin.corrupt(slot, offset, |bytes| bytes[0] ^= 1, 1);
        let (journal, report) = reopen(&twin);
        assert_eq!(report.damages, [], "{offset}");
        assert_eq!(journal.log.files(), twin.slots().unwrap().len() as u64);
    }
}

#[test]
fn a_lost_frame_before_one_with_only_its_second_header_is_not_passed_over() {
    let twin = Twin::new();
    let (streams, places) = frames(&twin, &[0, 1, 0, 1, 0]);
    let ((slot, begin, end), (_, next, _)) = (places[2], places[3]);
    twin.corrupt(slot, begin, |bytes| bytes.fill(0xff), (end - begin) as usize);
    twin.corrupt(slot, next, |bytes| bytes.fill(0xff), 16);
    let (journal, report) = reopen(&twin);
    let expected = [
        noted(slot, begin, BOTH_COPIES),
        noted(slot, next, FIRST_COPY),
        hole(0, 1, 3, HOLE),
        hole(2, 0, Tick::MAX, DOUBT),
    ];
    assert_eq!(report.damages, expected);
    assert_eq!(read(&journal, streams[1]).unwrap().len(), 2);
    let check = check(&twin).unwrap();
    let places: Vec<u64> = check.segments[0].wrong.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(places, [begin, next]);
}

#[test]
fn a_directory_that_would_reach_beyond_its_frame_is_none() {
    let twin = Twin::new();
    let (streams, places) = frames(&twin, &[0, 0]);
    let (slot, begin, end) = places[1];
    let length = (end - begin) as u32;
    let header = [length.to_le_bytes(), (length - 1).to_le_bytes()].concat();
    // Of a journal that is open, and by opening.
    let mut journal = open(&twin);
    let (b, _) = journal.log.open_stream(id(1)).unwrap();
    twin.corrupt(slot, begin, |bytes| bytes.copy_from_slice(&header), header.len());
    assert_eq!(read(&journal, streams[0]).unwrap().len(), 2);
    assert_eq!(reopen(&twin).1.damages, [], "nothing follows, so it is a torn end");
    journal.log.append(b, 1, &[b"what follows"]).unwrap();
    journal.settle();
    assert_eq!(read(&journal, streams[0]).unwrap().len(), 2);
    let (journal, report) = reopen(&twin);
    assert_eq!(report.damages, [noted(slot, begin, FIRST_COPY)]);
    assert_eq!(read(&journal, streams[0]).unwrap().len(), 2);
}

#[test]
fn a_damaged_header_or_summary_of_a_file_is_named_and_nothing_is_lost() {
    let pristine = Twin::new();
    let (stream, files) = sealed(&pristine);
    let slot = files[&300];
    let flip = |twin: &Twin, offset| twin.corrupt(slot, offset, |bytes| bytes[0] ^= 1, 1);
    for (offsets, expected) in [
        (vec![24], vec![HEADER]),
        (vec![0], vec![HEADER]),
        (vec![500], vec![HEADER]),
        (vec![SECTOR as u64 + 4], vec![SUMMARY]),
        (vec![SECTOR as u64 + 50], vec![SUMMARY]),
    ] {
        let twin = pristine.crashed(|| unreachable!("everything is synced"));
        offsets.iter().for_each(|offset| flip(&twin, *offset));
        let (journal, report) = reopen(&twin);
        let expected: Vec<_> = expected.into_iter().map(|what| noted(slot, 0, what)).collect();
        assert_eq!((report.damages, report.torn), (expected, None), "{offsets:?}");
        assert!(read(&journal, stream) == Ok(all(1..=800)), "{offsets:?}");
    }
}

#[test]
fn what_is_said_of_a_segment_that_is_sealed_is_used_also_if_it_is_the_newest() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let [a, b] = [1, 2].map(|number| journal.log.open_stream(id(number)).unwrap().0);
    let mut tick = 0;
    loop {
        tick += 1;
        journal.log.append(a, tick, &[&payload(1, tick, 300)]).unwrap();
        if tick == 100 {
            journal.log.append(b, 1, &[b"far behind"]).unwrap();
        }
        while journal.chore() {}
        let before = journal.log.counters();
        assert!(journal.write());
        if journal.log.counters() == before {
            break;
        }
    }
    // It is sealed, and the next one is not begun.
    let twin = twin.crashed(|| unreachable!("everything is synced"));
    let report = check(&twin).unwrap();
    assert!(report.segments.len() == 1 && report.segments[0].sealed);
    let (journal, report) = reopen(&twin);
    assert_eq!((report.damages, report.torn), (vec![], None));
    let before = twin.bytes_read();
    assert_eq!(read(&journal, b), Ok(vec![(1, b"far behind".to_vec())]));
    let read = twin.bytes_read() - before;
    assert!(read < 16 << 10, "{read} bytes of {}", SMALL.segment_bytes);
}

#[test]
fn what_looks_like_the_beginning_of_a_frame_at_the_end_of_a_file_is_none() {
    let twin = Twin::new();
    let (stream, files) = sealed(&twin);
    let slot = files[&300];
    // Without its summary the file is walked to its end, where the directory would have no room.
    twin.corrupt(slot, SECTOR as u64 + 4, |bytes| bytes[0] ^= 1, 1);
    let header = [SECTOR as u32, SECTOR as u32 - 1].map(u32::to_le_bytes).concat();
    let last = u64::from(SMALL.segment_bytes) - SECTOR as u64;
    twin.corrupt(slot, last, |bytes| bytes.copy_from_slice(&header), header.len());
    let (journal, report) = reopen(&twin);
    assert_eq!(report.damages, [noted(slot, 0, SUMMARY)]);
    assert!(read(&journal, stream) == Ok(all(1..=800)));
}

#[test]
fn a_lost_frame_of_a_file_with_a_damaged_summary_concerns_only_whose_records_it_held() {
    let twin = Twin::new();
    let (stream, files) = sealed(&twin);
    let slot = files[&300];
    let (mut journal, _) = reopen(&twin);
    let (other, _) = journal.log.open_stream(id(2)).unwrap();
    journal.log.append(other, 1, &[b"one"]).unwrap();
    journal.settle();
    let places = places(&twin, slot, 60_000);
    let (begin, length) = places.into_iter().find(|(begin, _)| *begin > 30_000).unwrap();
    twin.corrupt(slot, SECTOR as u64 + 4, |bytes| bytes.fill(0xff), 4);
    twin.corrupt(slot, begin as u64, |bytes| bytes.fill(0xff), length);
    let (journal, report) = reopen(&twin);
    let [summary, lost] = &report.damages[..] else { panic!("{report:?}") };
    assert_eq!(*summary, noted(slot, 0, SUMMARY));
    let Some((of, after, last)) = lost.lost else { panic!("{report:?}") };
    assert!(of == id(1) && last - after <= 12 && files[&after] == slot && files[&last] == slot, "{report:?}");
    assert_eq!(read(&journal, other).unwrap().len(), 1);
    assert!(journal.log.check_stream(other).is_ok() && journal.log.check_stream(stream).is_err());
}

#[test]
fn the_file_that_is_written_is_found_without_its_header_among_others() {
    let twin = Twin::new();
    let (stream, files) = sealed(&twin);
    let (first, newest) = (files[&1], files[&800]);
    assert!(first < newest, "the one that is not it is looked at first");
    for slot in [first, newest] {
        twin.corrupt(slot, 0, |bytes| bytes.fill(0), HEAD);
    }
    let gone = files.iter().filter(|(_, slot)| **slot == first).map(|(tick, _)| *tick).max().unwrap();
    let (mut journal, report) = reopen(&twin);
    let lost = Damage { lost: Some((id(1), 0, gone)), ..hole(1, 0, gone, HOLE) };
    assert_eq!(report.damages, [noted(newest, 0, HEADER), lost, noted(first, 0, UNNAMED)]);
    // It goes on, and what says nothing of itself is not used for it.
    let left = twin.contents(first);
    journal.log.chop(stream, gone).unwrap();
    journal.settle();
    for tick in 801..=1600 {
        until_not_busy(&mut journal, |log| log.append(stream, tick, &[&payload(1, tick, 300)])).unwrap();
    }
    journal.settle();
    assert!(twin.contents(first) == left, "it is left alone");
    let (journal, report) = reopen(&twin);
    assert_eq!(report.damages, [], "the header is written anew, and now that nothing is missing, the other is free");
    assert!(read(&journal, stream) == Ok(all(gone + 1..=1600)));
}

#[test]
fn a_file_with_something_in_its_head_and_no_first_frame_is_left_alone_while_something_is_missing() {
    let twin = Twin::new();
    let (_, files) = sealed(&twin);
    let slot = files[&300];
    twin.corrupt(slot, 0, |bytes| bytes.fill(0xff), HEAD);
    twin.corrupt(slot, HEAD as u64, |bytes| bytes.fill(0), HEAD);
    let (_, report) = reopen(&twin);
    assert_eq!(report.damages.last(), Some(&noted(slot, 0, UNNAMED)), "{report:?}");
}

#[test]
fn a_segment_that_was_just_begun_and_lost_its_header_goes_on_as_the_next() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (stream, _) = journal.log.open_stream(id(1)).unwrap();
    let mut tick = 0;
    while journal.log.counters().segments == 0 {
        tick += 1;
        journal.log.append(stream, tick, &[&payload(1, tick, 300)]).unwrap();
        while journal.chore() {}
        assert!(journal.write());
        let begun = journal.log.counters();
        if begun.segments == 0 && begun.commits < tick {
            // It was the end of the first segment; the beginning of the second comes next.
            assert!(journal.write());
        }
    }
    let (slot, end) = tail(&mut journal);
    assert!(end > HEAD as u64);
    let committed = journal.log.info(stream).unwrap().last;
    assert!(committed < tick, "the record waits for it");
    twin.corrupt(slot, 0, |bytes| bytes.fill(0), SECTOR);
    let (mut journal, report) = reopen(&twin);
    assert_eq!(report.damages, [], "a beginning that was not finished is no damage");
    let left = check(&twin).unwrap();
    assert_eq!(left.segments.iter().map(|segment| segment.seq).collect::<Vec<_>>(), [1, 2]);
    for tick in committed + 1..=800 {
        until_not_busy(&mut journal, |log| log.append(stream, tick, &[&payload(1, tick, 300)])).unwrap();
    }
    journal.settle();
    assert!(read(&open(&twin), stream) == Ok(all(1..=800)));
    assert!(check(&twin).unwrap().segments.is_sorted_by(|a, b| a.seq < b.seq));
}

#[test]
fn a_segment_without_a_frame_is_none_and_a_check_finds_nothing_wrong_with_it() {
    let twin = Twin::new();
    let (stream, files) = sealed(&twin);
    let newest = files[&800];
    twin.corrupt(newest, HEAD as u64, |bytes| bytes.fill(0), SMALL.segment_bytes as usize - HEAD);
    let report = check(&twin).unwrap();
    let last = report.segments.last().unwrap();
    assert_eq!((last.slot, last.frames, last.bytes, report.is_whole()), (newest, 0, 0, true));
    let (journal, report) = reopen(&twin);
    assert_eq!((report.damages, report.torn), (vec![], None));
    let before = files.iter().filter(|(_, slot)| **slot != newest).map(|(tick, _)| *tick).max().unwrap();
    assert!(read(&journal, stream) == Ok(all(1..=before)));
}

#[test]
fn files_that_say_nothing_are_made_anew_only_if_nothing_is_in_them() {
    let bytes = u64::from(SMALL.segment_bytes);
    // Zeros, whatever their length; and a header that was being written, with zeros behind it.
    let twin = Twin::new();
    for (slot, bytes) in [(3, 100), (4, HEAD as u64), (5, HEAD as u64 + 100), (6, bytes), (7, bytes)] {
        twin.create(slot, bytes).unwrap();
    }
    twin.corrupt(7, 10, |bytes| bytes.fill(0xff), 400);
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
    assert!(report.created && report.files == 1 && log.files() == 1);
    assert_eq!(twin.slots().unwrap(), [(0, bytes)]);
    // Frames, and no header: they may be all that is left of something.
    let (_, files) = sealed(&twin);
    files.values().for_each(|slot| twin.corrupt(*slot, 0, |bytes| bytes.fill(0), HEAD));
    let before = twin.slots().unwrap();
    assert_eq!(Log::open(&twin, SMALL, 7).unwrap_err(), OpenError::NoHeader);
    assert_eq!(twin.slots().unwrap(), before);
}

#[test]
fn files_of_another_length_do_not_belong_there_and_are_removed() {
    let twin = Twin::new();
    let (stream, _) = sealed(&twin);
    let before = twin.slots().unwrap();
    for (slot, bytes) in [(50, 100), (51, HEAD as u64), (52, HEAD as u64 + 512), (53, 8192)] {
        twin.create(slot, bytes).unwrap();
    }
    let (journal, report) = reopen(&twin);
    assert_eq!((report.files, report.damages), (before.len() + 4, vec![]));
    assert_eq!(twin.slots().unwrap(), before);
    assert!(read(&journal, stream) == Ok(all(1..=800)));
}

#[test]
fn a_journal_keeps_the_size_of_its_segments() {
    let twin = Twin::new();
    let (stream, _) = sealed(&twin);
    let options = Options { segment_bytes: 2 * SMALL.segment_bytes, ..SMALL };
    let mut journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
    assert_eq!(*journal.log.options(), SMALL);
    for tick in 801..=1600 {
        until_not_busy(&mut journal, |log| log.append(stream, tick, &[&payload(1, tick, 300)])).unwrap();
    }
    journal.settle();
    assert!(twin.slots().unwrap().iter().all(|(_, bytes)| *bytes == u64::from(SMALL.segment_bytes)));
    assert!(read(&open(&twin), stream) == Ok(all(1..=1600)));
}

#[test]
fn a_long_tail_is_walked_once_wherever_its_frames_lie() {
    // Frames of many streams have long directories, others are longer than what is read at once.
    let options = Options { segment_bytes: 8 << 20, batch_bytes: 512 << 10, max_bytes: 64 << 20 };
    let twin = Twin::new();
    let mut journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
    let streams: Vec<_> = (0..300).map(|n| journal.log.open_stream(id(n)).unwrap().0).collect();
    let mut written = 0;
    for round in 1.. {
        for (number, stream) in streams.iter().enumerate() {
            let bytes = if round % 9 == 0 && number == 7 { 300 << 10 } else { 20 + number % 5 };
            journal.log.append(*stream, round, &[&payload(number as u64, round, bytes)]).unwrap();
        }
        journal.settle();
        written = round;
        if tail(&mut journal).1 > 6 << 20 {
            break;
        }
    }
    let (slot, end) = tail(&mut journal);
    let before = twin.bytes_read();
    let (log, report) = Log::open(&twin, options, 7).unwrap();
    assert_eq!((report.damages.as_slice(), report.torn), ([].as_slice(), None));
    assert_eq!((report.bytes_read, report.tail_bytes), (twin.bytes_read() - before, end - HEAD as u64));
    // Once, but for the first piece of it, which is looked at for the states; and what may follow
    // it.
    let more = 2 * (256 << 10) + 2 * u64::from(options.batch_bytes) + (report.files * HEAD) as u64;
    assert!(report.bytes_read <= report.tail_bytes + more, "{report:?}");
    let journal = Stepped::new(log, &twin);
    for (number, stream) in streams.iter().enumerate().step_by(20) {
        let records = try_read_all(&journal, *stream, 1).unwrap();
        assert_eq!(records.len() as u64, written);
        assert!(records.iter().all(|(tick, bytes)| *bytes == payload(number as u64, *tick, bytes.len())));
    }
    // A long frame whose first header is lost, and one of which nothing is left.
    let places = places(&twin, slot, end as usize);
    let long: Vec<(usize, usize)> = places.into_iter().filter(|(_, length)| *length > 300 << 10).collect();
    twin.corrupt(slot, long[0].0 as u64, |bytes| bytes.fill(0), 16);
    let report = Log::open(&twin, options, 7).unwrap().1;
    assert_eq!(report.damages, [noted(slot, long[0].0 as u64, FIRST_COPY)]);
    twin.corrupt(slot, long[1].0 as u64, |bytes| bytes.fill(0), long[1].1);
    let report = Log::open(&twin, options, 7).unwrap().1;
    assert_eq!(report.damages[1], noted(slot, long[1].0 as u64, BOTH_COPIES));
    assert_eq!(report.damages.len(), 2 + streams.len(), "each of them had a record in it");
}
