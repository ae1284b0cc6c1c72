//! A disk whose commits are records of a replicated stream, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_journal::{Fault, Slot, Storage, segment_number};

use crate::engine::{Engine, EngineError, RecordNumber, StreamRecord, Subject};
use crate::fault::EngineFaults;
use crate::record::{Commit, CommitId, OtherSegment};

/// Who has to have a commit before it counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The engine. The disk is written to, and never synced: after a loss of power it is worthless.
    Engine,
    /// The engine and the disk, which write at the same time.
    Both,
}

/// A disk and a stream that has all of its commits; see the crate's description. It is opened by
/// [`Replicated::start`].
#[derive(Debug)]
pub struct Replicated<S, E> {
    disk: S,
    engine: E,
    acknowledgement: Acknowledgement,
    owner: Mutex<Owner>,
    /// Records of these slots below these numbers are of no use.
    cuts: Mutex<BTreeMap<Slot, RecordNumber>>,
    has_stopped: AtomicBool,
    faults: EngineFaults,
}

/// What the owner of a stream knows of it. Locked while a record is in flight.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    epoch: u64,
    /// The last record of the stream.
    last: RecordNumber,
    files: BTreeMap<Slot, OwnedFile>,
    /// Commits since the epoch was taken.
    commits: u64,
    /// Files with a segment that have been removed since a segment was begun last.
    removed: Vec<Slot>,
    /// The error that has ended all writing.
    fault: Option<Fault>,
}

/// A segment file.
#[derive(Debug)]
pub(crate) struct OwnedFile {
    bytes: u64,
    segment: Option<OwnedSegment>,
    /// Offsets and bytes that were written since the last sync: a step of the journal.
    written: Vec<(u64, Vec<u8>)>,
}

/// The segment in a file, as far as the stream has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnedSegment {
    pub(crate) number: u64,
    /// Its newest record.
    pub(crate) newest: RecordNumber,
}

impl Owner {
    /// What is known when an epoch has been taken by the record `last`.
    pub(crate) fn new(epoch: u64, last: RecordNumber, files: BTreeMap<Slot, OwnedFile>) -> Owner {
        Owner { epoch, last, files, ..Owner::default() }
    }

    /// The segments that are not in this file.
    fn others(&self, slot: Slot) -> Vec<OtherSegment> {
        let others = self.files.iter().filter(|(other, _)| **other != slot);
        let others = others.filter_map(|(other, file)| Some((*other, file.segment?)));
        let other = |(slot, segment): (Slot, OwnedSegment)| OtherSegment {
            slot,
            segment: segment.number,
            newest: segment.newest,
        };
        others.map(other).collect()
    }
}

impl OwnedFile {
    /// A file of this many bytes; without a segment until the first commit to it.
    pub(crate) fn new(bytes: u64, segment: Option<OwnedSegment>) -> OwnedFile {
        OwnedFile { bytes, segment, written: Vec::new() }
    }

    /// The segment in it.
    pub(crate) fn segment(&self) -> Option<OwnedSegment> {
        self.segment
    }

    /// The segment and the record that the next commit continues. A header with another number
    /// begins a segment.
    fn continued(&self) -> OwnedSegment {
        let begun = self.written.iter().filter(|(offset, _)| *offset == 0).find_map(|(_, bytes)| segment_number(bytes));
        match (begun, self.segment) {
            (Some(number), known) if known.is_none_or(|known| known.number != number) => {
                OwnedSegment { number, newest: 0 }
            }
            (_, Some(known)) => known,
            (_, None) => panic!("a segment begins with its header"),
        }
    }
}

impl<S: Storage, E: Engine> Replicated<S, E> {
    pub(crate) fn new(
        disk: S,
        engine: E,
        acknowledgement: Acknowledgement,
        owner: Owner,
        cuts: BTreeMap<Slot, RecordNumber>,
        faults: EngineFaults,
    ) -> Replicated<S, E> {
        let (owner, cuts, has_stopped) = (Mutex::new(owner), Mutex::new(cuts), AtomicBool::new(false));
        Replicated { disk, engine, acknowledgement, owner, cuts, has_stopped, faults }
    }

