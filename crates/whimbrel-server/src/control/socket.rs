//! A Unix socket at a path, to which only its owner can connect.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use socket2::{Domain, SockAddr, Socket, Type};

/// Bytes of a path that the system takes for a socket, without its end. Longer ones are reached
/// through their directory.
const PATH_MAX: usize = 107;

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 64;

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listening {
    /// The socket.
    pub listener: UnixListener,
    path: PathBuf,
    /// Keeps other processes away from the path, if it is not guarded.
    _lock: Option<File>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The next process removes a file that is left.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens at a path. A socket that an earlier process has left there is removed: `is_guarded` says
/// that no other process can use it; otherwise a lock file beside it makes sure of that.
///
/// # Errors
/// Another process listens there, the path is another kind of file, or the system refuses.
pub fn listen(path: &Path, is_guarded: bool) -> io::Result<Listening> {
    let lock = if is_guarded { None } else { Some(lock(path)?) };
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file of that name")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Before the socket has a name, so that no other user can connect in between.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    with_address(path, |address| socket.bind(address))?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from(OwnedFd::from(socket));
    Ok(Listening { listener, path: path.to_owned(), _lock: lock })
}

/// Connects to the socket at a path.
///
/// # Errors
/// No process listens there, or the system refuses.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    with_address(path, |address| socket.connect(address))?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

fn lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(name)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(io::Error::new(ErrorKind::AddrInUse, "another broker has its control socket there"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Calls `using` with the address of a path; one that is too long goes through its directory.
fn with_address(path: &Path, using: impl FnOnce(&SockAddr) -> io::Result<()>) -> io::Result<()> {
    if path.as_os_str().len() <= PATH_MAX {
        return using(&SockAddr::unix(path)?);
    }
    let too_long = || io::Error::new(ErrorKind::InvalidInput, "the name of the socket is too long");
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(too_long()) };
    let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    if short.as_os_str().len() > PATH_MAX {
        return Err(too_long());
    }
    using(&SockAddr::unix(short)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_with_the_listener() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("control.sock");
        let listening = listen(&path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        connect(&path).unwrap();
        drop(listening);
        assert_eq!(connect(&path).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_path_longer_than_the_system_takes_is_reached() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("control.sock");
        let _listening = listen(&path, true).unwrap();
        connect(&path).unwrap();
        assert!(
            listen(&directory.join("n".repeat(120)), true).is_err_and(|error| error.to_string().contains("too long"))
        );
    }

    #[test]
    fn what_a_killed_process_has_left_is_replaced_and_what_is_in_use_or_no_socket_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("control.sock");
        let killed = listen(&path, false).unwrap();
        let second = listen(&path, false).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse, "{second}");
        // As after a kill: the lock is gone, the file remains.
        let Listening { listener, .. } = &killed;
        let stale = listener.try_clone().unwrap();
        fs::rename(&path, place.path().join("kept")).unwrap();
        drop(killed);
        fs::rename(place.path().join("kept"), &path).unwrap();
        drop(stale);
        assert_eq!(connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _again = listen(&path, false).unwrap();
        connect(&path).unwrap();

        let file = place.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert_eq!(listen(&file, true).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }
}
