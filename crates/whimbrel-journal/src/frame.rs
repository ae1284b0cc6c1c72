//! A frame: the unit that one commit adds to a segment.
//!
//! ```text
//! header     16 bytes: length of the frame, length of the directory, number in the segment, checksum of both
//! directory  one entry per section: kind, stream, records, bytes, ticks, checksum of its body
//! bodies     one after the other
//! zeros      up to a multiple of 512
//! directory  again
//! header     again
//! ```
//!
//! The second copy tells a lost first copy from the end of the log, and names the streams whose
//! records are lost. Bodies have checksums of their own, so that a damaged one concerns one stream
//! only.

use crate::types::{SECTOR, Tick};
use crate::wire::{Bytes, Salt, put_varint, varint_len};

/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 16;
/// Most bytes that a section needs beside its body, in both copies of the directory.
pub(crate) const SECTION_ROOM: usize = 2 * (5 + 5 + 5 + 8 + 10 + 10 + 4);

/// The contents of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records of a stream, newer than all before them.
    Fresh,
    /// Records of a stream, copied from an older segment.
    Moved,
    /// Chops, reservations, births and removals.
    Control,
    /// The states of all streams.
    State,
}

impl Kind {
    fn from_bits(bits: u64) -> Kind {
        match bits & 3 {
            0 => Kind::Fresh,
            1 => Kind::Moved,
            2 => Kind::Control,
            _ => Kind::State,
        }
    }

    /// Whether the section has records of a stream.
    pub(crate) fn is_records(self) -> bool {
        matches!(self, Kind::Fresh | Kind::Moved)
    }
}

/// A section's entry in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub kind: Kind,
    pub stream: u32,
    /// Number of records.
    pub count: u32,
    /// Bytes of the body.
    pub bytes: u32,
    /// The stream has no record after this tick and before `first`.
    pub after: Tick,
    pub first: Tick,
    pub last: Tick,
    /// Checksum of the body.
    pub sum: u32,
}

impl Entry {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.stream) << 2 | self.kind as u64);
        put_varint(out, u64::from(self.count));
        put_varint(out, u64::from(self.bytes));
        out.extend_from_slice(&self.first.to_le_bytes());
        put_varint(out, self.first - self.after);
        put_varint(out, self.last - self.first);
        out.extend_from_slice(&self.sum.to_le_bytes());
    }

    fn encoded_len(&self) -> usize {
        varint_len(u64::from(self.stream) << 2)
            + varint_len(u64::from(self.count))
            + varint_len(u64::from(self.bytes))
            + 8
            + varint_len(self.first - self.after)
            + varint_len(self.last - self.first)
            + 4
    }

    fn get(bytes: &mut Bytes) -> Option<Entry> {
        let tag = bytes.varint()?;
        let count = bytes.small()?;
        let length = bytes.small()?;
        let first = bytes.u64()?;
        let after = first.checked_sub(bytes.varint()?)?;
        let last = first.checked_add(bytes.varint()?)?;
        let sum = bytes.u32()?;
        let stream = u32::try_from(tag >> 2).ok()?;
        Some(Entry { kind: Kind::from_bits(tag), stream, count, bytes: length, after, first, last, sum })
    }
}

/// A section being collected.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub entry: Entry,
    pub body: Vec<u8>,
}

impl Section {
    /// An empty section that continues a stream after this tick.
    pub(crate) fn new(kind: Kind, stream: u32, after: Tick, body: Vec<u8>) -> Section {
        let entry = Entry { kind, stream, count: 0, bytes: 0, after, first: after, last: after, sum: 0 };
        Section { entry, body }
    }

    /// A section with the journal's own data instead of records.
    pub(crate) fn own(kind: Kind, body: Vec<u8>) -> Section {
        let mut section = Section::new(kind, 0, 0, body);
        section.entry.bytes = section.body.len() as u32;
        section
    }

    /// Bytes that [`Section::push`] adds to the body.
    pub(crate) fn cost(&self, tick: Tick, length: usize) -> usize {
        let delta = if self.entry.count == 0 { 0 } else { varint_len(tick - self.entry.last) };
        delta + varint_len(length as u64) + length
    }

