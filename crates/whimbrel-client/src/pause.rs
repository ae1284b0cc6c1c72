//! Pauses between attempts to connect.

use std::time::Duration;

/// Before the first attempt to come back.
const FIRST: Duration = Duration::from_millis(100);

/// The longest.
const LONGEST: Duration = Duration::from_secs(10);

/// How long to wait before the next attempt: 100 ms before the first, then twice the pause before,
/// at most 10 s.
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
