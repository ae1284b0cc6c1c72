//! Time as the deterministic parts of Whimbrel see it: a number handed in by the caller.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A moment on one broker's clock: nanoseconds since the Unix epoch.
///
/// The driver computes it as start time plus a monotonic clock, so it never runs backwards while a
/// process runs. Moments of different brokers are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The smallest moment; earlier than any clock reading.
    pub const ZERO: Time = Time(0);

    /// The greatest moment; later than any clock reading.
    pub const MAX: Time = Time(u64::MAX);

    /// A moment from nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved forward; stops at the largest representable moment (the year 2554).
    pub const fn after(self, span: Duration) -> Time {
        let nanos = span.as_nanos();
        if nanos > (u64::MAX - self.0) as u128 { Time(u64::MAX) } else { Time(self.0 + nanos as u64) }
    }

    /// This moment by a clock that is `nanos` ahead.
    pub const fn by_clock_ahead(self, nanos: i64) -> Time {
        Time(self.0.wrapping_add_signed(nanos))
    }

    /// By how many nanoseconds this moment is later than `other`; wraps around.
    pub const fn ahead_of(self, other: Time) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// This moment moved back; stops at [`Time::ZERO`].
    pub const fn before(self, span: Duration) -> Time {
        let nanos = span.as_nanos();
        if nanos > self.0 as u128 { Time(0) } else { Time(self.0 - nanos as u64) }
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        self.after(span)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_forward_saturates() {
        assert_eq!(Time::from_nanos(u64::MAX - 1).after(Duration::from_secs(9)), Time::from_nanos(u64::MAX));
        assert_eq!(Time::from_nanos(5).after(Duration::from_nanos(7)), Time::from_nanos(12));
    }

    #[test]
    fn moving_back_saturates() {
        assert_eq!(Time::from_nanos(7).before(Duration::from_nanos(9)), Time::ZERO);
        assert_eq!(Time::from_nanos(9).before(Duration::from_nanos(7)), Time::from_nanos(2));
    }

    #[test]
    fn a_span_is_never_negative() {
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Duration::ZERO);
        assert_eq!(Time::from_nanos(9).since(Time::from_nanos(5)), Duration::from_nanos(4));
    }
}
