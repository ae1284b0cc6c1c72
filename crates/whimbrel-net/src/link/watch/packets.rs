//! The share of a direction's packets that is lost, by the connection's own count.
//!
//! A stream hides the loss of its frames from reports: some are later than others, which may be
//! jitter. The connection knows which of its packets were lost; it does not know of those behind a
//! black hole until something is acknowledged again.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_wire::LOSS_MAX;

use super::departures::{GOOD_AFTER, Row};

/// Packets of a connection over which the share of lost ones is taken, at least.
const PACKETS_MIN: u32 = 50;

/// The share of lost packets, thousandths, from which on a direction is lossy, and up to which it
/// is good again; between the two it stays as it is. Congestion control itself loses less.
const PACKETS_LOST_FROM: u16 = 20;
const PACKETS_LOST_UPTO: u16 = 5;

/// The number of such shares in a row that make a direction lossy: what was sent into a direction
/// that was dark is found to be lost when it no longer is.
const PACKETS_LOST_ROW: u32 = 2;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketLoss {
    /// Packets that were counted since the last share.
    sent: u32,
    lost: u32,
    bad_row: Row,
    good_row: Row,
    /// See [`PacketLoss::share`].
    share: u16,
}

impl PacketLoss {
    /// The share of packets that are lost, thousandths below [`LOSS_MAX`]; zero: the direction is
    /// good.
    pub(super) fn share(&self) -> u16 {
        self.share
    }

    /// Records packets that were sent, and those that were found to be lost.
    pub(super) fn record(&mut self, now: Time, sent: u32, lost: u32) {
        (self.sent, self.lost) = (self.sent.saturating_add(sent), self.lost.saturating_add(lost));
        if self.sent < PACKETS_MIN {
            return;
        }
        let share = u64::from(self.lost) * u64::from(LOSS_MAX) / u64::from(self.sent);
        // Some arrive, or there would be no reports.
        let share = share.min(u64::from(LOSS_MAX) - 1) as u16;
        (self.sent, self.lost) = (0, 0);
        self.bad_row.record(now, share >= PACKETS_LOST_FROM);
        self.good_row.record(now, share <= PACKETS_LOST_UPTO);
        // Half as much again, or half as much, before another share is told.
        let is_news = self.share.abs_diff(share) > self.share / 2;
        if is_news && self.bad_row.lasts(now, PACKETS_LOST_ROW, Duration::ZERO) {
            self.share = share;
        }
        if self.good_row.lasts(now, PACKETS_LOST_ROW, GOOD_AFTER) {
            self.share = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos((1 << 60) + millis * 1_000_000)
    }

    /// Records `counts`, one each 500 ms. Returns the shares that are told, each once.
    fn told(loss: &mut PacketLoss, millis: &mut u64, counts: &[(u32, u32)]) -> Vec<u16> {
        let mut told = vec![loss.share()];
        for (sent, lost) in counts {
            *millis += 500;
            loss.record(at(*millis), *sent, *lost);
            told.push(loss.share());
        }
        told.dedup();
        told
    }

    #[test]
    fn a_share_that_lasts_is_told_and_one_count_is_not() {
        let (mut loss, mut millis) = (PacketLoss::default(), 0);
        assert_eq!(told(&mut loss, &mut millis, &[(100, 0), (100, 60), (100, 0), (100, 1)]), [0]);
        assert_eq!(told(&mut loss, &mut millis, &[(100, 5), (100, 5)]), [0, 50]);
        assert_eq!(told(&mut loss, &mut millis, &[(100, 6), (100, 4), (100, 7)]), [50], "no news");
        assert_eq!(told(&mut loss, &mut millis, &[(100, 30), (100, 30)]), [50, 300]);
        assert_eq!(told(&mut loss, &mut millis, &[(100, 1), (100, 0), (100, 1)]), [300], "neither");
        assert_eq!(told(&mut loss, &mut millis, &[(200, 0), (200, 1), (200, 0)]), [300, 0]);
    }

    #[test]
    fn few_packets_say_nothing_until_there_are_enough() {
        let (mut loss, mut millis) = (PacketLoss::default(), 0);
        assert_eq!(told(&mut loss, &mut millis, &[(10, 10); 9]), [0]);
        assert_eq!(told(&mut loss, &mut millis, &[(10, 10)]), [0, LOSS_MAX - 1]);
        assert_eq!(told(&mut loss, &mut millis, &[(u32::MAX, u32::MAX), (u32::MAX, 0)]), [LOSS_MAX - 1]);
    }
}
