//! The mark beside the journal, as a file of the data directory.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use whimbrel_engine::DirectoryMark;
use whimbrel_journal::Fault;

/// Name of the file.
const NAME: &str = "engine.mark";

/// Name of the next one while it is written.
const NEXT: &str = "engine.mark.new";

/// The file of a mark.
#[derive(Debug)]
pub(crate) struct MarkFile {
    directory: PathBuf,
}

impl MarkFile {
    /// The mark in a data directory.
    pub(crate) fn of(directory: &Path) -> MarkFile {
        MarkFile { directory: directory.to_owned() }
    }

    fn fault(&self, what: &str, error: &std::io::Error) -> Fault {
        match error.kind() {
            ErrorKind::StorageFull => Fault::Full,
            _ => Fault::Failed(format!("cannot {what} {}: {error}", self.directory.join(NAME).display())),
        }
    }
}

impl DirectoryMark for MarkFile {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        match fs::read(self.directory.join(NAME)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.fault("read", &error)),
        }
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Fault> {
        let next = self.directory.join(NEXT);
        let written = File::create(&next).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        let renamed = written.and_then(|()| fs::rename(&next, self.directory.join(NAME)));
        let synced = renamed.and_then(|()| File::open(&self.directory)?.sync_all());
        synced.map_err(|error| self.fault("write", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_is_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let mark = MarkFile::of(directory.path());
        assert_eq!(mark.load(), Ok(None));
        for text in ["first", "second, which is longer", "3"] {
            mark.store(text.as_bytes()).expect("it is stored");
            assert_eq!(mark.load(), Ok(Some(text.as_bytes().to_vec())));
        }
        let nowhere = MarkFile::of(&directory.path().join("gone"));
        assert_eq!(nowhere.load(), Ok(None));
        let Err(Fault::Failed(why)) = nowhere.store(b"mark") else { panic!("there is no directory") };
        assert!(why.contains("engine.mark"), "{why}");
    }
}
