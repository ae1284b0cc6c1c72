//! Opening a journal.
//!
//! 1. The head of each file is read (4 KiB). The file with the greatest segment number that has a
//!    frame is the *tail*; it begins with the states of all streams.
//! 2. The summaries of the others, in the order of their numbers, name the place of each range of
//!    ticks of each stream. Where two name the same ticks, the later one has a relocated copy and
//!    is used.
//! 3. The frames of the tail are applied as if they had just been committed. A torn end is cut.
//! 4. The parts of each stream must follow each other without a hole from its chopped tick to its
//!    last tick. A hole is damage.
//!
//! Before a file can become the tail it is *settled*: after a crash of the program, or a failed
//! sync, the operating system may show data that the disk does not have, and recovery must not rely
//! on such data. Recovery writes nothing but a damaged header, and so cannot do harm.

use std::collections::{BTreeMap, BTreeSet};

use crate::collect::Effect;
use crate::frame::{Entry, Frame, Kind, Section, put_frame};
use crate::log::{Durable, HOLE, Log, RunRef, Segment, StreamState};
use crate::scan::{Found, ScanEnd, scan};
use crate::segment::{Head, Header, Run, Summary, read_head};
use crate::storage::{Slot, Storage};
use crate::types::{Damage, HEAD, OpenError, Options, SECTOR, StreamId};
use crate::wire::{Bytes, Salt};

/// The results of opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// There was no journal, and it was made.
    pub created: bool,
    /// Number of files.
    pub files: usize,
    /// Bytes read: at most the tail, the longest frame, and 4 KiB per file, and for files with more
    /// than about 63 streams the rest of their list (at most 60 bytes per stream).
    pub bytes_read: u64,
    /// Bytes of frames in the newest segment.
    pub tail_bytes: u64,
    /// File and offset at which the tail's torn end was cut.
    pub torn: Option<(Slot, u64)>,
    /// All damage that was found.
    pub damages: Vec<Damage>,
}

/// A file with a header.
struct Candidate {
    slot: Slot,
    header: Header,
    summary: Option<Summary>,
    /// The header was damaged, and taken from the summary.
    repaired: bool,
}

impl Log {
    /// Opens the journal in `storage`, or makes one if there are no files. `identity` should be
    /// random; it distinguishes the segments of a new journal from those of others.
    ///
    /// # Errors
    /// See [`OpenError`]. Damage that concerns single streams is no error: it is in the report.
    pub fn open(storage: &impl Storage, options: Options, identity: u64) -> Result<(Log, Report), OpenError> {
        options.check()?;
        let mut report = Report::default();
        let slots = storage.slots()?;
        report.files = slots.len();
        let mut candidates = Vec::new();
        let mut others = Vec::new();
        for (slot, length) in &slots {
            let Head { header, summary, repaired, blank, extra } = read_head(storage, *slot, *length)?;
            report.bytes_read += extra + HEAD as u64;
            match header.filter(|header| u64::from(header.bytes) == *length) {
                Some(header) => {
                    candidates.push(Candidate { slot: *slot, header, summary, repaired });
                }
                None => others.push((*slot, *length, blank)),
            }
        }
        candidates.sort_by_key(|candidate| candidate.header.seq);
        if candidates.is_empty() {
            return create(storage, options, identity, &others, report);
        }
        let journal = candidates[0].header.journal;
        if let Some(foreign) = candidates.iter().find(|candidate| candidate.header.journal != journal) {
            return Err(OpenError::Foreign { slot: foreign.slot });
        }
        if let Some(twice) = candidates.windows(2).find(|pair| pair[0].header.seq == pair[1].header.seq) {
            return Err(OpenError::Twice { slots: [twice[0].slot, twice[1].slot] });
        }
        let segment_bytes = candidates[0].header.bytes;
        let options = Options { segment_bytes, ..options };
        options.check()?;
        let log = Log::empty(options, journal);
        Recovery {
            storage,
            log,
            report,
            lost: Vec::new(),
            doubt: BTreeSet::new(),
            spare: Vec::new(),
            notes: Vec::new(),
        }
        .run(candidates, &others)
    }
}

