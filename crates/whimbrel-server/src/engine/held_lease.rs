//! The lease of a broker's name, from the moment that this process has it.
//!
//! A thread of its own renews it, so that nothing else which waits for the engine or the disk (a
//! long start, a commit that is not answered) lets another start take a living broker for dead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use whimbrel_engine::nats::Nats;
use whimbrel_engine::{EngineError, LEASE_RENEWED_EVERY, Lease, Leases, RecordNumber};

/// Dropped, it releases the name; blocks for that.
pub(super) struct HeldLease {
    shared: Arc<LeaseOfName>,
    /// `None` once it has ended.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct LeaseOfName {
    nats: Arc<Nats>,
    lease: Mutex<Lease>,
    is_ending: AtomicBool,
    /// Another process has the name: nothing is written any more.
    is_lost: AtomicBool,
    /// Renewals that failed.
    failures: AtomicU64,
}

impl HeldLease {
    /// Renews a lease from now on, whose newest revision this is.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(nats: Arc<Nats>, lease: Lease, revision: RecordNumber) -> io::Result<HeldLease> {
        let shared = Arc::new(LeaseOfName {
            nats,
            lease: Mutex::new(lease),
            is_ending: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        });
        let running = Arc::clone(&shared);
        let thread = thread::Builder::new().name("engine-lease".into()).spawn(move || running.run(revision))?;
        Ok(HeldLease { shared, thread: Mutex::new(Some(thread)) })
    }

    /// From the next renewal on, the lease tells this epoch.
    pub(super) fn set_epoch(&self, epoch: u64) {
        self.shared.lease.lock().epoch = epoch;
    }

    /// Renewals that failed.
    pub(super) fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Leaves the name to the process that has taken it.
    pub(super) fn lose(&self) {
        self.shared.is_lost.store(true, Ordering::SeqCst);
    }

    /// Ends the renewals, and releases the name if it is not lost. Blocks while the engine does not
    /// answer, for two requests.
    pub(super) fn end(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.shared.is_ending.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        // A panic of it has been reported.
        let _ = thread.join();
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.end();
    }
}

impl LeaseOfName {
    fn run(&self, mut revision: RecordNumber) {
        loop {
            thread::park_timeout(LEASE_RENEWED_EVERY);
            if self.is_lost.load(Ordering::SeqCst) {
                return;
            }
            if self.is_ending.load(Ordering::SeqCst) {
                return self.release(revision);
            }
            match self.renew(revision) {
                Ok(renewed) => revision = renewed,
                Err(_) => _ = self.failures.fetch_add(1, Ordering::Relaxed),
            }
        }
    }

    /// Writes the lease behind its newest revision; returns the new one. Another owner's lease is
    /// left alone until that is released: only a greater epoch ends this owner, so that a start
    /// that fails ends nothing.
    fn renew(&self, revision: RecordNumber) -> Result<RecordNumber, EngineError> {
        let lease = self.lease.lock().clone();
        match self.nats.put_lease(revision, &lease.encode()) {
            Err(EngineError::Refused) => {}
            outcome => return outcome,
        }
        let found = self.nats.lease()?;
        let other = found.as_ref().and_then(|found| Lease::decode(&found.bytes));
        if other.is_some_and(|other| other.owner != lease.owner && !other.released) {
            return Err(EngineError::Refused);
        }
        self.nats.put_lease(found.map_or(0, |found| found.revision), &lease.encode())
    }

    fn release(&self, revision: RecordNumber) {
        self.lease.lock().released = true;
        if let Err(error) = self.renew(revision) {
            tracing::warn!(
                %error,
                "the broker's name could not be released: its next start looks for some seconds whether it lives"
            );
        }
    }
}
