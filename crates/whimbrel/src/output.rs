//! Standard output of commands that print as messages come.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Writes to standard output, past all buffers of this process; false if nobody reads there any
/// more.
pub fn written(output: &[u8]) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Waits until nobody reads standard output any more, so that `sub | head -1` ends with `head`,
/// also if no message comes that could not be written. For ever if it is no pipe.
pub async fn reader_gone() {
    // The system does not watch files, and nobody leaves them.
    if let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned()
        && let Ok(watched) = Sender::from_file_unchecked(File::from(stdout))
        && watched.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
