//! The journal alone, without a broker, and the least possible: a loop that writes and syncs the
//! same groups.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use whimbrel_journal::{Journal, Options, Stream, StreamId, Ticket};

use super::super::process::CpuClock;
use super::{Grouping, Rate, latencies};

/// Bytes of a record: an event with a payload of 250 bytes in the measurements of Gryphon.
pub(super) const RECORD: usize = 418;

/// The size of the bare file, bytes; it is overwritten cyclically.
const BARE: u64 = 64 << 20;

/// Records of a stream between two chops.
const CHOP: u64 = 4096;

/// Time in which the journal makes no file, after which it needs no more of them: new ones take the
/// place of those that are given back.
const MADE_AFTER: Duration = Duration::from_millis(400);

/// How long making them may take.
const MADE_WITHIN: Duration = Duration::from_secs(30);

/// Something that makes records durable.
trait Keeper: Sync {
    /// Appends a record of this appender; returns the number to wait for.
    fn append(&self, appender: usize, record: &[u8]) -> u64;
    /// Waits until the record of a number is durable.
    fn wait(&self, number: u64);
    /// The number of commits so far.
    fn commits(&self) -> u64;
    /// Runs in parallel with the appenders until [`Keeper::end`].
    fn write(&self) {}
    /// Ends [`Keeper::write`].
    fn end(&self) {}
}

/// Measures bare writes and syncs in a folder.
pub(super) fn bare(folder: &Path, grouping: Grouping, slice: Duration) -> Result<Rate> {
    measure(&Bare::new(folder)?, grouping, slice)
}

/// Measures the journal in a folder.
pub(super) fn journal(folder: &Path, grouping: Grouping, slice: Duration) -> Result<Rate> {
    let folder = folder.join("journal");
    let opened = Opened::new(&folder, grouping.publishers)?;
    until_made(|span| {
        measure(&opened, grouping, span)?;
        opened.files()
    })?;
    let rate = measure(&opened, grouping, slice);
    drop(opened);
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    rate
}

/// Has `publish` go on for a span at a time until a journal has made the files that it writes to in
/// turn; `publish` returns their number. Making one is as much for the disk as filling it.
///
/// # Errors
/// Those of `publish`, and when files are still made after [`MADE_WITHIN`].
pub(super) fn until_made(mut publish: impl FnMut(Duration) -> Result<usize>) -> Result<()> {
    let (begin, mut before) = (Instant::now(), usize::MAX);
    loop {
        let files = publish(MADE_AFTER)?;
        if files == before {
            return Ok(());
        }
        ensure!(begin.elapsed() < MADE_WITHIN, "the journal has {files} files after {MADE_WITHIN:?}, and makes more");
        before = files;
    }
}

/// Each appender appends records, and waits for its oldest one when its window is full.
fn measure(keeper: &impl Keeper, grouping: Grouping, slice: Duration) -> Result<Rate> {
    let Grouping { publishers, window } = grouping;
    let record = [0x5a; RECORD];
    let (begin, cpu, commits) = (Instant::now(), CpuClock::own().read()?, keeper.commits());
    let work = |appender: usize| {
        let (mut open, mut count, mut waits) = (VecDeque::new(), 0, latencies());
        let mut settle = |open: &mut VecDeque<(u64, Instant)>| {
            let (number, since) = open.pop_front().expect("the window is not empty");
            keeper.wait(number);
            waits.saturating_record(since.elapsed().as_nanos() as u64);
        };
        while begin.elapsed() < slice {
            count += 1;
            open.push_back((keeper.append(appender, &record), Instant::now()));
            if open.len() == window {
                settle(&mut open);
            }
        }
        while !open.is_empty() {
            settle(&mut open);
        }
        (count, waits)
    };
    let (records, waits) = std::thread::scope(|scope| -> Result<_> {
        let writer = scope.spawn(|| keeper.write());
        let threads: Vec<_> = (0..publishers).map(|appender| scope.spawn(move || work(appender))).collect();
        let mut all = (0, latencies());
        for thread in threads {
            let (count, waits) = thread.join().expect("an appender ends");
            all.0 += count;
            all.1.add(waits).context("histograms of one kind add up")?;
        }
        keeper.end();
        writer.join().expect("the writer ends");
        Ok(all)
    })?;
    let (elapsed, cpu) = (begin.elapsed(), CpuClock::own().read()? - cpu);
    Ok(Rate::of(records, elapsed, Some(cpu), &waits).with_commits(keeper.commits() - commits))
}

/// A buffer that is filled while the previous one is written and synced, in a file of zeros.
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

impl Bare {
    fn new(folder: &Path) -> Result<Bare> {
        let path = folder.join("bare");
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.with_context(|| format!("making {}", path.display()))?;
        for offset in (0..BARE).step_by(1 << 20) {
            file.write_all_at(&[0; 1 << 20], offset)?;
        }
        file.sync_all()?;
        Ok(Bare { file, path, state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, Filling> {
        self.state.lock().expect("nobody panics")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // The file is removed when this is dropped.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Keeper for Bare {
    fn append(&self, _: usize, record: &[u8]) -> u64 {
        let mut state = self.state();
        state.buffer.extend_from_slice(record);
        state.accepted += 1;
        self.changed.notify_all();
        state.accepted
    }

    fn wait(&self, number: u64) {
        let mut state = self.state();
        while state.durable < number {
            state = self.changed.wait(state).expect("nobody panics");
        }
    }

    fn commits(&self) -> u64 {
        self.state().commits
    }

    fn write(&self) {
        let mut offset = 0;
        let mut buffer = Vec::new();
        let mut state = self.state();
        loop {
            if state.buffer.is_empty() {
                if state.ended {
                    return;
                }
                state = self.changed.wait(state).expect("nobody panics");
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
            state = self.state();
            state.durable = upto;
            state.commits += 1;
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }
}

/// The journal, each appender with its own stream. Old records are chopped now and then, so that
/// files are reused, as in the long run, and as the bare file is.
struct Opened {
    journal: Journal,
    /// The stream of each appender, and the number of its records.
    streams: Vec<(Stream, AtomicU64)>,
}

impl Opened {
    fn new(folder: &Path, appenders: usize) -> Result<Opened> {
        let (journal, _) = Journal::open(folder, Options::default(), |_| {}).map_err(|error| anyhow!("{error}"))?;
        let mut streams = Vec::new();
        for id in 0..appenders as u64 {
            let (stream, ticket) = journal.open_stream(StreamId { kind: 0, id }).map_err(|error| anyhow!("{error}"))?;
            journal.wait(ticket).map_err(|error| anyhow!("{error}"))?;
            streams.push((stream, AtomicU64::new(0)));
        }
        Ok(Opened { journal, streams })
    }

    /// Segment files.
    fn files(&self) -> Result<usize> {
        let files = self.journal.submit(|log| Ok(log.files())).map_err(|error| anyhow!("{error}"))?;
        Ok(files as usize)
    }
}

impl Keeper for Opened {
    fn append(&self, appender: usize, record: &[u8]) -> u64 {
        let (stream, records) = &self.streams[appender];
        let (stream, count) = (*stream, records.fetch_add(1, Ordering::Relaxed) + 1);
        // Nanoseconds, at a thousand events a second.
        let tick = count * 1_000_000;
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
}
