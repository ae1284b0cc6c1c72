//! A disk whose commits are records of a replicated stream, too.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use whimbrel_journal::{Fault, Slot, Storage, segment_number};

use crate::engine::{Engine, EngineError, RecordNumber};
use crate::mark::{DirectoryMark, MarkContents};
use crate::stream::{AppendObserver, EngineLink, OwnedStream, StreamEnd, UNTIL_ANSWERED, WrittenCommit};

/// Most bytes of commits that wait until they are sent: a sync waits beyond it.
pub const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// Who has to have a commit before it counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The disk. The engine has it later: [`Replicated::send`].
    Local,
    /// The engine. The disk is written to, and synced by [`Replicated::checkpoint`] only.
    Engine,
    /// The engine and the disk, which write at the same time.
    Both,
}

/// How far a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The epoch of its owner.
    pub epoch: u64,
    /// The last record that was acknowledged.
    pub last: RecordNumber,
    /// What it does not have yet.
    pub behind: Behind,
    /// Why nothing more is written.
    pub ended: Option<StreamEnd>,
}

/// Commits that are in flight or wait until they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Their number.
    pub commits: u64,
    /// Bytes that they wrote.
    pub bytes: u64,
}

/// A disk and a stream that has all of its commits; see the crate's description. It is opened by
/// [`Replicated::start`].
///
/// Of its locks, that of the mark is taken first, then that of the stream, then one of the others.
#[derive(Debug)]
pub struct Replicated<S, E> {
    disk: S,
    link: EngineLink<E>,
    acknowledgement: Acknowledgement,
    mark: Mutex<MarkKeeper>,
    stream: Mutex<OwnedStream>,
    written: Mutex<WrittenFiles>,
    waiting: Mutex<WaitingCommits>,
    has_changed: Condvar,
}

/// Where the mark is stored.
pub(crate) struct MarkKeeper {
    mark: Box<dyn DirectoryMark + Send>,
    /// The newest record of the mark that was stored.
    upto: RecordNumber,
}

impl fmt::Debug for MarkKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a mark up to {}", self.upto)
    }
}

impl MarkKeeper {
    pub(crate) fn new(mark: Box<dyn DirectoryMark + Send>) -> MarkKeeper {
        MarkKeeper { mark, upto: 0 }
    }

    /// What was stored, if it can be read.
    pub(crate) fn load(&self) -> Result<Option<MarkContents>, Fault> {
        Ok(self.mark.load()?.and_then(|bytes| MarkContents::decode(&bytes).ok()))
    }

    pub(crate) fn store(&mut self, contents: &MarkContents) -> Result<(), Fault> {
        self.mark.store(&contents.encode())?;
        self.upto = contents.upto;
        Ok(())
    }
}

/// The files as the journal has written them.
#[derive(Debug, Default)]
struct WrittenFiles {
    files: BTreeMap<Slot, WrittenFile>,
    /// Files that have been removed since the last commit.
    removed: Vec<Slot>,
    /// Files that have been written to since they were synced.
    unsynced: BTreeSet<Slot>,
}

/// A segment file.
#[derive(Debug)]
pub(crate) struct WrittenFile {
    bytes: u64,
    /// The number of the segment in it.
    segment: Option<u64>,
    /// Offsets and bytes that were written since the last sync: a step of the journal.
    parts: Vec<(u64, Vec<u8>)>,
}

/// Commits that the stream does not have.
#[derive(Debug)]
struct WaitingCommits {
    queue: VecDeque<Arc<WrittenCommit>>,
    standing: Standing,
}

impl WrittenFile {
    /// A file of this many bytes; without a segment until the first commit to it.
    pub(crate) fn new(bytes: u64, segment: Option<u64>) -> WrittenFile {
        WrittenFile { bytes, segment, parts: Vec::new() }
    }
}

impl WrittenFiles {
    /// What was written to a file since the last sync, if anything was. A header with another
    /// number begins a segment.
    fn take(&mut self, slot: Slot) -> Option<WrittenCommit> {
        let file = self.files.get_mut(&slot).filter(|file| !file.parts.is_empty())?;
        let begun = file.parts.iter().filter(|(offset, _)| *offset == 0).find_map(|(_, bytes)| segment_number(bytes));
        file.segment = begun.or(file.segment);
        let segment = file.segment.expect("a segment begins with its header");
        let (file_bytes, parts) = (file.bytes, std::mem::take(&mut file.parts));
        let removed = std::mem::take(&mut self.removed);
        Some(WrittenCommit { slot, segment, file_bytes, parts, removed, has_more: false })
    }
}

