//! The judge of late events: why each one was late that had a way on which it would have been in
//! time.
//!
//! It knows the truth of all links, and the hops of each event as the brokers report them. An event
//! that did not arrive at its subscriber's broker in time was held up on a link; when the trouble
//! of that link had begun tells why the event was sent there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use whimbrel_core::Hop;
use whimbrel_event::{HostId, Time};

use super::scene::{DEADLINE, REPORT_EVERY};
use super::truth::Truth;
use crate::cores::START;
use crate::cores::wire::{WayCourse, WayTruth};

/// By how much a link may take longer than its delay and noise before a packet counts as held up.
const SLACK: Duration = Duration::from_millis(1);

/// Reports that a sender awaits before it takes a link for dark or slow.
const REPORTS: u32 = 3;

/// Why an event was late that had a way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DelayCause {
    /// It was sent over a link in trouble before a report could tell: within one delay of the link
    /// and one interval of reports.
    Unreported,
    /// It was sent there within the time of detection: three reports and 1.5 round trips.
    Detecting,
    /// It was sent there later, while brokers were still following the change.
    Rerouting,
    /// It went over good links whose sum is too long, or over one that had long been in trouble; a
    /// shorter way had become good a short time before.
    Detour,
    /// It was sent over a good link behind a packet that was being repeated.
    Repeating,
    /// It was at the subscriber's broker in time, and held back there behind a hole in its stream.
    HeldBack,
    /// A broker did not pass it on, as it knew no way a short time after a change.
    Unsent,
    /// None of these.
    Unknown,
}

impl DelayCause {
    /// All of them.
    pub const ALL: [DelayCause; 8] = [
        DelayCause::Unreported,
        DelayCause::Detecting,
        DelayCause::Rerouting,
        DelayCause::Detour,
        DelayCause::Repeating,
        DelayCause::HeldBack,
        DelayCause::Unsent,
        DelayCause::Unknown,
    ];

    /// In a few words.
    fn name(self) -> &'static str {
        [
            "sent before a report could tell",
            "within detection",
            "reroute under way",
            "on a detour that is too long",
            "behind a repeated packet",
            "held back behind a hole",
            "no way known",
            "unknown",
        ][self as usize]
    }
}

/// The number of late events by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayCauses([u64; DelayCause::ALL.len()]);

impl DelayCauses {
    /// Counts an event.
    pub fn record(&mut self, cause: DelayCause) {
        self.0[cause as usize] += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &DelayCauses) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// The number of events with a cause.
    #[cfg(test)]
    pub fn of(&self, cause: DelayCause) -> u64 {
        self.0[cause as usize]
    }

    /// The number of all events.
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// All that occur as text, and the unknown ones always.
    pub fn text(&self) -> String {
        let mut text = format!("{} late although a way was in time", self.all());
        for (cause, count) in DelayCause::ALL.into_iter().zip(self.0) {
            if count > 0 || cause == DelayCause::Unknown {
                let _ = write!(text, "; {} {count}", cause.name());
            }
        }
        text
    }
}

/// An event of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventKey {
    /// The index of its topic.
    pub topic: usize,
    /// Its number among those of the topic.
    pub number: usize,
}

/// A hop of an event at a broker.
#[derive(Clone, Copy, Debug)]
struct LoggedHop {
    key: EventKey,
    /// The broker.
    node: usize,
    /// The broker at the other end of the link.
    other: HostId,
    /// When it was sent or arrived.
    at: Time,
    is_sent: bool,
}

/// The hops of all events, in the order in which they happened.
#[derive(Debug, Default)]
pub struct HopLog(Vec<LoggedHop>);

