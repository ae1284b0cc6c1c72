//! The head of a segment: a header of one sector, written when the segment is begun, and a summary
//! in the rest of the first 4 KiB, written when it is full (sealed).
//!
//! The summary lists the *runs* in the segment: for each stream the range of ticks that it has
//! here, and the place of the run's index. A list that does not fit lies after the last frame.

use crate::storage::{Fault, Slot, Storage};
use crate::types::{HEAD, OpenError, SECTOR, Tick};
use crate::wire::{Bytes, Salt, VARINT_MAX, put_varint};

/// The version of the format that is written. Older versions that can be read: none yet.
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"WHIMJRNL";
const HEADER_BYTES: usize = 40;
const SUMMARY_FIXED: usize = 48;
/// Bytes of runs that fit into the head.
const RUNS_INLINE: usize = HEAD - SECTOR - SUMMARY_FIXED;
/// Most bytes of a run in a summary.
pub(crate) const RUN_ROOM: usize = 5 + 4 * VARINT_MAX + 2 * 5;
/// Most bytes of an extent in an index.
pub(crate) const EXTENT_ROOM: usize = 5 + 5 + VARINT_MAX;

/// The description of a segment, written when it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The journal's random number.
    pub journal: u64,
    /// The segment's number in the order of all segments ever begun: 1, 2, 3, …
    pub seq: u64,
    /// Bytes of the file.
    pub bytes: u32,
    /// Upper bound of the bytes of a frame in it.
    pub frame_max: u32,
}

impl Header {
    pub(crate) fn salt(&self) -> Salt {
        Salt::new(self.journal, self.seq)
    }

    /// The first sector of the segment.
    pub(crate) fn encode(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.journal.to_le_bytes());
        out[24..32].copy_from_slice(&self.seq.to_le_bytes());
        out[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.frame_max.to_le_bytes());
        let sum = header_sum(&out);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], slot: Slot) -> Result<Option<Header>, OpenError> {
        let mut fields = Bytes(bytes.get(8..HEADER_BYTES).unwrap_or_default());
        let (Some(version), Some(sum)) = (fields.u32(), fields.u32()) else { return Ok(None) };
        let (Some(journal), Some(seq)) = (fields.u64(), fields.u64()) else { return Ok(None) };
        let (Some(length), Some(frame_max)) = (fields.u32(), fields.u32()) else { return Ok(None) };
        if bytes[..8] != *MAGIC || sum != header_sum(bytes) {
            return Ok(None);
        }
        if version != VERSION {
            return Err(OpenError::Version { slot, version, known: VERSION });
        }
        Ok(Some(Header { journal, seq, bytes: length, frame_max }))
    }
}

/// The number of the segment that bytes at the beginning of a file begin, if they have its header:
/// 1, 2, 3, … in the order of all segments ever begun.
pub fn segment_number(bytes: &[u8]) -> Option<u64> {
    let sector = bytes.get(..SECTOR)?;
    Header::decode(sector, 0).ok().flatten().map(|header| header.seq)
}

/// Covers the whole sector except the checksum itself. The layout of the first 16 bytes and this
/// checksum are the same in all versions, so that an unknown version can be told from a damaged
/// header.
fn header_sum(sector: &[u8]) -> u32 {
    Salt::new(0, 0).sum(&[&sector[..12], &sector[16..SECTOR.min(sector.len())]])
}

/// Frames that lie close together and have records of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u32,
    pub end: u32,
    /// Every record of the run after this tick, and none before it, is in this extent or a later
    /// one.
    pub after: Tick,
}

/// Consecutive records of one stream in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub stream: u32,
    /// The run has every record of the stream after this tick …
    pub after: Tick,
    /// … up to this one, which is a record.
    pub last: Tick,
    /// Bytes of the bodies.
    pub bytes: u64,
    pub records: u64,
    /// The place of its index in the segment, once it is sealed: offset and length.
    pub index: (u32, u32),
    /// Number of its parts that the stream still uses. Not on disk.
    pub uses: u32,
}

/// The description of a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The end of the last frame.
    pub end: u32,
    pub frames: u32,
    pub runs: Vec<Run>,
}

