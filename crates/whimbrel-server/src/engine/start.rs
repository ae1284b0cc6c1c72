//! Becomes the owner of a broker's stream.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_engine::nats::Nats;
use whimbrel_engine::{
    Claim, ClaimStep, ClaimTerms, Engine, EngineError, LEASE_OBSERVED_FOR, Lease, Leases, RecordNumber, Replicated,
    StartOptions, StartReport, StreamStartError,
};
use whimbrel_journal::Storage;
use whimbrel_journal::file::Directory;

use super::held_lease::HeldLease;
use super::keeper::{EngineKeeper, Owned};
use super::monitor::{Monitor, ServersError};
use super::process;
use super::{Adoption, EngineOptions, MarkFile, REACHED_WITHIN, TRIES_EVERY};

/// How often a start looks at the lease of another owner.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// Why a broker cannot start with its engine. Each text says what is wrong and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    /// The engine is not reached, or does not do what it is asked to.
    #[error("the engine at {servers} cannot be used: {cause}{}", hint_for_engine(cause))]
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
    /// The stream of a name that has had one is not there.
    #[error(
        "{broker} has had a stream with epoch {epoch}, which its engine does not have any more: it was deleted, or these are \
         other servers. Restore it; or give up what only it has had: whimbrel engine import --name {broker} gives a new one \
         the journal of a directory, with --discard-local it begins with nothing"
    )]
    Gone {
        /// The broker's name.
        broker: String,
        /// The last epoch that is known.
        epoch: u64,
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

impl EngineStartError {
    /// Another process has taken the stream before the broker could serve.
    pub(crate) fn taken(options: &EngineOptions) -> EngineStartError {
        EngineStartError::Stream { broker: options.broker.clone(), cause: StreamStartError::Taken }
    }
}

fn hint_for_engine(cause: &EngineError) -> &'static str {
    match cause {
        EngineError::Refused | EngineError::Unanswered(_) => {
            ". Start most of its servers, or see that addresses, credentials (with all permissions) and certificates in \
             [engine] are right"
        }
        // Its own text says what is wrong.
        EngineError::Failed(_) => "",
    }
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
        StreamStartError::Taken => {
            ". Two machines with one name are a mistake of the set-up: stop one of them".to_owned()
        }
        StreamStartError::Missing { .. } | StreamStartError::Unreadable { .. } | StreamStartError::Forked { .. } => {
            ". Start it where its last directory is (with `ack = \"both\"` that has all), or restore the data of the \
             engine's servers; nothing was changed"
                .to_owned()
        }
        StreamStartError::Engine(_) => ". See the logs of its servers, and start the broker again".to_owned(),
        StreamStartError::Disk(_) => ". Look after the disk of the directory, or name another one (--data)".to_owned(),
        // Its own text says what to do.
        StreamStartError::Remade { .. } => String::new(),
    }
}

/// The disk of a broker with an engine.
pub(super) type EngineDisk = Replicated<Arc<Directory>, Arc<Nats>>;

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
    let nats = Arc::new(connect(options)?);
    let failed = |cause| EngineStartError::Engine { servers: options.servers.join(", "), cause };
    monitor.check_copies(until_answered(is_unanswered, || nats.copies()).map_err(failed)?)?;
    let lease = Lease { owner: place.owner, epoch: 0, released: false, place: here(), process: process::own() };
    let revision = claim(options, &nats, &lease)?;
    let lease = HeldLease::start(Arc::clone(&nats), lease, revision).map_err(EngineStartError::System)?;
    let (disk, report) = take_stream(options, &nats, place)?;
    lease.set_epoch(report.epoch);
    let disk = Arc::new(disk);
    let owned = Owned { disk: Arc::clone(&disk), nats, acknowledgement: options.acknowledgement, report, lease };
    Ok((disk, EngineKeeper::start(owned, monitor).map_err(EngineStartError::System)?))
}

