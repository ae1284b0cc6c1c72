//! The properties of a wide-area link, in one direction.

use std::time::Duration;

use crate::random::Random;

/// Probabilities are in parts per million.
pub const MILLION: u64 = 1_000_000;

/// The largest spread of [`Jitter::LogNormal`], thousandths.
const SPREAD_MAX: u64 = 2000;
/// The longest delay or jitter.
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// A random time added to the delay, drawn anew for each datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jitter {
    /// Uniform from zero to this much. Up to an hour.
    Uniform(Duration),
    /// Mostly about the median, sometimes much more, as on long paths: the median times e to the
    /// power of `spread` times a nearly normal number.
    LogNormal {
        /// Half of all datagrams are delayed by more. Up to an hour.
        median: Duration,
        /// The standard deviation of the logarithm, thousandths, at most 2000.
        spread: u64,
    },
}

impl Jitter {
    /// No jitter.
    pub const NONE: Jitter = Jitter::Uniform(Duration::ZERO);

    /// The median.
    pub fn median(&self) -> Duration {
        match self {
            Jitter::Uniform(most) => *most / 2,
            Jitter::LogNormal { median, .. } => *median,
        }
    }

    /// The bound that is never exceeded.
    pub fn most(&self) -> Duration {
        match self {
            Jitter::Uniform(most) => *most,
            Jitter::LogNormal { median, spread } => {
                Duration::from_nanos((median.as_nanos() as f64 * exp(6.0 * *spread as f64 / 1000.0)) as u64 + 1)
            }
        }
    }

    /// Draws one value. The normal number is the sum of twelve uniform ones less six (Hamming,
    /// Numerical Methods for Scientists and Engineers, 1962): within ±6, and the same on every
    /// machine, as additions and multiplications round alike everywhere.
    pub(super) fn draw(&self, random: &mut Random) -> Duration {
        match self {
            Jitter::Uniform(most) => Duration::from_nanos(random.below(most.as_nanos() as u64 + 1)),
            Jitter::LogNormal { median, spread } => {
                let sum: f64 = (0..12).map(|_| (random.next() >> 11) as f64 / (1_u64 << 53) as f64).sum();
                let factor = exp((sum - 6.0) * *spread as f64 / 1000.0);
                Duration::from_nanos((median.as_nanos() as f64 * factor) as u64)
            }
        }
    }
}

/// e to the power of `x` for |x| up to 12, to some eight digits: the library's own may differ
/// between machines. The series at a 1024th of `x`, squared ten times.
fn exp(x: f64) -> f64 {
    let small = x / 1024.0;
    let mut value = 1.0 + small * (1.0 + small / 2.0 * (1.0 + small / 3.0 * (1.0 + small / 4.0)));
    for _ in 0..10 {
        value *= value;
    }
    value
}

/// Loss that comes in bursts: a chain of two states that takes one step for each datagram (Gilbert,
/// Capacity of a burst-noise channel, 1960; Elliott, Estimates of error rates for codes on
/// burst-noise channels, 1963). All four are probabilities in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The good state ends after a datagram.
    pub to_bad: u64,
    /// The bad state ends after a datagram.
    pub to_good: u64,
    /// A datagram is lost in the good state.
    pub in_good: u64,
    /// A datagram is lost in the bad state.
    pub in_bad: u64,
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Loss = Loss { to_bad: 0, to_good: MILLION, in_good: 0, in_bad: 0 };

    /// Each datagram is lost with this probability, parts per million, independent of the last.
    pub const fn independent(lost: u64) -> Loss {
        Loss { to_bad: 0, to_good: MILLION, in_good: lost, in_bad: lost }
    }

    /// Loss of `lost` parts per million of all datagrams, at most half a million, in runs of
    /// `length` on average, at least 1. The bad state loses all, the good state none. The parts of
    /// the chain are rounded down to whole millionths.
    ///
    /// # Panics
    /// If `lost` or `length` is out of its bounds.
    pub const fn bursts(lost: u64, length: u64) -> Loss {
        assert!(
            lost <= MILLION / 2 && length >= 1 && length <= MILLION,
            "a share of at most a half, in runs of at least 1"
        );
        let to_bad = MILLION * lost / (length * (MILLION - lost));
        Loss { to_bad, to_good: MILLION / length, in_good: 0, in_bad: MILLION }
    }

    /// The share of all datagrams that is lost in the long run, parts per million. A chain that
    /// never leaves its first state stays good.
    pub fn mean(&self) -> u64 {
        match self.to_bad + self.to_good {
            0 => self.in_good,
            both => (self.to_good * self.in_good + self.to_bad * self.in_bad) / both,
        }
    }
}

