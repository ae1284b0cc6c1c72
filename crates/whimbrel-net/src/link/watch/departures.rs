//! The sending end of a watched link: frames that are not reported yet, and the condition of the
//! direction as the other end's reports show it.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_event::Time;
use whimbrel_wire::{LOSS_MAX, LinkReport};

use super::arrivals::{nearest, report_every};
use super::baseline::EXCESS_MAX_US;
use super::packets::PacketLoss;
use crate::fault::NetFaults;
use crate::link::queue::WaitingEvent;

/// Most frames that wait for a report; the oldest are given up.
pub const UNREPORTED_MAX: usize = 64;

/// Most bytes of them.
pub const UNREPORTED_BYTES_MAX: usize = 256 << 10;

/// A frame is overdue when it was not reported within a round trip and a quarter of one, and this
/// many halves of the time between two reports.
const REPORT_HALVES: u32 = 5;

/// The round trip of a link that was not measured yet.
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_secs(1);

/// A turn that is later than this says nothing of a link: this broker was at a standstill.
const LATE_TURN: Duration = Duration::from_millis(20);

/// Late turns in a row after which links are judged all the same.
const LATE_TURNS_MAX: u32 = 3;

/// A direction is slow when its excess is above half of the least time, and above this, µs.
const SLOW_MIN_US: u32 = 5_000;

/// The number of reports in a row that make a direction slow, over a round trip at least: a frame
/// that is lost holds up those behind it for less.
const SLOW_REPORTS: u32 = 3;

/// A direction that is slow or loses frames is good again when its reports say so for this long.
pub(super) const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Without a report for this long, probes alone tell that a slow direction is good again.
const SLOW_KEPT: Duration = Duration::from_secs(5);

/// A dark direction stays dark at least this long; twice as long each time that it becomes dark
/// again within [`RELAPSE`] times its last stay, up to [`DARK_MAX`].
const DARK_MIN: Duration = Duration::from_secs(1);
const DARK_MAX: Duration = Duration::from_secs(32);
const RELAPSE: u32 = 8;

/// The number of probes in a row that have to come back before a dark direction is good again.
pub(super) const GOOD_ECHOES: u32 = 3;

/// The frames of a report of which those that are missing are lost: later ones may be on their way.
const LOSS_JUDGED: u64 = u64::MAX << 16;

/// Lost frames among those from which on a direction is lossy, and up to which it is good again.
const LOSSY_FROM: u32 = 3;
const LOSSY_UPTO: u32 = 1;

/// The condition of one direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkCondition {
    /// As probes measure it.
    Good,
    /// Frames take this many microseconds, more than the least time by half of it.
    Slow(u32),
    /// This share of the frames is lost, thousandths.
    Lossy(u16),
    /// Frames do not arrive, or their reports do not.
    Dark,
}

impl LinkCondition {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            LinkCondition::Good => "good",
            LinkCondition::Slow(_) => "slow",
            LinkCondition::Lossy(_) => "lossy",
            LinkCondition::Dark => "dark",
        }
    }
}

/// How a condition was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConditionCause {
    /// The direction is good.
    #[default]
    None,
    /// Events were not reported in time.
    Unreported,
    /// Probes to see whether the other end is there were not answered.
    NotAnswered,
    /// Reports tell that events arrive late.
    EventsLate,
    /// Probes come back late.
    ProbesLate,
    /// Reports lack events.
    EventsMissing,
    /// The connection has found that packets were lost.
    PacketsLost,
}

impl ConditionCause {
    /// In a few words; empty for [`ConditionCause::None`].
    pub fn text(self) -> &'static str {
        match self {
            ConditionCause::None => "",
            ConditionCause::Unreported => "events were not reported in time",
            ConditionCause::NotAnswered => "probes were not answered",
            ConditionCause::EventsLate => "events arrive late",
            ConditionCause::ProbesLate => "probes come back late",
            ConditionCause::EventsMissing => "events are missing",
            ConditionCause::PacketsLost => "packets are lost",
        }
    }
}

