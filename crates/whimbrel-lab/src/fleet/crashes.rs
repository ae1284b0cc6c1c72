//! The run kills its own broker now and then, or has it end and start again: how often, and how
//! long it takes until everybody is served again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};

/// How a broker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Without a word.
    Killed,
    /// In good order, as it was asked to.
    Asked,
}

/// How the broker is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Health {
    /// It serves everybody.
    #[default]
    Served,
    /// It was killed, or asked to end, then, and is not started again yet.
    Down(Duration),
    /// It was killed, or asked to end, then, runs again, and not everybody has what was sent
    /// before.
    Returning(Duration),
}

/// Kills and what they led to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Crashes {
    /// How often the broker was killed.
    pub kills: u32,
    /// How often it has ended in good order, and was started again.
    pub restarts: u32,
    /// How often all were served again after it.
    pub recoveries: u32,
    /// How it is now.
    #[serde(skip)]
    pub health: Health,
    /// From the last kill, or the last time that it was asked to end, until the broker was ready
    /// again, ms.
    #[serde(rename = "down_ms", serialize_with = "as_millis")]
    pub down: Option<Duration>,
    /// From then until all were served again, ms.
    #[serde(rename = "served_ms", serialize_with = "as_millis")]
    pub served: Option<Duration>,
    /// The longest of these times, ms.
    #[serde(rename = "worst_served_ms", serialize_with = "as_millis")]
    pub worst: Option<Duration>,
}

impl Crashes {
    /// What became of the broker, and how often, if anything did.
    pub(super) fn ends(&self) -> Option<(&'static str, u32)> {
        [("restart", self.restarts), ("kill -9", self.kills)].into_iter().find(|(_, count)| *count > 0)
    }

    /// What is said in the end; nothing if the broker was there all the time.
    pub(super) fn row(&self) -> Option<String> {
        let seconds = |span: Option<Duration>| format!("{:.2} s", span.unwrap_or_default().as_secs_f64());
        self.ends().map(|(what, count)| {
            let (times, worst) = (if count == 1 { "time" } else { "times" }, seconds(self.worst));
            let down = seconds(self.down);
            format!("{what}     {count:>12}  {times}; all served again within {worst} (the broker up after {down})")
        })
    }
}

fn as_millis<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_millis() as u64).serialize(serializer)
}

/// The same, shared.
#[derive(Default, Debug)]
pub struct CrashLog(Mutex<Crashes>);

impl CrashLog {
    fn state(&self) -> MutexGuard<'_, Crashes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker is about to end.
    pub fn ends(&self, how: End, now: Duration) {
        let mut crashes = self.state();
        match how {
            End::Killed => crashes.kills += 1,
            End::Asked => crashes.restarts += 1,
        }
        crashes.health = Health::Down(now);
    }

    /// It is ready again.
    pub fn is_up(&self, now: Duration) {
        let mut crashes = self.state();
        let Health::Down(killed) = crashes.health else { return };
        crashes.down = Some(now.saturating_sub(killed));
        crashes.health = Health::Returning(killed);
    }

    /// Everybody has what was sent before.
    pub fn all_served(&self, now: Duration) {
        let mut crashes = self.state();
        let Health::Returning(killed) = crashes.health else { return };
        let took = now.saturating_sub(killed);
        crashes.recoveries += 1;
        crashes.served = Some(took);
        crashes.worst = crashes.worst.max(Some(took));
        crashes.health = Health::Served;
    }

    /// Kills up to now.
    pub fn read(&self) -> Crashes {
        *self.state()
    }

    /// Whether lost connections and attempts to connect that fail are the run's own doing.
    pub fn are_going_on(&self) -> bool {
        self.state().health != Health::Served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_until_all_were_served_is_kept() {
        let log = CrashLog::default();
        for (at, up, served) in [(1_000, 1_500, 4_000), (10_000, 10_700, 11_000)] {
            log.ends(End::Killed, Duration::from_millis(at));
            assert!(log.are_going_on());
            log.is_up(Duration::from_millis(up));
            log.all_served(Duration::from_millis(served));
            assert!(!log.are_going_on());
        }
        let crashes = serde_json::to_value(log.read()).expect("JSON");
        let expected = serde_json::json!({
            "kills": 2, "restarts": 0, "recoveries": 2, "down_ms": 700, "served_ms": 1_000, "worst_served_ms": 3_000,
        });
        assert_eq!(crashes, expected);
    }
}
