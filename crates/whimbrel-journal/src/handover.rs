//! Shares one journal between threads: those that append, the writer thread, and the thread that
//! does chores.
//!
//! One lock guards the state machine. It is held while an operation is collected (a copy of the
//! record) and while a step is taken or reported, never during IO. The writer sleeps only when
//! there is nothing to write, and is woken only then.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use crate::{Chore, Fault, Log, Refused, Storage, Ticket, WriteStep, perform_chore, perform_write};

/// Pause after the disk was full before the next attempt to make a file.
pub const FULL_RETRY: Duration = Duration::from_secs(1);

/// The outcome of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything up to this ticket is durable.
    Committed(Ticket),
    /// No further commit is possible, because of this fault.
    Poisoned(Fault),
}

/// A report of the writer, and what it does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterReport {
    /// The outcome of the last write.
    pub progress: Progress,
    /// The writer has nothing to write: a slow callback delays only submissions that come
    /// meanwhile.
    pub is_idle: bool,
}

/// A journal shared between threads.
#[derive(Debug)]
pub struct Handover<S> {
    inner: Mutex<Inner>,
    /// Signalled when there may be something to write.
    write: Condvar,
    /// Signalled when there may be a chore.
    chore: Condvar,
    /// Signalled when a batch was committed, or there is room.
    progress: Condvar,
    storage: S,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    chore: Option<Chore>,
    closing: bool,
    writer_sleeps: bool,
    /// Number of threads that wait for progress.
    waiting: u32,
}

impl<S: Storage> Handover<S> {
    /// Shares this journal.
    pub fn new(log: Log, storage: S) -> Handover<S> {
        let inner = Inner { log, chore: None, closing: false, writer_sleeps: false, waiting: 0 };
        Handover {
            inner: Mutex::new(inner),
            write: Condvar::new(),
            chore: Condvar::new(),
            progress: Condvar::new(),
            storage,
        }
    }

    /// The disk.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Calls `look` with the journal, for inspection or an operation that writes nothing.
    pub fn with<T>(&self, look: impl FnOnce(&mut Log) -> T) -> T {
        look(&mut self.lock().log)
    }

    /// Does an operation without waiting.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn submit<T>(&self, operation: impl FnOnce(&mut Log) -> Result<T, Refused>) -> Result<T, Refused> {
        let mut inner = self.lock();
        let outcome = operation(&mut inner.log);
        self.wake(&mut inner, false);
        outcome
    }

    /// Does an operation, and repeats it while the journal is busy.
    ///
    /// # Errors
    /// The error of the operation; [`Refused::Busy`] only if the journal is being closed.
    pub fn submit_wait<T>(&self, mut operation: impl FnMut(&mut Log) -> Result<T, Refused>) -> Result<T, Refused> {
        let mut inner = self.lock();
        loop {
            let outcome = operation(&mut inner.log);
            self.wake(&mut inner, false);
            match outcome {
                Err(Refused::Busy) if !inner.closing => inner = self.sleep(inner),
                outcome => return outcome,
            }
        }
    }

    /// Waits until everything up to this ticket is durable.
    ///
    /// # Errors
    /// [`Refused::Poisoned`], or [`Refused::Full`] if the journal was closed before there was room
    /// for it.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Refused> {
        let mut inner = self.lock();
        loop {
            if inner.log.committed() >= ticket {
                return Ok(());
            }
            if let Some(fault) = inner.log.poisoned() {
                return Err(Refused::Poisoned(fault.clone()));
            }
            if inner.closing && inner.writer_sleeps {
                return Err(Refused::Full);
            }
            inner = self.sleep(inner);
        }
    }

    /// Writes until the journal is closed and everything that can be written is written. To be
    /// called by one thread. `told` is called between two writes and delays the second.
    pub fn run_writer(&self, told: &mut dyn FnMut(WriterReport)) {
        let mut buffer = Vec::new();
        let mut progress = None;
        let mut inner = self.lock();
        loop {
            // Taken before the lock is released: a thread that waits for the lock would only delay
            // the disk.
            let step = inner.log.next_write();
            if progress.is_none() && step.is_none() {
                inner.writer_sleeps = true;
                if inner.closing {
                    self.progress.notify_all();
                    return;
                }
                inner = self.write.wait(inner).unwrap_or_else(PoisonError::into_inner);
                inner.writer_sleeps = false;
                continue;
            }
            drop(inner);
            if let Some(progress) = progress.take() {
                told(WriterReport { progress, is_idle: step.is_none() });
            }
            let outcome = step.map(|step| {
                let outcome = perform_write(&self.storage, &step, &mut buffer);
                (step, outcome)
            });
            inner = self.lock();
            if let Some((step, outcome)) = outcome {
                progress = self.report(&mut inner, step, outcome);
            }
        }
    }

    fn report(&self, inner: &mut Inner, step: WriteStep, outcome: Result<(), Fault>) -> Option<Progress> {
        let before = inner.log.committed();
        let poison = outcome.as_ref().err().cloned();
        let committed = inner.log.written(step, outcome);
        self.wake(inner, true);
        if inner.waiting > 0 {
            self.progress.notify_all();
        }
        poison.map(Progress::Poisoned).or((committed > before).then_some(Progress::Committed(committed)))
    }

    /// Does chores until the journal is closed. To be called by one thread.
    pub fn run_chores(&self) {
        let mut inner = self.lock();
        loop {
            if inner.closing {
                return;
            }
            self.wake(&mut inner, true);
            let Some(chore) = inner.chore.take() else {
                inner = self.wait_for_chore(inner);
                continue;
            };
            drop(inner);
            let done = perform_chore(&self.storage, chore);
            inner = self.lock();
            inner.log.chore_done(done);
            if inner.waiting > 0 {
                self.progress.notify_all();
            }
        }
    }

    fn wait_for_chore<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        if !inner.log.wants_retry() {
            return self.chore.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut inner, timeout) = self.chore.wait_timeout(inner, FULL_RETRY).unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            inner.log.retry_space();
        }
        inner
    }

    /// Lets both threads end; accepted operations are still written.
    pub fn close(&self) {
        self.lock().closing = true;
        self.write.notify_all();
        self.chore.notify_all();
        self.progress.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock is a defect; the journal's own assertions have checked its state
        // by then.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.waiting += 1;
        let mut inner = self.progress.wait(inner).unwrap_or_else(PoisonError::into_inner);
        inner.waiting -= 1;
        inner
    }

    /// Wakes the threads that have work. Chores arise only from commits, from chores, and from a
    /// lack of room.
    fn wake(&self, inner: &mut Inner, chores: bool) {
        let chores = inner.log.wants_chore() || chores;
        if chores && inner.chore.is_none() {
            inner.chore = inner.log.next_chore();
            if inner.chore.is_some() {
                self.chore.notify_one();
            }
        }
        if inner.writer_sleeps {
            self.write.notify_one();
        }
    }
}
