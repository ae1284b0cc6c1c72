//! Checks a data directory that no broker uses: is everything in it intact, and if not, what does
//! it cost? Changes nothing.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use whimbrel_core::store::{Restoring, event_of_record};
use whimbrel_event::{PubendId, Tick};
use whimbrel_journal::file::{View, segment_name};
use whimbrel_journal::{
    CLEAN_MIN, CheckReport, Damage, Log, Map, MapOptions, Options, ReadBuffer, ReadError, Storage, Stream, StreamId,
    Wanted,
};

use super::lock::LOCK;
use super::open::{JOURNAL, batch_bytes};
use super::streams::{EVENTS, FILTER, MAP, TICKS};

/// Bytes of records read at once.
const SLICE: usize = 4 << 20;

/// Damaged places reported of one stream; further ones are only counted.
const PLACES_MAX: usize = 100;

/// Result of checking one stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamCheck {
    /// The stream's name.
    pub name: String,
    /// The stream's contents.
    pub what: &'static str,
    /// Records that are kept and can be read.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// The first tick of these records.
    pub first: Option<u64>,
    /// The last tick of these records.
    pub last: Option<u64>,
    /// Tick up to which everything was given up.
    pub chopped: u64,
    /// Tick up to which ticks may have been used.
    pub reserved: u64,
    /// The ticks are times, in nanoseconds since the Unix epoch.
    pub has_moments: bool,
}

/// A place that is not as it was written.
#[derive(Clone, Debug, Serialize)]
pub struct Wrong {
    /// The file, if it is in one.
    pub file: Option<String>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Description of the damage.
    pub what: String,
    /// What the damage costs.
    pub costs: String,
}

/// Result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The journal's directory.
    pub path: PathBuf,
    /// Files with records.
    pub segments: u64,
    /// Files without records.
    pub free: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// The file that a crash left torn, and where. An unfinished end is no damage.
    pub torn: Option<(String, u64)>,
    /// The journal's streams.
    pub streams: Vec<StreamCheck>,
    /// Number of stored entries: sessions, subscriptions, positions, retained messages and so on.
    pub entries: Option<u64>,
    /// Damage.
    pub wrong: Vec<Wrong>,
    /// Damage in places that are not needed, as a crash may leave.
    pub unneeded: Vec<Wrong>,
}

/// Why a check is not possible.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A broker uses the directory.
    #[error(
        "{path} is in use by {who}. Stop that broker first, or make a backup of it (whimbrel backup) and check that"
    )]
    InUse {
        /// The directory.
        path: String,
        /// The broker, as far as the lock file tells.
        who: String,
    },
    /// The directory has no journal.
    #[error("there is no journal in {0}: name a data directory, a backup, or a directory of segment files")]
    None(String),
    /// The directory cannot be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The directory.
        path: String,
        /// Why.
        cause: String,
    },
    /// It cannot be opened as a journal.
    #[error("the journal in {path} cannot be opened: {cause}")]
    Open {
        /// The directory.
        path: String,
        /// Why.
        cause: whimbrel_journal::OpenError,
    },
}

/// The journal's directory in a data directory, in a backup, or the given directory itself.
pub fn journal_in(directory: &Path) -> PathBuf {
    let within = directory.join(JOURNAL);
    if within.is_dir() { within } else { directory.to_owned() }
}

/// Keeps brokers out of a data directory while it is checked.
///
/// # Errors
/// A broker uses the directory.
pub fn guard(directory: &Path) -> Result<Option<File>, CheckError> {
    let path = || directory.display().to_string();
    let name = directory.join(LOCK);
    let lock = match File::open(&name) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CheckError::Read { path: path(), cause: error.to_string() }),
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let id = fs::read_to_string(name).ok().and_then(|id| id.trim().parse::<u32>().ok());
            let who = id.map_or("a broker".into(), |id| format!("the broker with process number {id}"));
            Err(CheckError::InUse { path: path(), who })
        }
        Err(error) => Err(CheckError::Read { path: path(), cause: error.to_string() }),
    }
}