/// Makes the first segment. Its header is durable before any frame follows, so that a file without
/// a readable header and with zeros after it never had contents.
fn create(
    storage: &impl Storage,
    options: Options,
    identity: u64,
    others: &[(Slot, u64, bool)],
    mut report: Report,
) -> Result<(Log, Report), OpenError> {
    let mut log = Log::empty(options, identity);
    for (slot, _, blank) in others {
        let mut sector = [0; SECTOR];
        if !blank {
            storage.read(*slot, HEAD as u64, &mut sector)?;
        }
        if sector.iter().any(|byte| *byte != 0) {
            return Err(OpenError::NoHeader);
        }
        storage.remove(*slot)?;
    }
    let slot = 0;
    storage.create(slot, u64::from(options.segment_bytes))?;
    let header = Header { journal: identity, seq: 1, bytes: options.segment_bytes, frame_max: options.frame_max() };
    storage.write(slot, 0, &header.encode())?;
    storage.sync(slot)?;
    let state = log.encode_states();
    let sections = [Section::own(Kind::State, state.clone()), Section::own(Kind::State, state)];
    let mut frame = Vec::new();
    put_frame(&mut frame, header.salt(), (HEAD as u32, 0), &sections);
    storage.write(slot, HEAD as u64, &frame)?;
    storage.sync(slot)?;
    log.adopt((slot, 1), &ScanEnd { end: (HEAD + frame.len()) as u32, frames: 1, ..ScanEnd::default() });
    log.set_files(2, 1, &[]);
    report.created = true;
    report.files = 1;
    Ok((log, report))
}

impl Report {
    fn note(&mut self, slot: Slot, offset: u32, what: &'static str) {
        self.damages.push(Damage { file: Some(slot), offset: u64::from(offset), lost: None, what });
    }
}

struct Recovery<'a, S> {
    storage: &'a S,
    log: Log,
    report: Report,
    /// Damaged sections, with the streams of their records.
    lost: Vec<Damage>,
    /// Streams that may have lost records at their end, because the contents of a hole are unknown.
    doubt: BTreeSet<u32>,
    spare: Vec<Slot>,
    /// Damaged heads, by segment. In a file without needed records they are only the trace of a
    /// crash while it was about to be reused.
    notes: Vec<(u64, Slot, &'static str)>,
}

