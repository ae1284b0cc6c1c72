//! Making the disk equal to what was surveyed.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_journal::{Slot, Storage};

use super::StreamStartError;
use super::survey::Survey;
use crate::engine::Engine;
use crate::mark::MarkContents;
use crate::ranges::Ranges;
use crate::record::Commit;

/// Bytes per read and write.
const PIECE_BYTES: u64 = 1 << 20;

impl<S: Storage, E: Engine> Survey<'_, S, E> {
    /// Makes all files anew from the stream, and no others.
    pub(crate) fn make_anew(&self) -> Result<(), StreamStartError> {
        let (disk, link) = (self.found.disk, self.found.link);
        let mut there: BTreeSet<Slot> = self.found.files.keys().copied().collect();
        for slot in there.clone() {
            if !(fault!(link, TailKept) && self.seen.segments.contains_key(&slot)) {
                disk.remove(slot)?;
                there.remove(&slot);
            }
        }
        self.write_commits(there)
    }

    /// Gives the files what the stream has behind the mark, and removes all else. It may be done
    /// again if it ended half way.
    pub(crate) fn equalize(&self, mark: &MarkContents) -> Result<(), StreamStartError> {
        let (disk, link) = (self.found.disk, self.found.link);
        let mut there: BTreeSet<Slot> = self.found.files.keys().copied().collect();
        for slot in there.clone() {
            match self.seen.segments.get(&slot) {
                Some(segment) if !self.has_begun(slot, segment.number) => {
                    // The journal reads no more of a segment that was sealed when it was marked.
                    let sealed = mark.segments.get(&slot).is_some_and(|marked| marked.is_sealed());
                    if !sealed && !fault!(link, TailAdopted) {
                        self.clear(slot, &segment.covered, segment.file_bytes)?;
                    }
                }
                _ => {
                    disk.remove(slot)?;
                    there.remove(&slot);
                }
            }
        }
        self.write_commits(there)
    }

    /// Writes what was surveyed to files that are there, and to new ones; all are synced then.
    fn write_commits(&self, mut there: BTreeSet<Slot>) -> Result<(), StreamStartError> {
        self.each(|commit| {
            if there.insert(commit.slot) {
                self.found.disk.create(commit.slot, commit.file_bytes)?;
            }
            self.write(commit)
        })?;
        self.sync_all(&there)
    }

    /// Gives the files what the stream has behind the mark, and they have lost. What is later on
    /// the disk than in the stream stays; what is of no use to the journal is removed.
    pub(crate) fn follow(&self) -> Result<(), StreamStartError> {
        let disk = self.found.disk;
        let mut numbers: BTreeMap<Slot, Option<u64>> = BTreeMap::new();
        numbers.extend(self.found.files.iter().map(|(slot, file)| (*slot, file.number)));
        self.each(|commit| {
            let Some(number) = numbers.get_mut(&commit.slot) else { return Ok(()) };
            if commit.before == 0 && *number < Some(commit.segment) {
                *number = Some(commit.segment);
            }
            if *number == Some(commit.segment) { self.write(commit) } else { Ok(()) }
        })?;
        let top = self.seen.segments.values().map(|segment| segment.number).max();
        let mut there: BTreeSet<Slot> = numbers.keys().copied().collect();
        for (slot, number) in numbers {
            let is_known = self.seen.segments.get(&slot).is_some_and(|segment| Some(segment.number) == number);
            let is_blank = self.found.files.get(&slot).is_some_and(|file| file.is_blank);
            let is_useless = if number.is_none() { !is_blank } else { number <= top };
            // The beginning of a segment that was torn, or a file whose removal was not durable.
            if !is_known && is_useless {
                disk.remove(slot)?;
                there.remove(&slot);
            }
        }
        self.sync_all(&there)
    }

    fn write(&self, commit: &Commit<'_>) -> Result<(), StreamStartError> {
        for (offset, bytes) in &commit.parts {
            self.found.disk.write(commit.slot, *offset, bytes)?;
        }
        Ok(())
    }

    fn sync_all(&self, slots: &BTreeSet<Slot>) -> Result<(), StreamStartError> {
        slots.iter().try_for_each(|slot| self.found.disk.sync(*slot))?;
        Ok(())
    }

    /// Makes all bytes of a file zeros that are not among these.
    fn clear(&self, slot: Slot, covered: &Ranges, bytes: u64) -> Result<(), StreamStartError> {
        let mut piece = Vec::new();
        for hole in covered.outside(0..bytes) {
            let mut at = hole.start;
            while at < hole.end {
                let end = hole.end.min(at + PIECE_BYTES);
                piece.resize((end - at) as usize, 0);
                self.found.disk.read(slot, at, &mut piece)?;
                if piece.iter().any(|byte| *byte != 0) {
                    piece.fill(0);
                    self.found.disk.write(slot, at, &piece)?;
                }
                at = end;
            }
        }
        Ok(())
    }
}
