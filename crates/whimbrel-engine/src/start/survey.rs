//! Taking the stream, and what its records say.
//!
//! A record that begins a segment names the newest record of all other segments; each other one
//! names the record before it of its segment. One that is named and was not read is asked for at
//! all replicas. If none has it, its segment must have ended later in the stream: then it was
//! removed. If it has not, the start is refused.
//!
//! Commits that do not count without a later record are void if that is not there: what was seen
//! before them is what the stream says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use whimbrel_journal::{Slot, Storage};

use super::directory::StartScene;
use super::{StartReport, StreamStartError};
use crate::engine::{Engine, EngineError, RecordNumber, StreamRecord};
use crate::mark::{MarkContents, StreamSegment};
use crate::ranges::Ranges;
use crate::record::{Commit, EngineRecord, Epoch, OtherSegment};

/// How often a start asks to take an epoch, while there is no answer, or a record of a greater one
/// is found.
const TAKES_MAX: usize = 4;

/// An epoch that has been taken, and the records before.
pub(crate) struct Taken<'a, S, E> {
    pub(crate) epoch: u64,
    pub(crate) survey: Survey<'a, S, E>,
}

/// Takes the next epoch, and surveys the records before: those behind the mark, or all of them.
pub(crate) fn take<'a, S: Storage, E: Engine>(
    found: &'a StartScene<'a, S, E>,
    owner: u64,
) -> Result<Taken<'a, S, E>, StreamStartError> {
    let engine = &found.link.engine;
    let before = engine.epoch()?;
    let mut newest = before.as_ref().map_or(0, |before| before.number);
    let mut epoch = before.as_ref().map(read_epoch).transpose()?.map_or(0, |before| before.epoch);
    epoch = next_epoch(epoch);
    for _ in 0..TAKES_MAX {
        let taken = if fault!(found.link, ServesBeforeEpoch) {
            engine.last()? + 1
        } else {
            take_once(engine, newest, &Epoch { epoch, owner }.encode())?
        };
        if let Some(mark) = &found.mark {
            check_stream(engine, mark, taken)?;
        }
        let survey = survey_once(found, taken)?;
        let greatest = survey.epochs.iter().map(|(_, epoch)| *epoch).max().unwrap_or(0);
        if greatest < epoch {
            return Ok(Taken { epoch, survey });
        }
        // The replica that told the newest epoch lacked a newer one.
        (newest, epoch) = (taken, next_epoch(greatest));
    }
    Err(StreamStartError::Taken)
}

/// The next even number.
fn next_epoch(greatest: u64) -> u64 {
    (greatest / 2 + 1) * 2
}

/// Appends a record of an epoch behind the newest one, again while there is no answer.
pub(crate) fn take_once(
    engine: &impl Engine,
    newest: RecordNumber,
    record: &[u8],
) -> Result<RecordNumber, StreamStartError> {
    for _ in 0..TAKES_MAX {
        let error = match engine.take(newest, record) {
            Ok(number) => return Ok(number),
            Err(error) => error,
        };
        // It may be there, although there was no answer, or one to a repeat of it.
        match engine.epoch()? {
            Some(found) if found.bytes == record => return Ok(found.number),
            Some(found) if found.number != newest => return Err(StreamStartError::Taken),
            _ if matches!(error, EngineError::Failed(_)) => return Err(error.into()),
            _ => {}
        }
    }
    Err(StreamStartError::Engine(EngineError::Unanswered("no epoch could be taken".into())))
}

fn read_epoch(found: &StreamRecord) -> Result<Epoch, StreamStartError> {
    found.epoch().ok_or(StreamStartError::Unreadable { number: found.number })
}

/// Checks that the stream has the record of the mark's epoch, and all that the mark tells of.
fn check_stream(engine: &impl Engine, mark: &MarkContents, taken: RecordNumber) -> Result<(), StreamStartError> {
    let is_there = engine.find(mark.taken)?.is_some_and(|found| found.bytes == mark.epoch.encode());
    if is_there && mark.upto < taken {
        Ok(())
    } else {
        Err(StreamStartError::Remade { marked: mark.upto.max(mark.taken), last: taken - 1 })
    }
}

