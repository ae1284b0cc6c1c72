//! When each position of a trace is due, in virtual time: the caller tells how much time has
//! passed.

use std::sync::Arc;
use std::time::Duration;

use super::trace::{Position, Trace};

/// Pause between the end of the trace and its next lap, ms of the trace's time.
const LAP_GAP: u64 = 1_000;
/// Step by which the phases of consecutive vehicles within a second differ, ms: the golden section,
/// so that any number of them is spread evenly.
const PHASE_STEP: u64 = 618;

/// Positions in the order in which they are due, lap after lap without end.
pub struct Schedule {
    trace: Arc<Trace>,
    /// Due time within a lap, ms of the trace's time, and index of the position.
    order: Vec<(u64, u32)>,
    lap_span: u64,
    speed_up: f64,
    next: usize,
    laps: u64,
}

impl Schedule {
    /// Replays `trace` `speed_up` times as fast as it was recorded.
    ///
    /// Where all times of the trace are whole seconds, each vehicle gets its own phase within the
    /// second: the positions of one second were not recorded at one moment.
    ///
    /// # Panics
    /// If `speed_up` is not a positive number.
    pub fn new(trace: Arc<Trace>, speed_up: f64) -> Schedule {
        assert!(speed_up.is_finite() && speed_up > 0.0, "a speed-up of {speed_up}");
        let start = trace.positions.first().map_or(0, |first| first.fix.millis);
        let coarse = trace.positions.iter().all(|position| position.fix.millis % 1_000 == 0);
        let due = |position: &Position| {
            let phase = if coarse { u64::from(position.fix.vehicle) * PHASE_STEP % 1_000 } else { 0 };
            position.fix.millis.abs_diff(start) + phase
        };
        let mut order: Vec<(u64, u32)> = trace.positions.iter().zip(0..).map(|(p, index)| (due(p), index)).collect();
        order.sort_unstable();
        let lap_span = order.last().map_or(0, |last| last.0) + LAP_GAP;
        Schedule { trace, order, lap_span, speed_up, next: 0, laps: 0 }
    }

    /// When the next position is due, counted from the start.
    pub fn next_due(&self) -> Duration {
        let millis = self.order[self.next].0 + self.laps * self.lap_span;
        Duration::from_secs_f64(millis as f64 / 1_000.0 / self.speed_up)
    }

    /// The next position that is due when `elapsed` has passed since the start.
    pub fn pop(&mut self, elapsed: Duration) -> Option<Position> {
        if self.next_due() > elapsed {
            return None;
        }
        let position = self.trace.positions[self.order[self.next].1 as usize];
        self.next += 1;
        if self.next == self.order.len() {
            self.next = 0;
            self.laps += 1;
        }
        Some(position)
    }

    /// The number of times that the trace was replayed to its end.
    pub fn laps(&self) -> u64 {
        self.laps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::geo::Place;
    use crate::fleet::trace::{Builder, Record};

    fn trace(fixes: &[(&str, i64)]) -> Arc<Trace> {
        let mut builder = Builder::new("test");
        for (vehicle, millis) in fixes {
            let record = Record { vehicle, line: "1", millis: *millis, place: Place { lat: 52.0, lon: 21.0 } };
            builder.add(&record, "test").expect("a good record");
        }
        Arc::new(builder.build().expect("some fixes"))
    }

    /// Runs `schedule` until `end` in virtual time: each due time with the vehicle.
    fn run(schedule: &mut Schedule, end: Duration) -> Vec<(u128, u32)> {
        let mut seen = Vec::new();
        while schedule.next_due() <= end {
            let now = schedule.next_due();
            let position = schedule.pop(now).expect("the next position is due when it is due");
            seen.push((now.as_millis(), position.fix.vehicle));
        }
        assert_eq!(schedule.pop(end), None, "nothing else is due");
        seen
    }

    #[test]
    fn positions_are_due_at_their_time_divided_by_the_speed_up() {
        let fixes = [("a", 5_001), ("b", 7_001), ("a", 15_001)];
        let mut schedule = Schedule::new(trace(&fixes), 10.0);
        assert_eq!(run(&mut schedule, Duration::from_millis(1_000)), [(0, 0), (200, 1), (1_000, 0)]);
    }

    #[test]
    fn the_trace_begins_again_after_its_end() {
        let mut schedule = Schedule::new(trace(&[("a", 1), ("b", 1_001)]), 1.0);
        let expected = [(0, 0), (1_000, 1), (2_000, 0), (3_000, 1), (4_000, 0)];
        assert_eq!(run(&mut schedule, Duration::from_millis(4_500)), expected);
        assert_eq!(schedule.laps(), 2);
    }

    #[test]
    fn whole_seconds_are_spread_and_keep_each_vehicles_intervals() {
        let fixes: Vec<(String, i64)> = (0..100).map(|v| (format!("bus{v:02}"), 0)).collect();
        let mut fixes: Vec<(&str, i64)> = fixes.iter().map(|(name, at)| (&**name, *at)).collect();
        fixes.push(("bus07", 12_000));
        let mut schedule = Schedule::new(trace(&fixes), 1.0);
        let seen = run(&mut schedule, Duration::from_millis(12_999));
        let in_tenth = |tenth: u128| seen.iter().filter(|(at, _)| at / 100 == tenth).count();
        assert!((0..10).all(|tenth| (8..=12).contains(&in_tenth(tenth))), "{seen:?}");
        let of_seven: Vec<u128> = seen.iter().filter(|(_, vehicle)| *vehicle == 7).map(|(at, _)| *at).collect();
        assert_eq!(of_seven[1] - of_seven[0], 12_000);
    }

    #[test]
    fn after_a_long_pause_everything_missed_is_due_at_once_in_order() {
        let mut schedule = Schedule::new(trace(&[("a", 1), ("b", 501), ("a", 2_001)]), 1.0);
        let mut missed = Vec::new();
        while let Some(position) = schedule.pop(Duration::from_millis(3_100)) {
            missed.push(position.fix.millis);
        }
        assert_eq!(missed, [1, 501, 2_001, 1]);
    }
}
