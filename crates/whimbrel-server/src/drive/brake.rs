//! Stops reading from connections while too much waits for the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use whimbrel_event::Time;

use super::inbox::Source;

/// Stops the input of all connections. While the brake is on, no connection is read, and no input
/// that was already read is given to the broker. A task with input is woken once, when the brake is
/// let go; it does not poll.
#[derive(Debug, Default)]
pub(super) struct Brake {
    /// Odd while the brake is on; grows with each change.
    epoch: AtomicU64,
    /// Connections and links turned away since the brake is on, each once.
    parked: Mutex<Vec<Source>>,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    since: Option<Time>,
    total: Duration,
}

impl Brake {
    /// Whether the brake is on.
    pub(super) fn is_on(&self) -> bool {
        !self.epoch.load(Ordering::SeqCst).is_multiple_of(2)
    }

    /// Whether the connection may be read. If not, it is woken when the brake is let go; `parked`
    /// is the epoch in which it was last listed for that.
    pub(super) fn lets_read(&self, source: Source, parked: &mut u64) -> bool {
        let epoch = self.epoch.load(Ordering::SeqCst);
        if epoch.is_multiple_of(2) {
            return true;
        }
        if *parked == epoch {
            return false;
        }
        let mut waiting = self.parked.lock();
        // [`Brake::set`] takes the list after it has changed the epoch.
        if self.epoch.load(Ordering::SeqCst) != epoch {
            drop(waiting);
            return self.lets_read(source, parked);
        }
        waiting.push(source);
        *parked = epoch;
        false
    }

    /// Puts the brake on or lets it go. Called only by the machine's owner. Returns the connections
    /// to wake.
    pub(super) fn set(&self, on: bool, now: Time) -> Vec<Source> {
        if on == self.is_on() {
            return Vec::new();
        }
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let mut times = self.times.lock();
        match times.since.take() {
            None => times.since = Some(now),
            Some(since) => times.total += now.since(since),
        }
        if on { Vec::new() } else { std::mem::take(&mut *self.parked.lock()) }
    }

    /// Total time for which the brake has been on.
    pub(super) fn total(&self, now: Time) -> Duration {
        let times = self.times.lock();
        times.total + times.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_mqtt::ConnId;

    use super::*;

    const A: Source = Source::Conn(ConnId(1));
    const B: Source = Source::Conn(ConnId(2));

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn who_is_turned_away_is_woken_once_when_it_is_let_go() {
        let brake = Brake::default();
        let (mut a, mut b) = (0, 0);
        assert!(brake.lets_read(A, &mut a));
        assert_eq!(brake.set(true, at(1)), []);
        assert!(!brake.lets_read(A, &mut a) && !brake.lets_read(A, &mut a) && !brake.lets_read(B, &mut b));
        assert_eq!(brake.set(false, at(2)), [A, B]);
        assert!(brake.lets_read(A, &mut a));
        brake.set(true, at(5));
        assert!(!brake.lets_read(B, &mut b));
        assert_eq!(brake.set(false, at(7)), [B], "who was turned away before is not woken again");
    }

    #[test]
    fn the_time_for_which_it_is_on_is_counted() {
        let brake = Brake::default();
        brake.set(true, at(1));
        brake.set(true, at(2));
        assert_eq!(brake.total(at(3)), Duration::from_secs(2));
        brake.set(false, at(4));
        brake.set(false, at(9));
        assert_eq!(brake.total(at(9)), Duration::from_secs(3));
    }
}
