//! `whimbrel passwd`: users and passwords for `[identity] passwords`.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use whimbrel_server::access::passwords::{self, PASSWORD_MAX};

use crate::failure::{self, Failure};

const EXAMPLES: &str = "\
The password is asked for twice and not shown; if standard input is no terminal, its first line is the password.
The file is exchanged as a whole and readable by its owner only. A running broker notices within seconds (docs/trust.md).

Examples:
  whimbrel passwd /etc/whimbrel/passwords ann
  head -c 24 /dev/urandom | base64 | tee bus-7.secret | whimbrel passwd /etc/whimbrel/passwords bus-7
  whimbrel passwd /etc/whimbrel/passwords bus-7 --delete";

/// Arguments of `whimbrel passwd`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Passwd {
    /// The file that `passwords` in `[identity]` names; it is made if it does not exist
    file: PathBuf,
    /// The user's name
    user: String,
    /// Remove the user
    #[arg(long)]
    delete: bool,
}

impl Passwd {
    /// Changes the file.
    pub fn run(self) -> Result<(), Failure> {
        let password = if self.delete { None } else { Some(read()?) };
        let was_there = passwords::change(&self.file, &self.user, password.as_deref()).map_err(anyhow::Error::new)?;
        let what = match (self.delete, was_there) {
            (true, _) => "removed",
            (false, true) => "has another password",
            (false, false) => "added",
        };
        failure::print(format!("{}: {what}\n", self.user).as_bytes())
    }
}

/// Reads the password from the terminal, or from the first line of standard input.
fn read() -> anyhow::Result<Vec<u8>> {
    if !io::stdin().is_terminal() {
        return read_line();
    }
    let first = ask("Password: ")?;
    if ask("The same again: ")? != first {
        return Err(anyhow!("the passwords differ; nothing is changed"));
    }
    Ok(first)
}

fn ask(prompt: &str) -> anyhow::Result<Vec<u8>> {
    eprint!("{prompt}");
    io::stderr().flush().context("cannot write to the terminal")?;
    let hidden = Hidden::start()?;
    let line = read_line();
    drop(hidden);
    eprintln!();
    line
}

/// Reads one line of standard input, without its end.
fn read_line() -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    // Includes the end of the line, and one byte more than allowed, so that a longer password is
    // refused and not cut.
    let most = PASSWORD_MAX as u64 + 3;
    io::stdin().lock().take(most).read_until(b'\n', &mut line).context("cannot read the password")?;
    while line.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}

/// Stops the echo of the terminal while this lives.
struct Hidden(Termios);

impl Hidden {
    fn start() -> anyhow::Result<Hidden> {
        let before = tcgetattr(io::stdin()).context("cannot ask the terminal")?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO;
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).context("the terminal would show the password")?;
        Ok(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A failure cannot be helped here; `stty echo` does it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