impl<S: Storage, E: Engine> Replicated<S, E> {
    pub(crate) fn new(
        disk: S,
        link: EngineLink<E>,
        keeper: MarkKeeper,
        stream: OwnedStream,
        acknowledgement: Acknowledgement,
    ) -> Result<Replicated<S, E>, Fault> {
        let mut files = BTreeMap::new();
        for (slot, bytes) in disk.slots()? {
            files.insert(slot, WrittenFile::new(bytes, stream.segments().get(&slot).map(|segment| segment.number)));
        }
        let (epoch, last) = (stream.epoch(), stream.last());
        let standing = Standing { epoch, last, behind: Behind::default(), ended: None };
        Ok(Replicated {
            disk,
            link,
            acknowledgement,
            mark: Mutex::new(keeper),
            stream: Mutex::new(stream),
            written: Mutex::new(WrittenFiles { files, ..WrittenFiles::default() }),
            waiting: Mutex::new(WaitingCommits { queue: VecDeque::new(), standing }),
            has_changed: Condvar::new(),
        })
    }

    /// Ends waiting, now and later: for a record that the engine does not answer for, for room in
    /// the queue, and for commits to send.
    pub fn stop(&self) {
        let _waiting = self.waiting();
        self.link.stop();
        self.has_changed.notify_all();
    }

    /// Ends writing for this reason, which is known otherwise than from a commit. A disk that
    /// acknowledges alone acknowledges nothing more either.
    pub fn give_up(&self, why: StreamEnd) {
        self.end(why);
        self.stop();
    }

    /// Why the record in flight has not been appended yet, in the words of the engine.
    pub fn trouble(&self) -> Option<String> {
        self.link.trouble()
    }

