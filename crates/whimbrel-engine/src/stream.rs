//! The stream as its owner knows it: commits become records.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use whimbrel_journal::{Fault, SECTOR, Slot};

use crate::engine::{Engine, EngineError, RecordNumber, StreamRecord, Subject};
use crate::fault::EngineFaults;
use crate::mark::{MarkContents, MarkState, StreamSegment};
use crate::record::{COMMIT_BYTES, Commit, CommitId, Epoch, OTHER_BYTES, OtherSegment, PART_BYTES};
use crate::replicated::Acknowledgement;

/// Why nothing more is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamEnd {
    /// Another owner has appended to the stream.
    #[error("another broker has taken this broker's stream")]
    Taken,
    /// The stream has lost its end.
    #[error(
        "the stream ends before records that it had acknowledged: it was made anew, or restored to an older state. What \
         the directory has may be all there is: keep it"
    )]
    Shorter,
    /// The servers have no such stream any more.
    #[error(
        "the engine has lost this broker's stream: it was deleted. Restore it; or import the journal of the directory into a \
         new one (whimbrel engine import), if that has all"
    )]
    Gone,
    /// The engine was asked as often as it may be, or until [`crate::Replicated::stop`].
    #[error("the engine does not answer")]
    Unanswered,
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(EngineError),
    /// The disk failed.
    #[error("{0}")]
    Disk(Fault),
}

impl From<StreamEnd> for Fault {
    fn from(ended: StreamEnd) -> Fault {
        Fault::Failed(ended.to_string())
    }
}

impl From<Fault> for StreamEnd {
    fn from(fault: Fault) -> StreamEnd {
        StreamEnd::Disk(fault)
    }
}

/// How often the owner of a running journal asks: until there is an answer.
pub(crate) const UNTIL_ANSWERED: u64 = u64::MAX;

/// The engine, and what concerns all that is appended to it.
#[derive(Debug)]
pub(crate) struct EngineLink<E> {
    pub(crate) engine: E,
    has_stopped: AtomicBool,
    /// Records of these slots below these numbers are of no use.
    cuts: Mutex<BTreeMap<Slot, RecordNumber>>,
    /// Since when a record has been in flight.
    in_flight: Mutex<Option<Instant>>,
    /// Why the record in flight has not been appended yet.
    trouble: Mutex<Option<String>>,
    /// Called with the time of each append, repeats included.
    observer: OnceLock<AppendObserver>,
    pub(crate) faults: EngineFaults,
}

/// Is told how long an append took, from its first request to its acknowledgement.
pub(crate) struct AppendObserver(pub(crate) Box<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for AppendObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an observer")
    }
}

/// What the journal wrote to a file between two syncs.
#[derive(Debug, Default)]
pub(crate) struct WrittenCommit {
    pub(crate) slot: Slot,
    /// The number of the segment in the file.
    pub(crate) segment: u64,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// Offsets, and the bytes that were written there.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
    /// Files that were removed before it, since the commit before it.
    pub(crate) removed: Vec<Slot>,
    /// It counts with the next one only.
    pub(crate) has_more: bool,
}

/// What the owner of a stream knows of it. Locked while a record is in flight.
#[derive(Debug)]
pub(crate) struct OwnedStream {
    epoch: Epoch,
    /// The record of the epoch.
    taken: RecordNumber,
    /// The last record of the stream.
    last: RecordNumber,
    segments: BTreeMap<Slot, StreamSegment>,
    /// Records since the epoch was taken.
    commits: u64,
    /// Slots whose segment has ended since a segment was begun last.
    useless: Vec<Slot>,
    /// What becomes useless when the commit in flight counts.
    cuts: BTreeMap<Slot, RecordNumber>,
}

