//! The broker's clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use whimbrel_event::Time;
use whimbrel_event::clock::{self, Observed, Standing};

/// Period between two looks at the system's clock.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Start time plus a monotonic clock, slewed towards the system's clock: never runs backwards, and
/// follows no far step forward until that is accepted. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Instant,
    /// Held for a few nanoseconds, nearly always by the machine's owner, so it is not contended.
    state: Arc<Mutex<clock::Clock>>,
}

impl Clock {
    /// Starts a clock at the system's time.
    pub fn start() -> Self {
        let state = clock::Clock::start(system_time(), Duration::ZERO);
        Clock { start: Instant::now(), state: Arc::new(Mutex::new(state)) }
    }

    /// Starts a clock at the system's time, or at `least` if that is later: a broker's clock does
    /// not go back, not even from one process to the next.
    pub fn start_after(least: Time) -> Self {
        let state = clock::Clock::start(system_time().max(least), Duration::ZERO);
        Clock { start: Instant::now(), state: Arc::new(Mutex::new(state)) }
    }

    /// The present time.
    pub fn now(&self) -> Time {
        self.state.lock().read(self.start.elapsed())
    }

    /// The moment `at` on the runtime's clock, by the present correction. When that moment has
    /// come, ask [`Clock::now`] whether it is `at`.
    pub fn instant(&self, at: Time) -> tokio::time::Instant {
        let when = self.state.lock().when(at);
        tokio::time::Instant::from_std(self.start + when)
    }

    /// Steps forward to the system's clock, if that is ahead.
    pub(super) fn accept(&self) {
        self.accept_at(system_time());
    }

    fn accept_at(&self, system: Time) {
        let mut state = self.state.lock();
        // Within the lock: the clock must not be set from a moment before one already read.
        let by = state.accept(system, self.start.elapsed());
        drop(state);
        if by > Duration::ZERO {
            tracing::warn!(?by, "the system's clock is accepted: the broker's clock has stepped forward");
        } else {
            tracing::info!("the system's clock is not ahead of the broker's: there is nothing to accept");
        }
    }

    /// Seconds that the system's clock was ahead at the last look, and the number of its far steps
    /// that were refused.
    pub fn numbers(&self) -> (f64, u64) {
        let state = self.state.lock();
        (state.observed().offset_nanos as f64 / 1e9, state.steps_refused())
    }

    /// Looks at the system's clock every `LOOK_EVERY`, as long as the runtime lives.
    pub async fn watch(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look(system_time());
        }
    }

    fn look(&self, system: Time) {
        let mut state = self.state.lock();
        let found = state.observe(system, self.start.elapsed());
        drop(state);
        if found.news {
            report(&found);
        }
    }
}

fn report(found: &Observed) {
    let by = found.by();
    match found.standing {
        Standing::Followed => tracing::info!(?by, "the system's clock is followed again"),
        Standing::Behind => tracing::warn!(
            ?by,
            slower_ppm = clock::SLEW_PPM,
            "the system's clock is far behind the broker's, which never goes back: it runs slower until they meet; \
             a restart takes over the system's clock"
        ),
        Standing::Refused => tracing::warn!(
            ?by,
            "the system's clock is far ahead of the broker's: the step is not followed until it is accepted with SIGUSR1 \
             (was it set by mistake, or the machine suspended?)"
        ),
    }
}

/// The system's clock. Before 1970 counts as 1970.
fn system_time() -> Time {
    Time::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_far_step_of_the_systems_clock_is_followed_once_it_is_accepted() {
        let clock = Clock::start();
        let begun = clock.now();
        clock.look(begun + HOUR);
        let (offset, refused) = clock.numbers();
        assert!(offset > 1800.0 && offset <= 3600.0, "{offset}");
        assert_eq!(refused, 1);
        assert!(clock.now() < begun + HOUR / 2);
        clock.accept_at(begun + HOUR);
        assert!(clock.now() >= begun + HOUR);
        assert_eq!(clock.numbers(), (0.0, 1));
    }

    #[test]
    fn a_moment_of_the_runtime_is_when_the_clock_says_so() {
        let clock = Clock::start();
        for correction in [Duration::ZERO, Duration::from_secs(30)] {
            clock.look(clock.now() + correction);
            let at = clock.now() + HOUR;
            let instant = clock.instant(at).into_std();
            let monotonic = instant - clock.start;
            assert!(clock.state.lock().read(monotonic) >= at);
            assert!(clock.state.lock().read(monotonic - Duration::from_micros(1)) < at);
        }
    }
}
