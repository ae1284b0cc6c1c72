//! A link is watched by the frames of events with a deadline that cross it: each has a number and
//! its departure time, and while they flow the receiving end reports what has arrived and how late.
//!
//! So the sending end knows within a few reports that its direction has become slow, lossy or dark,
//! where probes need seconds. It judges only its own direction; reports that do not arrive speak
//! against it, too, whichever direction they were lost on.

mod arrivals;
mod baseline;
mod departures;
mod former;
mod packets;
mod window;

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_wire::{LOSS_MAX, LinkReport, LinkStamp};

use super::estimate::Estimate;
use super::queue::WaitingEvent;
use crate::fault::NetFaults;
use arrivals::{Arrivals, DueReport};
use departures::{BadReport, Departures};

pub use arrivals::REPORT_EVERY_MIN;
pub use departures::{ConditionCause, LinkCondition, UNREPORTED_BYTES_MAX, UNREPORTED_MAX};
pub(crate) use former::Former;
pub use former::REPEATED_MAX;

/// The least time between two floods of changes of one end of a link.
pub const FLASH_EVERY: Duration = Duration::from_millis(250);

/// A moment as stamps have it: microseconds modulo 2^32.
fn micros_of(at: Time) -> u32 {
    (at.as_nanos() / 1_000) as u32
}

/// The round trip that is not exceeded often; `None` before the first echo.
fn round_trip(estimate: &Estimate) -> Option<Duration> {
    let delay_us = u64::from(estimate.delay_us()?);
    Some(Duration::from_micros(2 * (delay_us + 2 * u64::from(estimate.jitter_us()))))
}

/// Both ends of a watched link, as this broker sees them.
#[derive(Debug)]
pub(crate) struct LinkWatch {
    arrivals: Arrivals,
    departures: Departures,
    /// The event of the last datagram, unless it has arrived.
    former: Option<Former>,
    /// The condition that was told last.
    told: LinkCondition,
    /// When that changed last; zero: never.
    told_at: Time,
    /// When other brokers were last told by a flood; zero: never.
    flashed: Time,
    faults: NetFaults,
}

impl LinkWatch {
    pub(crate) fn new(faults: NetFaults) -> LinkWatch {
        let (arrivals, departures) = (Arrivals::new(faults), Departures::new(faults));
        let (told, told_at) = (LinkCondition::Good, Time::ZERO);
        let former = None;
        LinkWatch { arrivals, departures, former, told, told_at, flashed: Time::ZERO, faults }
    }

    /// The condition of the sending direction.
    pub(crate) fn condition(&self) -> LinkCondition {
        self.departures.condition()
    }

    /// How the condition was found, and since when others are told of it; zero: it never changed.
    pub(crate) fn cause(&self) -> (ConditionCause, Time) {
        (self.departures.cause(), self.told_at)
    }

    /// Half of the least round trip, µs.
    fn least_us(&self, estimate: &Estimate) -> u32 {
        let measured = self.arrivals.baseline.round_trip_us().map(|round_trip| round_trip / 2);
        measured.or(estimate.delay_us()).unwrap_or(0)
    }

    /// Records that a probe has come back after that time.
    pub(crate) fn record_echo(&mut self, now: Time, round_trip: Duration, estimate: &Estimate) {
        self.arrivals.baseline.record_round_trip(now, round_trip);
        let least_us = self.least_us(estimate);
        let excess_us = (round_trip.as_micros() as u64).saturating_sub(2 * u64::from(least_us));
        let excess_us = u32::try_from(excess_us).unwrap_or(u32::MAX / 2);
        self.departures.record_echo(now, estimate.echoes_in_a_row(), excess_us, least_us);
    }

    /// Records a probe of the other end, sent at that moment of its clock: the first events of a
    /// deadline have a least time to be compared with.
    pub(crate) fn record_probe(&mut self, now: Time, sent: Time) {
        self.arrivals.baseline.record_arrival(now, micros_of(sent));
    }

    /// Records a stamped frame that has arrived. Returns the time that it took over the link, µs,
    /// and the time within which it is to be reported.
    pub(crate) fn record_arrival(&mut self, now: Time, stamp: LinkStamp, estimate: &Estimate) -> (u64, Duration) {
        let (excess_us, within) = self.arrivals.record(now, stamp);
        (self.way_us(excess_us, estimate), within)
    }

    /// The time that a frame took over the link, µs, of what it took longer than the least time.
    fn way_us(&self, excess_us: u32, estimate: &Estimate) -> u64 {
        let excess_us = if fault!(self, AgeWithoutExcess) { 0 } else { excess_us };
        u64::from(self.least_us(estimate)) + u64::from(excess_us)
    }

    /// Whether a frame with this sequence has arrived, or was taken as a repeat.
    pub(crate) fn knows(&self, sequence: u16) -> bool {
        self.arrivals.knows(sequence) && !fault!(self, RepeatsNotKnown)
    }

