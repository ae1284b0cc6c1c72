//! Medians, spreads and their uncertainty.

/// The number of resamples of a bootstrap.
const RESAMPLES: usize = 10_000;

/// A set of measurements of the same thing.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest and the largest.
    pub spread: [f64; 2],
    /// The interval that holds the median of the population with 95 % confidence (percentile
    /// bootstrap).
    pub interval: [f64; 2],
}

impl Summary {
    /// Summarises `samples`; `None` if there are none. The same seed gives the same interval.
    pub fn of(samples: &[f64], seed: u64) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let spread = [*sorted.first()?, *sorted.last()?];
        Some(Summary { median: median(&sorted), spread, interval: bootstrap(&sorted, seed) })
    }
}

/// The median of sorted, non-empty samples.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The 2.5 and 97.5 percentiles of the medians of resamples with replacement.
fn bootstrap(samples: &[f64], seed: u64) -> [f64; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for place in &mut resample {
                *place = samples[random.usize(..samples.len())];
            }
            resample.sort_by(f64::total_cmp);
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |quantile: f64| medians[((RESAMPLES - 1) as f64 * quantile).round() as usize];
    [at(0.025), at(0.975)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_samples() {
        let of = |samples: &[f64]| Summary::of(samples, 1).expect("samples").median;
        assert_eq!(of(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(of(&[7.0]), 7.0);
        assert_eq!(Summary::of(&[], 1), None);
    }

    #[test]
    fn the_interval_is_reproducible_and_lies_within_the_spread() {
        let samples = [0.8, 0.9, 0.85, 0.7, 0.95, 0.82, 1.4];
        let summary = Summary::of(&samples, 7).expect("samples");
        assert_eq!(Some(summary), Summary::of(&samples, 7));
        assert_eq!(summary.spread, [0.7, 1.4]);
        let [low, high] = summary.interval;
        assert!(0.7 <= low && low <= summary.median && summary.median <= high && high <= 1.4, "{summary:?}");
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        const TRIALS: u64 = 200;
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let covered = (0..TRIALS)
            .filter(|trial| {
                let samples: Vec<f64> = (0..11).map(|_| random.f64()).collect();
                let [low, high] = Summary::of(&samples, *trial).expect("samples").interval;
                (low..=high).contains(&0.5)
            })
            .count();
        assert!((176..=200).contains(&covered), "seed {seed}: {covered} of {TRIALS} cover the median");
    }
}
