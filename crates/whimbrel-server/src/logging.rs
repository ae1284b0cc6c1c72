//! Log lines on standard error.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Log;

/// Writes log lines from now on. Does nothing if something else already does.
pub fn start(log: &Log) {
    let level = log.level.parse().unwrap_or(LevelFilter::INFO);
    let lines = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(level).with_target(false);
    let lines = lines.with_ansi(io::stderr().is_terminal());
    let started = if log.json { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
    if let Err(error) = started {
        tracing::debug!(%error, "log lines already go elsewhere");
    }
}

/// Lets one of many equal log lines through per period.
#[derive(Debug)]
pub struct Throttle {
    period: Duration,
    last: Mutex<Option<Instant>>,
    held_back: AtomicU64,
}

impl Throttle {
    /// Lets one line through per `period`.
    pub fn new(period: Duration) -> Throttle {
        Throttle { period, last: Mutex::new(None), held_back: AtomicU64::new(0) }
    }

    /// Whether to write now; if so, the number of lines held back since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock();
        if last.is_some_and(|last| now.duration_since(last) < self.period) {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.held_back.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_period() {
        let throttle = Throttle::new(Duration::from_secs(5));
        let start = Instant::now();
        let pass = |seconds: u64| throttle.pass(start + Duration::from_secs(seconds));
        assert_eq!(
            [pass(0), pass(1), pass(4), pass(5), pass(6), pass(11)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
