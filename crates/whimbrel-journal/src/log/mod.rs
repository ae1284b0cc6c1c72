//! The journal as a state machine: it accepts operations, produces steps to write, and takes their
//! outcomes.
//!
//! It does no IO. Its driver asks [`Log::next_write`] for the next write and sync and returns the
//! outcome with [`Log::written`]; there is at most one such write at a time, and meanwhile the next
//! batch collects. In parallel the driver asks [`Log::next_chore`] for work that may take long:
//! making and removing files, reading records to relocate.

mod commit;
mod mover;
mod need;
mod open;
mod plan;
mod space;
mod step;

use std::collections::BTreeMap;

use crate::collect::{Collect, Effect};
use crate::frame::{Kind, SECTION_ROOM};
use crate::segment::{Extent, Run};
use crate::storage::{Fault, Slot};
use crate::types::{Damage, Options, Refused, Stream, StreamId, StreamInfo, Tick, Ticket};

use mover::Mover;
pub use mover::{RELOCATION_PART, RELOCATION_SHARE};
pub use need::Need;
pub(crate) use plan::{HOLE, Place, ReadPlan};
pub(crate) use space::Class;
use space::Space;
pub use step::{Chore, WriteStep};

/// The stream has no section in the collecting batch.
const NONE: u32 = u32::MAX;

/// A part of a run that the stream uses. The key in [`StreamState::runs`] is its last tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRef {
    /// The segment's number.
    pub seq: u64,
    /// The index among the runs of the segment.
    pub run: u32,
    /// The part covers the ticks after this one.
    pub after: Tick,
}

/// A stream. `durable` has its values on disk, if the disk knows the stream; the other values run
/// ahead of those.
#[derive(Clone, Debug)]
pub(crate) struct StreamState {
    pub id: StreamId,
    pub last: Tick,
    pub chopped: Tick,
    pub reserved: Tick,
    pub durable: Option<Durable>,
    pub stopped: Option<Damage>,
    /// The index of its fresh section in the collecting batch.
    pub open: u32,
    /// The index of its fresh run in the active segment.
    pub fresh: u32,
    pub runs: BTreeMap<Tick, RunRef>,
    pub removed: bool,
}

/// The values of a stream on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    pub last: Tick,
    pub chopped: Tick,
    pub reserved: Tick,
    /// Records after `last` may be lost, and their number is unknown.
    pub doubtful: bool,
}

impl StreamState {
    pub(crate) fn new(id: StreamId, durable: Option<Durable>) -> StreamState {
        let Durable { last, chopped, reserved, .. } = durable.unwrap_or_default();
        let runs = BTreeMap::new();
        StreamState {
            id,
            last,
            chopped,
            reserved,
            durable,
            stopped: None,
            open: NONE,
            fresh: NONE,
            runs,
            removed: false,
        }
    }
}

/// A segment with records or states that are needed.
#[derive(Debug)]
pub(crate) struct Segment {
    pub slot: Slot,
    pub runs: Vec<Run>,
    /// The end of its last frame.
    pub end: u32,
    pub frame_max: u32,
    /// Bytes of runs in use.
    pub live: u64,
    /// The segment cannot be relocated, because a part of it cannot be read.
    pub stuck: bool,
}

/// The active segment, the one being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub seq: u64,
    pub frames: u32,
    /// Extents of each run, in the order of the segment's runs.
    pub extents: Vec<Vec<Extent>>,
    /// Number of extents of all runs.
    pub extents_total: usize,
    /// Bytes of the frame that is being written.
    pub flying: u32,
    /// Number of its sections.
    pub flying_sections: usize,
}

/// The journal's state. Memory: about 300 bytes per stream, 120 per stream and segment in which it
/// has live records, and for the active segment at most 16 bytes per KiB (1 MiB for 64 MiB), beside
/// two batches.
#[derive(Debug)]
pub struct Log {
    options: Options,
    journal: u64,
    streams: BTreeMap<u32, StreamState>,
    names: BTreeMap<StreamId, u32>,
    next_stream: u32,
    /// Numbers below this one were given to streams that the disk knows or knew.
    born: u32,
    segments: BTreeMap<u64, Segment>,
    active: Option<Active>,
    space: Space,
    collect: Collect,
    other: Collect,
    flying: bool,
    accepted: u64,
    committed: u64,
    poison: Option<Fault>,
    mover: Mover,
    /// Number of copies being made; while it is not 0, no segment is reused.
    pins: u32,
    counters: Counters,
}