/// A report that is about frames that were never sent: a fault of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadReport;

/// A frame that is not reported yet.
#[derive(Debug)]
struct Departed {
    at: Time,
    /// The time within which it is to be reported.
    within: Duration,
    overdue_at: Time,
    event: WaitingEvent,
}

/// A look whether the other end is there, by probes beside the usual ones.
#[derive(Clone, Copy, Debug)]
struct LinkCheck {
    /// The other end was heard of later than this if it is there.
    began: Time,
    /// The time that it has to answer, and when that is over.
    within: Duration,
    until: Time,
}

/// The same verdict of several reports in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    reports: u32,
    since: Time,
}

impl Row {
    pub(super) fn record(&mut self, now: Time, is_so: bool) {
        if !is_so {
            *self = Row::default();
        } else {
            self.since = if self.reports == 0 { now } else { self.since };
            self.reports += 1;
        }
    }

    pub(super) fn lasts(&self, now: Time, reports: u32, span: Duration) -> bool {
        self.reports >= reports && now.since(self.since) >= span
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The sequence of the next frame.
    next: u64,
    /// The frames before `next` that are not reported, oldest first, without a gap.
    unreported: VecDeque<Departed>,
    bytes: usize,
    /// Number and time of the last report; zero: there was none.
    report: u8,
    reported: Time,
    /// The excess that was reported last, µs.
    excess_us: u32,
    /// The time from a departure to its report, smoothed.
    report_trip: Duration,
    slow_us: Option<u32>,
    /// How it was found that the direction is slow, and dark.
    slow_cause: ConditionCause,
    dark_cause: ConditionCause,
    slow_row: Row,
    loss: u16,
    packets: PacketLoss,
    good_row: Row,
    /// Since when the direction is dark.
    dark_since: Option<Time>,
    /// How long it stays dark at least, and when it was dark last.
    dark_for: Duration,
    dark_until: Time,
    late_turns: u32,
    /// Probes in a row that have come back in a good time.
    good_echoes: u32,
    /// The other end is asked whether it is there.
    check: Option<LinkCheck>,
    faults: NetFaults,
}

impl Departures {
    pub(super) fn new(faults: NetFaults) -> Departures {
        Departures { faults, ..Departures::default() }
    }

    /// The condition.
    pub(super) fn condition(&self) -> LinkCondition {
        match (self.dark_since, self.slow_us, self.loss.max(self.packets.share())) {
            (Some(_), ..) => LinkCondition::Dark,
            (None, Some(delay_us), _) => LinkCondition::Slow(delay_us),
            (None, None, 0) => LinkCondition::Good,
            (None, None, loss) => LinkCondition::Lossy(loss),
        }
    }

    /// How the condition was found.
    pub(super) fn cause(&self) -> ConditionCause {
        match self.condition() {
            LinkCondition::Good => ConditionCause::None,
            LinkCondition::Slow(_) => self.slow_cause,
            LinkCondition::Lossy(_) if self.loss >= self.packets.share() => ConditionCause::EventsMissing,
            LinkCondition::Lossy(_) => ConditionCause::PacketsLost,
            LinkCondition::Dark => self.dark_cause,
        }
    }

    /// The excess that was reported last, µs; zero if that is long ago.
    pub(super) fn excess_us(&self, now: Time) -> u32 {
        if now.since(self.reported) < SLOW_KEPT { self.excess_us } else { 0 }
    }

    /// Records the departure of an event with a deadline. `round_trip`: the probes' one. Returns
    /// its sequence, and when it is overdue.
    pub(super) fn record(
        &mut self,
        now: Time,
        event: WaitingEvent,
        deadline_ms: u32,
        round_trip: Option<Duration>,
    ) -> (u16, Time) {
        let round_trip = round_trip.unwrap_or(ROUND_TRIP_UNKNOWN).max(self.report_trip);
        let within = round_trip + round_trip / 4 + report_every(deadline_ms) * REPORT_HALVES / 2;
        let overdue_at = now + within;
        self.bytes += event.bytes();
        self.unreported.push_back(Departed { at: now, within, overdue_at, event });
        while self.unreported.len() > UNREPORTED_MAX || self.bytes > UNREPORTED_BYTES_MAX {
            self.pop();
        }
        let sequence = self.next as u16;
        self.next += 1;
        (sequence, overdue_at)
    }

