//! Rate limits that are kept by waiting.

use core::num::NonZeroU64;
use core::time::Duration;

use whimbrel_event::Time;

/// The largest burst: the amount that the rate allows in this time.
pub const BURST: Duration = Duration::from_secs(1);

const NANOS: u128 = 1_000_000_000;

/// A token bucket. Every amount is taken; beyond the rate the bucket tells how long to wait before
/// more is taken.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// When it will be full.
    full_at: Time,
}

impl Bucket {
    /// A full bucket.
    pub fn new() -> Bucket {
        Bucket { full_at: Time::from_nanos(0) }
    }

    /// Takes an amount at a rate per second. Returns how long to wait before more may be taken;
    /// zero: not at all.
    pub fn take(&mut self, now: Time, amount: u64, per_second: NonZeroU64) -> Duration {
        let cost = u128::from(amount) * NANOS / u128::from(per_second.get());
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        self.full_at = self.full_at.max(now).after(cost);
        self.wait(now)
    }

    /// How long to wait before more may be taken.
    pub fn wait(&self, now: Time) -> Duration {
        self.full_at.since(now).saturating_sub(BURST)
    }

    /// Whether all that was taken is refilled.
    pub fn is_full(&self, now: Time) -> bool {
        self.full_at <= now
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000 * (1_000_000 + millis))
    }

    fn rate(per_second: u64) -> NonZeroU64 {
        NonZeroU64::new(per_second).expect("a rate")
    }

    #[test]
    fn beyond_a_burst_the_rate_is_kept() {
        let mut bucket = Bucket::new();
        for _ in 0..10 {
            assert_eq!(bucket.take(at(0), 1, rate(10)), Duration::ZERO);
        }
        assert_eq!(bucket.take(at(0), 1, rate(10)), Duration::from_millis(100));
        assert_eq!(bucket.take(at(100), 1, rate(10)), Duration::from_millis(100));
        assert_eq!(bucket.take(at(100), 20, rate(10)), Duration::from_millis(2100));
        assert!(!bucket.is_full(at(3100)) && bucket.is_full(at(3300)));
        assert_eq!(bucket.take(at(60_000), 10, rate(10)), Duration::ZERO, "more than a burst is not saved up");
    }

    #[test]
    fn absurd_amounts_do_not_overflow() {
        let mut bucket = Bucket::new();
        assert!(bucket.take(at(0), u64::MAX, rate(1)) > Duration::from_secs(1 << 30));
        assert!(bucket.take(at(1), u64::MAX, rate(1)) > Duration::from_secs(1 << 30));
    }
}