    /// Ends all writing at the next time that the engine does not answer: otherwise a commit waits
    /// for it without an end.
    pub fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// Removes some records that are of no use; tells whether there are more. Commits may go on
    /// meanwhile.
    ///
    /// # Errors
    /// When the engine does not do it; it may be tried again.
    pub fn cut(&self) -> Result<bool, EngineError> {
        let next = self.cuts().first_key_value().map(|(slot, below)| (*slot, *below));
        let Some((slot, below)) = next else { return Ok(false) };
        let has_more = self.engine.cut(slot, below)?;
        let mut cuts = self.cuts();
        if !has_more && cuts.get(&slot) == Some(&below) {
            cuts.remove(&slot);
        }
        Ok(!cuts.is_empty())
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeMap<Slot, RecordNumber>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what was written to a file a record, and the disk durable as far as it has to be.
    fn commit(&self, owner: &mut Owner, slot: Slot) -> Result<(), Fault> {
        let file = owner.files.get_mut(&slot).expect("only files that were made are written to");
        let (segment, file_bytes, written) = (file.continued(), file.bytes, std::mem::take(&mut file.written));
        let others = if segment.newest == 0 { owner.others(slot) } else { Vec::new() };
        let record = Commit {
            id: CommitId { epoch: owner.epoch, number: owner.commits + 1 },
            slot,
            segment: segment.number,
            file_bytes,
            before: segment.newest,
            others,
            parts: written.iter().map(|(offset, bytes)| (*offset, &**bytes)).collect(),
        };
        let record = record.encode();
        if segment.newest == 0 && fault!(self, CutBeforeHeader) {
            let _ = self.engine.cut(slot, owner.last + 1);
        }
        let mut synced = Ok(());
        let mut sync = || {
            if self.acknowledgement == Acknowledgement::Both {
                synced = self.disk.sync(slot);
            }
        };
        let number = self.append(owner.last, Subject::Slot(slot), &record, &mut sync)?;
        synced?;
        (owner.last, owner.commits) = (number, owner.commits + 1);
        if segment.newest == 0 {
            let useless = std::mem::take(&mut owner.removed).into_iter().chain([slot]);
            self.cuts().extend(useless.map(|slot| (slot, number)));
        }
        let file = owner.files.get_mut(&slot).expect("it was just written to");
        file.segment = Some(OwnedSegment { newest: number, ..segment });
        Ok(())
    }

    /// The record behind this one. The one after it may be lacking at a replica, or removed.
    fn behind(&self, last: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        match self.engine.find(last + 1)? {
            Some(found) => Ok(Some(found)),
            None => self.engine.read(last + 1),
        }
    }

    /// Appends a record behind the record `last`, again until there is an answer, the engine fails
    /// otherwise, or [`Replicated::stop`].
    fn append(
        &self,
        mut last: RecordNumber,
        subject: Subject,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, Fault> {
        let mut meanwhile = Some(meanwhile);
        while !self.has_stopped.load(Ordering::Relaxed) {
            let appended = self.engine.append(subject, last, record, &mut || {
                if let Some(meanwhile) = meanwhile.take() {
                    meanwhile();
                }
            });
            match appended {
                Ok(number) => return Ok(number),
                Err(EngineError::Unanswered(_)) if fault!(self, CountAhead) => return Ok(last + 1),
                Err(EngineError::Unanswered(_)) => {}
                Err(EngineError::Failed(text)) => return Err(Fault::Failed(text)),
                Err(EngineError::Refused) => match self.behind(last) {
                    Ok(Some(found)) if found.bytes == record => return Ok(found.number),
                    Ok(Some(found)) if fault!(self, RefusalIgnored) => last = found.number,
                    Ok(Some(_)) => return Err(Fault::Failed(TAKEN.into())),
                    Ok(None) if self.engine.last().is_ok_and(|end| end < last) => {
                        return Err(Fault::Failed(SHORTER.into()));
                    }
                    // The replica lacks the record that another one has refused this one for.
                    Ok(None) | Err(EngineError::Refused | EngineError::Unanswered(_)) => {}
                    Err(EngineError::Failed(text)) => return Err(Fault::Failed(text)),
                },
            }
        }
        Err(Fault::Failed(STOPPED.into()))
    }
}

/// The error of a commit behind which another owner has taken the stream.
const TAKEN: &str = "another broker has taken this broker's stream";

/// The error of a commit to a stream that ends before what it had acknowledged.
const SHORTER: &str = "the stream ends before records that it had acknowledged: it was made anew, or restored";

/// The error of a commit that is not waited for any more.
const STOPPED: &str = "the broker has stopped, and its engine does not answer";

impl<S: Storage, E: Engine> Storage for Replicated<S, E> {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        self.disk.slots()
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        self.disk.create(slot, bytes)?;
        let mut owner = self.owner();
        owner.files.insert(slot, OwnedFile::new(bytes, None));
        Ok(())
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        self.disk.remove(slot)?;
        let mut owner = self.owner();
        if owner.files.remove(&slot).is_some_and(|file| file.segment.is_some()) {
            owner.removed.push(slot);
        }
        Ok(())
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.disk.write(slot, offset, bytes)?;
        let mut owner = self.owner();
        let file = owner.files.get_mut(&slot).expect("only files that were made are written to");
        file.written.push((offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        let mut owner = self.owner();
        if let Some(fault) = &owner.fault {
            return Err(fault.clone());
        }
        if owner.files.get(&slot).is_none_or(|file| file.written.is_empty()) {
            return self.disk.sync(slot);
        }
        let outcome = self.commit(&mut owner, slot);
        owner.fault = outcome.clone().err();
        outcome
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        self.sync(slot)?;
        self.disk.settle(slot)
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.disk.read(slot, offset, bytes)
    }

    fn name(&self, slot: Slot) -> String {
        self.disk.name(slot)
    }
}
