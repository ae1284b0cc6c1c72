//! A durable map on one stream of the journal: the last record of a key has its value.
//!
//! The map stores the place of each key's last record, not its value: the map's user has the values
//! in memory, in its own form. Once the stream has many more bytes than its last records, its
//! oldest records are read; those that still count are appended again, and then all of them are
//! chopped. There are no pauses, no snapshot, and no second file.
//!
//! A removal is a record, too, and needs nothing else: when the cleaning reaches it, everything
//! before it is chopped together with it, so that no older record of its key can return.
//!
//! Like [`Log`], it does no IO. Its driver reads the records that [`Map::wanted`] asks for, outside
//! any lock, and gives them to [`Map::take`]; [`Map::clean`] uses them, under the lock of the
//! submission.

mod index;
mod record;
mod restore;

use index::{Digest, Index, Place};
pub use record::RECORD_HEAD;
use record::Record;
pub use restore::{Piece, Readable, RestoreError};

use crate::log::{Class, Log};
use crate::read::Wanted;
use crate::types::{ReadError, Refused, Stream, Tick, Ticket};

/// Most bytes of a key: a topic filter or client id of 64 KiB, and the user's prefix.
pub const KEY_MAX: usize = (64 << 10) + 64;
/// The stream is cleaned while it has more than this many times the bytes that count.
pub const CLEAN_ABOVE: u64 = 2;
/// Default of [`MapOptions::clean_min`].
pub const CLEAN_MIN: u64 = 4 << 20;
/// Bytes of old records that are cleaned for each byte that ceases to count. At 4, a pass through a
/// stream with twice the bytes that count ends before it has grown by half of these.
pub const CLEAN_RATE: u64 = 4;
/// Bytes of old records per read, and per cleaning at most (one record if it is longer).
pub const CLEAN_PIECE: usize = 256 << 10;

/// Settings of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MapOptions {
    /// The key of the hash of keys: a secret, so that clients cannot choose keys that collide. It
    /// may differ from one opening to the next.
    pub seed: u128,
    /// The stream is not cleaned while it has no more bytes than this.
    pub clean_min: u64,
}

impl core::fmt::Debug for MapOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MapOptions").field("clean_min", &self.clean_min).finish_non_exhaustive()
    }
}

/// Contents and counters of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapInfo {
    /// Keys that have a value.
    pub keys: usize,
    /// Bytes of the records that count.
    pub live: u64,
    /// Bytes of all records that are not cleaned.
    pub held: u64,
    /// Bytes of memory, without a piece that is being cleaned.
    pub memory: usize,
    /// Bytes of records cleaned since the opening.
    pub cleaned: u64,
    /// Bytes of these that still counted and were appended again.
    pub copied: u64,
    /// Failed reads for the cleaning.
    pub failed_reads: u64,
}

/// The map. Memory: about 40 bytes per key, and one [`CLEAN_PIECE`] or the longest record while it
/// is cleaned.
#[derive(Debug)]
pub struct Map {
    stream: Stream,
    clean_min: u64,
    index: Index,
    /// Tick of the last record.
    last: Tick,
    /// No record up to this tick counts.
    cleaned: Tick,
    /// The tick up to which the stream is chopped.
    chopped: Tick,
    /// Bytes of the records after `cleaned`.
    held: u64,
    /// Bytes of the records that count.
    live: u64,
    /// Bytes that may be cleaned now.
    credit: u64,
    piece: Piece,
    /// A piece is being read.
    reading: bool,
    /// The counters of [`MapInfo`].
    counted: MapInfo,
    /// Buffer for the beginning of a record.
    head: Vec<u8>,
}

impl Map {
    fn empty(stream: Stream, options: MapOptions, (last, chopped): (Tick, Tick)) -> Map {
        Map {
            stream,
            clean_min: options.clean_min,
            index: Index::new(options.seed),
            last,
            cleaned: chopped,
            chopped,
            held: 0,
            live: 0,
            credit: 0,
            piece: Piece::default(),
            reading: false,
            counted: MapInfo::default(),
            head: Vec::new(),
        }
    }

    /// Sets the value of a key. Durable with its ticket. To do several operations together, call
    /// [`Log::require`] before.
    ///
    /// # Errors
    /// [`Refused::KeyTooLong`]; [`Refused::TooLong`] if key, value and [`RECORD_HEAD`] exceed the
    /// longest record; otherwise as [`Log::append`]. The map is unchanged then.
    pub fn put(&mut self, log: &mut Log, key: &[u8], value: &[u8]) -> Result<Ticket, Refused> {
        self.write(log, Record { key, value: Some(value) })
    }

