//! The builder that the readers fill: it checks each fix, names vehicles and lines, and derives
//! motion.

use std::collections::HashMap;
use std::fmt::Display;

use super::{Fix, LeftOut, MAX_FIXES, MAX_NAME, MAX_NAMES, NO_LINE, Position, Trace, TraceError};
use crate::fleet::geo::{Motion, Place};

/// Malformed records that are tolerated in any file; beyond, at most half of all records may be
/// malformed.
const MALFORMED_FLOOR: u64 = 10;
/// The number of records that are read before their share is judged, if more follow: a file may
/// begin badly.
const JUDGED_FROM: u64 = 1_000;
/// The number of left-out records that are kept with their reasons.
const EXAMPLES: usize = 3;
/// The longest pause in a recording, ms: 30 days. Fixes beyond it are of another time, such as
/// those of receivers that do not have the date yet (1970, 1980) or count their weeks from 0 again
/// each 1024 weeks.
const PAUSE_MAX: i64 = 30 * 24 * 3_600_000;

/// A trace in the making.
pub struct Builder {
    name: String,
    vehicles: Names,
    lines: Names,
    fixes: Vec<Fix>,
    malformed: LeftOut,
    deleted: u64,
}

/// One record as a reader found it.
pub struct Record<'a> {
    /// The vehicle's name.
    pub vehicle: &'a str,
    /// The line's name; empty if it is not known.
    pub line: &'a str,
    /// The time, ms since the Unix epoch, UTC.
    pub millis: i64,
    /// The place.
    pub place: Place,
}

impl Builder {
    /// An empty trace. `name` is shown to users.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            vehicles: Names::default(),
            lines: Names::default(),
            fixes: Vec::new(),
            malformed: LeftOut::default(),
            deleted: 0,
        }
    }

    /// Adds a record, or counts it as malformed; `place` tells where it is (`file:line`).
    pub fn add(&mut self, record: &Record<'_>, place: impl Display) -> Result<(), TraceError> {
        if self.fixes.len() == MAX_FIXES {
            return Err(self.too_large("positions", MAX_FIXES));
        }
        if let Some(why) = no_place(record.place) {
            return self.malformed(place, why);
        }
        let vehicle = match level(record.vehicle) {
            Ok(name) if name.is_empty() => return self.malformed(place, "no name of a vehicle"),
            Ok(name) => name,
            Err(why) => return self.malformed(place, why),
        };
        let line = match level(record.line) {
            Ok(name) if name.is_empty() => NO_LINE.to_owned(),
            Ok(name) => name,
            Err(why) => return self.malformed(place, why),
        };
        let Some(vehicle) = self.vehicles.index(vehicle) else { return Err(self.too_large("vehicles", MAX_NAMES)) };
        let Some(line) = self.lines.index(line) else { return Err(self.too_large("lines", MAX_NAMES)) };
        self.fixes.push(Fix { vehicle, line, millis: record.millis, place: record.place });
        Ok(())
    }

    /// Counts an unreadable record; an error once there are too many.
    pub fn malformed(&mut self, place: impl Display, why: impl Display) -> Result<(), TraceError> {
        self.malformed.add(|| format!("{place}: {why}"));
        let read = self.fixes.len() as u64 + self.malformed.count;
        if read > JUDGED_FROM && self.is_too_malformed() { Err(self.too_malformed()) } else { Ok(()) }
    }

    /// Counts a record that says that it no longer counts.
    pub fn deleted(&mut self) {
        self.deleted += 1;
    }

    fn is_too_malformed(&self) -> bool {
        self.malformed.count > MALFORMED_FLOOR + self.fixes.len() as u64
    }

    /// Puts the fixes in order and derives speeds and headings.
    pub fn build(mut self) -> Result<Trace, TraceError> {
        if self.fixes.is_empty() {
            // Malformed records are tolerated only in traces that have others.
            return Err(match self.malformed.count {
                0 => TraceError::Empty { name: self.name },
                _ => self.too_malformed(),
            });
        }
        if self.is_too_malformed() {
            return Err(self.too_malformed());
        }
        self.fixes.sort_by_key(|fix| (fix.millis, fix.vehicle));
        let stray = self.keep_longest_run();
        let read = self.fixes.len();
        self.fixes.dedup_by_key(|fix| (fix.millis, fix.vehicle));
        let repeats = (read - self.fixes.len()) as u64;
        let positions = with_motion(&self.fixes, self.vehicles.names.len());
        let (vehicles, lines) = (self.vehicles.names, self.lines.names);
        let (name, malformed, deleted) = (self.name, self.malformed, self.deleted);
        let mut trace = Trace { name, vehicles, lines, positions, malformed, stray, deleted, repeats };
        trace.forget_unused_names();
        Ok(trace)
    }

    /// Keeps the longest run of fixes without a pause longer than [`PAUSE_MAX`], the latest of
    /// several. The fixes are in order.
    fn keep_longest_run(&mut self) -> LeftOut {
        let (mut kept, mut read) = (0..0, 0);
        for run in self.fixes.chunk_by(|before, after| after.millis - before.millis <= PAUSE_MAX) {
            let places = read..read + run.len();
            read = places.end;
            if places.len() >= kept.len() {
                kept = places;
            }
        }
        let mut stray = LeftOut::default();
        for fix in self.fixes[..kept.start].iter().chain(&self.fixes[kept.end..]) {
            stray.add(|| format!("{} at {}", self.vehicles.names[fix.vehicle as usize], moment(fix.millis)));
        }
        self.fixes.truncate(kept.end);
        self.fixes.drain(..kept.start);
        stray
    }

    fn too_large(&self, what: &'static str, limit: usize) -> TraceError {
        TraceError::TooLarge { name: self.name.clone(), what, limit }
    }

    fn too_malformed(&self) -> TraceError {
        let read = self.fixes.len() as u64 + self.malformed.count;
        TraceError::TooMalformed { name: self.name.clone(), read, malformed: self.malformed.clone() }
    }
}

