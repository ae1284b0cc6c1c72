//! Opens the data directory, and restores the broker from it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use whimbrel_core::Profile;
use whimbrel_core::store::{LogState, RestoreError, Restoring, StreamState};
use whimbrel_engine::begin_without_engine;
use whimbrel_event::{Tick, Time};
use whimbrel_journal::file::Directory;
use whimbrel_journal::{
    BATCH_BYTES_MIN, CLEAN_MIN, Fault, HEAD, Log, Map, MapOptions, Options, ReadBuffer, Refused, Report,
    SEGMENT_BATCHES_MIN, SEGMENTS_MIN, Storage,
};
use whimbrel_mqtt::{Config, MqttBroker};

use super::lock::{self, Lock, LockFault};
use super::null::NullStorage;
use super::signal::Signal;
use super::streams::{PUBENDS, Streams};
use super::submit::Reliance;
use super::{Disk, Store};
use crate::api::answers::Manifest;
use crate::drive::Clock;
use crate::engine::{self, EngineHome, EngineKeeper, EngineOptions, EngineStartError, MarkFile, Monitor};

/// Bytes of the largest batch, which is what one commit makes durable. Longer batches make room for
/// longer events.
const BATCH_BYTES_MAX: u32 = 4 << 20;

/// Bytes in an event's batch beside the event and its copy as a retained message: filter records
/// and names.
const BESIDE_EVENT: u32 = 256 << 10;

/// Time by which the system's clock may be ahead of the newest time in the journal.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// At least this many segments of a new journal fit on its disk: twice the number without which it
/// takes nothing.
const DISK_SEGMENTS_MIN: u64 = 2 * SEGMENTS_MIN as u64;

/// Least size of a new journal's segments on a small disk, bytes.
const SEGMENT_BYTES_MIN: u32 = 1 << 20;

/// File in a data directory that was restored: the backup's manifest, once the journal has recorded
/// the restore.
const RESTORED: &str = "restored.json";

/// In the data directory: the journal.
pub const JOURNAL: &str = "journal";

/// How the data directory is opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The data directory; created if it does not exist.
    pub directory: PathBuf,
    /// Bytes of a segment of a new journal.
    pub segment_bytes: u32,
    /// Bytes that the journal may take.
    pub max_bytes: u64,
    /// Accepts the system's clock, however far it is ahead of the newest time in the journal.
    pub accept_clock: bool,
    /// Which topics are logged.
    pub topics: Vec<Profile>,
    /// Nothing is written to the disk, for measurements: what is acknowledged is lost at the end.
    pub keeps_nothing: bool,
    /// The engine that has the journal, too.
    pub engine: Option<EngineOptions>,
}

/// A restored broker, its journal, and its clock.
#[derive(Debug)]
pub struct Opened {
    /// The broker. Its first writes are durable.
    pub broker: MqttBroker,
    /// Its journal.
    pub store: Store,
    /// Its clock, not behind the newest time in the journal.
    pub clock: Clock,
    /// Keeps other brokers out of the directory while it lives.
    pub lock: Lock,
    /// Keeps the broker's name in its engine.
    pub(crate) keeper: Option<EngineKeeper>,
}