impl Summary {
    /// Encodes the bytes after the last frame, a multiple of a sector, and those in the rest of the
    /// head. `extents` has the extents of each run.
    pub(crate) fn encode(
        header: &Header,
        (end, frames): (u32, u32),
        runs: &mut [Run],
        extents: &[Vec<Extent>],
    ) -> [Vec<u8>; 2] {
        let salt = header.salt();
        let mut behind = Vec::new();
        for (run, extents) in runs.iter_mut().zip(extents) {
            let begin = behind.len();
            put_index(&mut behind, extents);
            let sum = salt.sum(&[&behind[begin..]]);
            behind.extend_from_slice(&sum.to_le_bytes());
            run.index = (end + begin as u32, (behind.len() - begin) as u32);
        }
        let mut list = Vec::new();
        runs.iter().for_each(|run| put_run(&mut list, run));
        let list_sum = salt.sum(&[&list]);
        let place = if list.len() <= RUNS_INLINE { 0 } else { end + behind.len() as u32 };
        let mut head = vec![0; 4];
        head.extend_from_slice(&header.journal.to_le_bytes());
        head.extend_from_slice(&header.seq.to_le_bytes());
        for field in [end, frames, runs.len() as u32, list.len() as u32, list_sum, place, header.frame_max] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        assert_eq!(head.len(), SUMMARY_FIXED);
        let sum = salt.sum(&[&head[4..]]);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        if place == 0 {
            head.extend_from_slice(&list)
        } else {
            behind.extend_from_slice(&list)
        }
        head.resize(HEAD - SECTOR, 0);
        behind.resize(behind.len().next_multiple_of(SECTOR), 0);
        [behind, head]
    }

    /// The end of the bytes after the last frame: those of [`Summary::encode`].
    pub(crate) fn behind_end(&self) -> u32 {
        let mut list = Vec::new();
        self.runs.iter().for_each(|run| put_run(&mut list, run));
        let list = if list.len() <= RUNS_INLINE { 0 } else { list.len() as u32 };
        let indexes = self.runs.iter().fold(0u32, |bytes, run| bytes.saturating_add(run.index.1));
        let behind = indexes.saturating_add(list).checked_next_multiple_of(SECTOR as u32);
        self.end.saturating_add(behind.unwrap_or(u32::MAX))
    }
}

/// The contents of the head of a segment file.
pub(crate) struct Head {
    /// `None` if there is no readable header.
    pub header: Option<Header>,
    pub summary: Option<Summary>,
    /// The header is damaged, and was taken from the summary.
    pub repaired: bool,
    /// The head was never written.
    pub blank: bool,
    /// Bytes that were read beyond the head.
    pub extra: u64,
}

/// Reads the head of a segment file of this length.
pub(crate) fn read_head(storage: &impl Storage, slot: Slot, length: u64) -> Result<Head, OpenError> {
    let mut bytes = vec![0; HEAD];
    if length < HEAD as u64 {
        return Ok(Head { header: None, summary: None, repaired: false, blank: true, extra: 0 });
    }
    storage.read(slot, 0, &mut bytes)?;
    let (sector, rest) = bytes.split_at(SECTOR);
    let mut header = Header::decode(sector, slot)?;
    let mut extra = 0;
    let mut blank = sector.iter().all(|byte| *byte == 0);
    if blank && length >= (HEAD + SECTOR) as u64 {
        // If the whole head was lost, a frame follows it.
        let mut first = [0; SECTOR];
        storage.read(slot, HEAD as u64, &mut first)?;
        extra += SECTOR as u64;
        blank = first.iter().all(|byte| *byte == 0);
    }
    let mut repaired = false;
    let mut fixed = Bytes(&rest[4..SUMMARY_FIXED]);
    let (journal, seq) = (fixed.u64().unwrap_or(0), fixed.u64().unwrap_or(0));
    let fields: Vec<u32> = std::iter::from_fn(|| fixed.u32()).collect();
    let [end, frames, count, list_len, list_sum, place, frame_max] = fields[..] else {
        unreachable!("the fixed part of a summary holds seven fields")
    };
    let told = Header { journal, seq, bytes: length.min(u64::from(u32::MAX)) as u32, frame_max };
    let whole = rest[..4] == told.salt().sum(&[&rest[4..SUMMARY_FIXED]]).to_le_bytes();
    if !whole || header.is_some_and(|header| (header.journal, header.seq) != (journal, seq)) {
        return Ok(Head { header, summary: None, repaired, blank, extra });
    }
    if header.is_none() {
        (header, repaired) = (Some(told), true);
    }
    let mut list = rest[SUMMARY_FIXED..].get(..list_len as usize).unwrap_or_default().to_vec();
    if place != 0 && u64::from(place) + u64::from(list_len) <= length {
        list.resize(list_len as usize, 0);
        extra += u64::from(list_len);
        match storage.read(slot, u64::from(place), &mut list) {
            Ok(()) => {}
            Err(Fault::Full) | Err(Fault::Failed(_)) => list.clear(),
        }
    }
    let runs = if told.salt().sum(&[&list]) == list_sum { get_runs(&list, count) } else { None };
    let summary = runs.map(|runs| Summary { end, frames, runs });
    Ok(Head { header, summary, repaired, blank, extra })
}