impl LeftOut {
    fn add(&mut self, told: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(told());
        }
    }
}

/// Why a vehicle cannot be at a place.
fn no_place(place: Place) -> Option<String> {
    let Place { lat, lon } = place;
    let exchanged = Place { lat: lon, lon: lat };
    if !place.is_valid() {
        let hint = if exchanged.is_valid() { "; are latitude and longitude exchanged?" } else { "" };
        return Some(format!("{lat}, {lon} is no place on earth in degrees{hint}"));
    }
    (lat == 0.0 && lon == 0.0).then(|| "0, 0 is what receivers say that do not know their place".to_owned())
}

/// A time in readable form.
fn moment(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| format!("{millis} ms"), |moment| moment.to_string())
}

/// A name as one level of a topic: trimmed, with characters that have a meaning in topics or cannot
/// be shown replaced by `_`.
fn level(name: &str) -> Result<String, String> {
    let name = name.trim();
    if name.len() > MAX_NAME {
        return Err(format!("a name of {} bytes; at most {MAX_NAME} are allowed", name.len()));
    }
    Ok(name.chars().map(|c| if matches!(c, '/' | '+' | '#') || c.is_control() { '_' } else { c }).collect())
}

fn with_motion(fixes: &[Fix], vehicles: usize) -> Vec<Position> {
    let mut last: Vec<Option<Position>> = vec![None; vehicles];
    let step = |fix: &Fix| {
        let before = &mut last[fix.vehicle as usize];
        let motion = before.map_or(Motion::default(), |before| {
            Motion::between(before.fix.place, fix.place, fix.millis - before.fix.millis, before.motion)
        });
        let position = Position { fix: *fix, motion };
        *before = Some(position);
        position
    };
    fixes.iter().map(step).collect()
}

/// Names by index and indices by name.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    indices: HashMap<String, u32>,
}