impl WrittenCommit {
    /// Bytes that were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

impl<E: Engine> EngineLink<E> {
    pub(crate) fn new(engine: E, faults: EngineFaults) -> EngineLink<E> {
        EngineLink {
            engine,
            has_stopped: AtomicBool::new(false),
            cuts: Mutex::default(),
            in_flight: Mutex::default(),
            trouble: Mutex::default(),
            observer: OnceLock::new(),
            faults,
        }
    }

    /// From now on the times of appends are told.
    pub(crate) fn observe(&self, observer: AppendObserver) {
        let is_first = self.observer.set(observer).is_ok();
        assert!(is_first, "a stream has one observer");
    }

    /// How long the record that is in flight has been so.
    pub(crate) fn in_flight(&self) -> Duration {
        self.in_flight_since().as_ref().map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Why the record in flight has not been appended yet, if that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.last_trouble().clone()
    }

    fn last_trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn cuts(&self) -> MutexGuard<'_, BTreeMap<Slot, RecordNumber>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes records that are of no use, at most [`crate::CUT_RECORDS_MAX`]; tells whether there
    /// are more.
    pub(crate) fn cut(&self) -> Result<bool, EngineError> {
        let next = self.cuts().first_key_value().map(|(slot, below)| (*slot, *below));
        let Some((slot, below)) = next else { return Ok(false) };
        let has_more = self.engine.cut(slot, below)?;
        let mut cuts = self.cuts();
        if !has_more && cuts.get(&slot) == Some(&below) {
            cuts.remove(&slot);
        }
        Ok(!cuts.is_empty())
    }

    /// The record behind this one. The one after it may be lacking at a replica, or removed.
    fn behind(&self, last: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        match self.engine.find(last + 1)? {
            Some(found) => Ok(Some(found)),
            None => self.engine.read(last + 1),
        }
    }

