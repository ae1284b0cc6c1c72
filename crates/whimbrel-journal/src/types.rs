//! Names, settings and errors.

use core::fmt;

use crate::storage::Fault;

/// A position in a stream, chosen by the caller: from 1 on, strictly increasing within its stream,
/// with gaps of any size. 0 means "before everything".
pub type Tick = u64;

/// Bytes that are written, checked and lost together: every part of a segment begins at a multiple
/// of this.
pub const SECTOR: usize = 512;
/// Bytes at the beginning of each segment for its header and, once it is sealed, its summary;
/// recovery reads these.
pub const HEAD: usize = 4096;
/// Smallest [`Options::batch_bytes`].
pub const BATCH_BYTES_MIN: u32 = 4096;
/// Largest [`Options::batch_bytes`].
pub const BATCH_BYTES_MAX: u32 = 64 << 20;
/// The number of full batches that a segment has room for at least.
pub const SEGMENT_BATCHES_MIN: u32 = 8;
/// Largest [`Options::segment_bytes`].
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;
/// Segments that records never fill: with them chops, reservations and relocation continue when the
/// journal is full.
pub const RESERVE_SEGMENTS: u32 = 2;
/// Segments beside the reserve that only maps fill: with them puts and removals continue when other
/// records are refused.
pub const MAP_SEGMENTS: u32 = 2;
/// Fewest segments that [`Options::max_bytes`] must leave room for: the active one, a full one,
/// those for maps, and the reserve.
pub const SEGMENTS_MIN: u32 = RESERVE_SEGMENTS + MAP_SEGMENTS + 2;
/// Most streams of one journal; fewer with small batches, because all their states must fit into
/// one.
pub const STREAMS_MAX: u32 = 65_536;
/// Bytes that a record may need in its batch beside the payload.
pub(crate) const RECORD_ROOM: u32 = 128;

/// The caller's name of a stream. Printed as `kind:id` in decimal and hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The purpose of the stream, in the caller's own numbering.
    pub kind: u32,
    /// The number of the stream among those of its kind.
    pub id: u64,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}", self.kind, self.id)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A stream of an open journal: the number under which its records are written. Never reused, not
/// even for a new stream of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub(crate) u32);

/// The number of an accepted operation, counted since the journal was opened: 1, 2, 3, …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The durable values of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub id: StreamId,
    /// Tick of the last durable record, 0 without one; it stays when the record is chopped.
    pub last: Tick,
    /// The tick up to which the stream is durably chopped.
    pub chopped: Tick,
    /// The tick up to which ticks are durably reserved, see [`crate::Log::reserve`].
    pub reserved: Tick,
    /// The damage because of which the stream accepts no more records, if there is any.
    pub stopped: Option<Damage>,
}

/// The space that a stream uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUse {
    /// Bytes of its records, including chopped ones that lie in one piece with others that are not.
    pub bytes: u64,
    /// Number of segments with records of the stream.
    pub segments: u64,
    /// The tick after which the kept records begin; `None`: no record is kept.
    pub oldest: Option<Tick>,
}

/// Sizes and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one segment file. A journal keeps the size it was made with. Default 64 MiB.
    pub segment_bytes: u32,
    /// Limit of the bytes collected while the previous batch is written, and so of one commit.
    /// Default 1 MiB. It also limits the length of a record ([`Options::record_max`]). Memory: two
    /// batches and their encoding.
    pub batch_bytes: u32,
    /// Limit of all segment files together, in bytes. Default: only that of the disk.
    pub max_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { segment_bytes: 64 << 20, batch_bytes: 1 << 20, max_bytes: u64::MAX }
    }
}

impl Options {
    /// Most bytes of one record.
    pub fn record_max(&self) -> usize {
        (self.batch_bytes - RECORD_ROOM) as usize
    }

    /// Most bytes that one commit adds to a segment: a batch, and in addition control entries and
    /// relocated records.
    pub(crate) fn frame_max(&self) -> u32 {
        self.batch_bytes * 2
    }

    /// Bytes of control entries (chops, reservations, births) in one batch at most.
    pub(crate) fn control_room(&self) -> usize {
        self.batch_bytes as usize / 8
    }

    /// Bytes of relocated records in one batch at most.
    pub(crate) fn move_room(&self) -> usize {
        self.batch_bytes as usize / 4
    }

    /// Most segments.
    pub(crate) fn segments_max(&self) -> u64 {
        self.max_bytes / u64::from(self.segment_bytes)
    }

    /// Most streams.
    pub fn streams_max(&self) -> u32 {
        STREAMS_MAX.min(self.batch_bytes / STATE_MAX)
    }

    /// Checks that the settings are consistent.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what| Err(OpenError::Options { what });
        if !(BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&self.batch_bytes) {
            return wrong("batch_bytes must be 4 KiB to 64 MiB");
        }
        if !self.segment_bytes.is_multiple_of(HEAD as u32) || self.segment_bytes > SEGMENT_BYTES_MAX {
            return wrong("segment_bytes must be a multiple of 4 KiB and at most 1 GiB");
        }
        if self.segment_bytes / SEGMENT_BATCHES_MIN < self.batch_bytes {
            return wrong("segment_bytes must be at least eight times batch_bytes");
        }
        if self.segments_max() < u64::from(SEGMENTS_MIN) {
            return wrong("max_bytes must leave room for six segments");
        }
        Ok(())
    }
}

