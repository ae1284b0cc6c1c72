//! A broker's clock that runs at another rate than the world's.

use whimbrel_event::Time;

use super::START;

/// Parts of the rate by which a clock is too fast are counted in.
const PARTS: i128 = 1_000_000;

/// By how much a broker's clock runs too fast, millionths; it is right at [`START`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockDrift(pub i32);

impl ClockDrift {
    /// What the clock shows at a moment of the world.
    pub fn shown_at(self, at: Time) -> Time {
        self.moved(at, |since| since * (PARTS + i128::from(self.0)) / PARTS)
    }

    /// The first moment of the world at which the clock shows this time, or a later one.
    pub fn reaches(self, shown: Time) -> Time {
        let rate = PARTS + i128::from(self.0);
        self.moved(shown, |since| (since * PARTS + rate - 1).div_euclid(rate))
    }

    fn moved(self, time: Time, scaled: impl Fn(i128) -> i128) -> Time {
        let since = i128::from(time.as_nanos()) - i128::from(START.as_nanos());
        if self.0 == 0 || since <= 0 {
            return time;
        }
        let nanos = i128::from(START.as_nanos()) + scaled(since);
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_reaches_what_it_shows() {
        for ppm in [-100, 0, 1, 100] {
            let drift = ClockDrift(ppm);
            assert_eq!(drift.shown_at(START), START);
            for nanos in [1, 999_999_999, 3_600_000_000_001] {
                let at = START + Duration::from_nanos(nanos);
                let shown = drift.shown_at(at);
                let reached = drift.reaches(shown);
                assert!(drift.shown_at(reached) >= shown && reached <= at, "{ppm} at {nanos}");
            }
        }
        let hour = START + Duration::from_secs(3_600);
        assert_eq!(ClockDrift(100).shown_at(hour).since(hour), Duration::from_millis(360));
        assert!(ClockDrift(100).reaches(Time::MAX) > hour);
    }
}