    /// Removes a key. Durable with its ticket. If the key has no value, nothing is written, and the
    /// ticket is that of the last accepted operation.
    ///
    /// # Errors
    /// As [`Map::put`].
    pub fn remove(&mut self, log: &mut Log, key: &[u8]) -> Result<Ticket, Refused> {
        if !self.contains(key) {
            return Ok(log.accepted());
        }
        self.write(log, Record { key, value: None })
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.index.get(self.index.digest(key)).is_some()
    }

    /// The map's stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Contents and counters.
    pub fn info(&self) -> MapInfo {
        let (keys, memory) = (self.index.len(), self.index.memory());
        MapInfo { keys, live: self.live, held: self.held, memory, ..self.counted }
    }

    fn write(&mut self, log: &mut Log, record: Record) -> Result<Ticket, Refused> {
        let Record { key, value } = record;
        if key.len() > KEY_MAX {
            return Err(Refused::KeyTooLong { bytes: key.len(), max: KEY_MAX });
        }
        record.head(&mut self.head);
        let body = value.unwrap_or_default();
        let ticket = log.append_as(Class::Map, (self.stream, self.last + 1), &[&self.head, key, body])?;
        let place = Place { tick: self.last + 1, bytes: (self.head.len() + key.len() + body.len()) as u32 };
        let dead = self.note(self.index.digest(key), place, value.is_some());
        // No credit is earned in advance: bytes written while there was no need to clean are not
        // made up for.
        self.credit = if self.is_due() { (self.credit + CLEAN_RATE * dead).min(self.held) } else { 0 };
        Ok(ticket)
    }

    /// Records that the newest record is at this place and has this key. Returns the bytes that do
    /// not count any more.
    fn note(&mut self, key: Digest, place: Place, has_value: bool) -> u64 {
        let bytes = u64::from(place.bytes);
        self.last = place.tick;
        self.held += bytes;
        let (old, dead) = if has_value {
            self.live += bytes;
            (self.index.insert(key, place), 0)
        } else {
            (self.index.remove(key), bytes)
        };
        let old = old.map_or(0, |old| u64::from(old.bytes));
        self.live -= old;
        dead + old
    }

    fn counts(&self, key: Digest, tick: Tick) -> bool {
        self.index.get(key).is_some_and(|last| last.tick == tick)
    }

    /// Whether the stream exceeds the number of bytes at which it should be cleaned.
    fn is_due(&self) -> bool {
        self.held > self.clean_min.max(CLEAN_ABOVE * self.live)
    }

    /// The next read for the cleaning, if one is due: to be done with [`Piece::read`], outside any
    /// lock, and passed to [`Map::take`].
    pub fn wanted(&mut self) -> Option<Wanted> {
        if self.reading || !self.piece.is_empty() || self.credit == 0 || !self.is_due() {
            return None;
        }
        self.reading = true;
        Some(Wanted { from: self.cleaned + 1, to: self.last, budget: CLEAN_PIECE })
    }

    /// Takes the outcome of a read. If it failed, or none of the records is durable yet, the next
    /// one is wanted only when more bytes have ceased to count.
    pub fn take(&mut self, outcome: Result<Piece, ReadError>) {
        self.reading = false;
        match outcome {
            Ok(piece) => self.piece = piece,
            Err(_) => self.counted.failed_reads += 1,
        }
        if self.piece.is_empty() {
            self.credit = 0;
        }
    }

    /// Cleans as much as the credit and the piece permit. To be called after the operations of a
    /// submission (it uses room in the batch), and after [`Map::take`]. Refused work is left for
    /// the next call.
    pub fn clean(&mut self, log: &mut Log) {
        let mut stopped = false;
        while self.credit > 0
            && self.is_due()
            && !stopped
            && let Some((tick, record)) = self.piece.first()
        {
            let bytes = record.len() as u64;
            let Record { key, value } = Record::parse(record).expect("what is not understood is not restored");
            let digest = self.index.digest(key);
            if value.is_some() && self.counts(digest, tick) {
                if log.append_as(Class::Map, (self.stream, self.last + 1), &[record]).is_err() {
                    stopped = true;
                    continue;
                }
                let place = Place { tick: self.last + 1, bytes: record.len() as u32 };
                self.note(digest, place, true);
                self.counted.copied += bytes;
            }
            self.piece.pop();
            self.cleaned = tick;
            self.held -= bytes;
            self.credit = self.credit.saturating_sub(bytes);
            self.counted.cleaned += bytes;
        }
        // After the copies: in the same commit, or in a later one.
        let unfinished = self.credit == 0 && !self.piece.is_empty();
        if self.cleaned > self.chopped && !unfinished && log.chop(self.stream, self.cleaned).is_ok() {
            self.chopped = self.cleaned;
        }
    }
}
