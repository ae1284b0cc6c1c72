//! Reading the records of a stream, in large sequential pieces.

use std::ops::Range;
use std::sync::Arc;

use crate::frame::{Entry, Frame, Peek, Records};
use crate::log::{Log, Place, ReadPlan};
use crate::segment::{Extent, get_index};
use crate::storage::Storage;
use crate::types::{Damage, ReadError, SECTOR, Stream, Tick};
use crate::wire::Salt;

/// Most bytes per read, except for a frame or the needed part of it.
const PIECE: usize = 256 << 10;
/// Bytes of the first read; each piece is twice as long as the previous one.
const FIRST_PIECE: usize = 4 << 10;
/// More than a buffer has: no byte in it is kept.
const ALL: usize = usize::MAX;
/// The number of times that a reader follows records that are relocated while it reads them.
const MOVES_MAX: u32 = 8;

/// A reader's memory: at most the longest frame, usually 256 KiB. One per reading thread, to be
/// reused.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    /// The last index that was read, of the segment with this salt and number, at this offset. An
    /// index never changes.
    index: Option<(IndexPlace, Arc<[Extent]>)>,
}

/// Salt and number of a segment, and the offset of an index in it.
type IndexPlace = (Salt, u64, u32);

/// A range of records to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first tick.
    pub from: Tick,
    /// The last tick.
    pub to: Tick,
    /// Payload bytes after which reading ends; the record that reaches this number is still given,
    /// so that at least one is given if there is one.
    pub budget: usize,
}

/// The reason why a part of a run was not read to its end.
enum Stop {
    /// The budget is spent, or the end of the range is reached; the next tick to read.
    Enough(Option<Tick>),
    /// Unexpected contents at this offset, in the range after the first tick up to the second.
    Broken {
        offset: u32,
        after: Tick,
        last: Tick,
        what: &'static str,
    },
    Failed(ReadError),
}

/// Access to the journal's state, under the lock that guards it.
pub(crate) trait Guide {
    fn with<T>(&self, look: impl FnOnce(&Log) -> T) -> T;
}

/// Reads records in tick order into `sink`; returns the tick to continue from, `None` at the end.
pub(crate) fn read(
    guide: &impl Guide,
    storage: &impl Storage,
    (stream, wanted): (Stream, Wanted),
    buffer: &mut ReadBuffer,
    sink: &mut dyn FnMut(Tick, &[u8]),
) -> Result<Option<Tick>, ReadError> {
    let expected = if wanted.from == wanted.to { 0 } else { wanted.budget.saturating_mul(2) };
    let piece = expected.clamp(FIRST_PIECE, PIECE);
    let mut reading = Reading { wanted, next: wanted.from.max(1), given: 0, any: false, piece, buffer, sink };
    let mut moves = 0;
    loop {
        if reading.next > wanted.to {
            return Ok(None);
        }
        let plan = match guide.with(|log| log.plan(stream, reading.next)) {
            Ok(Some(plan)) => plan,
            Ok(None) => return Ok(None),
            // Records before the damage are given first; the next call returns the damage.
            Err(ReadError::Damaged(damage)) if damage.lost.is_some_and(|(_, after, _)| after >= wanted.to) => {
                return Ok(None);
            }
            Err(ReadError::Damaged(_)) if reading.any => return Ok(Some(reading.next)),
            Err(error) => return Err(error),
        };
        match reading.run(storage, &plan) {
            Ok(()) => match plan.last.checked_add(1) {
                Some(next) => reading.next = next,
                None => return Ok(None),
            },
            Err(Stop::Enough(next)) => return Ok(next),
            Err(_) if !guide.with(|log| log.holds(plan.seq)) => {
                moves += 1;
                if moves == MOVES_MAX {
                    return Err(ReadError::Moved);
                }
            }
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Broken { .. }) if reading.any => return Ok(Some(reading.next)),
            Err(Stop::Broken { offset, after, last, what }) => {
                let lost = Some((plan.id, after, last));
                return Err(ReadError::Damaged(Damage {
                    file: Some(plan.slot),
                    offset: u64::from(offset),
                    lost,
                    what,
                }));
            }
        }
    }
}

/// The progress within an extent.
struct Position {
    /// The tick up to which every record was given or is not wanted.
    seen: Tick,
    /// The last tick that the extent covers.
    last: Tick,
    /// The offset of bytes that are no frame, since the last record that was given.
    hole: Option<u32>,
}

impl Position {
    /// Whether a section has records to read.
    fn wants(&self, plan: &ReadPlan, entry: &Entry) -> bool {
        let mine = entry.kind.is_records() && entry.stream == plan.stream;
        mine && entry.last > self.seen && entry.after < self.last
    }
}

struct Reading<'a> {
    wanted: Wanted,
    /// The first tick that was not read.
    next: Tick,
    given: usize,
    any: bool,
    /// Bytes of the next read.
    piece: usize,
    buffer: &'a mut ReadBuffer,
    sink: &'a mut dyn FnMut(Tick, &[u8]),
}