    /// Adds a record. Its tick must be greater than the last one.
    pub(crate) fn push(&mut self, tick: Tick, parts: &[&[u8]], length: usize) {
        let entry = &mut self.entry;
        assert!(tick > entry.last, "ticks increase within a section");
        if entry.count == 0 {
            entry.first = tick;
        } else {
            put_varint(&mut self.body, tick - entry.last);
        }
        put_varint(&mut self.body, length as u64);
        parts.iter().for_each(|part| self.body.extend_from_slice(part));
        entry.last = tick;
        entry.count += 1;
        entry.bytes = self.body.len() as u32;
    }
}

/// Bytes of the frame of these sections.
pub(crate) fn frame_len(sections: &[Section]) -> usize {
    let directory = directory_len(sections);
    let bodies: usize = sections.iter().map(|section| section.body.len()).sum();
    (2 * (HEADER + directory) + bodies).next_multiple_of(SECTOR)
}

fn directory_len(sections: &[Section]) -> usize {
    varint_len(sections.len() as u64) + sections.iter().map(|section| section.entry.encoded_len()).sum::<usize>()
}

/// Appends a frame. `offset` is its offset in the segment, `index` its number there.
pub(crate) fn put_frame(out: &mut Vec<u8>, salt: Salt, (offset, index): (u32, u32), sections: &[Section]) {
    let begin = out.len();
    let length = frame_len(sections);
    let directory_len = directory_len(sections);
    out.resize(begin + HEADER, 0);
    put_varint(out, sections.len() as u64);
    for section in sections {
        let sum = salt.sum(&[&section.body]);
        Entry { sum, ..section.entry }.put(out);
    }
    assert_eq!(out.len(), begin + HEADER + directory_len, "a directory is as long as foreseen");
    let header = header(salt, offset, [length as u32, directory_len as u32, index], &out[begin + HEADER..]);
    out[begin..begin + HEADER].copy_from_slice(&header);
    sections.iter().for_each(|section| out.extend_from_slice(&section.body));
    out.resize(begin + length - HEADER - directory_len, 0);
    out.extend_from_within(begin + HEADER..begin + HEADER + directory_len);
    out.extend_from_slice(&header);
}

fn header(salt: Salt, offset: u32, fields: [u32; 3], directory: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    for (place, field) in header.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let sum = salt.sum(&[&offset.to_le_bytes(), &header[..12], directory]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// A frame whose directory is whole. Its bodies need not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Offset in the segment.
    pub offset: u32,
    /// Bytes of the whole frame.
    pub length: u32,
    /// The number of frames before it in the segment.
    pub index: u32,
    pub entries: Vec<Entry>,
    bodies: u32,
}

/// The bytes at an offset where a frame may begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Peek {
    Frame(Frame),
    /// This many bytes are needed to decide.
    Short(usize),
    Nothing,
}

impl Frame {
    /// Parses the bytes at `offset` as a frame's beginning; `room` is the greatest length of a
    /// frame there.
    pub(crate) fn peek(bytes: &[u8], salt: Salt, offset: u32, room: u32) -> Peek {
        if bytes.len() < HEADER {
            return Peek::Short(HEADER);
        }
        let Some([length, directory_len, index]) = fields(bytes, room) else { return Peek::Nothing };
        let end = HEADER + directory_len as usize;
        let Some(directory) = bytes.get(HEADER..end) else { return Peek::Short(end) };
        if header(salt, offset, [length, directory_len, index], directory) != bytes[..HEADER] {
            return Peek::Nothing;
        }
        Frame::decode(offset, length, index, directory).map_or(Peek::Nothing, Peek::Frame)
    }

    /// Parses the second copy of a frame's header and directory, at the end of these bytes, which
    /// end at offset `end`.
    pub(crate) fn peek_end(bytes: &[u8], salt: Salt, end: u32) -> Option<Frame> {
        let (rest, header_bytes) = bytes.split_last_chunk::<HEADER>()?;
        let [length, directory_len, index] = fields(header_bytes, end)?;
        let directory = &rest[rest.len().checked_sub(directory_len as usize)?..];
        let offset = end.checked_sub(length)?;
        let whole = header(salt, offset, [length, directory_len, index], directory) == *header_bytes;
        if whole { Frame::decode(offset, length, index, directory) } else { None }
    }

