//! A histogram of latencies with fixed bounds, as Prometheus wants it.

use core::time::Duration;

/// Upper bounds of the buckets, microseconds. Longer latencies are in one bucket more.
pub const LATENCY_BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The number of latencies in each bucket, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl LatencyHistogram {
    /// Adds one latency.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.buckets[LATENCY_BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// The number of latencies in each bucket alone: up to each of [`LATENCY_BOUNDS_US`], and above
    /// the last of them.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// The sum of all latencies, microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let mut latency = LatencyHistogram::default();
        for us in [0, 100, 101, 60_000_000, 60_000_001] {
            latency.record(Duration::from_micros(us));
        }
        latency.record(Duration::MAX);
        let last = LATENCY_BOUNDS_US.len();
        assert_eq!((latency.buckets()[0], latency.buckets()[1]), (2, 1));
        assert_eq!((latency.buckets()[last - 1], latency.buckets()[last]), (1, 2));
        assert_eq!((latency.count(), latency.sum_us()), (6, u64::MAX));
    }
}
