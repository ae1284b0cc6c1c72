//! Silence: other brokers are told up to where own streams have nothing for them. So they notice
//! the loss of a last event, and their subscriptions' positions advance.

use core::time::Duration;

use whimbrel_event::{Tick, Time};
use whimbrel_net::topology::FEW_BROKERS;
use whimbrel_wire::Part;

use crate::api::Output;
use crate::overlay::{Due, Overlay};
use crate::stream::{Sources, Streams};

/// The time after the last event when silence is told first.
pub const QUIET_GRACE: Duration = Duration::from_millis(20);

/// The longest interval; intervals double up to it.
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(30);

/// The factor by which intervals grow with more than [`FEW_BROKERS`]: a change of one interest is
/// answered by all brokers, twelve times each if intervals doubled.
const QUIET_GROWS: u32 = 4;

/// The interval with more than [`FEW_BROKERS`] after silence was told at once, as the destination's
/// interest changed or it can be reached again.
const QUIET_AGAIN: Duration = Duration::from_millis(320);

/// The interval at which a destination is told of its silent streams while events go to it.
pub const QUIET_BUSY: Duration = Duration::from_secs(1);

/// The pause that follows `pause`.
fn after(pause: Duration, is_few: bool) -> Duration {
    let next = match (is_few, pause.is_zero()) {
        (true, _) => pause * 2,
        (false, true) => QUIET_AGAIN,
        (false, false) => pause * QUIET_GROWS,
    };
    next.clamp(QUIET_GRACE, QUIET_MAX)
}

impl Overlay {
    /// Puts off silence for a destination, as an event is on its path.
    pub(crate) fn put_off_silence(&mut self, now: Time, number: u32) {
        let destination = self.destinations.get_mut(number).expect("it is served");
        destination.sent_at = now;
        destination.pause = QUIET_GRACE;
        let at = now + QUIET_GRACE;
        if destination.quiet_at > at {
            destination.quiet_at = at;
            self.set_timer(at, Due::Quiet(number));
        }
    }

    /// Tells a destination up to where the own streams have nothing more for it, and sets the timer
    /// for the next time.
    pub(crate) fn tell_quiet(&mut self, now: Time, number: u32, streams: &mut Sources, out: &mut dyn Output) {
        let Some(destination) = self.destinations.get_mut(number) else { return };
        if destination.quiet_at > now && !destination.pause.is_zero() {
            // It was put off.
            return;
        }
        destination.quiet_at = Time::MAX;
        let nothing_new = destination.wants_nothing() && !destination.pause.is_zero();
        let host = destination.host;
        if nothing_new || !self.net.is_reachable(host) {
            return;
        }
        let destination = self.destinations.get_mut(number).expect("it is served");
        let is_busy = now.since(destination.sent_at) < QUIET_GRACE && now.since(destination.told_at) < QUIET_BUSY;
        if is_busy && !destination.pause.is_zero() {
            let at = destination.sent_at + QUIET_GRACE;
            destination.quiet_at = at;
            return self.set_timer(at, Due::Quiet(number));
        }
        streams.close(now);
        let (passed, last_events) = (streams.own.passed_each(), streams.own.last_events());
        let beyond = if fault!(self, SilenceAhead) { 1_000_000_000 } else { 0 };
        let is_few = self.net.topology().len() <= FEW_BROKERS;
        let destination = self.destinations.get_mut(number).expect("it is served");
        let part = |own: usize| Part {
            index: own as u8,
            begin: destination.begin[own],
            since: destination.since[own],
            after: destination.last[own].min(passed[own]),
            upto: Tick(passed[own].0 + beyond),
            lost: false,
            still: last_events[own].min(passed[own]),
        };
        let parts = (0..Streams::COUNT).map(part).collect();
        for (last, passed) in destination.last.iter_mut().zip(passed) {
            *last = passed.max(*last);
        }
        destination.told_at = now;
        destination.pause = after(destination.pause, is_few);
        let at = now + destination.pause;
        destination.quiet_at = at;
        let target = destination.silence_target();
        self.set_timer(at, Due::Quiet(number));
        self.net.send_silence(now, target, parts, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn among_many_silence_is_told_less_often() {
        let times = |mut pause: Duration, is_few| {
            let mut times = 1;
            while pause < QUIET_MAX {
                pause = after(pause, is_few);
                times += 1;
            }
            times
        };
        assert_eq!([times(Duration::ZERO, true), times(Duration::ZERO, false)], [13, 6]);
        assert_eq!([times(QUIET_GRACE, true), times(QUIET_GRACE, false)], [12, 7]);
    }
}
