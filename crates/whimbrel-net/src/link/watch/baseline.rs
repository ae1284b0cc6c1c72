//! The least time that frames take over one direction of a link, from the departure times of one
//! clock and the arrival times of another.
//!
//! The difference of the two is the time on the link, the difference of the clocks, and the drift
//! of that: two clocks drift apart by 60 ms in ten minutes at 100 parts per million. So the least
//! time is a line under the differences: an edge of their lower convex hull, after Moon, Skelly,
//! Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements" (1999).

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::Time;

use super::micros_of;
use crate::fault::NetFaults;

/// Differences are kept as the least one of each span of this length.
const BUCKET: Duration = Duration::from_secs(5);

/// Spans that are kept: ten minutes.
const BUCKETS_MAX: usize = 120;

/// The drift is not known while less time than this has been seen: the least differences vary by
/// more than it amounts to. It is taken as [`DRIFT_MAX_PPB`] then, so that it is not mistaken for
/// excess; each frame without excess takes the line back to it.
const DRIFT_SPAN_MIN: Duration = Duration::from_secs(15);

/// Two clocks drift apart by at most this, parts per billion: more is a change of the path.
const DRIFT_MAX_PPB: i64 = 300_000;

/// A greater excess counts as this, µs.
pub(super) const EXCESS_MAX_US: i64 = 60_000_000;

/// A span whose least round trip is greater than the least of all by an eighth and this was
/// congested, µs: its differences say nothing of clocks.
const CONGESTED_US: u32 = 2_000;

/// The least values of a span.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    begins: Time,
    /// The least difference, µs, and when it was.
    least: Option<(Time, i64)>,
    /// The least round trip, µs; `u32::MAX` if none was measured.
    round_trip_us: u32,
}

/// The least difference at each moment: a line.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: Time,
    value_us: i64,
    drift_ppb: i64,
}

impl Line {
    fn value_at(&self, now: Time) -> i64 {
        self.value_us + drifted(self.drift_ppb, now.ahead_of(self.at))
    }
}

/// The drift over `nanos`, µs.
fn drifted(drift_ppb: i64, nanos: i64) -> i64 {
    (i128::from(drift_ppb) * i128::from(nanos) / 1_000_000_000_000) as i64
}

/// See the module. An arrival costs one multiplication; each [`BUCKET`] the line is fitted anew, in
/// [`BUCKETS_MAX`] steps. At most 5 KB.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    buckets: VecDeque<Bucket>,
    line: Option<Line>,
    /// The difference of the last frame, µs: the next one is the nearest to it modulo 2^32.
    last_us: i64,
    faults: NetFaults,
}

impl Baseline {
    pub(super) fn new(faults: NetFaults) -> Baseline {
        Baseline { faults, ..Baseline::default() }
    }

    /// The difference of departure and arrival of a frame that arrives now, µs.
    fn difference_us(&self, now: Time, departed_us: u32) -> i64 {
        let nearest = micros_of(now).wrapping_sub(departed_us).wrapping_sub(self.last_us as u32) as i32;
        self.last_us + i64::from(nearest)
    }

    /// By how much longer than the least time a frame took that is here now, µs; 0 if that time is
    /// not known. The frame is not recorded.
    pub(super) fn excess_us(&self, now: Time, departed_us: u32) -> u32 {
        let difference = self.difference_us(now, departed_us);
        let excess = self.line.map_or(0, |line| difference - line.value_at(now));
        excess.clamp(0, EXCESS_MAX_US) as u32
    }

    /// Records the arrival of a frame. Returns by how much it took longer than the least time, µs.
    pub(super) fn record_arrival(&mut self, now: Time, departed_us: u32) -> u32 {
        let difference = self.difference_us(now, departed_us);
        self.last_us = difference;
        self.roll(now);
        let bucket = self.buckets.back_mut().expect("there is one for this moment");
        if bucket.least.is_none_or(|(_, least)| difference < least) {
            bucket.least = Some((now, difference));
        }
        let line = self.line.get_or_insert(Line { at: now, value_us: difference, drift_ppb: DRIFT_MAX_PPB });
        let excess = difference - line.value_at(now);
        // The line stays below all differences.
        line.value_us += excess.min(0);
        excess.clamp(0, EXCESS_MAX_US) as u32
    }

    /// Records a round trip over the link.
    pub(super) fn record_round_trip(&mut self, now: Time, round_trip: Duration) {
        self.roll(now);
        let bucket = self.buckets.back_mut().expect("there is one for this moment");
        let micros = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        bucket.round_trip_us = bucket.round_trip_us.min(micros);
    }

    /// The least round trip of the last ten minutes, µs.
    pub(super) fn round_trip_us(&self) -> Option<u32> {
        self.buckets.iter().map(|bucket| bucket.round_trip_us).min().filter(|least| *least != u32::MAX)
    }

    /// Begins a new bucket if the last one is over, and fits the line then.
    fn roll(&mut self, now: Time) {
        if self.buckets.back().is_some_and(|last| now.since(last.begins) < BUCKET) {
            return;
        }
        if self.buckets.len() >= BUCKETS_MAX {
            self.buckets.pop_front();
        }
        let whole = BUCKET * BUCKETS_MAX as u32;
        while self.buckets.front().is_some_and(|first| now.since(first.begins) > whole) {
            self.buckets.pop_front();
        }
        self.buckets.push_back(Bucket { begins: now, least: None, round_trip_us: u32::MAX });
        self.fit(now);
    }

