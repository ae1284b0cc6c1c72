//! Standard output of commands that print messages as they arrive.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Writes to standard output, past all buffers of this process; `false` if its reader has gone.
pub fn written(output: &[u8]) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Waits until the reader of standard output has gone, so that `sub | head -1` ends with `head`
/// even if no further message has to be written. Waits for ever if it is not a pipe.
pub async fn reader_gone() {
    // The system does not watch files, which have no reader that could go.
    if let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned()
        && let Ok(watched) = Sender::from_file_unchecked(File::from(stdout))
        && watched.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
