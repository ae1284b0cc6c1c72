//! The receiving end of a watched link: what has arrived, how late, and what the sender is told.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_wire::{LinkReport, LinkStamp};

use super::baseline::Baseline;
use super::window::SequenceWindow;
use crate::fault::NetFaults;

/// The least time between two reports of a flow.
pub const REPORT_EVERY_MIN: Duration = Duration::from_millis(20);

/// The time between two reports of a flow, as a part of its events' deadline.
const DEADLINE_PARTS: u32 = 4;

/// Reports behind the last frame of a flow: for as many round trips, and at least and at most so
/// many, as each may be lost.
const TRAILING_ROUND_TRIPS: u32 = 3;
const TRAILING_MIN: u32 = 3;
const TRAILING_MAX: u32 = 16;

/// The time between two reports while frames of a deadline flow.
pub(super) fn report_every(deadline_ms: u32) -> Duration {
    (Duration::from_millis(u64::from(deadline_ms)) / DEADLINE_PARTS).max(REPORT_EVERY_MIN)
}

/// The number with these low bits that is nearest to a known one.
pub(super) fn nearest(known: u64, low: u16) -> u64 {
    known.saturating_add_signed(i64::from(low.wrapping_sub(known as u16) as i16))
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub(super) baseline: Baseline,
    /// Frames that have arrived, or were sent before the first that did.
    arrived: SequenceWindow,
    /// Frames that were taken as repeats.
    repeated: SequenceWindow,
    /// Number of the last report, modulo 2^8.
    number: u8,
    /// The least excess since the last report, µs; `None` if no frame has arrived since.
    least_us: Option<u32>,
    /// The excess that was reported last, µs.
    reported_us: u32,
    /// The time until the next report, of the flow with the least deadline since the last one.
    every: Duration,
    /// Reports that still follow although no frame has arrived.
    trailing: u32,
    /// The last report was one of them.
    has_paused: bool,
}

/// A report that is to be sent now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueReport {
    pub(crate) report: LinkReport,
    /// The time until the one behind it.
    pub(crate) next_in: Duration,
    /// It is the first for which no frame has arrived: the flow has paused, or the other end has
    /// ended.
    pub(crate) has_paused: bool,
}

impl Arrivals {
    pub(super) fn new(faults: NetFaults) -> Arrivals {
        Arrivals { baseline: Baseline::new(faults), ..Arrivals::default() }
    }

    /// The sequence with these low bits that is nearest to the greatest one that is known.
    fn sequence(&self, low: u16) -> u64 {
        let highest = self.arrived.highest().or(self.repeated.highest());
        highest.map_or(u64::from(low), |highest| nearest(highest, low))
    }

    /// Whether a frame has arrived, or was taken as a repeat. One so far behind that this is not
    /// known counts as arrived: its repeat is not taken.
    pub(super) fn knows(&self, sequence: u16) -> bool {
        self.arrived.has(self.sequence(sequence)).unwrap_or(true) || self.was_repeated(sequence)
    }

    /// Whether a frame was taken as a repeat.
    pub(super) fn was_repeated(&self, sequence: u16) -> bool {
        self.repeated.has(self.sequence(sequence)).unwrap_or(false)
    }

    /// Records that a repeat of a frame is taken. Neither reports nor the least time tell of it.
    /// Returns by how much it took longer than that since the frame departed, µs.
    pub(super) fn record_repeat(&mut self, now: Time, stamp: LinkStamp) -> u32 {
        self.repeated.insert(self.sequence(stamp.sequence));
        self.baseline.excess_us(now, stamp.departed_us)
    }

    /// Records a frame. Returns by how much it took longer than the least time of this direction,
    /// µs, and the time within which it is to be reported.
    pub(super) fn record(&mut self, now: Time, stamp: LinkStamp) -> (u32, Duration) {
        let sequence = self.sequence(stamp.sequence);
        self.arrived.begin(sequence);
        self.arrived.insert(sequence);
        let excess_us = self.baseline.record_arrival(now, stamp.departed_us);
        let every = report_every(stamp.deadline_ms);
        self.every = if self.least_us.is_none() { every } else { self.every.min(every) };
        self.least_us = Some(self.least_us.map_or(excess_us, |least| least.min(excess_us)));
        (excess_us, every)
    }

