//! Starting: the stream is taken, and the disk made equal to it.
//!
//! First the stream is surveyed, and nothing written. A record that begins a segment names the
//! newest record of all other segments; each other one names the record before it of its segment.
//! One that is named and was not read is asked for at all replicas. If none has it, its segment
//! must have ended later in the stream: then it was removed. If it has not, the start is refused.
//! Then the records of the segments that are left are applied in the order of their numbers, each
//! file being made anew.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_journal::{Fault, HEAD, Slot, Storage, segment_number};

use crate::engine::{Engine, EngineError, RecordNumber, StreamRecord};
use crate::fault::EngineFaults;
use crate::record::{Commit, EngineRecord, Epoch, OtherSegment};
use crate::replicated::{Acknowledgement, OwnedFile, OwnedSegment, Owner, Replicated};

/// How often a start asks to take an epoch, while there is no answer, or a record of a greater one
/// is found.
const TAKES_MAX: usize = 4;

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartReport {
    /// The epoch that was taken.
    pub epoch: u64,
    /// Records that were read.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records that the replica lacked and another one had.
    pub found_elsewhere: u64,
    /// Records that a former owner had appended after it had lost the stream: none of them can have
    /// been acknowledged.
    pub dropped: u64,
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another start of this broker was quicker.
    #[error("another start of this broker has taken its stream meanwhile")]
    Taken,
    /// The stream has no commit, and the disk has a journal: it would be removed.
    #[error("the stream is empty, and the disk has a journal")]
    Empty,
    /// No replica has a record that must be there.
    #[error("record {number} of the stream is missing at all replicas")]
    Missing {
        /// Its number.
        number: RecordNumber,
    },
    /// A record is damaged, or of a later version.
    #[error("record {number} of the stream cannot be read: it is damaged, or of a later version")]
    Unreadable {
        /// Its number.
        number: RecordNumber,
    },
    /// A record continues a segment before its newest record: two owners have written it.
    #[error("record {number} of the stream does not continue its segment")]
    Forked {
        /// Its number.
        number: RecordNumber,
    },
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(EngineError),
    /// The disk failed.
    #[error("{0}")]
    Disk(#[from] Fault),
}

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> StartError {
        StartError::Engine(error)
    }
}

impl<S: Storage, E: Engine> Replicated<S, E> {
    /// Takes the stream, so that what its former owner appends from now on is refused, and makes
    /// the disk equal to it. `owner` is a number that tells this start from all others.
    ///
    /// # Errors
    /// See [`StartError`]. It may be tried again, whatever the error; nothing has been written to
    /// the disk unless the disk failed, or the engine while records were applied.
    pub fn start(
        disk: S,
        engine: E,
        owner: u64,
        acknowledgement: Acknowledgement,
    ) -> Result<(Replicated<S, E>, StartReport), StartError> {
        Self::start_with(disk, engine, owner, acknowledgement, EngineFaults::default())
    }

    /// As [`Replicated::start`], with a fault.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "mutants")]
    pub fn start_mutant(
        disk: S,
        engine: E,
        owner: u64,
        acknowledgement: Acknowledgement,
        mutant: crate::EngineMutant,
    ) -> Result<(Replicated<S, E>, StartReport), StartError> {
        Self::start_with(disk, engine, owner, acknowledgement, EngineFaults::of(mutant))
    }

    fn start_with(
        disk: S,
        engine: E,
        owner: u64,
        acknowledgement: Acknowledgement,
        faults: EngineFaults,
    ) -> Result<(Replicated<S, E>, StartReport), StartError> {
        let (epoch, survey) = take(&engine, owner, faults)?;
        if survey.segments.is_empty() && has_journal(&disk)? {
            return Err(StartError::Empty);
        }
        let files = survey.apply(&disk)?;
        let report = StartReport { epoch, ..survey.report };
        let last = if fault!(survey, ServesBeforeEpoch) { survey.taken - 1 } else { survey.taken };
        let (owner, cuts) = (Owner::new(epoch, last, files), survey.cuts);
        Ok((Replicated::new(disk, engine, acknowledgement, owner, cuts, faults), report))
    }
}

