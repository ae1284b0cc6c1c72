//! Starting: the stream is taken, and the disk made equal to it.
//!
//! Records are applied in the order of their numbers. A record that begins a segment makes its file
//! anew, and names the newest record of all other segments; each other one names the record before
//! it of its segment. One that is named and was not read is asked for at all replicas. If none has
//! it, its segment must have ended later in the stream: then it was removed. If it has not, the
//! start is refused.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_journal::{Fault, Slot, Storage};

use crate::engine::{Engine, EngineError, RecordNumber, StreamRecord};
use crate::fault::EngineFaults;
use crate::record::{Commit, EngineRecord, Epoch, OtherSegment};
use crate::replicated::{Acknowledgement, OwnedFile, OwnedSegment, Owner, Replicated};

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
    /// Records that a former owner had appended after it had lost the stream.
    pub dropped: u64,
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another start of this broker was quicker.
    #[error("another start of this broker has taken its stream meanwhile")]
    Taken,
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
    /// the disk equal to it. `owner` is a number that tells this owner from others.
    ///
    /// # Errors
    /// See [`StartError`]. It may be tried again, whatever the error.
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
        let newest = engine.epoch()?;
        let (newest, before) = match &newest {
            None => (0, 0),
            Some(found) => (found.number, read_epoch(found)?.epoch),
        };
        let epoch = Epoch { epoch: before + 1, owner };
        let mut rebuild = Rebuild::new(&disk, &engine, faults)?;
        let taken = if fault!(rebuild, ServesBeforeEpoch) {
            rebuild.last()? + 1
        } else {
            engine.take(newest, &epoch.encode()).map_err(|error| match error {
                EngineError::Refused => StartError::Taken,
                error => StartError::Engine(error),
            })?
        };
        rebuild.run(taken)?;
        let report = StartReport { epoch: epoch.epoch, ..rebuild.report };
        let last = if fault!(rebuild, ServesBeforeEpoch) { taken - 1 } else { taken };
        let owner = Owner::new(epoch.epoch, last, rebuild.files);
        Ok((Replicated::new(disk, engine, acknowledgement, owner, faults), report))
    }
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

struct Rebuild<'a, S, E> {
    disk: &'a S,
    engine: &'a E,
    /// Files on the disk.
    on_disk: BTreeSet<Slot>,
    files: BTreeMap<Slot, OwnedFile>,
    parted: BTreeMap<Slot, Parted>,
    /// The numbers of the records by which the stream was taken, and their epochs.
    epochs: Vec<(RecordNumber, u64)>,
    report: StartReport,
    faults: EngineFaults,
}

