//! Relocation: the few records that are still needed in an old segment are copied into the
//! collecting batch, so that the segment can be reused.
//!
//! A copy covers the ticks from the beginning of the stream's use of the old segment. When it is
//! durable the stream uses the copy for these ticks: in memory immediately, and after recovery
//! because the copy is in a later segment. A crash between two steps loses nothing: the old segment
//! is reused only when nothing in it is in use.

use super::space::EXTENT_BYTES;
use super::step::Chore;
use super::{Log, RunRef, Segment};
use crate::collect::Collect;
use crate::frame::{Frame, HEADER, Kind, Peek, Records, SECTION_ROOM, Section};
use crate::segment::{Extent, get_index};
use crate::storage::Fault;
use crate::types::{RESERVE_SEGMENTS, SECTOR, Tick};
use crate::wire::Salt;

/// Relocation writes at most one byte for this many appended bytes, except when the journal is full
/// and relocation is what frees space.
pub const RELOCATION_SHARE: u64 = 4;
/// A segment is relocated when less than this fraction (one part of this number) of it is in use;
/// when the journal is full, when its copy takes less than three quarters of a segment, so that
/// each one frees more than it takes.
pub const RELOCATION_PART: u64 = 4;

/// Upper bound of the bytes of a copy beside its records, if nothing else is in its frame.
const COPY_ROOM: u64 = (SECTION_ROOM + 2 * (HEADER + 1) + SECTOR) as u64;

/// The state of relocation.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    /// The part of a stream that is being copied, by stream and last tick.
    target: Option<(u32, Tick, RunRef)>,
    /// Its index, once it was read; below, the extent and offset to continue from.
    extents: Option<Vec<Extent>>,
    at: (usize, u32),
    /// A copy that is not in a batch yet.
    ready: Option<Section>,
    /// A copy is in a batch that is not durable yet.
    placed: bool,
    /// Bytes that may be copied.
    budget: u64,
    /// The state has changed since no target was found.
    stale: bool,
}

impl Mover {
    /// Records a change that may make a segment worth copying.
    pub(super) fn look(&mut self) {
        self.stale = true;
    }

    /// Adds the share of appended bytes to the budget, up to four steps.
    pub(super) fn earn(&mut self, appended: u64, step: u64) {
        self.budget = (self.budget + appended / RELOCATION_SHARE).min(4 * step);
    }

    /// The segment is gone.
    pub(super) fn forget(&mut self, seq: u64) {
        if self.target.is_some_and(|(.., at)| at.seq == seq) {
            self.target = None;
            self.extents = None;
        }
    }

    /// Puts a finished copy into a batch that has just begun.
    pub(super) fn place(&mut self, collect: &mut Collect) {
        if let Some(section) = self.ready.take() {
            collect.bytes += SECTION_ROOM + section.body.len();
            collect.sections.push(section);
            self.placed = true;
        }
    }
}

impl Log {
    /// The next read for relocation.
    pub(super) fn next_fetch(&mut self) -> Option<Chore> {
        if self.mover.ready.is_some() || self.mover.placed {
            return None;
        }
        let short = self.is_short();
        if self.mover.target.is_none() && !self.find_target(short) {
            return None;
        }
        if !short && self.mover.budget < self.options.move_room() as u64 {
            return None;
        }
        let (_, _, at) = self.mover.target.expect("found above");
        let segment = &self.segments[&at.seq];
        let slot = segment.slot;
        let Some(extents) = &self.mover.extents else {
            let (offset, length) = segment.runs[at.run as usize].index;
            return Some(Chore::Fetch { slot, offset: u64::from(offset), bytes: length as usize });
        };
        let (index, offset) = self.mover.at;
        let extent = extents[index];
        let bytes = (extent.end - offset).min(segment.frame_max);
        Some(Chore::Fetch { slot, offset: u64::from(offset), bytes: bytes as usize })
    }

    /// Whether relocation will continue by itself. Only asked when space is short.
    pub(super) fn is_moving(&mut self) -> bool {
        if self.mover.ready.is_some() {
            return self.has_room(RESERVE_SEGMENTS - 1);
        }
        self.mover.placed || self.mover.target.is_some() || self.find_target(true)
    }

