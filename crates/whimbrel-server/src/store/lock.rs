//! One broker at a time uses a data directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

/// Lock file in the data directory: locked by the broker that uses it, and holds its process
/// number.
pub(super) const LOCK: &str = "whimbrel.lock";

/// Keeps other brokers out of a data directory while it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a directory is not locked.
#[derive(Debug)]
pub(super) enum LockFault {
    /// Another broker has it: its name, as far as the lock file tells.
    Held(String),
    /// It cannot be made or written, or may be another user's.
    System(io::Error),
}

impl From<io::Error> for LockFault {
    fn from(error: io::Error) -> LockFault {
        LockFault::System(error)
    }
}

/// Locks the directory; creates it if need be.
pub(super) fn lock(directory: &Path) -> Result<Lock, LockFault> {
    // Messages are for the broker's user alone. An existing directory keeps its mode.
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check_owner(directory)?;
    let mut file = OpenOptions::new();
    file.create(true).truncate(false).read(true).write(true).mode(0o600);
    file.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let mut file = file.open(directory.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut who = String::new();
            // The broker that has just locked it may not have written its number yet.
            let _ = file.read_to_string(&mut who);
            let who = who.trim().parse::<u32>();
            let who =
                who.map_or_else(|_| "another broker".to_owned(), |id| format!("the broker with process number {id}"));
            return Err(LockFault::Held(who));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()))?;
    Ok(Lock { _file: file })
}

/// Refuses another user's directory in a place where all users may make some: it is not the one
/// that this broker made there, and its files may be links to anywhere.
fn check_owner(directory: &Path) -> io::Result<()> {
    /// All users may write there.
    const BY_ALL: u32 = 0o002;
    let is_own = fs::metadata(directory)?.uid() == rustix::process::geteuid().as_raw();
    let place = directory.canonicalize()?;
    let is_by_all = place.parent().map(fs::metadata).transpose()?.is_some_and(|place| place.mode() & BY_ALL != 0);
    if is_own || !is_by_all { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}
