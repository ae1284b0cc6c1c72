//! The place of the next frame, and the number of files.

use std::collections::BTreeSet;

use super::{Log, Segment};
use crate::frame::frame_len;
use crate::segment::{EXTENT_ROOM, RUN_ROOM};
use crate::storage::Slot;
use crate::types::{HEAD, MAP_SEGMENTS, RESERVE_SEGMENTS, Refused, SECTOR};

/// Files beyond the reserve that are kept for the next segments, at most; further ones are removed.
/// As many as a busy journal fills between two chops: with fewer it would make and remove files all
/// the time, and filling one with zeros is as much for the disk as writing it.
const SPARE_KEEP_MAX: u64 = 8;
/// At least; large segments are filled less often.
const SPARE_KEEP_MIN: u64 = 2;
/// Bytes of such files, as far as these bounds allow.
const SPARE_BYTES: u64 = 256 << 20;
/// Spare files that should always exist: those kept for maps, and the reserve.
const KEPT: usize = (RESERVE_SEGMENTS + MAP_SEGMENTS) as usize;

/// The class of a record that needs room. The journal does not store it: it only decides what is
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Records that the user appends. They may be many, and only chops free their space, for which
    /// the user may need a map.
    Data,
    /// Records that a map appends. They are few, and the map itself cleans them.
    Map,
}

/// Files without needed contents, and the work under way on their number.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Files ready to become segments.
    pub spare: BTreeSet<Slot>,
    /// The number of the next segment.
    pub next_seq: u64,
    /// The number of the next file.
    pub next_slot: Slot,
    /// A file is being made or removed.
    pub busy: bool,
    /// The disk had no room for another file.
    pub disk_full: bool,
    /// Making a file failed for another reason; appends are refused when the existing files are
    /// full.
    pub failed: bool,
    /// Whether records of each class have room; `None` after a change.
    pub room: [Option<bool>; 2],
    /// An operation was refused for lack of room, and no chore was asked for since.
    pub refused: bool,
    /// The reserve is lent: see [`Log::lend_reserve`].
    pub lent: bool,
}

impl Log {
    /// The number of files of the journal.
    pub fn files(&self) -> u64 {
        (self.segments.len() + self.space.spare.len()) as u64 + u64::from(self.space.busy)
    }

    /// Bytes of records that are kept, with their overhead.
    pub fn retained_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// Whether another file may be made.
    fn may_grow(&self) -> bool {
        !self.space.disk_full && !self.space.failed && self.files() < self.options.segments_max()
    }

    /// Whether a file is to be made now: one more than [`KEPT`] is wanted before it is needed.
    pub(super) fn wants_file(&self) -> bool {
        !self.space.busy && self.space.spare.len() <= KEPT && self.may_grow()
    }

    /// A file that will not be needed soon.
    pub(super) fn surplus(&self) -> Option<Slot> {
        let spare = (SPARE_BYTES / u64::from(self.options.segment_bytes)).clamp(SPARE_KEEP_MIN, SPARE_KEEP_MAX);
        let spare = if self.space.disk_full { 0 } else { spare };
        let keep = KEPT + 1 + spare as usize;
        // The reserve stays: without it no space could be freed.
        let over = self.files() > self.options.segments_max() && self.space.spare.len() > KEPT;
        let surplus = !self.space.busy && (self.space.spare.len() > keep || over);
        if surplus { self.space.spare.last().copied() } else { None }
    }

    /// Whether space is so short that relocation should not wait for its share.
    pub(super) fn is_short(&self) -> bool {
        self.space.spare.len() <= KEPT && !self.may_grow()
    }

    /// Whether the collecting batch can be written even when it is full: at the end of the active
    /// segment, or in the next one, with which `keep` spare files remain.
    pub(super) fn has_room(&self, keep: u32) -> bool {
        self.space.spare.len() > keep as usize || self.active_has_room()
    }

    fn active_has_room(&self) -> bool {
        self.takes_frames_of(self.options.frame_max())
            && self.fits_active((self.options.frame_max() + self.options.batch_bytes) as usize)
    }

    /// Checks whether a record of this class has room. The answer is kept until a step or a chore
    /// begins or ends, because it is asked for each record. Room for data is also room for a map.
    pub(super) fn check_room(&mut self, class: Class) -> Result<(), Refused> {
        let room = match self.space.room[class as usize] {
            Some(room) => room,
            None => self.has_room_for(class),
        };
        self.space.room[class as usize] = Some(room);
        if room { Ok(()) } else { Err(self.no_room()) }
    }

    /// Lends the reserve to records of every class, or ends that. For the few records that the
    /// journal's user has to write before it can free space, such as at its start: a full journal
    /// could not be used again otherwise. The number of such records must be bounded, like puts of
    /// the same keys.
    pub fn lend_reserve(&mut self, lent: bool) {
        (self.space.lent, self.space.room) = (lent, [None; 2]);
    }