    /// Chooses the next part to copy: in the segment with the fewest bytes in use, the oldest part
    /// of the stream with the lowest number.
    fn find_target(&mut self, short: bool) -> bool {
        if !std::mem::take(&mut self.mover.stale) && !short {
            return false;
        }
        let bytes = u64::from(self.options.segment_bytes);
        let enough = if short { bytes / 4 * 3 } else { bytes / RELOCATION_PART };
        let active = self.active.as_ref().map(|active| active.seq);
        let old = self.segments.iter().filter(|(seq, segment)| Some(**seq) != active && !segment.stuck);
        let newest = self.segments.last_key_value().map(|(seq, _)| *seq);
        let worth = |segment: &Segment| segment.live < enough && (!short || self.copy_bytes(segment) < enough);
        let victim = old.filter(|(seq, segment)| Some(**seq) != newest && worth(segment)).min_by_key(|(_, s)| s.live);
        let Some(victim) = victim.map(|(seq, _)| *seq) else { return false };
        let uses = self.streams.iter().filter_map(|(number, state)| {
            // A chop that is not durable yet frees its part soon.
            let (last, at) = state.runs.iter().find(|(last, at)| at.seq == victim && **last > state.chopped)?;
            Some((*number, *last, *at))
        });
        self.mover.target = uses.min_by_key(|(number, ..)| *number);
        self.mover.extents = None;
        self.mover.target.is_some()
    }

    /// Upper bound of the bytes of a copy of the segment's records in use: two successive copies
    /// together exceed the length limit of one, unless an extent ends between them.
    fn copy_bytes(&self, segment: &Segment) -> u64 {
        let extents = u64::from(self.options.segment_bytes / EXTENT_BYTES) + 1;
        let room = self.options.move_room() as u64;
        let used = segment.runs.iter().filter(|run| run.uses > 0);
        used.map(|run| run.bytes + COPY_ROOM * run.records.min(2 * run.bytes / room + extents)).sum()
    }

    /// Takes the outcome of [`Chore::Fetch`].
    pub(crate) fn fetched(&mut self, outcome: Result<&[u8], Fault>) {
        self.space.busy = false;
        let Some((stream, last, at)) = self.mover.target else { return };
        let now = self.streams.get(&stream).and_then(|state| state.runs.get(&last));
        if now.is_none_or(|now| (now.seq, now.run) != (at.seq, at.run)) {
            // The part was chopped or removed meanwhile.
            self.mover.forget(at.seq);
            self.mover.look();
            return;
        }
        let taken = match outcome {
            Ok(bytes) if self.mover.extents.is_none() => self.take_index(bytes),
            Ok(bytes) => self.take_frames(bytes),
            Err(_) => None,
        };
        if taken.is_none() && self.streams[&stream].chopped >= last {
            self.mover.forget(at.seq);
            self.mover.look();
        } else if taken.is_none() {
            // The error is reported to readers; here it only means that the segment stays.
            self.segments.get_mut(&at.seq).expect("the target's segment is known").stuck = true;
            self.mover.forget(at.seq);
        }
    }

    fn take_index(&mut self, bytes: &[u8]) -> Option<()> {
        let (stream, last, _) = self.mover.target?;
        let at = *self.streams.get(&stream)?.runs.get(&last)?;
        let extents = get_index(bytes, Salt::new(self.journal, at.seq))?;
        let first = extents.iter().rposition(|extent| extent.after <= at.after)?;
        self.mover.at = (first, extents[first].offset);
        self.mover.extents = Some(extents);
        Some(())
    }

