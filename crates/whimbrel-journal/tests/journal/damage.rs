//! What is not as it was written is named, and concerns those only whose records it held.

use std::collections::BTreeMap;

use crate::common::{SMALL, id, open, payload, try_read_all};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Damage, HEAD, Log, ReadBuffer, ReadError, Refused, SECTOR, Stepped, Stream, Wanted, check};

/// Streams of the sample.
const STREAMS: u64 = 4;

/// Of each stream, the records in order.
type Written = BTreeMap<u64, Vec<(u64, Vec<u8>)>>;

/// A journal of several segments; its last frame holds a record of a stream of its own, so that it
/// alone is what may be cut.
fn sample() -> (Twin, Written) {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let streams: Vec<_> = (0..STREAMS).map(|n| journal.log.open_stream(id(n)).unwrap().0).collect();
    let mut written = Written::new();
    for tick in 1..1200u64 {
        let number = tick % STREAMS;
        let bytes = payload(number, tick, 40 + (tick % 7) as usize * 60);
        while journal.log.append(streams[number as usize], tick, &[&bytes]).is_err() {
            assert!(journal.write() | journal.chore());
        }
        written.entry(number).or_default().push((tick, bytes));
        if tick % 9 == 0 {
            journal.settle();
        }
    }
    journal.settle();
    let (mark, _) = journal.log.open_stream(id(99)).unwrap();
    journal.log.append(mark, 1, &[b"the end"]).unwrap();
    journal.settle();
    (twin, written)
}

fn stream(journal: &Stepped<'_, Twin>, number: u64) -> Stream {
    journal.log.streams().find(|(name, _)| *name == id(number)).expect("the stream is known").1
}

