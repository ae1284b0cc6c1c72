//! Giving the stream what only the files have.
//!
//! All of it counts with the record of an epoch behind it: what the journal wrote between the state
//! of the stream and that of the files is not there any more, as far as it was of no use to these,
//! so a part of it may be no state that a journal ever had. A start that ends before appends it all
//! again.

use std::ops::Range;

use whimbrel_journal::{Slot, Storage};

use super::StreamStartError;
use super::directory::{content_of, files_of};
use super::survey::{Survey, take_once};
use crate::engine::Engine;
use crate::ranges::Ranges;
use crate::record::Epoch;
use crate::stream::{EngineLink, OwnedStream, WrittenCommit};

/// Most bytes of a file in one record.
const PUSHED_BYTES: u64 = 1 << 20;

/// How often a record is sent while there is no answer: a start can be tried again.
const TRIES_MAX: u64 = 20;

/// What the stream lacks of a segment.
pub(crate) struct LeftToPush {
    slot: Slot,
    number: u64,
    file_bytes: u64,
    parts: Vec<Range<u64>>,
}

/// What goes into one record.
struct PieceToPush<'a> {
    of: &'a LeftToPush,
    bytes: Range<u64>,
}

impl LeftToPush {
    fn pieces(&self) -> impl Iterator<Item = PieceToPush<'_>> {
        let starts = self.parts.iter().flat_map(|part| {
            let starts = part.clone().step_by(PUSHED_BYTES as usize);
            starts.map(|start| start..part.end.min(start + PUSHED_BYTES))
        });
        starts.map(|bytes| PieceToPush { of: self, bytes })
    }
}

impl<S: Storage, E: Engine> Survey<'_, S, E> {
    /// What the stream lacks of all files, by the numbers of their segments.
    pub(crate) fn left_to_push(&self, stream: &OwnedStream) -> Result<Vec<LeftToPush>, StreamStartError> {
        let disk = self.found.disk;
        let mut all = Vec::new();
        for (slot, file) in files_of(disk)? {
            let Some(number) = file.number else { continue };
            let known = stream.segments().get(&slot).filter(|known| known.number == number);
            if known.is_some_and(|known| known.is_sealed()) {
                continue;
            }
            let Some(content) = content_of(disk, slot, file.bytes)? else { continue };
            let nothing = Ranges::default();
            let covered = known.map_or(&nothing, |known| &known.covered);
            let parts: Vec<_> = content.parts.into_iter().flat_map(|part| covered.outside(part)).collect();
            if !parts.is_empty() {
                all.push(LeftToPush { slot, number, file_bytes: file.bytes, parts });
            }
        }
        all.sort_by_key(|left| left.number);
        Ok(all)
    }

    /// Appends what the stream lacks; tells how many records that took. Segments whose files are
    /// gone end with it.
    pub(crate) fn push(&self, all: &[LeftToPush], stream: &mut OwnedStream) -> Result<u64, StreamStartError> {
        let (disk, link) = (self.found.disk, self.found.link);
        let pieces = all.iter().flat_map(LeftToPush::pieces);
        let mut pushed = 0;
        for PieceToPush { of, bytes } in pieces {
            let mut read = vec![0; (bytes.end - bytes.start) as usize];
            disk.read(of.slot, bytes.start, &mut read)?;
            let LeftToPush { slot, number: segment, file_bytes, .. } = *of;
            let (parts, removed) = (vec![(bytes.start, read)], Vec::new());
            let commit = WrittenCommit { slot, segment, file_bytes, parts, removed, has_more: true };
            stream.append(link, &commit, TRIES_MAX, &mut || {})?;
            pushed += 1;
        }
        if pushed > 0 {
            stream.confirm(link)?;
        }
        let files = files_of(disk)?;
        let gone: Vec<Slot> = stream.segments().keys().copied().filter(|slot| !files.contains_key(slot)).collect();
        gone.into_iter().for_each(|slot| stream.end_segment(slot));
        Ok(pushed)
    }
}

impl OwnedStream {
    /// Takes the odd epoch behind the one of this start, so that what it has appended counts.
    fn confirm<E: Engine>(&mut self, link: &EngineLink<E>) -> Result<(), StreamStartError> {
        let epoch = Epoch { epoch: self.epoch() + 1, ..self.owner() };
        let taken = take_once(&link.engine, self.taken(), &epoch.encode())?;
        link.cuts().append(&mut self.confirmed(epoch, taken));
        Ok(())
    }
}
