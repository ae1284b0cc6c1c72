//! `SO_RCVLOWAT`: wake-ups for batches instead of for every message.
#![allow(unsafe_code, reason = "no crate wraps this socket option; the one system call is below")]

use std::io;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};

/// Makes `socket` readable, and wake its reader, only once `bytes` have arrived.
///
/// # Errors
/// When the kernel refuses.
pub fn wake_after(socket: &impl AsRawFd, bytes: usize) -> Result<()> {
    let value = libc::c_int::try_from(bytes).context("a low-water mark is at most 2 GiB")?;
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` lives through the call, `length` is its size, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&value).cast(),
            length,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error()).with_context(|| format!("setting SO_RCVLOWAT to {bytes}"))
}