impl HopLog {
    /// Records a hop at a broker.
    pub fn record(&mut self, key: EventKey, node: usize, at: Time, hop: Hop) {
        let (other, is_sent) = match hop {
            Hop::Sent { to, .. } => (to, true),
            Hop::Came { from, .. } => (from, false),
        };
        self.0.push(LoggedHop { key, node, other, at, is_sent });
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// By topic, of the first ones: how often their events were sent over a link.
    pub fn sent(&self, topics: usize) -> Vec<usize> {
        let mut sent = vec![0; topics];
        let hops = self.0.iter().filter(|hop| hop.is_sent);
        hops.for_each(|hop| sent[hop.key.topic] += 1);
        sent
    }

    /// The hops of some events.
    fn of(&self, keys: &BTreeSet<EventKey>) -> BTreeMap<EventKey, Vec<LoggedHop>> {
        let mut by_event: BTreeMap<EventKey, Vec<LoggedHop>> = BTreeMap::new();
        for hop in self.0.iter().filter(|hop| keys.contains(&hop.key)) {
            by_event.entry(hop.key).or_default().push(*hop);
        }
        by_event
    }
}

/// An event that was late or lost, and had a way.
#[derive(Clone, Copy, Debug)]
pub struct LateEvent {
    /// The event.
    pub key: EventKey,
    /// The subscriber's broker.
    pub to: usize,
    /// When it was published.
    pub published: Time,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The truth of all links.
    pub truth: &'a Truth,
    /// The hosts of the brokers.
    pub hosts: &'a [HostId],
    /// How long it takes at most until all have followed a change.
    pub settled: Duration,
}

/// Since when a direction of a link is in trouble; `None`: it is as good as at first.
fn trouble_since(course: &WayCourse, at: Time) -> Option<Time> {
    let good = course.0[0].1;
    let is_bad = |way: &WayTruth| !way.carries() || way.delay > good.delay;
    let last = course.0.partition_point(|(from, _)| *from <= at);
    let bad = course.0[..last].iter().rev().take_while(|(_, way)| is_bad(way));
    bad.last().map(|(from, _)| *from)
}

impl Judge<'_> {
    /// Judges events by their hops.
    pub fn count(&self, log: &HopLog, late: &[LateEvent]) -> DelayCauses {
        let hops = log.of(&late.iter().map(|event| event.key).collect());
        let mut causes = DelayCauses::default();
        for event in late {
            causes.record(self.cause(event, hops.get(&event.key).map_or(&[], Vec::as_slice)));
        }
        causes
    }

    fn node_of(&self, host: HostId) -> usize {
        self.hosts.iter().position(|known| *known == host).expect("hops are between brokers")
    }

    /// Why an event with these hops was late.
    fn cause(&self, event: &LateEvent, hops: &[LoggedHop]) -> DelayCause {
        let due = event.published + DEADLINE;
        let came = hops.iter().find(|hop| !hop.is_sent && hop.node == event.to);
        if came.is_some_and(|hop| hop.at <= due) {
            return DelayCause::HeldBack;
        }
        let mut held_up: Vec<&LoggedHop> =
            hops.iter().filter(|hop| hop.is_sent && hop.at <= due && self.is_held_up(hop, hops)).collect();
        // Other hops may be on the way to another subscriber.
        held_up.sort_by_key(|hop| (self.node_of(hop.other) != event.to, hop.at));
        let has_changed = || {
            let courses = self.truth.links.iter().flat_map(|link| &link.courses);
            let changes = courses.flat_map(|course| &course.0[1..]).map(|(from, _)| *from);
            changes.into_iter().any(|from| from <= due && event.published.since(from) <= self.settled)
        };
        match held_up.first() {
            Some(hop) => match self.held_up(hop) {
                DelayCause::Unknown if has_changed() => DelayCause::Detour,
                cause => cause,
            },
            None if !has_changed() => DelayCause::Unknown,
            None if came.is_some() => DelayCause::Detour,
            None => DelayCause::Unsent,
        }
    }

    /// Whether what was sent did not arrive, or later than the link takes when it is good.
    fn is_held_up(&self, sent: &LoggedHop, hops: &[LoggedHop]) -> bool {
        let to = self.node_of(sent.other);
        let good = self.truth.course(sent.node, to).0[0].1;
        let takes = good.delay.mul_f64(1.0 + good.noise) + SLACK;
        let arrives = |hop: &&LoggedHop| !hop.is_sent && hop.node == to && hop.other == self.hosts[sent.node];
        !hops.iter().filter(arrives).any(|hop| hop.at >= sent.at && hop.at.since(sent.at) <= takes)
    }