    fn pop(&mut self) -> Option<Departed> {
        let departed = self.unreported.pop_front()?;
        self.bytes -= departed.event.bytes();
        Some(departed)
    }

    /// The events that are not reported, oldest first; none is left.
    pub(super) fn take_unreported(&mut self) -> Vec<WaitingEvent> {
        self.bytes = 0;
        self.unreported.drain(..).map(|departed| departed.event).collect()
    }

    /// Takes a report. `least_us`: the least time of a direction.
    ///
    /// # Errors
    /// When it is about frames that were never sent.
    pub(super) fn on_report(&mut self, now: Time, report: LinkReport, least_us: u32) -> Result<(), BadReport> {
        let last = self.next.checked_sub(1).ok_or(BadReport)?;
        let highest = nearest(last, report.highest);
        if highest > last {
            return Err(BadReport);
        }
        // Datagrams may overtake each other, or come twice.
        if self.reported != Time::ZERO && report.number.wrapping_sub(self.report) as i8 <= 0 {
            return Ok(());
        }
        (self.report, self.reported) = (report.number, now);
        self.excess_us = report.excess_us.min(EXCESS_MAX_US as u32);
        let first = self.next - self.unreported.len() as u64;
        let mut newest = None;
        for _ in first..=highest {
            newest = self.pop().map(|departed| departed.at).or(newest);
        }
        let Some(newest) = newest else { return Ok(()) };
        let trip = now.since(newest);
        self.report_trip = if self.report_trip.is_zero() { trip } else { (self.report_trip * 3 + trip) / 4 };
        self.leave_dark(now, self.dark_since.is_some_and(|since| newest >= since));
        self.judge_excess(now, least_us);
        self.judge_loss(now, report.missing);
        Ok(())
    }

    fn judge_excess(&mut self, now: Time, least_us: u32) {
        let excess_us = self.excess_us;
        let slow_from = SLOW_MIN_US.max(least_us / 2);
        // As much again before a slow direction is told to be slower still, or faster.
        let is_news = self.slow_us.map_or(excess_us > slow_from, |told| {
            excess_us > slow_from / 2 && told.abs_diff(least_us + excess_us) > slow_from
        });
        self.slow_row.record(now, is_news);
        self.good_row.record(now, excess_us <= slow_from / 2);
        if self.slow_row.lasts(now, SLOW_REPORTS, self.report_trip) {
            (self.slow_us, self.slow_cause) = (Some(least_us + excess_us), ConditionCause::EventsLate);
            self.slow_row = Row::default();
        }
        if self.good_row.lasts(now, SLOW_REPORTS, GOOD_AFTER) {
            self.slow_us = None;
        }
    }

    /// Records what the connection counts of its packets. It counts while events are reported only:
    /// probes measure other links.
    pub(super) fn record_packets(&mut self, now: Time, sent: u32, lost: u32) {
        if self.dark_since.is_some() || now.since(self.reported) >= SLOW_KEPT {
            self.packets = PacketLoss::default();
        } else if !fault!(self, LossBelievedGood) {
            self.packets.record(now, sent, lost);
        }
    }

    fn judge_loss(&mut self, now: Time, missing: u64) {
        let missing = if fault!(self, LossBelievedGood) { 0 } else { missing };
        let lost = (missing & LOSS_JUDGED).count_ones();
        let loss = (lost * u32::from(LOSS_MAX) / LOSS_JUDGED.count_ones()) as u16;
        if lost >= LOSSY_FROM {
            self.loss = self.loss.max(loss);
        } else if lost <= LOSSY_UPTO && self.good_row.lasts(now, SLOW_REPORTS, GOOD_AFTER) {
            self.loss = 0;
        }
    }

