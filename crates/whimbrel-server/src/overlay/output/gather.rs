//! When events wait for others before they are written to a link.
//!
//! At a steady pace each event would become its own packet, and a packet costs many times what an
//! event in it costs: encryption, system calls, and wakers at both ends. So events that follow each
//! other closely are written together. A single one never waits.

use std::time::{Duration, Instant};

/// While events follow closely, a link is not written to again before this has passed since the
/// last write. On average an event waits half of it.
const WINDOW: Duration = Duration::from_micros(450);

/// Events follow closely if their average distance is at most this: three in a packet are worth
/// waiting for.
const CLOSE: Duration = Duration::from_micros(200);

/// Distances count as this at most. One such pause ends the waiting until events have followed
/// closely for a while again.
const PAUSE: Duration = Duration::from_millis(6);

/// Number of distances over which the average is taken, roughly.
const STEPS: u32 = 8;

/// Time after the window when the timer writes events that no further event has taken along. A
/// further event usually does, and costs no wake-up.
const LATE: Duration = Duration::from_micros(250);

/// With more bytes waiting than this they are written: they fill what one system call sends.
const BYTES_MAX: usize = 12 << 10;

/// The pace of one link's events.
#[derive(Debug)]
pub(super) struct Gather {
    /// When the last event was given.
    came: Instant,
    /// When the link was last written to.
    written: Instant,
    /// Average distance between events.
    gap: Duration,
}

impl Gather {
    pub(super) fn new(now: Instant) -> Gather {
        Gather { came: now, written: now, gap: PAUSE }
    }

    /// Records that an event was given and that `bytes` now wait. Returns until when they may wait
    /// if no further event is given; `None`: they are to be written.
    pub(super) fn wait(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let gap = now.saturating_duration_since(self.came).min(PAUSE);
        self.came = now;
        self.gap = (self.gap * (STEPS - 1) + gap) / STEPS;
        if self.gap > CLOSE || bytes > BYTES_MAX || now.saturating_duration_since(self.written) >= WINDOW {
            return None;
        }
        Some(self.written + WINDOW + LATE)
    }

    /// Records that everything is written.
    pub(super) fn written(&mut self, now: Instant) {
        self.written = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives events of 100 bytes at that distance. Returns the number of writes and the longest
    /// wait. The timer writes events that are late.
    fn run(events: u32, distance: impl Fn(u32) -> Duration) -> (u32, Duration) {
        let start = Instant::now();
        let mut gather = Gather::new(start);
        let (mut writes, mut longest) = (0, Duration::ZERO);
        let (mut now, mut waiting) = (start, Vec::new());
        let mut until: Option<Instant> = None;
        for event in 0..events {
            now += distance(event);
            if let Some(at) = until.filter(|at| *at <= now) {
                longest = longest.max(at - waiting[0]);
                gather.written(at);
                waiting.clear();
                writes += 1;
            }
            waiting.push(now);
            until = gather.wait(now, waiting.len() * 100);
            if until.is_none() {
                longest = longest.max(now - waiting[0]);
                gather.written(now);
                waiting.clear();
                writes += 1;
            }
        }
        (writes, longest)
    }

    #[test]
    fn who_comes_seldom_never_waits() {
        assert_eq!(run(1_000, |_| CLOSE + Duration::from_micros(1)), (1_000, Duration::ZERO));
    }

    #[test]
    fn who_comes_closely_goes_together_and_waits_no_longer_than_the_window() {
        let (writes, longest) = run(10_000, |_| Duration::from_micros(100));
        assert!((2_000..2_050).contains(&writes), "{writes}");
        assert_eq!(longest, Duration::from_micros(400));
    }

    #[test]
    fn a_pause_costs_the_timer_and_is_not_waited_for_twice() {
        let pause = |event| Duration::from_micros(if event % 100 == 99 { 20_000 } else { 50 });
        let (writes, longest) = run(10_000, pause);
        assert!(longest <= WINDOW + LATE, "{longest:?}");
        assert!(writes < 4_000, "{writes}");
    }

    #[test]
    fn much_does_not_wait() {
        let now = Instant::now();
        let mut gather = Gather::new(now);
        while gather.wait(now, 1).is_none() {}
        assert_eq!(gather.wait(now, BYTES_MAX + 1), None);
        assert!(gather.wait(now, BYTES_MAX).is_some());
    }
}