fn put_run(out: &mut Vec<u8>, run: &Run) {
    put_varint(out, u64::from(run.stream));
    put_varint(out, run.after);
    put_varint(out, run.last - run.after);
    put_varint(out, run.bytes);
    put_varint(out, run.records);
    put_varint(out, u64::from(run.index.0));
    put_varint(out, u64::from(run.index.1));
}

fn get_runs(list: &[u8], count: u32) -> Option<Vec<Run>> {
    let mut bytes = Bytes(list);
    let mut runs = Vec::new();
    for _ in 0..count {
        let stream = bytes.small()?;
        let after = bytes.varint()?;
        let last = after.checked_add(bytes.varint()?)?;
        let (size, records) = (bytes.varint()?, bytes.varint()?);
        let index = (bytes.small()?, bytes.small()?);
        runs.push(Run { stream, after, last, bytes: size, records, index, uses: 0 });
    }
    Some(runs)
}

fn put_index(out: &mut Vec<u8>, extents: &[Extent]) {
    let (mut offset, mut after) = (0, 0);
    for extent in extents {
        put_varint(out, u64::from(extent.offset - offset) / SECTOR as u64);
        put_varint(out, u64::from(extent.end - extent.offset) / SECTOR as u64);
        put_varint(out, extent.after - after);
        (offset, after) = (extent.offset, extent.after);
    }
}

/// Reads the index of a run; `None` if it is damaged.
pub(crate) fn get_index(bytes: &[u8], salt: Salt) -> Option<Vec<Extent>> {
    let (index, sum) = bytes.split_last_chunk::<4>()?;
    if salt.sum(&[index]).to_le_bytes() != *sum {
        return None;
    }
    let mut bytes = Bytes(index);
    let mut extents = Vec::new();
    let (mut offset, mut after) = (0u32, 0u64);
    while !bytes.is_empty() {
        offset = offset.checked_add(bytes.small()?.checked_mul(SECTOR as u32)?)?;
        let end = offset.checked_add(bytes.small()?.checked_mul(SECTOR as u32)?)?;
        after = after.checked_add(bytes.varint()?)?;
        extents.push(Extent { offset, end, after });
    }
    Some(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twin::Twin;

    const HEADER: Header = Header { journal: 7, seq: 3, bytes: 256 << 10, frame_max: 8192 };

    fn run(stream: u32) -> Run {
        Run { stream, after: 1 << 40, last: 1 << 50, bytes: 1 << 20, records: 1000, index: (0, 0), uses: 0 }
    }

    #[test]
    fn a_summary_comes_back_however_long_it_is() {
        // Runs of about thirty bytes: the list exceeds the room in the head in small steps.
        for count in 1..250u32 {
            let mut runs: Vec<Run> = (0..count).map(run).collect();
            let extents = vec![vec![Extent { offset: 4096, end: 8192, after: 1 << 40 }]; runs.len()];
            let [behind, head] = Summary::encode(&HEADER, (8192, 2), &mut runs, &extents);
            assert_eq!((head.len(), behind.len() % SECTOR), (HEAD - SECTOR, 0));
            let twin = Twin::new();
            twin.create(0, u64::from(HEADER.bytes)).unwrap();
            twin.write(0, 0, &HEADER.encode()).unwrap();
            twin.write(0, SECTOR as u64, &head).unwrap();
            twin.write(0, 8192, &behind).unwrap();
            let read = read_head(&twin, 0, u64::from(HEADER.bytes)).unwrap();
            let summary = Summary { end: 8192, frames: 2, runs: runs.clone() };
            assert_eq!(summary.behind_end() as usize, 8192 + behind.len(), "{count} runs");
            assert_eq!(read.summary, Some(summary), "{count} runs");
            for run in runs {
                let (begin, length) = (run.index.0 as usize - 8192, run.index.1 as usize);
                assert_eq!(get_index(&behind[begin..begin + length], HEADER.salt()).as_ref(), extents.first());
            }
        }
    }

    #[test]
    fn the_room_for_a_run_and_for_an_extent_is_what_the_longest_ones_take() {
        let (far, most) = (1 << 63, u64::MAX);
        let run = Run {
            stream: u32::MAX,
            after: far,
            last: most,
            bytes: most,
            records: most,
            index: (u32::MAX, u32::MAX),
            uses: 0,
        };
        let mut out = Vec::new();
        put_run(&mut out, &run);
        assert_eq!(out.len(), RUN_ROOM - 1, "both distances cannot be the longest");
        let mut out = Vec::new();
        put_index(&mut out, &[Extent { offset: 1 << 30, end: 1 << 31, after: most }]);
        assert!((EXTENT_ROOM - 2..=EXTENT_ROOM).contains(&out.len()), "{}", out.len());
    }
}
