//! Copies of a journal while it is in use.

use crate::log::Log;
use crate::segment::Header;
use crate::storage::{Fault, Slot, Storage};
use crate::types::{HEAD, SECTOR};

/// Bytes per read of a copy.
const PIECE: usize = 1 << 20;

/// The journal's state at one moment. No segment of it is reused until [`Log::end_cut`].
#[derive(Clone, Debug)]
pub struct Cut {
    /// Bytes of a file.
    bytes: u32,
    sealed: Vec<Slot>,
    /// The segment that was being written, and the end of its last durable frame.
    tail: Option<(Header, Slot, u32)>,
}

/// A file of a [`Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// The file's number.
    pub slot: Slot,
    /// The file's length, bytes.
    pub bytes: u64,
    /// Bytes to copy, from the beginning; the others are zeros.
    pub used: u64,
}

impl Log {
    /// Marks the state to copy, and keeps it until [`Log::end_cut`], which must follow.
    pub fn begin_cut(&mut self) -> Cut {
        self.pin();
        Cut {
            bytes: self.options().segment_bytes,
            sealed: self.sealed().map(|(_, slot)| slot).collect(),
            tail: self.tail(),
        }
    }

    /// Releases the segments that [`Log::begin_cut`] has kept.
    pub fn end_cut(&mut self) {
        self.unpin();
    }
}

impl Cut {
    /// The files of a copy.
    pub fn files(&self) -> impl Iterator<Item = CutFile> {
        let bytes = u64::from(self.bytes);
        let sealed = self.sealed.iter().map(move |slot| CutFile { slot: *slot, bytes, used: bytes });
        let tail = self.tail.iter().map(move |(_, slot, end)| CutFile { slot: *slot, bytes, used: u64::from(*end) });
        sealed.chain(tail)
    }

    /// Fills `bytes` with the contents of the file's copy from `offset` on.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read(&self, from: &impl Storage, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        from.read(slot, offset, bytes)?;
        if let Some((header, ..)) = self.tail.as_ref().filter(|(_, tail, _)| *tail == slot) {
            // The head is not copied: the segment may be sealed by now, with frames later than this
            // moment.
            let mut head = [0; HEAD];
            head[..SECTOR].copy_from_slice(&header.encode());
            let begin = (offset as usize).min(HEAD);
            let length = (HEAD - begin).min(bytes.len());
            bytes[..length].copy_from_slice(&head[begin..begin + length]);
        }
        Ok(())
    }

    /// Copies the marked state into storage without files, where it can be opened as a journal.
    ///
    /// # Errors
    /// When either disk fails.
    pub fn copy(&self, from: &impl Storage, to: &impl Storage) -> Result<(), Fault> {
        let mut buffer = vec![0; PIECE];
        for CutFile { slot, bytes, used } in self.files() {
            to.create(slot, bytes)?;
            let mut offset = 0;
            while offset < used {
                let length = PIECE.min((used - offset) as usize);
                self.read(from, slot, offset, &mut buffer[..length])?;
                to.write(slot, offset, &buffer[..length])?;
                offset += length as u64;
            }
            to.sync(slot)?;
        }
        Ok(())
    }
}
