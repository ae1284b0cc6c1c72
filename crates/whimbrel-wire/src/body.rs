//! The contents of frames: how they are read and written, whatever their type.

use crate::bytes::{Reader, varint};
use crate::{FRAME_BYTES_MAX, Invalid};

/// The contents of a frame behind its type.
pub(crate) trait Body<'a>: Sized {
    /// Reads all fields that this version knows.
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid>;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
}

/// Appends the length and type of a frame and the bytes of `put`; the length includes `behind`
/// bytes that the caller appends afterwards.
pub(crate) fn put_frame(out: &mut Vec<u8>, number: u8, behind: usize, put: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.push(number);
    put(out);
    let length = out.len() - begin + behind;
    assert!(length <= FRAME_BYTES_MAX, "whoever makes a frame keeps it below {FRAME_BYTES_MAX} bytes");
    let (bytes, count) = varint(length as u64);
    out.extend_from_slice(&bytes[..count]);
    out.copy_within(begin..begin + length - behind, begin + count);
    out[begin..begin + count].copy_from_slice(&bytes[..count]);
}

/// The type of [`crate::Frame::Event`], whose header is also written without its event.
pub(crate) const EVENT: u8 = 7;

/// The type of [`crate::Frame::DeadlineEvent`], as [`EVENT`].
pub(crate) const DEADLINE_EVENT: u8 = 22;

/// The type of [`crate::Frame::CopiedEvent`], as [`EVENT`].
pub(crate) const COPIED_EVENT: u8 = 25;