    /// Records that a probe has come back, the last of `in_a_row`, `excess_us` later than the least
    /// round trip. `least_us`: the least time of a direction.
    pub(super) fn record_echo(&mut self, now: Time, in_a_row: u32, excess_us: u32, least_us: u32) {
        let is_slow = excess_us > SLOW_MIN_US.max(least_us / 2);
        self.good_echoes = if is_slow { 0 } else { self.good_echoes + 1 };
        let echoes = if fault!(self, NoHysteresis) { 1 } else { GOOD_ECHOES };
        let was_dark = self.dark_since.is_some();
        self.leave_dark(now, in_a_row >= echoes);
        if was_dark && self.dark_since.is_none() && is_slow {
            // Either direction may be.
            (self.slow_us, self.slow_cause) = (Some(least_us + excess_us), ConditionCause::ProbesLate);
        }
        if now.since(self.reported) >= SLOW_KEPT && self.good_echoes >= echoes {
            (self.slow_us, self.loss, self.packets) = (None, 0, PacketLoss::default());
        }
    }

    fn leave_dark(&mut self, now: Time, is_good: bool) {
        let has_stayed = |since: Time| fault!(self, NoHysteresis) || now.since(since) >= self.dark_for;
        if is_good && self.dark_since.is_some_and(has_stayed) {
            (self.dark_since, self.dark_until) = (None, now);
        }
    }

    /// Begins a look whether the other end is there. Returns when it is over; `None`: there is one
    /// already, or the direction is dark.
    pub(super) fn begin_check(&mut self, now: Time, round_trip: Option<Duration>) -> Option<Time> {
        if self.check.is_some() || self.dark_since.is_some() {
            return None;
        }
        let round_trip = round_trip?.max(self.report_trip);
        let within = round_trip + round_trip / 4 + CHECK_SLACK;
        self.check = Some(LinkCheck { began: now, within, until: now + within });
        Some(now + within)
    }

    /// Looks for frames that are overdue, and whether the other end has not answered; the direction
    /// is dark then. `due`: when this was to be done. `heard`: when the other end was last heard.
    /// Returns when it is to be done again.
    pub(super) fn judge(&mut self, now: Time, due: Time, heard: Time) -> Option<Time> {
        let is_late = now.since(due) > LATE_TURN && !fault!(self, OwnSilence);
        self.late_turns = if is_late { self.late_turns + 1 } else { 0 };
        if is_late && self.late_turns <= LATE_TURNS_MAX {
            self.excuse(now);
        }
        let is_overdue = |departed: &Departed| departed.overdue_at <= now;
        let check = self.check.take_if(|check| check.until <= now || heard > check.began);
        let is_gone = check.is_some_and(|check| heard <= check.began);
        let has_overdue = self.unreported.iter().any(is_overdue);
        if (has_overdue || is_gone) && !fault!(self, MissingReportsAreGood) {
            if self.dark_since.is_some() {
                // There is no other way, or it was not better.
                while self.unreported.front().is_some_and(is_overdue) {
                    self.pop();
                }
            } else {
                let cause = if has_overdue { ConditionCause::Unreported } else { ConditionCause::NotAnswered };
                self.enter_dark(now, cause);
            }
        }
        self.next_judgement().map(|at| at.max(now + REPORT_EVERY))
    }

    /// When the next frame is overdue, or the other end has to have answered.
    pub(super) fn next_judgement(&self) -> Option<Time> {
        let overdue = self.unreported.iter().map(|departed| departed.overdue_at).min();
        overdue.into_iter().chain(self.check.map(|check| check.until)).min()
    }

    /// Gives all frames that are not reported, and the other end, their time anew: this broker was
    /// at a standstill.
    pub(super) fn excuse(&mut self, now: Time) {
        for departed in &mut self.unreported {
            departed.overdue_at = departed.overdue_at.max(now + departed.within);
        }
        if let Some(check) = &mut self.check {
            check.until = check.until.max(now + check.within);
        }
    }

