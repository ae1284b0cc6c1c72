//! Carries out the steps of the state machine. Everything here blocks.

use crate::log::{Chore, Log, WriteStep};
use crate::read::{Guide, ReadBuffer, Wanted, read};
use crate::storage::{Fault, Storage};
use crate::types::{ReadError, Stream, Tick};

/// Writes and syncs a step. `buffer` is scratch memory.
///
/// # Errors
/// The error of the disk, which must be passed to [`Log::written`].
pub fn perform_write(storage: &impl Storage, step: &WriteStep, buffer: &mut Vec<u8>) -> Result<(), Fault> {
    for (offset, range) in step.encode(buffer) {
        if !range.is_empty() {
            storage.write(step.slot(), offset, &buffer[range])?;
        }
    }
    storage.sync(step.slot())
}

/// The outcome of a chore.
#[derive(Debug)]
pub struct ChoreDone {
    chore: Chore,
    outcome: Result<Vec<u8>, Fault>,
}

/// Does a chore. The outcome must be passed to [`Log::chore_done`].
pub fn perform_chore(storage: &impl Storage, chore: Chore) -> ChoreDone {
    let outcome = match chore {
        Chore::Create { slot, bytes } => storage.create(slot, bytes).map(|()| Vec::new()),
        Chore::Remove { slot } => storage.remove(slot).map(|()| Vec::new()),
        Chore::Fetch { slot, offset, bytes } => {
            let mut buffer = vec![0; bytes];
            storage.read(slot, offset, &mut buffer).map(|()| buffer)
        }
    };
    ChoreDone { chore, outcome }
}

impl Log {
    /// Takes the outcome of a chore. A file that could not be removed is found, and removed or
    /// used, at the next opening.
    pub fn chore_done(&mut self, done: ChoreDone) {
        match (done.chore, done.outcome) {
            (Chore::Create { slot, .. }, outcome) => self.created(slot, outcome.map(|_| ())),
            (Chore::Remove { .. }, _) => self.removed(),
            (Chore::Fetch { .. }, Ok(bytes)) => self.fetched(Ok(&bytes)),
            (Chore::Fetch { .. }, Err(fault)) => self.fetched(Err(fault)),
        }
    }
}

/// A journal that its caller drives step by step: for simulations, tests and tools.
/// [`crate::Journal`] does the same with threads.
#[derive(Debug)]
pub struct Stepped<'a, S> {
    /// The state machine.
    pub log: Log,
    storage: &'a S,
    buffer: Vec<u8>,
}

impl<'a, S: Storage> Stepped<'a, S> {
    /// Drives this journal on this disk.
    pub fn new(log: Log, storage: &'a S) -> Stepped<'a, S> {
        Stepped { log, storage, buffer: Vec::new() }
    }

    /// Does the next write; false if there is none.
    pub fn write(&mut self) -> bool {
        let Some(step) = self.log.next_write() else { return false };
        let outcome = perform_write(self.storage, &step, &mut self.buffer);
        self.log.written(step, outcome);
        true
    }

    /// Does the next chore; false if there is none.
    pub fn chore(&mut self) -> bool {
        let Some(chore) = self.log.next_chore() else { return false };
        self.log.chore_done(perform_chore(self.storage, chore));
        true
    }

    /// Does all pending writes and chores.
    pub fn settle(&mut self) {
        while self.write() || self.chore() {}
    }

    /// Reads durable records in tick order; returns the tick to continue from, `None` at the end.
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
        read_from(&self.log, self.storage, (stream, wanted), buffer, sink)
    }
}

/// Reads from a journal that is not driven meanwhile.
pub(crate) fn read_from(
    log: &Log,
    storage: &impl Storage,
    (stream, wanted): (Stream, Wanted),
    buffer: &mut ReadBuffer,
    sink: &mut dyn FnMut(Tick, &[u8]),
) -> Result<Option<Tick>, ReadError> {
    read(&Borrowed(log), storage, (stream, wanted), buffer, sink)
}

struct Borrowed<'a>(&'a Log);

impl Guide for Borrowed<'_> {
    fn with<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(self.0)
    }
}
