//! Verification of every checksum of a journal that is not in use.

use std::collections::BTreeMap;

use crate::frame::Kind;
use crate::scan::{Found, scan};
use crate::segment::{Head, Header, Summary, get_index, read_head};
use crate::storage::{Slot, Storage};
use crate::types::{HEAD, OpenError};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// One result per segment, in the order of the segments.
    pub segments: Vec<SegmentCheck>,
    /// Files without a segment.
    pub free: Vec<Slot>,
    /// Bytes read.
    pub bytes_read: u64,
}

/// The result for one segment. Nothing in the segment need be in use any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentCheck {
    /// The segment's place in the order of all segments.
    pub seq: u64,
    /// The segment's file.
    pub slot: Slot,
    /// Whether it is sealed.
    pub sealed: bool,
    /// The number of whole and damaged frames.
    pub frames: u32,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Records by stream number, relocated ones included.
    pub records: BTreeMap<u32, u64>,
    /// Offset of each error, in bytes from the beginning of the file, with its description.
    pub wrong: Vec<(u64, String)>,
}

impl CheckReport {
    /// Whether there is no error.
    pub fn is_whole(&self) -> bool {
        self.segments.iter().all(|segment| segment.wrong.is_empty())
    }
}

/// Reads all segments and verifies every checksum. Only for a journal that is not written
/// meanwhile. A torn end is not an error.
///
/// # Errors
/// When the files cannot be read, or have an unknown version.
pub fn check(storage: &impl Storage) -> Result<CheckReport, OpenError> {
    let mut report = CheckReport::default();
    for (slot, length) in storage.slots()? {
        let Head { header, summary, repaired, extra, .. } = read_head(storage, slot, length)?;
        report.bytes_read += HEAD as u64 + extra;
        let Some(header) = header.filter(|header| u64::from(header.bytes) <= length) else {
            report.free.push(slot);
            continue;
        };
        let mut found = SegmentCheck { seq: header.seq, slot, sealed: summary.is_some(), ..SegmentCheck::default() };
        if repaired {
            found.wrong.push((0, "the header is damaged".into()));
        }
        report.bytes_read += check_frames(storage, (slot, &header), summary.as_ref(), &mut found)?;
        for run in summary.iter().flat_map(|summary| &summary.runs) {
            let mut index = vec![0; run.index.1 as usize];
            storage.read(slot, u64::from(run.index.0), &mut index)?;
            report.bytes_read += index.len() as u64;
            if get_index(&index, header.salt()).is_none() {
                found
                    .wrong
                    .push((u64::from(run.index.0), format!("the index of stream number {} is damaged", run.stream)));
            }
        }
        report.segments.push(found);
    }
    report.segments.sort_by_key(|segment| segment.seq);
    Ok(report)
}

fn check_frames(
    storage: &impl Storage,
    (slot, header): (Slot, &Header),
    summary: Option<&Summary>,
    found: &mut SegmentCheck,
) -> Result<u64, OpenError> {
    let salt = header.salt();
    let limit = summary.map_or(header.bytes, |summary| summary.end.min(header.bytes));
    let end = scan(storage, (slot, header), limit, &mut |next| {
        match next {
            Found::Hole { offset } => {
                found.wrong.push((u64::from(offset), "a frame is damaged in both headers".into()))
            }
            Found::Frame { frame, bytes, copy } => {
                let offset = u64::from(frame.offset);
                if copy {
                    found.wrong.push((offset, "the first header of a frame is damaged".into()));
                }
                for (entry, body) in frame.sections(bytes, salt) {
                    match (entry.kind, body) {
                        (Kind::Fresh | Kind::Moved, Some(_)) => {
                            *found.records.entry(entry.stream).or_default() += u64::from(entry.count);
                        }
                        (Kind::Fresh | Kind::Moved, None) => {
                            let (number, after, last) = (entry.stream, entry.after, entry.last);
                            let what = format!("stream number {number} lost ticks after {after} up to {last}");
                            found.wrong.push((offset, what));
                        }
                        (Kind::Control | Kind::State, Some(_)) => {}
                        (Kind::Control | Kind::State, None) => {
                            found.wrong.push((offset, "a copy of the journal's own entries is damaged".into()));
                        }
                    }
                }
            }
        }
        true
    })?;
    if summary.is_some_and(|summary| summary.end != end.end) {
        found.wrong.push((u64::from(end.end), "frames are missing at the end".into()));
    }
    if let Some(summary) = summary.filter(|summary| summary.frames != end.frames) {
        let what = format!("there are {} frames, and the file says that there are {}", end.frames, summary.frames);
        found.wrong.push((u64::from(end.end), what));
    }
    found.frames = end.frames;
    found.bytes = u64::from(end.end) - HEAD as u64;
    Ok(end.read)
}