    fn enter_dark(&mut self, now: Time, cause: ConditionCause) {
        let is_relapse = self.dark_until != Time::ZERO && now.since(self.dark_until) < self.dark_for * RELAPSE;
        self.dark_for = if is_relapse { (self.dark_for * 2).min(DARK_MAX) } else { DARK_MIN };
        (self.dark_since, self.dark_cause) = (Some(now), cause);
        (self.slow_us, self.check, self.packets) = (None, None, PacketLoss::default());
        (self.slow_row, self.good_row) = (Row::default(), Row::default());
    }
}

/// The time beyond a round trip and a quarter of one that the other end has to answer.
const CHECK_SLACK: Duration = Duration::from_millis(50);

/// The least time between two looks for overdue frames.
const REPORT_EVERY: Duration = super::arrivals::REPORT_EVERY_MIN;

#[cfg(test)]
mod tests {
    use whimbrel_event::{EventId, HostId, Tick};
    use whimbrel_wire::Repairers;

    use super::*;

    const LEAST_US: u32 = 20_000;
    const ROUND_TRIP: Option<Duration> = Some(Duration::from_millis(40));

    fn at(millis: u64) -> Time {
        Time::from_nanos((1 << 60) + millis * 1_000_000)
    }

    fn event(now: Time) -> WaitingEvent {
        WaitingEvent {
            id: EventId { pubend: HostId::new(1 << 8).pubend(8), tick: Tick(now.as_nanos()) },
            age_us: 0,
            since: now,
            deadline_ms: Some(100),
            answer: false,
            retain: false,
            repairers: Repairers::NONE,
            last_us: None,
            tree: [0x80, 0, 0].into(),
            default_previous: Tick(0),
            event: [7; 100].into(),
        }
    }

    /// A frame each 10 ms; each 20 ms, a report of the frame of 40 ms before.
    struct Flow {
        departures: Departures,
        millis: u64,
        number: u8,
    }

    impl Flow {
        fn new() -> Flow {
            Flow { departures: Departures::default(), millis: 0, number: 0 }
        }

        /// Runs until a moment, or until the condition changes. `report`: the excess that is
        /// reported at a moment; `None`: no report comes. Returns the condition.
        fn run(&mut self, until: u64, report: impl Fn(u64) -> Option<u32>) -> LinkCondition {
            let before = self.departures.condition();
            while self.millis < until && self.departures.condition() == before {
                self.millis += 10;
                let now = at(self.millis);
                self.departures.record(now, event(now), 80, ROUND_TRIP);
                if self.millis.is_multiple_of(20)
                    && let Some(excess_us) = report(self.millis)
                {
                    let behind = 4.min(self.departures.next - 1);
                    self.number = self.number.wrapping_add(1);
                    let highest = (self.departures.next - 1 - behind) as u16;
                    let report = LinkReport { number: self.number, highest, excess_us, missing: 0 };
                    self.departures.on_report(now, report, LEAST_US).expect("these frames were sent");
                }
                if let Some(due) = self.departures.next_judgement().filter(|due| *due <= now) {
                    self.departures.judge(now, due, now);
                }
            }
            self.departures.condition()
        }
    }

    #[test]
    fn frames_without_reports_make_the_direction_dark_within_three_reports() {
        let mut flow = Flow::new();
        assert_eq!(flow.run(10_000, |_| Some(0)), LinkCondition::Good);
        assert_eq!(flow.run(20_000, |_| None), LinkCondition::Dark);
        // Until the black hole frames were reported 40 ms after their departure.
        let took = flow.millis - 10_000;
        assert!(took <= 3 * 20 + 60, "{took} ms");
        assert_eq!(flow.departures.take_unreported().len(), usize::try_from(took / 10 + 4).expect("few"));
    }

