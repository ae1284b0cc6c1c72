//! How long opening a big journal takes and how much of it is read. How fast it writes:
//! `whimbrel bench durable --section journal`.
//!
//! `cargo run --release -p whimbrel-journal --example open_rate -- DIRECTORY [GIGABYTES]`

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use whimbrel_journal::{Journal, Options, ReadBuffer, StreamId, Wanted};

/// Bytes of a record: an event with a payload of 250 bytes in the measurements of Gryphon.
const RECORD: usize = 418;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory on the disk to measure")?);
    let gigabytes: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    std::fs::create_dir_all(&directory)?;
    opening(&directory.join("log"), (gigabytes * 1e9) as u64)
}

fn opening(directory: &Path, bytes: u64) -> Outcome<()> {
    let bar = ProgressBar::new(bytes);
    bar.set_style(ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} written, {eta} left")?);
    {
        let (journal, _) = Journal::open(directory, Options::default(), |_| {})?;
        let mut streams = Vec::new();
        for number in 0..8 {
            streams.push(journal.open_stream(StreamId { kind: 0, id: number })?.0);
        }
        let record = [0x5a; RECORD];
        let mut tick = 0;
        while tick * (RECORD as u64) < bytes {
            tick += 1;
            journal.append(streams[(tick % 8) as usize], tick, &[&record])?;
            if tick.is_multiple_of(4096) {
                bar.set_position(tick * RECORD as u64);
            }
        }
        journal.close()?;
    }
    bar.finish_and_clear();
    let size: u64 = std::fs::read_dir(directory)?.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
    for attempt in ["first", "again"] {
        let begin = Instant::now();
        let (journal, report) = Journal::open(directory, Options::default(), |_| {})?;
        let ready = begin.elapsed();
        println!(
            "{attempt}: {:.2} GB in {} files open in {:.1} ms, {} KiB read, of them {} KiB tail",
            size as f64 / 1e9,
            report.files,
            ready.as_secs_f64() * 1e3,
            report.bytes_read >> 10,
            report.tail_bytes >> 10
        );
        let (mut buffer, mut count) = (ReadBuffer::default(), 0u64);
        let (stream, _) = journal.open_stream(StreamId { kind: 0, id: 3 })?;
        let begin = Instant::now();
        let wanted = Wanted { from: 0, to: u64::MAX, budget: usize::MAX };
        journal.read(stream, wanted, &mut buffer, &mut |_, _| count += 1)?;
        println!("  one stream of eight: {count} records read in {:.2} s", begin.elapsed().as_secs_f64());
        journal.close()?;
    }
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
