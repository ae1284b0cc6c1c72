//! What an owner of a stream does all the time, on threads of its own, as its calls block.
//!
//! It renews the lease, looks whether its epoch is still the newest one, removes records that are
//! of no use, and marks how far the files are whole; and with acknowledgements by the disk it sends
//! what the stream does not have yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;
use whimbrel_engine::nats::Nats;
use whimbrel_engine::{
    Acknowledgement, Behind, Engine, EngineError, EngineRecord, LEASE_RENEWED_EVERY, Lease, Leases, RecordNumber,
    StartReport, StreamEnd,
};

use super::measured::Appends;
use super::monitor::Monitor;
use super::start::EngineDisk;

/// Why a broker with an engine cannot go on. Each text says what has happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineEnd {
    /// Another process has become the broker.
    #[error(
        "another process has become this broker: it has taken its stream. This one ends; its clients find the other one"
    )]
    Taken,
    /// The log cannot be written any more.
    #[error(
        "the log cannot be written any more: {0}. The broker ends; started again, here or elsewhere, it goes on from its stream"
    )]
    Failed(String),
}

/// What is passed to an owner's keeper when the stream has been taken.
pub(super) struct Owned {
    pub(super) disk: Arc<EngineDisk>,
    pub(super) nats: Arc<Nats>,
    pub(super) appends: Appends,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) report: StartReport,
    pub(super) lease: Lease,
    pub(super) revision: RecordNumber,
}

/// The engine's numbers for metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineAccount {
    /// The epoch of this owner; 0 without an engine.
    pub(crate) epoch: u64,
    /// Times of appends, seconds.
    pub(crate) latency: Option<Histogram>,
    /// How long the record in flight has been so.
    pub(crate) waiting: Duration,
    /// Commits that the engine does not have, and bytes of these.
    pub(crate) behind: Behind,
    /// Renewals of the lease that failed.
    pub(crate) lease_failures: u64,
    /// Servers that are set up wrongly, and that do not answer.
    pub(crate) servers: super::MonitorAccount,
}

/// Ends with the broker; dropping it leaves the lease to be found dead.
#[derive(Debug)]
pub(crate) struct EngineKeeper {
    shared: Arc<KeptStream>,
    /// `None` once the broker has ended.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread that sends commits, with acknowledgements by the disk.
    sender: Mutex<Option<JoinHandle<()>>>,
}

/// How often it is marked how far the files are whole: a start reads what is behind that.
const MARKED_EVERY: Duration = Duration::from_secs(10);

/// How long a broker that ends waits until the engine has all.
const SENT_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two looks whether it has.
const SENT_LOOK: Duration = Duration::from_millis(20);

struct KeptStream {
    owned: Owned,
    monitor: Arc<Monitor>,
    ended: watch::Sender<Option<EngineEnd>>,
    is_ending: AtomicBool,
    lease_failures: AtomicU64,
    /// The newest revision of the lease.
    revision: Mutex<RecordNumber>,
}

impl std::fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptStream").field("lease", &self.owned.lease).finish_non_exhaustive()
    }
}

impl EngineKeeper {
    /// Starts the thread. `monitor` is asked to look at the servers at each new connection.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(owned: Owned, monitor: Arc<Monitor>) -> std::io::Result<EngineKeeper> {
        let sends = owned.acknowledgement == Acknowledgement::Local;
        let shared = Arc::new(KeptStream {
            revision: Mutex::new(owned.revision),
            owned,
            monitor,
            ended: watch::Sender::new(None),
            is_ending: AtomicBool::new(false),
            lease_failures: AtomicU64::new(0),
        });
        let running = Arc::clone(&shared);
        let thread = thread::Builder::new().name("engine-keeper".into()).spawn(move || running.run())?;
        let sending = Arc::clone(&shared);
        let sender = sends.then(|| thread::Builder::new().name("engine-send".into()).spawn(move || sending.send()));
        let (thread, sender) = (Mutex::new(Some(thread)), Mutex::new(sender.transpose()?));
        Ok(EngineKeeper { shared, thread, sender })
    }

    /// Waits until the broker cannot go on.
    pub(crate) fn ended(&self) -> impl Future<Output = EngineEnd> + use<> {
        let mut ended = self.shared.ended.subscribe();
        async move {
            let told = ended.wait_for(Option::is_some).await.map(|ended| ended.clone());
            match told {
                Ok(Some(end)) => end,
                // The keeper has gone: the broker ends for another reason.
                _ => std::future::pending().await,
            }
        }
    }

    /// Is to be called with the text of the error when the journal has failed. Does not block.
    pub(crate) fn on_failure(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |failure| {
            shared.look_at_end();
            // Of the journal alone.
            shared.end(EngineEnd::Failed(failure.to_owned()));
        }
    }

    /// What the start found.
    pub(crate) fn report(&self) -> StartReport {
        self.shared.owned.report
    }

    /// The numbers for metrics.
    pub(crate) fn account(&self) -> EngineAccount {
        let KeptStream { owned, monitor, lease_failures, .. } = &*self.shared;
        EngineAccount {
            epoch: owned.lease.epoch,
            latency: Some(owned.appends.latency()),
            waiting: owned.appends.waiting(),
            behind: owned.disk.standing().behind,
            lease_failures: lease_failures.load(Ordering::Relaxed),
            servers: monitor.account(),
        }
    }

    /// Ends waiting for an engine that does not answer: what is in flight is as after a crash.
    pub(crate) fn stop_waiting(&self) {
        self.shared.owned.disk.stop();
    }

    /// Ends the thread and releases the lease, when the journal is closed. Blocks.
    pub(crate) fn end(&self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.lock().take() else { return };
        thread.thread().unpark();
        // A panic of it has been reported.
        let _ = thread.join();
        self.shared.await_sent();
        self.shared.owned.disk.stop();
        if let Some(sender) = self.sender.lock().take() {
            let _ = sender.join();
        }
        if *self.shared.ended.borrow() != Some(EngineEnd::Taken) {
            // Without it, the next start reads a little more.
            let _ = self.shared.owned.disk.checkpoint();
            self.shared.release();
        }
    }
}

