//! Changes of state when a write is durable.

use super::step::What;
use super::{Durable, Log, NONE, RunRef, StreamState, WriteStep};
use crate::collect::Effect;
use crate::frame::{Entry, Kind};
use crate::segment::{Extent, Run};
use crate::storage::{Fault, Slot};
use crate::types::{Damage, Tick, Ticket};

impl Log {
    /// Takes the outcome of a write: an error of the write, or of the sync after it, poisons the
    /// journal. Returns the ticket up to which everything is durable.
    pub fn written(&mut self, step: WriteStep, outcome: Result<(), Fault>) -> Ticket {
        assert!(self.flying, "a write is reported once");
        self.flying = false;
        self.space.room = [None; 2];
        if let Err(fault) = outcome {
            self.poison = Some(fault);
            return self.committed();
        }
        match step.what {
            What::Batch { offset, mut collect, .. } => {
                self.commit_frame(offset, &collect);
                self.committed = self.committed.max(collect.upto);
                if collect.sections.iter().any(|section| section.entry.kind == Kind::Moved) {
                    self.moved();
                }
                collect.clear(self.options.batch_bytes as usize);
                self.other = collect;
            }
            What::Begin { header, sections } => {
                let before = self.segments.last_key_value().map(|(seq, _)| *seq);
                self.space.spare.remove(&step.slot);
                self.space.next_seq = header.seq + 1;
                self.counters.segments += 1;
                self.begin(step.slot, header.seq, header.frame_max);
                self.streams.values_mut().for_each(|state| state.fresh = NONE);
                self.advance(crate::frame::frame_len(&sections) as u32);
                before.into_iter().for_each(|seq| self.free(seq));
            }
            What::Seal { runs, .. } => {
                let active = self.active.take().expect("only the active segment is sealed");
                let segment = self.segments.get_mut(&active.seq).expect("the active segment is known");
                for (known, sealed) in segment.runs.iter_mut().zip(runs) {
                    known.index = sealed.index;
                }
                self.mover.look();
            }
        }
        self.committed()
    }

    fn advance(&mut self, length: u32) {
        let active = self.active.as_mut().expect("only an active segment grows");
        active.frames += 1;
        (active.flying, active.flying_sections) = (0, 0);
        let seq = active.seq;
        self.segments.get_mut(&seq).expect("the active segment is known").end += length;
    }

    fn commit_frame(&mut self, offset: u32, collect: &crate::collect::Collect) {
        let length = self.active.as_ref().expect("a batch is written to the active segment").flying;
        for effect in &collect.effects {
            self.apply_birth(*effect);
        }
        let mut fresh = 0;
        for section in collect.sections.iter().filter(|section| section.entry.kind.is_records()) {
            self.apply_section(&section.entry, (offset, offset + length));
            let Entry { kind, count, bytes, .. } = section.entry;
            if kind == Kind::Fresh {
                fresh += u64::from(bytes);
                self.counters.records += u64::from(count);
            } else {
                self.counters.moved_bytes += u64::from(bytes);
            }
        }
        self.counters.commits += 1;
        self.counters.record_bytes += fresh;
        self.counters.frame_bytes += u64::from(length);
        self.advance(length);
        for effect in &collect.effects {
            self.apply(*effect);
        }
        self.mover.earn(fresh, self.options.move_room() as u64);
    }

    /// Adds a stream that was born. Precedes the sections of the same frame.
    pub(crate) fn apply_birth(&mut self, effect: Effect) {
        if let Effect::Born { stream, id } = effect {
            self.born = self.born.max(stream + 1);
            self.next_stream = self.next_stream.max(stream + 1);
            let state = self.streams.entry(stream).or_insert_with(|| StreamState::new(id, None));
            state.durable.get_or_insert_default();
            if !state.removed {
                self.names.insert(id, stream);
            }
        }
    }

    /// Makes the records of a section readable. The frame lies at `place`, in the active segment.
    pub(crate) fn apply_section(&mut self, entry: &Entry, place: (u32, u32)) {
        let spacing = self.extent_spacing();
        let Log { streams, segments, active, .. } = self;
        let Some(state) = streams.get_mut(&entry.stream) else { return };
        let active = active.as_mut().expect("frames are committed in the active segment");
        let segment = segments.get_mut(&active.seq).expect("the active segment is known");

        let continues = |run: &Run| run.stream == entry.stream && run.last == entry.after;
        let same = match entry.kind {
            Kind::Fresh => Some(state.fresh as usize),
            _ => segment.runs.len().checked_sub(1),
        };
        let same = same.filter(|index| segment.runs.get(*index).is_some_and(continues));
        let index = same.unwrap_or_else(|| {
            let Entry { stream, after, .. } = *entry;
            segment.runs.push(Run { stream, after, last: after, bytes: 0, records: 0, index: (0, 0), uses: 0 });
            active.extents.push(Vec::new());
            segment.runs.len() - 1
        });
        if entry.kind == Kind::Fresh {
            state.fresh = index as u32;
        }
        let run = &mut segment.runs[index];
        run.last = entry.last;
        run.bytes += u64::from(entry.bytes);
        run.records += u64::from(entry.count);
        if run.uses > 0 {
            segment.live += u64::from(entry.bytes);
        }

        let extents = &mut active.extents[index];
        match extents.last_mut() {
            Some(extent) if place.0 - extent.offset < spacing => extent.end = place.1,
            _ => {
                extents.push(Extent { offset: place.0, end: place.1, after: entry.after });
                active.extents_total += 1;
            }
        }
        let (seq, run) = (active.seq, index as u32);
        if let (Kind::Fresh, Some(durable)) = (entry.kind, &mut state.durable) {
            durable.last = durable.last.max(entry.last);
            state.last = state.last.max(entry.last);
        }
        self.cover(entry.stream, (entry.after, entry.last), RunRef { seq, run, after: entry.after });
    }

