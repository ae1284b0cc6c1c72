//! What the journal costs, beside what the disk gives: bare preallocated `pwrite` + `fdatasync` with the same grouping, interleaved
//! with the journal in one run; then how long opening a big log takes and how much it reads.
//!
//! `cargo run --release -p whimbrel-journal --example commit_rate -- DIRECTORY [GIGABYTES] [ROUNDS]`

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use whimbrel_journal::{Journal, Options, ReadBuffer, Stream, StreamId, Ticket, Wanted};

/// Bytes of a record: an event with a payload of 250 bytes in the measurements of Gryphon.
const RECORD: usize = 418;
/// How long each measurement takes.
const SLICE: Duration = Duration::from_millis(700);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory on the disk to measure")?);
    let gigabytes: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let rounds: u32 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    std::fs::create_dir_all(&directory)?;
    rates(&directory.join("rates"), rounds)?;
    recovery(&directory.join("log"), (gigabytes * 1e9) as u64)?;
    Ok(())
}

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Rate {
    commits: f64,
    records: f64,
    /// Processor time per record, in microseconds, of the whole process.
    cpu: f64,
}

fn rates(directory: &Path, rounds: u32) -> Outcome<()> {
    let shapes = [(1, 1), (1, 64), (16, 64)];
    let bar = ProgressBar::new(u64::from(rounds) * 2 * shapes.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} measurements, {eta} left")?);
    println!("records of {RECORD} bytes; medians of {rounds} rounds, bare and journal in turns");
    println!(
        "appenders window |  bare commits/s  records/s  us/record | journal commits/s  records/s  us/record | ratio"
    );
    for (appenders, window) in shapes {
        let (mut bare, mut journal) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(run(&Bare::new(directory)?, appenders, window));
            bar.inc(1);
            let opened = Opened::new(&directory.join("journal"), appenders)?;
            journal.push(run(&opened, appenders, window));
            drop(opened);
            std::fs::remove_dir_all(directory.join("journal"))?;
            bar.inc(1);
        }
        let (bare, journal) = (median(&mut bare), median(&mut journal));
        let show = |rate: Rate| format!("{:>9.0} {:>10.0} {:>10.2}", rate.commits, rate.records, rate.cpu);
        let ratio = journal.records / bare.records;
        bar.suspend(|| println!("{appenders:>9} {window:>6} | {} | {} | {ratio:>5.2}", show(bare), show(journal)));
    }
    bar.finish_and_clear();
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn median(rates: &mut [Rate]) -> Rate {
    rates.sort_by(|a, b| a.records.total_cmp(&b.records));
    rates[rates.len() / 2]
}

/// Something that makes records durable.
trait Target: Sync {
    /// Appends one record for this appender; returns what to wait for.
    fn append(&self, appender: usize, tick: u64, record: &[u8]) -> u64;
    /// Waits until it is durable.
    fn wait(&self, number: u64);
    /// Commits so far.
    fn commits(&self) -> u64;
    /// Runs beside the appenders until `end`.
    fn write(&self);
    /// Ends [`Target::write`].
    fn end(&self);
}

