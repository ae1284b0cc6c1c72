//! What the journal needs of a disk.

use std::sync::Arc;

/// The number of a segment file. Files are made, overwritten from the beginning when nothing in
/// them is needed any more, and removed; they are never renamed.
pub type Slot = u32;

/// A disk, or its twin for tests and simulation.
///
/// The journal assumes this and no more: after [`Storage::sync`] has returned without error, what
/// was written to that file survives; until then each [`crate::SECTOR`] written may be found old,
/// new, or unreadable, in any combination.
pub trait Storage {
    /// The finished files and their lengths in bytes, by number. That they are there is durable
    /// when this returns.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault>;

    /// Makes a file of this many zeros whose space is allocated, and makes that durable. It may
    /// take long and runs beside everything else. A file that was not finished is not among
    /// [`Storage::slots`].
    ///
    /// # Errors
    /// [`Fault::Full`] when there is no room; then nothing is left behind.
    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault>;

    /// Removes a file. That need not be durable.
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
    /// Any error ends all writing to this journal: what the disk holds is unknown then, and a
    /// second try would prove nothing.
    fn sync(&self, slot: Slot) -> Result<(), Fault>;

    /// Makes what readers see of this file, and what survives, the same: makes durable what is
    /// still to be written, and forgets what the system remembers and could not write. For
    /// recovery, before it trusts what it reads.
    ///
    /// # Errors
    /// When it cannot be done.
    fn settle(&self, slot: Slot) -> Result<(), Fault>;

    /// Fills `bytes` from the file.
    ///
    /// # Errors
    /// When any of it cannot be read.
    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// What to call the file in messages.
    fn name(&self, slot: Slot) -> String {
        format!("segment file {slot}")
    }
}

/// A disk that is shared, of any kind.
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

/// What a disk can do wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no room.
    #[error("no space is left")]
    Full,
    /// It failed, in its own words.
    #[error("{0}")]
    Failed(String),
}
