//! A disk that keeps nothing: for measuring what a durable publish costs beside its disk.

use whimbrel_journal::{Fault, Slot, Storage};

/// A disk that takes every write at once and keeps nothing of it. A journal on it begins empty,
/// and every read fails. Only `whimbrel serve --keep-nothing` has one.
#[derive(Debug)]
pub(super) struct NullStorage;

impl Storage for NullStorage {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        Ok(Vec::new())
    }

    fn create(&self, _: Slot, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn remove(&self, _: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn write(&self, _: Slot, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn sync(&self, _: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn settle(&self, _: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn read(&self, slot: Slot, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::Failed(format!("{} was not kept", self.name(slot))))
    }
}