    /// Makes a stream use a part of a run for the ticks of this range, instead of the parts that it
    /// used there before.
    pub(crate) fn cover(&mut self, stream: u32, (after, last): (Tick, Tick), new: RunRef) {
        let state = self.streams.get_mut(&stream).expect("only streams that are known are covered");
        let from = after.max(state.durable.map_or(0, |durable| durable.chopped));
        if from >= last {
            return;
        }
        let behind = state.runs.range(from.saturating_add(1)..);
        let overlapped: Vec<_> =
            behind.take_while(|(_, old)| old.after < last).map(|(end, old)| (*end, *old)).collect();
        // A preceding part of the same run is extended.
        let before = state.runs.range(..=from).next_back().map(|(end, old)| (*end, *old));
        let before = before.filter(|(end, old)| (old.seq, old.run, *end) == (new.seq, new.run, from));
        let begin = before.map_or(from, |(_, old)| old.after);
        if before.is_some() {
            state.runs.remove(&from);
        }
        let mut changes = Vec::new();
        for (old_last, old) in overlapped {
            state.runs.remove(&old_last);
            let mut parts = 0;
            if old.after < from {
                state.runs.insert(from, old);
                parts += 1;
            }
            if old_last > last {
                state.runs.insert(old_last, RunRef { after: last, ..old });
                parts += 1;
            }
            changes.push((old, parts - 1));
        }
        state.runs.insert(last, RunRef { after: begin, ..new });
        if before.is_none() {
            self.use_run(new, 1);
        }
        for (old, change) in changes {
            self.use_run(old, change);
        }
    }

    /// Changes the number of uses of a run.
    fn use_run(&mut self, at: RunRef, change: i32) {
        let Some(segment) = self.segments.get_mut(&at.seq) else { return };
        let run = &mut segment.runs[at.run as usize];
        let before = run.uses;
        run.uses = before.checked_add_signed(change).expect("a run is not given up more often than it is used");
        match (before, run.uses) {
            (0, 1..) => segment.live += run.bytes,
            (1.., 0) => {
                segment.live -= run.bytes;
                self.mover.look();
                self.free(at.seq);
            }
            _ => {}
        }
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Born { .. } => {}
            Effect::Chop { stream, upto } => self.apply_chop(stream, upto),
            Effect::Reserve { stream, upto } => {
                if let Some(state) = self.streams.get_mut(&stream)
                    && let Some(durable) = &mut state.durable
                {
                    durable.reserved = durable.reserved.max(upto);
                    state.reserved = state.reserved.max(upto);
                }
            }
            Effect::Remove { stream } => {
                if let Some(state) = self.streams.remove(&stream) {
                    if self.names.get(&state.id) == Some(&stream) {
                        self.names.remove(&state.id);
                    }
                    state.runs.values().for_each(|at| self.use_run(*at, -1));
                }
            }
        }
    }

    fn apply_chop(&mut self, stream: u32, upto: Tick) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let Some(durable) = &mut state.durable else { return };
        durable.chopped = durable.chopped.max(upto);
        state.chopped = state.chopped.max(upto);
        let Durable { chopped, last, .. } = *durable;
        durable.doubtful &= chopped <= last;
        let kept = match chopped.checked_add(1) {
            Some(first) => state.runs.split_off(&first),
            None => std::collections::BTreeMap::new(),
        };
        let dead = std::mem::replace(&mut state.runs, kept);
        let healed = |damage: &Damage| damage.lost.is_none_or(|(.., lost)| lost <= chopped || lost == Tick::MAX);
        if state.stopped.as_ref().is_some_and(healed) {
            state.stopped = state.next_damage();
        }
        dead.values().for_each(|at| self.use_run(*at, -1));
    }

    pub(crate) fn created(&mut self, slot: Slot, outcome: Result<(), Fault>) {
        self.space.room = [None; 2];
        self.space.busy = false;
        match outcome {
            Ok(()) => {
                self.space.spare.insert(slot);
                self.space.next_slot = self.space.next_slot.max(slot) + 1;
            }
            Err(Fault::Full) => self.space.disk_full = true,
            Err(Fault::Failed(_)) => self.space.failed = true,
        }
    }

    pub(crate) fn removed(&mut self) {
        self.space.room = [None; 2];
        self.space.busy = false;
        self.space.disk_full = false;
    }

    /// Allows another attempt to make files after the disk was full. The driver calls it from time
    /// to time, at a rate of its choice.
    pub fn retry_space(&mut self) {
        self.space.disk_full = false;
        self.space.failed = false;
        self.space.room = [None; 2];
    }
}