/// Amounts written since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches that are durable.
    pub commits: u64,
    /// Records appended and durable.
    pub records: u64,
    /// Bytes of these records with their overhead in the section (1 to 5 bytes for the length, as
    /// many for the distance to the previous tick).
    pub record_bytes: u64,
    /// Bytes of relocated records.
    pub moved_bytes: u64,
    /// Bytes of frames: records, relocated records, directories, padding.
    pub frame_bytes: u64,
    /// Segments begun.
    pub segments: u64,
}

impl Log {
    /// Opens the stream of this name; it is born if it does not exist. A birth counts as an
    /// operation and is durable with its ticket; later appends are never durable without it.
    ///
    /// # Errors
    /// Only for a birth: [`Refused::Busy`], [`Refused::Full`], [`Refused::Poisoned`],
    /// [`Refused::TooManyStreams`].
    pub fn open_stream(&mut self, id: StreamId) -> Result<(Stream, Ticket), Refused> {
        if let Some(number) = self.names.get(&id) {
            return Ok((Stream(*number), Ticket(self.accepted)));
        }
        if self.streams.len() as u64 >= u64::from(self.options.streams_max()) || self.next_stream == u32::MAX {
            return Err(Refused::TooManyStreams(self.options.streams_max()));
        }
        let stream = self.next_stream;
        self.control(Effect::Born { stream, id })?;
        self.next_stream += 1;
        self.names.insert(id, stream);
        self.streams.insert(stream, StreamState::new(id, None));
        Ok((Stream(stream), self.accept()))
    }

    /// Appends a record, given in parts that are joined. Its tick must be greater than every tick
    /// used or chopped in this stream. It is durable when its ticket is committed. Allocates only
    /// when the batch has to grow. It does not use the space that is kept for maps, see
    /// [`crate::MAP_SEGMENTS`].
    ///
    /// # Errors
    /// Any [`Refused`]; the journal is unchanged then.
    pub fn append(&mut self, stream: Stream, tick: Tick, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.append_as(Class::Data, (stream, tick), parts)
    }

