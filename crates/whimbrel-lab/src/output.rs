//! The output of commands.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Writes text and a newline to standard output. A reader that has gone away is not an error.
///
/// # Errors
/// When the system cannot write there.
pub(crate) fn say(text: impl Display) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to standard output"),
        _ => Ok(()),
    }
}

/// Writes a line to standard error. A reader that has gone away is not an error.
pub(crate) fn tell(text: impl Display) {
    let _gone = writeln!(io::stderr().lock(), "{text}");
}
