//! What an owner of a stream does all the time, on threads of its own, as its calls block.
//!
//! It looks whether its epoch is still the newest one, removes records that are of no use, and
//! marks how far the files are whole; and with acknowledgements by the disk it sends the commits
//! that the stream does not have yet. The lease is renewed by a thread of its own (`held_lease`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;
use whimbrel_engine::nats::Nats;
use whimbrel_engine::{Acknowledgement, Behind, Engine, EngineError, LEASE_RENEWED_EVERY, StartReport, StreamEnd};

use super::held_lease::HeldLease;
use super::monitor::Monitor;
use super::start::EngineDisk;
use crate::metrics::encoding::commit_latency;

/// Why a broker with an engine cannot go on. Each text says what has happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineEnd {
    /// Another process has become the broker.
    #[error(
        "another process has become this broker: it has taken its stream. This one ends; its clients find the other one"
    )]
    Taken,
    /// The stream has lost what it had acknowledged.
    #[error("the log cannot be written any more: {0}")]
    Lost(String),
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
    pub(super) acknowledgement: Acknowledgement,
    pub(super) report: StartReport,
    pub(super) lease: HeldLease,
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
    /// Looks at the epoch and removals of useless records that failed.
    pub(crate) chore_failures: u64,
    /// Servers that are set up wrongly, and that do not answer.
    pub(crate) servers: super::MonitorAccount,
}

/// Ends with the broker. Dropped, it ends its threads and releases the name; blocks for that.
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

/// Pause between two steps of removing records: most commits meet none of them.
const CUT_PAUSE: Duration = Duration::from_millis(100);

/// Looks in a row without a stream after which it is gone.
const GONE_AFTER: u32 = 3;

/// How long a broker that ends waits until the engine has all.
const SENT_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two looks whether it has.
const SENT_LOOK: Duration = Duration::from_millis(20);

struct KeptStream {
    owned: Owned,
    monitor: Arc<Monitor>,
    ended: watch::Sender<Option<EngineEnd>>,
    is_ending: AtomicBool,
    /// Times of appends.
    latency: Histogram,
    /// Looks at the epoch and removals of useless records that failed.
    chore_failures: AtomicU64,
    /// The log has a failure of these; again when all has succeeded since.
    has_told: AtomicBool,
}

impl std::fmt::Debug for KeptStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptStream").field("disk", &self.owned.disk).finish_non_exhaustive()
    }
}

impl EngineKeeper {
    /// Starts the threads. `monitor` is asked to look at the servers at each new connection.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(owned: Owned, monitor: Arc<Monitor>) -> std::io::Result<EngineKeeper> {
        let (sends, latency) = (owned.acknowledgement == Acknowledgement::Local, commit_latency());
        let observed = latency.clone();
        owned.disk.observe_appends(move |took| observed.observe(took.as_secs_f64()));
        let (ended, is_ending) = (watch::Sender::new(None), AtomicBool::new(false));
        let (chore_failures, has_told) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(KeptStream { owned, monitor, ended, is_ending, latency, chore_failures, has_told });
        let keeper = EngineKeeper { shared, thread: Mutex::new(None), sender: Mutex::new(None) };
        let run = |name: &str, work: fn(&KeptStream)| {
            let shared = Arc::clone(&keeper.shared);
            thread::Builder::new().name(name.into()).spawn(move || work(&shared)).map(Some)
        };
        *keeper.thread.lock() = run("engine-keeper", KeptStream::run)?;
        *keeper.sender.lock() = if sends { run("engine-send", KeptStream::send)? } else { None };
        Ok(keeper)
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
        let KeptStream { owned, monitor, latency, chore_failures, .. } = &*self.shared;
        EngineAccount {
            epoch: owned.report.epoch,
            latency: Some(latency.clone()),
            waiting: owned.disk.in_flight(),
            behind: owned.disk.standing().behind,
            lease_failures: owned.lease.failures(),
            chore_failures: chore_failures.load(Ordering::Relaxed),
            servers: monitor.account(),
        }
    }

    /// Why the commit in flight waits, to be asked while it does; `None`: not known.
    pub(crate) fn trouble(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.owned.disk.trouble()
    }

    /// Whether another process has taken the stream.
    pub(crate) fn is_taken(&self) -> bool {
        self.shared.owned.disk.standing().ended == Some(StreamEnd::Taken)
    }

    /// Ends waiting for an engine that does not answer: what is in flight is as after a crash.
    pub(crate) fn stop_waiting(&self) {
        self.shared.owned.disk.stop();
    }

    /// Ends the threads and releases the name, when the journal is closed. Blocks.
    pub(crate) fn end(&self) {
        self.shared.await_sent();
        self.end_threads();
        // Without it, the next start reads a little more.
        let _ = self.shared.owned.disk.checkpoint();
        self.shared.owned.lease.end();
    }

    fn end_threads(&self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.shared.owned.disk.stop();
        for thread in [&self.thread, &self.sender].map(|thread| thread.lock().take()).into_iter().flatten() {
            thread.thread().unpark();
            // A panic of it has been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for EngineKeeper {
    fn drop(&mut self) {
        self.end_threads();
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
            Some(StreamEnd::Taken) => {
                self.owned.lease.lose();
                self.end(EngineEnd::Taken);
            }
            Some(ended @ (StreamEnd::Gone | StreamEnd::Shorter)) => self.end(EngineEnd::Lost(ended.to_string())),
            Some(ended) => self.end(EngineEnd::Failed(ended.to_string())),
        }
    }

    fn run(&self) {
        let mut marked = Instant::now();
        let mut beats_without_stream = 0;
        let mut connections = self.owned.nats.connections();
        while !self.is_ending.load(Ordering::SeqCst) && self.ended.borrow().is_none() {
            let next = Instant::now() + LEASE_RENEWED_EVERY;
            self.beat(&mut beats_without_stream);
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
            self.cut_until(next);
            let rest = next.saturating_duration_since(Instant::now());
            if !self.is_ending.load(Ordering::SeqCst) {
                thread::park_timeout(rest);
            }
        }
    }

    /// Removes records that are of no use, in small steps between which commits go on.
    fn cut_until(&self, end: Instant) {
        while Instant::now() < end && !self.is_ending.load(Ordering::SeqCst) {
            match self.owned.disk.cut() {
                Ok(true) => thread::park_timeout(CUT_PAUSE),
                Ok(false) => return self.has_told.store(false, Ordering::Relaxed),
                Err(error) => return self.chore_failed("records that are of no use could not be removed", &error),
            }
        }
    }

    /// Looks whether this owner's epoch is the newest one, and whether the journal writes.
    /// `without_stream`: how often in a row the servers had no such stream.
    fn beat(&self, without_stream: &mut u32) {
        match self.owned.nats.epoch() {
            Ok(found) => {
                *without_stream = 0;
                let newest = found.and_then(|found| found.epoch());
                if newest.is_some_and(|newest| newest.epoch > self.owned.report.epoch) {
                    self.owned.disk.give_up(StreamEnd::Taken);
                }
            }
            // A server that has just been started may not know the stream yet.
            Err(EngineError::Failed(_)) => {
                *without_stream += 1;
                if *without_stream >= GONE_AFTER {
                    self.owned.disk.give_up(StreamEnd::Gone);
                }
            }
            Err(error) => self.chore_failed("whether this process is still the owner could not be read", &error),
        }
        self.look_at_end();
    }

    fn chore_failed(&self, what: &str, error: &EngineError) {
        self.chore_failures.fetch_add(1, Ordering::Relaxed);
        if !self.has_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "{what} (`whimbrel_engine_chore_failures_total`)");
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
