//! Iterates over all frames of a segment, and tells a torn end from damage in the middle.
//!
//! At most one write is in flight, and the next one begins only when it is durable. A crash
//! therefore leaves at most one unfinished frame, which nothing follows. Where a frame of this use
//! of the segment follows bytes that are no whole frame, those bytes were durable once: that is
//! damage. The search for the next frame extends over the length of the longest frame.

use crate::frame::{Frame, Peek};
use crate::segment::Header;
use crate::storage::{Fault, Slot, Storage};
use crate::types::{HEAD, SECTOR};

/// Bytes per read.
const PIECE: usize = 256 << 10;

/// An item found by a scan.
pub(crate) enum Found<'a> {
    /// A frame whose directory is whole, and its bytes; `copy` if only the second copy is. Its
    /// bodies need not be whole.
    Frame { frame: &'a Frame, bytes: &'a [u8], copy: bool },
    /// Unknown bytes, and their offset.
    Hole { offset: u32 },
}

/// The end of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanEnd {
    /// The end of the last frame.
    pub end: u32,
    /// The number of frames.
    pub frames: u32,
    /// The beginning of a frame follows the last one.
    pub torn: bool,
    /// The number of bytes read.
    pub read: u64,
}

/// A part of the file in memory.
struct Window<'a, S> {
    storage: &'a S,
    slot: Slot,
    limit: u32,
    base: u32,
    bytes: Vec<u8>,
    read: u64,
}

impl<S: Storage> Window<'_, S> {
    /// The bytes from `offset` on, at least `length` of them if the file has them.
    fn at(&mut self, offset: u32, length: usize) -> Result<&[u8], Fault> {
        let length = length.min(self.limit.saturating_sub(offset) as usize);
        let have = offset >= self.base && (offset - self.base) as usize + length <= self.bytes.len();
        if !have {
            let want = length.max(PIECE).min(self.limit.saturating_sub(offset) as usize);
            // Bytes that are in memory already are not read again: a scan reads each byte once.
            let kept = match offset.checked_sub(self.base) {
                Some(skip) if (skip as usize) < self.bytes.len() => {
                    self.bytes.drain(..skip as usize);
                    self.bytes.len()
                }
                _ => {
                    self.bytes.clear();
                    0
                }
            };
            self.base = offset;
            let want = want.max(kept);
            self.bytes.resize(want, 0);
            let filled = self.storage.read(self.slot, u64::from(offset) + kept as u64, &mut self.bytes[kept..]);
            if let Err(fault) = filled {
                self.bytes.clear();
                return Err(fault);
            }
            self.read += (want - kept) as u64;
        }
        Ok(&self.bytes[(offset - self.base) as usize..])
    }
}

/// Calls `on` with the frames of a segment up to `limit`, until it returns false.
///
/// # Errors
/// When the disk cannot read the bytes.
pub(crate) fn scan<S: Storage>(
    storage: &S,
    (slot, header): (Slot, &Header),
    mut limit: u32,
    on: &mut dyn FnMut(Found) -> bool,
) -> Result<ScanEnd, Fault> {
    let mut window = Window { storage, slot, limit, base: 0, bytes: Vec::new(), read: 0 };
    let salt = header.salt();
    let mut end = ScanEnd { end: HEAD as u32, ..ScanEnd::default() };
    let mut offset = HEAD as u32;
    while offset < limit {
        if let Some(frame) = frame_at(&mut window, header, offset)? {
            let bytes = &window.at(offset, frame.length as usize)?[..frame.length as usize];
            if !frame.is_whole(bytes, salt) && next_frame(&mut window, header, frame.end())?.is_none() {
                end.torn = true;
                break;
            }
            let bytes = &window.at(offset, frame.length as usize)?[..frame.length as usize];
            let more = on(Found::Frame { frame: &frame, bytes, copy: false });
            offset = frame.end();
            if !more {
                limit = offset;
            }
        } else {
            let Some(next) = next_frame(&mut window, header, offset + SECTOR as u32)? else { break };
            let before = window.at(offset, (next - offset) as usize)?;
            let before = &before[..(next - offset) as usize];
            let copy = Frame::peek_end(before, salt, next).filter(|frame| frame.offset >= offset);
            if copy.as_ref().is_none_or(|frame| frame.offset > offset) {
                limit = if on(Found::Hole { offset }) { limit } else { next };
            }
            if let Some(frame) = copy {
                let bytes = &before[(frame.offset - offset) as usize..];
                limit = if on(Found::Frame { frame: &frame, bytes, copy: true }) { limit } else { next };
            }
            offset = next;
        }
        end.frames += 1;
        end.end = offset;
    }
    end.read = window.read;
    Ok(end)
}

/// The frame that begins here, if it fits.
fn frame_at<S: Storage>(window: &mut Window<S>, header: &Header, offset: u32) -> Result<Option<Frame>, Fault> {
    let room = header.frame_max.min(window.limit - offset);
    let mut want = SECTOR;
    loop {
        match Frame::peek(window.at(offset, want)?, header.salt(), offset, room) {
            Peek::Frame(frame) => return Ok(Some(frame)),
            Peek::Short(more) if more > want && more <= room as usize => want = more,
            Peek::Short(_) | Peek::Nothing => return Ok(None),
        }
    }
}

/// The offset of the next frame at or after this offset.
fn next_frame<S: Storage>(window: &mut Window<S>, header: &Header, from: u32) -> Result<Option<u32>, Fault> {
    let limit = window.limit.min(from.saturating_add(header.frame_max));
    if from < limit {
        window.at(from, (limit - from) as usize)?;
    }
    let mut offset = from;
    while offset < limit {
        if frame_at(window, header, offset)?.is_some() {
            return Ok(Some(offset));
        }
        offset += SECTOR as u32;
    }
    Ok(None)
}
