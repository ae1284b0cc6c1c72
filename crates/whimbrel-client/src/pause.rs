//! Pauses between attempts to connect.

use std::time::Duration;

/// Pause before the first attempt to connect again.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(10);

/// The pause before the next attempt: 100 ms before the first, then twice the previous pause, at
/// most 10 s.
pub fn pause_after(before: Option<Duration>) -> Duration {
    before.map_or(FIRST, |pause| (pause * 2).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = pause_after(None);
        assert_eq!(pause, Duration::from_millis(100));
        for _ in 0..10 {
            pause = pause_after(Some(pause));
        }
        assert_eq!(pause, Duration::from_secs(10));
    }
}
