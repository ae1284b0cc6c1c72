//! The lengths of subscribers' outages: the probability that an outage is longer than a given time.

use core::time::Duration;

/// Buckets per doubling.
const STEPS: u64 = 8;

/// Buckets; the last one begins at 2^30 - 2^27 ms, eleven days.
const BUCKETS: usize = 224;

/// The mean outage before any was seen, milliseconds; they are assumed to be exponential.
const PRIOR_MEAN_MS: f64 = 24_000.0;

/// The number of observations that the assumption counts for.
const PRIOR_WEIGHT: f64 = 8.0;

/// Observations that are kept; then all count half, so that old ones are forgotten.
const KEPT_MAX: f64 = 4_096.0;

/// Outages by their lengths.
#[derive(Debug)]
pub(super) struct Outages {
    counts: Vec<f64>,
    total: f64,
    /// The probability that an outage is longer than the lower end of the bucket, and its change
    /// with each nanosecond in it.
    longer: Vec<(f64, f64)>,
    is_stale: bool,
}

impl Outages {
    pub(super) fn new() -> Self {
        let mut outages = Outages { counts: vec![0.0; BUCKETS], total: 0.0, longer: Vec::new(), is_stale: true };
        outages.refresh();
        outages
    }

    /// Records that a subscriber was away for this long.
    pub(super) fn observe(&mut self, away: Duration) {
        self.counts[bucket(u64::try_from(away.as_millis()).unwrap_or(u64::MAX))] += 1.0;
        self.total += 1.0;
        if self.total >= KEPT_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2.0);
            self.total /= 2.0;
        }
        self.is_stale = true;
    }

    /// Updates the figures for [`Outages::longer_than`].
    pub(super) fn refresh(&mut self) {
        if !self.is_stale {
            return;
        }
        self.is_stale = false;
        let mut longer = vec![0.0; BUCKETS + 1];
        let mut above = 0.0;
        for place in (0..BUCKETS).rev() {
            above += self.counts[place];
            let assumed = PRIOR_WEIGHT * (-lower_end(place) / PRIOR_MEAN_MS).exp();
            longer[place] = (assumed + above) / (PRIOR_WEIGHT + self.total);
        }
        self.longer = (0..BUCKETS)
            .map(|place| {
                let width = (lower_end(place + 1) - lower_end(place)) * 1e6;
                (longer[place], (longer[place + 1] - longer[place]) / width)
            })
            .collect();
    }

    /// The probability that an outage is longer than `age`, as of the last [`Outages::refresh`].
    #[inline]
    pub(super) fn longer_than(&self, age: Duration) -> f64 {
        let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let place = bucket(nanos / 1_000_000);
        let (at_end, slope) = self.longer[place];
        (at_end + slope * (nanos as f64 - lower_end(place) * 1e6)).max(0.0)
    }
}

/// The bucket of a time in milliseconds: exact below [`STEPS`], then [`STEPS`] for each doubling.
fn bucket(ms: u64) -> usize {
    if ms < STEPS {
        return ms as usize;
    }
    let doublings = u64::from(ms.ilog2() - STEPS.ilog2());
    (((doublings + 1) * STEPS + ((ms >> doublings) - STEPS)) as usize).min(BUCKETS - 1)
}

/// The begin of a bucket, milliseconds.
fn lower_end(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket as f64;
    }
    ((STEPS + bucket % STEPS) << (bucket / STEPS - 1)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn buckets_cover_all_times_without_a_seam() {
        for place in 0..BUCKETS - 1 {
            let (low, high) = (lower_end(place) as u64, lower_end(place + 1) as u64);
            assert_eq!((bucket(low), bucket(high - 1), bucket(high)), (place, place, place + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn without_observations_outages_are_exponential() {
        let outages = Outages::new();
        for age in [0, 1, 500, 12_345, 24_000, 100_000] {
            let exact = (-(age as f64) / PRIOR_MEAN_MS).exp();
            assert!((outages.longer_than(ms(age)) - exact).abs() < 0.002, "{age}");
        }
        assert!(outages.longer_than(Duration::MAX) < 1e-9);
    }

    #[test]
    fn what_was_seen_outweighs_what_was_assumed_and_is_forgotten() {
        let mut outages = Outages::new();
        (0..1_000).for_each(|n| outages.observe(ms(1_000 + n)));
        outages.refresh();
        assert!(outages.longer_than(ms(900)) > 0.99);
        assert!((outages.longer_than(ms(1_500)) - 0.5).abs() < 0.05);
        assert!(outages.longer_than(ms(2_300)) < 0.01);
        (0..40_000).for_each(|_| outages.observe(ms(60_000)));
        outages.refresh();
        assert!(outages.longer_than(ms(50_000)) > 0.95);
        assert!(outages.total <= KEPT_MAX);
    }
}
