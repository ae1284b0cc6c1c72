//! The places of a stream's records.

use super::{Log, Segment, StreamState};
use crate::segment::{Extent, Header};
use crate::storage::Slot;
use crate::types::{Damage, ReadError, Stream, StreamId, StreamUse, Tick};
use crate::wire::Salt;

/// The places to read within a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// These extents: of the active segment, or where the index cannot be read.
    Extents(Vec<Extent>),
    /// The extents of the index at this offset, with this length.
    Index(u32, u32),
}

/// The part of a run that a reader reads next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    pub id: StreamId,
    pub stream: u32,
    /// The number of the segment, and its file.
    pub seq: u64,
    pub slot: Slot,
    pub salt: Salt,
    pub frame_max: u32,
    /// The part has every record after this tick …
    pub after: Tick,
    /// … up to this one.
    pub last: Tick,
    pub place: Place,
    /// The range of the segment's bytes that are frames.
    pub frames: (u32, u32),
}

impl Log {
    /// The part with the first record at or after this tick; `None` if there is none.
    pub(crate) fn plan(&self, stream: Stream, from: Tick) -> Result<Option<ReadPlan>, ReadError> {
        let state = self.streams.get(&stream.0).filter(|state| !state.removed).ok_or(ReadError::Unknown)?;
        let Some(durable) = state.durable else { return Ok(None) };
        let known = from.saturating_sub(1).max(state.chopped);
        let found = known.checked_add(1).and_then(|first| state.runs.range(first..).next());
        let hole_end = found.map_or(durable.last, |(_, at)| at.after);
        if hole_end > known {
            let lost = Some((state.id, known, hole_end));
            let seen = state.stopped.as_ref().filter(|damage| damage.lost.is_some_and(|(_, _, last)| last == hole_end));
            let (file, offset, what) = seen.map_or((None, 0, HOLE), |damage| (damage.file, damage.offset, damage.what));
            return Err(ReadError::Damaged(Damage { file, offset, lost, what }));
        }
        let Some((last, at)) = found else {
            return state.doubt().map_or(Ok(None), |damage| Err(ReadError::Damaged(damage)));
        };
        let segment = &self.segments[&at.seq];
        let active = self.active.as_ref().filter(|active| active.seq == at.seq);
        let place = match active {
            Some(active) => {
                let extents = &active.extents[at.run as usize];
                let first = extents.partition_point(|extent| extent.after <= known).saturating_sub(1);
                Place::Extents(extents[first..].to_vec())
            }
            None => {
                let (offset, length) = segment.runs[at.run as usize].index;
                Place::Index(offset, length)
            }
        };
        Ok(Some(ReadPlan {
            id: state.id,
            stream: stream.0,
            seq: at.seq,
            slot: segment.slot,
            salt: Salt::new(self.journal, at.seq),
            frame_max: segment.frame_max,
            after: at.after.max(state.chopped),
            last: *last,
            place,
            frames: (Segment::BEGIN, segment.end),
        }))
    }

    /// The space that a stream uses. Visits each of its parts in segments.
    pub fn usage(&self, stream: Stream) -> Option<StreamUse> {
        let state = self.streams.get(&stream.0)?;
        let mut used = StreamUse { bytes: 0, segments: 0, oldest: None };
        let (mut seen, mut segment) = (None, None);
        for at in state.runs.values() {
            if seen.replace((at.seq, at.run)) != Some((at.seq, at.run)) {
                used.bytes += self.segments[&at.seq].runs[at.run as usize].bytes;
                used.segments += u64::from(segment.replace(at.seq) != Some(at.seq));
            }
            used.oldest.get_or_insert(at.after.max(state.chopped));
        }
        Some(used)
    }

    /// Whether the segment still exists.
    pub(crate) fn holds(&self, seq: u64) -> bool {
        self.segments.contains_key(&seq)
    }

    /// The sealed segments, as (number, file).
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (u64, Slot)> {
        let active = self.active.as_ref().map(|active| active.seq);
        self.segments.iter().filter(move |(seq, _)| Some(**seq) != active).map(|(seq, segment)| (*seq, segment.slot))
    }

    /// The active segment: its header, its file, and the end of its last durable frame.
    pub(crate) fn tail(&self) -> Option<(Header, Slot, u32)> {
        let active = self.active.as_ref()?;
        let segment = &self.segments[&active.seq];
        let Log { journal, options, .. } = self;
        let (seq, bytes) = (active.seq, options.segment_bytes);
        Some((Header { journal: *journal, seq, bytes, frame_max: segment.frame_max }, segment.slot, segment.end))
    }
}

impl StreamState {
    /// Ranges of ticks that no segment covers: after the first tick, up to the second.
    pub(crate) fn holes(&self) -> Vec<(Tick, Tick)> {
        let mut holes = Vec::new();
        let Some(durable) = self.durable else { return holes };
        let mut seen = durable.chopped;
        for (last, at) in &self.runs {
            if at.after > seen {
                holes.push((seen, at.after));
            }
            seen = *last;
        }
        if durable.last > seen {
            holes.push((seen, durable.last));
        }
        holes
    }

    /// The damage if records at the end may be lost.
    pub(crate) fn doubt(&self) -> Option<Damage> {
        let durable = self.durable.filter(|durable| durable.doubtful)?;
        Some(Damage { file: None, offset: 0, lost: Some((self.id, durable.last, Tick::MAX)), what: DOUBT })
    }

    /// The next damage of the stream, after one was chopped.
    pub(super) fn next_damage(&self) -> Option<Damage> {
        let hole = self.holes().first().map(|(after, last)| Some((self.id, *after, *last)));
        hole.map(|lost| Damage { file: None, offset: 0, lost, what: HOLE }).or_else(|| self.doubt())
    }
}

/// [`Damage::what`] when a frame is lost and its streams are unknown.
const DOUBT: &str = "a frame is lost that may have held the end of this stream";
/// [`Damage::what`] when no segment covers a range of ticks.
pub(crate) const HOLE: &str = "no segment holds these records any more";
