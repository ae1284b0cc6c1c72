//! Reading the journal, in a thread of its own: for subscriptions that lag, and for the cleaning of
//! the map.

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

/// Reads that wait for the thread at most: those that the core opens at a time (16), and one for
/// the map.
const WAITING_MAX: usize = 32;

/// How often a part is read that the disk does not give, before it counts as lost.
const TRIES: u32 = 3;

/// How often records are looked for that are moved meanwhile, each time after [`PAUSE`], before
/// their part counts as lost.
const MOVES: u32 = 1000;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
enum Job {
    Fetch(Fetch, Option<Stream>),
    Clean(Stream, Wanted),
}

/// What was read.
#[derive(Debug)]
pub(super) enum Answer {
    Fetched(Slice),
    Piece(Result<Piece, ReadError>),
}

/// A part of a stream.
#[derive(Debug, Default)]
pub(super) struct Slice {
    pub(super) number: u32,
    bytes: Vec<u8>,
    records: Vec<(Tick, Range<usize>)>,
    /// How far the stream was read.
    pub(super) upto: Tick,
    /// A range, without its first tick, that cannot be read.
    pub(super) lost: Option<(Tick, Tick)>,
    /// What is damaged, if something is.
    pub(super) damage: Option<String>,
}

impl Slice {
    /// The records in the order of their ticks.
    pub(super) fn records(&self) -> Vec<(Tick, &[u8])> {
        self.records.iter().map(|(tick, range)| (*tick, &self.bytes[range.clone()])).collect()
    }
}

/// The thread that reads. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(journal: Arc<Disk>, signal: Arc<Signal>) -> std::io::Result<Reader> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("journal-read".into());
        let thread = thread.spawn(move || run(&journal, &signal, &waiting))?;
        Ok(Reader { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Reads a part of a stream; of one that has never been, nothing.
    pub(super) fn fetch(&self, fetch: Fetch, stream: Option<Stream>) {
        self.give(Job::Fetch(fetch, stream));
    }

    /// Reads what the map is to be cleaned of.
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

/// Reads a part of a stream. It always gets further: what cannot be read is lost.
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
            // It had nothing that was not given up.
            (Err(ReadError::Unknown), _) => {}
            // What was given before it failed counts; the next read begins where it did.
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

/// Notes what damage takes of a part.
fn lose(slice: &mut Slice, damage: &Damage, (after, upto): (Tick, Tick)) {
    let (from, to) = damage.lost.map_or((after, upto), |(_, from, to)| (Tick(from).max(after), Tick(to).min(upto)));
    slice.upto = to;
    slice.lost = Some((from, to));
    slice.damage = Some(damage.to_string());
}
