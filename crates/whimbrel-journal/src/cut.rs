//! Copying a journal while it is used.

use crate::log::Log;
use crate::segment::Header;
use crate::storage::{Fault, Slot, Storage};
use crate::types::HEAD;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// The journal as it was at one moment. Nothing of it is given back until [`Log::end_cut`].
#[derive(Clone, Debug)]
pub struct Cut {
    /// Bytes of a file.
    bytes: u32,
    sealed: Vec<Slot>,
    /// The segment that was being written, and where its last durable frame ended.
    tail: Option<(Header, Slot, u32)>,
}

impl Log {
    /// Marks what a copy must hold, and keeps it until [`Log::end_cut`], which must follow.
    pub fn begin_cut(&mut self) -> Cut {
        self.pin();
        Cut {
            bytes: self.options().segment_bytes,
            sealed: self.sealed().map(|(_, slot)| slot).collect(),
            tail: self.tail(),
        }
    }

    /// Lets go of what [`Log::begin_cut`] has kept.
    pub fn end_cut(&mut self) {
        self.unpin();
    }
}

impl Cut {
    /// The files that do not change any more, to be copied whole, for those who copy by other means.
    pub fn sealed(&self) -> &[Slot] {
        &self.sealed
    }

    /// Copies what was marked into storage without files, where it can be opened as a journal.
    ///
    /// # Errors
    /// When either disk fails.
    pub fn copy(&self, from: &impl Storage, to: &impl Storage) -> Result<(), Fault> {
        for slot in &self.sealed {
            to.create(*slot, u64::from(self.bytes))?;
            copy_range(from, to, *slot, (0, self.bytes))?;
            to.sync(*slot)?;
        }
        if let Some((header, slot, end)) = &self.tail {
            to.create(*slot, u64::from(self.bytes))?;
            // Not its head: it may be sealed by now, with frames that do not belong to this moment.
            to.write(*slot, 0, &header.encode())?;
            copy_range(from, to, *slot, (HEAD as u32, *end))?;
            to.sync(*slot)?;
        }
        Ok(())
    }
}

fn copy_range(from: &impl Storage, to: &impl Storage, slot: Slot, (begin, end): (u32, u32)) -> Result<(), Fault> {
    let mut buffer = vec![0; PIECE];
    let mut offset = begin;
    while offset < end {
        let length = PIECE.min((end - offset) as usize);
        from.read(slot, u64::from(offset), &mut buffer[..length])?;
        to.write(slot, u64::from(offset), &buffer[..length])?;
        offset += length as u32;
    }
    Ok(())
}