/// Whether a file has the header of a segment.
fn has_journal(disk: &impl Storage) -> Result<bool, StartError> {
    for (slot, bytes) in disk.slots()? {
        if bytes >= HEAD as u64 {
            let mut head = [0; HEAD];
            disk.read(slot, 0, &mut head)?;
            if segment_number(&head).is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Takes the next epoch, and surveys the records before.
fn take<E: Engine>(engine: &E, owner: u64, faults: EngineFaults) -> Result<(u64, Survey<'_, E>), StartError> {
    let found = engine.epoch()?;
    let mut newest = found.as_ref().map_or(0, |found| found.number);
    let mut epoch = found.as_ref().map(read_epoch).transpose()?.map_or(0, |before| before.epoch) + 1;
    for _ in 0..TAKES_MAX {
        let mut survey = Survey::new(engine, faults);
        survey.taken = if fault!(survey, ServesBeforeEpoch) {
            engine.last()? + 1
        } else {
            take_once(engine, newest, &Epoch { epoch, owner }.encode())?
        };
        survey.run()?;
        let greatest = survey.epochs.iter().map(|(_, epoch)| *epoch).max().unwrap_or(0);
        if greatest < epoch {
            return Ok((epoch, survey));
        }
        // The replica that told the newest epoch lacked a newer one.
        (newest, epoch) = (survey.taken, greatest + 1);
    }
    Err(StartError::Taken)
}

/// Appends a record of an epoch behind the newest one, again while there is no answer.
fn take_once(engine: &impl Engine, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, StartError> {
    for _ in 0..TAKES_MAX {
        let error = match engine.take(newest, record) {
            Ok(number) => return Ok(number),
            Err(error) => error,
        };
        // It may be there, although there was no answer, or one to a repeat of it.
        match engine.epoch()? {
            Some(found) if found.bytes == record => return Ok(found.number),
            Some(found) if found.number != newest => return Err(StartError::Taken),
            _ if matches!(error, EngineError::Failed(_)) => return Err(error.into()),
            _ => {}
        }
    }
    Err(StartError::Engine(EngineError::Unanswered("no epoch could be taken".into())))
}

fn read_epoch(found: &StreamRecord) -> Result<Epoch, StartError> {
    match EngineRecord::decode(&found.bytes) {
        Ok(EngineRecord::Epoch(epoch)) => Ok(epoch),
        _ => Err(StartError::Unreadable { number: found.number }),
    }
}

/// A segment of which a record is missing.
#[derive(Clone, Copy)]
struct Parted {
    segment: u64,
    missing: RecordNumber,
}

/// What the records of a stream say.
struct Survey<'a, E> {
    engine: &'a E,
    /// The record by which the stream was taken: those before it are surveyed.
    taken: RecordNumber,
    /// The segments of the journal, by slot.
    segments: BTreeMap<Slot, OwnedSegment>,
    parted: BTreeMap<Slot, Parted>,
    /// Records that the replica lacks which is read, and another one has.
    elsewhere: BTreeSet<RecordNumber>,
    /// Records of these slots below these numbers are of no use.
    cuts: BTreeMap<Slot, RecordNumber>,
    /// Records, and their epochs, wherever these grow.
    epochs: Vec<(RecordNumber, u64)>,
    /// The newest commit that counts, and records behind it that are none.
    newest: RecordNumber,
    others: BTreeSet<RecordNumber>,
    report: StartReport,
    faults: EngineFaults,
}

impl<'a, E: Engine> Survey<'a, E> {
    fn new(engine: &'a E, faults: EngineFaults) -> Survey<'a, E> {
        Survey {
            engine,
            taken: 0,
            segments: BTreeMap::new(),
            parted: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            cuts: BTreeMap::new(),
            epochs: Vec::new(),
            newest: 0,
            others: BTreeSet::new(),
            report: StartReport::default(),
            faults,
        }
    }

    /// Surveys the records before the one by which the stream was taken.
    fn run(&mut self) -> Result<(), StartError> {
        let mut last = 0;
        while let Some(found) = self.engine.read(last + 1)?.filter(|found| found.number < self.taken) {
            last = found.number;
            self.report.records += 1;
            self.report.bytes += found.bytes.len() as u64;
            self.survey(&found)?;
        }
        // Nothing behind the newest commit is ever removed.
        let mut at = self.taken - 1;
        while at > self.newest && !fault!(self, EndBelieved) {
            if !self.others.contains(&at) {
                let found = self.find(at)?.ok_or(StartError::Missing { number: at })?;
                self.survey(&found)?;
            }
            at -= 1;
        }
        match self.parted.values().next() {
            Some(Parted { missing, .. }) => Err(StartError::Missing { number: *missing }),
            None => Ok(()),
        }
    }

    fn find(&mut self, number: RecordNumber) -> Result<Option<StreamRecord>, StartError> {
        let found = self.engine.find(number)?;
        if found.is_some() && self.elsewhere.insert(number) {
            self.report.found_elsewhere += 1;
        }
        Ok(found)
    }

    fn survey(&mut self, found: &StreamRecord) -> Result<(), StartError> {
        let number = found.number;
        match EngineRecord::decode(&found.bytes).map_err(|_| StartError::Unreadable { number })? {
            EngineRecord::Epoch(epoch) => {
                self.note_epoch(number, epoch.epoch);
                self.others.insert(number);
                Ok(())
            }
            EngineRecord::Commit(commit) => self.commit(number, &commit),
        }
    }

    fn note_epoch(&mut self, number: RecordNumber, epoch: u64) {
        if self.epochs.iter().all(|(_, known)| *known < epoch) {
            self.epochs.push((number, epoch));
        }
    }

    /// Whether another owner had taken the stream before this record.
    fn is_old(&self, number: RecordNumber, epoch: u64) -> bool {
        let greater = self.epochs.iter().any(|(at, known)| *at < number && *known > epoch);
        greater && !fault!(self, OldEpochCounts)
    }

    fn commit(&mut self, number: RecordNumber, commit: &Commit<'_>) -> Result<(), StartError> {
        if self.is_old(number, commit.id.epoch) {
            self.report.dropped += 1;
            self.others.insert(number);
            return Ok(());
        }
        self.note_epoch(number, commit.id.epoch);
        if number > self.newest {
            self.newest = number;
            self.others.clear();
        }
        let Commit { slot, segment, before, .. } = *commit;
        if before == 0 {
            self.begin(number, commit)?;
        } else if !self.has_all(number, OtherSegment { slot, segment, newest: before })? {
            return Ok(());
        }
        self.segments.insert(slot, OwnedSegment { number: segment, newest: number });
        Ok(())
    }

    /// Begins a segment: checks what the commit says of the others, and ends those that it does not
    /// name.
    fn begin(&mut self, number: RecordNumber, commit: &Commit<'_>) -> Result<(), StartError> {
        let is_named = |slot: &Slot| commit.others.iter().any(|other| other.slot == *slot);
        let known: BTreeSet<Slot> = self.segments.keys().chain(self.parted.keys()).copied().collect();
        for slot in known.into_iter().filter(|slot| !is_named(slot)).chain([commit.slot]) {
            self.segments.remove(&slot);
            self.parted.remove(&slot);
            self.cuts.insert(slot, number);
        }
        for other in &commit.others {
            self.has_all(number, *other)?;
        }
        Ok(())
    }

    /// Whether all records of a segment are surveyed up to the newest one, as the record `by` names
    /// it; those that were not read are, if a replica has them.
    fn has_all(&mut self, by: RecordNumber, of: OtherSegment) -> Result<bool, StartError> {
        let OtherSegment { slot, segment, newest } = of;
        if self.parted.get(&slot).is_some_and(|parted| parted.segment == segment) {
            return Ok(false);
        }
        let known = self.segments.get(&slot).filter(|known| known.number == segment).map_or(0, |known| known.newest);
        if known > 0 && fault!(self, HoleBelieved) {
            return Ok(true);
        }
        if newest < known {
            return Err(StartError::Forked { number: by });
        }
        // Bounded by the records of a segment.
        let (mut at, mut lacking) = (newest, Vec::new());
        while at > known {
            let Some(found) = self.find(at)? else {
                self.parted.insert(slot, Parted { segment, missing: at });
                return Ok(false);
            };
            at = match EngineRecord::decode(&found.bytes) {
                Ok(EngineRecord::Commit(earlier)) if (earlier.slot, earlier.segment) == (slot, segment) => {
                    earlier.before
                }
                _ => return Err(StartError::Unreadable { number: at }),
            };
            lacking.push(found.number);
        }
        for number in lacking.into_iter().rev() {
            let found = self.find(number)?.ok_or(StartError::Missing { number })?;
            self.survey(&found)?;
        }
        Ok(true)
    }

    /// Makes the disk equal to what was surveyed: the files of all segments anew, and no others.
    fn apply(&self, disk: &impl Storage) -> Result<BTreeMap<Slot, OwnedFile>, StartError> {
        for (slot, _) in disk.slots()? {
            if !(fault!(self, TailKept) && self.segments.contains_key(&slot)) {
                disk.remove(slot)?;
            }
        }
        let mut files: BTreeMap<Slot, OwnedFile> = BTreeMap::new();
        let (mut last, mut elsewhere) = (0, self.elsewhere.iter().copied().peekable());
        loop {
            let read = self.engine.read(last + 1)?.filter(|found| found.number < self.taken);
            let before = read.as_ref().map_or(self.taken, |found| found.number);
            while let Some(number) = elsewhere.next_if(|number| *number < before) {
                let found = self.engine.find(number)?.ok_or(StartError::Missing { number })?;
                self.apply_record(disk, &found, &mut files)?;
            }
            let Some(found) = read else { break };
            elsewhere.next_if_eq(&found.number);
            last = found.number;
            self.apply_record(disk, &found, &mut files)?;
        }
        for (slot, segment) in &self.segments {
            if files.get(slot).and_then(OwnedFile::segment) != Some(*segment) {
                return Err(StartError::Missing { number: segment.newest });
            }
        }
        for slot in files.keys() {
            disk.sync(*slot)?;
        }
        Ok(files)
    }

    fn apply_record(
        &self,
        disk: &impl Storage,
        found: &StreamRecord,
        files: &mut BTreeMap<Slot, OwnedFile>,
    ) -> Result<(), StartError> {
        let number = found.number;
        let commit = match EngineRecord::decode(&found.bytes).map_err(|_| StartError::Unreadable { number })? {
            EngineRecord::Commit(commit) if !self.is_old(number, commit.id.epoch) => commit,
            _ => return Ok(()),
        };
        let Commit { slot, segment, before, file_bytes, .. } = commit;
        if self.segments.get(&slot).is_none_or(|known| known.number != segment) {
            return Ok(());
        }
        if before == 0 && !(fault!(self, TailKept) && disk.slots()?.iter().any(|(known, _)| *known == slot)) {
            disk.create(slot, file_bytes)?;
        }
        for (offset, bytes) in &commit.parts {
            disk.write(slot, *offset, bytes)?;
        }
        files.insert(slot, OwnedFile::new(file_bytes, Some(OwnedSegment { number: segment, newest: number })));
        Ok(())
    }
}
