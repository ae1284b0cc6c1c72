//! How much is read for what is given.

use crate::common::{id, payload, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, Options, ReadBuffer, Stepped, Stream, Wanted};

const OPTIONS: Options = Options { segment_bytes: 8 << 20, batch_bytes: 512 << 10, max_bytes: 256 << 20 };
const TICKS: u64 = 40_000;
/// One in this number of records is one of the sparse stream.
const SPARSE: u64 = 100;

/// A sparse stream among a full one, `together` records in a commit.
fn filled(twin: &Twin, together: u64) -> (Stepped<'_, Twin>, Stream, Stream) {
    let mut journal = Stepped::new(Log::open(twin, OPTIONS, 7).unwrap().0, twin);
    let (sparse, _) = journal.log.open_stream(id(1)).unwrap();
    let (full, _) = journal.log.open_stream(id(2)).unwrap();
    for tick in 1..=TICKS {
        let (stream, number) = if tick % SPARSE == 0 { (sparse, 1) } else { (full, 2) };
        let record = payload(number, tick, 418);
        until_not_busy(&mut journal, |log| log.append(stream, tick, &[&record])).unwrap();
        if tick % together == 0 {
            journal.settle();
        }
    }
    journal.settle();
    (journal, sparse, full)
}

/// Bytes read for each record when they are read one by one.
fn point_reads(twin: &Twin, journal: &Stepped<'_, Twin>, (stream, number): (Stream, u64), step: u64) -> u64 {
    let mut buffer = ReadBuffer::default();
    let (before, mut reads) = (twin.bytes_read(), 0);
    for tick in (step..=TICKS).step_by(step as usize) {
        let mut given = Vec::new();
        let wanted = Wanted { from: tick, to: tick, budget: usize::MAX };
        let next = journal.read(stream, wanted, &mut buffer, &mut |tick, record| given.push((tick, record.to_vec())));
        assert_eq!((next, given), (Ok(None), vec![(tick, payload(number, tick, 418))]));
        reads += 1;
    }
    (twin.bytes_read() - before) / reads
}

#[test]
fn a_single_record_costs_little_reading() {
    for (together, most) in [(1, 64 << 10), (50, 64 << 10), (1000, 16 << 10)] {
        let twin = Twin::new();
        let (journal, sparse, _) = filled(&twin, together);
        let bytes = point_reads(&twin, &journal, (sparse, 1), SPARSE);
        assert!(bytes <= most, "{bytes} bytes per record, {together} in a commit");
    }
}

#[test]
fn directories_that_reach_beyond_what_was_read_are_read_on() {
    // Long directories and short records, read in small pieces, of the segment that is written and
    // of others.
    let options = Options { segment_bytes: 256 << 10, batch_bytes: 32 << 10, max_bytes: 16 << 20 };
    let twin = Twin::new();
    let mut journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
    let streams: Vec<_> = (0..100).map(|n| journal.log.open_stream(id(n)).unwrap().0).collect();
    for tick in 1..=60 {
        for (number, stream) in (0..).zip(&streams) {
            let record = payload(number, tick, (number % 9) as usize);
            until_not_busy(&mut journal, |log| log.append(*stream, tick, &[&record])).unwrap();
        }
        journal.settle();
    }
    for (number, stream) in (0..).zip(&streams) {
        let records = crate::common::try_read_all(&journal, *stream, 30).unwrap();
        let expected: Vec<_> = (1..=60).map(|tick| (tick, payload(number, tick, (number % 9) as usize))).collect();
        assert_eq!(records, expected);
    }
}

#[test]
fn a_scan_reads_hardly_more_than_it_gives() {
    for together in [1, 50, 1000] {
        let twin = Twin::new();
        let (journal, _, full) = filled(&twin, together);
        let frames = journal.log.counters().frame_bytes;
        let wanted = Wanted { from: 0, to: u64::MAX, budget: usize::MAX };
        let (before, mut given) = (twin.bytes_read(), 0);
        journal.read(full, wanted, &mut ReadBuffer::default(), &mut |_, record| given += record.len()).unwrap();
        let read = twin.bytes_read() - before;
        assert_eq!(given as u64, (TICKS - TICKS / SPARSE) * 418);
        assert!(read * 4 <= frames * 5, "{read} bytes of {frames}, {together} in a commit");
    }
}
