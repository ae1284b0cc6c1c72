//! Holds clients up while more waits for the disk than should.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use whimbrel_event::Time;

use super::inbox::Source;

/// While it is on no connection is read, and nothing that was read is given to the broker. Those
/// who have something to bring are woken when it is let go; until then nobody tries again and
/// again.
#[derive(Debug, Default)]
pub(super) struct Brake {
    /// Odd while it is on; grows with each change.
    epoch: AtomicU64,
    /// Who has been turned away since it is on, each once.
    parked: Mutex<Vec<Source>>,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    since: Option<Time>,
    total: Duration,
}

impl Brake {
    /// Whether it is on.
    pub(super) fn is_on(&self) -> bool {
        !self.epoch.load(Ordering::SeqCst).is_multiple_of(2)
    }

    /// Whether the connection may be read. If not, it is among those that are woken; `parked`
    /// remembers that for it.
    pub(super) fn lets_read(&self, source: Source, parked: &mut u64) -> bool {
        let epoch = self.epoch.load(Ordering::SeqCst);
        if epoch.is_multiple_of(2) {
            return true;
        }
        if *parked == epoch {
            return false;
        }
        let mut waiting = self.parked.lock();
        // Whoever lets go takes the list after the change.
        if self.epoch.load(Ordering::SeqCst) != epoch {
            drop(waiting);
            return self.lets_read(source, parked);
        }
        waiting.push(source);
        *parked = epoch;
        false
    }

    /// Puts it on or lets it go; by the machine's owner alone. Returns who is to be woken.
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

    /// How long it has been on so far.
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
