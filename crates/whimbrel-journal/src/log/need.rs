//! Several operations that become durable together, or not at all.

use super::{Class, Log};
use crate::frame::SECTION_ROOM;
use crate::map::RECORD_HEAD;
use crate::types::Refused;
use crate::wire::VARINT_MAX;

/// Upper bound of the bytes of a change in its batch.
const CHANGE_ROOM: usize = 5 + 2 * VARINT_MAX;

/// The room that several operations need in one batch, see [`Log::require`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Number of streams that are appended to.
    pub streams: usize,
    /// Number of records for [`Log::append`].
    pub records: usize,
    /// Number of records of maps. With these and changes only, the space that is kept for maps may
    /// be used.
    pub puts: usize,
    /// Bytes of all records together.
    pub bytes: usize,
    /// Number of chops, reservations, births and removals.
    pub changes: usize,
}

impl Need {
    /// Adds a record for [`Log::append`].
    pub fn record(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
    }

    /// Adds a [`crate::Map::put`], or with an empty value a [`crate::Map::remove`], with key and
    /// value of this many bytes.
    pub fn put(&mut self, key: usize, value: usize) {
        self.puts += 1;
        self.bytes += RECORD_HEAD + key + value;
    }
}

impl Log {
    /// Checks whether all of these operations can be accepted now, in one batch. If so, they are
    /// not refused for lack of room when they follow immediately (under the same lock), and become
    /// durable together: after a crash they are all there, or none of them is. Not checked is
    /// whether a stream is stopped: see [`Log::check_stream`].
    ///
    /// The check reserves nothing, so that it also tells whether a journal that was full has room
    /// again.
    ///
    /// # Errors
    /// [`Refused::Busy`], [`Refused::Full`] and [`Refused::Poisoned`] as the operations themselves;
    /// [`Refused::TooLong`] if no batch could ever hold it.
    pub fn require(&mut self, need: Need) -> Result<(), Refused> {
        self.check_poison()?;
        let bytes = need.bytes + (need.records + need.puts) * 2 * VARINT_MAX + need.streams * SECTION_ROOM;
        let control = need.changes * CHANGE_ROOM;
        let (room, control_room) = (self.options.batch_bytes as usize, self.options.control_room());
        if bytes > room {
            return Err(Refused::TooLong { bytes, max: room });
        }
        if control > control_room {
            return Err(Refused::TooLong { bytes: control, max: control_room });
        }
        if self.collect.bytes + bytes > room || self.collect.control + control > control_room {
            return Err(Refused::Busy);
        }
        if need.records > 0 {
            self.check_room(Class::Data)?;
        }
        if need.puts > 0 {
            self.check_room(Class::Map)?;
        }
        if need.changes > 0 && !self.has_room(0) {
            return Err(self.no_room());
        }
        Ok(())
    }
}