    #[test]
    fn a_dark_direction_stays_dark_for_a_second_and_longer_each_time() {
        let mut flow = Flow::new();
        let mut stays = Vec::new();
        for _ in 0..7 {
            flow.run(flow.millis + 1_000, |_| Some(0));
            assert_eq!(flow.run(flow.millis + 1_000, |_| None), LinkCondition::Dark);
            let dark = flow.millis;
            flow.departures.take_unreported();
            assert_eq!(flow.run(flow.millis + 100_000, |_| Some(0)), LinkCondition::Good);
            stays.push((flow.millis - dark).div_ceil(1_000) - 1);
        }
        assert_eq!(stays, [1, 2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn probes_end_the_dark_when_three_of_them_come_back() {
        let mut flow = Flow::new();
        flow.run(1_000, |_| Some(0));
        flow.run(2_000, |_| None);
        flow.departures.record_echo(at(flow.millis + 1_500), GOOD_ECHOES - 1, 0, LEAST_US);
        assert_eq!(flow.departures.condition(), LinkCondition::Dark);
        flow.departures.record_echo(at(flow.millis + 500), GOOD_ECHOES, 0, LEAST_US);
        assert_eq!(flow.departures.condition(), LinkCondition::Dark, "too early");
        flow.departures.record_echo(at(flow.millis + 1_500), GOOD_ECHOES, 80_000, LEAST_US);
        assert_eq!(flow.departures.condition(), LinkCondition::Slow(100_000), "they come back, and late");
        for (after, condition) in [(3_000, 100_000), (9_000, 100_000), (9_500, 100_000), (10_000, 0)] {
            flow.departures.record_echo(at(flow.millis + after), GOOD_ECHOES, 1_000, LEAST_US);
            let expected = if condition == 0 { LinkCondition::Good } else { LinkCondition::Slow(condition) };
            assert_eq!(flow.departures.condition(), expected, "after {after} ms");
            flow.departures.good_echoes -= u32::from(after == 3_000);
        }
    }

    #[test]
    fn excess_that_lasts_is_a_slow_direction_and_a_lost_frame_is_not() {
        let mut flow = Flow::new();
        flow.run(1_000, |_| Some(0));
        let lost = |millis| Some(if millis <= 1_040 { 30_000 } else { 0 });
        assert_eq!(flow.run(2_000, lost), LinkCondition::Good, "two reports, as after a lost frame");
        assert_eq!(flow.run(3_000, |_| Some(30_000)), LinkCondition::Slow(50_000));
        assert!(flow.millis <= 2_000 + 60 + 60, "{} ms", flow.millis - 2_000);
        assert_eq!(flow.run(4_000, |_| Some(32_000)), LinkCondition::Slow(50_000), "no news");
        assert_eq!(flow.run(5_000, |_| Some(45_000)), LinkCondition::Slow(65_000));
        assert_eq!(
            flow.run(9_000, |millis| Some(if millis % 500 == 0 { 30_000 } else { 0 })),
            LinkCondition::Slow(65_000)
        );
        assert_eq!(flow.run(20_000, |_| Some(1_000)), LinkCondition::Good);
    }

    #[test]
    fn noise_of_a_fifth_changes_nothing() {
        let mut flow = Flow::new();
        let noise = |millis: u64| Some((millis.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % 8_000);
        assert_eq!(flow.run(3_600_000, noise), LinkCondition::Good);
    }

    #[test]
    fn a_standstill_of_this_broker_is_no_silence_of_the_other() {
        let mut flow = Flow::new();
        flow.run(1_000, |_| Some(0));
        let due = flow.departures.next_judgement().expect("frames are under way");
        let now = due + Duration::from_secs(3);
        let next = flow.departures.judge(now, due, due).expect("they are still under way");
        assert_eq!(flow.departures.condition(), LinkCondition::Good);
        assert!(next > now);
        flow.departures.judge(next, next, due);
        assert_eq!(flow.departures.condition(), LinkCondition::Dark, "there was time enough");
    }

    #[test]
    fn another_end_that_does_not_answer_a_check_is_gone() {
        for (heard, condition) in [(90, LinkCondition::Dark), (130, LinkCondition::Good)] {
            let mut departures = Departures::default();
            assert_eq!(departures.begin_check(at(100), None), None, "nothing is known of the link");
            assert_eq!(departures.begin_check(at(100), ROUND_TRIP), Some(at(200)));
            assert_eq!(departures.begin_check(at(110), ROUND_TRIP), None, "there is one");
            assert_eq!(departures.judge(at(150), at(150), at(90)), Some(at(200)));
            assert_eq!(departures.judge(at(200), at(200), at(heard)), None);
            assert_eq!(departures.condition(), condition, "heard at {heard}");
        }
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn an_own_standstill_that_counts_as_silence_is_noticed() {
        let faults = NetFaults::of(crate::NetMutant::OwnSilence);
        let mut flow = Flow { departures: Departures::new(faults), ..Flow::new() };
        flow.run(1_000, |_| Some(0));
        let due = flow.departures.next_judgement().expect("frames are under way");
        flow.departures.judge(due + Duration::from_secs(3), due, due);
        assert_eq!(flow.departures.condition(), LinkCondition::Dark);
    }

    #[test]
    fn a_report_of_frames_that_were_never_sent_is_refused_and_an_old_one_ignored() {
        let mut departures = Departures::default();
        let report = |number, highest| LinkReport { number, highest, excess_us: 9_000, missing: 0 };
        assert_eq!(departures.on_report(at(0), report(1, 0), LEAST_US), Err(BadReport));
        departures.record(at(0), event(at(0)), 80, ROUND_TRIP);
        assert_eq!(departures.on_report(at(1), report(1, 1), LEAST_US), Err(BadReport));
        assert_eq!(departures.on_report(at(1), report(2, 0), LEAST_US), Ok(()));
        assert_eq!(departures.excess_us(at(2)), 9_000);
        assert_eq!(departures.on_report(at(2), LinkReport { excess_us: 0, ..report(1, 0) }, LEAST_US), Ok(()));
        assert_eq!(departures.excess_us(at(2)), 9_000, "it is older");
    }

    #[test]
    fn frames_that_wait_for_a_report_have_bounds() {
        let mut departures = Departures::default();
        for number in 0..200 {
            departures.record(at(number), event(at(number)), 80, ROUND_TRIP);
        }
        assert_eq!(departures.unreported.len(), UNREPORTED_MAX);
        let large = WaitingEvent { event: vec![0; UNREPORTED_BYTES_MAX / 2].into(), ..event(at(0)) };
        departures.record(at(201), large, 80, ROUND_TRIP);
        let large = WaitingEvent { event: vec![0; UNREPORTED_BYTES_MAX / 2].into(), ..event(at(0)) };
        departures.record(at(202), large, 80, ROUND_TRIP);
        assert_eq!((departures.unreported.len(), departures.next), (1, 202));
        assert_eq!(departures.bytes, departures.unreported[0].event.bytes());
    }

    #[test]
    fn lost_datagrams_make_a_direction_lossy_until_they_arrive_again() {
        let mut departures = Departures::default();
        let mut conditions = Vec::new();
        for number in 1..600_u64 {
            let now = at(number * 20);
            departures.record(now, event(now), 80, ROUND_TRIP);
            let missing = if number < 100 { 0 } else { 0b1001_0010 << 40 };
            let missing = if number > 300 { 0 } else { missing };
            let highest = (number - 1) as u16;
            let report = LinkReport { number: number as u8, highest, excess_us: 0, missing };
            departures.on_report(now, report, LEAST_US).expect("it was sent");
            if conditions.last() != Some(&departures.condition()) {
                conditions.push(departures.condition());
            }
        }
        assert_eq!(conditions, [LinkCondition::Good, LinkCondition::Lossy(62), LinkCondition::Good]);
    }
}