    pub(crate) fn append_as(
        &mut self,
        class: Class,
        (stream, tick): (Stream, Tick),
        parts: &[&[u8]],
    ) -> Result<Ticket, Refused> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.options.record_max() {
            return Err(Refused::TooLong { bytes: length, max: self.options.record_max() });
        }
        self.check_poison()?;
        let state = self.streams.get_mut(&stream.0).filter(|state| !state.removed).ok_or(Refused::Unknown)?;
        if let Some(damage) = &state.stopped {
            return Err(Refused::Stopped(damage.clone()));
        }
        let last = state.last.max(state.chopped);
        if tick <= last {
            return Err(Refused::NotIncreasing { tick, last });
        }
        let cost = match self.collect.sections.get(state.open as usize) {
            Some(section) => section.cost(tick, length),
            None => SECTION_ROOM + crate::wire::VARINT_MAX + length,
        };
        let fits = self.collect.bytes + cost <= self.options.batch_bytes as usize;
        if !fits {
            return Err(Refused::Busy);
        }
        self.check_room(class)?;
        let state = self.streams.get_mut(&stream.0).expect("looked up above");
        if state.open == NONE {
            state.open = self.collect.open(Kind::Fresh, stream.0, state.last);
        }
        let section = &mut self.collect.sections[state.open as usize];
        let before = section.body.len();
        section.push(tick, parts, length);
        self.collect.bytes += section.body.len() - before;
        debug_assert!(self.collect.bytes <= self.options.batch_bytes as usize, "a record takes what was reckoned");
        state.last = tick;
        Ok(self.accept())
    }

    /// Releases every record up to and including this tick, if there are any. Chopped ticks cannot
    /// be appended any more. Chopping less than before changes nothing. Accepted also when the
    /// journal is full.
    ///
    /// # Errors
    /// [`Refused::Busy`], [`Refused::Poisoned`], [`Refused::Unknown`]; [`Refused::Full`] only if
    /// the reserve is used up, which takes a segment's worth of control entries that release
    /// nothing.
    pub fn chop(&mut self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        let state = self.state(stream)?;
        if upto > state.chopped {
            self.control(Effect::Chop { stream: stream.0, upto })?;
            self.streams.get_mut(&stream.0).expect("looked up above").chopped = upto;
            return Ok(self.accept());
        }
        Ok(Ticket(self.accepted))
    }

    /// Makes durable that ticks up to this one may have been used; recovery restores it without any
    /// record. Reserving less than before changes nothing.
    ///
    /// # Errors
    /// As [`Log::chop`].
    pub fn reserve(&mut self, stream: Stream, upto: Tick) -> Result<Ticket, Refused> {
        let state = self.state(stream)?;
        if upto > state.reserved {
            self.control(Effect::Reserve { stream: stream.0, upto })?;
            self.streams.get_mut(&stream.0).expect("looked up above").reserved = upto;
            return Ok(self.accept());
        }
        Ok(Ticket(self.accepted))
    }

    /// Removes a stream with all its records. Its name may be used for a new stream immediately.
    ///
    /// # Errors
    /// As [`Log::chop`].
    pub fn remove(&mut self, stream: Stream) -> Result<Ticket, Refused> {
        let id = self.state(stream)?.id;
        self.control(Effect::Remove { stream: stream.0 })?;
        self.names.remove(&id);
        self.streams.get_mut(&stream.0).expect("looked up above").removed = true;
        Ok(self.accept())
    }

    /// The ticket up to which everything is durable.
    pub fn committed(&self) -> Ticket {
        Ticket(self.committed)
    }

    /// The ticket of the last accepted operation.
    pub fn accepted(&self) -> Ticket {
        Ticket(self.accepted)
    }

    /// The fault that ended all writing, if there is one. Accepted operations that are not
    /// committed may or may not survive recovery.
    pub fn poisoned(&self) -> Option<&Fault> {
        self.poison.as_ref()
    }

    /// The durable values of a stream; `None` before its birth is durable.
    pub fn info(&self, stream: Stream) -> Option<StreamInfo> {
        let state = self.streams.get(&stream.0)?;
        let durable = state.durable?;
        let Durable { last, chopped, reserved, .. } = durable;
        Some(StreamInfo { id: state.id, last, chopped, reserved, stopped: state.stopped.clone() })
    }

    /// All streams with their names.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, Stream)> {
        self.names.iter().map(|(id, number)| (*id, Stream(*number)))
    }

    /// Amounts written since the journal was opened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The settings, with the segment size that the journal was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Stops a stream in which damage was found: it accepts no more records until the damage is
    /// chopped.
    pub fn stop(&mut self, damage: Damage) {
        let Some((id, _, last)) = damage.lost else { return };
        let Some(state) = self.names.get(&id).and_then(|number| self.streams.get_mut(number)) else { return };
        if last > state.chopped {
            state.stopped.get_or_insert(damage);
        }
    }

    /// Whether the stream accepts records at all: to be asked before a record is appended together
    /// with other operations, see [`Log::require`].
    ///
    /// # Errors
    /// [`Refused::Stopped`], [`Refused::Unknown`].
    pub fn check_stream(&self, stream: Stream) -> Result<(), Refused> {
        self.state(stream)?.stopped.as_ref().map_or(Ok(()), |damage| Err(Refused::Stopped(damage.clone())))
    }

    fn state(&self, stream: Stream) -> Result<&StreamState, Refused> {
        self.streams.get(&stream.0).filter(|state| !state.removed).ok_or(Refused::Unknown)
    }

    fn accept(&mut self) -> Ticket {
        self.accepted += 1;
        self.collect.upto = self.accepted;
        Ticket(self.accepted)
    }

    fn check_poison(&self) -> Result<(), Refused> {
        self.poison.as_ref().map_or(Ok(()), |fault| Err(Refused::Poisoned(fault.clone())))
    }

    fn control(&mut self, effect: Effect) -> Result<(), Refused> {
        self.check_poison()?;
        if self.collect.control + Collect::cost_of(effect) > self.options.control_room() {
            return Err(Refused::Busy);
        }
        if !self.has_room(0) {
            return Err(self.no_room());
        }
        self.collect.change(effect);
        Ok(())
    }
}
