//! A journal with threads of its own.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::file::Directory;
use crate::handover::{Handover, WriterReport};
use crate::log::Log;
use crate::read::{Guide, ReadBuffer, Wanted, read};
use crate::recover::Report;
use crate::storage::{Fault, Storage};
use crate::types::{OpenError, Options, ReadError, Refused, Stream, StreamId, StreamInfo, Tick, Ticket};

/// An open journal, shared by all threads that append and read. It has two threads: one writes and
/// syncs, the other makes files ahead of need and relocates. When it is dropped, accepted
/// operations are written first.
///
/// Memory: at most two batches ([`Options::batch_bytes`]) and their encoding, beside that of
/// [`Log`].
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
    /// See [`OpenError`]; one is that another process has the journal open.
    pub fn open(
        path: &Path,
        options: Options,
        told: impl FnMut(WriterReport) + Send + 'static,
    ) -> Result<(Journal, Report), OpenError> {
        let directory = Directory::open(path)?;
        let (log, report) = Log::open(&directory, options, directory.random()?)?;
        Ok((Journal::start(directory, log, told)?, report))
    }
}

impl<S: Storage + Send + Sync + 'static> Journal<S> {
    /// Starts the threads of a journal.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(
        storage: S,
        log: Log,
        mut told: impl FnMut(WriterReport) + Send + 'static,
    ) -> Result<Journal<S>, Fault> {
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
    /// As there, but never [`Refused::Busy`].
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
    /// As there, but never [`Refused::Busy`].
    pub fn append(&self, stream: Stream, tick: Tick, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.append(stream, tick, parts))
    }

    /// See [`Log::chop`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but never [`Refused::Busy`].
    pub fn chop(&self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.chop(stream, upto))
    }

    /// See [`Log::reserve`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but never [`Refused::Busy`].
    pub fn reserve(&self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.reserve(stream, upto))
    }

    /// See [`Log::remove`]; waits while the journal is busy.
    ///
    /// # Errors
    /// As there, but never [`Refused::Busy`].
    pub fn remove(&self, stream: Stream) -> Result<Ticket, Refused> {
        self.shared.submit_wait(|log| log.remove(stream))
    }

    /// Does several operations under one lock, for example to append to several streams.
    /// `operations` must not block.
    ///
    /// # Errors
    /// The error that `operations` returns.
    pub fn submit<T>(&self, operations: impl FnOnce(&mut Log) -> Result<T, Refused>) -> Result<T, Refused> {
        self.shared.submit(operations)
    }

    /// As [`Journal::submit`], but waits while the journal is busy and then repeats `operations` as
    /// a whole: a refused attempt must leave no change, see [`Log::require`].
    ///
    /// # Errors
    /// The error that `operations` returns, but never [`Refused::Busy`].
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

    /// All streams with their names.
    pub fn streams(&self) -> Vec<(StreamId, Stream)> {
        self.shared.with(|log| log.streams().collect())
    }

    /// Reads durable records in tick order; returns the tick to continue from, `None` at the end.
    /// Appending continues meanwhile. A stream in which damage is found is stopped.
    ///
    /// # Errors
    /// See [`ReadError`]. With [`ReadError::Damaged`] no record was given.
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

    /// Copies the journal's present state into other, empty storage, where it can be opened.
    /// Appending and reading continue; no segment is reused meanwhile.
    ///
    /// # Errors
    /// When either disk fails.
    pub fn backup(&self, target: &impl Storage) -> Result<(), Fault> {
        let cut = self.shared.with(Log::begin_cut);
        let copied = cut.copy(self.shared.storage(), target);
        self.shared.with(Log::end_cut);
        copied
    }

    /// Writes accepted operations and ends the threads.
    ///
    /// # Errors
    /// [`Refused`] if not all of them could be written.
    pub fn close(mut self) -> Result<(), Refused> {
        self.end();
        let accepted = self.shared.with(|log| log.accepted());
        self.shared.wait(accepted)
    }

    fn end(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // The callback may hold the last reference: then the writer itself drops the journal,
            // and ends when the callback returns.
            if thread.thread().id() == std::thread::current().id() {
                continue;
            }
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
