//! Silence: other brokers are told up to where own streams have nothing for them. So they notice
//! the loss of a last event, and their subscriptions' positions advance.

use core::time::Duration;

use whimbrel_event::{StreamClass, Tick, Time};
use whimbrel_net::topology::FEW_BROKERS;
use whimbrel_wire::Part;

use crate::api::Output;
use crate::overlay::{Due, Overlay};
use crate::stream::{Sources, Streams};

/// The time after the last event of a stream when its silence is told first.
pub const QUIET_GRACE: Duration = Duration::from_millis(20);

/// The longest interval; intervals double up to it.
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(30);

/// The factor by which intervals grow with more than [`FEW_BROKERS`]: a change of one interest is
/// answered by all brokers, twelve times each if intervals doubled.
const QUIET_GROWS: u32 = 4;

/// The interval with more than [`FEW_BROKERS`] after silence was told at once, as the destination's
/// interest changed or it can be reached again.
const QUIET_AGAIN: Duration = Duration::from_millis(320);

/// The pause that follows `pause`.
fn after(pause: Duration, is_few: bool) -> Duration {
    let next = match (is_few, pause.is_zero()) {
        (true, _) => pause * 2,
        (false, true) => QUIET_AGAIN,
        (false, false) => pause * QUIET_GROWS,
    };
    next.clamp(QUIET_GRACE, QUIET_MAX)
}

/// When silence of each own stream is told to a destination next. Each stream has its own pauses:
/// events in one are no reason to tell of all others again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceTimes {
    next: [Time; Streams::COUNT],
    /// The pause before each of these times; zero: at once.
    pauses: [Duration; Streams::COUNT],
    /// When the last copies of its events should be there; zero: they are.
    copies: [Time; Streams::COUNT],
    /// The first timer that is set, so that an event costs a comparison.
    timer: Time,
}

impl SilenceTimes {
    /// Nothing is told.
    pub(crate) const NEVER: SilenceTimes = SilenceTimes {
        next: [Time::MAX; Streams::COUNT],
        pauses: [Duration::ZERO; Streams::COUNT],
        copies: [Time::ZERO; Streams::COUNT],
        timer: Time::MAX,
    };

    /// All streams are told at once.
    pub(crate) fn tell_all(&mut self, now: Time) {
        let SilenceTimes { copies, timer, .. } = *self;
        *self = SilenceTimes { next: [now; Streams::COUNT], copies, timer, ..SilenceTimes::NEVER };
    }

    /// Puts a stream off, as an event of it is on its path.
    fn put_off(&mut self, now: Time, own: usize) {
        (self.next[own], self.pauses[own]) = (now + QUIET_GRACE, QUIET_GRACE);
    }

    /// Puts a stream off while copies of its events are on their path: silence takes one path, and
    /// would close the hole of an event whose copy is still to come.
    pub(crate) fn wait_for(&mut self, own: usize, copies: Time) {
        self.copies[own] = copies.max(self.copies[own]);
    }

    /// When silence of a stream may be told: at once if the destination's interest has changed.
    fn at(&self, own: usize) -> Time {
        if self.pauses[own].is_zero() { self.next[own] } else { self.next[own].max(self.copies[own]) }
    }

    /// The time at which a timer has to be set, if there is none that is early enough; it counts as
    /// set then.
    pub(crate) fn need_timer(&mut self, at: Time) -> Option<Time> {
        let is_needed = at < self.timer;
        self.timer = self.timer.min(at);
        is_needed.then_some(at)
    }

    /// When the first stream is due.
    fn first(&self) -> Time {
        (0..Streams::COUNT).map(|own| self.at(own)).min().unwrap_or(Time::MAX)
    }

    /// The streams that are told now: those that are due, and if there is one, those whose pause is
    /// over by half. `is_once`: only those that are to be told at once.
    fn take_due(&mut self, now: Time, is_once: bool, is_few: bool) -> Vec<usize> {
        if self.first() > now {
            return Vec::new();
        }
        let is_due = |own: &usize| {
            let pause = self.pauses[*own];
            let is_free = pause.is_zero() || self.copies[*own] <= now;
            self.next[*own] <= now + pause / 2 && is_free && (pause.is_zero() || !is_once)
        };
        let due: Vec<usize> = (0..Streams::COUNT).filter(is_due).collect();
        for own in &due {
            self.pauses[*own] = after(self.pauses[*own], is_few);
            self.next[*own] = now + self.pauses[*own];
        }
        due
    }
}