impl<'a, S: Storage, E: Engine> Rebuild<'a, S, E> {
    fn new(disk: &'a S, engine: &'a E, faults: EngineFaults) -> Result<Rebuild<'a, S, E>, StartError> {
        Ok(Rebuild {
            disk,
            engine,
            on_disk: disk.slots()?.into_iter().map(|(slot, _)| slot).collect(),
            files: BTreeMap::new(),
            parted: BTreeMap::new(),
            epochs: Vec::new(),
            report: StartReport::default(),
            faults,
        })
    }

    /// Makes the disk equal to the records before the one by which the stream was taken.
    fn run(&mut self, taken: RecordNumber) -> Result<(), StartError> {
        let mut last = 0;
        while let Some(found) = self.engine.read(last + 1)?.filter(|found| found.number < taken) {
            last = found.number;
            self.apply(&found)?;
        }
        // The last record is never removed.
        if last + 1 < taken {
            let found = self.find(taken - 1)?.ok_or(StartError::Missing { number: taken - 1 })?;
            self.apply(&found)?;
        }
        if let Some(Parted { missing, .. }) = self.parted.values().next() {
            return Err(StartError::Missing { number: *missing });
        }
        let unknown: Vec<Slot> = self.on_disk.iter().copied().filter(|slot| !self.files.contains_key(slot)).collect();
        for slot in unknown {
            if fault!(self, TailKept) {
                let bytes = self.disk.slots()?.iter().find(|(known, _)| *known == slot).map_or(0, |(_, bytes)| *bytes);
                self.files.insert(slot, OwnedFile::new(bytes, None));
            } else {
                self.disk.remove(slot)?;
            }
        }
        for slot in self.files.keys() {
            self.disk.sync(*slot)?;
        }
        Ok(())
    }

    /// The last record of the stream, if a start takes no epoch.
    fn last(&self) -> Result<RecordNumber, StartError> {
        let mut last = 0;
        while let Some(found) = self.engine.read(last + 1)? {
            last = found.number;
        }
        Ok(last)
    }

    fn find(&mut self, number: RecordNumber) -> Result<Option<StreamRecord>, StartError> {
        let found = self.engine.find(number)?;
        self.report.found_elsewhere += u64::from(found.is_some());
        Ok(found)
    }

    fn apply(&mut self, found: &StreamRecord) -> Result<(), StartError> {
        let number = found.number;
        self.report.records += 1;
        self.report.bytes += found.bytes.len() as u64;
        match EngineRecord::decode(&found.bytes).map_err(|_| StartError::Unreadable { number })? {
            EngineRecord::Epoch(epoch) => {
                self.epochs.push((number, epoch.epoch));
                Ok(())
            }
            EngineRecord::Commit(commit) => self.commit(number, &commit),
        }
    }

    /// Whether another owner had taken the stream before this record.
    fn is_old(&self, number: RecordNumber, epoch: u64) -> bool {
        let taken = self.epochs.iter().filter(|(taken, _)| *taken < number).map(|(_, epoch)| *epoch).max();
        taken.is_some_and(|taken| epoch < taken) && !fault!(self, OldEpochCounts)
    }

    fn commit(&mut self, number: RecordNumber, commit: &Commit<'_>) -> Result<(), StartError> {
        if self.is_old(number, commit.id.epoch) {
            self.report.dropped += 1;
            return Ok(());
        }
        let Commit { slot, segment, before, .. } = *commit;
        if before == 0 {
            self.begin(commit)?;
        } else if !self.has_all(OtherSegment { slot, segment, newest: before })? {
            return Ok(());
        }
        for (offset, bytes) in &commit.parts {
            self.disk.write(slot, *offset, bytes)?;
        }
        let known = Some(OwnedSegment { number: segment, newest: number });
        self.files.insert(slot, OwnedFile::new(commit.file_bytes, known));
        Ok(())
    }

    /// Begins a segment: makes its file anew, checks what the commit says of the others, and
    /// removes what it does not name.
    fn begin(&mut self, commit: &Commit<'_>) -> Result<(), StartError> {
        let is_named = |slot: &Slot| commit.others.iter().any(|other| other.slot == *slot);
        self.parted.retain(|slot, _| is_named(slot));
        let useless: Vec<Slot> = self.files.keys().copied().filter(|slot| !is_named(slot)).collect();
        for slot in useless {
            self.files.remove(&slot);
            self.remove(slot)?;
        }
        for other in &commit.others {
            self.has_all(*other)?;
        }
        if self.on_disk.contains(&commit.slot) {
            if fault!(self, TailKept) {
                return Ok(());
            }
            self.remove(commit.slot)?;
        }
        self.disk.create(commit.slot, commit.file_bytes)?;
        self.on_disk.insert(commit.slot);
        Ok(())
    }

    fn remove(&mut self, slot: Slot) -> Result<(), StartError> {
        self.on_disk.remove(&slot);
        Ok(self.disk.remove(slot)?)
    }

    /// Whether all records of a segment are applied up to its newest one; those that were not read
    /// are, if a replica has them.
    fn has_all(&mut self, of: OtherSegment) -> Result<bool, StartError> {
        let OtherSegment { slot, segment, newest } = of;
        if self.parted.get(&slot).is_some_and(|parted| parted.segment == segment) {
            return Ok(false);
        }
        let known = self.files.get(&slot).and_then(OwnedFile::segment).filter(|known| known.number == segment);
        let known = known.map_or(0, |known| known.newest);
        if known > 0 && fault!(self, HoleBelieved) {
            return Ok(true);
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
            lacking.push(found);
        }
        for found in lacking.iter().rev() {
            self.apply(found)?;
        }
        Ok(true)
    }
}