/// Reads a stream around its damage; returns the damage. Panics if anything is lost silently or
/// invented.
fn read_around(journal: &mut Stepped<'_, Twin>, number: u64, written: &[(u64, Vec<u8>)]) -> Vec<Damage> {
    let stream = stream(journal, number);
    let mut found = Vec::new();
    let mut from = 0;
    let mut records = Vec::new();
    let mut buffer = ReadBuffer::default();
    loop {
        let wanted = Wanted { from, to: u64::MAX, budget: usize::MAX };
        let given = records.len();
        match journal.read(stream, wanted, &mut buffer, &mut |tick, bytes| records.push((tick, bytes.to_vec()))) {
            Ok(None) => break,
            Ok(Some(next)) => from = next,
            Err(ReadError::Damaged(damage)) => {
                let (of, after, last) = damage.lost.expect("a reader is told of losses only");
                assert_eq!(of, id(number));
                assert!(last >= from && last > after);
                assert_eq!(records.len(), given, "what comes before the damage is given first");
                journal.log.stop(damage.clone());
                found.push(damage);
                if last == u64::MAX {
                    break;
                }
                from = last + 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let lost = |tick: u64| found.iter().any(|d| d.lost.is_some_and(|(_, after, last)| tick > after && tick <= last));
    let expected: Vec<_> = written.iter().filter(|(tick, _)| !lost(*tick)).cloned().collect();
    assert!(records == expected, "stream {number}: {found:?}");
    found
}

#[test]
fn a_flipped_byte_stops_at_most_one_stream_and_is_named() {
    let (pristine, written) = sample();
    let slots: Vec<u32> = (0..20).filter(|slot| pristine.contents(*slot).is_some()).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut harmless, mut stopped) = (0, 0);
    for _ in 0..1500 {
        let twin = pristine.crashed(|| unreachable!("everything is synced"));
        let (slot, offset) = (slots[rng.usize(0..slots.len())], rng.u64(0..u64::from(SMALL.segment_bytes)));
        let bit = 1 << rng.u32(0..8);
        twin.corrupt(slot, offset, |bytes| bytes[0] ^= bit, 1);
        let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
        assert_eq!(report.torn, None, "{slot} {offset}");
        let mut journal = Stepped::new(log, &twin);
        let mut hurt = Vec::new();
        for (number, written) in &written {
            let damages = read_around(&mut journal, *number, written);
            if let Some(damage) = damages.first() {
                hurt.push(*number);
                assert_eq!(damages.len(), 1);
                assert_eq!(damage.file, Some(slot), "{damage}");
                assert!(damage.offset <= offset && offset - damage.offset < 16 << 10, "{offset}: {damage}");
            }
        }
        assert!(hurt.len() <= 1, "{slot} {offset}: {hurt:?}, {:?}", report.damages);
        for number in 0..STREAMS {
            let (stream, _) = journal.log.open_stream(id(number)).unwrap();
            let outcome = journal.log.append(stream, 5000, &[b"more"]);
            match hurt.contains(&number) {
                true => assert!(matches!(outcome, Err(Refused::Stopped(_)))),
                false => assert!(outcome.is_ok() || outcome == Err(Refused::Busy), "{outcome:?}"),
            }
        }
        match hurt.len() {
            0 => harmless += 1,
            _ => stopped += 1,
        }
    }
    assert!(stopped > 300 && harmless > 100, "{stopped} stopped, {harmless} harmless");
}

#[test]
fn a_lost_page_or_file_is_never_passed_over_silently() {
    let (pristine, written) = sample();
    let slots: Vec<u32> = (0..20).filter(|slot| pristine.contents(*slot).is_some()).collect();
    let mut rng = fastrand::Rng::with_seed(2);
    let mut named = 0;
    let tail = check(&pristine).unwrap().segments.last().unwrap().clone();
    for _ in 0..300 {
        let twin = pristine.crashed(|| unreachable!("everything is synced"));
        let slot = slots[rng.usize(0..slots.len())];
        let page = rng.u64(0..u64::from(SMALL.segment_bytes) / HEAD as u64);
        let end = tail.bytes + HEAD as u64;
        if slot == tail.slot && (page + 1) * HEAD as u64 >= end {
            // Nothing follows it: that is a torn end.
            continue;
        }
        twin.corrupt(slot, page * HEAD as u64, |bytes| bytes.fill(0), HEAD);
        // A page of the checkpoint holds both copies while there are few streams; that is said, and
        // nothing is guessed.
        let (log, report) = match Log::open(&twin, SMALL, 7) {
            Ok(opened) => opened,
            Err(error) => {
                assert_eq!((error, page), (whimbrel_journal::OpenError::Checkpoint { slot }, 1));
                continue;
            }
        };
        let mut journal = Stepped::new(log, &twin);
        for (number, written) in &written {
            let found = read_around(&mut journal, *number, written);
            named += found.len();
            let stream = stream(&journal, *number);
            let stopped = journal.log.info(stream).unwrap().stopped.is_some();
            assert!(found.is_empty() || stopped || report.torn.is_some());
        }
    }
    assert!(named > 300, "{named}");
}

#[test]
fn a_check_tells_what_there_is_and_what_it_read() {
    let (twin, written) = sample();
    let before = twin.bytes_read();
    let report = check(&twin).unwrap();
    assert_eq!(report.bytes_read, twin.bytes_read() - before);
    assert!(report.is_whole() && report.segments.len() > 3);
    let (tail, sealed) = report.segments.split_last().unwrap();
    assert!(!tail.sealed && sealed.iter().all(|segment| segment.sealed));
    assert_eq!(tail.bytes, Log::open(&twin, SMALL, 7).unwrap().1.tail_bytes);
    assert!(report.segments.is_sorted_by(|a, b| a.seq + 1 == b.seq), "nothing was given up, so none is missing");
    let mut records = BTreeMap::<u32, u64>::new();
    for segment in &report.segments {
        segment.records.iter().for_each(|(stream, count)| *records.entry(*stream).or_default() += count);
        assert!(segment.frames > 0 && segment.bytes <= u64::from(SMALL.segment_bytes) - HEAD as u64);
    }
    let mut counts: Vec<u64> = written.values().map(|records| records.len() as u64).chain([1]).collect();
    let mut found: Vec<u64> = records.into_values().collect();
    counts.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, counts);
}

#[test]
fn a_check_names_a_damaged_header_and_a_damaged_frame() {
    let (twin, _) = sample();
    let first = check(&twin).unwrap().segments[0].clone();
    twin.corrupt(first.slot, 0, |bytes| bytes.fill(0), 8);
    twin.corrupt(first.slot, HEAD as u64 + first.bytes / 2, |bytes| bytes.fill(0xff), SECTOR);
    let report = check(&twin).unwrap();
    let named: Vec<&str> = report.segments[0].wrong.iter().map(|(_, what)| what.as_str()).collect();
    assert!(named.contains(&"the header is damaged"), "{named:?}");
    assert!(named.len() > 1, "{named:?}");
    assert!(report.segments[1..].iter().all(|segment| segment.wrong.is_empty()));
}

#[test]
fn a_copy_of_a_segment_is_named_and_nothing_is_opened() {
    let (twin, _) = sample();
    let original = check(&twin).unwrap().segments[2].slot;
    let bytes = twin.contents(original).unwrap();
    whimbrel_journal::Storage::create(&twin, 77, bytes.len() as u64).unwrap();
    whimbrel_journal::Storage::write(&twin, 77, 0, &bytes).unwrap();
    let error = Log::open(&twin, SMALL, 7).unwrap_err();
    assert_eq!(error, whimbrel_journal::OpenError::Twice { slots: [original, 77] });
}

#[test]
fn a_missing_segment_is_named_and_the_rest_is_read() {
    let (twin, written) = sample();
    let victim = check(&twin).unwrap().segments[1].slot;
    whimbrel_journal::Storage::remove(&twin, victim).unwrap();
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
    let mut journal = Stepped::new(log, &twin);
    assert_eq!(report.damages.len() as u64, STREAMS, "every stream had records there: {:?}", report.damages);
    for (number, written) in &written {
        assert_eq!(read_around(&mut journal, *number, written).len(), 1);
    }
}

#[test]
fn a_damaged_stream_goes_on_when_the_damage_is_chopped() {
    let (twin, written) = sample();
    // In the middle of the newest segment, so that opening finds it.
    let tail = check(&twin).unwrap().segments.last().unwrap().clone();
    let middle = HEAD as u64 + (tail.bytes / 2).next_multiple_of(SECTOR as u64);
    twin.corrupt(tail.slot, middle + 200, |bytes| bytes[0] ^= 1, 1);
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
    assert_eq!(report.damages.len(), 1);
    let (hurt, _, last) = report.damages[0].lost.expect("the flip hits a record");
    let mut journal = Stepped::new(log, &twin);
    let (stream, _) = journal.log.open_stream(hurt).unwrap();
    assert!(matches!(journal.log.append(stream, 5000, &[]), Err(Refused::Stopped(_))));
    assert!(matches!(try_read_all(&journal, stream, usize::MAX), Err(ReadError::Damaged(_))));
    assert!(!check(&twin).unwrap().is_whole());

    let (again, report) = Log::open(&twin, SMALL, 7).unwrap();
    assert_eq!((report.damages.len(), again.info(stream).unwrap().stopped.is_some()), (1, true), "it is found again");

    // Chopped in its middle, the rest of it is still told of, but not to a read that wants only
    // what was chopped.
    journal.log.chop(stream, last - 1).unwrap();
    journal.settle();
    let read = |from, to| {
        let wanted = Wanted { from, to, budget: usize::MAX };
        journal.read(stream, wanted, &mut ReadBuffer::default(), &mut |tick, _| panic!("tick {tick} is lost"))
    };
    assert_eq!(read(1, last - 1), Ok(None));
    assert!(matches!(read(1, last), Err(ReadError::Damaged(rest)) if rest.lost == Some((hurt, last - 1, last))));
    assert!(matches!(journal.log.append(stream, 5000, &[]), Err(Refused::Stopped(_))));

    journal.log.chop(stream, last).unwrap();
    journal.settle();
    journal.log.append(stream, 5000, &[b"more"]).unwrap();
    journal.settle();
    let (log, report) = Log::open(&twin, SMALL, 7).unwrap();
    assert_eq!(report.damages, []);
    let rest = try_read_all(&Stepped::new(log, &twin), stream, usize::MAX).unwrap();
    let kept = written[&hurt.id].iter().filter(|(tick, _)| *tick > last).cloned();
    assert_eq!(rest, kept.chain([(5000, b"more".to_vec())]).collect::<Vec<_>>());
}

#[test]
fn an_unknown_version_is_refused_by_its_number() {
    let (twin, _) = sample();
    let sector = twin.contents(0).unwrap()[..SECTOR].to_vec();
    let newer = |bytes: &mut [u8]| {
        bytes[8] = 2;
        let mut hasher = crc32fast::Hasher::new();
        // The checksum covers the sector but itself, and begins with that of sixteen zeros.
        hasher.update(&crc32fast::hash(&[0; 16]).to_le_bytes());
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..]);
        let sum = hasher.finalize();
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    };
    assert_eq!(sector[8], 1);
    twin.corrupt(0, 0, newer, SECTOR);
    let error = Log::open(&twin, SMALL, 7).unwrap_err();
    assert_eq!(error.to_string(), "segment file 0 has format version 2, this program knows up to 1");
}
