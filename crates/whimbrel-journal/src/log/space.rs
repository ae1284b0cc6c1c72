//! Where the next frame goes, and which files there are.

use std::collections::BTreeSet;

use super::{Log, Segment};
use crate::frame::frame_len;
use crate::segment::{EXTENT_ROOM, RUN_ROOM};
use crate::storage::Slot;
use crate::types::{HEAD, MAP_SEGMENTS, RESERVE_SEGMENTS, Refused, SECTOR};

/// Files beyond the reserve that are kept for the next segments; what is beyond them is removed.
const SPARE_KEEP: usize = 2;
/// Spare files that there should always be: what is kept for maps, and the reserve.
const KEPT: usize = (RESERVE_SEGMENTS + MAP_SEGMENTS) as usize;

/// What kind of record wants room. The journal does not remember it: it only decides what is
/// accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Whatever its user appends. May be much, and is given back only by chops, for which its user
    /// may need a map.
    Data,
    /// What a map appends. Little, and cleaned by the map itself.
    Map,
}

/// The files that hold nothing needed, and what is being done about their number.
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
    /// It cannot make files for another reason; appends are refused when those that there are are
    /// full.
    pub failed: bool,
    /// Whether records of each class have room, while nothing has changed that.
    pub room: [Option<bool>; 2],
    /// An operation was refused for want of room, and nobody has looked for a chore since.
    pub refused: bool,
    /// The reserve is lent: see [`Log::lend_reserve`].
    pub lent: bool,
}

impl Log {
    /// Files of the journal.
    pub fn files(&self) -> u64 {
        (self.segments.len() + self.space.spare.len()) as u64 + u64::from(self.space.busy)
    }

    /// Bytes of records that are kept, with what each needs beside it.
    pub fn retained_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// Whether another file may be made.
    fn may_grow(&self) -> bool {
        !self.space.disk_full && !self.space.failed && self.files() < self.options.segments_max()
    }

    /// Whether a file is to be made now: one more than what is kept is wanted before it is needed.
    pub(super) fn wants_file(&self) -> bool {
        !self.space.busy && self.space.spare.len() <= KEPT && self.may_grow()
    }

    /// A file that nobody will need soon.
    pub(super) fn surplus(&self) -> Option<Slot> {
        let keep = KEPT + 1 + SPARE_KEEP;
        // Not the reserve: without it nothing could be given back.
        let over = self.files() > self.options.segments_max() && self.space.spare.len() > KEPT;
        let surplus = !self.space.busy && (self.space.spare.len() > keep || over);
        if surplus { self.space.spare.last().copied() } else { None }
    }

    /// Whether space is so short that relocation should not wait for its share.
    pub(super) fn is_short(&self) -> bool {
        self.space.spare.len() <= KEPT && !self.may_grow()
    }

    /// Whether the batch that collects can be written when it is full: where the present one ends,
    /// or in the next segment, with which `keep` spare files remain.
    pub(super) fn has_room(&self, keep: u32) -> bool {
        self.space.spare.len() > keep as usize || self.active_has_room()
    }

    fn active_has_room(&self) -> bool {
        self.takes_frames_of(self.options.frame_max())
            && self.fits_active((self.options.frame_max() + self.options.batch_bytes) as usize)
    }

    /// Whether a record of this class has room. The answer is kept until a step or a chore begins
    /// or ends, as this is asked for each record. What data may take, a map may take too.
    pub(super) fn check_room(&mut self, class: Class) -> Result<(), Refused> {
        let room = match self.space.room[class as usize] {
            Some(room) => room,
            None => self.has_room_for(class),
        };
        self.space.room[class as usize] = Some(room);
        if room { Ok(()) } else { Err(self.no_room()) }
    }

    /// Lets records of every class have the reserve too, or no longer. For the little that whoever
    /// uses the journal has to write before it can give anything back, such as at its start: a
    /// journal that is full could not be used again otherwise. What is written so often must itself
    /// be bounded, as puts of the same keys are.
    pub fn lend_reserve(&mut self, lent: bool) {
        (self.space.lent, self.space.room) = (lent, [None; 2]);
    }

    /// Spare files that remain when everything of this class has found its place.
    fn keeps(&self, class: Class) -> usize {
        match class {
            _ if self.space.lent => 0,
            Class::Data => KEPT,
            Class::Map => RESERVE_SEGMENTS as usize,
        }
    }

    /// A segment that is kept is not for the class either when something else has begun it.
    fn has_room_for(&self, class: Class) -> bool {
        let (spare, keep) = (self.space.spare.len(), self.keeps(class));
        spare > keep || (spare >= keep || self.is_young()) && self.active_has_room()
    }

    /// Whether this is a new journal, which is used while the files that are kept are still being
    /// made. But should the disk have no room for them, half of the first segment is left for
    /// chops.
    fn is_young(&self) -> bool {
        let first = self.segments.first_key_value().filter(|_| self.segments.len() == 1);
        first.is_some_and(|(_, segment)| segment.end <= self.options.segment_bytes / 2)
    }

    /// Whether it is worth waiting: something is under way that may give room.
    pub(super) fn no_room(&mut self) -> Refused {
        self.space.refused = true;
        let chops = !self.collect.effects.is_empty();
        if self.space.busy || self.may_grow() || self.flying || chops || self.is_moving() {
            Refused::Busy
        } else {
            Refused::Full
        }
    }

    /// Whether a frame of this length, with its runs in the index, fits behind what is there and in
    /// flight.
    fn fits_active(&self, length: usize) -> bool {
        let Some(active) = &self.active else { return false };
        let segment = &self.segments[&active.seq];
        let used = (segment.end + active.flying) as usize;
        used + length + self.index_room() <= self.options.segment_bytes as usize
    }

    /// Bytes that sealing the active segment takes, with what is in flight.
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

    /// How far apart the extents of a run are at least. They become sparser as the table fills, so
    /// that it stays bounded whatever the number of streams: see [`Log::extents_max`].
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

    /// Whether making a file failed and should be tried again some time.
    pub fn wants_retry(&self) -> bool {
        (self.space.disk_full || self.space.failed) && self.space.spare.len() <= KEPT
    }

    /// Whether an operation was refused for want of room since this was asked last: then
    /// [`Log::next_chore`] may have one.
    pub fn wants_chore(&mut self) -> bool {
        std::mem::take(&mut self.space.refused)
    }

    fn extents_max(&self) -> usize {
        (self.options.segment_bytes / 1024) as usize
    }

    /// Frees sealed segments of which nothing is used.
    pub(super) fn free(&mut self, seq: u64) {
        let active = self.active.as_ref().map(|active| active.seq);
        let newest = self.segments.last_key_value().map(|(seq, _)| *seq);
        let unused = self.segments.get(&seq).is_some_and(Segment::is_unused);
        // The newest segment holds the states of all streams.
        if unused && self.pins == 0 && active != Some(seq) && newest != Some(seq) {
            let segment = self.segments.remove(&seq).expect("looked up above");
            self.space.spare.insert(segment.slot);
            self.mover.forget(seq);
        }
    }
}

/// Bytes between the extents of a run while there are few.
pub(super) const EXTENT_BYTES: u32 = 64 << 10;

impl Segment {
    pub(crate) fn is_unused(&self) -> bool {
        self.runs.iter().all(|run| run.uses == 0)
    }

    /// Where its first frame begins.
    pub(crate) const BEGIN: u32 = HEAD as u32;
}