/// Reads and verifies all of a journal. `on` is called with the bytes read and the bytes in total;
/// the total may be an estimate.
///
/// # Errors
/// See [`CheckError`].
pub fn check(directory: &Path, on: &mut dyn FnMut(u64, u64)) -> Result<Checked, CheckError> {
    let _guard = guard(directory)?;
    let path = journal_in(directory);
    let shown = path.display().to_string();
    let read = |cause: &dyn ToString| CheckError::Read { path: shown.clone(), cause: cause.to_string() };
    let view = View::open(&path).map_err(|fault| read(&fault))?;
    let slots = view.slots().map_err(|fault| read(&fault))?;
    let Some((_, segment_bytes)) = slots.first().copied() else { return Err(CheckError::None(shown)) };
    let file_bytes: u64 = slots.iter().map(|(_, bytes)| bytes).sum();
    let segment_bytes = u32::try_from(segment_bytes).unwrap_or(u32::MAX);
    let options = Options { segment_bytes, batch_bytes: batch_bytes(segment_bytes), max_bytes: u64::MAX };
    let (log, report) =
        Log::open(&view, options, 0).map_err(|cause| CheckError::Open { path: shown.clone(), cause })?;
    // Each byte once for its checksums, and the kept bytes of the streams once for their records.
    let total = file_bytes + log.retained_bytes();
    on(0, total);
    let frames = whimbrel_journal::check(&view).map_err(|cause| CheckError::Open { path: shown.clone(), cause })?;
    on(file_bytes, total);
    let torn = report.torn.map(|(slot, offset)| (segment_name(slot), offset));
    let mut checked = Checked {
        path,
        segments: frames.segments.len() as u64,
        free: frames.free.len() as u64,
        file_bytes,
        torn,
        streams: Vec::new(),
        entries: None,
        wrong: Vec::new(),
        unneeded: Vec::new(),
    };
    let mut reading = Reading { log: &log, view: &view, done: file_bytes, total, on, buffer: ReadBuffer::default() };
    for damage in &report.damages {
        note(&mut checked.wrong, damage);
    }
    let mut streams: Vec<_> = log.streams().collect();
    streams.sort_unstable_by_key(|(id, _)| *id);
    for (id, stream) in streams {
        reading.stream(id, stream, &mut checked);
        if id == MAP {
            reading.map(stream, &mut checked);
        }
    }
    note_frames(&frames, &log, &mut checked);
    Ok(checked)
}

/// Name and contents of a stream, for messages.
fn name_of(id: StreamId) -> (String, &'static str) {
    match id.kind {
        EVENTS => (format!("events {}", id.id), "logged events"),
        _ if id == MAP => ("state".into(), "sessions, subscriptions, positions, retained messages"),
        _ if id == TICKS => ("ticks".into(), "which ticks may have been given out"),
        FILTER => (format!("filter {}.{}", id.id >> 16, id.id & 0xffff), "who wants which events"),
        _ => (id.to_string(), "not known to this version"),
    }
}

/// Consequences of a loss, for operators.
fn costs(id: StreamId, after: u64, last: u64) -> String {
    let (name, _) = name_of(id);
    let part = match last {
        u64::MAX => format!("everything after {}", at(id, after)),
        last => format!("what came after {} up to {}", at(id, after), at(id, last)),
    };
    match id.kind {
        EVENTS => format!("{name} has lost {part}: durable subscribers that need it are told a gap (lost)"),
        _ if id == MAP => {
            "the broker does not start: sessions and positions cannot be trusted. Restore a backup".into()
        }
        FILTER => format!("{name} has lost {part}: who catches up there looks at each event"),
        _ => format!("{name} has lost {part}"),
    }
}

/// A tick as text: a time if it is one.
fn at(id: StreamId, tick: u64) -> String {
    if id.kind == EVENTS && tick > 0 {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(tick);
        return humantime::format_rfc3339_micros(time).to_string();
    }
    format!("record {tick}")
}

fn note(wrong: &mut Vec<Wrong>, damage: &Damage) {
    let costs = match damage.lost {
        Some((id, after, last)) => costs(id, after, last),
        None => "nothing: a copy is whole".into(),
    };
    let (file, what) = (damage.file.map(segment_name), damage.what.to_owned());
    let is_known = |known: &Wrong| known.costs == costs && (known.file == file || file.is_none());
    if !(damage.lost.is_some() && wrong.iter().any(is_known)) {
        wrong.push(Wrong { file, offset: damage.offset, what, costs });
    }
}