fn run(target: &impl Target, appenders: usize, window: usize) -> Rate {
    let record = [0x5a; RECORD];
    let (begin, cpu, commits) = (Instant::now(), cpu_time(), target.commits());
    let records: u64 = std::thread::scope(|scope| {
        let writer = scope.spawn(|| target.write());
        let work = |appender: usize| {
            let mut open = VecDeque::new();
            let mut count = 0;
            while begin.elapsed() < SLICE {
                count += 1;
                open.push_back(target.append(appender, count, &record));
                if open.len() == window {
                    target.wait(open.pop_front().expect("the window is full"));
                }
            }
            open.into_iter().for_each(|number| target.wait(number));
            count
        };
        let threads: Vec<_> = (0..appenders).map(|appender| scope.spawn(move || work(appender))).collect();
        let records = threads.into_iter().map(|thread| thread.join().expect("an appender ends")).sum();
        target.end();
        writer.join().expect("the writer ends");
        records
    });
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / records as f64;
    Rate { commits: (target.commits() - commits) as f64 / seconds, records: records as f64 / seconds, cpu }
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// The least that can be done: a buffer that fills while the one before is written and synced, in a file of zeros.
struct Bare {
    file: File,
    path: PathBuf,
    state: Mutex<Filling>,
    changed: Condvar,
}

#[derive(Default)]
struct Filling {
    buffer: Vec<u8>,
    accepted: u64,
    durable: u64,
    commits: u64,
    ended: bool,
}

/// Bytes of the bare file; it is written round and round.
const BARE: u64 = 64 << 20;

impl Bare {
    fn new(directory: &Path) -> Outcome<Bare> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join("bare");
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path)?;
        for offset in (0..BARE).step_by(1 << 20) {
            file.write_all_at(&[0; 1 << 20], offset)?;
        }
        file.sync_all()?;
        Ok(Bare { file, path, state: Mutex::default(), changed: Condvar::new() })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Target for Bare {
    fn append(&self, _: usize, _: u64, record: &[u8]) -> u64 {
        let mut state = self.state.lock().expect("no appender panics");
        state.buffer.extend_from_slice(record);
        state.accepted += 1;
        self.changed.notify_all();
        state.accepted
    }

    fn wait(&self, number: u64) {
        let mut state = self.state.lock().expect("no appender panics");
        while state.durable < number {
            state = self.changed.wait(state).expect("no appender panics");
        }
    }

    fn commits(&self) -> u64 {
        self.state.lock().expect("no appender panics").commits
    }

    fn write(&self) {
        let mut offset = 0;
        let mut buffer = Vec::new();
        let mut state = self.state.lock().expect("no appender panics");
        loop {
            if state.buffer.is_empty() {
                if state.ended {
                    return;
                }
                state = self.changed.wait(state).expect("no appender panics");
                continue;
            }
            std::mem::swap(&mut buffer, &mut state.buffer);
            let upto = state.accepted;
            drop(state);
            if offset + buffer.len() as u64 > BARE {
                offset = 0;
            }
            self.file.write_all_at(&buffer, offset).expect("the disk takes it");
            self.file.sync_data().expect("the disk takes it");
            offset += buffer.len() as u64;
            buffer.clear();
            state = self.state.lock().expect("no appender panics");
            state.durable = upto;
            state.commits += 1;
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.state.lock().expect("no appender panics").ended = true;
        self.changed.notify_all();
    }
}

/// The journal, each appender with a stream of its own. What was written is chopped now and then, so that files are used again, as they are
/// in the long run, and as the bare file is.
struct Opened {
    journal: Journal,
    streams: Vec<Stream>,
}

/// Records of a stream between two chops.
const CHOP: u64 = 4096;

impl Opened {
    fn new(directory: &Path, appenders: usize) -> Outcome<Opened> {
        let (journal, _) = Journal::open(directory, Options::default(), |_| {})?;
        let mut streams = Vec::new();
        for id in 0..appenders as u64 {
            let (stream, ticket) = journal.open_stream(StreamId { kind: 0, id })?;
            journal.wait(ticket)?;
            streams.push(stream);
        }
        // The files for the next segments are made before it begins, as that of the bare run is.
        while journal.submit(|log| Ok(log.files()))? < 4 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Opened { journal, streams })
    }
}

impl Target for Opened {
    fn append(&self, appender: usize, count: u64, record: &[u8]) -> u64 {
        // Nanoseconds at a thousand events a second.
        let tick = count * 1_000_000;
        let stream = self.streams[appender];
        let ticket = self.journal.append(stream, tick, &[record]).expect("the journal takes it");
        if count.is_multiple_of(CHOP) {
            self.journal.chop(stream, tick).expect("the journal takes it");
        }
        ticket.0
    }

    fn wait(&self, number: u64) {
        self.journal.wait(Ticket(number)).expect("the journal is well");
    }

    fn commits(&self) -> u64 {
        self.journal.submit(|log| Ok(log.counters().commits)).unwrap_or(0)
    }

    fn write(&self) {}

    fn end(&self) {}
}

fn recovery(directory: &Path, bytes: u64) -> Outcome<()> {
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
