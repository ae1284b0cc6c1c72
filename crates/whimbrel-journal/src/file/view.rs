//! Read-only access to the files of a journal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FlockOperation;

use super::{LOCK, fault, segment_name, slot_of};
use crate::storage::{Fault, Slot, Storage};

/// A directory of segment files that is never changed: writes are discarded, as if the disk had
/// lost them. A journal can be opened on it for inspection. Locked against other processes for the
/// lifetime of this value, if there is a lock file.
#[derive(Debug)]
pub struct View {
    path: PathBuf,
    files: Mutex<BTreeMap<Slot, Arc<File>>>,
    _lock: Option<File>,
}

impl View {
    /// Opens the directory.
    ///
    /// # Errors
    /// When another process has it open, or the system refuses.
    pub fn open(path: &Path) -> Result<View, Fault> {
        fs::read_dir(path).map_err(|error| fault(&error, path))?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(fault(&error, path)),
        };
        if let Some(lock) = &lock {
            match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Fault::Failed(format!("{} is in use by another process", path.display())));
                }
                Err(error) => return Err(fault(&error.into(), path)),
            }
        }
        Ok(View { path: path.to_owned(), files: Mutex::default(), _lock: lock })
    }

    /// Bytes of all segment files.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn bytes(&self) -> Result<u64, Fault> {
        Ok(self.slots()?.iter().map(|(_, bytes)| bytes).sum())
    }

    fn file(&self, slot: Slot) -> Result<Arc<File>, Fault> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&slot) {
            return Ok(Arc::clone(file));
        }
        let path = self.path.join(segment_name(slot));
        let file = Arc::new(File::open(&path).map_err(|error| fault(&error, &path))?);
        files.insert(slot, Arc::clone(&file));
        Ok(file)
    }
}

impl Storage for View {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        let at = |error| fault(&error, &self.path);
        let mut slots = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(at)? {
            let entry = entry.map_err(at)?;
            if let Some(slot) = entry.file_name().to_str().and_then(slot_of) {
                slots.push((slot, entry.metadata().map_err(at)?.len()));
            }
        }
        slots.sort_unstable();
        Ok(slots)
    }

    fn create(&self, _slot: Slot, _bytes: u64) -> Result<(), Fault> {
        Err(Fault::Failed(format!("{} is only looked at", self.path.display())))
    }

    fn remove(&self, _slot: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn write(&self, _slot: Slot, _offset: u64, _bytes: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn sync(&self, _slot: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn settle(&self, _slot: Slot) -> Result<(), Fault> {
        Ok(())
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let path = self.path.join(segment_name(slot));
        self.file(slot)?.read_exact_at(bytes, offset).map_err(|error| fault(&error, &path))
    }

    fn name(&self, slot: Slot) -> String {
        self.path.join(segment_name(slot)).display().to_string()
    }
}