impl<S: Storage> Recovery<'_, S> {
    fn run(mut self, mut candidates: Vec<Candidate>, others: &[(Slot, u64, bool)]) -> Result<(Log, Report), OpenError> {
        let top = candidates.last().map_or(0, |newest| newest.header.seq);
        if let Some(found) = self.unnamed_tail(&candidates, others)? {
            candidates.push(found);
        }
        let mut next_seq = top + 2;
        let tail = loop {
            let Some(candidate) = candidates.pop() else {
                // Only the very first segment was begun, and not finished.
                next_seq = next_seq.max(2);
                break None;
            };
            if self.states(&candidate)? {
                break Some(candidate);
            }
            self.spare.push(candidate.slot);
        };
        for candidate in &candidates {
            self.older(candidate)?;
        }
        if let Some(tail) = &tail {
            self.tail(tail)?;
        }
        for (seq, slot, what) in std::mem::take(&mut self.notes) {
            if self.log.is_used(seq) {
                self.report.note(slot, 0, what);
            }
        }
        let whole = self.find_holes();
        let named: BTreeSet<Slot> = tail.iter().chain(&candidates).map(|candidate| candidate.slot).collect();
        for (slot, length, blank) in others.iter().filter(|(slot, ..)| !named.contains(slot)) {
            if *length != u64::from(self.log.options().segment_bytes) {
                self.storage.remove(*slot)?;
            } else if *blank || whole {
                self.spare.push(*slot);
            } else {
                self.report.note(*slot, 0, "nothing in the file says what it is; it is left alone");
            }
        }
        let next_slot =
            named.iter().copied().chain(others.iter().map(|(slot, ..)| *slot)).chain(self.spare.iter().copied());
        let next_slot = next_slot.max().map_or(0, |slot| slot + 1);
        self.log.set_files(next_seq, next_slot, &self.spare);
        Ok((self.log, self.report))
    }

    /// Finds a file whose header cannot be read, but which is the next segment.
    fn unnamed_tail(&self, known: &[Candidate], others: &[(Slot, u64, bool)]) -> Result<Option<Candidate>, OpenError> {
        let Some(newest) = known.last() else { return Ok(None) };
        let header = Header { seq: newest.header.seq + 1, ..newest.header };
        for (slot, ..) in others.iter().filter(|(_, length, blank)| !blank && *length == u64::from(header.bytes)) {
            let mut frames = 0;
            let limit = (HEAD as u32).saturating_add(header.frame_max).min(header.bytes);
            scan(self.storage, (*slot, &header), limit, &mut |_| {
                frames += 1;
                false
            })?;
            if frames > 0 {
                return Ok(Some(Candidate { slot: *slot, header, summary: None, repaired: true }));
            }
        }
        Ok(None)
    }

    /// Reads the states of all streams from the first frame; false if the segment has no frame.
    fn states(&mut self, candidate: &Candidate) -> Result<bool, OpenError> {
        let Candidate { slot, header, .. } = candidate;
        self.storage.settle(*slot)?;
        let mut states = None;
        let mut any = false;
        let salt = header.salt();
        let end = scan(self.storage, (*slot, header), header.bytes, &mut |found| {
            any = true;
            if let Found::Frame { frame, bytes, .. } = found {
                let copies = frame.sections(bytes, salt).filter(|(entry, _)| entry.kind == Kind::State);
                states = copies.filter_map(|(_, body)| body).next().map(<[u8]>::to_vec);
            }
            false
        })?;
        self.report.bytes_read += end.read;
        if !any {
            return Ok(false);
        }
        let states = states.ok_or(OpenError::Checkpoint { slot: *slot })?;
        self.log.take_states(&states).ok_or(OpenError::Checkpoint { slot: *slot })?;
        Ok(true)
    }

    /// Applies a segment before the tail.
    fn older(&mut self, candidate: &Candidate) -> Result<(), OpenError> {
        let Candidate { slot, header, summary, .. } = candidate;
        match summary {
            Some(summary) => self.log.take_summary(*slot, header, summary),
            None => {
                let end = self.frames(candidate, header.bytes, false)?;
                if end.frames == 0 {
                    self.log.forget(header.seq);
                } else {
                    self.notes.push((header.seq, *slot, "the summary of the file is damaged"));
                }
                self.log.finish();
            }
        }
        if self.log.is_free(header.seq) {
            self.log.forget(header.seq);
            self.spare.push(*slot);
        } else if candidate.repaired {
            self.notes.push((header.seq, *slot, "the header of the file is damaged"));
        }
        Ok(())
    }

    fn tail(&mut self, tail: &Candidate) -> Result<(), OpenError> {
        let Candidate { slot, header, summary, .. } = tail;
        let limit = summary.as_ref().map_or(header.bytes, |summary| summary.end);
        let end = self.frames(tail, limit, true)?;
        self.report.tail_bytes = u64::from(end.end) - HEAD as u64;
        if end.torn {
            self.report.torn = Some((*slot, u64::from(end.end)));
        }
        if tail.repaired {
            // A single frame may be that of a segment whose beginning was not finished.
            if end.frames > 1 {
                self.report.note(*slot, 0, "the header of the file is damaged");
            }
            self.storage.write(*slot, 0, &header.encode())?;
            self.storage.sync(*slot)?;
        }
        if let Some(summary) = summary {
            self.log.take_indexes(header.seq, summary);
            self.log.finish();
        }
        Ok(())
    }

    /// Applies all frames of a segment, as if it were the active one. In the tail, their control
    /// entries are applied too.
    fn frames(&mut self, candidate: &Candidate, limit: u32, is_tail: bool) -> Result<ScanEnd, OpenError> {
        let Candidate { slot, header, .. } = candidate;
        self.log.begin_scanned((*slot, header.seq), header.frame_max);
        let salt = header.salt();
        let storage = self.storage;
        let end = scan(storage, (*slot, header), limit, &mut |found| {
            match found {
                Found::Frame { frame, bytes, copy } => {
                    if copy {
                        self.report.note(*slot, frame.offset, "the first copy of a frame's header is damaged");
                    }
                    self.frame(*slot, (frame, bytes), salt, is_tail);
                }
                Found::Hole { offset } if is_tail => self.hole(*slot, offset),
                Found::Hole { .. } => {}
            }
            true
        })?;
        self.report.bytes_read += end.read;
        self.log.adopt((*slot, header.seq), &end);
        Ok(end)
    }

    fn hole(&mut self, slot: Slot, offset: u32) {
        self.doubt = self.log.numbers().collect();
        let what = "a frame is damaged in both copies of its header";
        self.report.damages.push(Damage { file: Some(slot), offset: u64::from(offset), lost: None, what });
    }

    fn frame(&mut self, slot: Slot, (frame, bytes): (&Frame, &[u8]), salt: Salt, is_tail: bool) {
        let sections: Vec<_> = frame.sections(bytes, salt).collect();
        let control: Vec<_> = sections.iter().filter(|(entry, _)| entry.kind == Kind::Control).collect();
        let effects = control.iter().find_map(|(_, body)| body.map(Effect::decode));
        if control.iter().any(|(_, body)| body.is_none()) {
            self.report.note(slot, frame.offset, "a copy of a control section is damaged");
            if effects.is_none() {
                self.hole(slot, frame.offset);
            }
        }
        let effects = effects.filter(|_| is_tail).unwrap_or_default();
        effects.iter().for_each(|effect| self.log.apply_birth(*effect));
        for (entry, body) in sections.iter().filter(|(entry, _)| entry.kind.is_records()) {
            match body {
                Some(_) => self.section(entry, frame),
                None => self.lose(entry, (slot, frame.offset), is_tail),
            }
        }
        for effect in &effects {
            self.log.apply(*effect);
            // A loss in a stream before it was chopped as a whole is chopped with it.
            if let Effect::Chop { stream, .. } = effect
                && self.log.is_given_up(*stream)
            {
                self.doubt.remove(stream);
            }
        }
    }

    fn section(&mut self, entry: &Entry, frame: &Frame) {
        if entry.kind == Kind::Fresh {
            self.doubt.remove(&entry.stream);
        }
        self.log.apply_section(entry, (frame.offset, frame.end()));
    }

    /// A section is damaged: its ticks stay a hole, unless another section has them too.
    fn lose(&mut self, entry: &Entry, (slot, offset): (Slot, u32), is_tail: bool) {
        let Some(id) = self.log.id_of(entry.stream) else { return };
        if is_tail && entry.kind == Kind::Fresh {
            self.doubt.remove(&entry.stream);
            self.log.reach(entry.stream, entry.last);
        }
        let (file, offset) = (Some(slot), u64::from(offset));
        self.lost.push(Damage {
            file,
            offset,
            lost: Some((id, entry.after, entry.last)),
            what: "a section is damaged",
        });
    }

    /// Stops the streams that have holes; returns whether there are none.
    fn find_holes(&mut self) -> bool {
        let mut found: Vec<Damage> = Vec::new();
        for (id, after, last) in self.log.holes() {
            let same =
                |damage: &&Damage| matches!(damage.lost, Some((of, from, to)) if of == id && from < last && to > after);
            let seen = self.lost.iter().find(same);
            let (file, offset, what) = seen.map_or((None, 0, HOLE), |d| (d.file, d.offset, d.what));
            found.push(Damage { file, offset, lost: Some((id, after, last)), what });
        }
        let whole = found.is_empty();
        found.extend(self.log.doubt(&self.doubt));
        found.iter().for_each(|damage| self.log.stop(damage.clone()));
        self.report.damages.extend(found);
        whole
    }
}

