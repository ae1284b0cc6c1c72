//! Errors with which the command ends.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use whimbrel_selector::SelectorError;
use whimbrel_server::config::{Place, Problem};

/// Exit status of a broker that another process has become: a service manager must not start it
/// again.
const REPLACED: u8 = 3;

/// Why the command failed.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is wrong; nothing was started.
    Configuration(Vec<Problem>),
    /// A text on the command line is no selector; nothing was done.
    Selector(String, SelectorError),
    /// Another process has become the broker.
    Replaced,
    /// Something went wrong while running.
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Runtime(error)
    }
}

impl Failure {
    /// Reports the failure on standard error. Returns the exit status.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Configuration(problems) => {
                let count = problems.len();
                for problem in problems {
                    tell(format_args!("{:?}", miette::Report::new(problem)));
                }
                if count > 1 {
                    tell(format_args!("{count} problems in the configuration; nothing was started"));
                }
                ExitCode::from(2)
            }
            Failure::Selector(text, error) => {
                let place = Place::in_line("--selector", text, error.offset..error.offset + error.length);
                let problem = Problem::new("this is no selector").at(Some(&place), error.cause);
                tell(format_args!("{:?}", miette::Report::new(problem)));
                ExitCode::from(2)
            }
            Failure::Replaced => {
                tell(
                    "Error: another process has become this broker; this one has ended and is not to be started again",
                );
                ExitCode::from(REPLACED)
            }
            Failure::Runtime(error) => {
                tell(format_args!("Error: {error:#}"));
                ExitCode::FAILURE
            }
        }
    }
}

/// Writes a line to standard error. It is lost if the reader has gone.
pub fn tell(what: impl Display) {
    let _gone = writeln!(io::stderr().lock(), "{what}");
}

/// Warns on standard error of something that is allowed and probably not meant.
pub fn warn(what: &str) {
    tell(format_args!("warning: {what}"));
}

/// Writes to standard output. A reader that has gone is no failure.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output").into())
        }
        _ => Ok(()),
    }
}
