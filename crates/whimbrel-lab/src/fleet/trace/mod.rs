//! Recorded positions of vehicles, read from CSV, GPX or GTFS-realtime into one model.

mod build;
mod csv;
mod encoding;
mod gpx;
mod gtfs;
mod source;
mod time;

pub use build::{Builder, Record};

use std::path::{Path, PathBuf};

use super::geo::{Motion, Place};

/// The most fixes a trace may have; a day of a large city's buses is about a tenth.
pub const MAX_FIXES: usize = 20_000_000;
/// The most vehicles, and the most lines, that a trace may name.
pub const MAX_NAMES: usize = 100_000;
/// The longest name of a vehicle or a line, bytes.
pub const MAX_NAME: usize = 64;
/// The line of a vehicle whose line is not known.
pub const NO_LINE: &str = "none";

/// Where a vehicle was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fix {
    /// Index of the vehicle in [`Trace::vehicles`].
    pub vehicle: u32,
    /// Index of the line it served in [`Trace::lines`].
    pub line: u32,
    /// When, ms since the Unix epoch, UTC.
    pub millis: i64,
    /// Where.
    pub place: Place,
}

/// A fix with the motion derived from it and the vehicle's fix before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    /// Where the vehicle was.
    pub fix: Fix,
    /// How it moved.
    pub motion: Motion,
}

/// Positions of a fleet, in the order of their time.
#[derive(Clone)]
pub struct Trace {
    /// What it is, for people: a file's name, or that it is synthetic.
    pub name: String,
    /// Names of the vehicles: not empty, at most [`MAX_NAME`] bytes, fit to be one level of a
    /// topic.
    pub vehicles: Vec<String>,
    /// Names of the lines, as those of the vehicles.
    pub lines: Vec<String>,
    /// The positions, by time, then by vehicle; never empty, at most one per vehicle and time.
    pub positions: Vec<Position>,
    /// What could not be read and was left out.
    pub malformed: LeftOut,
    /// Fixes left out because they are of another time than most: before or after a pause of more
    /// than 30 days.
    pub stray: LeftOut,
    /// Records left out because they say of themselves that they no longer count.
    pub deleted: u64,
    /// Fixes left out because they repeat a vehicle and a time.
    pub repeats: u64,
}

/// Records of a file that were left out.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The first few of them, each with its place, as `file:line`, and what is wrong.
    pub examples: Vec<String>,
}

/// Why a trace could not be read. Each says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file or directory cannot be opened or read.
    #[error("cannot read the trace {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file as a whole is not what it seems to be.
    #[error("{place}: {why}")]
    Syntax {
        /// The file, and the line where it is known.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// More than a few malformed rows: it is the wrong file or a broken one.
    #[error("{name}: {} of the first {read} records are malformed, more than is tolerated; the first of them:\n  {}",
        malformed.count, malformed.examples.join("\n  "))]
    TooMalformed {
        /// Which file.
        name: String,
        /// Records read so far, the malformed ones included.
        read: u64,
        /// What is wrong with them.
        malformed: LeftOut,
    },
    /// A bound is exceeded.
    #[error("{name} has more than {limit} {what}; cut it into smaller files")]
    TooLarge {
        /// Which file.
        name: String,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// There is nothing to replay in it.
    #[error("{name} has no positions")]
    Empty {
        /// Which file.
        name: String,
    },
}

impl Trace {
    /// Reads a trace: a CSV or GPX file, a file of one or several GTFS-realtime feed messages, or a
    /// directory of such; files also compressed with zstd. The name's ending decides which, else
    /// the content.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        source::read(path)
    }

    /// From the first position to the last, ms.
    pub fn span(&self) -> u64 {
        let ends = self.positions.first().zip(self.positions.last());
        ends.map_or(0, |(first, last)| last.fix.millis.abs_diff(first.fix.millis))
    }

    /// Keeps the `count` vehicles with the most positions, and of the lines those that they serve.
    pub fn keep_busiest(&mut self, count: usize) {
        if count >= self.vehicles.len() {
            return;
        }
        let mut fixes = vec![0u32; self.vehicles.len()];
        for position in &self.positions {
            fixes[position.fix.vehicle as usize] += 1;
        }
        let mut order: Vec<u32> = (0..self.vehicles.len() as u32).collect();
        order.sort_by_key(|&vehicle| (std::cmp::Reverse(fixes[vehicle as usize]), vehicle));
        let mut kept = vec![false; self.vehicles.len()];
        for &vehicle in &order[..count] {
            kept[vehicle as usize] = true;
        }
        self.positions.retain(|position| kept[position.fix.vehicle as usize]);
        self.forget_unused_names();
    }

    /// Drops the names of vehicles without a position, and of lines that none serves.
    fn forget_unused_names(&mut self) {
        let (mut driven, mut served) = (vec![false; self.vehicles.len()], vec![false; self.lines.len()]);
        for position in &self.positions {
            driven[position.fix.vehicle as usize] = true;
            served[position.fix.line as usize] = true;
        }
        let vehicles = compact(&mut self.vehicles, &driven);
        let lines = compact(&mut self.lines, &served);
        for position in &mut self.positions {
            position.fix.vehicle = vehicles[position.fix.vehicle as usize];
            position.fix.line = lines[position.fix.line as usize];
        }
    }
}

/// Drops the names that are not kept; gives the new index of each old one.
fn compact(names: &mut Vec<String>, kept: &[bool]) -> Vec<u32> {
    let mut next = 0;
    let moved = kept.iter().map(|&kept| {
        let index = next;
        next += u32::from(kept);
        index
    });
    let moved = moved.collect();
    let mut flags = kept.iter();
    names.retain(|_| *flags.next().unwrap_or(&false));
    moved
}