    /// Appends a record behind the record `last`, again until there is an answer, the engine fails
    /// otherwise, it was asked `tries` times, or [`EngineLink::stop`].
    fn append(
        &self,
        last: RecordNumber,
        sent: &SentRecord<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, StreamEnd> {
        let since = Instant::now();
        *self.in_flight_since() = Some(since);
        let outcome = self.append_until_answered(last, sent, meanwhile);
        (*self.in_flight_since(), *self.last_trouble()) = (None, None);
        if outcome.is_ok()
            && let Some(AppendObserver(observe)) = self.observer.get()
        {
            observe(since.elapsed());
        }
        outcome
    }

    fn append_until_answered(
        &self,
        mut last: RecordNumber,
        sent: &SentRecord<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, StreamEnd> {
        let SentRecord { slot, record, tries } = *sent;
        let mut meanwhile = Some(meanwhile);
        for _ in 0..tries {
            if self.has_stopped() {
                return Err(StreamEnd::Unanswered);
            }
            let appended = self.engine.append(Subject::Slot(slot), last, record, &mut || {
                if let Some(meanwhile) = meanwhile.take() {
                    meanwhile();
                }
            });
            match appended {
                Ok(number) => return Ok(number),
                Err(EngineError::Unanswered(_)) if fault!(self, CountAhead) => return Ok(last + 1),
                Err(EngineError::Unanswered(why)) => *self.last_trouble() = Some(why),
                Err(error @ EngineError::Failed(_)) => return Err(StreamEnd::Engine(error)),
                Err(EngineError::Refused) => match self.behind(last) {
                    Ok(Some(found)) if found.bytes == record => return Ok(found.number),
                    Ok(Some(found)) if fault!(self, RefusalIgnored) => last = found.number,
                    Ok(Some(_)) => return Err(StreamEnd::Taken),
                    Ok(None) if self.engine.last().is_ok_and(|end| end < last) => return Err(StreamEnd::Shorter),
                    // The replica lacks the record that another one has refused this one for.
                    Ok(None) | Err(EngineError::Refused | EngineError::Unanswered(_)) => {}
                    Err(error @ EngineError::Failed(_)) => return Err(StreamEnd::Engine(error)),
                },
            }
        }
        Err(StreamEnd::Unanswered)
    }
}

/// A record to be appended.
#[derive(Clone, Copy)]
struct SentRecord<'a> {
    slot: Slot,
    record: &'a [u8],
    tries: u64,
}

impl OwnedStream {
    /// What is known when an epoch has been taken by the record `taken`.
    pub(crate) fn new(epoch: Epoch, taken: RecordNumber, segments: BTreeMap<Slot, StreamSegment>) -> OwnedStream {
        OwnedStream { epoch, taken, last: taken, segments, commits: 0, useless: Vec::new(), cuts: BTreeMap::new() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.epoch
    }

    /// The epoch with its owner.
    pub(crate) fn owner(&self) -> Epoch {
        self.epoch
    }

    /// The record of the epoch.
    pub(crate) fn taken(&self) -> RecordNumber {
        self.taken
    }

    /// A next epoch has been taken, which confirms all commits before it; returns the records that
    /// are of no use since.
    pub(crate) fn confirmed(&mut self, epoch: Epoch, taken: RecordNumber) -> BTreeMap<Slot, RecordNumber> {
        (self.epoch, self.taken, self.last, self.commits) = (epoch, taken, taken, 0);
        std::mem::take(&mut self.cuts)
    }

    /// The last record of the stream.
    pub(crate) fn last(&self) -> RecordNumber {
        self.last
    }

    pub(crate) fn segments(&self) -> &BTreeMap<Slot, StreamSegment> {
        &self.segments
    }

    /// The segment in this file is not named any more, and ends when the next one begins.
    pub(crate) fn end_segment(&mut self, slot: Slot) {
        self.segments.remove(&slot);
        self.useless.push(slot);
    }

    /// What a mark says of files that have all of the stream.
    pub(crate) fn mark<E: Engine>(&self, link: &EngineLink<E>, acknowledgement: Acknowledgement) -> MarkContents {
        let mut useless = link.cuts().clone();
        useless.extend(self.useless.iter().map(|slot| (*slot, 0)));
        MarkContents {
            state: MarkState::Whole,
            acknowledgement,
            epoch: self.epoch,
            taken: self.taken,
            upto: self.last,
            segments: self.segments.clone(),
            useless,
        }
    }

    /// The segments that are not in this file.
    fn others(&self, slot: Slot) -> Vec<OtherSegment> {
        let others = self.segments.iter().filter(|(other, _)| **other != slot);
        let other = |(slot, segment): (&Slot, &StreamSegment)| OtherSegment {
            slot: *slot,
            segment: segment.number,
            newest: segment.newest,
        };
        others.map(other).collect()
    }

    /// Makes a commit a record, or several ones if it is too long, which count together.
    /// `meanwhile` is called once, after the first one has been sent.
    pub(crate) fn append<E: Engine>(
        &mut self,
        link: &EngineLink<E>,
        commit: &WrittenCommit,
        tries: u64,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), StreamEnd> {
        for slot in &commit.removed {
            if self.segments.contains_key(slot) {
                self.end_segment(*slot);
            }
        }
        let continues = self.segments.get(&commit.slot).is_some_and(|known| known.number == commit.segment);
        let others = if continues { Vec::new() } else { self.others(commit.slot) };
        let room = link.engine.record_bytes_max();
        let room = room.saturating_sub(COMMIT_BYTES + OTHER_BYTES * others.len());
        if room < PART_BYTES + SECTOR {
            let segments = self.segments.len();
            let text = format!("its records are too short for a table of {segments} segments");
            return Err(StreamEnd::Engine(EngineError::Failed(text)));
        }
        let mut meanwhile = Some(meanwhile);
        let mut others = Some(others);
        let pieces = pieces(&commit.parts, room);
        let last = pieces.len() - 1;
        for (number, parts) in pieces.into_iter().enumerate() {
            let mut once = || {
                if let Some(meanwhile) = meanwhile.take() {
                    meanwhile();
                }
            };
            let has_more = number < last || commit.has_more;
            let piece = PieceOfCommit { commit, has_more, others: others.take().unwrap_or_default(), parts, tries };
            self.append_piece(link, piece, &mut once)?;
        }
        Ok(())
    }

    fn append_piece<E: Engine>(
        &mut self,
        link: &EngineLink<E>,
        piece: PieceOfCommit<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), StreamEnd> {
        let PieceOfCommit { commit: WrittenCommit { slot, segment, file_bytes, .. }, .. } = piece;
        let (slot, segment, file_bytes) = (*slot, *segment, *file_bytes);
        let PieceOfCommit { has_more, others, parts, tries, .. } = piece;
        let known = self.segments.get(&slot).filter(|known| known.number == segment);
        let before = known.map_or(0, |known| known.newest);
        let id = CommitId { epoch: self.epoch.epoch, number: self.commits + 1 };
        let piece = Commit { id, has_more, slot, segment, file_bytes, before, others, parts };
        let record = piece.encode();
        if before == 0 && fault!(link, CutBeforeHeader) {
            let _ = link.engine.cut(slot, self.last + 1);
        }
        let number = link.append(self.last, &SentRecord { slot, record: &record, tries }, meanwhile)?;
        (self.last, self.commits) = (number, self.commits + 1);
        if before == 0 {
            let useless = std::mem::take(&mut self.useless).into_iter().chain([slot]);
            self.cuts.extend(useless.map(|slot| (slot, number)));
            let begun = StreamSegment { number: segment, file_bytes, newest: number, covered: Default::default() };
            self.segments.insert(slot, begun);
        }
        let known = self.segments.get_mut(&slot).expect("it was known, or has begun");
        known.newest = number;
        if !has_more {
            link.cuts().append(&mut self.cuts);
        }
        piece.covered().for_each(|range| known.covered.add(range));
        Ok(())
    }
}

/// What of a commit goes into one record.
struct PieceOfCommit<'a> {
    commit: &'a WrittenCommit,
    has_more: bool,
    others: Vec<OtherSegment>,
    parts: Vec<(u64, &'a [u8])>,
    tries: u64,
}

/// Distributes parts among records with this room for them, between sectors; in at least one.
fn pieces(parts: &[(u64, Vec<u8>)], room: usize) -> Vec<Vec<(u64, &[u8])>> {
    let (mut pieces, mut piece, mut left) = (Vec::new(), Vec::new(), room);
    for (offset, bytes) in parts {
        let (mut offset, mut rest) = (*offset, &**bytes);
        while !rest.is_empty() {
            let most = left.saturating_sub(PART_BYTES);
            let fits = if rest.len() <= most { rest.len() } else { most / SECTOR * SECTOR };
            let (fitting, behind) = rest.split_at(fits);
            if fits > 0 {
                piece.push((offset, fitting));
                left -= PART_BYTES + fits;
            }
            (offset, rest) = (offset + fits as u64, behind);
            if !rest.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                left = room;
            }
        }
    }
    pieces.push(piece);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_together_are_the_commit_and_each_fits() {
        let parts = vec![(0, vec![1; SECTOR]), (9, Vec::new()), (4096, (0..6_000).map(|at| at as u8).collect())];
        for room in PART_BYTES + SECTOR..7_000 {
            let pieces = pieces(&parts, room);
            let mut file = vec![0; 4096 + 6_000];
            for piece in &pieces {
                assert!(piece.iter().map(|(_, bytes)| PART_BYTES + bytes.len()).sum::<usize>() <= room, "{room}");
                for (offset, bytes) in piece {
                    assert!(offset % SECTOR as u64 == 0 && !bytes.is_empty());
                    file[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
                }
            }
            assert!(file.starts_with(&parts[0].1) && file.ends_with(&parts[2].1), "{room}");
        }
        assert_eq!(pieces(&[], 600), [Vec::new()]);
    }
}