/// Adds damage not met by reading the streams: in copies, and in places no longer needed.
fn note_frames(frames: &CheckReport, log: &Log, checked: &mut Checked) {
    for segment in &frames.segments {
        let file = segment_name(segment.slot);
        for (offset, what) in &segment.wrong {
            let is_known = |known: &Wrong| known.file.as_deref() == Some(&file) && known.offset == *offset;
            if checked.wrong.iter().any(is_known) {
                continue;
            }
            let (file, offset, what) = (Some(file.clone()), *offset, what.clone());
            if log.is_used(segment.seq) {
                let costs = "nothing that is needed: there is a copy, or it was given up".into();
                checked.wrong.push(Wrong { file, offset, what, costs });
            } else {
                let costs = "nothing: nobody needs what is in this file".into();
                checked.unneeded.push(Wrong { file, offset, what, costs });
            }
        }
    }
}

struct Reading<'a> {
    log: &'a Log,
    view: &'a View,
    done: u64,
    total: u64,
    on: &'a mut dyn FnMut(u64, u64),
    buffer: ReadBuffer,
}

impl Reading<'_> {
    /// Reads all records of a stream.
    fn stream(&mut self, id: StreamId, stream: Stream, checked: &mut Checked) {
        let Some(info) = self.log.info(stream) else { return };
        let (name, what) = name_of(id);
        let (chopped, reserved) = (info.chopped, info.reserved);
        let has_moments = id.kind == EVENTS || id == TICKS;
        let (records, bytes, first, last) = (0, 0, None, None);
        let mut found = StreamCheck { name, what, records, bytes, first, last, chopped, reserved, has_moments };
        let (mut from, mut places, mut unknown) = (chopped.saturating_add(1), 0_usize, None);
        loop {
            let wanted = Wanted { from, to: u64::MAX, budget: SLICE };
            let mut slice = 0;
            let read = (self.log, self.view);
            let read = whimbrel_journal::Readable::read(&read, stream, wanted, &mut self.buffer, &mut |tick, body| {
                slice += body.len() as u64;
                found.records += 1;
                found.first.get_or_insert(tick);
                found.last = Some(tick);
                from = tick.saturating_add(1);
                if id.kind == EVENTS && event_of_record(PubendId(id.id), Tick(tick), body).is_none() {
                    unknown.get_or_insert(tick);
                }
            });
            found.bytes += slice;
            self.done += slice;
            (self.on)(self.done.min(self.total), self.total);
            match read {
                Ok(None) => break,
                Ok(Some(next)) => from = next,
                Err(ReadError::Damaged(damage)) => {
                    places += 1;
                    if places <= PLACES_MAX {
                        note(&mut checked.wrong, &damage);
                    }
                    match damage.lost {
                        Some((_, _, last)) if last >= from && last < u64::MAX => from = last + 1,
                        _ => break,
                    }
                }
                Err(error) => {
                    let (what, costs) = (error.to_string(), costs(id, from - 1, u64::MAX));
                    checked.wrong.push(Wrong { file: None, offset: 0, what, costs });
                    break;
                }
            }
        }
        if let Some(tick) = unknown {
            let what = format!("the record of {} at {} is not understood", found.name, at(id, tick));
            let costs =
                "durable subscribers that need it are told a gap (lost); a newer version may have written it".into();
            checked.wrong.push(Wrong { file: None, offset: 0, what, costs });
        }
        checked.streams.push(found);
    }

    /// Reads the map as the broker does at its start.
    fn map(&mut self, stream: Stream, checked: &mut Checked) {
        let (mut restoring, mut entries, mut wrong) = (Restoring::default(), 0, None);
        let options = MapOptions { seed: 0, clean_min: CLEAN_MIN };
        let restored = Map::restore(&(self.log, self.view), stream, options, &mut self.buffer, &mut |key, value| {
            entries += 1;
            wrong = wrong.take().or(restoring.entry(key, value).err());
        });
        let costs = "the broker does not start with this directory";
        let wrong = match restored {
            Ok(_) => wrong.map(|error| error.to_string()),
            // The stream's own damage has been reported.
            Err(whimbrel_journal::RestoreError::Read(_)) => None,
            Err(error) => Some(error.to_string()),
        };
        checked.entries = Some(entries);
        checked.wrong.extend(wrong.map(|what| Wrong { file: None, offset: 0, what, costs: costs.into() }));
    }
}
