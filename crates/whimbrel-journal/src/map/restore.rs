//! Reading a map from the journal: all of it at opening, and pieces of it that are to be cleaned.

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
    /// What is known of the stream, see [`crate::Log::info`].
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

/// Who drives the journal in a time of his own has no [`Stepped`].
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

/// Why a map cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Its stream cannot be read. With damage, what is left could tell of keys that were removed,
    /// or of values that were replaced.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record is none of a map, or of a later version, or does not follow the one before it.
    #[error("the record at tick {0} is not understood")]
    Unknown(Tick),
}

/// The oldest records of a map, read for [`Map::take`].
#[derive(Debug, Default)]
pub struct Piece {
    bytes: Vec<u8>,
    /// Tick of each, and where it ends.
    records: Vec<(Tick, usize)>,
    /// The first that is left, and where it begins.
    at: (usize, usize),
}

impl Piece {
    /// Reads what [`Map::wanted`] has asked for.
    ///
    /// # Errors
    /// See [`ReadError`]; it is to be told to [`Map::take`].
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
    /// The map that is in a stream, which must hold nothing else and to which nothing may have been
    /// appended since the journal was opened. `sink` is given each key with its value, in the order
    /// in which they were last written (cleaning writes, too). Reads the stream twice, first the
    /// keys and then the values that count, and so needs no memory for values, but a bit for each
    /// record.
    ///
    /// # Errors
    /// See [`RestoreError`]. What was given until then is incomplete.
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
        // A bit for each record saves the second look-up of its key.
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

/// Gives every record with its tick and its length.
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
