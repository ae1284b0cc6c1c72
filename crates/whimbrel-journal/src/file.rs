//! Real files. The only module of this crate that touches them.
//!
//! A file is filled with zeros: where extents are merely allocated, each first write into them
//! changes the file system's own records and makes a sync take half as long again; growing a file
//! under sync takes twice as long (measured on ext4; see `docs/journal.md`). A file is made under
//! another name and renamed when it is finished.

mod view;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};

use crate::storage::{Fault, Slot, Storage};

pub use view::View;

/// Bytes of zeros per write when a file is made. Each piece is synced by itself, so that a commit
/// waits for one piece at most.
const ZEROS: usize = 1 << 20;
const LOCK: &str = "journal.lock";
const SUFFIX: &str = ".segment";
const UNFINISHED: &str = ".unfinished";

/// The contents are for the user of this process: no other user may read or list the files.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A directory of segment files, locked against other processes for the lifetime of this value.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    directory: File,
    files: Mutex<BTreeMap<Slot, Arc<File>>>,
    _lock: File,
}

impl Directory {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// When another process has it open, or the system refuses.
    pub fn open(path: &Path) -> Result<Directory, Fault> {
        let at = |error| fault(&error, path);
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(at)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(at)?;
        }
        let mut making = OpenOptions::new();
        making.create(true).truncate(false).write(true).mode(FILE_MODE);
        let lock = making.open(path.join(LOCK)).map_err(at)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Fault::Failed(format!("{} is in use by another process", path.display())));
            }
            Err(error) => return Err(fault(&error.into(), path)),
        }
        let directory = File::open(path).map_err(at)?;
        Ok(Directory { path: path.to_owned(), directory, files: Mutex::default(), _lock: lock })
    }

    /// A random number, for [`crate::Log::open`].
    ///
    /// # Errors
    /// When the system gives none.
    pub fn random(&self) -> Result<u64, Fault> {
        let source = Path::new("/dev/urandom");
        let mut bytes = [0; 8];
        let read = File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(|error| fault(&error, source))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The path of a segment file.
    pub fn path_of(&self, slot: Slot) -> PathBuf {
        self.path.join(segment_name(slot))
    }

    fn file(&self, slot: Slot) -> Result<Arc<File>, Fault> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&slot) {
            return Ok(Arc::clone(file));
        }
        let path = self.path_of(slot);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| fault(&error, &path))?;
        let file = Arc::new(file);
        files.insert(slot, Arc::clone(&file));
        Ok(file)
    }

    fn fill(path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(FILE_MODE).open(path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let zeros = vec![0; ZEROS];
        let mut offset = 0;
        while offset < bytes {
            let piece = (bytes - offset).min(ZEROS as u64);
            file.write_all_at(&zeros[..piece as usize], offset)?;
            file.sync_data()?;
            offset += piece;
        }
        file.sync_all()
    }
}

/// The name of a segment file.
pub fn segment_name(slot: Slot) -> String {
    format!("{slot:08}{SUFFIX}")
}

/// The number of the segment file with that name, if it is one.
fn slot_of(name: &str) -> Option<Slot> {
    let slot = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (segment_name(slot) == name).then_some(slot)
}

fn fault(error: &io::Error, path: &Path) -> Fault {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::Full,
        _ => Fault::Failed(format!("{}: {error}", path.display())),
    }
}

impl Storage for Directory {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        let at = |error| fault(&error, &self.path);
        let mut slots = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(at)? {
            let entry = entry.map_err(at)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(UNFINISHED) {
                fs::remove_file(entry.path()).map_err(at)?;
            } else if let Some(slot) = slot_of(name) {
                slots.push((slot, entry.metadata().map_err(at)?.len()));
            }
        }
        self.directory.sync_all().map_err(at)?;
        slots.sort_unstable();
        Ok(slots)
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        let path = self.path_of(slot);
        let unfinished = path.with_extension(&UNFINISHED[1..]);
        let made = Directory::fill(&unfinished, bytes)
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| self.directory.sync_all());
        if let Err(error) = made {
            // A remaining file is removed at the next opening.
            let _ = fs::remove_file(&unfinished);
            return Err(fault(&error, &path));
        }
        Ok(())
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
        let path = self.path_of(slot);
        fs::remove_file(&path).map_err(|error| fault(&error, &path))
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.file(slot)?.write_all_at(bytes, offset).map_err(|error| fault(&error, &self.path_of(slot)))
    }

    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        self.file(slot)?.sync_data().map_err(|error| fault(&error, &self.path_of(slot)))
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        let file = self.file(slot)?;
        let forget = || rustix::fs::fadvise(&*file, 0, None, Advice::DontNeed).map_err(io::Error::from);
        file.sync_all().and_then(|()| forget()).map_err(|error| fault(&error, &self.path_of(slot)))
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.file(slot)?.read_exact_at(bytes, offset).map_err(|error| fault(&error, &self.path_of(slot)))
    }

    fn name(&self, slot: Slot) -> String {
        self.path_of(slot).display().to_string()
    }
}
