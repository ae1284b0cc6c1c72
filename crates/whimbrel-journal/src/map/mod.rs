//! A durable map on one stream of the journal: the last record of a key counts.
//!
//! It remembers where the last record of each key is, and not what is in it: whoever uses it has
//! the values in memory, in a form of his own. Once the stream holds much more than what counts,
//! its oldest records are read; those that still count are appended again, and then all of them are
//! chopped. There are no pauses, no snapshot, and no second file.
//!
//! A removal is a record, too, and needs nothing else: when the cleaning comes to it, everything
//! before it is chopped together with it, so no older record of its key can come back.
//!
//! Like [`Log`], it does no IO. Its driver reads what [`Map::wanted`] asks for, outside any lock,
//! and gives it to [`Map::take`]; [`Map::clean`] uses it, under the lock of the submission.

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

/// Most bytes of a key: a topic filter or client id of 64 KiB, and what the user puts before it.
pub const KEY_MAX: usize = (64 << 10) + 64;
/// The stream is cleaned while it holds more than this many times what counts.
pub const CLEAN_ABOVE: u64 = 2;
/// Default of [`MapOptions::clean_min`].
pub const CLEAN_MIN: u64 = 4 << 20;
/// For each byte that ceases to count, this many bytes of old records are cleaned. At 4 a round
/// through a stream that holds twice what counts ends before it has grown by half of what counts.
pub const CLEAN_RATE: u64 = 4;
/// Bytes of old records that are read at once, and cleaned at once at most (one record if it is
/// longer).
pub const CLEAN_PIECE: usize = 256 << 10;

/// Settings of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MapOptions {
    /// A secret, for a hash of the keys that strangers cannot aim at. It may differ from one
    /// opening to the next.
    pub seed: u128,
    /// While the stream holds no more bytes than this, it is not cleaned.
    pub clean_min: u64,
}

impl core::fmt::Debug for MapOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MapOptions").field("clean_min", &self.clean_min).finish_non_exhaustive()
    }
}

/// What a map holds, and what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapInfo {
    /// Keys that have a value.
    pub keys: usize,
    /// Bytes of the records that count.
    pub live: u64,
    /// Bytes of all records that are not cleaned.
    pub held: u64,
    /// Bytes of memory, but for a piece that is being cleaned.
    pub memory: usize,
    /// Bytes of records that were cleaned since the opening.
    pub cleaned: u64,
    /// Of these, bytes that still counted and were appended again.
    pub copied: u64,
    /// Reads for the cleaning that failed.
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
    /// No record up to this one counts.
    cleaned: Tick,
    /// Chopped up to here.
    chopped: Tick,
    /// Bytes of the records after `cleaned`.
    held: u64,
    /// Bytes of those that count.
    live: u64,
    /// Bytes that may be cleaned.
    credit: u64,
    piece: Piece,
    /// A piece is being read.
    reading: bool,
    /// What is counted for [`MapInfo`].
    counted: MapInfo,
    /// The beginning of a record, kept for its memory.
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

    /// Gives a key a value, instead of the one that it has. Durable with its ticket. To do several
    /// things together, ask [`Log::require`] before.
    ///
    /// # Errors
    /// [`Refused::KeyTooLong`]; [`Refused::TooLong`] if key, value and [`RECORD_HEAD`] are longer
    /// than a record can be; else as [`Log::append`]. The map is as before then.
    pub fn put(&mut self, log: &mut Log, key: &[u8], value: &[u8]) -> Result<Ticket, Refused> {
        self.write(log, Record { key, value: Some(value) })
    }

    /// Takes the value of a key away. Durable with its ticket. If it has none, nothing is written,
    /// and the ticket is that of the last operation accepted.
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

    /// The stream that it is in.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// What it holds.
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
        // Nothing is earned in advance: what was written while there was no need is not made up
        // for.
        self.credit = if self.is_due() { (self.credit + CLEAN_RATE * dead).min(self.held) } else { 0 };
        Ok(ticket)
    }

    /// The record at this place is the newest one, and that of this key. Returns the bytes that
    /// count no more.
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

    /// Whether the stream holds so much that it should be cleaned.
    fn is_due(&self) -> bool {
        self.held > self.clean_min.max(CLEAN_ABOVE * self.live)
    }

    /// What is to be read for the cleaning, if anything: with [`Piece::read`], outside any lock.
    /// What became of it must be told to [`Map::take`].
    pub fn wanted(&mut self) -> Option<Wanted> {
        if self.reading || !self.piece.is_empty() || self.credit == 0 || !self.is_due() {
            return None;
        }
        self.reading = true;
        Some(Wanted { from: self.cleaned + 1, to: self.last, budget: CLEAN_PIECE })
    }

    /// Takes what was read. If it could not be, or nothing of it is durable yet, the next one is
    /// wanted only when more has ceased to count.
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

    /// Cleans as much as has been earned and read. To be called after the operations of a
    /// submission (it uses room in the batch), and after [`Map::take`]. What is refused is left for
    /// the next time.
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
        // Behind the copies: in the same commit, or in a later one.
        let unfinished = self.credit == 0 && !self.piece.is_empty();
        if self.cleaned > self.chopped && !unfinished && log.chop(self.stream, self.cleaned).is_ok() {
            self.chopped = self.cleaned;
        }
    }
}
