//! Whether a link is thin: its path is what holds its events up, and is slow enough for
//! compression.
//!
//! A fast path that is full is left alone: to compress costs more there than the path does. A link
//! that is compressed often waits no more, which says nothing against compressing it: it stays thin
//! as long as its plain bytes would fill its path.

use std::time::{Duration, Instant};

/// Time over which a link is judged.
const SPAN: Duration = Duration::from_secs(1);

/// Of a span, a link has to wait for its path this part (numerator, denominator) to be thin.
const WAITS: (u32, u32) = (3, 4);

/// A path that carries more bytes a second is not thin: 100 Mbit/s. To compress as much as it takes
/// at a ratio of 6 would already take most of a core.
const RATE_MAX: u64 = 12_500_000;

/// A compressed link stays thin while its plain bytes are at least one in this many of those that
/// its path carries.
const FILLS_ONE_IN: u64 = 2;

/// A link is thin no more when it has not been for this time.
const KEPT: Duration = Duration::from_secs(10);

/// Judges one link by what its driver sees.
#[derive(Debug)]
pub(super) struct Thinness {
    is_thin: bool,
    is_waiting: bool,
    /// When the driver last looked.
    looked: Instant,
    /// When this span began, how long the link has waited in it, and the plain bytes that have been
    /// compressed in it.
    began: Instant,
    waited: Duration,
    plain: u64,
    /// The greatest rate of the path in this span at which the link waited for it, and that of the
    /// last span in which the link waited most of the time, bytes a second.
    rate: u64,
    carried: u64,
    /// When the link was last found thin.
    confirmed: Instant,
}

impl Thinness {
    /// Of a new link.
    pub(super) fn new(now: Instant) -> Thinness {
        Thinness {
            is_thin: false,
            is_waiting: false,
            looked: now,
            began: now,
            waited: Duration::ZERO,
            plain: 0,
            rate: 0,
            carried: 0,
            confirmed: now,
        }
    }

    /// Whether the link is thin.
    pub(super) fn is_thin(&self) -> bool {
        self.is_thin
    }

    /// Whether the driver has to look although nothing waits: the link waited, or is thin.
    pub(super) fn is_watched(&self) -> bool {
        self.is_waiting || self.is_thin
    }

    /// Records whether output waits for the path from now on, the plain bytes that have been
    /// compressed since the last call, and the path's rate in bytes a second.
    pub(super) fn record(&mut self, now: Instant, is_waiting: bool, plain: u64, rate: u64) {
        let since = now.saturating_duration_since(self.looked);
        if self.is_waiting {
            self.waited += since;
            self.rate = self.rate.max(rate);
        } else if !self.is_thin && since > SPAN {
            // Nothing was looked at in between.
            self.restart(now);
        }
        (self.looked, self.is_waiting) = (now, is_waiting);
        self.plain += plain;
        let span = now.saturating_duration_since(self.began);
        if span >= SPAN {
            self.judge(now, span);
            self.restart(now);
        }
    }

    fn restart(&mut self, now: Instant) {
        (self.began, self.waited, self.plain, self.rate) = (now, Duration::ZERO, 0, 0);
    }

    fn judge(&mut self, now: Instant, span: Duration) {
        let waits = self.waited * WAITS.1 >= span * WAITS.0;
        if waits {
            self.carried = self.rate;
        }
        let millis = (span.as_millis() as u64).max(1);
        let is_filled = self.is_thin && self.plain * 1_000 / millis >= self.carried / FILLS_ONE_IN;
        if (waits || is_filled) && self.carried <= RATE_MAX {
            (self.is_thin, self.confirmed) = (true, now);
        } else if now.saturating_duration_since(self.confirmed) >= KEPT {
            self.is_thin = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 125_000;
    const STEP: Duration = Duration::from_millis(10);

    struct World {
        now: Instant,
        thin: Thinness,
    }

    impl World {
        fn new() -> World {
            let now = Instant::now();
            World { now, thin: Thinness::new(now) }
        }

        /// Looks each 10 ms for a number of milliseconds. Output waits in the first `waits` of each
        /// 100 ms. Returns after how long the verdict changed.
        fn run(&mut self, millis: u64, waits: u64, plain: u64, rate: u64) -> Option<u64> {
            let before = self.thin.is_thin();
            let mut changed = None;
            for at in (0..millis).step_by(10) {
                self.thin.record(self.now, at % 100 < waits, plain, rate);
                if changed.is_none() && self.thin.is_thin() != before {
                    changed = Some(at);
                }
                self.now += STEP;
            }
            changed
        }
    }

    #[test]
    fn a_link_that_waits_most_of_a_second_for_a_slow_path_is_thin() {
        let mut world = World::new();
        assert_eq!(world.run(5_000, 0, 0, RATE), None, "nothing waits");
        assert_eq!(world.run(5_000, 60, 0, RATE), None, "it waits now and then");
        let after = world.run(3_000, 100, 0, RATE).expect("it is thin");
        assert!((700..=2_000).contains(&after), "{after}");
    }

    #[test]
    fn a_fast_path_that_is_full_is_not_thin() {
        let mut world = World::new();
        assert_eq!(world.run(20_000, 100, 0, RATE_MAX + 1), None);
        assert!(world.run(3_000, 100, 0, RATE_MAX).is_some());
        let after = world.run(20_000, 100, 1 << 20, RATE_MAX * 2).expect("it is thin no more");
        assert!((8_900..=11_100).contains(&after), "{after}");
    }

    #[test]
    fn a_burst_after_a_pause_is_judged_by_itself() {
        let mut world = World::new();
        world.run(500, 100, 0, RATE);
        world.thin.record(world.now, false, 0, RATE);
        world.now += Duration::from_secs(60);
        assert_eq!(world.run(500, 100, 0, RATE), None);
    }

    #[test]
    fn a_link_stays_thin_while_its_plain_bytes_would_fill_its_path() {
        let mut world = World::new();
        world.run(3_000, 100, 0, RATE);
        assert!(world.thin.is_thin());
        assert_eq!(world.run(60_000, 0, RATE / 100, RATE / 4), None, "compressed it does not wait");
        let after = world.run(20_000, 0, RATE / 300, RATE / 12).expect("it is thin no more");
        assert!((8_900..=11_100).contains(&after), "{after}");
    }

    #[test]
    fn a_link_that_was_silent_is_thin_no_more() {
        let mut world = World::new();
        world.run(3_000, 100, 0, RATE);
        world.thin.record(world.now, false, 0, RATE);
        world.now += KEPT * 2;
        assert!(world.thin.is_watched());
        world.thin.record(world.now, false, 0, RATE);
        assert!(!world.thin.is_thin());
    }
}
