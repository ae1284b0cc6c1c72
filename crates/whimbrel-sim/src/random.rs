//! Randomness from one seed: the same numbers on every machine, for ever.

use std::time::Duration;

/// A sequence of well-mixed numbers: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// An independent sequence: draws from one do not change the other.
    pub fn fork(&mut self) -> Self {
        Random::new(self.next())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // a generator of numbers, not an iterator that ends
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias of at most 2^-32 for small bounds does
    /// not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `permille` times in 1,000.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of `choices`, which are not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// An index into `weights`, with a probability proportional to its weight; their sum is not 0.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match at.checked_sub(*weight) {
                None => return index,
                Some(rest) => at = rest,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// A time from zero to twice `mean`.
    pub fn span(&mut self, mean: Duration) -> Duration {
        Duration::from_nanos(self.below(2 * mean.as_nanos() as u64 + 1))
    }

    /// A time from an exponential distribution, at most 584 years. Von Neumann's method (Various
    /// techniques used in connection with random digits, 1951) needs only comparisons, and so gives
    /// the same on every machine: a run of falling numbers has an odd length with just the
    /// probability that a fraction needs, and each run of even length adds a whole.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        let mut wholes = 0;
        loop {
            let first = self.next();
            let (mut last, mut odd) = (first, true);
            loop {
                let next = self.next();
                if next >= last {
                    break;
                }
                (last, odd) = (next, !odd);
            }
            if odd {
                let mean = mean.as_nanos() as u64;
                let fraction = ((u128::from(first) * u128::from(mean)) >> 64) as u64;
                return Duration::from_nanos(mean.saturating_mul(wholes).saturating_add(fraction));
            }
            wholes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next(), random.next(), random.next()], expected);
    }

    #[test]
    fn bounds_hold_and_every_choice_comes() {
        let mut random = Random::new(7);
        let mut seen = [false; 3];
        for _ in 0..1000 {
            assert!((5..=9).contains(&random.between(5, 9)));
            seen[random.weighted(&[1, 0, 3])] = true;
        }
        assert_eq!(seen, [true, false, true]);
        assert_eq!(random.span(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn exponential_spans_decay_as_they_should() {
        let mut random = Random::new(3);
        let (mean, count) = (Duration::from_secs(10), 200_000);
        let spans: Vec<f64> = (0..count).map(|_| random.exponential(mean).as_secs_f64()).collect();
        for seconds in [0.1, 1.0, 5.0, 10.0, 20.0, 40.0] {
            let longer = spans.iter().filter(|span| **span > seconds).count() as f64 / f64::from(count);
            let expected = (-seconds / 10.0_f64).exp();
            assert!((longer - expected).abs() < 0.005, "{longer} are longer than {seconds} s, not {expected}");
        }
        assert_eq!(random.exponential(Duration::ZERO), Duration::ZERO);
    }
}