    /// The next report; `None` if there is nothing to report.
    pub(super) fn report(&mut self) -> Option<DueReport> {
        let highest = self.arrived.highest()?;
        let mut has_paused = false;
        match self.least_us.take() {
            Some(least) => {
                self.reported_us = least;
                let round_trip = Duration::from_micros(u64::from(self.baseline.round_trip_us().unwrap_or(0)));
                let reports = (round_trip * TRAILING_ROUND_TRIPS).as_nanos() / self.every.as_nanos().max(1);
                self.trailing = (reports as u32).clamp(TRAILING_MIN, TRAILING_MAX);
                self.has_paused = false;
            }
            None => {
                self.trailing = self.trailing.checked_sub(1)?;
                has_paused = !core::mem::replace(&mut self.has_paused, true);
            }
        }
        self.number = self.number.wrapping_add(1);
        let (number, highest, missing) = (self.number, highest as u16, self.arrived.missing());
        let report = LinkReport { number, highest, excess_us: self.reported_us, missing };
        Some(DueReport { report, next_in: self.every, has_paused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos((1 << 60) + millis * 1_000_000)
    }

    fn stamp(sequence: u16, departed_ms: u64) -> LinkStamp {
        LinkStamp { sequence, departed_us: (departed_ms * 1_000) as u32, deadline_ms: 200 }
    }

    #[test]
    fn a_report_tells_the_highest_and_what_is_missing_below_it() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.report().is_none(), "nothing has arrived");
        for (sequence, departed) in [(65_534, 10), (65_535, 20), (1, 40)] {
            assert_eq!(arrivals.record(at(departed + 5), stamp(sequence, departed)), (0, Duration::from_millis(50)));
        }
        let DueReport { report, next_in: every, has_paused } = arrivals.report().expect("frames have arrived");
        assert!(!has_paused);
        assert_eq!((report.number, report.highest, report.missing), (1, 1, 0b10));
        assert_eq!((report.excess_us, every), (0, Duration::from_millis(50)));
        let (excess_us, _) = arrivals.record(at(75), stamp(0, 30));
        assert!((39_900..=40_000).contains(&excess_us), "{excess_us}");
        let DueReport { report, .. } = arrivals.report().expect("another has arrived");
        assert_eq!((report.number, report.missing, report.excess_us), (2, 0, excess_us));
    }

    #[test]
    fn a_repeat_is_taken_once_and_is_no_arrival() {
        let mut arrivals = Arrivals::default();
        assert!(!arrivals.knows(7));
        assert_eq!(arrivals.record_repeat(at(15), stamp(7, 0)), 0, "nothing to compare it with");
        assert!(arrivals.knows(7) && !arrivals.knows(6) && arrivals.report().is_none());
        for sequence in [8, 10] {
            arrivals.record(at(u64::from(sequence) * 10 + 5), stamp(sequence, u64::from(sequence) * 10));
        }
        assert!(arrivals.knows(8) && !arrivals.knows(9) && arrivals.knows(6), "6 is before the first");
        let excess_us = arrivals.record_repeat(at(105), stamp(9, 90));
        assert!((9_900..=10_000).contains(&excess_us), "it waited for 10 ms: {excess_us}");
        assert!(arrivals.knows(9) && arrivals.was_repeated(9) && !arrivals.was_repeated(8));
        let DueReport { report, .. } = arrivals.report().expect("frames have arrived");
        assert_eq!((report.highest, report.missing, report.excess_us), (10, 0b10, 0));
        arrivals.record(at(110), stamp(9, 90));
        let DueReport { report, .. } = arrivals.report().expect("it has arrived by itself");
        assert_eq!(report.missing, 0);
        assert!(arrivals.was_repeated(9), "and is known from its repeat");
        // Frames with the same numbers, 65,536 later.
        for sequence in (10..=u16::MAX).chain(0..8).step_by(5) {
            arrivals.record(at(120), stamp(sequence, 110));
        }
        assert!([7, 8, 9].into_iter().all(|sequence| !arrivals.was_repeated(sequence)));
        assert!(arrivals.knows(4) && !arrivals.knows(7));
    }

    #[test]
    fn reports_go_on_for_a_while_behind_the_last_frame() {
        let mut arrivals = Arrivals::default();
        arrivals.baseline.record_round_trip(at(0), Duration::from_millis(400));
        arrivals.record(at(1), stamp(0, 0));
        let mut reports = 0;
        while let Some(DueReport { report, has_paused, .. }) = arrivals.report() {
            reports += 1;
            assert_eq!(has_paused, reports == 2);
            assert_eq!((report.number, report.highest), (reports, 0));
        }
        assert_eq!(u32::from(reports), 1 + TRAILING_MAX, "1,200 ms of round trips are 24 reports");
    }

    #[test]
    fn a_frame_far_ahead_or_far_behind_is_taken() {
        let mut arrivals = Arrivals::default();
        for (sequence, missing) in [(5, 0), (30_000, u64::MAX - 1), (29_990, u64::MAX - 1 - (1 << 10)), (6, 0)] {
            arrivals.record(at(1), stamp(sequence, 0));
            let DueReport { report, .. } = arrivals.report().expect("a frame has arrived");
            assert!(sequence == 6 || report.missing == missing, "{:b}", report.missing);
        }
    }
}