    fn decode(offset: u32, length: u32, index: u32, directory: &[u8]) -> Option<Frame> {
        let mut bytes = Bytes(directory);
        let count = bytes.varint()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Entry::get(&mut bytes)?);
        }
        Some(Frame { offset, length, index, entries, bodies: (HEADER + directory.len()) as u32 })
    }

    /// The offset of the frame's end.
    pub(crate) fn end(&self) -> u32 {
        self.offset + self.length
    }

    /// The sections with their bodies, `None` for a damaged body. `bytes` is the frame.
    pub(crate) fn sections<'a>(
        &'a self,
        bytes: &'a [u8],
        salt: Salt,
    ) -> impl Iterator<Item = (&'a Entry, Option<&'a [u8]>)> {
        self.places().map(move |(entry, (begin, end))| {
            let body = bytes.get(begin..end).filter(|body| salt.sum(&[body]) == entry.sum);
            (entry, body)
        })
    }

    /// The sections with the ranges of their bodies in the frame.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&Entry, (usize, usize))> {
        let mut at = self.bodies as usize;
        self.entries.iter().map(move |entry| {
            let begin = at;
            at = at.saturating_add(entry.bytes as usize);
            (entry, (begin, at))
        })
    }

    /// Whether all bodies of the frame are whole.
    pub(crate) fn is_whole(&self, bytes: &[u8], salt: Salt) -> bool {
        self.sections(bytes, salt).all(|(_, body)| body.is_some())
    }
}

fn fields(bytes: &[u8], room: u32) -> Option<[u32; 3]> {
    let mut bytes = Bytes(bytes);
    let fields = [bytes.u32()?, bytes.u32()?, bytes.u32()?];
    let [length, directory_len, _] = fields;
    let fits = length <= room && (length as usize).is_multiple_of(SECTOR);
    (fits && directory_len > 0 && directory_len < length).then_some(fields)
}

