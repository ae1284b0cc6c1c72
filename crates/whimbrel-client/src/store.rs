//! Stores for a client's position while it is not running.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use whimbrel_event::{FNV_OFFSET, fnv1a};

use crate::Position;
use crate::position::InvalidPosition;

/// First line of a file with a position.
const HEAD: &str = "whimbrel position 1";

/// Begins the last line, before the check of everything above.
const END: &str = "end ";

/// The longest file that is read, bytes: more than a position of the greatest length.
const FILE_MAX: u64 = 256 << 10;

/// Stores the position of one subscription. A client that writes to a database may keep the
/// position there, in the transaction that stores the result of the messages: then even a crash
/// neither loses nor repeats a message.
pub trait CheckpointStore {
    /// The error of this store.
    type Error;

    /// The position that was saved last; `None` if none was ever saved.
    ///
    /// # Errors
    /// The saved data cannot be read, or is no position.
    fn load(&mut self) -> Result<Option<Position>, Self::Error>;

    /// Saves a position in place of the previous one; afterwards it survives a crash of the
    /// machine. After an error the previous one stands.
    ///
    /// # Errors
    /// The position cannot be written.
    fn save(&mut self, position: &Position) -> Result<(), Self::Error>;
}

/// A position in a file that is replaced as a whole: a crash leaves either the old one or the new
/// one.
#[derive(Clone, Debug)]
pub struct FileStore {
    path: PathBuf,
}

/// The reason why a position cannot be read from a file or written to it. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read.
    #[error("cannot read the position in {0}: {1}")]
    Read(PathBuf, io::Error),
    /// The file cannot be written.
    #[error("cannot save the position in {0}: {1}; what was saved before stands")]
    Write(PathBuf, io::Error),
    /// The file was not written by this library.
    #[error("{0} holds something else than a position, and is left as it is: name another file")]
    Foreign(PathBuf),
    /// The file was written by a later release.
    #[error("{0} was written by a later release: use that, or delete the file to begin now")]
    Later(PathBuf),
    /// The file is cut off, or altered.
    #[error("the position in {0} is damaged ({1}): restore the file, or delete it to begin now")]
    Damaged(PathBuf, Damage),
}

/// The kind of damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its end is missing.
    #[error("its end is missing")]
    Torn,
    /// Its check does not fit.
    #[error("its check does not fit")]
    Altered,
    /// The check fits, but the text is no position.
    #[error("{0}")]
    Invalid(InvalidPosition),
}

impl FileStore {
    /// Keeps the position at this path. Saving makes a file `PATH.new` beside it for a moment.
    pub fn new(path: impl Into<PathBuf>) -> FileStore {
        FileStore { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, &self.path)?;
        // The rename is durable when the directory is synced.
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn parse(&self, bytes: &[u8]) -> Result<Position, StoreError> {
        let damaged = |damage| StoreError::Damaged(self.path.clone(), damage);
        let foreign = || StoreError::Foreign(self.path.clone());
        let text = str::from_utf8(bytes).map_err(|_| foreign())?;
        let Some(rest) = text.strip_prefix(HEAD) else {
            let kind = HEAD.trim_end_matches(|c: char| c.is_ascii_digit());
            return Err(match text.starts_with(kind) {
                // A beginning of the head line, and nothing else.
                _ if HEAD.starts_with(text) => damaged(Damage::Torn),
                true => StoreError::Later(self.path.clone()),
                false => foreign(),
            });
        };
        let lines = rest.strip_prefix('\n').and_then(|rest| rest.strip_suffix('\n')?.split_once('\n'));
        let Some((position, check)) = lines.and_then(|(position, end)| Some((position, end.strip_prefix(END)?))) else {
            return Err(damaged(Damage::Torn));
        };
        if check != check_of(position) {
            return Err(damaged(Damage::Altered));
        }
        position.parse().map_err(|invalid| damaged(Damage::Invalid(invalid)))
    }
}

impl CheckpointStore for FileStore {
    type Error = StoreError;

    fn load(&mut self) -> Result<Option<Position>, StoreError> {
        let bytes = self.read().map_err(|error| StoreError::Read(self.path.clone(), error))?;
        bytes.map(|bytes| self.parse(&bytes)).transpose()
    }

    fn save(&mut self, position: &Position) -> Result<(), StoreError> {
        let position = position.to_string();
        let check = check_of(&position);
        let text = format!("{HEAD}\n{position}\n{END}{check}\n");
        self.write(&text).map_err(|error| StoreError::Write(self.path.clone(), error))
    }
}

/// FNV-1a of 64 bits: it detects a file that was cut off or altered by accident.
fn check_of(text: &str) -> String {
    format!("{:016x}", fnv1a(FNV_OFFSET, text.as_bytes()))
}
