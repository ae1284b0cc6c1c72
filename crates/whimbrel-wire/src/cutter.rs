//! Cuts a stream of bytes into frames.

use crate::bytes::Reader;
use crate::{FRAME_BYTES_MAX, Invalid};

/// Bytes of the longest length prefix of a frame.
const LENGTH_BYTES_MAX: usize = 4;

/// Bytes of a buffer beyond which it is freed when its frame is done.
const KEPT_MAX: usize = 64 << 10;

/// Cuts a stream that arrives in chunks, split anywhere, into frames. Holds at most one incomplete
/// frame: [`FRAME_BYTES_MAX`] and its length, in a buffer that grows with the received bytes, so it
/// takes at most twice that.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The beginning of a frame, with its length; if `is_done`, a complete one that was returned.
    held: Vec<u8>,
    is_done: bool,
    /// The error; the next frame cannot be found after it.
    failed: Option<Invalid>,
}

impl Cutter {
    /// A cutter at the beginning of a stream.
    pub fn new() -> Cutter {
        Cutter::default()
    }

    /// Returns the next frame (its type and body, for [`crate::Frame::decode`]), and moves `chunk`
    /// behind it; `None` when the chunk has no further complete frame: all of it is then taken. A
    /// frame that lies in the chunk as a whole is not copied.
    ///
    /// # Errors
    /// [`Invalid::TooLong`], [`Invalid::Empty`] or [`Invalid::Number`], all about a length, as soon
    /// as the length is received. The stream cannot be used any more, and each further call returns
    /// the same error.
    pub fn next<'s, 'c: 's>(&'s mut self, chunk: &mut &'c [u8]) -> Result<Option<&'s [u8]>, Invalid> {
        Ok(match self.find(chunk)? {
            FrameAt::Nowhere => None,
            FrameAt::Chunk(frame) => Some(frame),
            FrameAt::Held { length_bytes } => Some(self.held_frame(length_bytes)),
        })
    }

    /// As [`Cutter::next`], but tells only where the frame is: one in the chunk does not borrow the
    /// cutter.
    ///
    /// # Errors
    /// As [`Cutter::next`].
    #[inline]
    pub fn find<'c>(&mut self, chunk: &mut &'c [u8]) -> Result<FrameAt<'c>, Invalid> {
        if let Some(invalid) = self.failed {
            return Err(invalid);
        }
        if self.is_done {
            self.forget();
        }
        let found = if self.held.is_empty() { self.cut(chunk) } else { self.complete(chunk) };
        self.failed = found.as_ref().err().copied();
        found
    }

    /// The frame that the cutter holds, until the next call of [`Cutter::find`].
    pub fn held_frame(&self, length_bytes: usize) -> &[u8] {
        &self.held[length_bytes..]
    }

    /// Bytes of the incomplete frame.
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

    /// Cuts a frame that begins with the chunk.
    fn cut<'c>(&mut self, chunk: &mut &'c [u8]) -> Result<FrameAt<'c>, Invalid> {
        if let Some((begin, length)) = frame_length(chunk)?
            && let Some((frame, rest)) = chunk[begin..].split_at_checked(length)
        {
            *chunk = rest;
            return Ok(FrameAt::Chunk(frame));
        }
        self.held.extend_from_slice(chunk);
        *chunk = &[];
        Ok(FrameAt::Nowhere)
    }

    /// Completes the held frame with more bytes.
    fn complete<'c>(&mut self, chunk: &mut &'c [u8]) -> Result<FrameAt<'c>, Invalid> {
        // At most as many rounds as a length has bytes.
        let (begin, length) = loop {
            if let Some(known) = frame_length(&self.held)? {
                break known;
            }
            let Some((byte, rest)) = chunk.split_first() else { return Ok(FrameAt::Nowhere) };
            self.held.push(*byte);
            *chunk = rest;
        };
        let missing = begin + length - self.held.len();
        let (here, rest) = chunk.split_at(missing.min(chunk.len()));
        self.held.extend_from_slice(here);
        *chunk = rest;
        self.is_done = here.len() == missing;
        Ok(if self.is_done { FrameAt::Held { length_bytes: begin } } else { FrameAt::Nowhere })
    }
}

/// The place of the next frame of a stream.
#[derive(Clone, Copy, Debug)]
pub enum FrameAt<'c> {
    /// The chunk has no further complete frame: all of it was taken.
    Nowhere,
    /// It lies in the chunk as a whole.
    Chunk(&'c [u8]),
    /// The cutter holds it, behind the bytes of its length: [`Cutter::held_frame`].
    Held {
        /// Bytes of the length before the frame.
        length_bytes: usize,
    },
}

/// The number of bytes of the length at the beginning, and the length; `None` if it is incomplete.
fn frame_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Invalid> {
    // Reads no further than the longest length, so that the result does not depend on the bytes
    // behind it.
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
