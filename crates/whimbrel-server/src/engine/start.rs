//! Becomes the owner of a broker's stream.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_engine::nats::Nats;
use whimbrel_engine::{
    Claim, ClaimStep, ClaimTerms, Engine, EngineError, LEASE_OBSERVED_FOR, Lease, Leases, RecordNumber, Replicated,
    StartOptions, StreamStartError,
};
use whimbrel_journal::Storage;
use whimbrel_journal::file::Directory;

use super::keeper::{EngineKeeper, Owned};
use super::measured::{Appends, MeasuredEngine};
use super::monitor::{Monitor, ServersError};
use super::process;
use super::{Adoption, EngineOptions, MarkFile, REACHED_WITHIN, TRIES_EVERY};

/// How often a start looks at the lease of another owner.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// Why a broker cannot start with its engine. Each text says what is wrong and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    /// The engine is not reached, or does not do what it is asked to.
    #[error(
        "the engine at {servers} cannot be used: {cause}. Start its servers, or see that addresses, credentials and \
         certificates in [engine] are right"
    )]
    Engine {
        /// Its addresses.
        servers: String,
        /// Why.
        cause: EngineError,
    },
    /// Another process is the broker.
    #[error(
        "{broker} lives: {owner}. Stop that one, or give this one another --name; with --take this one becomes {broker}, and that \
         one ends"
    )]
    Lives {
        /// The broker's name.
        broker: String,
        /// The other process.
        owner: String,
    },
    /// The stream cannot be started from.
    #[error("{broker} cannot start from its stream: {cause}{}", hint(cause, broker))]
    Stream {
        /// The broker's name.
        broker: String,
        /// Why, and what to do.
        cause: StreamStartError,
    },
    /// The servers may lose what they acknowledge.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// The system gives no thread.
    #[error("cannot start the thread of the engine: {0}. The system may be out of threads or memory")]
    System(io::Error),
}

/// What to do about a stream that cannot be started from, in the words of the command.
fn hint(cause: &StreamStartError, broker: &str) -> String {
    match cause {
        StreamStartError::Empty => {
            format!(" (whimbrel engine import --name {broker}, with --engine and --data as for serve)")
        }
        StreamStartError::Unmarked | StreamStartError::Diverged { .. } => {
            format!(" (whimbrel engine import --discard-local --name {broker}, with --engine and --data as for serve)")
        }
        _ => String::new(),
    }
}

/// The disk of a broker with an engine.
pub(super) type EngineDisk = Replicated<Arc<Directory>, MeasuredEngine<Arc<Nats>>>;

/// The directory with which a broker starts.
pub(crate) struct EngineHome {
    /// The journal's.
    pub(crate) directory: Directory,
    /// Its mark.
    pub(crate) mark: MarkFile,
    /// A random number for this start.
    pub(crate) owner: u64,
}

