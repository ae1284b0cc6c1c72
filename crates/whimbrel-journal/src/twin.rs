//! A disk with the failures of real ones: it loses unsynced writes, tears a write in progress,
//! fails, and fills up.
//!
//! Deterministic: the caller chooses the failures. The mutex is there because a journal's threads
//! share their disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::{Fault, Slot, Storage};
use crate::types::SECTOR;

/// The twin of a disk.
#[derive(Debug, Default)]
pub struct Twin {
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: BTreeMap<Slot, File>,
    /// Number of operations so far that change the disk.
    operations: u64,
    /// The operation from which on everything fails.
    fail_from: Option<u64>,
    /// The operation that fails if it is a sync; the bytes written before it never reach the disk.
    fail_sync: Option<u64>,
    /// Upper bound of the bytes of all files together.
    room: Option<u64>,
    bytes_read: u64,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The contents that survive.
    durable: Vec<u8>,
    /// The contents that are read.
    seen: Vec<u8>,
    /// Sectors written since the last sync.
    dirty: BTreeSet<usize>,
}

/// The effect of a crash on a sector that was written and not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The contents before the write.
    Old,
    /// The written contents.
    New,
    /// Neither of these.
    Garbage,
}

impl Twin {
    /// An empty disk.
    pub fn new() -> Twin {
        Twin::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk after a crash: `fate` decides about each sector written and not synced, in the
    /// order of files and sectors.
    #[must_use]
    pub fn crashed(&self, mut fate: impl FnMut() -> Fate) -> Twin {
        let mut state = self.state().clone();
        for file in state.files.values_mut() {
            for sector in std::mem::take(&mut file.dirty) {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(file.seen.len());
                match fate() {
                    Fate::Old => {}
                    Fate::New => file.durable[range.clone()].copy_from_slice(&file.seen[range]),
                    Fate::Garbage => file.durable[range].fill(0xa5),
                }
            }
            file.seen.clone_from(&file.durable);
        }
        (state.operations, state.fail_from, state.fail_sync, state.bytes_read) = (0, None, None, 0);
        Twin { state: Mutex::new(state) }
    }

    /// Makes this operation (counted from 0, see [`Twin::operations`]) and all later ones fail.
    pub fn fail_from(&self, operation: u64) {
        self.state().fail_from = Some(operation);
    }

    /// Makes this operation fail if it is a sync. As on Linux, readers still see the written bytes,
    /// and they count as written, but the disk does not have them.
    pub fn fail_sync(&self, operation: u64) {
        self.state().fail_sync = Some(operation);
    }

    /// Limits the bytes of all files together.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// The number of operations so far that change the disk: create, remove, write, sync.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// Changes bytes on the disk and in memory, like decay.
    ///
    /// # Panics
    /// When the file or the range does not exist.
    pub fn corrupt(&self, slot: Slot, offset: u64, change: impl Fn(&mut [u8]), length: usize) {
        let mut state = self.state();
        let file = state.files.get_mut(&slot).expect("the file exists");
        let range = offset as usize..offset as usize + length;
        change(&mut file.durable[range.clone()]);
        change(&mut file.seen[range]);
    }

    /// The contents of a file as readers see them.
    pub fn contents(&self, slot: Slot) -> Option<Vec<u8>> {
        self.state().files.get(&slot).map(|file| file.seen.clone())
    }
}

impl State {
    /// Counts an operation, and returns an error if it is to fail.
    fn count(&mut self) -> Result<u64, Fault> {
        let operation = self.operations;
        self.operations += 1;
        match self.fail_from {
            Some(from) if operation >= from => Err(Fault::Failed("the disk is gone".into())),
            _ => Ok(operation),
        }
    }

    fn file(&mut self, slot: Slot) -> Result<&mut File, Fault> {
        self.files.get_mut(&slot).ok_or_else(|| Fault::Failed(format!("there is no file {slot}")))
    }
}

impl Storage for Twin {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        Ok(self.state().files.iter().map(|(slot, file)| (*slot, file.seen.len() as u64)).collect())
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        let mut state = self.state();
        state.count()?;
        let used: u64 = state.files.values().map(|file| file.seen.len() as u64).sum();
        if state.room.is_some_and(|room| used + bytes > room) {
            return Err(Fault::Full);
        }
        let zeros = vec![0; bytes as usize];
        let file = File { durable: zeros.clone(), seen: zeros, dirty: BTreeSet::new() };
        let old = state.files.insert(slot, file);
        assert!(old.is_none(), "file {slot} is made twice");
        Ok(())
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        let mut state = self.state();
        state.count()?;
        state.file(slot)?;
        state.files.remove(&slot);
        Ok(())
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut state = self.state();
        state.count()?;
        let file = state.file(slot)?;
        let offset = offset as usize;
        file.seen[offset..offset + bytes.len()].copy_from_slice(bytes);
        if !bytes.is_empty() {
            file.dirty.extend(offset / SECTOR..=(offset + bytes.len() - 1) / SECTOR);
        }
        Ok(())
    }

    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        let mut state = self.state();
        let operation = state.count()?;
        let fails = state.fail_sync == Some(operation);
        let file = state.file(slot)?;
        let dirty = std::mem::take(&mut file.dirty);
        if fails {
            return Err(Fault::Failed("the sync failed".into()));
        }
        for sector in dirty {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(file.seen.len());
            file.durable[range.clone()].copy_from_slice(&file.seen[range]);
        }
        Ok(())
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        self.sync(slot)?;
        let mut state = self.state();
        let file = state.file(slot)?;
        file.seen.clone_from(&file.durable);
        Ok(())
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let mut state = self.state();
        state.bytes_read += bytes.len() as u64;
        let file = state.file(slot)?;
        let from = file.seen.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(from.ok_or_else(|| Fault::Failed("beyond the end of the file".into()))?);
        Ok(())
    }
}