impl Log {
    /// Takes the states of all streams; `None` if they are malformed.
    fn take_states(&mut self, states: &[u8]) -> Option<()> {
        let mut bytes = Bytes(states);
        let born = bytes.small()?;
        let count = bytes.varint()?;
        let mut streams = BTreeMap::new();
        for _ in 0..count {
            let (number, kind, id) = (bytes.small()?, bytes.small()?, bytes.varint()?);
            let [last, chopped, reserved] = [bytes.varint()?, bytes.varint()?, bytes.varint()?];
            let doubtful = bytes.take(1)?[0] != 0;
            let durable = Durable { last, chopped, reserved, doubtful };
            streams.insert(number, StreamState::new(StreamId { kind, id }, Some(durable)));
        }
        self.take_streams(born, streams);
        Some(())
    }

    /// Takes the summary of a sealed segment.
    fn take_summary(&mut self, slot: Slot, header: &Header, summary: &Summary) {
        let runs = summary.runs.clone();
        self.insert_segment(header.seq, Segment::sealed(slot, runs, summary.end, header.frame_max));
        for (run, Run { stream, after, last, .. }) in summary.runs.iter().enumerate() {
            if self.id_of(*stream).is_some() {
                self.cover(*stream, (*after, *last), RunRef { seq: header.seq, run: run as u32, after: *after });
            }
        }
    }
}
