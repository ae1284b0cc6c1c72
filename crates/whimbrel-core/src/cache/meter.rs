//! The number of recent arrivals.

use core::time::Duration;

use whimbrel_event::Time;

/// The parts of the time span; a count is exact to one of them.
const PARTS: usize = 16;

/// Counts the arrivals during a time span that ends now.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// Nanoseconds of one part.
    part: u64,
    /// By the number of the part modulo their count; one part more than the span has.
    counts: [u64; PARTS + 1],
    /// The number of the current part.
    now: u64,
    total: u64,
}

impl Meter {
    /// Counts arrivals within `keep`.
    pub(super) fn new(keep: Duration) -> Self {
        let nanos = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
        Meter { part: (nanos / PARTS as u64).max(1), counts: [0; PARTS + 1], now: 0, total: 0 }
    }

    /// Counts an arrival; returns the number of arrivals within the span, and up to a sixteenth of
    /// it before.
    pub(super) fn count(&mut self, now: Time) -> u64 {
        let part = (now.as_nanos() / self.part).max(self.now);
        for passed in 1..=(part - self.now).min(self.counts.len() as u64) {
            let place = ((self.now + passed) % self.counts.len() as u64) as usize;
            self.total -= core::mem::take(&mut self.counts[place]);
        }
        self.now = part;
        self.counts[(part % self.counts.len() as u64) as usize] += 1;
        self.total += 1;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_while_is_counted_to_a_sixteenth() {
        let mut meter = Meter::new(Duration::from_secs(16));
        let arrivals: Vec<u64> = (0..500)
            .map(|n| n * 137_000_000 + n % 7 * 400_000_000)
            .scan(0, |last, at| {
                *last = at.max(*last);
                Some(*last)
            })
            .collect();
        for (n, at) in arrivals.iter().enumerate() {
            let count = meter.count(Time::from_nanos(*at));
            let since =
                |span: u64| arrivals[..=n].iter().filter(|past| at - **past < span * 1_000_000_000).count() as u64;
            assert!((since(16)..=since(17)).contains(&count), "{n}: {count}");
        }
        assert_eq!(meter.count(Time::from_nanos(10_000_000_000_000)), 1);
    }
}