/// Why a data directory cannot be used. Each text says what is wrong and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another broker uses the directory.
    #[error(
        "the data directory {path} is in use by {who}. Stop that broker, or give this one a directory of its own (--data)"
    )]
    Locked {
        /// The directory.
        path: String,
        /// The other broker, as far as the lock file tells.
        who: String,
    },
    /// The directory cannot be created or written.
    #[error("cannot use the data directory {path}: {cause}. {}", hint(cause))]
    Directory {
        /// The directory.
        path: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The journal in the directory cannot be opened.
    #[error("cannot open the journal in {path}: {cause}. {}", hint_for_journal(cause))]
    Journal {
        /// The directory.
        path: String,
        /// Why.
        cause: whimbrel_journal::OpenError,
    },
    /// There is nothing to import.
    #[error("there is no journal in {path}: name the data directory of the broker (--data)")]
    NoJournal {
        /// The directory.
        path: String,
    },
    /// The files would become those of another user, and the broker could not use them.
    #[error("{path} belongs to the user with number {owner}: run this as that user (`runuser -u NAME -- whimbrel …`)")]
    OtherUser {
        /// The directory.
        path: String,
        /// The number of its user.
        owner: u32,
    },
    /// The directory has a part of an engine's journal, or a mark that is not understood.
    #[error("cannot open the journal in {path} without its engine: {cause}")]
    Mark {
        /// The directory.
        path: String,
        /// Why, and what to do.
        cause: Fault,
    },
    /// The journal accepts no write.
    #[error("the journal in {path} takes nothing: {cause}. Make room on its disk, or raise `max_log` in [journal]")]
    Refused {
        /// The directory.
        path: String,
        /// Why.
        cause: Refused,
    },
    /// The stored state of sessions and subscriptions cannot be read.
    #[error(
        "what the broker remembered in {path} cannot be read: {cause}. Without it sessions and subscriptions would be lost, \
         so it does not start: restore the directory from a backup, or begin with an empty one (--data)"
    )]
    Map {
        /// The directory.
        path: String,
        /// Why.
        cause: whimbrel_journal::RestoreError,
    },
    /// The stored state was read but not understood.
    #[error(
        "what the broker remembered in {path} is not understood: {cause}. A newer version has probably written it: start that one, \
         or begin with an empty directory (--data)"
    )]
    Entry {
        /// The directory.
        path: String,
        /// The entry that was not understood.
        cause: RestoreError,
    },
    /// The system's clock is too far ahead of the newest time in the journal.
    #[error(
        "the system's clock is {} ahead of the last thing that the journal in {path} has seen. If the clock is wrong, set it; if it is \
         right and the broker was really off for so long, start it once with --accept-clock",
        span(*ahead)
    )]
    Clock {
        /// The directory.
        path: String,
        /// By how much.
        ahead: Duration,
    },
    /// There is a journal, and nothing would be kept.
    #[error(
        "there is a journal in {path}, and --keep-nothing would keep nothing: give it a directory of its own (--data)"
    )]
    Kept {
        /// The directory.
        path: String,
    },
    /// The broker's engine.
    #[error(transparent)]
    Engine(#[from] EngineStartError),
    /// The system gives no thread or no randomness.
    #[error("cannot start the journal: {0}. The system may be out of threads or memory")]
    System(io::Error),
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::PermissionDenied => {
            "Make it belong to the user that the broker runs as, or name another one (--data)"
        }
        ErrorKind::ReadOnlyFilesystem => "Its file system is mounted read-only: name another one (--data)",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "There is a file of that name: name a directory (--data)"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room on its disk, or name another one (--data)",
        _ => "Name a directory that can be written (--data)",
    }
}

fn hint_for_journal(cause: &whimbrel_journal::OpenError) -> &'static str {
    use whimbrel_journal::OpenError::{Checkpoint, Foreign, NoHeader, Options, Storage, Twice, Version};
    match cause {
        Options { .. } => {
            "See `segment` and `max_log` in [journal]; a journal keeps the segment size that it was made with"
        }
        Version { .. } => "A newer version has written it: start that one, or begin with an empty directory (--data)",
        Foreign { .. } => "Take the files of the other journal out of the directory",
        Twice { .. } => "Take the copy out of the directory: it is probably the file that was made later",
        Checkpoint { .. } | NoHeader => "Restore the directory from a backup, or begin with an empty one (--data)",
        Storage(Fault::Full) => "Make room on its disk: a journal has at least five segments",
        Storage(Fault::Failed(_)) => "Look after the disk, and at who may write there",
    }
}

fn span(span: Duration) -> String {
    humantime::format_duration(Duration::from_secs(span.as_secs())).to_string()
}

/// Opens a data directory, creating what is missing. Blocks. `seed` seeds the broker's randomness;
/// `monitor` looks at the servers of its engine, if it has one.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(
    opening: &Opening,
    config: Config,
    seed: u64,
    monitor: Option<Arc<Monitor>>,
) -> Result<Opened, OpenError> {
    let path = opening.directory.display().to_string();
    let lock = lock(&opening.directory)?;
    let fault = |cause| OpenError::Journal { path: path.clone(), cause };
    let JournalDisk { disk, identity, keeper } =
        if opening.keeps_nothing { null_disk(opening, seed)? } else { disk(opening, monitor)? };
    let options = options(opening, &disk, free_bytes(&opening.directory)).map_err(fault)?;
    let resumed = Log::open(&disk, options, identity).map_err(fault).and_then(|(log, report)| {
        tell(&path, &log, &report);
        resume(opening, disk, log, (config, seed))
    });
    let (broker, mut store, clock) = resumed.map_err(|error| match (&keeper, &opening.engine) {
        (Some(keeper), Some(engine)) if keeper.is_taken() => OpenError::Engine(EngineStartError::taken(engine)),
        _ => error,
    })?;
    if let (Some(keeper), Some(engine)) = (&keeper, &opening.engine) {
        store.rely_on_engine(Reliance {
            patience: engine.patience,
            trouble: Box::new(keeper.trouble()),
            on_failure: Box::new(keeper.on_failure()),
        });
    }
    Ok(Opened { broker, store, clock, lock, keeper })
}

