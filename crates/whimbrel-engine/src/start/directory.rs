//! The directory as a start finds it.

use std::collections::BTreeMap;

use whimbrel_journal::{Fault, OpenError, SegmentContent, Slot, Storage, segment_content, segment_head};

use crate::engine::Engine;
use crate::mark::{MarkContents, MarkState, SUMMARY};
use crate::ranges::Ranges;
use crate::record::Commit;
use crate::replicated::Acknowledgement;
use crate::stream::EngineLink;

/// A file of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundFile {
    pub(crate) bytes: u64,
    /// The number of its segment.
    pub(crate) number: Option<u64>,
    pub(crate) is_blank: bool,
}

/// What a start decides from, beside the stream.
pub(crate) struct StartScene<'a, S, E> {
    pub(crate) disk: &'a S,
    pub(crate) link: &'a EngineLink<E>,
    pub(crate) files: BTreeMap<Slot, FoundFile>,
    /// The mark, if there is a journal that it tells of.
    pub(crate) mark: Option<MarkContents>,
}

/// An error of the disk, or a format that is not known.
pub(crate) fn disk_fault(error: OpenError) -> Fault {
    match error {
        OpenError::Storage(fault) => fault,
        other => Fault::Failed(other.to_string()),
    }
}

/// All files with what their heads say.
pub(crate) fn files_of(disk: &impl Storage) -> Result<BTreeMap<Slot, FoundFile>, Fault> {
    let mut files = BTreeMap::new();
    for (slot, bytes) in disk.slots()? {
        let head = segment_head(disk, slot, bytes).map_err(disk_fault)?;
        files.insert(slot, FoundFile { bytes, number: head.number, is_blank: head.is_blank });
    }
    Ok(files)
}

/// What survives of a file of this length; `None` if it has no segment.
pub(crate) fn content_of(disk: &impl Storage, slot: Slot, bytes: u64) -> Result<Option<SegmentContent>, Fault> {
    disk.settle(slot)?;
    segment_content(disk, slot, bytes).map_err(disk_fault)
}

impl<'a, S: Storage, E: Engine> StartScene<'a, S, E> {
    /// Looks at the directory; the mark of one without a journal says nothing.
    pub(crate) fn look(
        disk: &'a S,
        link: &'a EngineLink<E>,
        mark: Option<MarkContents>,
    ) -> Result<StartScene<'a, S, E>, Fault> {
        let mut found = StartScene { disk, link, files: files_of(disk)?, mark: None };
        found.mark = mark.filter(|_| found.has_journal());
        Ok(found)
    }

    /// Whether a file has the head of a segment.
    pub(crate) fn has_journal(&self) -> bool {
        self.files.values().any(|file| file.number.is_some())
    }

    /// Whether no start has begun to change the files and not ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.mark.as_ref().is_none_or(|mark| mark.state != MarkState::Changing)
    }

    /// The mark that records of the stream can be compared with.
    pub(crate) fn known(&self) -> Option<&MarkContents> {
        self.mark.as_ref().filter(|mark| mark.upto > 0)
    }

    /// Whether the disk may have acknowledged commits that the stream does not have.
    pub(crate) fn is_local(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| match mark.state {
            MarkState::Whole => mark.acknowledgement == Acknowledgement::Local,
            MarkState::Changing => false,
            MarkState::Alone => true,
        })
    }

    /// What the stream has of the segments in the files, as the mark says.
    pub(crate) fn held_by_mark(&self) -> BTreeMap<Slot, Ranges> {
        let segments = self.mark.iter().flat_map(|mark| &mark.segments);
        let is_there = |slot: &Slot, number| self.files.get(slot).is_some_and(|file| file.number == Some(number));
        let held = segments.filter(|(slot, segment)| is_there(slot, segment.number));
        held.map(|(slot, segment)| (*slot, segment.covered.clone())).collect()
    }

    /// Whether the bytes of a commit are in its file.
    pub(crate) fn has(&self, commit: &Commit<'_>) -> Result<bool, Fault> {
        for (offset, bytes) in &commit.parts {
            let mut found = vec![0; bytes.len()];
            self.disk.read(commit.slot, *offset, &mut found)?;
            if found != *bytes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of commits in the files that the stream does not have at their place, if it has
    /// there what `held` says.
    pub(crate) fn commits_beyond(&self, held: &BTreeMap<Slot, Ranges>) -> Result<u64, Fault> {
        let segments = self.mark.iter().flat_map(|mark| mark.segments.values());
        let top = segments.map(|segment| segment.number).max().unwrap_or(0);
        let mut commits = 0;
        for (slot, file) in &self.files {
            let Some(number) = file.number else { continue };
            let none = Ranges::default();
            let held = match held.get(slot) {
                Some(held) => held,
                // Its removal was not durable.
                None if number <= top => continue,
                None => &none,
            };
            if held.has(SUMMARY) {
                continue;
            }
            let content = content_of(self.disk, *slot, file.bytes)?;
            let frames = content.iter().flat_map(|content| &content.frames);
            commits += frames.filter(|frame| !held.has((*frame).clone())).count() as u64;
        }
        Ok(commits)
    }
}
