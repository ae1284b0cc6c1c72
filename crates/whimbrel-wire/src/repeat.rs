//! An event that went in the datagram before, once more: as the difference of its frame to the
//! frame in front of it.
//!
//! Two events that follow each other over a link mostly have the same stream, destinations,
//! publisher and topic, at the same places of their frames. So a run of bytes is copied from the
//! frame in front, at the same distance from its begin or from its end, and the rest stands in the
//! repeat.

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{Invalid, REPEATED_BYTES_MAX};

/// Fewer bytes are not worth the two or three of a run.
const COPIED_MIN: usize = 4;

/// A bit of the length of what is copied: its place is counted from the end.
const FROM_END: usize = 1;
const COPIED_SHIFT: u32 = 1;

/// A repeated event, behind another event in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat<'a> {
    /// The sequence of its frame, see [`crate::LinkStamp::sequence`]: a receiver that has the frame
    /// need not restore it.
    pub sequence: u16,
    /// Bytes of its frame without the length, 1 to [`REPEATED_BYTES_MAX`].
    pub length: usize,
    /// Its bytes in runs, for [`Repeat::restore`].
    pub runs: &'a [u8],
}

/// One run.
struct CopiedRun<'a> {
    copied: usize,
    is_from_end: bool,
    own: &'a [u8],
}

impl<'a> CopiedRun<'a> {
    fn read(input: &mut Reader<'a>, is_first: bool) -> Result<CopiedRun<'a>, Invalid> {
        let first: usize = input.small("a run")?;
        let own = input.bytes(REPEATED_BYTES_MAX, "bytes of a run")?;
        let (copied, is_from_end) = (first >> COPIED_SHIFT, first & FROM_END != 0);
        let is_right = if copied == 0 { is_first && !is_from_end && !own.is_empty() } else { true };
        if is_right { Ok(CopiedRun { copied, is_from_end, own }) } else { Err(Invalid::Form("a run")) }
    }

    fn len(&self) -> usize {
        self.copied.saturating_add(self.own.len())
    }
}

impl<'a> Repeat<'a> {
    /// The difference of a frame to the one in front of the repeat, both without their lengths.
    /// Appends its runs to `runs`.
    ///
    /// # Panics
    /// When the frame is empty or has more than [`REPEATED_BYTES_MAX`] bytes.
    pub fn of(sequence: u16, frame: &[u8], front: &[u8], runs: &'a mut Vec<u8>) -> Repeat<'a> {
        assert!((1..=REPEATED_BYTES_MAX).contains(&frame.len()), "only small frames are repeated");
        let begin = runs.len();
        let mut at = 0;
        while at < frame.len() {
            let (copied, is_from_end) = copy_at(frame, front, at);
            let own = at + copied;
            at = (own..frame.len()).find(|at| copy_at(frame, front, *at).0 > 0).unwrap_or(frame.len());
            runs.put_varint(((copied << COPIED_SHIFT) | if is_from_end { FROM_END } else { 0 }) as u64);
            runs.put_varint((at - own) as u64);
            runs.extend_from_slice(&frame[own..at]);
        }
        Repeat { sequence, length: frame.len(), runs: &runs[begin..] }
    }

    /// Appends the frame, without its length, to `out`. `front`: the frame in front of the repeat,
    /// without its length.
    ///
    /// # Errors
    /// When the frame in front has not all of the bytes that are copied.
    pub fn restore(&self, front: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
        let (begin, mut input) = (out.len(), Reader(self.runs));
        while !input.0.is_empty() {
            let at = out.len() - begin;
            let run = CopiedRun::read(&mut input, at == 0)?;
            let from = if run.is_from_end { from_end(self.length, front, at) } else { Some(at) };
            let copied = from.and_then(|from| front.get(from..from.checked_add(run.copied)?));
            out.extend_from_slice(copied.ok_or(Invalid::Range("a run"))?);
            out.extend_from_slice(run.own);
        }
        Ok(())
    }
}

/// The place in `front` that is as far from its end as `at` is from the end of a frame.
fn from_end(length: usize, front: &[u8], at: usize) -> Option<usize> {
    (front.len() + at).checked_sub(length)
}

/// The number of bytes from `at` on that can be copied, 0 or at least [`COPIED_MIN`], and whether
/// their place is counted from the end.
fn copy_at(frame: &[u8], front: &[u8], at: usize) -> (usize, bool) {
    let same = |from: Option<usize>| {
        let Some(there) = from.and_then(|from| front.get(from..)) else { return 0 };
        frame[at..].iter().zip(there).take_while(|(one, other)| one == other).count()
    };
    let (begin, end) = (same(Some(at)), same(from_end(frame.len(), front, at)));
    match begin.max(end) {
        few if few < COPIED_MIN => (0, false),
        copied => (copied, end > begin),
    }
}

impl<'a> Body<'a> for Repeat<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let sequence = u16::from_le_bytes(input.array()?);
        let length = input.small("the length of a repeated frame")?;
        if length == 0 || length > REPEATED_BYTES_MAX {
            return Err(Invalid::Range("the length of a repeated frame"));
        }
        let runs = input.0;
        let mut known = 0;
        while known < length {
            known = CopiedRun::read(input, known == 0)?.len().saturating_add(known);
        }
        if known > length {
            return Err(Invalid::Range("a run"));
        }
        Ok(Repeat { sequence, length, runs: &runs[..runs.len() - input.0.len()] })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!((1..=REPEATED_BYTES_MAX).contains(&self.length), "its maker bounds it");
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.put_varint(self.length as u64);
        out.extend_from_slice(self.runs);
    }
}