/// The disk of a journal.
pub(super) struct JournalDisk {
    disk: Arc<dyn Storage + Send + Sync>,
    /// A random number.
    identity: u64,
    pub(super) keeper: Option<EngineKeeper>,
}

/// The journal's disk, and its engine if it has one.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn disk(opening: &Opening, monitor: Option<Arc<Monitor>>) -> Result<JournalDisk, OpenError> {
    let path = opening.directory.display().to_string();
    let fault = |cause: Fault| OpenError::Journal { path: path.clone(), cause: cause.into() };
    let directory = Directory::open(&opening.directory.join(JOURNAL)).map_err(fault)?;
    let identity = directory.random().map_err(fault)?;
    let mark = MarkFile::of(&opening.directory);
    let (Some(engine), Some(monitor)) = (&opening.engine, monitor) else {
        let began = begin_without_engine(&mark).map_err(|cause| OpenError::Mark { path: path.clone(), cause })?;
        if began {
            tracing::error!(
                path,
                "the journal of this directory has a second home at an engine, and is opened without it: a process that has \
                 its engine is another broker of this name from now on; end this one and start it with --engine, unless the \
                 engine is given up for good"
            );
        }
        return Ok(JournalDisk { disk: Arc::new(directory), identity, keeper: None });
    };
    let owner = directory.random().map_err(fault)?;
    let (disk, keeper) = engine::start(engine, EngineHome { directory, mark, owner }, monitor)?;
    Ok(JournalDisk { disk, identity, keeper: Some(keeper) })
}

/// Locks the data directory; creates it if need be.
pub(super) fn lock(directory: &Path) -> Result<Lock, OpenError> {
    let path = directory.display().to_string();
    lock::lock(directory).map_err(|fault| match fault {
        LockFault::Held(who) => OpenError::Locked { path, who },
        LockFault::System(cause) => OpenError::Directory { path, cause },
    })
}

/// A disk that keeps nothing, and the seed as random number.
///
/// # Errors
/// There is a journal in the directory.
fn null_disk(opening: &Opening, seed: u64) -> Result<JournalDisk, OpenError> {
    let path = opening.directory.display().to_string();
    // What cannot be looked at may be there.
    if opening.directory.join(JOURNAL).try_exists().unwrap_or(true) {
        return Err(OpenError::Kept { path });
    }
    tracing::error!(path, "--keep-nothing: nothing is written to the disk, and all that is acknowledged will be lost");
    Ok(JournalDisk { disk: Arc::new(NullStorage), identity: seed, keeper: None })
}

/// Restores the broker from a journal, and starts the journal's threads.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn resume(
    opening: &Opening,
    disk: Arc<dyn Storage + Send + Sync>,
    log: Log,
    (config, seed): (Config, u64),
) -> Result<(MqttBroker, Store, Clock), OpenError> {
    let path = opening.directory.display().to_string();
    let batch_bytes = log.options().batch_bytes;
    let signal = Arc::new(Signal::default());
    let teller = Arc::clone(&signal);
    let journal = Disk::start(disk, log, move |told| teller.tell(told));
    let journal = Arc::new(journal.map_err(|cause| OpenError::System(io::Error::other(cause)))?);
    let refused = |cause| OpenError::Refused { path: path.clone(), cause };
    let streams = Streams::open(&journal).map_err(refused)?;
    let (map, mut restoring) = restore(&path, &journal, &streams, seed)?;
    restoring.set_profiles(opening.topics.clone());
    let copy = copied(&opening.directory)?;
    if let Some(taken) = &copy {
        tracing::warn!(path, taken, "the data directory was restored: what was published after that is told as a gap");
        restoring.mark_as_copy();
    }
    let state = state(&journal, &streams);
    let used = state.events.iter().map(|stream| stream.last).max().unwrap_or_default().max(state.reserved);
    let clock = Clock::start_after(Time::from_nanos(used.0));
    let ahead = clock.now().since(Time::from_nanos(used.0));
    if used > Tick(0) && ahead > AHEAD_MAX && !opening.accept_clock {
        return Err(OpenError::Clock { path, ahead });
    }
    let mut config = config;
    config.core.logged_event_bytes = logged_event_bytes(batch_bytes);
    config.core.has_successors = opening.engine.is_some();
    let broker = MqttBroker::restored(config, seed, clock.now(), restoring, &state);
    let mut broker = broker.map_err(|cause| OpenError::Entry { path: path.clone(), cause })?;
    let mut store = Store::new(journal, streams, map, signal).map_err(OpenError::System)?;
    // The broker's name must be durable before other brokers learn it.
    store.write_first(&mut broker, &clock).map_err(refused)?;
    if copy.is_some() {
        take_notice(&opening.directory)?;
    }
    Ok((broker, store, clock))
}

