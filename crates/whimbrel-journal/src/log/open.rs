//! Changes of the state machine by recovery.

use std::collections::{BTreeMap, BTreeSet};

use super::{Counters, Log, NONE, Segment, StreamState};
use crate::collect::Collect;
use crate::scan::ScanEnd;
use crate::segment::{Run, Summary};
use crate::storage::Slot;
use crate::types::{Damage, Options, StreamId, Tick};

use super::mover::Mover;
use super::space::Space;

impl Log {
    /// A journal without files.
    pub(crate) fn empty(options: Options, journal: u64) -> Log {
        Log {
            options,
            journal,
            streams: BTreeMap::new(),
            names: BTreeMap::new(),
            next_stream: 0,
            born: 0,
            segments: BTreeMap::new(),
            active: None,
            space: Space::default(),
            collect: Collect::default(),
            other: Collect::default(),
            flying: false,
            accepted: 0,
            committed: 0,
            poison: None,
            mover: Mover::default(),
            pins: 0,
            counters: Counters::default(),
        }
    }

    pub(crate) fn take_streams(&mut self, born: u32, streams: BTreeMap<u32, StreamState>) {
        (self.born, self.next_stream) = (born, born);
        self.names = streams.iter().map(|(number, state)| (state.id, *number)).collect();
        self.streams = streams;
    }

    /// Begins to apply the frames of a segment on disk.
    pub(crate) fn begin_scanned(&mut self, (slot, seq): (Slot, u64), frame_max: u32) {
        self.begin(slot, seq, frame_max);
        self.streams.values_mut().for_each(|state| state.fresh = NONE);
    }

    /// Continues to write at the end of these frames.
    pub(crate) fn adopt(&mut self, (slot, seq): (Slot, u64), end: &ScanEnd) {
        if self.active.is_none() {
            self.begin(slot, seq, self.options.frame_max());
        }
        self.active.as_mut().expect("it was begun").frames = end.frames;
        self.segments.get_mut(&seq).expect("it was begun").end = end.end;
    }

    /// Ends a scanned segment that is not written any more.
    pub(crate) fn finish(&mut self) {
        self.active = None;
        self.streams.values_mut().for_each(|state| state.fresh = NONE);
    }

    /// Takes the indexes of a segment that is sealed and was scanned nevertheless.
    pub(crate) fn take_indexes(&mut self, seq: u64, summary: &Summary) {
        let segment = self.segments.get_mut(&seq).expect("it was scanned");
        let same = |(a, b): (&Run, &Run)| (a.stream, a.after, a.last) == (b.stream, b.after, b.last);
        if segment.runs.len() == summary.runs.len() && segment.runs.iter().zip(&summary.runs).all(same) {
            segment.runs.iter_mut().zip(&summary.runs).for_each(|(run, sealed)| run.index = sealed.index);
        }
    }

    pub(crate) fn insert_segment(&mut self, seq: u64, segment: Segment) {
        self.segments.insert(seq, segment);
    }

    pub(crate) fn is_free(&self, seq: u64) -> bool {
        self.segments.get(&seq).is_some_and(Segment::is_unused)
    }

    /// Whether the segment with this number has records in use.
    pub fn is_used(&self, seq: u64) -> bool {
        self.segments.get(&seq).is_some_and(|segment| !segment.is_unused())
    }

    pub(crate) fn forget(&mut self, seq: u64) {
        self.segments.remove(&seq);
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.streams.keys().copied()
    }

    pub(crate) fn id_of(&self, stream: u32) -> Option<StreamId> {
        self.streams.get(&stream).map(|state| state.id)
    }

    /// Records that the stream had records up to this tick, even if they are lost.
    pub(crate) fn reach(&mut self, stream: u32, last: Tick) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.last = state.last.max(last);
            if let Some(durable) = &mut state.durable {
                durable.last = durable.last.max(last);
            }
        }
    }

    /// Whether the stream is chopped beyond its last record.
    pub(crate) fn is_given_up(&self, stream: u32) -> bool {
        let durable = self.streams.get(&stream).and_then(|state| state.durable);
        durable.is_some_and(|durable| durable.chopped > durable.last)
    }

    /// Ranges of ticks that no segment covers, by stream: after the first tick, up to the second.
    pub(crate) fn holes(&self) -> Vec<(StreamId, Tick, Tick)> {
        let of = |state: &StreamState| {
            state.holes().into_iter().map(|(after, last)| (state.id, after, last)).collect::<Vec<_>>()
        };
        self.streams.values().flat_map(of).collect()
    }

    /// Records which streams may have lost their end; returns all of them, including those recorded
    /// earlier.
    pub(crate) fn doubt(&mut self, found: &BTreeSet<u32>) -> Vec<Damage> {
        for (number, state) in &mut self.streams {
            if let Some(durable) = &mut state.durable {
                durable.doubtful |= found.contains(number);
            }
        }
        self.streams.values().filter_map(StreamState::doubt).collect()
    }

    /// Sets the numbers of the next segment and file, and the free files.
    pub(crate) fn set_files(&mut self, next_seq: u64, next_slot: Slot, spare: &[Slot]) {
        self.space.next_seq = next_seq;
        self.space.next_slot = next_slot;
        self.space.spare.extend(spare);
        self.mover.look();
    }
}

impl Segment {
    pub(crate) fn sealed(slot: Slot, runs: Vec<Run>, end: u32, frame_max: u32) -> Segment {
        Segment { slot, runs, end, frame_max, live: 0, stuck: false }
    }
}