impl Reading<'_> {
    fn run(&mut self, storage: &impl Storage, plan: &ReadPlan) -> Result<(), Stop> {
        let extents = match &plan.place {
            Place::Extents(extents) => Arc::from(extents.as_slice()),
            Place::Index(offset, length) => self.index(storage, plan, (*offset, *length)),
        };
        for (index, extent) in extents.iter().enumerate() {
            let ends = extents.get(index + 1).map_or(plan.last, |next| next.after);
            if ends >= self.next {
                self.extent(storage, plan, *extent, ends.min(plan.last))?;
            }
            if ends >= plan.last {
                break;
            }
        }
        Ok(())
    }

    /// The extents of a run in a sealed segment; all frames of the segment if the index is damaged.
    fn index(&mut self, storage: &impl Storage, plan: &ReadPlan, (offset, length): (u32, u32)) -> Arc<[Extent]> {
        let ReadBuffer { bytes, index } = &mut *self.buffer;
        let place = (plan.salt, plan.seq, offset);
        if let Some((known, extents)) = index
            && *known == place
        {
            return Arc::clone(extents);
        }
        bytes.resize(length as usize, 0);
        let read = storage.read(plan.slot, u64::from(offset), bytes);
        let Some(extents) = read.ok().and_then(|()| get_index(bytes, plan.salt)) else {
            let (offset, end) = plan.frames;
            return Arc::from([Extent { offset, end, after: plan.after }]);
        };
        let extents: Arc<[Extent]> = Arc::from(extents);
        *index = Some((place, Arc::clone(&extents)));
        extents
    }

    /// Reads an extent, which has every record up to `last`.
    fn extent(&mut self, storage: &impl Storage, plan: &ReadPlan, extent: Extent, last: Tick) -> Result<(), Stop> {
        let mut at = Position { seen: extent.after.max(plan.after).max(self.next - 1), last, hole: None };
        let mut offset = extent.offset;
        let (mut want, mut drop) = (0, ALL);
        while offset < extent.end && at.seen < last {
            let length = want.max(self.piece).min((extent.end - offset) as usize);
            self.fill(storage, plan, (offset, length), drop)?;
            self.piece = (2 * self.piece).min(PIECE);
            (want, drop) = (0, 0);
            let mut done = 0;
            while at.seen < last && done < length {
                let here = offset + done as u32;
                let room = plan.frame_max.min(extent.end - here);
                match Frame::peek(&self.buffer.bytes[done..], plan.salt, here, room) {
                    Peek::Frame(frame) if frame.length as usize <= length - done => {
                        self.frame(plan, (&frame, done), &mut at)?;
                        done += frame.length as usize;
                    }
                    // The frame reaches beyond the bytes that were read. Of a long one only the
                    // needed part is read.
                    Peek::Frame(frame) if frame.length as usize > self.piece => {
                        self.part(storage, plan, (&frame, done), &mut at)?;
                        (offset, done, drop) = (frame.end(), 0, ALL);
                        break;
                    }
                    Peek::Frame(frame) => {
                        want = frame.length as usize;
                        break;
                    }
                    Peek::Short(more) if more <= room as usize => {
                        want = more;
                        break;
                    }
                    Peek::Short(_) | Peek::Nothing => {
                        offset = self.skip(storage, plan, (here, extent.end), &mut at)?;
                        (done, drop) = (0, ALL);
                        break;
                    }
                }
            }
            offset += done as u32;
            drop = drop.max(done);
        }
        if at.seen < last {
            let offset = at.hole.unwrap_or(extent.end);
            return Err(Stop::Broken { offset, after: at.seen, last, what: "a frame is damaged" });
        }
        Ok(())
    }

    /// Skips bytes that are no frame: to the next one, or to the end. If they are a frame whose
    /// second header is whole, its records are given.
    fn skip(
        &mut self,
        storage: &impl Storage,
        plan: &ReadPlan,
        (begin, end): (u32, u32),
        at: &mut Position,
    ) -> Result<u32, Stop> {
        let length = plan.frame_max.min(end - begin) as usize;
        self.fill(storage, plan, (begin, length), ALL)?;
        let is_frame = |skipped: &usize| {
            let here = begin + *skipped as u32;
            matches!(Frame::peek(&self.buffer.bytes[*skipped..], plan.salt, here, end - here), Peek::Frame(_))
        };
        let skipped = (SECTOR..length).step_by(SECTOR).find(is_frame).unwrap_or(length);
        let next = begin + skipped as u32;
        at.hole.get_or_insert(begin);
        if let Some(frame) = Frame::peek_end(&self.buffer.bytes[..skipped], plan.salt, next)
            && frame.offset >= begin
        {
            self.frame(plan, (&frame, (frame.offset - begin) as usize), at)?;
        }
        Ok(next)
    }

    /// Reads the wanted sections of a frame, in one piece, and gives their records.
    fn part(
        &mut self,
        storage: &impl Storage,
        plan: &ReadPlan,
        (frame, done): (&Frame, usize),
        at: &mut Position,
    ) -> Result<(), Stop> {
        let mut wanted = frame.places().filter(|(entry, _)| at.wants(plan, entry)).map(|(_, place)| place);
        let Some((begin, end)) = wanted.next() else { return Ok(()) };
        let end = wanted.last().map_or(end, |(_, end)| end).min(frame.length as usize);
        let begin = begin.min(end);
        self.fill(storage, plan, (frame.offset + begin as u32, end - begin), done + begin)?;
        self.records(plan, (frame, begin, 0..end - begin), at)
    }

    /// Fills the buffer with this part of the file. After the first `drop` bytes are dropped, the
    /// rest of the buffer is the beginning of that part.
    fn fill(
        &mut self,
        storage: &impl Storage,
        plan: &ReadPlan,
        (offset, length): (u32, usize),
        drop: usize,
    ) -> Result<(), Stop> {
        let bytes = &mut self.buffer.bytes;
        bytes.drain(..drop.min(bytes.len()));
        let have = length.min(bytes.len());
        bytes.resize(length, 0);
        let filled = storage.read(plan.slot, u64::from(offset) + have as u64, &mut bytes[have..]);
        filled.map_err(|fault| Stop::Failed(fault.into()))
    }

    /// Gives the records of one frame, which begins at `begin` in the buffer.
    fn frame(&mut self, plan: &ReadPlan, (frame, begin): (&Frame, usize), at: &mut Position) -> Result<(), Stop> {
        self.records(plan, (frame, 0, begin..begin + frame.length as usize), at)
    }

    /// Gives the records of the wanted sections of a frame. `part` is the range of the buffer that
    /// has the frame's bytes from `skipped` on.
    fn records(
        &mut self,
        plan: &ReadPlan,
        (frame, skipped, part): (&Frame, usize, Range<usize>),
        at: &mut Position,
    ) -> Result<(), Stop> {
        let Reading { wanted, next, given, any, buffer, sink, .. } = self;
        let bytes = &buffer.bytes[part];
        let mut found = false;
        for (entry, (begin, end)) in frame.places() {
            if !at.wants(plan, entry) {
                continue;
            }
            found = true;
            let body = begin.checked_sub(skipped).and_then(|begin| bytes.get(begin..end - skipped));
            let body = body.filter(|body| plan.salt.sum(&[body]) == entry.sum);
            let Position { seen, last, hole } = at;
            let last = *last;
            if entry.after > *seen {
                let offset = hole.unwrap_or(frame.offset);
                return Err(Stop::Broken { offset, after: *seen, last: entry.after, what: "a frame is damaged" });
            }
            let Some(body) = body else {
                let (after, last) = (*seen, entry.last.min(last));
                return Err(Stop::Broken { offset: frame.offset, after, last, what: "a section is damaged" });
            };
            for (tick, record) in Records::new(entry, body) {
                if tick <= *seen || tick > last {
                    continue;
                }
                if tick > wanted.to {
                    return Err(Stop::Enough(None));
                }
                if *given >= wanted.budget && *any {
                    return Err(Stop::Enough(Some(tick)));
                }
                sink(tick, record);
                *any = true;
                *given += record.len();
                (*seen, *next) = (tick, tick.saturating_add(1));
            }
            *seen = entry.last.min(last).max(*seen);
        }
        if found {
            at.hole = None;
        }
        // Later sections need not be read.
        if at.seen >= self.wanted.to { Err(Stop::Enough(None)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::drive::Stepped;
    use crate::twin::Twin;
    use crate::types::{Options, StreamId};

    /// A journal in which the segment that was found is gone at each later access.
    struct Fleeting {
        log: Log,
        gone: Log,
        looks: Cell<u32>,
    }

    impl Guide for Fleeting {
        fn with<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
            self.looks.set(self.looks.get() + 1);
            look(if self.looks.get() % 2 == 1 { &self.log } else { &self.gone })
        }
    }

    #[test]
    fn a_reader_follows_what_is_moved_so_often_and_no_more() {
        let options = Options { segment_bytes: 64 << 10, batch_bytes: 4096, max_bytes: 1 << 20 };
        let twin = Twin::new();
        let mut journal = Stepped::new(Log::open(&twin, options, 1).unwrap().0, &twin);
        let (stream, _) = journal.log.open_stream(StreamId { kind: 1, id: 1 }).unwrap();
        journal.log.append(stream, 1, &[b"one"]).unwrap();
        journal.settle();
        let guide = Fleeting { log: journal.log, gone: Log::empty(options, 1), looks: Cell::new(0) };
        let wanted = Wanted { from: 1, to: 1, budget: 1 };
        let mut sink = |tick, _: &[u8]| panic!("tick {tick} is not there");
        let nothing = Twin::new();
        let outcome = read(&guide, &nothing, (stream, wanted), &mut ReadBuffer::default(), &mut sink);
        assert_eq!((outcome, guide.looks.get()), (Err(ReadError::Moved), 2 * MOVES_MAX));
    }
}