    /// Spare files that remain when all records of this class have their place.
    fn keeps(&self, class: Class) -> usize {
        match class {
            _ if self.space.lent => 0,
            Class::Data => KEPT,
            Class::Map => RESERVE_SEGMENTS as usize,
        }
    }

    /// A segment kept for other classes is not available either when it has been begun already.
    fn has_room_for(&self, class: Class) -> bool {
        let (spare, keep) = (self.space.spare.len(), self.keeps(class));
        spare > keep || (spare >= keep || self.is_young()) && self.active_has_room()
    }

    /// Whether this is a new journal, which is used while its kept files are still being made. In
    /// case the disk has no room for them, half of the first segment is left for chops.
    fn is_young(&self) -> bool {
        let first = self.segments.first_key_value().filter(|_| self.segments.len() == 1);
        first.is_some_and(|(_, segment)| segment.end <= self.options.segment_bytes / 2)
    }

    /// The refusal: busy if something is under way that may give room, so that waiting makes sense.
    pub(super) fn no_room(&mut self) -> Refused {
        self.space.refused = true;
        let chops = !self.collect.effects.is_empty();
        if self.space.busy || self.may_grow() || self.flying || chops || self.is_moving() {
            Refused::Busy
        } else {
            Refused::Full
        }
    }

    /// Whether a frame of this length, with its runs in the index, fits after the existing frames
    /// and the one in flight.
    fn fits_active(&self, length: usize) -> bool {
        let Some(active) = &self.active else { return false };
        let segment = &self.segments[&active.seq];
        let used = (segment.end + active.flying) as usize;
        used + length + self.index_room() <= self.options.segment_bytes as usize
    }

    /// Bytes for sealing the active segment, including the frame in flight.
    fn index_room(&self) -> usize {
        let Some(active) = &self.active else { return 0 };
        let flying = active.flying_sections;
        let runs = self.segments[&active.seq].runs.len() + flying;
        runs * (RUN_ROOM + 4) + (active.extents_total + flying) * EXTENT_ROOM + 2 * SECTOR
    }

    /// Whether the collecting batch fits into the active segment.
    pub(super) fn collect_fits(&self) -> bool {
        let sections = self.collect.sections.len();
        let length = frame_len(&self.collect.sections);
        self.takes_frames_of(length as u32) && self.fits_active(length + sections * (RUN_ROOM + 4 + EXTENT_ROOM))
    }

    /// Whether frames of this length are allowed in the active segment: it may have been begun with
    /// smaller batches.
    fn takes_frames_of(&self, length: u32) -> bool {
        self.active.as_ref().is_some_and(|active| length <= self.segments[&active.seq].frame_max)
    }

    /// The least distance between extents of a run, bytes. It grows as the table fills, so that the
    /// table is bounded for any number of streams: see [`Log::extents_max`].
    pub(super) fn extent_spacing(&self) -> u32 {
        let total = self.active.as_ref().map_or(0, |active| active.extents_total);
        (EXTENT_BYTES << (8 * total / self.extents_max()).min(15)).min(self.options.segment_bytes)
    }

    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(crate) fn unpin(&mut self) {
        self.pins = self.pins.checked_sub(1).expect("what is let go was kept");
        let unused: Vec<u64> =
            self.segments.iter().filter(|(_, segment)| segment.is_unused()).map(|(seq, _)| *seq).collect();
        unused.into_iter().for_each(|seq| self.free(seq));
    }

    /// Whether making a file failed and should be tried again later.
    pub fn wants_retry(&self) -> bool {
        (self.space.disk_full || self.space.failed) && self.space.spare.len() <= KEPT
    }

    /// Whether an operation was refused for lack of room since the last call: then
    /// [`Log::next_chore`] may have a chore.
    pub fn wants_chore(&mut self) -> bool {
        std::mem::take(&mut self.space.refused)
    }

    fn extents_max(&self) -> usize {
        (self.options.segment_bytes / 1024) as usize
    }

    /// Frees a sealed segment without records in use.
    pub(super) fn free(&mut self, seq: u64) {
        let active = self.active.as_ref().map(|active| active.seq);
        let newest = self.segments.last_key_value().map(|(seq, _)| *seq);
        let unused = self.segments.get(&seq).is_some_and(Segment::is_unused);
        // The newest segment has the states of all streams.
        if unused && self.pins == 0 && active != Some(seq) && newest != Some(seq) {
            let segment = self.segments.remove(&seq).expect("looked up above");
            self.space.spare.insert(segment.slot);
            self.mover.forget(seq);
        }
    }
}

/// Bytes between the extents of a run while there are few extents.
pub(super) const EXTENT_BYTES: u32 = 64 << 10;

impl Segment {
    pub(crate) fn is_unused(&self) -> bool {
        self.runs.iter().all(|run| run.uses == 0)
    }

    /// The offset of its first frame.
    pub(crate) const BEGIN: u32 = HEAD as u32;
}
