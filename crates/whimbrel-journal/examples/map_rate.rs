//! What a durable map costs: puts a second and bytes written for each while the stream is cleaned
//! all the time, beside a journal into which the same records are appended; memory per key; how
//! long restoring takes.
//!
//! `cargo run --profile quick -p whimbrel-journal --example map_rate -- DIRECTORY [KEYS] [ROUNDS]`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use whimbrel_journal::{
    Journal, Log, Map, MapOptions, Need, Options, Piece, ReadBuffer, Refused, Stream, StreamId, Wanted,
};

/// Bytes of a key, and of a value.
const KEY: usize = 100;
const VALUE: usize = 100;
/// Puts of one submission.
const TOGETHER: u64 = 64;
/// Which keys are written again.
const STYLES: [&str; 3] = ["any key", "one of ten", "one after the other"];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory on the disk to measure")?);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    std::fs::create_dir_all(&directory)?;
    println!(
        "{keys} keys of {KEY} bytes, values of {VALUE}, {TOGETHER} puts in a submission; medians of {rounds} rounds"
    );
    for (style, name) in STYLES.into_iter().enumerate() {
        let (mut bare, mut mapped) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(append(&directory.join("bare"), keys)?);
            mapped.push(overwrite(&directory.join("map"), keys, style)?);
        }
        let (bare, mapped) = (median(bare), median(mapped));
        println!(
            "{:>20}: {:>7.0} puts/s; {:.2} of what is put is written in records, {:.2} with frames; {:.0} % live; {:.2} us/put; bare journal {:>7.0}/s, {:.2} us, {:.2}",
            name,
            mapped.rate,
            mapped.records,
            mapped.frames,
            mapped.live * 100.0,
            mapped.cpu,
            bare.rate,
            bare.cpu,
            bare.frames
        );
    }
    recovery(&directory.join("map"), keys, rounds)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Cost {
    rate: f64,
    /// Bytes of records written, per byte of records put.
    records: f64,
    /// Bytes of frames written.
    frames: f64,
    /// Part of the stream that counts, at the end.
    live: f64,
    /// Processor time of the whole process per put, in microseconds.
    cpu: f64,
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    costs[costs.len() / 2]
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn key(number: u64) -> [u8; KEY] {
    let mut key = [b'k'; KEY];
    key[KEY - 8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Appends as many records as `overwrite` puts, to a stream that is chopped.
fn append(directory: &Path, keys: u64) -> Outcome<Cost> {
    let (journal, _) = Journal::open(directory, Options::default(), |_| {})?;
    let (stream, _) = journal.open_stream(StreamId { kind: 1, id: 1 })?;
    let (begin, cpu, before) = (Instant::now(), cpu_time(), counters(&journal)?);
    for number in 0..keys / TOGETHER {
        let first = number * TOGETHER + 1;
        let mut work = |log: &mut Log| {
            let mut need = Need { streams: 1, ..Need::default() };
            (0..TOGETHER).for_each(|_| need.record(2 + KEY + VALUE));
            log.require(need)?;
            (first..first + TOGETHER)
                .try_for_each(|tick| log.append(stream, tick, &[&[0, 0], &key(tick), &[b'v'; VALUE]]).map(drop))
        };
        insist(&journal, &mut work)?;
        if number.is_multiple_of(1024) {
            journal.chop(stream, first)?;
        }
    }
    let cost = cost(&journal, keys, (begin, cpu, before))?;
    journal.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(cost)
}

fn need() -> Need {
    let mut need = Need { streams: 1, ..Need::default() };
    (0..TOGETHER).for_each(|_| need.put(KEY, VALUE));
    need
}

/// Does it when the journal is not busy any more.
fn insist(journal: &Journal, work: &mut dyn FnMut(&mut Log) -> Result<(), Refused>) -> Outcome<()> {
    Ok(journal.submit_wait(|log| work(log))?)
}

fn counters(journal: &Journal) -> Outcome<(u64, u64)> {
    let counters = journal.submit(|log| Ok(log.counters()))?;
    Ok((counters.record_bytes + counters.moved_bytes, counters.frame_bytes))
}

fn cost(journal: &Journal, puts: u64, (begin, cpu, before): (Instant, Duration, (u64, u64))) -> Outcome<Cost> {
    journal.wait(journal.submit(|log| Ok(log.accepted()))?)?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / puts as f64;
    let after = counters(journal)?;
    let put = puts as f64 * (KEY + VALUE) as f64;
    let (records, frames) = ((after.0 - before.0) as f64 / put, (after.1 - before.1) as f64 / put);
    Ok(Cost { rate: puts as f64 / seconds, records, frames, live: 0.0, cpu })
}

/// A map with its journal.
struct Opened {
    journal: Journal,
    map: Map,
    buffer: ReadBuffer,
}

fn open(directory: &Path, sink: &mut dyn FnMut(&[u8], &[u8])) -> Outcome<Opened> {
    let (journal, _) = Journal::open(directory, Options::default(), |_| {})?;
    let (stream, _): (Stream, _) = journal.open_stream(StreamId { kind: 0, id: 1 })?;
    let mut buffer = ReadBuffer::default();
    let options = MapOptions { seed: fastrand::u128(..), clean_min: whimbrel_journal::CLEAN_MIN };
    let map = Map::restore(&journal, stream, options, &mut buffer, sink)?;
    Ok(Opened { journal, map, buffer })
}

impl Opened {
    fn put(&mut self, mut next: impl FnMut() -> u64) -> Outcome<()> {
        let keys: Vec<u64> = (0..TOGETHER).map(|_| next()).collect();
        let map = &mut self.map;
        let mut work = |log: &mut Log| {
            log.require(need())?;
            keys.iter().try_for_each(|number| map.put(log, &key(*number), &[b'v'; VALUE]).map(drop))?;
            map.clean(log);
            Ok(())
        };
        insist(&self.journal, &mut work)?;
        if let Some(wanted) = self.map.wanted() {
            self.read(wanted)?;
        }
        Ok(())
    }

    fn read(&mut self, wanted: Wanted) -> Outcome<()> {
        self.map.take(Piece::read(&self.journal, self.map.stream(), wanted, &mut self.buffer));
        self.journal.submit(|log| {
            self.map.clean(log);
            Ok(())
        })?;
        Ok(())
    }
}

/// Fills a map, overwrites until it is cleaned steadily, and then measures as many puts as there
/// are keys.
fn overwrite(directory: &Path, keys: u64, style: usize) -> Outcome<Cost> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    let mut opened = open(directory, &mut |_, _| {})?;
    let mut count = 0;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut choose = move || {
        count += 1;
        match style {
            _ if count <= keys => count - 1,
            0 => rng.u64(0..keys),
            1 => rng.u64(0..keys / 10) * 10,
            _ => count % keys,
        }
    };
    for _ in 0..3 * keys / TOGETHER {
        opened.put(&mut choose)?;
    }
    let before = (Instant::now(), cpu_time(), counters(&opened.journal)?);
    for _ in 0..keys / TOGETHER {
        opened.put(&mut choose)?;
    }
    let mut cost = cost(&opened.journal, keys, before)?;
    let info = opened.map.info();
    cost.live = info.live as f64 / info.held as f64;
    opened.journal.close()?;
    Ok(cost)
}

fn recovery(directory: &Path, keys: u64, rounds: usize) -> Outcome<()> {
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut bytes = 0;
        let mut opened = open(directory, &mut |key, value| bytes += key.len() + value.len())?;
        seconds.push(begin.elapsed().as_secs_f64());
        let info = opened.map.info();
        println!(
            "restored {} keys, {} MB of values and keys out of {} MB in {:.2} s; {:.1} bytes of memory per key",
            info.keys,
            bytes / 1_000_000,
            info.held / 1_000_000,
            seconds[seconds.len() - 1],
            info.memory as f64 / info.keys as f64
        );
        opened.put(|| fastrand::u64(0..keys))?;
        opened.journal.close()?;
    }
    Ok(())
}