    fn fit(&mut self, now: Time) {
        let points = self.points();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let is_long = last.0.since(first.0) >= DRIFT_SPAN_MIN;
        let drift_ppb = match is_long {
            _ if fault!(self, HullWithoutSlope) => 0,
            true => drift_ppb(&points),
            false => DRIFT_MAX_PPB,
        };
        let value_at_now = |(at, value): &(Time, i64)| value + drifted(drift_ppb, now.ahead_of(*at));
        let value_us = points.iter().map(value_at_now).min().expect("there is a first");
        self.line = Some(Line { at: now, value_us, drift_ppb });
    }

    /// The least differences of the spans, without those that were congested.
    fn points(&self) -> Vec<(Time, i64)> {
        let least = self.round_trip_us();
        let is_clear = |bucket: &&Bucket| {
            least.is_none_or(|least| bucket.round_trip_us <= least.saturating_add(least / 8 + CONGESTED_US))
        };
        let clear: Vec<_> = self.buckets.iter().filter(is_clear).filter_map(|bucket| bucket.least).collect();
        if clear.is_empty() { self.buckets.iter().filter_map(|bucket| bucket.least).collect() } else { clear }
    }
}

/// The slope of the lower hull of points, which are in the order of time, at the mean of their
/// times; parts per billion.
fn drift_ppb(points: &[(Time, i64)]) -> i64 {
    let begin = points[0].0;
    let at = |point: &(Time, i64)| i128::from(point.0.ahead_of(begin));
    let mut hull: Vec<(i128, i128)> = Vec::with_capacity(points.len());
    for point in points {
        let (x, y) = (at(point), i128::from(point.1));
        while let [.., (x0, y0), (x1, y1)] = hull[..]
            && (y1 - y0) * (x - x0) >= (y - y0) * (x1 - x0)
        {
            hull.pop();
        }
        hull.push((x, y));
    }
    let mean = points.iter().map(at).sum::<i128>() / points.len() as i128;
    let end = hull.partition_point(|(x, _)| *x < mean).clamp(1, hull.len().max(2) - 1);
    let [.., (x0, y0), (x1, y1)] = hull[..=end] else { return 0 };
    // Micros over nanos.
    let slope = (y1 - y0) * 1_000_000_000_000 / (x1 - x0).max(1);
    slope.clamp(i128::from(-DRIFT_MAX_PPB), i128::from(DRIFT_MAX_PPB)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1 << 60;

    /// A sender whose clock is off by something and runs faster by `ppm`; frames take `way_us`.
    struct Direction {
        baseline: Baseline,
        ppm: i64,
    }

    impl Direction {
        fn new(ppm: i64) -> Direction {
            Direction { baseline: Baseline::default(), ppm }
        }

        /// The excess of a frame that arrives `at_ms` after the begin.
        fn arrive(&mut self, at_ms: u64, way_us: u64) -> u32 {
            let arrived = Time::from_nanos(BEGIN + at_ms * 1_000_000);
            let departed = at_ms * 1_000 - way_us;
            let drift = departed as i64 * self.ppm / 1_000_000;
            let clock = (0xfff0_0000_u64 + departed).wrapping_add_signed(drift);
            self.baseline.record_arrival(arrived, clock as u32)
        }

        fn round_trip(&mut self, at_ms: u64, round_trip_us: u64) {
            let now = Time::from_nanos(BEGIN + at_ms * 1_000_000);
            self.baseline.record_round_trip(now, Duration::from_micros(round_trip_us));
        }
    }

    /// A jitter between 0 and 1,999 µs.
    fn jitter(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0x7ff
    }

    #[test]
    fn excess_is_right_within_milliseconds_however_the_clocks_drift() {
        for ppm in [-200, -100, 0, 100, 200] {
            let mut direction = Direction::new(ppm);
            for number in 0..120_000_u64 {
                // An excess of 30 ms for a second of each ten.
                let more = if number % 1_000 < 100 && number > 1_000 { 30_000 } else { 0 };
                let jitter = jitter(number);
                let excess = u64::from(direction.arrive(1_000 + number * 10, 20_000 + more + jitter));
                let off = excess.abs_diff(more + jitter);
                assert!(off <= 5_000, "{off} µs off at frame {number} with {ppm} ppm");
            }
        }
    }

    #[test]
    fn a_direction_that_stays_slow_is_in_excess_as_long_as_its_round_trip_shows_it() {
        let mut direction = Direction::new(50);
        for second in 1..900_u64 {
            let more = if second > 120 { 80_000 } else { 0 };
            direction.round_trip(second * 1_000, 40_000 + more);
            let excess = u64::from(direction.arrive(second * 1_000, 20_000 + more));
            if second < 600 {
                assert!(excess.abs_diff(more) < 5_000, "{excess} µs after {second} s");
            }
        }
        assert_eq!(direction.baseline.round_trip_us(), Some(120_000), "the fast time is forgotten");
        assert!(direction.arrive(900_000, 100_000) < 5_000);
    }

    #[test]
    fn a_faster_path_counts_at_once() {
        let mut direction = Direction::new(0);
        for number in 0..6_000_u64 {
            let slow = if number < 3_000 { 60_000 } else { 0 };
            direction.round_trip(1_000 + number * 100, 40_000 + slow);
            let excess = direction.arrive(1_000 + number * 100, 20_000 + slow);
            assert!(excess < 1_000, "{excess} µs at {number}");
        }
    }

    #[test]
    fn departure_times_that_mean_nothing_do_no_harm() {
        let mut baseline = Baseline::default();
        for number in 0..10_000_u64 {
            let now = Time::from_nanos(BEGIN + number * 50_000_000);
            let excess = baseline.record_arrival(now, (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32);
            assert!(i64::from(excess) <= EXCESS_MAX_US);
            assert!(baseline.buckets.len() <= BUCKETS_MAX);
        }
    }
}
