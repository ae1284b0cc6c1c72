//! A journal with threads of its own.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::file::Directory;
use crate::handover::{Handover, Progress};
use crate::log::Log;
use crate::read::{Guide, ReadBuffer, Wanted, read};
use crate::recover::Report;
use crate::storage::{Fault, Storage};
use crate::types::{OpenError, Options, ReadError, Refused, Stream, StreamId, StreamInfo, Tick, Ticket};

/// A journal that is open: shared by all threads that append and read. It has two threads, one that
/// writes and syncs, and one that makes files ahead of need and relocates. When it is dropped, what
/// was accepted is written first.
///
/// Memory: at most two batches ([`Options::batch_bytes`]) and their encoding, beside what [`Log`]
/// needs.
#[derive(Debug)]
pub struct Journal<S: Storage + Send + Sync + 'static = Directory> {
    shared: Arc<Handover<S>>,
    threads: Vec<JoinHandle<()>>,
}

impl Journal<Directory> {
    /// Opens the journal in a directory, or makes both. `told` is called by the writer after each
    /// commit.
    ///
    /// # Errors
    /// See [`OpenError`]; one is that another process has it open.
    pub fn open(
        path: &Path,
        options: Options,
        told: impl FnMut(Progress) + Send + 'static,
    ) -> Result<(Journal, Report), OpenError> {
        let directory = Directory::open(path)?;
        let (log, report) = Log::open(&directory, options, directory.random()?)?;
        Ok((Journal::start(directory, log, told)?, report))
    }
}

impl<S: Storage + Send + Sync + 'static> Journal<S> {
    /// Gives a journal its threads.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(storage: S, log: Log, mut told: impl FnMut(Progress) + Send + 'static) -> Result<Journal<S>, Fault> {
        let shared = Arc::new(Handover::new(log, storage));
        let mut journal = Journal { shared: Arc::clone(&shared), threads: Vec::new() };
        let writer = Arc::clone(&shared);
        journal.spawn("journal-write", move || writer.run_writer(&mut told))?;
        journal.spawn("journal-chores", move || shared.run_chores())?;
        Ok(journal)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(|error| Fault::Failed(format!("no thread for the journal: {error}")))?);
        Ok(())
    }

    /// See [`Log::open_stream`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but [`Refused::Busy`].
    pub fn open_stream(&self, id: StreamId) -> Result<(Stream, Ticket), Refused> {
        self.shared.submit_wait(|log| log.open_stream(id))
    }

    /// See [`Log::append`]. Does not wait: [`Refused::Busy`] is back-pressure.
    ///
    /// # Errors
    /// As there.
    pub fn try_append(&self, stream: Stream, tick: Tick, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.shared.submit(|log| log.append(stream, tick, parts))
    }

    /// See [`Log::append`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but [`Refused::Busy`].
    pub fn append(&self, stream: Stream, tick: Tick, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.append(stream, tick, parts))
    }

    /// See [`Log::chop`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but [`Refused::Busy`].
    pub fn chop(&self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.chop(stream, upto))
    }

    /// See [`Log::reserve`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but [`Refused::Busy`].
    pub fn reserve(&self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.reserve(stream, upto))
    }

    /// See [`Log::remove`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but [`Refused::Busy`].
    pub fn remove(&self, stream: Stream) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.remove(stream))
    }

    /// Does several operations under one lock, for example to append to several streams. Must not
    /// block.
    ///
    /// # Errors
    /// Whatever they say.
    pub fn submit<T>(&self, operations: impl FnOnce(&mut Log) -> Result<T, Refused>) -> Result<T, Refused> {
        self.shared.submit(operations)
    }

    /// As [`Journal::submit`], but waits while the journal is busy and then does it all again:
    /// whatever is refused must leave nothing behind, see [`Log::require`].
    ///
    /// # Errors
    /// Whatever they say, but [`Refused::Busy`].
    pub fn submit_wait<T>(&self, operations: impl FnMut(&mut Log) -> Result<T, Refused>) -> Result<T, Refused> {
        self.shared.submit_wait(operations)
    }

    /// See [`Log::lend_reserve`].
    pub fn lend_reserve(&self, lent: bool) {
        self.shared.with(|log| log.lend_reserve(lent));
    }

    /// Waits until everything up to this ticket is durable.
    ///
    /// # Errors
    /// [`Refused::Poisoned`].
    pub fn wait(&self, ticket: Ticket) -> Result<(), Refused> {
        self.shared.wait(ticket)
    }

    /// The disk.
    pub fn storage(&self) -> &S {
        self.shared.storage()
    }

    /// See [`Log::committed`].
    pub fn committed(&self) -> Ticket {
        self.shared.with(|log| log.committed())
    }

    /// See [`Log::info`].
    pub fn info(&self, stream: Stream) -> Option<StreamInfo> {
        self.shared.with(|log| log.info(stream))
    }

    /// The streams by name.
    pub fn streams(&self) -> Vec<(StreamId, Stream)> {
        self.shared.with(|log| log.streams().collect())
    }

    /// Reads records that are durable, in tick order; returns the tick to go on from, `None` at the
    /// end. Appending goes on meanwhile. A stream in which damage is found is stopped.
    ///
    /// # Errors
    /// See [`ReadError`]. With [`ReadError::Damaged`] nothing was given.
    pub fn read(
        &self,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(Tick, &[u8]),
    ) -> Result<Option<Tick>, ReadError> {
        let outcome = read(&Locked(&self.shared), self.shared.storage(), (stream, wanted), buffer, sink);
        if let Err(ReadError::Damaged(damage)) = &outcome {
            self.shared.with(|log| log.stop(damage.clone()));
        }
        outcome
    }

    /// Copies the journal as it is now into other, empty storage, where it can be opened. Appending
    /// and reading go on; nothing is given back meanwhile.
    ///
    /// # Errors
    /// When either disk fails.
    pub fn backup(&self, target: &impl Storage) -> Result<(), Fault> {
        let cut = self.shared.with(Log::begin_cut);
        let copied = cut.copy(self.shared.storage(), target);
        self.shared.with(Log::end_cut);
        copied
    }

    /// Writes what was accepted and ends the threads.
    ///
    /// # Errors
    /// [`Refused`] if not all of it could be written.
    pub fn close(mut self) -> Result<(), Refused> {
        self.end();
        let accepted = self.shared.with(|log| log.accepted());
        self.shared.wait(accepted)
    }

    fn end(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl<S: Storage + Send + Sync + 'static> Drop for Journal<S> {
    fn drop(&mut self) {
        self.end();
    }
}

struct Locked<'a, S>(&'a Handover<S>);

impl<S: Storage> Guide for Locked<'_, S> {
    fn with<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        self.0.with(|log| look(log))
    }
}