impl Names {
    /// The index of a name, a new one if it was not seen before; `None` if there are too many.
    fn index(&mut self, name: String) -> Option<u32> {
        if let Some(&index) = self.indices.get(&name) {
            return Some(index);
        }
        if self.names.len() == MAX_NAMES {
            return None;
        }
        let index = self.names.len() as u32;
        self.names.push(name.clone());
        self.indices.insert(name, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { lat: 52.0, lon: 21.0 };

    fn record(vehicle: &str, millis: i64, place: Place) -> Record<'_> {
        Record { vehicle, line: "N56", millis, place }
    }

    #[test]
    fn fixes_are_put_in_order_and_repeats_are_dropped() {
        let mut builder = Builder::new("test");
        for (vehicle, millis) in [("b", 2_000), ("a", 2_000), ("a", 1_000), ("a", 2_000)] {
            builder.add(&record(vehicle, millis, HERE), "test:1").expect("a good record");
        }
        let trace = builder.build().expect("three fixes");
        let order = trace.positions.iter().map(|p| (p.fix.millis, &*trace.vehicles[p.fix.vehicle as usize]));
        assert_eq!(order.collect::<Vec<_>>(), [(1_000, "a"), (2_000, "b"), (2_000, "a")]);
        assert_eq!(trace.repeats, 1);
        assert_eq!(trace.span(), 1_000);
    }

    #[test]
    fn speed_is_derived_from_the_vehicles_own_fix_before() {
        let mut builder = Builder::new("test");
        builder.add(&record("a", 0, HERE), "test:1").expect("a good record");
        builder.add(&record("b", 5_000, HERE.moved(9_000.0, 0.0)), "test:2").expect("a good record");
        builder.add(&record("a", 10_000, HERE.moved(0.0, -120.0)), "test:3").expect("a good record");
        let trace = builder.build().expect("three fixes");
        let motion = trace.positions[2].motion;
        assert!((motion.speed - 12.0).abs() < 0.05 && (motion.heading - 180.0).abs() < 0.1, "{motion:?}");
        assert_eq!(trace.positions[1].motion, Motion::default());
    }

    #[test]
    fn names_become_levels_of_a_topic() {
        let mut builder = Builder::new("test");
        let odd = Record { vehicle: " a/b#\n", line: "+", millis: 0, place: HERE };
        builder.add(&odd, "test:1").expect("a good record");
        builder.add(&Record { line: "", ..record("c", 1, HERE) }, "test:2").expect("a good record");
        let trace = builder.build().expect("two fixes");
        assert_eq!(trace.vehicles, ["a_b_", "c"]);
        assert_eq!(trace.lines, ["_", NO_LINE]);
    }

    #[test]
    fn impossible_places_and_names_are_malformed() {
        let mut builder = Builder::new("test");
        let long = "x".repeat(MAX_NAME + 1);
        builder.add(&record("a", 0, Place { lat: 91.0, lon: 0.0 }), "f.csv:2").expect("tolerated");
        builder.add(&record("a", 0, Place { lat: f64::NAN, lon: 0.0 }), "f.csv:3").expect("tolerated");
        builder.add(&record(" ", 0, HERE), "f.csv:4").expect("tolerated");
        builder.add(&record(&long, 0, HERE), "f.csv:5").expect("tolerated");
        builder.add(&record("a", 0, HERE), "f.csv:6").expect("a good record");
        let malformed = builder.build().expect("one fix").malformed;
        assert_eq!(malformed.count, 4);
        assert_eq!(malformed.examples.len(), EXAMPLES);
        assert_eq!(
            malformed.examples[0],
            "f.csv:2: 91, 0 is no place on earth in degrees; are latitude and longitude exchanged?"
        );
    }

    #[test]
    fn too_many_malformed_records_are_refused() {
        let mut builder = Builder::new("f.csv");
        for line in 0..JUDGED_FROM {
            builder.malformed(format!("f.csv:{line}"), "nonsense").expect("a file may begin badly");
        }
        let error = builder.malformed("f.csv:1000", "nonsense").expect_err("one too many").to_string();
        assert!(error.contains("1001 of the first 1001 records") && error.contains("f.csv:0: nonsense"), "{error}");
    }

    #[test]
    fn half_of_the_records_may_be_malformed() {
        for (more, is_refused) in [(0, false), (1, true)] {
            let mut builder = Builder::new("f.csv");
            for _ in 0..MALFORMED_FLOOR + 100 + more {
                builder.malformed("f.csv:2", "nonsense").expect("it is judged at the end");
            }
            for millis in 0..100 {
                builder.add(&record("a", millis, HERE), "f.csv:1").expect("a good record");
            }
            assert_eq!(builder.build().is_err(), is_refused, "{more}");
        }
    }

    #[test]
    fn fixes_of_another_time_are_left_out_and_told() {
        const WEEKS_1024: i64 = 1024 * 7 * 24 * 3_600_000;
        let start = 1_708_354_800_000;
        let mut builder = Builder::new("test");
        for n in 0..20 {
            builder.add(&record("a", start + n * 1_000, HERE), "test:1").expect("a good record");
        }
        builder.add(&record("a", start + PAUSE_MAX + 19_000, HERE), "test:2").expect("after the longest pause");
        for (vehicle, millis) in [("a", 0), ("b", start - WEEKS_1024), ("a", start + 2 * PAUSE_MAX + 19_001)] {
            builder.add(&record(vehicle, millis, HERE), "test:3").expect("a good record");
        }
        let trace = builder.build().expect("a trace");
        assert_eq!((trace.positions.len(), trace.positions[0].fix.millis), (21, start));
        assert_eq!(trace.vehicles, ["a"], "b has no fix left");
        assert_eq!(trace.stray.count, 3);
        let told = ["a at 1970-01-01T00:00:00Z", "b at 2004-07-05T15:00:00Z", "a at 2024-04-19T15:00:19.001Z"];
        assert_eq!(trace.stray.examples, told);
    }

    #[test]
    fn exchanged_coordinates_and_places_of_no_fix_are_named() {
        let mut builder = Builder::new("test");
        builder.add(&record("a", 0, Place { lat: 121.0, lon: 14.5 }), "f.csv:2").expect("tolerated");
        builder.add(&record("a", 0, Place { lat: 0.0, lon: -0.0 }), "f.csv:3").expect("tolerated");
        builder.add(&record("a", 0, HERE), "f.csv:4").expect("a good record");
        let told = [
            "f.csv:2: 121, 14.5 is no place on earth in degrees; are latitude and longitude exchanged?",
            "f.csv:3: 0, 0 is what receivers say that do not know their place",
        ];
        assert_eq!(builder.build().expect("one fix").malformed.examples, told);
    }

    #[test]
    fn nothing_is_an_error() {
        assert!(matches!(Builder::new("f.csv").build(), Err(TraceError::Empty { .. })));
        let mut builder = Builder::new("f.csv");
        builder.malformed("f.csv:2", "nonsense").expect("tolerated");
        assert!(matches!(builder.build(), Err(TraceError::TooMalformed { .. })));
    }
}