    fn take_frames(&mut self, bytes: &[u8]) -> Option<()> {
        let (stream, last, at) = self.mover.target?;
        let after = self.streams.get(&stream)?.runs.get(&last)?.after;
        let chopped = self.streams[&stream].chopped;
        let salt = Salt::new(self.journal, at.seq);
        let frame_max = self.segments[&at.seq].frame_max;
        let mut copy = Section::new(Kind::Moved, stream, after, Vec::new());
        let (extent, mut offset) = self.mover.at;
        let begin = offset;
        let room = self.options.move_room();
        let mut full = false;
        while !full
            && let Peek::Frame(frame) = Frame::peek(&bytes[(offset - begin) as usize..], salt, offset, frame_max)
        {
            let whole = bytes.get((offset - begin) as usize..(frame.end() - begin) as usize);
            let Some(whole) = whole else { break };
            for (entry, body) in frame.sections(whole, salt) {
                if entry.kind.is_records() && entry.stream == stream && entry.last > after && entry.after < last {
                    full |= !copy_records(&mut copy, Records::new(entry, body?), (after.max(chopped), last), room);
                }
            }
            if !full {
                offset = frame.end();
            }
        }
        self.finish_fetch(copy, (extent, offset, begin), full)
    }

    /// Decides where the next fetch continues, and hands over the copy.
    fn finish_fetch(&mut self, copy: Section, (extent, offset, begin): (usize, u32, u32), full: bool) -> Option<()> {
        let (_, last, at) = self.mover.target?;
        let extents = self.mover.extents.as_ref()?;
        let past = offset >= extents[extent].end;
        let done = past && extent + 1 == extents.len() || copy.entry.last == last;
        if offset == begin && !full && !done {
            return None;
        }
        self.mover.at = if past && !done { (extent + 1, extents[extent + 1].offset) } else { (extent, offset) };
        if copy.entry.count == 0 && !done {
            return Some(());
        }
        if done && copy.entry.last < last {
            // The end of the range has no record that is needed, or it is damaged; in that case the
            // segment stays.
            return None;
        }
        let bytes = copy.body.len();
        self.mover.budget = self.mover.budget.saturating_sub(bytes as u64);
        self.mover.ready = Some(copy);
        if done {
            self.mover.forget(at.seq);
            self.mover.look();
        }
        if self.collect.bytes + bytes + SECTION_ROOM <= self.options.batch_bytes as usize {
            self.place_copy();
        }
        Some(())
    }

    /// Puts a finished copy into the collecting batch, if room for it is guaranteed.
    pub(super) fn place_copy(&mut self) {
        if self.has_room(RESERVE_SEGMENTS - 1) {
            self.mover.place(&mut self.collect);
        }
    }

    /// The batch with the copy is durable.
    pub(super) fn moved(&mut self) {
        self.mover.placed = false;
    }
}

/// Copies records of the range until there is no room; returns whether all of them were copied.
fn copy_records(copy: &mut Section, records: Records, (after, last): (Tick, Tick), room: usize) -> bool {
    for (tick, bytes) in records {
        if tick <= after.max(copy.entry.last) || tick > last {
            continue;
        }
        if copy.entry.count > 0 && copy.body.len() + bytes.len() > room {
            return false;
        }
        copy.push(tick, &[bytes], bytes.len());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::frame_len;

    fn copy(bytes: usize) -> Section {
        // All numbers have their greatest length, which two of them cannot have at the same time.
        let mut section = Section::new(Kind::Moved, u32::MAX, 0, vec![0; bytes]);
        (section.entry.count, section.entry.bytes) = (u32::MAX, u32::MAX);
        (section.entry.first, section.entry.last) = (1 << 63, u64::MAX);
        section
    }

    #[test]
    fn the_room_beside_a_copy_is_what_the_worst_one_takes() {
        let beside = (0..2 * SECTOR).map(|bytes| (frame_len(&[copy(bytes)]) - bytes) as u64);
        let worst = beside.max().expect("there are some");
        assert!((COPY_ROOM - 3..=COPY_ROOM).contains(&worst), "{worst}");
    }

    #[test]
    fn a_copy_takes_its_room_in_the_batch() {
        let mut mover = Mover { ready: Some(copy(100)), ..Mover::default() };
        let mut collect = Collect::default();
        mover.place(&mut collect);
        assert_eq!((collect.bytes, collect.sections.len(), mover.placed), (SECTION_ROOM + 100, 1, true));
        mover.place(&mut collect);
        assert_eq!(collect.sections.len(), 1, "once");
    }
}
