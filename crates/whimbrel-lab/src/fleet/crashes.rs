//! Kills and restarts of the run's own brokers: how many, and how long until all clients are served
//! again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};

/// How a broker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By SIGKILL.
    Killed,
    /// In good order, on request.
    Asked,
}

/// The state of the broker.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Health {
    /// The broker serves all clients.
    #[default]
    Served,
    /// The broker was killed, or asked to end, at this time, and has not been started again.
    Down(Duration),
    /// The broker was killed, or asked to end, at this time, and runs again, but some clients lack
    /// events that were sent before.
    Returning(Duration),
}

/// Kills, restarts and their consequences.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Crashes {
    /// The number of kills.
    pub kills: u32,
    /// The number of restarts in good order.
    pub restarts: u32,
    /// The number of times that all were served again afterwards.
    pub recoveries: u32,
    /// The present state.
    #[serde(skip)]
    pub health: Health,
    /// The time from the last kill or request to end until the broker was ready again, ms.
    #[serde(rename = "down_ms", serialize_with = "as_millis")]
    pub down: Option<Duration>,
    /// The time from the last kill or request to end until all were served again, ms.
    #[serde(rename = "served_ms", serialize_with = "as_millis")]
    pub served: Option<Duration>,
    /// The longest such time, ms.
    #[serde(rename = "worst_served_ms", serialize_with = "as_millis")]
    pub worst: Option<Duration>,
}

impl Crashes {
    /// The kind and the number of its ends, if there were any.
    pub(super) fn ends(&self) -> Option<(&'static str, u32)> {
        [("restart", self.restarts), ("kill -9", self.kills)].into_iter().find(|(_, count)| *count > 0)
    }

    /// The row of the summary; `None` if no broker ended.
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

/// [`Crashes`], shared.
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

    /// The broker is ready again.
    pub fn is_up(&self, now: Duration) {
        let mut crashes = self.state();
        let Health::Down(killed) = crashes.health else { return };
        crashes.down = Some(now.saturating_sub(killed));
        crashes.health = Health::Returning(killed);
    }

    /// All clients have the events that were sent before.
    pub fn all_served(&self, now: Duration) {
        let mut crashes = self.state();
        let Health::Returning(killed) = crashes.health else { return };
        let took = now.saturating_sub(killed);
        crashes.recoveries += 1;
        crashes.served = Some(took);
        crashes.worst = crashes.worst.max(Some(took));
        crashes.health = Health::Served;
    }

    /// The record up to now.
    pub fn read(&self) -> Crashes {
        *self.state()
    }

    /// Whether lost connections and failed attempts to connect are the run's own doing.
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
