//! The computed lengths of outages, with which the charts compare measurements.

/// How long subscribers stay away after the events that they miss.
pub trait Away {
    /// The part of the events published during outages whose subscriber stays away for more than
    /// `seconds` after them.
    fn residual(&self, seconds: f64) -> f64;

    /// As [`Away::residual`], for a time that is itself exponential with this mean.
    fn residual_beyond_exponential(&self, mean: f64) -> f64;
}

/// The distribution of the lengths of outages: a mixture of exponential ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Outages {
    phases: Vec<Phase>,
}

/// One exponential phase.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    /// The probability that an outage is of this phase.
    weight: f64,
    /// The mean length, seconds.
    mean: f64,
}

impl Outages {
    /// Exponential lengths with this mean, in seconds.
    pub fn exponential(mean: f64) -> Outages {
        assert!(mean > 0.0, "an outage takes time");
        Outages { phases: vec![Phase { weight: 1.0, mean }] }
    }

    /// Lengths of two exponential phases with balanced means (both contribute the same part of the
    /// time down), with this mean in seconds and this coefficient of variation, at least 1.
    pub fn hyper_exponential(mean: f64, variation: f64) -> Outages {
        assert!(variation >= 1.0, "a mixture of exponential lengths varies at least as much as one of them");
        let squared = variation * variation;
        let often = 0.5 * (1.0 + ((squared - 1.0) / (squared + 1.0)).sqrt());
        let phase = |weight: f64| Phase { weight, mean: mean / (2.0 * weight) };
        if variation == 1.0 {
            return Outages::exponential(mean);
        }
        Outages { phases: vec![phase(often), phase(1.0 - often)] }
    }

    /// The mean length in seconds.
    pub fn mean(&self) -> f64 {
        self.phases.iter().map(|phase| phase.weight * phase.mean).sum()
    }

    /// The part of all outages that are longer than this many seconds.
    pub fn survival(&self, seconds: f64) -> f64 {
        self.phases.iter().map(|phase| phase.weight * (-seconds / phase.mean).exp()).sum()
    }

    /// The time after which [`Outages::survival`] has fallen to `level`, between 0 and 1.
    pub fn time_of_survival(&self, level: f64) -> f64 {
        if level >= 1.0 {
            return 0.0;
        }
        let longest = self.phases.iter().map(|phase| phase.mean).fold(0.0, f64::max);
        // No mixture survives longer than its longest phase alone.
        let mut range = (0.0, -longest * level.ln());
        for _ in 0..BISECTIONS {
            let middle = (range.0 + range.1) / 2.0;
            if self.survival(middle) > level { range.0 = middle } else { range.1 = middle }
        }
        (range.0 + range.1) / 2.0
    }

    /// The outages that events meet: each phase weighted by the time that it takes.
    fn residual_phases(&self) -> impl Iterator<Item = Phase> {
        let mean = self.mean();
        self.phases.iter().map(move |phase| Phase { weight: phase.weight * phase.mean / mean, mean: phase.mean })
    }
}

impl Away for Outages {
    /// The integral of the survival beyond a time, divided by the mean.
    fn residual(&self, seconds: f64) -> f64 {
        self.residual_phases().map(|phase| phase.weight * (-seconds / phase.mean).exp()).sum()
    }

    fn residual_beyond_exponential(&self, mean: f64) -> f64 {
        self.residual_phases().map(|phase| phase.weight * phase.mean / (phase.mean + mean)).sum()
    }
}

/// Observed outages: their lengths in seconds, at least one of them not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed(pub Vec<f64>);

impl Observed {
    fn mean_of(&self, beyond: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().map(|length| beyond(*length)).sum::<f64>() / self.0.iter().sum::<f64>()
    }
}

impl Away for Observed {
    fn residual(&self, seconds: f64) -> f64 {
        self.mean_of(|length| (length - seconds).max(0.0))
    }

    fn residual_beyond_exponential(&self, mean: f64) -> f64 {
        self.mean_of(|length| length + mean * (-length / mean).exp_m1())
    }
}

/// Halvings of an interval after which a double has no more precision.
pub const BISECTIONS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// Integral of `f` from `low` to `high` by Simpson's rule.
    fn integral(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
        const STEPS: usize = 20_000;
        let step = (high - low) / STEPS as f64;
        let weight = |index: usize| match index {
            0 | STEPS => 1.0,
            odd if odd % 2 == 1 => 4.0,
            _ => 2.0,
        };
        (0..=STEPS).map(|index| weight(index) * f(low + index as f64 * step)).sum::<f64>() * step / 3.0
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() <= 1e-6 * other.abs().max(1e-3), "{one} is not {other}");
    }

    #[test]
    fn an_exponential_outage_has_no_memory() {
        let outages = Outages::exponential(12.0);
        for seconds in [0.0, 3.0, 60.0] {
            near(outages.residual(seconds), (-seconds / 12.0_f64).exp());
            near(outages.residual(seconds), outages.survival(seconds));
        }
    }

    #[test]
    fn the_residual_is_the_integral_of_the_survival() {
        for variation in [1.0, 1.5, 2.5] {
            let outages = Outages::hyper_exponential(24.0, variation);
            near(outages.mean(), 24.0);
            near(integral(0.0, 4000.0, |x| outages.survival(x)), 24.0);
            for seconds in [0.0, 10.0, 105.0] {
                let beyond = integral(seconds, 4000.0, |x| outages.survival(x)) / 24.0;
                near(outages.residual(seconds), beyond);
            }
            let density = |x: f64| (-x / 40.0).exp() / 40.0;
            let beyond = integral(0.0, 4000.0, |x| density(x) * outages.residual(x));
            near(outages.residual_beyond_exponential(40.0), beyond);
        }
    }

    #[test]
    fn a_hyper_exponential_outage_varies_as_asked() {
        for variation in [1.5, 2.0, 2.5] {
            let outages = Outages::hyper_exponential(12.0, variation);
            let square = 2.0 * integral(0.0, 4000.0, |x| x * outages.survival(x));
            near((square / 144.0 - 1.0).sqrt(), variation);
        }
    }

    #[test]
    fn observed_outages_lose_what_the_distribution_they_come_from_does() {
        let seed = 3;
        let mut random = fastrand::Rng::with_seed(seed);
        let observed = Observed((0..200_000).map(|_| -24.0 * (1.0 - random.f64()).ln()).collect());
        let outages = Outages::exponential(24.0);
        for seconds in [0.0, 24.0, 77.0] {
            let apart = observed.residual(seconds) / outages.residual(seconds) - 1.0;
            assert!(apart.abs() < 0.05, "seed {seed}, {seconds} s: {apart}");
        }
        let apart = observed.residual_beyond_exponential(77.0) / outages.residual_beyond_exponential(77.0) - 1.0;
        assert!(apart.abs() < 0.02, "seed {seed}: {apart}");
    }

    #[test]
    fn the_time_of_a_survival_is_its_inverse() {
        for variation in [1.0, 2.5] {
            let outages = Outages::hyper_exponential(24.0, variation);
            for level in [0.9, 0.1, 1e-6] {
                near(outages.survival(outages.time_of_survival(level)), level);
            }
            assert_eq!(outages.time_of_survival(1.0), 0.0);
            assert_eq!(outages.time_of_survival(7.0), 0.0);
        }
    }
}