impl Overlay {
    /// Puts off silence of an own stream for a destination, as an event is on its path.
    pub(crate) fn put_off_silence(&mut self, now: Time, number: u32, own: usize) {
        let destination = self.destinations.get_mut(number).expect("it is served");
        destination.silences.put_off(now, own);
        if let Some(at) = destination.silences.need_timer(now + QUIET_GRACE) {
            self.set_timer(at, Due::Quiet(number));
        }
    }

    /// Tells a destination up to where own streams have nothing more for it, as far as that is due,
    /// and sets the timer for the next time.
    pub(crate) fn tell_quiet(&mut self, now: Time, number: u32, streams: &mut Sources, out: &mut dyn Output) {
        let is_few = self.net.topology().len() <= FEW_BROKERS;
        let Some(destination) = self.destinations.get_mut(number) else { return };
        let (host, is_once) = (destination.host, destination.wants_nothing());
        if destination.silences.timer <= now {
            destination.silences.timer = Time::MAX;
        }
        if !self.net.is_reachable(host) {
            return;
        }
        let destination = self.destinations.get_mut(number).expect("it is served");
        if fault!(self, SilenceBeforeCopies) {
            destination.silences.copies = [Time::ZERO; Streams::COUNT];
        }
        let due = destination.silences.take_due(now, is_once, is_few);
        let first = if is_once { Time::MAX } else { destination.silences.first() };
        let timer = destination.silences.need_timer(first);
        if !due.is_empty() {
            streams.close(now);
            let (passed, last_events) = (streams.own.passed_each(), streams.own.last_events());
            let beyond = if fault!(self, SilenceAhead) { 1_000_000_000 } else { 0 };
            let destination = self.destinations.get_mut(number).expect("it is served");
            let part = |own: &usize| Part {
                index: *own as u8,
                begin: destination.begin[*own],
                since: destination.since[*own],
                after: destination.last[*own].min(passed[*own]),
                upto: Tick(passed[*own].0 + beyond),
                lost: false,
                still: last_events[*own].min(passed[*own]),
            };
            let parts = due.iter().map(part).collect();
            // Silence takes one path, and events of this class are not to wait for what it lost:
            // each tells what was silent since the one before it. What passed before this version
            // of the interest is told once: it was matched against another one.
            let is_restated = |own: usize| host.pubend(own as u8).class() == StreamClass::Deadline;
            for own in due {
                let upto = if is_restated(own) { destination.since[own] } else { passed[own] };
                destination.last[own] = upto.max(destination.last[own]);
            }
            let target = destination.silence_target();
            self.net.send_silence(now, target, parts, out);
        }
        if let Some(at) = timer {
            self.set_timer(at, Due::Quiet(number));
        }
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

    #[test]
    fn a_stream_with_events_is_told_of_by_itself() {
        let at = |millis: u64| Time::from_nanos((1 << 60) + millis * 1_000_000);
        let mut silences = SilenceTimes::NEVER;
        assert_eq!((silences.first(), silences.take_due(at(0), false, true)), (Time::MAX, vec![]));
        silences.tell_all(at(0));
        assert_eq!(silences.take_due(at(0), false, true).len(), Streams::COUNT);
        // One stream has an event each 10 ms for a minute.
        let mut told = [0; Streams::COUNT];
        for millis in (10..60_000).step_by(10) {
            silences.put_off(at(millis), 3);
            for own in silences.take_due(at(millis), false, true) {
                told[own] += 1;
            }
        }
        assert_eq!(told[3], 0);
        assert!(told.iter().all(|told| *told <= 12), "{told:?}");
        assert_eq!(silences.take_due(at(60_009), false, true), [0; 0]);
        assert_eq!(silences.take_due(at(60_010), false, true).len(), Streams::COUNT, "the others are due before long");
        assert_eq!(silences.first(), at(60_050));
    }
}