    /// Why an event was sent over a link that held it up; unknown if that had been in trouble for
    /// long.
    fn held_up(&self, sent: &LoggedHop) -> DelayCause {
        let to = self.node_of(sent.other);
        let Some(since) = trouble_since(self.truth.course(sent.node, to), sent.at) else {
            return DelayCause::Repeating;
        };
        let delay = |from, to| self.truth.way(from, to, START).delay;
        let round = delay(sent.node, to) + delay(to, sent.node);
        match sent.at.since(since) {
            known if known <= delay(to, sent.node) + REPORT_EVERY => DelayCause::Unreported,
            known if known <= REPORTS * REPORT_EVERY + round.mul_f64(1.5) => DelayCause::Detecting,
            known if known <= self.settled => DelayCause::Rerouting,
            _ => DelayCause::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// When the link between the brokers 0 and 1 begins to lose everything.
    const TROUBLE: Time = Time::from_nanos(START.as_nanos() + 10_000_000_000);

    const KEY: EventKey = EventKey { topic: 0, number: 0 };

    const HOSTS: [HostId; 3] = [HostId::new(1 << 8), HostId::new(2 << 8), HostId::new(3 << 8)];

    /// Three brokers; each link takes 20 ms.
    fn truth() -> Truth {
        let mut truth = Truth::steady([[0, 1], [0, 2], [2, 1]].map(|ends| (ends, 20 * MILLI)));
        truth.change(0, TROUBLE, |_, way| WayTruth { loss: 1.0, ..way });
        truth
    }

    /// A hop at a broker, to or from another one, this many milliseconds after the event was
    /// published.
    #[derive(Clone, Copy)]
    enum Step {
        Sent(usize, usize, u32),
        Came(usize, usize, u32),
    }

    /// Why an event from broker 0 to broker 1 was late, published this long after the trouble.
    fn cause(after: Duration, steps: &[Step]) -> DelayCause {
        let published = TROUBLE + after;
        let mut log = HopLog::default();
        for step in steps {
            let (node, hop, millis) = match *step {
                Step::Sent(node, to, millis) => (node, Hop::Sent { to: HOSTS[to], is_answer: false }, millis),
                Step::Came(node, from, millis) => (node, Hop::Came { from: HOSTS[from], is_answer: false }, millis),
            };
            log.record(KEY, node, published + millis * MILLI, hop);
        }
        let truth = truth();
        let judge = Judge { truth: &truth, hosts: &HOSTS, settled: Duration::from_secs(8) };
        let causes = judge.count(&log, &[LateEvent { key: KEY, to: 1, published }]);
        DelayCause::ALL.into_iter().find(|cause| causes.of(*cause) == 1).expect("it is judged")
    }

    #[test]
    fn an_event_on_a_link_in_trouble_is_judged_by_how_long_that_is_in_trouble() {
        let sent = [Step::Sent(0, 1, 0)];
        let causes = [5, 40, 41, 120, 121, 8_000, 8_001].map(|millis| cause(MILLI * millis, &sent));
        let [unreported, detecting, rerouting] = [DelayCause::Unreported, DelayCause::Detecting, DelayCause::Rerouting];
        let unknown = DelayCause::Unknown;
        assert_eq!(causes, [unreported, unreported, detecting, detecting, rerouting, rerouting, unknown]);
    }

    #[test]
    fn an_event_on_a_link_long_in_trouble_is_judged_by_whether_another_way_has_become_good() {
        let hop = |truth: &mut Truth, at| truth.change(1, at, |_, way| WayTruth { delay: way.delay * 2, ..way });
        let mut truth = truth();
        hop(&mut truth, TROUBLE);
        let published = TROUBLE + Duration::from_secs(60);
        let mut log = HopLog::default();
        log.record(KEY, 0, published, Hop::Sent { to: HOSTS[1], is_answer: false });
        let late = [LateEvent { key: KEY, to: 1, published }];
        let settled = Duration::from_secs(8);
        let of = |truth: &Truth| Judge { truth, hosts: &HOSTS, settled }.count(&log, &late);
        assert_eq!(of(&truth).of(DelayCause::Unknown), 1);
        truth.change(1, published.before(Duration::from_secs(1)), |_, way| WayTruth { delay: way.delay / 2, ..way });
        assert_eq!(of(&truth).of(DelayCause::Detour), 1);
    }

    #[test]
    fn events_on_good_links_are_judged_by_where_they_waited() {
        use Step::{Came, Sent};
        let after = Duration::from_secs(1);
        let way = [Sent(0, 2, 0), Came(2, 0, 20), Sent(2, 1, 20), Came(1, 2, 40)];
        assert_eq!(cause(after, &way), DelayCause::HeldBack);
        let repeated = [Sent(0, 2, 0), Came(2, 0, 60), Sent(2, 1, 60), Came(1, 2, 80)];
        assert_eq!(cause(after, &repeated), DelayCause::Repeating);
        let detour = [Sent(0, 2, 15), Came(2, 0, 35), Sent(2, 1, 35), Came(1, 2, 55)];
        assert_eq!(cause(after, &detour), DelayCause::Detour);
        assert_eq!(cause(after, &[]), DelayCause::Unsent);
        assert_eq!(cause(Duration::from_secs(9), &[]), DelayCause::Unknown);
        // What went to another subscriber says nothing.
        let other = [Sent(0, 2, 0), Sent(0, 1, 1)];
        assert_eq!(cause(Duration::ZERO, &other), DelayCause::Unreported);
    }

    #[test]
    fn counts_are_added_and_unknown_ones_are_always_shown() {
        let mut sum = DelayCauses::default();
        assert_eq!(sum.text(), "0 late although a way was in time; unknown 0");
        let mut one = DelayCauses::default();
        one.record(DelayCause::Detecting);
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum.text(), "2 late although a way was in time; within detection 2; unknown 0");
    }
}
