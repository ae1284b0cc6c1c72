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

/// The number of fixes that a trace may have, at most; a day of a large city's buses has about a
/// tenth.
pub const MAX_FIXES: usize = 20_000_000;
/// The number of vehicles, and of lines, that a trace may have, at most.
pub const MAX_NAMES: usize = 100_000;
/// The longest name of a vehicle or a line, bytes.
pub const MAX_NAME: usize = 64;
/// The line of a vehicle whose line is unknown.
pub const NO_LINE: &str = "none";

/// The place of a vehicle at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fix {
    /// Index of the vehicle in [`Trace::vehicles`].
    pub vehicle: u32,
    /// Index of the line it served in [`Trace::lines`].
    pub line: u32,
    /// The time, ms since the Unix epoch, UTC.
    pub millis: i64,
    /// The place.
    pub place: Place,
}

/// A fix with the motion derived from it and the vehicle's fix before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    /// The fix.
    pub fix: Fix,
    /// The motion.
    pub motion: Motion,
}

/// Positions of a fleet, in the order of their time.
#[derive(Clone)]
pub struct Trace {
    /// The name of the trace for users: a file's name, or that it is synthetic.
    pub name: String,
    /// The names of the vehicles: not empty, at most [`MAX_NAME`] bytes, fit to be one level of a
    /// topic.
    pub vehicles: Vec<String>,
    /// Names of the lines, as those of the vehicles.
    pub lines: Vec<String>,
    /// The positions, by time, then by vehicle; never empty, at most one per vehicle and time.
    pub positions: Vec<Position>,
    /// Unreadable records that were left out.
    pub malformed: LeftOut,
    /// Fixes left out because they are of another time than most: before or after a pause of more
    /// than 30 days.
    pub stray: LeftOut,
    /// Records left out because they say that they no longer count.
    pub deleted: u64,
    /// Fixes left out because they repeat a vehicle and a time.
    pub repeats: u64,
}

/// Records of a file that were left out.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct LeftOut {
    /// The number of records.
    pub count: u64,
    /// The first few records, each with its place, as `file:line`, and its mistake.
    pub examples: Vec<String>,
}

/// Why a trace could not be read. Each error tells where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file or directory cannot be opened or read.
    #[error("cannot read the trace {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file as a whole is not what it seems to be.
    #[error("{place}: {why}")]
    Syntax {
        /// The file, and the line if it is known.
        place: String,
        /// The mistake.
        why: String,
    },
    /// More than a few malformed rows: it is the wrong file or a broken one.
    #[error("{name}: {} of the first {read} records are malformed, more than is tolerated; the first of them:\n  {}",
        malformed.count, malformed.examples.join("\n  "))]
    TooMalformed {
        /// The file.
        name: String,
        /// Records read so far, the malformed ones included.
        read: u64,
        /// The mistakes in them.
        malformed: LeftOut,
    },
    /// A bound is exceeded.
    #[error("{name} has more than {limit} {what}; cut it into smaller files")]
    TooLarge {
        /// The file.
        name: String,
        /// The thing that there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// There is nothing in it to replay.
    #[error("{name} has no positions")]
    Empty {
        /// The file.
        name: String,
    },
}

impl Trace {
    /// Reads a trace: a CSV or GPX file, a file of one or several GTFS-realtime feed messages, or a
    /// directory of such; also files compressed with zstd. The extension of the name decides which,
    /// else the content.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        source::read(path)
    }

    /// The time from the first position to the last, ms.
    pub fn span(&self) -> u64 {
        let ends = self.positions.first().zip(self.positions.last());
        ends.map_or(0, |(first, last)| last.fix.millis.abs_diff(first.fix.millis))
    }

    /// Keeps the `count` vehicles with the most positions, and the lines that they serve.
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

    /// Drops the names of vehicles without a position, and of lines without a vehicle.
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

/// Drops the names that are not kept; returns the new index of each old one.
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
