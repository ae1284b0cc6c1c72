//! Names, settings and errors.

use core::fmt;

use crate::storage::Fault;

/// A position in a stream, chosen by the caller: from 1 on, strictly increasing within its stream,
/// as sparse as it likes. 0 stands for "before everything".
pub type Tick = u64;

/// Bytes that are written, checked and lost together: everything in a segment begins at a multiple
/// of this.
pub const SECTOR: usize = 512;
/// Bytes at the beginning of each segment that hold its header and, once it is sealed, its summary;
/// what recovery reads of it.
pub const HEAD: usize = 4096;
/// Smallest [`Options::batch_bytes`].
pub const BATCH_BYTES_MIN: u32 = 4096;
/// Largest [`Options::batch_bytes`].
pub const BATCH_BYTES_MAX: u32 = 64 << 20;
/// A segment holds at least this many full batches.
pub const SEGMENT_BATCHES_MIN: u32 = 8;
/// Largest [`Options::segment_bytes`].
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;
/// Segments that no record fills: with them chops, reservations and relocation go on when the
/// journal is full.
pub const RESERVE_SEGMENTS: u32 = 2;
/// Segments beside the reserve that only maps fill: with them puts and removals go on when other
/// records are refused.
pub const MAP_SEGMENTS: u32 = 2;
/// Fewest segments that [`Options::max_bytes`] must leave room for: one that is written, one that
/// is full, those for maps, and the reserve.
pub const SEGMENTS_MIN: u32 = RESERVE_SEGMENTS + MAP_SEGMENTS + 2;
/// Most streams of one journal; less with small batches: all their states must fit into one.
pub const STREAMS_MAX: u32 = 65_536;
/// Bytes of a record that its batch may need beside the payload.
pub(crate) const RECORD_ROOM: u32 = 128;

/// The caller's name of a stream. Printed as `kind:id` in decimal and hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// What the stream is for; the caller's own numbering.
    pub kind: u32,
    /// Which one of that kind.
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

/// A stream of an open journal: the number under which its records are written. Never used again,
/// also not for a new stream of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub(crate) u32);

/// The place of an accepted operation in the order of all of them since the journal was opened: 1,
/// 2, 3, …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What is known of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub id: StreamId,
    /// Tick of the last record that is durable, 0 without one; it stays when the record is chopped.
    pub last: Tick,
    /// Everything up to here is chopped, and durably so.
    pub chopped: Tick,
    /// What was durably reserved, see [`crate::Log::reserve`].
    pub reserved: Tick,
    /// Why it takes no more records, if so.
    pub stopped: Option<Damage>,
}

/// What a stream takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUse {
    /// Bytes of its records, those included that are chopped and lie in one piece with others that
    /// are not.
    pub bytes: u64,
    /// Segments in which something of it lies.
    pub segments: u64,
    /// What is kept comes after this tick; None: nothing is kept.
    pub oldest: Option<Tick>,
}

/// Sizes and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one segment file. A journal keeps the size it was made with. Default 64 MiB.
    pub segment_bytes: u32,
    /// Bound of what is collected while the batch before it is written, and so of one commit.
    /// Default 1 MiB. A record can be [`Options::record_max`] long. Memory: two batches and their
    /// encoding.
    pub batch_bytes: u32,
    /// Bound of all segment files together, in bytes. Default: none but the disk.
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

    /// Most bytes that one commit adds to a segment: a batch, and beside it room for control
    /// entries and relocated records.
    pub(crate) fn frame_max(&self) -> u32 {
        self.batch_bytes * 2
    }

    /// Bytes of control entries (chops, reservations, births) that one batch takes.
    pub(crate) fn control_room(&self) -> usize {
        self.batch_bytes as usize / 8
    }

    /// Bytes of relocated records that one batch takes.
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

    /// Says what is wrong with these settings.
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

/// Bytes that the state of one stream may take in a checkpoint, both copies together.
pub(crate) const STATE_MAX: u32 = 2 * (5 + 5 + 10 + 10 + 10 + 10 + 1);

/// Something in the journal that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file (see [`crate::Storage::name`]), or that there is none.
    pub file: Option<u32>,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The stream that lost something, and the ticks between which it did: after the first, up to
    /// the second. The second is [`Tick::MAX`] if nothing tells where the loss ends. None if nobody
    /// lost anything, because a copy was whole.
    pub lost: Option<(StreamId, Tick, Tick)>,
    /// What was found.
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

/// Why an operation was not accepted. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The collecting batch has no room; try again after the next commit. The owner of the load
    /// slows down.
    #[error("the batch is full until the next commit")]
    Busy,
    /// The disk is full, or `max_bytes` is reached. It ends when space is given back; chops are
    /// still taken, and so are puts and removals of maps, unless it is they that are refused.
    #[error("the journal is full")]
    Full,
    /// A write or a sync failed earlier. It ends when the journal is opened anew.
    #[error("the journal is poisoned: {0}")]
    Poisoned(Fault),
    /// The stream is damaged; what is known stands in the damage. It ends when the damage is
    /// chopped.
    #[error("the stream is stopped: {0}")]
    Stopped(Damage),
    /// The tick is not greater than the last one of the stream, or not greater than what is
    /// chopped. The caller's mistake.
    #[error("tick {tick} is not after {last}")]
    NotIncreasing {
        /// The tick refused.
        tick: Tick,
        /// The greatest tick that is used or chopped.
        last: Tick,
    },
    /// The record is longer than [`Options::record_max`]. The caller's mistake.
    #[error("a record of {bytes} bytes, at most {max} are possible")]
    TooLong {
        /// Of the record.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A key of a map is longer than [`crate::KEY_MAX`]. The caller's mistake.
    #[error("a key of {bytes} bytes, at most {max} are possible")]
    KeyTooLong {
        /// Of the key.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// There are [`Options::streams_max`] streams.
    #[error("there are {0} streams already")]
    TooManyStreams(u32),
    /// The stream was removed.
    #[error("there is no such stream")]
    Unknown,
}

/// Why nothing, or no more, can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What should be read next is damaged. Reading goes on behind its range.
    #[error("{0}")]
    Damaged(Damage),
    /// The disk did not give it.
    #[error(transparent)]
    Storage(#[from] Fault),
    /// The stream was removed.
    #[error("there is no such stream")]
    Unknown,
    /// What was to be read moved away again and again; try again.
    #[error("the records moved while they were read")]
    Moved,
}

/// Why a journal cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The settings make no sense.
    #[error("{what}")]
    Options {
        /// What is wrong.
        what: &'static str,
    },
    /// A file has a format that this version does not know.
    #[error("segment file {slot} has format version {version}, this program knows up to {known}")]
    Version {
        /// The file.
        slot: u32,
        /// What it says.
        version: u32,
        /// What is known here.
        known: u32,
    },
    /// Files of two journals lie in one place.
    #[error("segment file {slot} belongs to another journal")]
    Foreign {
        /// The file that does not belong.
        slot: u32,
    },
    /// Two files say that they are the same segment: one is a copy.
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
    /// There are files, but none of them says what it is.
    #[error("no segment file has a readable header")]
    NoHeader,
    /// The disk did not do what it was asked.
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
