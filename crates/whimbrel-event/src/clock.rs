//! The clock of a broker, as a state machine that is given the readings of two other clocks.

use core::time::Duration;

use crate::Time;

/// How much faster or slower than the monotonic clock a [`Clock`] may run, parts per million. NTP
/// daemons allow themselves the same, so it can keep up with a system clock that is itself being
/// slewed.
pub const SLEW_PPM: u64 = 500;

/// One nanosecond of correction takes this many nanoseconds.
const SLEW: u64 = 1_000_000 / SLEW_PPM;

/// A difference between the wall clock and a [`Clock`] up to this is not reported.
pub const STEP_MAX: Duration = Duration::from_secs(60);

/// Start time plus a monotonic clock, slewed towards the wall clock. It never goes backwards.
///
/// The driver reads the wall clock at intervals and passes it to [`Clock::observe`]. If the wall
/// clock is behind, this clock runs slower, however large the difference is. If it is ahead, this
/// clock runs faster, unless the difference is more than [`STEP_MAX`]: ticks that are given out
/// cannot be taken back, so a clock that leaps by mistake must not take the streams with it. Such a
/// step is refused until an operator accepts it; until then this clock keeps the pace of the
/// monotonic one.
///
/// Moments of the monotonic clock are given as the time since any fixed moment.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The time of this clock at `since`.
    anchor: Time,
    /// When the wall clock was observed last, on the monotonic clock.
    since: Duration,
    /// The correction that is added gradually from `since` on, nanoseconds.
    correction: i64,
    observed: Observed,
    refused: u64,
}

/// An observation of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// By how much the wall clock was ahead, nanoseconds; negative if behind.
    pub offset_nanos: i64,
    /// How the clock treats it.
    pub standing: Standing,
    /// Whether an operator should be told: the standing has changed, or there was another step.
    pub news: bool,
}

/// How a [`Clock`] treats the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The wall clock is followed.
    Followed,
    /// The wall clock is more than [`STEP_MAX`] behind, so following it takes long.
    Behind,
    /// The wall clock is more than [`STEP_MAX`] ahead, and is not followed unless an operator
    /// accepts it.
    Refused,
}

impl Observed {
    /// The difference without its sign.
    pub fn by(&self) -> Duration {
        Duration::from_nanos(self.offset_nanos.unsigned_abs())
    }
}

impl Clock {
    /// A clock that begins at the time of the wall clock.
    pub fn start(wall: Time, monotonic: Duration) -> Self {
        let observed = Observed { offset_nanos: 0, standing: Standing::Followed, news: false };
        Clock { anchor: wall, since: monotonic, correction: 0, observed, refused: 0 }
    }

    /// The time at a moment of the monotonic clock. For a moment before the last observation, the
    /// time at that observation.
    pub fn read(&self, monotonic: Duration) -> Time {
        let elapsed = nanos(monotonic.saturating_sub(self.since));
        let correction = self.correction.unsigned_abs().min(elapsed / SLEW);
        let corrected = if self.correction < 0 { elapsed - correction } else { elapsed.saturating_add(correction) };
        self.anchor.after(Duration::from_nanos(corrected))
    }

