//! Figures of the operating system about this process, and its file limit.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The file limit that is asked for where the hard limit is unlimited.
const UNLIMITED_FILES: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard one. Returns the new limit.
///
/// # Errors
/// The system refuses.
pub fn raise_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(UNLIMITED_FILES);
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    }
    Ok(file_limit())
}

/// The soft limit of open files.
pub fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// User and system time that this process has used, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory, in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Number of open files; `None` where the system does not tell.
pub fn open_files() -> Option<u64> {
    // The directory itself is open while it is read.
    fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as u64)
}