    /// Whether a frame that has arrived was taken before, as a repeat.
    pub(crate) fn was_repeated(&self, sequence: u16) -> bool {
        self.arrivals.was_repeated(sequence) && !fault!(self, RepeatsNotKnown)
    }

    /// Records that a repeat of a frame is taken. Returns the time since the frame departed, µs.
    pub(crate) fn record_repeat(&mut self, now: Time, stamp: LinkStamp, estimate: &Estimate) -> u64 {
        let excess_us = self.arrivals.record_repeat(now, stamp);
        if fault!(self, RepeatsReported) {
            self.arrivals.record(now, stamp);
        }
        self.way_us(excess_us, estimate)
    }

    /// Takes the event of the last datagram, if it is to be repeated.
    pub(crate) fn take_former(&mut self, now: Time) -> Option<Former> {
        self.former.take().filter(|former| !former.is_late(now) && !fault!(self, NoRepeats))
    }

    /// Keeps the event of a datagram that departs until it is repeated.
    pub(crate) fn keep_former(&mut self, former: Option<Former>) {
        self.former = former;
    }

    /// The next report for the other end.
    pub(crate) fn report(&mut self) -> Option<DueReport> {
        self.arrivals.report()
    }

    /// Stamps an event that departs now. Returns when it is overdue, too.
    pub(crate) fn stamp(
        &mut self,
        now: Time,
        event: WaitingEvent,
        deadline_ms: u32,
        estimate: &Estimate,
    ) -> (LinkStamp, Time) {
        let (sequence, overdue_at) = self.departures.record(now, event, deadline_ms, round_trip(estimate));
        let departed_us = micros_of(now);
        (LinkStamp { sequence, departed_us, deadline_ms }, overdue_at)
    }

    /// Takes a report of the other end. Returns whether it makes sense.
    pub(crate) fn on_report(&mut self, now: Time, report: LinkReport, estimate: &Estimate) -> bool {
        let least_us = self.least_us(estimate);
        if self.departures.on_report(now, report, least_us) == Err(BadReport) {
            return false;
        }
        self.former.take_if(|former| former.is_reported(&report));
        true
    }

    /// Records packets of the connection that were sent, and those that were lost.
    pub(crate) fn record_packets(&mut self, now: Time, sent: u32, lost: u32) {
        self.departures.record_packets(now, sent, lost);
    }

    /// Begins a look whether the other end is there, by probes that the caller sends. Returns when
    /// it is over; `None`: there is no need.
    pub(crate) fn begin_check(&mut self, now: Time, estimate: &Estimate) -> Option<Time> {
        self.departures.begin_check(now, round_trip(estimate))
    }

    /// Looks for frames that are overdue, and for another end that does not answer. `due`: when
    /// this was to be done. Returns when it is to be done again.
    pub(crate) fn judge(&mut self, now: Time, due: Time, estimate: &Estimate) -> Option<Time> {
        self.departures.judge(now, due, estimate.heard_at())
    }

    /// Gives all frames their time anew: this broker was at a standstill.
    pub(crate) fn excuse(&mut self, now: Time) {
        self.departures.excuse(now);
    }

    /// The condition, if it is not the one that was told last; it counts as told then.
    pub(crate) fn news(&mut self, now: Time) -> Option<LinkCondition> {
        let condition = self.condition();
        let is_news = core::mem::replace(&mut self.told, condition) != condition;
        if is_news {
            self.told_at = now;
        }
        is_news.then_some(condition)
    }

    /// Whether other brokers may be told by a flood now; it counts as told then.
    pub(crate) fn may_flash(&mut self, now: Time) -> bool {
        let may = self.flashed == Time::ZERO || now.since(self.flashed) >= FLASH_EVERY;
        if may {
            self.flashed = now;
        }
        may
    }

    /// The events that are not reported, oldest first; none is left.
    pub(crate) fn take_unreported(&mut self) -> Vec<WaitingEvent> {
        self.departures.take_unreported()
    }

    /// Delay (µs) and loss (thousandths) of the sending direction as they are told to others, of
    /// those that probes measure.
    pub(crate) fn announced(&self, delay_us: u32, loss: u16) -> (u32, u16) {
        match self.told {
            LinkCondition::Good => (delay_us, loss),
            LinkCondition::Slow(slow_us) => (delay_us.max(slow_us), loss),
            LinkCondition::Lossy(lossy) => (delay_us, loss.max(lossy)),
            LinkCondition::Dark => (delay_us, LOSS_MAX),
        }
    }

    /// By how much the sending direction is slower at present than it was announced, µs.
    pub(crate) fn surplus_us(&self, now: Time, announced_us: u32, estimate: &Estimate) -> u32 {
        match self.departures.excess_us(now) {
            0 => 0,
            excess_us => (self.least_us(estimate) + excess_us).saturating_sub(announced_us),
        }
    }
}
