//! What a segment file holds, for a copy of the journal elsewhere.

use std::ops::Range;

use crate::scan::{Found, scan};
use crate::segment::{Head, read_head};
use crate::storage::{Slot, Storage};
use crate::types::{HEAD, OpenError, SECTOR};

/// What the head of a segment file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The number of its segment; `None` if it has no readable head.
    pub number: Option<u64>,
    /// The file was never written to.
    pub is_blank: bool,
}

/// The bytes of a segment file that the journal reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentContent {
    /// Each frame, with damaged bytes before it: one commit of the journal each.
    pub frames: Vec<Range<u64>>,
    /// The header, the frames with the indexes behind them, and the summary, in the order in which
    /// the journal writes them. The last one is empty unless the segment is sealed.
    pub parts: [Range<u64>; 3],
}

/// Reads the head of a segment file of this length, 4 KiB.
///
/// # Errors
/// When it cannot be read, or has an unknown version.
pub fn segment_head(storage: &impl Storage, slot: Slot, length: u64) -> Result<SegmentHead, OpenError> {
    let Head { header, blank, .. } = read_head(storage, slot, length)?;
    let number = header.filter(|header| u64::from(header.bytes) == length).map(|header| header.seq);
    Ok(SegmentHead { number, is_blank: blank })
}

/// Reads the frames of a segment file of this length; `None` if it has no segment. A torn end is
/// not among them.
///
/// # Errors
/// When it cannot be read, or has an unknown version.
pub fn segment_content(storage: &impl Storage, slot: Slot, length: u64) -> Result<Option<SegmentContent>, OpenError> {
    let Head { header, summary, .. } = read_head(storage, slot, length)?;
    let Some(header) = header.filter(|header| u64::from(header.bytes) == length) else { return Ok(None) };
    let limit = summary.as_ref().map_or(header.bytes, |summary| summary.end.min(header.bytes));
    let mut begins = Vec::new();
    let end = scan(storage, (slot, &header), limit, &mut |found| {
        begins.push(match found {
            Found::Frame { frame, .. } => u64::from(frame.offset),
            Found::Hole { offset } => u64::from(offset),
        });
        true
    })?;
    let ends = begins.iter().copied().skip(1).chain([u64::from(end.end)]);
    let frames = begins.iter().copied().zip(ends).map(|(begin, end)| begin..end).collect();
    let end = summary.as_ref().map_or(end.end, |summary| summary.behind_end().max(end.end));
    let sealed = if summary.is_some() { SECTOR as u64..HEAD as u64 } else { 0..0 };
    let parts = [0..SECTOR as u64, HEAD as u64..u64::from(end).min(length), sealed];
    Ok(Some(SegmentContent { frames, parts }))
}
