//! A stream of bytes, cut into frames.

use crate::bytes::Reader;
use crate::{FRAME_BYTES_MAX, Invalid};

/// Bytes of the longest length that a frame may have.
const LENGTH_BYTES_MAX: usize = 4;

/// A buffer that has grown beyond this is given back when its frame is done, bytes.
const KEPT_MAX: usize = 64 << 10;

/// Cuts a stream that comes in chunks, split anywhere, into frames. Holds at most one frame that is
/// not whole yet: [`FRAME_BYTES_MAX`] and its length, in a buffer that has grown with what came, so
/// it takes at most twice of that.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The beginning of a frame, with its length; or, if `is_done`, a whole one that was handed
    /// out.
    held: Vec<u8>,
    is_done: bool,
    /// What was wrong; there is no way to find the next frame then.
    failed: Option<Invalid>,
}

impl Cutter {
    /// A stream of which nothing has come.
    pub fn new() -> Cutter {
        Cutter::default()
    }

    /// The next frame (its type and body, for [`crate::Frame::decode`]), and what is left of
    /// `chunk` behind it; `None` when the chunk has no more whole frame, all of which was then
    /// taken. A frame that lies in the chunk as a whole is not copied.
    ///
    /// # Errors
    /// [`Invalid::TooLong`], [`Invalid::Empty`] or [`Invalid::Number`], all about a length, as soon
    /// as that has come. The stream is of no use any more, and each further call says the same.
    pub fn next<'s, 'c: 's>(&'s mut self, chunk: &mut &'c [u8]) -> Result<Option<&'s [u8]>, Invalid> {
        if let Some(invalid) = self.failed {
            return Err(invalid);
        }
        if self.is_done {
            self.forget();
        }
        let found = if self.held.is_empty() { self.cut(chunk) } else { self.complete(chunk) };
        match found {
            Ok(FrameAt::Nothing) => Ok(None),
            Ok(FrameAt::InChunk(frame)) => Ok(Some(frame)),
            Ok(FrameAt::HeldStream { length_bytes }) => Ok(Some(&self.held[length_bytes..])),
            Err(invalid) => {
                self.failed = Some(invalid);
                Err(invalid)
            }
        }
    }

    /// Bytes of the frame that is not whole yet.
    pub fn held_bytes(&self) -> usize {
        if self.is_done { 0 } else { self.held.len() }
    }

    fn forget(&mut self) {
        self.is_done = false;
        if self.held.capacity() > KEPT_MAX {
            self.held = Vec::new();
        }
        self.held.clear();
    }

    /// A frame that begins with the chunk.
    fn cut<'c>(&mut self, chunk: &mut &'c [u8]) -> Result<FrameAt<'c>, Invalid> {
        if let Some((begin, length)) = frame_length(chunk)?
            && let Some((frame, rest)) = chunk[begin..].split_at_checked(length)
        {
            *chunk = rest;
            return Ok(FrameAt::InChunk(frame));
        }
        self.held.extend_from_slice(chunk);
        *chunk = &[];
        Ok(FrameAt::Nothing)
    }

    /// The frame that is held, with more bytes.
    fn complete<'c>(&mut self, chunk: &mut &'c [u8]) -> Result<FrameAt<'c>, Invalid> {
        // At most as often as a length has bytes.
        let (begin, length) = loop {
            if let Some(known) = frame_length(&self.held)? {
                break known;
            }
            let Some((byte, rest)) = chunk.split_first() else { return Ok(FrameAt::Nothing) };
            self.held.push(*byte);
            *chunk = rest;
        };
        let missing = begin + length - self.held.len();
        let (here, rest) = chunk.split_at(missing.min(chunk.len()));
        self.held.extend_from_slice(here);
        *chunk = rest;
        self.is_done = here.len() == missing;
        Ok(if self.is_done { FrameAt::HeldStream { length_bytes: begin } } else { FrameAt::Nothing })
    }
}

/// Where the next frame lies.
enum FrameAt<'c> {
    Nothing,
    InChunk(&'c [u8]),
    HeldStream { length_bytes: usize },
}

/// How many bytes the length at the beginning takes, and what it says; `None` if it is not there as
/// a whole.
fn frame_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Invalid> {
    // No more of it is looked at than has to be there, so that it does not matter what came along.
    let begin = &bytes[..bytes.len().min(LENGTH_BYTES_MAX)];
    let mut input = Reader(begin);
    match input.varint() {
        Ok(0) => Err(Invalid::Empty),
        Ok(length) if length > FRAME_BYTES_MAX as u64 => Err(Invalid::TooLong),
        Ok(length) => Ok(Some((begin.len() - input.0.len(), length as usize))),
        Err(Invalid::Truncated) if begin.len() == LENGTH_BYTES_MAX => Err(Invalid::TooLong),
        Err(Invalid::Truncated) => Ok(None),
        Err(invalid) => Err(invalid),
    }
}
