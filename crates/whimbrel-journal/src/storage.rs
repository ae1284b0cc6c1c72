//! The journal's interface to a disk.

use std::sync::Arc;

/// The number of a segment file. Files are made, overwritten from the beginning when none of their
/// contents is needed any more, and removed; they are never renamed.
pub type Slot = u32;

/// A disk, or its twin for tests and simulation.
///
/// The journal assumes only this: after [`Storage::sync`] has returned without error, everything
/// written to that file survives; until then each [`crate::SECTOR`] written may be found old, new,
/// or unreadable, in any combination.
pub trait Storage {
    /// The finished files and their lengths in bytes, by number. Their existence is durable when
    /// this returns.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault>;

    /// Makes a file of this many zeros, with allocated space, durably. It may take long and runs in
    /// parallel to everything else. An unfinished file is not among [`Storage::slots`].
    ///
    /// # Errors
    /// [`Fault::Full`] when there is no room; then no part of the file remains.
    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault>;

    /// Removes a file. The removal need not be durable.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, slot: Slot) -> Result<(), Fault>;

    /// Writes within the file.
    ///
    /// # Errors
    /// Any error ends all writing to this journal.
    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Makes everything written to this file durable.
    ///
    /// # Errors
    /// Any error ends all writing to this journal: the contents of the disk are unknown then, and a
    /// second attempt would prove nothing.
    fn sync(&self, slot: Slot) -> Result<(), Fault>;

    /// Makes the contents that readers see the same as those that survive: makes pending writes
    /// durable, and drops cached data that the system could not write. For recovery, before it
    /// relies on what it reads.
    ///
    /// # Errors
    /// When this is not possible.
    fn settle(&self, slot: Slot) -> Result<(), Fault>;

    /// Fills `bytes` from the file.
    ///
    /// # Errors
    /// When any of the bytes cannot be read.
    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// The file's name in messages.
    fn name(&self, slot: Slot) -> String {
        format!("segment file {slot}")
    }
}

/// A shared disk, of any kind.
impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        (**self).slots()
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        (**self).create(slot, bytes)
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        (**self).remove(slot)
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        (**self).write(slot, offset, bytes)
    }

    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        (**self).sync(slot)
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        (**self).settle(slot)
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        (**self).read(slot, offset, bytes)
    }

    fn name(&self, slot: Slot) -> String {
        (**self).name(slot)
    }
}

/// An error of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no room.
    #[error("no space is left")]
    Full,
    /// The disk failed; its error text.
    #[error("{0}")]
    Failed(String),
}