    /// From now on `observe` is called with the time of each append that the engine acknowledges,
    /// from its first request on.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn observe_appends(&self, observe: impl Fn(Duration) + Send + Sync + 'static) {
        self.link.observe(AppendObserver(Box::new(observe)));
    }

    /// How long the record that is in flight has been so; 0 if none is.
    pub fn in_flight(&self) -> Duration {
        self.link.in_flight()
    }

    /// Removes records that are of no use any more, at most [`crate::CUT_RECORDS_MAX`]; tells
    /// whether there are more. Commits may go on meanwhile.
    ///
    /// # Errors
    /// When the engine does not do it; it may be tried again.
    pub fn cut(&self) -> Result<bool, EngineError> {
        self.link.cut()
    }

    /// How far the stream is. It is told while a commit is waited for, too.
    pub fn standing(&self) -> Standing {
        self.waiting().standing.clone()
    }

    /// Stores in the mark that the files have all that the stream has; `false`: it says so already.
    /// Commits go on meanwhile, once the one in flight has been answered.
    ///
    /// # Errors
    /// When writing has ended, or the disk or the mark fails. An error of the disk ends all
    /// writing.
    pub fn checkpoint(&self) -> Result<bool, Fault> {
        let mut keeper = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = {
            let stream = self.stream();
            self.check_ended()?;
            if stream.last() == keeper.upto {
                return Ok(false);
            }
            stream.mark(&self.link, self.acknowledgement)
        };
        if fault!(self.link, MarkBeforeSync) {
            keeper.store(&contents)?;
        }
        // With the others each commit has synced its file. A second sync could take the error of a
        // commit's own, which would succeed then.
        let is_due = self.acknowledgement == Acknowledgement::Engine;
        let unsynced = if is_due { std::mem::take(&mut self.written().unsynced) } else { BTreeSet::new() };
        for slot in unsynced {
            if let Err(fault) = self.disk.sync(slot)
                && self.written().files.contains_key(&slot)
            {
                return Err(self.end(fault.into()).into());
            }
        }
        keeper.store(&contents)?;
        Ok(true)
    }

    /// Sends the oldest commit that waits for it; `false`: there is none. One thread at a time
    /// calls it, with [`Acknowledgement::Local`].
    ///
    /// # Errors
    /// When writing has ended.
    pub fn send(&self) -> Result<bool, Fault> {
        let mut stream = self.stream();
        self.check_ended()?;
        let Some(commit) = self.waiting().queue.front().map(Arc::clone) else { return Ok(false) };
        let sent = stream.append(&self.link, &commit, UNTIL_ANSWERED, &mut || {});
        sent.map_err(|ended| self.end(ended))?;
        self.waiting().queue.pop_front();
        self.note_sent(&stream, &commit);
        Ok(true)
    }

    /// Waits until there is a commit to [`Replicated::send`]; `false`: writing has ended, or
    /// [`Replicated::stop`].
    pub fn wait_for_commits(&self) -> bool {
        let mut waiting = self.waiting();
        loop {
            if self.link.has_stopped() || waiting.standing.ended.is_some() {
                return false;
            }
            if !waiting.queue.is_empty() {
                return true;
            }
            waiting = self.has_changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stream(&self) -> MutexGuard<'_, OwnedStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, WrittenFiles> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingCommits> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_ended(&self) -> Result<(), Fault> {
        self.waiting().standing.ended.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Ends all writing, if that has not ended before; tells why it has.
    fn end(&self, ended: StreamEnd) -> StreamEnd {
        let mut waiting = self.waiting();
        self.has_changed.notify_all();
        waiting.standing.ended.get_or_insert(ended).clone()
    }

    fn note_sent(&self, stream: &OwnedStream, commit: &WrittenCommit) {
        let mut waiting = self.waiting();
        let Standing { last, behind, .. } = &mut waiting.standing;
        *last = stream.last();
        (behind.commits, behind.bytes) = (behind.commits - 1, behind.bytes - commit.bytes());
        self.has_changed.notify_all();
    }

    fn sync_disk(&self, slot: Slot) -> Result<(), Fault> {
        self.disk.sync(slot)?;
        self.written().unsynced.remove(&slot);
        Ok(())
    }

    /// Makes a commit a record, and the disk durable as far as it has to be.
    fn commit(&self, commit: &WrittenCommit) -> Result<(), StreamEnd> {
        let mut stream = self.stream();
        let behind = Behind { commits: 1, bytes: commit.bytes() };
        self.waiting().standing.behind = behind;
        let mut synced = Ok(());
        let mut sync = || {
            if self.acknowledgement == Acknowledgement::Both {
                synced = self.sync_disk(commit.slot);
            }
        };
        stream.append(&self.link, commit, UNTIL_ANSWERED, &mut sync)?;
        // No checkpoint comes between: it would mark a file that was not synced.
        synced.map_err(|fault| self.end(fault.into()))?;
        self.note_sent(&stream, commit);
        Ok(())
    }

    /// Makes the disk durable, and a commit one of those that are sent later, once there is room.
    fn enqueue(&self, commit: WrittenCommit) -> Result<(), StreamEnd> {
        self.sync_disk(commit.slot)?;
        let mut waiting = self.waiting();
        while waiting.standing.behind.bytes > 0 && waiting.standing.behind.bytes + commit.bytes() > QUEUE_BYTES_MAX {
            if self.link.has_stopped() {
                return Err(StreamEnd::Unanswered);
            }
            if let Some(ended) = &waiting.standing.ended {
                return Err(ended.clone());
            }
            waiting = self.has_changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let behind = &mut waiting.standing.behind;
        (behind.commits, behind.bytes) = (behind.commits + 1, behind.bytes + commit.bytes());
        waiting.queue.push_back(Arc::new(commit));
        self.has_changed.notify_all();
        Ok(())
    }
}

impl<S: Storage, E: Engine> Storage for Replicated<S, E> {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        self.disk.slots()
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        self.disk.create(slot, bytes)?;
        self.written().files.insert(slot, WrittenFile::new(bytes, None));
        Ok(())
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        let mut written = self.written();
        self.disk.remove(slot)?;
        written.unsynced.remove(&slot);
        if written.files.remove(&slot).is_some_and(|file| file.segment.is_some()) {
            written.removed.push(slot);
        }
        Ok(())
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.disk.write(slot, offset, bytes)?;
        let mut written = self.written();
        written.unsynced.insert(slot);
        let file = written.files.get_mut(&slot).expect("only files that were made are written to");
        file.parts.push((offset, bytes.to_vec()));
        Ok(())
    }

    /// Makes what was written to the file a commit. Only one thread writes and syncs.
    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        self.check_ended()?;
        let Some(commit) = self.written().take(slot) else { return self.sync_disk(slot) };
        let outcome = match self.acknowledgement {
            Acknowledgement::Local => self.enqueue(commit),
            Acknowledgement::Engine | Acknowledgement::Both => self.commit(&commit),
        };
        outcome.map_err(|ended| self.end(ended).into())
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        self.sync(slot)?;
        self.disk.settle(slot)
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.disk.read(slot, offset, bytes)
    }

    fn name(&self, slot: Slot) -> String {
        self.disk.name(slot)
    }
}