/// Most bytes of the state of one stream in a checkpoint, both copies together.
pub(crate) const STATE_MAX: u32 = 2 * (5 + 5 + 10 + 10 + 10 + 10 + 1);

/// Contents of the journal that differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file (see [`crate::Storage::name`]), or `None` if the damage is in no particular file.
    pub file: Option<u32>,
    /// The offset in the file, bytes.
    pub offset: u64,
    /// The stream with a loss, and the lost range of ticks: after the first, up to the second. The
    /// second is [`Tick::MAX`] if the end of the loss is unknown. `None` if nothing is lost,
    /// because a copy was whole.
    pub lost: Option<(StreamId, Tick, Tick)>,
    /// The kind of damage.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Some(file) => write!(f, "segment file {file}, offset {}: {}", self.offset, self.what)?,
            None => write!(f, "{}", self.what)?,
        }
        match self.lost {
            Some((id, after, Tick::MAX)) => write!(f, "; stream {id} may have lost everything after tick {after}"),
            Some((id, after, last)) => write!(f, "; stream {id} lost ticks {} to {last}", after.saturating_add(1)),
            None => write!(f, "; nothing is lost, a copy is whole"),
        }
    }
}

/// The reason for refusing an operation, which has then changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The collecting batch has no room; try again after the next commit. The source of the load
    /// has to slow down.
    #[error("the batch is full until the next commit")]
    Busy,
    /// The disk is full, or `max_bytes` is reached. It ends when space is freed; chops are still
    /// accepted, and so are puts and removals of maps, unless these themselves are refused.
    #[error("the journal is full")]
    Full,
    /// A write or a sync failed earlier. It ends when the journal is opened again.
    #[error("the journal is poisoned: {0}")]
    Poisoned(Fault),
    /// The stream is damaged, as described. It ends when the damage is chopped.
    #[error("the stream is stopped: {0}")]
    Stopped(Damage),
    /// The tick is not greater than the last tick used or chopped in the stream. A mistake of the
    /// caller.
    #[error("tick {tick} is not after {last}")]
    NotIncreasing {
        /// The refused tick.
        tick: Tick,
        /// The greatest tick that is used or chopped.
        last: Tick,
    },
    /// The record is longer than [`Options::record_max`]. A mistake of the caller.
    #[error("a record of {bytes} bytes, at most {max} are possible")]
    TooLong {
        /// Bytes of the record.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A key of a map is longer than [`crate::KEY_MAX`]. A mistake of the caller.
    #[error("a key of {bytes} bytes, at most {max} are possible")]
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// There are [`Options::streams_max`] streams.
    #[error("there are {0} streams already")]
    TooManyStreams(u32),
    /// The stream was removed.
    #[error("there is no such stream")]
    Unknown,
}

/// The reason for not reading records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The next record to read is damaged. Reading can continue after the damaged range.
    #[error("{0}")]
    Damaged(Damage),
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] Fault),
    /// The stream was removed.
    #[error("there is no such stream")]
    Unknown,
    /// The records were relocated during each attempt to read them; try again.
    #[error("the records moved while they were read")]
    Moved,
}

/// The reason why a journal cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The settings are inconsistent.
    #[error("{what}")]
    Options {
        /// The mistake.
        what: &'static str,
    },
    /// A file has a format that this version does not know.
    #[error("segment file {slot} has format version {version}, this program knows up to {known}")]
    Version {
        /// The file.
        slot: u32,
        /// The file's version.
        version: u32,
        /// The newest known version.
        known: u32,
    },
    /// Files of two journals lie in one directory.
    #[error("segment file {slot} belongs to another journal")]
    Foreign {
        /// The file of the other journal.
        slot: u32,
    },
    /// Two files have the same segment: one is a copy.
    #[error("segment files {} and {} are the same segment: one of them is a copy", slots[0], slots[1])]
    Twice {
        /// The files.
        slots: [u32; 2],
    },
    /// The states of all streams, at the beginning of the newest segment, are lost in both copies.
    #[error("segment file {slot}: both copies of the checkpoint are damaged")]
    Checkpoint {
        /// The newest file.
        slot: u32,
    },
    /// There are files, but none of them has a readable header.
    #[error("no segment file has a readable header")]
    NoHeader,
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] Fault),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_settings_are_allowed_and_what_follows_from_them_is_bounded() {
        let options = Options { segment_bytes: SEGMENT_BYTES_MAX, batch_bytes: BATCH_BYTES_MAX, ..Options::default() };
        assert_eq!(options.check(), Ok(()));
        assert!(Options { batch_bytes: BATCH_BYTES_MAX + 1, ..options }.check().is_err());
        assert_eq!(options.streams_max(), STREAMS_MAX);
        assert_eq!(Options { batch_bytes: BATCH_BYTES_MIN, ..options }.streams_max(), BATCH_BYTES_MIN / STATE_MAX);
        assert_eq!(options.record_max(), (BATCH_BYTES_MAX - RECORD_ROOM) as usize);
    }
}
