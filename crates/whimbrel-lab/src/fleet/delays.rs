//! Delays of deliveries: of the whole run, and of the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Delays above this are counted as this, µs.
const LONGEST: u64 = 600_000_000;
/// Significant decimal digits kept: an error of at most 1 %.
const DIGITS: u8 = 2;
/// "Recent" means the last seconds, this many.
pub const RECENT_SECONDS: usize = 10;

/// A distribution in µs.
pub struct Delays {
    all: Histogram<u64>,
    recent: VecDeque<Histogram<u64>>,
}

/// Quantiles of delays, ms.
#[derive(Clone, Copy, Default, PartialEq, Debug, serde::Serialize)]
pub struct Quantiles {
    /// Half of the deliveries took at most this long.
    pub p50: f64,
    /// 99 of 100 took at most this long.
    pub p99: f64,
    /// 999 of 1,000 took at most this long.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { all: empty(), recent: VecDeque::from([empty()]) }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order and the digits below 6")
}

impl Delays {
    /// Counts a delivery.
    pub fn record(&mut self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(LONGEST);
        self.all.saturating_record(micros);
        if let Some(now) = self.recent.back_mut() {
            now.saturating_record(micros);
        }
    }

    /// A second has passed.
    pub fn tick(&mut self) {
        let mut next = if self.recent.len() == RECENT_SECONDS { self.recent.pop_front() } else { None };
        if let Some(oldest) = &mut next {
            oldest.reset();
        }
        self.recent.push_back(next.unwrap_or_else(empty));
    }

    /// The quantiles of the whole run.
    pub fn overall(&self) -> Quantiles {
        Quantiles::of(&self.all)
    }

    /// The quantiles of the last [`RECENT_SECONDS`].
    pub fn recent(&self) -> Quantiles {
        let mut sum = empty();
        for second in &self.recent {
            sum.add(second).expect("all have the same bounds");
        }
        Quantiles::of(&sum)
    }
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Quantiles {
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(histogram.max()) as f64 / 1_000.0;
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1_000.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_ms() {
        let mut delays = Delays::default();
        (1..=1_000).for_each(|n| delays.record(Duration::from_micros(n * 10)));
        let Quantiles { p50, p99, p999, max } = delays.overall();
        for (got, expected) in [(p50, 5.0), (p99, 9.9), (p999, 9.99), (max, 10.0)] {
            assert!((got - expected).abs() <= expected * 0.01, "{got} instead of {expected}");
        }
    }

    #[test]
    fn what_is_old_is_not_recent() {
        let mut delays = Delays::default();
        delays.record(Duration::from_millis(500));
        for _ in 0..RECENT_SECONDS - 1 {
            delays.tick();
            delays.record(Duration::from_millis(1));
        }
        assert!(delays.recent().max > 490.0);
        delays.tick();
        assert!(delays.recent().max < 1.1, "{:?}", delays.recent());
        assert!(delays.overall().max > 490.0);
    }

    #[test]
    fn nothing_and_the_longest_are_bounded() {
        let mut delays = Delays::default();
        assert_eq!(delays.overall(), Quantiles::default());
        delays.record(Duration::ZERO);
        delays.record(Duration::MAX);
        assert!(delays.overall().max >= 594_000.0 && delays.overall().max <= 606_000.0, "{:?}", delays.overall());
    }
}
