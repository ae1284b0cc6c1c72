//! How many bytes of events a link may carry, as its broker is configured.
//!
//! A token bucket (RFC 2697): bytes are saved up at the cap's rate, those of [`BURST`] at most.
//! What QUIC is given costs them, also datagrams, which never wait: their cost may be a debt.

use std::time::{Duration, Instant};

/// Bytes of this time are saved up at most.
const BURST: Duration = Duration::from_millis(100);

/// Bytes that are saved up at least, whatever the rate: two packets.
const BURST_MIN: u64 = 2_800;

/// With fewer bytes saved up than this nothing is given: packets would be small.
const PIECE_MIN: u64 = 1_200;

/// Bytes per second of one link, and those that are saved up.
#[derive(Debug)]
pub(super) struct LinkCap {
    rate: u64,
    /// Bytes that were saved up at that moment; less than zero: a debt.
    saved: i64,
    at: Instant,
}

impl LinkCap {
    /// A cap of `rate` bytes per second; zero counts as one.
    pub(super) fn new(rate: u64, now: Instant) -> LinkCap {
        LinkCap { rate: rate.max(1), saved: BURST_MIN as i64, at: now }
    }

    fn burst(&self) -> i64 {
        (self.rate * BURST.as_millis() as u64 / 1_000).max(BURST_MIN) as i64
    }

    fn saved(&self, now: Instant) -> i64 {
        let micros = now.saturating_duration_since(self.at).as_micros();
        let more = (u128::from(self.rate) * micros / 1_000_000).min(u128::from(u32::MAX)) as i64;
        self.saved.saturating_add(more).min(self.burst())
    }

    /// Bytes that may be given at this moment.
    pub(super) fn room(&self, now: Instant) -> usize {
        u64::try_from(self.saved(now)).ok().filter(|saved| *saved >= PIECE_MIN).unwrap_or(0) as usize
    }

    /// Records bytes that QUIC was given.
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        if bytes > 0 {
            (self.saved, self.at) = (self.saved(now) - bytes as i64, now);
        }
    }

    /// Until when nothing may be given, if that is so now.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        let now = Instant::now();
        (self.room(now) == 0).then(|| self.next(now))
    }

    /// When bytes may be given again, if none may at this moment.
    fn next(&self, now: Instant) -> Instant {
        let lacking = (PIECE_MIN as i64 - self.saved(now)).max(0) as u64;
        now + Duration::from_micros((lacking * 1_000_000).div_ceil(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a link as much as it takes for ten seconds, in pieces of at most this size. Returns
    /// the bytes.
    fn fill(rate: u64, most: usize) -> u64 {
        let began = Instant::now();
        let (mut cap, mut now, mut bytes) = (LinkCap::new(rate, began), began, 0);
        while now < began + Duration::from_secs(10) {
            let room = cap.room(now).min(most);
            cap.spend(now, room);
            bytes += room as u64;
            if room == 0 {
                assert!(cap.next(now) > now);
                now = cap.next(now);
                assert!(cap.room(now) >= PIECE_MIN as usize);
            }
        }
        bytes
    }

    #[test]
    fn a_link_carries_its_cap_and_no_more_than_a_burst_beyond() {
        for rate in [4 << 10, 64 << 10, 1 << 20, 1 << 30] {
            let burst = (rate / 10).max(BURST_MIN);
            for most in [1_200, 64 << 10] {
                let bytes = fill(rate, most);
                assert!((10 * rate - burst..=10 * rate + burst).contains(&bytes), "{bytes} of {rate} B/s");
            }
        }
    }

    #[test]
    fn what_was_not_used_is_saved_for_a_moment_and_a_debt_is_paid() {
        let began = Instant::now();
        let mut cap = LinkCap::new(100_000, began);
        let later = began + Duration::from_secs(60);
        assert_eq!(cap.room(later), 10_000);
        cap.spend(later, 60_000);
        assert_eq!((cap.room(later), cap.next(later)), (0, later + Duration::from_millis(512)));
        assert_eq!(cap.room(later + Duration::from_millis(512)), 1_200);
    }
}
