//! The driver's next steps.

use std::mem;
use std::ops::Range;

use super::{Active, Log, NONE, Segment};
use crate::collect::Collect;
use crate::frame::{Kind, Section, frame_len, put_frame};
use crate::segment::{Header, Run, Summary};
use crate::storage::Slot;
use crate::types::{HEAD, RESERVE_SEGMENTS, SECTOR};
use crate::wire::{Salt, put_varint};

/// A write to one file, to be synced before the next [`Log::next_write`].
#[derive(Debug)]
pub struct WriteStep {
    pub(super) slot: Slot,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// A batch: its offset and number, and its changes.
    Batch { salt: Salt, offset: u32, index: u32, collect: Collect },
    /// The beginning of a segment: its header and the states of all streams.
    Begin { header: Header, sections: Vec<Section> },
    /// The end of a segment: indexes after the last frame, and the summary in the head.
    Seal { end: u32, runs: Vec<Run>, parts: [Vec<u8>; 2] },
}

impl WriteStep {
    /// The file.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Encodes the write into `out` (which is emptied) and returns the offset of each part in the
    /// file. The order of the parts does not matter. Not part of [`Log`], so that it need not be
    /// done under its lock.
    pub fn encode(&self, out: &mut Vec<u8>) -> [(u64, Range<usize>); 2] {
        out.clear();
        match &self.what {
            What::Batch { salt, offset, index, collect } => {
                put_frame(out, *salt, (*offset, *index), &collect.sections);
                [(u64::from(*offset), 0..out.len()), (0, 0..0)]
            }
            What::Begin { header, sections } => {
                out.extend_from_slice(&header.encode());
                put_frame(out, header.salt(), (Segment::BEGIN, 0), sections);
                [(0, 0..SECTOR), (u64::from(Segment::BEGIN), SECTOR..out.len())]
            }
            What::Seal { end, parts: [behind, head], .. } => {
                out.extend_from_slice(behind);
                out.extend_from_slice(head);
                [(u64::from(*end), 0..behind.len()), (SECTOR as u64, behind.len()..out.len())]
            }
        }
    }
}

/// Work that may take long and runs in parallel to the writing, see [`crate::perform_chore`]. One
/// at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// [`crate::Storage::create`].
    Create {
        /// The file.
        slot: Slot,
        /// Its length.
        bytes: u64,
    },
    /// [`crate::Storage::remove`].
    Remove {
        /// The file.
        slot: Slot,
    },
    /// [`crate::Storage::read`].
    Fetch {
        /// The file.
        slot: Slot,
        /// Offset in the file.
        offset: u64,
        /// Number of bytes; at most the longest frame.
        bytes: usize,
    },
}

impl Log {
    /// The next write. `None` until the last one is [`Log::written`], or while there is nothing to
    /// write, or no room.
    pub fn next_write(&mut self) -> Option<WriteStep> {
        self.space.room = [None; 2];
        if self.flying || self.poison.is_some() {
            return None;
        }
        if self.collect.is_empty() {
            self.place_copy();
        }
        if self.collect.is_empty() {
            return None;
        }
        let sealed = self.collect.sections.len();
        self.collect.close();
        let step = if self.collect_fits() {
            Some(self.batch())
        } else {
            self.collect.sections.truncate(sealed);
            self.roll()
        };
        self.flying = step.is_some();
        step
    }

    fn batch(&mut self) -> WriteStep {
        let collect = mem::replace(&mut self.collect, mem::take(&mut self.other));
        for section in &collect.sections {
            if let Some(state) = self.streams.get_mut(&section.entry.stream).filter(|_| section.entry.kind.is_records())
            {
                state.open = NONE;
            }
        }
        let active = self.active.as_mut().expect("a batch fits only into an active segment");
        let segment = &self.segments[&active.seq];
        active.flying = frame_len(&collect.sections) as u32;
        active.flying_sections = collect.sections.len();
        let salt = Salt::new(self.journal, active.seq);
        self.collect.upto = collect.upto;
        let what = What::Batch { salt, offset: segment.end, index: active.frames, collect };
        let slot = segment.slot;
        self.place_copy();
        WriteStep { slot, what }
    }

