//! Reading a map from the journal: the whole map at opening, and pieces of it for the cleaning.

use super::index::Place;
use super::record::Record;
use super::{Map, MapOptions};
use crate::drive::{Stepped, read_from};
use crate::journal::Journal;
use crate::log::Log;
use crate::read::{ReadBuffer, Wanted};
use crate::storage::Storage;
use crate::types::{ReadError, Stream, StreamInfo, Tick};

/// A journal that can be read: [`Journal`] or [`Stepped`].
pub trait Readable {
    /// The durable values of a stream, see [`crate::Log::info`].
    fn info(&self, stream: Stream) -> Option<StreamInfo>;

    /// See [`Journal::read`].
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read(
        &self,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(Tick, &[u8]),
    ) -> Result<Option<Tick>, ReadError>;
}

impl<S: Storage + Send + Sync + 'static> Readable for Journal<S> {
    fn info(&self, stream: Stream) -> Option<StreamInfo> {
        self.info(stream)
    }

    fn read(
        &self,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(Tick, &[u8]),
    ) -> Result<Option<Tick>, ReadError> {
        self.read(stream, wanted, buffer, sink)
    }
}

impl<S: Storage> Readable for Stepped<'_, S> {
    fn info(&self, stream: Stream) -> Option<StreamInfo> {
        self.log.info(stream)
    }

    fn read(
        &self,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(Tick, &[u8]),
    ) -> Result<Option<Tick>, ReadError> {
        self.read(stream, wanted, buffer, sink)
    }
}

/// For simulations with their own virtual time, which have no [`Stepped`].
impl<S: Storage> Readable for (&Log, &S) {
    fn info(&self, stream: Stream) -> Option<StreamInfo> {
        self.0.info(stream)
    }

    fn read(
        &self,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(Tick, &[u8]),
    ) -> Result<Option<Tick>, ReadError> {
        read_from(self.0, self.1, (stream, wanted), buffer, sink)
    }
}

/// The reason why a map cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The stream cannot be read. After damage, the remaining records could contain removed keys or
    /// replaced values.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record is not a map's, or of a later version, or does not follow the previous one.
    #[error("the record at tick {0} is not understood")]
    Unknown(Tick),
}

/// The oldest records of a map, read for [`Map::take`].
#[derive(Debug, Default)]
pub struct Piece {
    bytes: Vec<u8>,
    /// Tick and end of each record in `bytes`.
    records: Vec<(Tick, usize)>,
    /// The first remaining record: its index, and its beginning in `bytes`.
    at: (usize, usize),
}

impl Piece {
    /// Reads the records that [`Map::wanted`] has asked for.
    ///
    /// # Errors
    /// See [`ReadError`]; it must be passed to [`Map::take`].
    pub fn read(
        journal: &impl Readable,
        stream: Stream,
        wanted: Wanted,
        buffer: &mut ReadBuffer,
    ) -> Result<Piece, ReadError> {
        let mut piece = Piece::default();
        journal.read(stream, wanted, buffer, &mut |tick, record| {
            piece.bytes.extend_from_slice(record);
            piece.records.push((tick, piece.bytes.len()));
        })?;
        Ok(piece)
    }

    pub(super) fn first(&self) -> Option<(Tick, &[u8])> {
        let (tick, end) = *self.records.get(self.at.0)?;
        Some((tick, &self.bytes[self.at.1..end]))
    }

    pub(super) fn pop(&mut self) {
        self.at = (self.at.0 + 1, self.records[self.at.0].1);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.0 == self.records.len()
    }
}

impl Map {
    /// Restores the map of a stream, which must contain nothing else and to which nothing may have
    /// been appended since the journal was opened. `sink` gets each key with its value, in the
    /// order in which they were last written (by the cleaning, too). Reads the stream twice, first
    /// the keys and then the values that count, so that values need no memory, only a bit for each
    /// record.
    ///
    /// # Errors
    /// See [`RestoreError`]. The pairs given until then are incomplete.
    pub fn restore(
        journal: &impl Readable,
        stream: Stream,
        options: MapOptions,
        buffer: &mut ReadBuffer,
        sink: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Map, RestoreError> {
        let info = journal.info(stream);
        let (last, chopped) = info.map_or((0, 0), |info| (info.last, info.chopped));
        let mut map = Map::empty(stream, options, (last.max(chopped), chopped));
        each_record(journal, (stream, chopped), buffer, &mut |tick, Record { key, value }, bytes| {
            let key = map.index.digest(key);
            map.note(key, Place { tick, bytes }, value.is_some());
        })?;
        // A bit for each record saves a second look-up of its key.
        let bit = |tick: Tick| (((tick - chopped) / 64) as usize, 1u64 << ((tick - chopped) % 64));
        let mut counts = vec![0; bit(map.last).0 + 1];
        map.index.ticks().map(bit).for_each(|(word, bit)| counts[word] |= bit);
        each_record(journal, (stream, chopped), buffer, &mut |tick, Record { key, value }, _| {
            let (word, bit) = bit(tick);
            if let Some(value) = value
                && counts[word] & bit != 0
            {
                sink(key, value);
            }
        })?;
        Ok(map)
    }
}

/// Calls `sink` with every record, its tick and its length.
fn each_record(
    journal: &impl Readable,
    (stream, chopped): (Stream, Tick),
    buffer: &mut ReadBuffer,
    sink: &mut dyn FnMut(Tick, Record, u32),
) -> Result<(), RestoreError> {
    let wanted = Wanted { from: 0, to: Tick::MAX, budget: usize::MAX };
    let (mut unknown, mut last) = (None, chopped);
    journal.read(stream, wanted, buffer, &mut |tick, bytes| match Record::parse(bytes) {
        _ if unknown.is_some() => {}
        Some(record) if tick == last + 1 => {
            last = tick;
            sink(tick, record, bytes.len() as u32);
        }
        _ => unknown = Some(tick),
    })?;
    unknown.map_or(Ok(()), |tick| Err(RestoreError::Unknown(tick)))
}