/// When the backup was made from which the directory was restored; `None` if there is none, or if
/// the journal has recorded the restore.
fn copied(directory: &Path) -> Result<Option<String>, OpenError> {
    match fs::read_to_string(directory.join(Manifest::FILE)) {
        Ok(text) => {
            let manifest = serde_json::from_str::<Manifest>(&text);
            let at = |manifest: Manifest| UNIX_EPOCH + Duration::from_millis(manifest.taken_ms);
            let taken = manifest.map(|manifest| humantime::format_rfc3339_millis(at(manifest)).to_string());
            Ok(Some(taken.unwrap_or_else(|_| "at some time".into())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(OpenError::Directory { path: directory.display().to_string(), cause }),
    }
}

/// Renames the manifest: the journal has recorded the restore.
fn take_notice(directory: &Path) -> Result<(), OpenError> {
    let renamed = fs::rename(directory.join(Manifest::FILE), directory.join(RESTORED));
    let synced = renamed.and_then(|()| File::open(directory)).and_then(|directory| directory.sync_all());
    synced.map_err(|cause| OpenError::Directory { path: directory.display().to_string(), cause })
}

/// Options of the journal. An existing journal keeps the size of its segments, which bounds its
/// batches. A new one on a small disk has smaller segments than configured.
fn options(opening: &Opening, disk: &dyn Storage, free: u64) -> Result<Options, whimbrel_journal::OpenError> {
    let present = disk.slots()?.first().and_then(|(_, bytes)| u32::try_from(*bytes).ok());
    let segment_bytes = present.unwrap_or_else(|| {
        let fits = u32::try_from(free / DISK_SEGMENTS_MIN).unwrap_or(u32::MAX) / HEAD as u32 * HEAD as u32;
        let segment_bytes = opening.segment_bytes.min(fits.max(SEGMENT_BYTES_MIN));
        if segment_bytes < opening.segment_bytes {
            let (asked, longest) = (opening.segment_bytes, logged_event_bytes(batch_bytes(segment_bytes)));
            tracing::warn!(
                free,
                asked,
                segment_bytes,
                longest,
                "the disk of the data directory is small: the journal has smaller segments, and no message longer than {longest} bytes is logged"
            );
        }
        segment_bytes
    });
    Ok(Options { segment_bytes, batch_bytes: batch_bytes(segment_bytes), max_bytes: opening.max_bytes })
}

/// Free bytes on the disk of a directory; unlimited if the system does not say.
fn free_bytes(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes of the largest batch of a journal with segments of this size.
pub(super) fn batch_bytes(segment_bytes: u32) -> u32 {
    (segment_bytes / SEGMENT_BATCHES_MIN).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
}

/// Bytes of the longest event that fits into a batch, with all that belongs to it.
fn logged_event_bytes(batch_bytes: u32) -> usize {
    (batch_bytes.saturating_sub(BESIDE_EVENT).max(batch_bytes / 2) / 2) as usize
}

fn tell(path: &str, log: &Log, report: &Report) {
    let Report { created, files, bytes_read, torn, damages, .. } = report;
    let segment_bytes = log.options().segment_bytes;
    tracing::info!(path, created, files, segment_bytes, bytes_read, torn = torn.is_some(), "journal opened");
    for damage in damages {
        tracing::error!(%damage, "the journal is damaged: what is lost is told as a gap");
    }
}

fn restore(path: &str, journal: &Disk, streams: &Streams, seed: u64) -> Result<(Map, Restoring), OpenError> {
    let mut restoring = Restoring::default();
    let mut wrong = None;
    // The second half need not be independent: it must only be unknown to clients that choose keys.
    let seed = u128::from(seed) << 64 | u128::from(seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15);
    let options = MapOptions { seed, clean_min: CLEAN_MIN };
    let mut buffer = ReadBuffer::default();
    let map = Map::restore(journal, streams.map, options, &mut buffer, &mut |key, value| {
        if wrong.is_none() {
            wrong = restoring.entry(key, value).err();
        }
    });
    let map = map.map_err(|cause| OpenError::Map { path: path.to_owned(), cause })?;
    match wrong {
        Some(cause) => Err(OpenError::Entry { path: path.to_owned(), cause }),
        None => Ok((map, restoring)),
    }
}

fn state(journal: &Disk, streams: &Streams) -> LogState {
    let info = |stream| journal.info(stream).expect("it was born, and is durable");
    let mut events = [StreamState::default(); PUBENDS];
    for (state, stream) in events.iter_mut().zip(streams.events) {
        let info = info(stream);
        *state = StreamState { last: Tick(info.last), chopped: Tick(info.chopped) };
    }
    LogState { reserved: Tick(info(streams.ticks).reserved), events }
}
