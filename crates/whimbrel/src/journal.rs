//! `whimbrel journal`: checks the journal of a broker that does not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use whimbrel_server::store::check::{CheckError, Checked, StreamCheck, Wrong, check};

use crate::failure::{self, Failure, tell};
use crate::progress;
use crate::sessions::print_json;
use crate::table::{Cell, Table, Tone, count, is_coloured, moment, paint, size};

const EXAMPLES: &str = "\
Every byte is read and every checksum verified, and the records are read as the broker would. Nothing is changed.
A broker must not be running on the directory; of a running one, make a backup (whimbrel backup) and check that.

Exit status: 0 all is whole, 1 something is damaged, 2 it cannot be told (in use, not readable, no journal).

Examples:
  whimbrel journal check /var/lib/whimbrel
  whimbrel journal check /backup/monday --json | jq .wrong";

/// Arguments of `whimbrel journal`.
#[derive(clap::Args)]
pub struct Journal {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Verify a data directory or a backup, and say what damage costs.
    #[command(after_help = EXAMPLES)]
    Check {
        /// The data directory, or a backup
        directory: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

impl Journal {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let Command::Check { directory, json } = self.command;
        let checked = match check_with_bar(&directory) {
            Ok(checked) => checked,
            Err(error) => {
                tell(format_args!("Error: {error}"));
                return Ok(ExitCode::from(2));
            }
        };
        if json {
            print_json(&checked)?;
        } else {
            failure::print(words(&checked).as_bytes())?;
        }
        Ok(if checked.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Checks a directory, with a progress bar on a terminal.
pub fn check_with_bar(directory: &std::path::Path) -> Result<Checked, CheckError> {
    let bar = progress::bytes("checking");
    let checked = check(directory, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    checked
}

/// The result of a check as text.
pub fn words(checked: &Checked) -> String {
    let coloured = is_coloured();
    let mut out = format!(
        "{}: {} in {}, {} free\n",
        checked.path.display(),
        size(checked.file_bytes),
        count(checked.segments, "segment", "segments"),
        checked.free,
    );
    if let Some((file, offset)) = &checked.torn {
        out += &format!(
            "a crash has left the end of {file} torn at {offset}; what was not finished had been told to nobody\n"
        );
    }
    out.push('\n');
    let mut table = Table::new(&["STREAM", "HOLDS", "RECORDS>", "BYTES>", "FIRST", "LAST"]);
    for stream in &checked.streams {
        table.row(row(stream));
    }
    out += &table.text(coloured);
    if let Some(entries) = checked.entries {
        out += &format!("{} remembered\n", count(entries, "entry is", "entries are"));
    }
    out.push('\n');
    for wrong in &checked.wrong {
        out += &place(wrong, Tone::Warn, coloured);
    }
    for wrong in &checked.unneeded {
        out += &place(wrong, Tone::Dim, coloured);
    }
    match checked.wrong.len() as u64 {
        0 => out += &(paint("all is whole", Tone::Good, coloured) + "\n"),
        number => {
            out += &format!("{}\n", paint(&count(number, "damaged place", "damaged places"), Tone::Warn, coloured))
        }
    }
    out
}

fn row(stream: &StreamCheck) -> Vec<Cell> {
    let at = |tick: Option<u64>| match tick {
        None => Cell::none(),
        Some(tick) if stream.has_moments => moment(tick / 1_000_000).into(),
        Some(tick) => tick.to_string().into(),
    };
    let reserved = Some(stream.reserved).filter(|tick| *tick > 0);
    let last = if stream.last.is_none() && stream.name == "ticks" { at(reserved) } else { at(stream.last) };
    vec![
        stream.name.clone().into(),
        stream.what.into(),
        stream.records.to_string().into(),
        size(stream.bytes).into(),
        at(stream.first),
        last,
    ]
}

fn place(wrong: &Wrong, tone: Tone, coloured: bool) -> String {
    let place = match &wrong.file {
        Some(file) => format!("{file} at {}: {}", wrong.offset, wrong.what),
        None => wrong.what.clone(),
    };
    format!("{}\n  costs {}\n", paint(&place, tone, coloured), wrong.costs)
}