/// Connects to an engine, and becomes the owner of the broker's stream; the directory is made equal
/// to it. Blocks.
///
/// # Errors
/// See [`EngineStartError`].
pub(crate) fn start(
    options: &EngineOptions,
    place: EngineHome,
    monitor: Arc<Monitor>,
) -> Result<(Arc<dyn Storage + Send + Sync>, EngineKeeper), EngineStartError> {
    let EngineHome { directory, mark, owner } = place;
    let nats = Arc::new(connect(options)?);
    let mut lease = Lease { owner, epoch: 0, released: false, place: here(), process: process::own() };
    let mut revision = claim(options, &nats, &lease)?;
    let appends = Appends::new();
    let (directory, mark) = (Arc::new(directory), Arc::new(mark));
    let start = StartOptions {
        owner,
        acknowledgement: options.acknowledgement,
        discards_local: options.adoption == Adoption::Discard,
        imports: options.adoption == Adoption::Import,
    };
    let begun = Instant::now();
    let started = loop {
        let engine = MeasuredEngine::new(Arc::clone(&nats), appends.clone());
        match Replicated::start(Arc::clone(&directory), engine, Arc::clone(&mark), start) {
            // Nothing has been decided, or it is done again.
            Err(StreamStartError::Engine(EngineError::Unanswered(_))) if begun.elapsed() < REACHED_WITHIN => {
                thread::sleep(TRIES_EVERY);
            }
            outcome => break outcome,
        }
    };
    let (disk, report) = started.map_err(|cause| {
        lease.released = true;
        // Without it, the next start looks for some seconds whether this one lives.
        let _ = nats.put_lease(revision, &lease.encode());
        EngineStartError::Stream { broker: options.broker.clone(), cause }
    })?;
    tracing::info!(
        broker = options.broker,
        epoch = report.epoch,
        records = report.records,
        bytes = report.bytes,
        found_elsewhere = report.found_elsewhere,
        made_anew = report.is_made_anew,
        pushed = report.pushed,
        discarded = report.discarded,
        took = ?begun.elapsed(),
        "the broker's stream is taken"
    );
    lease.epoch = report.epoch;
    // The owner's beat repeats it if it fails.
    if let Ok(renewed) = nats.put_lease(revision, &lease.encode()) {
        revision = renewed;
    }
    let (disk, acknowledgement) = (Arc::new(disk), options.acknowledgement);
    let keeper = EngineKeeper::start(
        Owned { disk: Arc::clone(&disk), nats, appends, acknowledgement, report, lease, revision },
        monitor,
    );
    Ok((disk, keeper.map_err(EngineStartError::System)?))
}

/// Connects, again while no server is reached.
fn connect(options: &EngineOptions) -> Result<Nats, EngineStartError> {
    let wanted = options.connection();
    let begun = Instant::now();
    let mut told = false;
    loop {
        let cause = match Nats::connect(&wanted) {
            Ok(nats) => return Ok(nats),
            Err(cause) => cause,
        };
        if matches!(cause, EngineError::Failed(_)) || begun.elapsed() >= REACHED_WITHIN {
            return Err(EngineStartError::Engine { servers: options.servers.join(", "), cause });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(%cause, within = ?REACHED_WITHIN, "the engine is not reached yet");
        }
        thread::sleep(TRIES_EVERY);
    }
}

/// Takes the lease of the broker's name; returns its revision.
fn claim(options: &EngineOptions, nats: &Nats, lease: &Lease) -> Result<RecordNumber, EngineStartError> {
    let failed = |cause| EngineStartError::Engine { servers: options.servers.join(", "), cause };
    let had_owner = nats.epoch().map_err(failed)?.is_some();
    let mut claim = Claim::new(ClaimTerms { had_owner, takes: options.takes });
    let begun = Instant::now();
    let mut told = false;
    loop {
        let found = nats.lease();
        if found.is_err() {
            claim.missed();
        }
        let outcome = found.and_then(|found| {
            match claim.look(begun.elapsed(), found.as_ref(), |lease| process::is_dead(&lease.process)) {
                ClaimStep::Take { after } => nats.put_lease(after, &lease.encode()).map(Ok),
                step => Ok(Err(step)),
            }
        });
        let pause = match outcome {
            Ok(Ok(revision)) => return Ok(revision),
            Ok(Err(ClaimStep::Lives(owner))) => {
                let owner = owner.map_or_else(|| "an owner of another version".to_owned(), |owner| owner.place);
                return Err(EngineStartError::Lives { broker: options.broker.clone(), owner });
            }
            Ok(Err(_)) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(
                        broker = options.broker,
                        within = ?LEASE_OBSERVED_FOR,
                        "another owner has not released the name: does it still live?"
                    );
                }
                LOOKS_EVERY
            }
            // Another start was quicker, or its own answer was lost: it looks again.
            Err(EngineError::Refused) => LOOKS_EVERY,
            Err(EngineError::Unanswered(_)) if begun.elapsed() < REACHED_WITHIN => TRIES_EVERY,
            Err(cause) => return Err(failed(cause)),
        };
        thread::sleep(pause);
    }
}

/// Where this process runs, for people.
fn here() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("process {} on {machine}", std::process::id())
}