/// Makes a request until it is answered, at most for [`REACHED_WITHIN`].
fn until_answered<T, E>(is_unanswered: impl Fn(&E) -> bool, mut ask: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(error) if is_unanswered(&error) && begun.elapsed() < REACHED_WITHIN => thread::sleep(TRIES_EVERY),
            outcome => return outcome,
        }
    }
}

fn is_unanswered(error: &EngineError) -> bool {
    matches!(error, EngineError::Unanswered(_))
}

/// Connects, again while no server is reached.
fn connect(options: &EngineOptions) -> Result<Nats, EngineStartError> {
    let wanted = options.connection();
    let mut told = false;
    let connected = until_answered(is_unanswered, || {
        Nats::connect(&wanted).inspect_err(|cause| {
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(%cause, within = ?REACHED_WITHIN, "the engine is not reached yet");
            }
        })
    });
    connected.map_err(|cause| EngineStartError::Engine { servers: options.servers.join(", "), cause })
}

/// Takes the broker's stream, and makes the directory equal to it.
fn take_stream(
    options: &EngineOptions,
    nats: &Arc<Nats>,
    EngineHome { directory, mark, owner }: EngineHome,
) -> Result<(EngineDisk, StartReport), EngineStartError> {
    let (directory, mark) = (Arc::new(directory), Arc::new(mark));
    let start = StartOptions {
        owner,
        acknowledgement: options.acknowledgement,
        discards_local: options.adoption == Adoption::Discard,
        imports: options.adoption == Adoption::Import,
    };
    let begun = Instant::now();
    // Without an answer nothing has been decided, or it is done again.
    let is_open = |error: &StreamStartError| matches!(error, StreamStartError::Engine(error) if is_unanswered(error));
    let started = until_answered(is_open, || {
        Replicated::start(Arc::clone(&directory), Arc::clone(nats), Arc::clone(&mark), start)
    });
    let (disk, report) = started.map_err(|cause| EngineStartError::Stream { broker: options.broker.clone(), cause })?;
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
    Ok((disk, report))
}

/// Takes the lease of the broker's name; returns its revision.
fn claim(options: &EngineOptions, nats: &Nats, lease: &Lease) -> Result<RecordNumber, EngineStartError> {
    let failed = |cause| EngineStartError::Engine { servers: options.servers.join(", "), cause };
    let had_owner = until_answered(is_unanswered, || nats.epoch()).map_err(failed)?.is_some();
    let mut claim = Claim::new(ClaimTerms { had_owner, takes: options.takes });
    let begun = Instant::now();
    let mut told = false;
    loop {
        let found = until_answered(is_unanswered, || nats.lease().inspect_err(|_| claim.missed())).map_err(failed)?;
        let last = found.as_ref().and_then(|found| Lease::decode(&found.bytes)).map_or(0, |lease| lease.epoch);
        if !had_owner && last > 0 && options.adoption == Adoption::Refuse {
            return Err(EngineStartError::Gone { broker: options.broker.clone(), epoch: last });
        }
        // It is its own if the answer to the last write was lost.
        let is_gone = |found: &Lease| found.owner == lease.owner || process::is_dead(&found.process);
        match claim.look(begun.elapsed(), found.as_ref(), is_gone) {
            ClaimStep::Take { after } => match nats.put_lease(after, &lease.encode()) {
                Ok(revision) => return Ok(revision),
                // Another start may have been quicker; the next look tells.
                Err(EngineError::Refused) => {}
                Err(EngineError::Unanswered(_)) if begun.elapsed() < REACHED_WITHIN => {}
                Err(cause) => return Err(failed(cause)),
            },
            ClaimStep::Lives(owner) => {
                let owner = owner.map_or_else(|| "an owner of another version".to_owned(), |owner| owner.place);
                return Err(EngineStartError::Lives { broker: options.broker.clone(), owner });
            }
            ClaimStep::LookAgain => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!(
                        broker = options.broker,
                        within = ?LEASE_OBSERVED_FOR,
                        "another owner has not released the name: does it still live?"
                    );
                }
            }
        }
        thread::sleep(LOOKS_EVERY);
    }
}

/// Where this process runs, for people.
fn here() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("process {} on {machine}", std::process::id())
}