/// The properties of a link, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WanProfile {
    /// The least time from leaving the bottleneck to arrival. Up to an hour.
    pub delay: Duration,
    /// The random part of the delay.
    pub jitter: Jitter,
    /// Whether jitter lets a datagram overtake another. If not, it waits for the one before it.
    pub reorders: bool,
    /// The loss of datagrams.
    pub loss: Loss,
    /// The rate of the bottleneck, bytes per second, at least 1. `u64::MAX` is no bottleneck:
    /// sending takes no time.
    pub rate: u64,
    /// The queue before the bottleneck, bytes, at least 1; datagrams that do not fit are lost.
    pub queue: usize,
    /// How many of 1,000 datagrams arrive twice. A copy takes its part of the rate.
    pub duplicate: u64,
    /// How many of 1,000 datagrams arrive with a wrong bit.
    pub corrupt: u64,
}

impl WanProfile {
    /// A link that takes and delivers everything at once.
    pub const PERFECT: WanProfile = WanProfile {
        delay: Duration::ZERO,
        jitter: Jitter::NONE,
        reorders: false,
        loss: Loss::NONE,
        rate: u64::MAX,
        queue: usize::MAX,
        duplicate: 0,
        corrupt: 0,
    };

    /// Between two sites: 1 Gbit/s, 20 ms, some jitter, one datagram in 10,000 lost.
    pub const SITES: WanProfile = WanProfile {
        delay: Duration::from_millis(20),
        jitter: Jitter::LogNormal { median: Duration::from_micros(300), spread: 800 },
        loss: Loss::bursts(100, 3),
        rate: 125_000_000,
        queue: 4 << 20,
        ..WanProfile::PERFECT
    };

    /// The profile with another delay.
    #[must_use]
    pub const fn with_delay(self, delay: Duration) -> WanProfile {
        WanProfile { delay, ..self }
    }

    /// The delay that half of the datagrams exceed, without waiting for the bottleneck.
    pub fn typical(&self) -> Duration {
        self.delay + self.jitter.median()
    }

    /// Checks that all fields are within their bounds.
    ///
    /// # Panics
    /// If one is not: profiles come from programs, not from untrusted input.
    pub fn check(&self) {
        assert!(self.rate >= 1 && self.queue >= 1, "a link with a rate and a queue, or it is cut");
        assert!(self.delay <= DELAY_MAX && self.jitter.median() <= DELAY_MAX, "delays of up to an hour");
        if let Jitter::LogNormal { spread, .. } = self.jitter {
            assert!(spread <= SPREAD_MAX, "a spread of at most {SPREAD_MAX} thousandths");
        }
        let Loss { to_bad, to_good, in_good, in_bad } = self.loss;
        assert!([to_bad, to_good, in_good, in_bad].iter().all(|part| *part <= MILLION), "parts of a million");
        assert!(self.duplicate <= 1000 && self.corrupt <= 1000, "parts of a thousand");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_e_are_right() {
        for x in [-12.0, -3.5, -0.001, 0.0, 0.7, 1.0, 5.0, 12.0_f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-8, "e^{x}");
        }
    }

    #[test]
    fn bursts_have_the_mean_that_was_asked_for() {
        for (lost, length) in [(10_000, 1), (10_000, 5), (200_000, 3), (500_000, 4)] {
            let mean = Loss::bursts(lost, length).mean();
            assert!(mean.abs_diff(lost) <= lost / 100, "{lost} in runs of {length}: {mean}");
        }
        assert_eq!(Loss::NONE.mean(), 0);
        assert_eq!(Loss::independent(1234).mean(), 1234);
        assert_eq!(Loss { to_bad: 0, to_good: 0, in_good: 7, in_bad: 9 }.mean(), 7);
    }
}
