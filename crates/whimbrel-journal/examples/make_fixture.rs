//! Makes a small journal in the present format, to be kept beside those of earlier versions:
//! `tests/fixtures/version-N`, which `tests/fixtures.rs` must be able to open for ever.
//!
//! `cargo run -p whimbrel-journal --example make_fixture -- tests/fixtures/version-1`

use std::path::PathBuf;

use whimbrel_journal::{Log, Options, Refused, Stepped, StreamId, file::Directory};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("name the directory to be made")?);
    if path.exists() {
        return Err("the directory exists already".into());
    }
    let options = Options { segment_bytes: 32 << 10, batch_bytes: 4096, max_bytes: u64::MAX };
    let directory = Directory::open(&path)?;
    let (log, _) = Log::open(&directory, options, 0x0123_4567_89ab_cdef)?;
    let mut journal = Stepped::new(log, &directory);
    let mut streams = Vec::new();
    for id in 0..3 {
        streams.push(journal.log.open_stream(StreamId { kind: 7, id })?.0);
    }
    // Stream 0: every tenth tick, never chopped, so that it is relocated. Stream 1: all others,
    // chopped. Stream 2: nothing but a reservation.
    for tick in 1..=900u64 {
        let stream = streams[usize::from(!tick.is_multiple_of(10))];
        let record = format!("record {tick} ").repeat(12);
        while let Err(refused) = journal.log.append(stream, tick, &[record.as_bytes()]) {
            if refused != Refused::Busy || !(journal.write() | journal.chore()) {
                return Err(refused.into());
            }
        }
        if tick.is_multiple_of(25) {
            journal.log.chop(streams[1], tick.saturating_sub(100))?;
            journal.settle();
        }
    }
    journal.log.reserve(streams[2], 123_456_789)?;
    journal.settle();
    println!("{:?}", journal.log.counters());
    Ok(())
}
