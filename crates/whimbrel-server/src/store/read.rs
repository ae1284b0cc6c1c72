//! Reads the journal in its own thread: for cursors in catch-up, and for the cleaning of the map.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use whimbrel_core::store::Fetch;
use whimbrel_event::Tick;
use whimbrel_journal::{Damage, Piece, ReadBuffer, ReadError, Stream, Wanted};

use super::Disk;
use super::signal::Signal;

/// Reads that wait for the thread at most: more than the core has open at a time (16), and one for
/// the map.
const WAITING_MAX: usize = 32;

/// Times that an unreadable part is read before it counts as lost.
const TRIES: u32 = 3;

/// Times that records being moved are looked for, each after [`PAUSE`], before their part counts as
/// lost.
const MOVES: u32 = 1000;

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
enum Job {
    Fetch(Fetch, Option<Stream>),
    Clean(Stream, Wanted),
}

/// Result of a read.
#[derive(Debug)]
pub(super) enum Answer {
    Fetched(Slice),
    Piece(Result<Piece, ReadError>),
}

/// Part of a stream.
#[derive(Debug, Default)]
pub(super) struct Slice {
    pub(super) number: u32,
    bytes: Vec<u8>,
    records: Vec<(Tick, Range<usize>)>,
    /// Last tick up to which the stream was read.
    pub(super) upto: Tick,
    /// A range, without its first tick, that cannot be read.
    pub(super) lost: Option<(Tick, Tick)>,
    /// Description of the damage, if any.
    pub(super) damage: Option<String>,
}

impl Slice {
    /// The records in the order of their ticks.
    pub(super) fn records(&self) -> Vec<(Tick, &[u8])> {
        self.records.iter().map(|(tick, range)| (*tick, &self.bytes[range.clone()])).collect()
    }
}

/// The thread that reads the journal. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(journal: Arc<Disk>, signal: Arc<Signal>) -> std::io::Result<Reader> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("journal-read".into());
        let thread = thread.spawn(move || run(&journal, &signal, &waiting))?;
        Ok(Reader { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts the read of a part of a stream. Without a stream the part is empty.
    pub(super) fn fetch(&self, fetch: Fetch, stream: Option<Stream>) {
        self.give(Job::Fetch(fetch, stream));
    }

    /// Starts the read of the part of the map that is to be cleaned.
    pub(super) fn clean(&self, map: Stream, wanted: Wanted) {
        self.give(Job::Clean(map, wanted));
    }

    fn give(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("it is there until this is dropped");
        jobs.try_send(job).expect("no more reads are open than the core and the map may have");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn run(journal: &Disk, signal: &Signal, jobs: &Receiver<Job>) {
    let mut buffer = ReadBuffer::default();
    for job in jobs {
        signal.answer(match job {
            Job::Fetch(fetch, stream) => Answer::Fetched(fetched(journal, fetch, stream, &mut buffer)),
            Job::Clean(map, wanted) => Answer::Piece(Piece::read(journal, map, wanted, &mut buffer)),
        });
    }
}

/// Reads a part of a stream. Always makes progress: an unreadable range counts as lost.
fn fetched(journal: &Disk, fetch: Fetch, stream: Option<Stream>, buffer: &mut ReadBuffer) -> Slice {
    let Fetch { number, after, upto, bytes: budget, .. } = fetch;
    let mut slice = Slice { number, upto, ..Slice::default() };
    let Some(stream) = stream else { return slice };
    let (mut tries, mut moves) = (0, 0);
    loop {
        let wanted = Wanted { from: after.0 + 1, to: upto.0, budget };
        let Slice { bytes, records, .. } = &mut slice;
        let read = journal.read(stream, wanted, buffer, &mut |tick, record| {
            let begin = bytes.len();
            bytes.extend_from_slice(record);
            records.push((Tick(tick), begin..bytes.len()));
        });
        let last = records.last().map(|(tick, _)| *tick);
        match (read, last) {
            (Ok(next), _) => slice.upto = next.map_or(upto, |next| Tick(next - 1)),
            // All of the stream was given up.
            (Err(ReadError::Unknown), _) => {}
            // Records read before the error count; the next read begins behind the last of them.
            (Err(_), Some(last)) => slice.upto = last,
            (Err(ReadError::Damaged(damage)), None) => lose(&mut slice, &damage, (after, upto)),
            (Err(ReadError::Moved), None) if moves < MOVES => {
                moves += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            (Err(ReadError::Storage(_)), None) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            (Err(error), None) => {
                slice.lost = Some((after, upto));
                slice.damage = Some(error.to_string());
            }
        }
        return slice;
    }
}

/// Records the range that damage takes of a part.
fn lose(slice: &mut Slice, damage: &Damage, (after, upto): (Tick, Tick)) {
    let (from, to) = damage.lost.map_or((after, upto), |(_, from, to)| (Tick(from).max(after), Tick(to).min(upto)));
    slice.upto = to;
    slice.lost = Some((from, to));
    slice.damage = Some(damage.to_string());
}