/// Iterates over the records of a section.
pub(crate) struct Records<'a> {
    bytes: Bytes<'a>,
    left: u32,
    tick: Tick,
    first: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn new(entry: &Entry, body: &'a [u8]) -> Records<'a> {
        Records { bytes: Bytes(body), left: entry.count, tick: entry.first, first: true }
    }

    fn get(&mut self) -> Option<(Tick, &'a [u8])> {
        if !std::mem::take(&mut self.first) {
            self.tick = self.tick.checked_add(self.bytes.varint()?)?;
        }
        let length = self.bytes.small()?;
        Some((self.tick, self.bytes.take(length as usize)?))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Tick, &'a [u8]);

    fn next(&mut self) -> Option<(Tick, &'a [u8])> {
        self.left = self.left.checked_sub(1)?;
        // The checksum was right, so that only a defect can leave a malformed record.
        Some(self.get().expect("a whole section holds as many records as it says"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Salt, Vec<Section>) {
        let mut a = Section::new(Kind::Fresh, 3, 10, Vec::new());
        a.push(11, &[b"one", b"two"], 6);
        a.push(u64::MAX, &[], 0);
        let mut b = Section::new(Kind::Moved, 70_000, 0, Vec::new());
        b.push(1, &[&[7; 2000]], 2000);
        (Salt::new(1, 2), vec![a, b, Section::own(Kind::Control, vec![1, 2, 3])])
    }

    fn encoded() -> (Salt, Vec<u8>) {
        let (salt, sections) = sample();
        let mut out = Vec::new();
        put_frame(&mut out, salt, (4096, 5), &sections);
        assert_eq!(out.len(), frame_len(&sections));
        (salt, out)
    }

    #[test]
    fn a_frame_comes_back_from_either_end() {
        let (salt, out) = encoded();
        let Peek::Frame(frame) = Frame::peek(&out, salt, 4096, 1 << 20) else { panic!("no frame") };
        assert_eq!((frame.length as usize, frame.index, frame.entries.len()), (out.len(), 5, 3));
        assert_eq!(Frame::peek_end(&out, salt, frame.end()), Some(frame.clone()));
        assert!(frame.is_whole(&out, salt));
        let records: Vec<_> = frame
            .sections(&out, salt)
            .take(2)
            .flat_map(|(entry, body)| Records::new(entry, body.unwrap()))
            .map(|(tick, bytes)| (tick, bytes.len()))
            .collect();
        assert_eq!(records, [(11, 6), (u64::MAX, 0), (1, 2000)]);
    }

    #[test]
    fn a_kind_comes_back_and_only_two_hold_records() {
        for kind in [Kind::Fresh, Kind::Moved, Kind::Control, Kind::State] {
            assert_eq!(Kind::from_bits(kind as u64), kind);
            assert_eq!(kind.is_records(), kind == Kind::Fresh || kind == Kind::Moved);
        }
    }

    #[test]
    fn the_room_for_a_section_is_what_the_longest_entries_take() {
        let (stream, most) = (u32::MAX, u32::MAX);
        let entry = Entry {
            kind: Kind::Moved,
            stream,
            count: most,
            bytes: most,
            after: 0,
            first: 1 << 63,
            last: u64::MAX,
            sum: 0,
        };
        let mut out = Vec::new();
        entry.put(&mut out);
        assert_eq!(out.len(), entry.encoded_len());
        assert!((SECTION_ROOM - 2..=SECTION_ROOM).contains(&(2 * out.len())), "{}", out.len());
    }

    #[test]
    fn a_record_takes_the_bytes_that_were_reckoned() {
        let mut section = Section::new(Kind::Fresh, 3, 10, Vec::new());
        for (tick, length) in [(11, 0), (12, 1), (139, 127), (140, 128), (300, 20_000), (u64::MAX, 3)] {
            let (before, cost) = (section.body.len(), section.cost(tick, length));
            section.push(tick, &[&vec![7; length]], length);
            assert_eq!(section.body.len() - before, cost, "tick {tick}");
        }
    }

    #[test]
    fn a_header_that_makes_no_sense_is_none() {
        let header = |length: u32, directory: u32| [length, directory, 0].map(u32::to_le_bytes).concat();
        assert!(fields(&header(512, 1), 512).is_some() && fields(&header(1024, 1023), 1024).is_some());
        for (length, directory) in [(0, 1), (1024, 1), (513, 1), (512, 0), (512, 512), (512, 4000)] {
            assert_eq!(fields(&header(length, directory), 512), None, "{length}, {directory}");
        }
        assert_eq!(Frame::peek(&[], Salt::new(1, 2), 0, 512), Peek::Short(HEADER));
        assert_eq!(Frame::peek(&[0; HEADER], Salt::new(1, 2), 0, 512), Peek::Nothing);
    }

    #[test]
    fn another_place_or_another_life_is_no_frame() {
        let (salt, out) = encoded();
        assert_eq!(Frame::peek(&out, salt, 4608, 1 << 20), Peek::Nothing);
        assert_eq!(Frame::peek(&out, Salt::new(1, 3), 4096, 1 << 20), Peek::Nothing);
        assert_eq!(Frame::peek(&[0; 512], salt, 4096, 1 << 20), Peek::Nothing);
        assert_eq!(Frame::peek(&out[..20], salt, 4096, 1 << 20), Peek::Short(16 + out[4] as usize));
    }

    #[test]
    fn every_flipped_bit_that_matters_is_noticed() {
        let (salt, out) = encoded();
        let Peek::Frame(frame) = Frame::peek(&out, salt, 4096, 1 << 20) else { panic!("no frame") };
        for bit in 0..out.len() * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let front = match Frame::peek(&bad, salt, 4096, 1 << 20) {
                Peek::Frame(found) => found == frame,
                _ => false,
            };
            let end = Frame::peek_end(&bad, salt, frame.end()).is_some();
            let bodies = frame.is_whole(&bad, salt);
            let padding = bad.len() - 2 * (HEADER + out[4] as usize);
            assert!(front || end, "a copy is always whole");
            let broken = [front, end, bodies].iter().filter(|whole| !**whole).count();
            assert!(broken == 1 || (broken == 0 && padding > 0), "bit {bit}");
        }
    }
}