    /// Seals the active segment, or begins the next one.
    fn roll(&mut self) -> Option<WriteStep> {
        if let Some(active) = &self.active {
            let segment = &self.segments[&active.seq];
            let header = self.header(active.seq);
            let mut runs = segment.runs.clone();
            let parts = Summary::encode(&header, (segment.end, active.frames), &mut runs, &active.extents);
            return Some(WriteStep { slot: segment.slot, what: What::Seal { end: segment.end, runs, parts } });
        }
        let moves_only = self.collect.effects.is_empty()
            && self.collect.sections.iter().all(|section| section.entry.kind == Kind::Moved);
        if moves_only && self.space.spare.len() < RESERVE_SEGMENTS as usize {
            return None;
        }
        let slot = *self.space.spare.first()?;
        let state = self.encode_states();
        let sections = vec![Section::own(Kind::State, state.clone()), Section::own(Kind::State, state)];
        let mut header = self.header(self.space.next_seq);
        // Batches may have been larger when the streams were born.
        header.frame_max = header.frame_max.max(frame_len(&sections) as u32);
        Some(WriteStep { slot, what: What::Begin { header, sections } })
    }

    fn header(&self, seq: u64) -> Header {
        let Log { journal, options, .. } = self;
        Header { journal: *journal, seq, bytes: options.segment_bytes, frame_max: options.frame_max() }
    }

    /// Encodes the durable values of all streams. No write is in flight when it is called.
    pub(crate) fn encode_states(&self) -> Vec<u8> {
        let known = || self.streams.iter().filter_map(|(number, state)| Some((*number, state.id, state.durable?)));
        let mut out = Vec::new();
        put_varint(&mut out, u64::from(self.born));
        put_varint(&mut out, known().count() as u64);
        for (number, id, durable) in known() {
            let fields =
                [u64::from(number), u64::from(id.kind), id.id, durable.last, durable.chopped, durable.reserved];
            fields.iter().for_each(|field| put_varint(&mut out, *field));
            out.push(u8::from(durable.doubtful));
        }
        out
    }

    /// The next chore. `None` until the last chore is reported.
    pub fn next_chore(&mut self) -> Option<Chore> {
        self.space.room = [None; 2];
        if self.poison.is_some() || self.space.busy {
            return None;
        }
        if self.wants_file() {
            let slot = self.space.next_slot;
            self.space.busy = true;
            return Some(Chore::Create { slot, bytes: u64::from(self.options.segment_bytes) });
        }
        if let Some(slot) = self.surplus() {
            self.space.spare.remove(&slot);
            self.space.busy = true;
            return Some(Chore::Remove { slot });
        }
        let fetch = self.next_fetch()?;
        self.space.busy = true;
        Some(fetch)
    }

    pub(super) fn begin(&mut self, slot: Slot, seq: u64, frame_max: u32) {
        let segment = Segment { slot, runs: Vec::new(), end: Segment::BEGIN, frame_max, live: 0, stuck: false };
        self.segments.insert(seq, segment);
        let (frames, extents, extents_total, flying, flying_sections) = (0, Vec::new(), 0, 0, 0);
        self.active = Some(Active { seq, frames, extents, extents_total, flying, flying_sections });
    }
}

const _: () = assert!(HEAD > SECTOR, "the summary lies behind the header");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Durable, StreamState};
    use crate::types::{Options, STATE_MAX, StreamId};

    #[test]
    fn the_room_for_a_state_is_what_the_longest_one_takes() {
        let mut log = Log::empty(Options::default(), 1);
        log.born = u32::MAX;
        let before = log.encode_states().len();
        let most = u64::MAX;
        let durable = Durable { last: most, chopped: most, reserved: most, doubtful: true };
        log.streams.insert(u32::MAX, StreamState::new(StreamId { kind: u32::MAX, id: most }, Some(durable)));
        assert_eq!(2 * (log.encode_states().len() - before), STATE_MAX as usize);
    }
}