    /// The first moment on the monotonic clock at which the time is `at` or later, unless a later
    /// observation changes that. For a time that has passed: the moment of the last observation.
    pub fn when(&self, at: Time) -> Duration {
        let wanted = u128::from(nanos(at.since(self.anchor)));
        let (slew, correction) = (u128::from(SLEW), u128::from(self.correction.unsigned_abs()));
        // During the correction, and after it; the inverse of `read`, rounded up.
        let elapsed = if self.correction < 0 {
            let corrected = wanted.checked_sub(1).map_or(0, |before| before * slew / (slew - 1) + 1);
            corrected.min(wanted + correction)
        } else {
            (wanted * slew).div_ceil(slew + 1).max(wanted.saturating_sub(correction))
        };
        self.since.saturating_add(Duration::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX)))
    }

    /// Observes the wall clock at a moment of the monotonic clock.
    pub fn observe(&mut self, wall: Time, monotonic: Duration) -> Observed {
        let before = self.observed;
        let offset_nanos = self.keep_pace(wall, monotonic);
        let ahead = i128::from(offset_nanos).unsigned_abs() > STEP_MAX.as_nanos();
        let standing = match (ahead, offset_nanos < 0) {
            (false, _) => Standing::Followed,
            (true, true) => Standing::Behind,
            (true, false) => Standing::Refused,
        };
        if standing != Standing::Refused {
            self.correction = offset_nanos;
        }
        self.observed = Observed { offset_nanos, standing, news: false };
        let stepped = standing != Standing::Followed && self.observed.by() > before.by() + STEP_MAX;
        self.observed.news = standing != before.standing || stepped;
        self.refused += u64::from(standing == Standing::Refused && self.observed.news);
        self.observed
    }

    /// Steps forward to the time of the wall clock, however far; returns the size of the step. Does
    /// nothing if the wall clock is not ahead.
    pub fn accept(&mut self, wall: Time, monotonic: Duration) -> Duration {
        let step = wall.since(self.read(monotonic));
        if step > Duration::ZERO {
            self.keep_pace(wall, monotonic);
            self.anchor = wall;
            self.observed = Observed { offset_nanos: 0, standing: Standing::Followed, news: false };
        }
        step
    }

    /// The last observation of the wall clock.
    pub fn observed(&self) -> Observed {
        self.observed
    }

    /// Number of steps of the wall clock that were refused, accepted later or not.
    pub fn steps_refused(&self) -> u64 {
        self.refused
    }

    /// Goes on from that moment without a correction; returns how far the wall clock is ahead,
    /// nanoseconds.
    fn keep_pace(&mut self, wall: Time, monotonic: Duration) -> i64 {
        self.anchor = self.read(monotonic);
        self.since = self.since.max(monotonic);
        self.correction = 0;
        let offset = i128::from(wall.as_nanos()) - i128::from(self.anchor.as_nanos());
        i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_795_000_000;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A time of the wall clock.
    fn wall(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn clock() -> Clock {
        Clock::start(wall(START), seconds(7))
    }

    /// The wall clock that many seconds ahead is looked at every second, for a while; the last of
    /// what was found.
    fn observe_for(clock: &mut Clock, from: u64, span: u64, ahead: i64) -> Observed {
        let look = |at: u64| clock.observe(wall((START + at - 7).strict_add_signed(ahead)), seconds(at));
        (from..=from + span).map(look).last().unwrap()
    }

    #[test]
    fn it_runs_with_the_monotonic_clock() {
        let clock = clock();
        assert_eq!(clock.read(seconds(7)), wall(START));
        assert_eq!(clock.read(seconds(1_007)), wall(START + 1_000));
        assert_eq!(clock.read(seconds(1)), wall(START), "before its start");
    }

    #[test]
    fn it_is_slewed_at_no_more_than_its_rate_and_arrives() {
        for ahead in [-60_i64, -1, 1, 60] {
            let mut clock = clock();
            let found = observe_for(&mut clock, 7, 0, ahead);
            assert_eq!((found.standing, found.news), (Standing::Followed, false));
            let before = clock.read(seconds(7));
            let changed = clock.read(seconds(107)).since(before).as_nanos() as i64 - seconds(100).as_nanos() as i64;
            assert_eq!(changed, ahead.signum() * 50_000_000, "500 parts of a million of 100 s");
            let needed = ahead.unsigned_abs() * SLEW;
            assert_eq!(observe_for(&mut clock, 8, needed, ahead).offset_nanos, 0, "{ahead} s are made up for");
            assert_eq!(observe_for(&mut clock, needed + 9, 100, ahead).offset_nanos, 0, "and no more than that");
        }
    }

    #[test]
    fn the_correction_ends_with_the_difference_although_nobody_looks() {
        let mut clock = clock();
        clock.observe(wall(START + 1), seconds(7));
        assert_eq!(clock.read(seconds(1_000_007)), wall(START + 1_000_001));
    }

    #[test]
    fn a_far_step_forward_is_refused_until_it_is_accepted() {
        let mut clock = clock();
        let found = observe_for(&mut clock, 7, 0, 61);
        assert_eq!((found.standing, found.by(), found.news), (Standing::Refused, seconds(61), true));
        let found = observe_for(&mut clock, 8, 10_000, 61);
        assert_eq!((found.standing, found.by(), found.news), (Standing::Refused, seconds(61), false));
        assert_eq!(clock.read(seconds(20_007)), wall(START + 20_000), "it keeps its pace");
        assert_eq!(clock.accept(wall(START + 20_061), seconds(20_007)), seconds(61));
        assert_eq!(clock.read(seconds(20_008)), wall(START + 20_062));
        let found = observe_for(&mut clock, 20_009, 0, 61);
        assert_eq!(
            (found, clock.steps_refused()),
            (Observed { offset_nanos: 0, standing: Standing::Followed, news: false }, 1)
        );
    }

    #[test]
    fn a_step_that_is_taken_back_is_followed_again() {
        let mut clock = clock();
        observe_for(&mut clock, 7, 0, 3_600);
        let found = observe_for(&mut clock, 8, 0, 0);
        assert_eq!((found.standing, found.offset_nanos, found.news), (Standing::Followed, 0, true));
    }

    #[test]
    fn each_further_step_is_told_and_counted() {
        let mut clock = clock();
        let told = [100, 100, 159, 220, 100, 300, 0, 61].map(|ahead| observe_for(&mut clock, 7, 0, ahead).news);
        assert_eq!(told, [true, false, false, true, false, true, true, true]);
        assert_eq!(clock.steps_refused(), 4);
    }

    #[test]
    fn a_far_step_back_only_slows_it_and_is_told() {
        let mut clock = clock();
        let found = observe_for(&mut clock, 7, 0, -86_400);
        assert_eq!((found.standing, found.by(), found.news), (Standing::Behind, seconds(86_400), true));
        assert_eq!(clock.read(seconds(2_007)), wall(START + 1_999));
        let found = observe_for(&mut clock, 8, 1_999, -86_400);
        assert_eq!((found.standing, found.by(), found.news), (Standing::Behind, seconds(86_399), false));
        assert_eq!(clock.steps_refused(), 0);
        assert_eq!(clock.accept(wall(START), seconds(3_000)), Duration::ZERO, "it never goes back");
        assert!(clock.read(seconds(3_000)) > wall(START + 2_900));
    }

    #[test]
    fn the_extremes_do_no_harm() {
        let mut clock = clock();
        clock.observe(Time::ZERO, Duration::MAX);
        clock.observe(Time::from_nanos(u64::MAX), Duration::ZERO);
        clock.accept(Time::from_nanos(u64::MAX), Duration::ZERO);
        clock.observe(Time::ZERO, Duration::MAX);
        assert_eq!(clock.read(Duration::MAX), Time::from_nanos(u64::MAX));
        assert_eq!(
            Clock::start(Time::ZERO, Duration::ZERO).when(Time::from_nanos(u64::MAX)).as_nanos(),
            u128::from(u64::MAX)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_never_goes_backwards_nor_faster_than_its_rate_unless_told(
            steps in vec((0..5_000_000_000_u64, -200_000_000_000..200_000_000_000_i64, 0..8u8), 1..60),
        ) {
            let mut clock = clock();
            let mut monotonic = seconds(7);
            let mut last = clock.read(monotonic);
            for (elapsed, ahead, kind) in steps {
                monotonic += Duration::from_nanos(elapsed);
                let now = clock.read(monotonic);
                prop_assert!(now >= last);
                let ran = nanos(now.since(last));
                prop_assert!(ran.abs_diff(elapsed) <= elapsed / SLEW + 1, "{} in {}", ran, elapsed);
                let wall = Time::from_nanos(now.as_nanos().strict_add_signed(ahead));
                last = now;
                match kind {
                    0 => {
                        clock.accept(wall, monotonic);
                        last = wall.max(now);
                    }
                    1..3 => drop(clock.observe(wall, monotonic)),
                    _ => {}
                }
                prop_assert_eq!(clock.read(monotonic), last);
            }
        }

        #[test]
        fn when_it_says_something_is_when_reading_it_says_so(
            ahead in -60_000_000_000..60_000_000_000_i64, small in -9_000..9_000_i64, later in 1..1_000_000_000_000_000_u64,
        ) {
            for (ahead, later) in [(ahead, later), (small, later % 50_000_000 + 1), (0, later)] {
                let mut clock = clock();
                clock.observe(Time::from_nanos(wall(START).as_nanos().strict_add_signed(ahead)), seconds(7));
                let at = wall(START).after(Duration::from_nanos(later));
                let when = clock.when(at);
                prop_assert!(clock.read(when) >= at);
                prop_assert!(clock.read(when - Duration::from_nanos(1)) < at);
            }
        }
    }
}