fn survey_once<'a, S: Storage, E: Engine>(
    found: &'a StartScene<'a, S, E>,
    taken: RecordNumber,
) -> Result<Survey<'a, S, E>, StreamStartError> {
    if let Some(mark) = found.known() {
        let mut survey = Survey::new(found, Some(mark), taken);
        match survey.run() {
            Ok(()) => return Ok(survey),
            // The mark may be that of another state of the stream.
            Err(StreamStartError::Forked { .. } | StreamStartError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Survey::whole(found, taken)
}

/// A segment of which a record is missing.
#[derive(Clone, Copy)]
struct Parted {
    segment: u64,
    missing: RecordNumber,
}

/// What the records of a stream say.
pub(crate) struct Survey<'a, S, E> {
    pub(crate) found: &'a StartScene<'a, S, E>,
    /// The mark from which it begins; `None`: with the first record.
    pub(crate) mark: Option<&'a MarkContents>,
    /// The record by which the stream was taken: those before it are surveyed.
    pub(crate) taken: RecordNumber,
    /// Records that the replica lacks which is read, and another one has.
    elsewhere: BTreeSet<RecordNumber>,
    /// Records, and their epochs, wherever these grow.
    epochs: Vec<(RecordNumber, u64)>,
    pub(crate) seen: SurveyedStream,
    /// Commits whose last one has not been seen yet.
    unfinished: Option<Unfinished>,
    /// Commits that do not count, since their last one never was.
    void: Vec<RangeInclusive<RecordNumber>>,
    pub(crate) report: StartReport,
}

/// What the commits say.
#[derive(Clone, Default)]
pub(crate) struct SurveyedStream {
    /// The segments of the journal, by slot.
    pub(crate) segments: BTreeMap<Slot, StreamSegment>,
    parted: BTreeMap<Slot, Parted>,
    /// Records of these slots below these numbers are of no use; see [`MarkContents`].
    pub(crate) useless: BTreeMap<Slot, RecordNumber>,
    /// The newest commit that counts, its epoch, and records behind it that are none.
    newest: RecordNumber,
    newest_epoch: u64,
    others: BTreeSet<RecordNumber>,
    /// The bytes of the files that the stream has, too, if these may have more than it.
    pub(crate) held: BTreeMap<Slot, Ranges>,
    /// A commit is not in its file.
    pub(crate) differs: bool,
    /// The file of a commit is gone, or has a later segment.
    pub(crate) is_passed: bool,
}

/// Commits of one epoch that count with a later record, and what was seen before them.
struct Unfinished {
    numbers: RangeInclusive<RecordNumber>,
    epoch: u64,
    before: SurveyedStream,
}

impl<'a, S: Storage, E: Engine> Survey<'a, S, E> {
    fn new(found: &'a StartScene<'a, S, E>, mark: Option<&'a MarkContents>, taken: RecordNumber) -> Survey<'a, S, E> {
        let epoch = mark.map(|mark| (mark.taken, mark.epoch.epoch));
        let seen = mark.map(|mark| SurveyedStream {
            segments: mark.segments.clone(),
            useless: mark.useless.clone(),
            newest: mark.upto,
            newest_epoch: mark.epoch.epoch,
            held: found.held_by_mark(),
            ..SurveyedStream::default()
        });
        Survey {
            found,
            mark,
            taken,
            elsewhere: BTreeSet::new(),
            epochs: epoch.into_iter().collect(),
            seen: seen.unwrap_or_default(),
            unfinished: None,
            void: Vec::new(),
            report: StartReport::default(),
        }
    }

    /// Surveys all records before the one by which the stream was taken.
    pub(crate) fn whole(
        found: &'a StartScene<'a, S, E>,
        taken: RecordNumber,
    ) -> Result<Survey<'a, S, E>, StreamStartError> {
        let mut survey = Survey::new(found, None, taken);
        survey.run()?;
        Ok(survey)
    }

    /// Whether all commits behind the mark are of its epoch.
    pub(crate) fn is_of(&self, mark: &MarkContents) -> bool {
        self.seen.newest <= mark.upto || self.seen.newest_epoch == mark.epoch.epoch
    }

    /// Whether a segment has begun behind the mark.
    pub(crate) fn has_begun(&self, slot: Slot, number: u64) -> bool {
        let known = self.mark.and_then(|mark| mark.segments.get(&slot));
        known.is_none_or(|known| known.number != number)
    }

    fn run(&mut self) -> Result<(), StreamStartError> {
        let engine = &self.found.link.engine;
        let mut last = self.seen.newest;
        while let Some(found) = engine.read(last + 1)?.filter(|found| found.number < self.taken) {
            last = found.number;
            self.report.records += 1;
            self.report.bytes += found.bytes.len() as u64;
            self.survey(&found)?;
        }
        self.check_end()?;
        // Bounded by the records behind the newest commit that counts.
        while self.unfinished.is_some() {
            self.give_up_unfinished();
            self.check_end()?;
        }
        match self.seen.parted.values().next() {
            Some(Parted { missing, .. }) => Err(StreamStartError::Missing { number: *missing }),
            None => Ok(()),
        }
    }

    /// Surveys what was not read behind the newest commit: nothing there is ever removed.
    fn check_end(&mut self) -> Result<(), StreamStartError> {
        let mut at = self.taken - 1;
        while at > self.seen.newest && !fault!(self.found.link, EndBelieved) {
            if !self.seen.others.contains(&at) {
                let found = self.find(at)?.ok_or(StreamStartError::Missing { number: at })?;
                self.survey(&found)?;
            }
            at -= 1;
        }
        Ok(())
    }

    fn find(&mut self, number: RecordNumber) -> Result<Option<StreamRecord>, StreamStartError> {
        let found = self.found.link.engine.find(number)?;
        if found.is_some() && self.elsewhere.insert(number) {
            self.report.found_elsewhere += 1;
        }
        Ok(found)
    }

    fn survey(&mut self, found: &StreamRecord) -> Result<(), StreamStartError> {
        let number = found.number;
        match EngineRecord::decode(&found.bytes).map_err(|_| StreamStartError::Unreadable { number })? {
            EngineRecord::Epoch(epoch) => {
                self.note_epoch(number, epoch.epoch);
                self.note_confirmed(epoch.epoch);
                self.seen.others.insert(number);
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
        greater && !fault!(self.found.link, OldEpochCounts)
    }

    fn commit(&mut self, number: RecordNumber, commit: &Commit<'_>) -> Result<(), StreamStartError> {
        if self.is_old(number, commit.id.epoch) {
            self.report.dropped += 1;
            self.seen.others.insert(number);
            return Ok(());
        }
        self.note_epoch(number, commit.id.epoch);
        self.note_whether_finished(number, commit);
        if number > self.seen.newest {
            (self.seen.newest, self.seen.newest_epoch) = (number, commit.id.epoch);
            self.seen.others.clear();
        }
        let Commit { slot, segment, before, file_bytes, .. } = *commit;
        if before == 0 {
            self.begin(number, commit)?;
        } else if !self.has_all(number, OtherSegment { slot, segment, newest: before })? {
            return Ok(());
        }
        let begun = || StreamSegment { number: segment, file_bytes, newest: 0, covered: Ranges::default() };
        let known = self.seen.segments.entry(slot).or_insert_with(begun);
        known.newest = number;
        self.seen.useless.retain(|of, below| *below > 0 || *of != slot);
        commit.covered().for_each(|range| known.covered.add(range));
        if self.found.is_local() {
            self.compare(commit)?;
        }
        Ok(())
    }

    /// Notes whether this commit counts only with a later one, and whether those before it do.
    fn note_whether_finished(&mut self, number: RecordNumber, commit: &Commit<'_>) {
        if fault!(self.found.link, UnfinishedCounts) {
            return;
        }
        if number < self.seen.newest {
            // A later one that counts has led to it.
            self.void.retain(|numbers| !numbers.contains(&number));
            return;
        }
        let epoch = commit.id.epoch;
        self.note_confirmed(epoch);
        if self.unfinished.as_ref().is_some_and(|unfinished| unfinished.epoch != epoch) {
            self.give_up_unfinished();
        }
        self.unfinished = commit.has_more.then(|| match self.unfinished.take() {
            Some(Unfinished { numbers, before, .. }) => {
                Unfinished { numbers: *numbers.start()..=number, epoch, before }
            }
            None => Unfinished { numbers: number..=number, epoch, before: self.seen.clone() },
        });
    }

    /// Something of this epoch is there: what its start had appended before counts.
    fn note_confirmed(&mut self, epoch: u64) {
        if epoch % 2 == 1 && self.unfinished.as_ref().is_some_and(|unfinished| unfinished.epoch == epoch - 1) {
            self.unfinished = None;
        }
    }

    /// Goes back to what was seen before commits whose last one is not there.
    fn give_up_unfinished(&mut self) {
        if let Some(Unfinished { numbers, before, .. }) = self.unfinished.take() {
            let after = std::mem::replace(&mut self.seen, before);
            self.seen.others.extend(after.others.into_iter().chain(numbers.clone()));
            self.void.push(numbers);
        }
    }

    /// Compares a commit with its file.
    fn compare(&mut self, commit: &Commit<'_>) -> Result<(), StreamStartError> {
        let Commit { slot, segment, file_bytes, .. } = *commit;
        match self.found.files.get(&slot) {
            Some(file) if file.number == Some(segment) && file.bytes == file_bytes => {
                if self.found.has(commit)? {
                    let held = self.seen.held.entry(slot).or_default();
                    commit.covered().for_each(|range| held.add(range));
                } else {
                    self.seen.differs = true;
                }
            }
            Some(file) if file.number < Some(segment) => self.seen.differs = true,
            _ => self.seen.is_passed = true,
        }
        Ok(())
    }

    /// Begins a segment: checks what the commit says of the others, and ends those that it does not
    /// name.
    fn begin(&mut self, number: RecordNumber, commit: &Commit<'_>) -> Result<(), StreamStartError> {
        let is_named = |slot: &Slot| commit.others.iter().any(|other| other.slot == *slot);
        let known: BTreeSet<Slot> = self.seen.segments.keys().chain(self.seen.parted.keys()).copied().collect();
        for slot in known.into_iter().filter(|slot| !is_named(slot)).chain([commit.slot]) {
            self.seen.segments.remove(&slot);
            self.seen.parted.remove(&slot);
            self.seen.useless.insert(slot, number);
        }
        // One that is named is in use again: another broker has made the file that was removed
        // here.
        self.seen.useless.retain(|slot, below| *below > 0 || !is_named(slot));
        self.seen.useless.values_mut().filter(|below| **below == 0).for_each(|below| *below = number);
        for other in &commit.others {
            self.has_all(number, *other)?;
        }
        Ok(())
    }

    /// Whether all records of a segment are surveyed up to the newest one, as the record `by` names
    /// it; those that were not read are, if a replica has them.
    fn has_all(&mut self, by: RecordNumber, of: OtherSegment) -> Result<bool, StreamStartError> {
        let OtherSegment { slot, segment, newest } = of;
        if self.seen.parted.get(&slot).is_some_and(|parted| parted.segment == segment) {
            return Ok(false);
        }
        let known =
            self.seen.segments.get(&slot).filter(|known| known.number == segment).map_or(0, |known| known.newest);
        if known > 0 && fault!(self.found.link, HoleBelieved) {
            return Ok(true);
        }
        if newest < known {
            return Err(StreamStartError::Forked { number: by });
        }
        // Bounded by the records of a segment.
        let (mut at, mut lacking) = (newest, Vec::new());
        while at > known {
            let Some(found) = self.find(at)? else {
                self.seen.parted.insert(slot, Parted { segment, missing: at });
                return Ok(false);
            };
            at = match EngineRecord::decode(&found.bytes) {
                Ok(EngineRecord::Commit(earlier)) if (earlier.slot, earlier.segment) == (slot, segment) => {
                    earlier.before
                }
                _ => return Err(StreamStartError::Unreadable { number: at }),
            };
            lacking.push(found.number);
        }
        for number in lacking.into_iter().rev() {
            let found = self.find(number)?.ok_or(StreamStartError::Missing { number })?;
            self.survey(&found)?;
        }
        Ok(true)
    }

    /// Calls `on` with all commits behind the mark that are of use, in the order of their numbers.
    pub(crate) fn each(
        &self,
        mut on: impl FnMut(&Commit<'_>) -> Result<(), StreamStartError>,
    ) -> Result<(), StreamStartError> {
        let engine = &self.found.link.engine;
        let (mut newest, mut last) = (BTreeMap::new(), self.mark.map_or(0, |mark| mark.upto));
        let mut on = |found: &StreamRecord| {
            let number = found.number;
            let commit =
                match EngineRecord::decode(&found.bytes).map_err(|_| StreamStartError::Unreadable { number })? {
                    EngineRecord::Commit(commit) if !self.is_old(number, commit.id.epoch) => commit,
                    _ => return Ok(()),
                };
            if commit.has_more && self.void.iter().any(|numbers| numbers.contains(&number)) {
                return Ok(());
            }
            if self.seen.segments.get(&commit.slot).is_none_or(|known| known.number != commit.segment) {
                return Ok(());
            }
            newest.insert(commit.slot, number);
            on(&commit)
        };
        let mut elsewhere = self.elsewhere.iter().copied().peekable();
        loop {
            let read = engine.read(last + 1)?.filter(|found| found.number < self.taken);
            let before = read.as_ref().map_or(self.taken, |found| found.number);
            while let Some(number) = elsewhere.next_if(|number| *number < before) {
                on(&engine.find(number)?.ok_or(StreamStartError::Missing { number })?)?;
            }
            let Some(found) = read else { break };
            elsewhere.next_if_eq(&found.number);
            last = found.number;
            on(&found)?;
        }
        let begin = self.mark.map_or(0, |mark| mark.upto);
        for (slot, segment) in self.seen.segments.iter().filter(|(_, segment)| segment.newest > begin) {
            if newest.get(slot) != Some(&segment.newest) {
                return Err(StreamStartError::Missing { number: segment.newest });
            }
        }
        Ok(())
    }
}