impl KeptStream {
    /// Sends what the engine does not have yet, until writing has ended.
    fn send(&self) {
        while self.owned.disk.wait_for_commits() && self.owned.disk.send().is_ok() {}
        self.look_at_end();
    }

    /// Waits until the engine has all that the disk has acknowledged, for as long as it answers.
    fn await_sent(&self) {
        let begun = Instant::now();
        while begun.elapsed() < SENT_WITHIN {
            let standing = self.owned.disk.standing();
            if standing.behind.commits == 0 || standing.ended.is_some() {
                return;
            }
            thread::park_timeout(SENT_LOOK);
        }
        tracing::warn!(
            "the engine does not have all that was acknowledged: start the broker with this directory again"
        );
    }

    /// Ends the broker if writing has ended.
    fn look_at_end(&self) {
        match self.owned.disk.standing().ended {
            None => {}
            Some(StreamEnd::Taken) => self.end(EngineEnd::Taken),
            Some(ended) => self.end(EngineEnd::Failed(ended.to_string())),
        }
    }

    fn run(&self) {
        let mut marked = Instant::now();
        let mut connections = self.owned.nats.connections();
        while !self.is_ending.load(Ordering::SeqCst) && self.ended.borrow().is_none() {
            let next = Instant::now() + LEASE_RENEWED_EVERY;
            self.beat();
            let now = self.owned.nats.connections();
            if now != std::mem::replace(&mut connections, now) {
                self.monitor.ask();
            }
            if marked.elapsed() >= MARKED_EVERY {
                marked = Instant::now();
                if let Err(error) = self.owned.disk.checkpoint() {
                    tracing::warn!(%error, "it could not be marked how far the files are whole: the next start reads more");
                }
            }
            // Commits go on meanwhile: each step is small.
            while Instant::now() < next && self.owned.disk.cut() == Ok(true) {}
            let rest = next.saturating_duration_since(Instant::now());
            if !self.is_ending.load(Ordering::SeqCst) {
                thread::park_timeout(rest);
            }
        }
    }

    /// Looks whether this owner's epoch is the newest one, and the journal writes, and renews the
    /// lease.
    fn beat(&self) {
        if self.newest_epoch().is_some_and(|newest| newest > self.own_epoch()) {
            self.owned.disk.stop();
            return self.end(EngineEnd::Taken);
        }
        self.look_at_end();
        if self.renew().is_err() {
            self.lease_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The epoch of this owner.
    fn own_epoch(&self) -> u64 {
        self.owned.disk.standing().epoch
    }

    /// The newest epoch that was taken, if the engine tells it.
    fn newest_epoch(&self) -> Option<u64> {
        let found = self.owned.nats.epoch().ok()??;
        match EngineRecord::decode(&found.bytes) {
            Ok(EngineRecord::Epoch(epoch)) => Some(epoch.epoch),
            _ => None,
        }
    }

    /// Renews the lease. Another owner's lease is left to it until it is released: only a greater
    /// epoch ends this one, so that a start that fails ends nothing.
    fn renew(&self) -> Result<(), EngineError> {
        let mut revision = self.revision.lock();
        match self.owned.nats.put_lease(*revision, &self.owned.lease.encode()) {
            Err(EngineError::Refused) => {}
            outcome => return outcome.map(|renewed| *revision = renewed),
        }
        let found = self.owned.nats.lease()?;
        let lease = found.as_ref().and_then(|found| Lease::decode(&found.bytes));
        if lease.is_some_and(|lease| lease.owner != self.owned.lease.owner && !lease.released) {
            return Err(EngineError::Refused);
        }
        let after = found.map_or(0, |found| found.revision);
        *revision = self.owned.nats.put_lease(after, &self.owned.lease.encode())?;
        Ok(())
    }

    /// Tells that this owner has ended; another owner's lease is left alone.
    fn release(&self) {
        let lease = Lease { released: true, ..self.owned.lease.clone() };
        if self.owned.nats.put_lease(*self.revision.lock(), &lease.encode()).is_err() {
            tracing::warn!(
                "the broker's name could not be released: its next start looks for some seconds whether it lives"
            );
        }
    }

    fn end(&self, end: EngineEnd) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(end);
            is_first
        });
    }
}
