//! The judge of alarms: it knows only what was published and accepted, what each desk received, and
//! which brokers were down. It has no clock: time is an argument.
//!
//! An accepted alarm is due to each desk. It is in time if it arrives within the deadline, late
//! otherwise. No path can help an alarm that met the death of its publisher's or its desk's own
//! broker, or a desk without a connection: if it is not in time, it is counted apart. Links that
//! are cut, slow or lossy excuse nothing, nor does the death of a third broker. What crosses no
//! link is not judged by the deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::fleet::delays::{Delays, Quantiles};
use crate::fleet::regions::{Disturbances, Sites};

/// Alarms of one publisher that a desk may wait for; beyond it the oldest is given up.
pub const WAITING_MAX: usize = 4_096;

/// How many deliveries between regions were in time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct InTime {
    /// Deliveries within the deadline.
    pub in_time: u64,
    /// Deliveries beyond the deadline that nothing excuses.
    pub late: u64,
    /// Deliveries that were not in time, or did not come, as a broker was down.
    pub while_down: u64,
}

impl InTime {
    /// The part of the deliveries in time among those that nothing excuses, in units of a hundredth
    /// of a percent, rounded down: 10,000 only if all are. `None` without any.
    pub fn share(&self) -> Option<u64> {
        (self.in_time * 10_000).checked_div(self.in_time + self.late)
    }

    fn count(&mut self, is_in_time: bool, is_excused: bool) {
        *(match (is_in_time, is_excused) {
            (true, _) => &mut self.in_time,
            (false, true) => &mut self.while_down,
            (false, false) => &mut self.late,
        }) += 1;
    }
}

/// Counts over all desks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct AlarmCounts {
    /// Alarms that publishers have published.
    pub published: u64,
    /// What was in time at the desks of other regions.
    #[serde(flatten)]
    pub deliveries: InTime,
    /// Deliveries at the desk of the publisher's region.
    pub at_home: u64,
    /// Accepted alarms that did not arrive, with nothing to excuse it.
    pub lost: u64,
    /// Alarms without an answer that did not arrive.
    pub unsure: u64,
    /// Arrivals beyond the first.
    pub repeated: u64,
    /// Arrivals that were not published, or not so.
    pub foreign: u64,
}

impl AlarmCounts {
    /// The number of broken promises; a late alarm is none.
    pub fn faults(&self) -> u64 {
        self.lost + self.foreign
    }
}

/// An alarm that is due to a desk.
struct AwaitedAlarm {
    number: u64,
    at: Duration,
    is_accepted: bool,
    /// When a later one of its publisher arrived first.
    overtaken: Option<Duration>,
}

/// The judge. See the module.
pub struct AlarmJudge {
    deadline: Duration,
    /// The greatest number of each region's publisher.
    sent: Vec<u64>,
    /// By desk and publisher.
    awaited: Vec<Vec<VecDeque<AwaitedAlarm>>>,
    /// By desk: since when its subscription is in force; `None`: it has no connection.
    attends: Vec<Option<Duration>>,
    counts: AlarmCounts,
    positions: InTime,
    delays: Delays,
    disturbances: Arc<Disturbances>,
}

impl AlarmJudge {
    /// A judge of one publisher and one desk in each region.
    pub fn new(deadline: Duration, regions: usize) -> AlarmJudge {
        AlarmJudge {
            deadline,
            sent: vec![0; regions],
            awaited: (0..regions).map(|_| (0..regions).map(|_| VecDeque::new()).collect()).collect(),
            attends: vec![None; regions],
            counts: AlarmCounts::default(),
            positions: InTime::default(),
            delays: Delays::default(),
            disturbances: Arc::default(),
        }
    }

    /// Sets the disturbances among which the deaths of brokers are.
    #[must_use]
    pub fn during(self, disturbances: Arc<Disturbances>) -> AlarmJudge {
        AlarmJudge { disturbances, ..self }
    }

    /// The deadline.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The publisher of a region is about to publish its next alarm.
    ///
    /// # Panics
    /// If its numbers are not consecutive.
    pub fn published(&mut self, region: usize, number: u64, at: Duration) {
        assert_eq!(number, self.sent[region] + 1, "a publisher numbers its alarms consecutively");
        self.sent[region] = number;
        self.counts.published += 1;
        for desk in 0..self.awaited.len() {
            let alarm = AwaitedAlarm { number, at, is_accepted: false, overtaken: None };
            let awaited = &mut self.awaited[desk][region];
            awaited.push_back(alarm);
            if awaited.len() > WAITING_MAX {
                self.give_up_oldest(desk, region, at);
            }
        }
    }

    /// The broker of a region has accepted an alarm.
    pub fn accepted(&mut self, region: usize, number: u64) {
        for desk in &mut self.awaited {
            if let Some(index) = find(&desk[region], number) {
                desk[region][index].is_accepted = true;
            }
        }
    }

    /// The subscription of a region's desk is in force.
    pub fn attends(&mut self, desk: usize, now: Duration) {
        self.attends[desk] = Some(now);
    }

    /// A region's desk has lost its connection.
    pub fn is_away(&mut self, desk: usize) {
        self.attends[desk] = None;
    }

    /// Whether all desks have a connection.
    pub fn all_attend(&self) -> bool {
        self.attends.iter().all(Option::is_some)
    }

    /// A desk has received an alarm of a region's publisher, which says that it was published at
    /// `at`.
    pub fn arrived(&mut self, desk: usize, region: usize, number: u64, at: Duration, now: Duration) {
        let awaited = &mut self.awaited[desk][region];
        let Some(alarm) = find(awaited, number).and_then(|index| awaited.remove(index)) else {
            let was_sent = number > 0 && number <= self.sent[region];
            *(if was_sent { &mut self.counts.repeated } else { &mut self.counts.foreign }) += 1;
            return;
        };
        let earlier = awaited.iter_mut().take_while(|earlier| earlier.number < number);
        earlier.for_each(|earlier| _ = earlier.overtaken.get_or_insert(now));
        if alarm.at != at {
            self.counts.foreign += 1;
            return;
        }
        if desk == region {
            self.counts.at_home += 1;
            return;
        }
        let delay = now.saturating_sub(at);
        self.delays.record(delay);
        let is_excused = delay > self.deadline && self.is_excused((desk, region), at, now);
        self.counts.deliveries.count(delay <= self.deadline, is_excused);
    }

    /// A desk has received something that is not an alarm.
    pub fn arrived_unreadable(&mut self) {
        self.counts.foreign += 1;
    }

    /// A console or watcher in a region has received a position, `delay` after it was due, that was
    /// handed to the brokers of these `sites`: in more than one if its vehicle moved meanwhile.
    pub fn ordinary(&mut self, sites: Sites, region: usize, delay: Duration, now: Duration) {
        let here = Sites::one(region);
        if sites == Sites::NONE || sites.meets(here) {
            return;
        }
        let is_in_time = delay <= self.deadline;
        let is_excused = !is_in_time && self.disturbances.was_down(sites.and(here), now.saturating_sub(delay), now);
        self.positions.count(is_in_time, is_excused);
    }

    /// Whether a desk lacks an accepted alarm that was published before a moment, and that no later
    /// one has overtaken.
    pub fn owes(&self, before: Duration) -> bool {
        self.owed().any(|alarm| alarm.at < before)
    }

    /// Accepted alarms on their way, over all desks.
    pub fn waiting(&self) -> u64 {
        self.owed().count() as u64
    }

    fn owed(&self) -> impl Iterator<Item = &AwaitedAlarm> {
        let all = self.awaited.iter().flatten().flatten();
        all.filter(|alarm| alarm.is_accepted && alarm.overtaken.is_none())
    }

    /// The counts of alarms; overtaken ones that may still arrive are not among them.
    pub fn counts(&self) -> AlarmCounts {
        self.counts
    }

    /// What was in time of positions under the deadline of alarms.
    pub fn positions(&self) -> InTime {
        self.positions
    }

    /// The latency of alarms.
    pub fn delays(&self) -> Quantiles {
        self.delays.overall()
    }

    /// The run is over: accepted alarms that have not arrived are lost, unless something excuses
    /// it.
    pub fn close(&mut self, now: Duration) {
        for desk in 0..self.awaited.len() {
            for region in 0..self.sent.len() {
                while !self.awaited[desk][region].is_empty() {
                    self.give_up_oldest(desk, region, now);
                }
            }
        }
    }

    fn give_up_oldest(&mut self, desk: usize, region: usize, now: Duration) {
        let Some(alarm) = self.awaited[desk][region].pop_front() else { return };
        let until = alarm.overtaken.unwrap_or(now);
        *(match alarm.is_accepted {
            false => &mut self.counts.unsure,
            true if self.is_excused((desk, region), alarm.at, until) => &mut self.counts.deliveries.while_down,
            true => &mut self.counts.lost,
        }) += 1;
    }

    /// Whether the broker of the desk or of the publisher was down between two moments, or the desk
    /// had no connection.
    fn is_excused(&self, (desk, region): (usize, usize), from: Duration, to: Duration) -> bool {
        let ends = Sites::one(desk).and(Sites::one(region));
        self.attends[desk].is_none_or(|since| from < since) || self.disturbances.was_down(ends, from, to)
    }
}

fn find(awaited: &VecDeque<AwaitedAlarm>, number: u64) -> Option<usize> {
    awaited.binary_search_by_key(&number, |alarm| alarm.number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(90);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A judge of three regions whose desks attend, and its disturbances.
    fn judge() -> (AlarmJudge, Arc<Disturbances>) {
        let disturbances = Arc::<Disturbances>::default();
        let mut judge = AlarmJudge::new(DEADLINE, 3).during(disturbances.clone());
        (0..3).for_each(|desk| judge.attends(desk, at(0)));
        (judge, disturbances)
    }

    /// Publishes an alarm of the first region, accepted.
    fn publish(judge: &mut AlarmJudge, number: u64, millis: u64) {
        judge.published(0, number, at(millis));
        judge.accepted(0, number);
    }

    #[test]
    fn each_delivery_is_in_time_or_late() {
        let (mut judge, _) = judge();
        publish(&mut judge, 1, 1_000);
        assert_eq!((judge.waiting(), judge.owes(at(1_000)), judge.owes(at(1_001))), (3, false, true));
        for (desk, came) in [(0, 1_900), (1, 1_090), (2, 1_091)] {
            judge.arrived(desk, 0, 1, at(1_000), at(came));
        }
        let counts = judge.counts();
        assert_eq!(counts.deliveries, InTime { in_time: 1, late: 1, while_down: 0 });
        assert_eq!((counts.published, counts.at_home, counts.faults(), judge.waiting()), (1, 1, 0, 0));
        assert_eq!(counts.deliveries.share(), Some(5_000));
        assert!((judge.delays().max - 91.0).abs() < 1.0, "{:?}", judge.delays());
    }

    #[test]
    fn the_death_of_an_own_broker_excuses_and_that_of_a_third_one_and_a_bad_link_do_not() {
        let (mut judge, disturbances) = judge();
        publish(&mut judge, 1, 1_000);
        disturbances.begin(at(1_010), Sites::one(1));
        judge.arrived(1, 0, 1, at(1_000), at(1_500));
        judge.arrived(2, 0, 1, at(1_000), at(1_500));
        disturbances.end(at(2_000));
        assert_eq!(judge.counts().deliveries, InTime { in_time: 0, late: 1, while_down: 1 });
        publish(&mut judge, 2, 10_000);
        disturbances.begin_cut(at(10_010), Sites::one(0).and(Sites::one(1)));
        judge.arrived(1, 0, 2, at(10_000), at(10_500));
        disturbances.end(at(11_000));
        publish(&mut judge, 3, 20_000);
        disturbances.begin_apart(at(20_010), Sites::one(0).and(Sites::one(1)));
        judge.arrived(1, 0, 3, at(20_000), at(20_500));
        assert_eq!(judge.counts().deliveries, InTime { in_time: 0, late: 3, while_down: 1 });
    }

    #[test]
    fn a_desk_without_a_connection_excuses_what_was_published_before_it_came_back() {
        let (mut judge, _) = judge();
        publish(&mut judge, 1, 1_000);
        judge.is_away(2);
        publish(&mut judge, 2, 1_200);
        assert!(!judge.all_attend());
        judge.attends(2, at(1_500));
        publish(&mut judge, 3, 1_600);
        for number in 1..=3 {
            judge.arrived(2, 0, number, at([1_000, 1_200, 1_600][number as usize - 1]), at(1_800));
        }
        assert!(judge.all_attend());
        assert_eq!(judge.counts().deliveries, InTime { in_time: 0, late: 1, while_down: 2 });
    }

    #[test]
    fn what_does_not_come_is_lost_unless_something_excuses_it() {
        let (mut judge, disturbances) = judge();
        publish(&mut judge, 1, 1_000);
        publish(&mut judge, 2, 1_200);
        judge.published(0, 3, at(1_400));
        judge.arrived(0, 0, 2, at(1_200), at(1_210));
        assert_eq!((judge.waiting(), judge.counts().lost), (4, 0), "the first may still come to the first desk");
        judge.arrived(1, 0, 1, at(1_000), at(1_010));
        judge.arrived(1, 0, 2, at(1_200), at(1_210));
        // After the moment at which the first was overtaken: it does not excuse that.
        disturbances.begin(at(1_300), Sites::one(0));
        disturbances.end(at(1_350));
        judge.close(at(5_000));
        let counts = judge.counts();
        assert_eq!(counts.lost, 1, "the first one, to the first desk");
        assert_eq!(counts.deliveries, InTime { in_time: 2, late: 0, while_down: 2 });
        assert_eq!((counts.at_home, counts.unsure, counts.faults()), (1, 3, 1));
    }

    #[test]
    fn repeats_and_what_was_not_published_are_told_apart() {
        let (mut judge, _) = judge();
        publish(&mut judge, 1, 1_000);
        judge.arrived(0, 0, 1, at(1_000), at(1_001));
        judge.arrived(0, 0, 1, at(1_000), at(1_002));
        judge.arrived(0, 0, 2, at(1_000), at(1_002));
        judge.arrived(1, 0, 1, at(999), at(1_002));
        judge.arrived_unreadable();
        assert_eq!((judge.counts().repeated, judge.counts().foreign), (1, 3));
    }

    #[test]
    fn no_more_alarms_are_awaited_than_the_bound() {
        let (mut judge, _) = judge();
        for number in 1..=WAITING_MAX as u64 + 2 {
            publish(&mut judge, number, number);
        }
        assert_eq!((judge.waiting(), judge.counts().lost), (3 * WAITING_MAX as u64, 6));
    }

    #[test]
    fn positions_are_judged_by_the_same_deadline() {
        let (mut judge, disturbances) = judge();
        let (from, here) = (Sites::one(1), 0);
        judge.ordinary(from, here, at(90), at(1_000));
        judge.ordinary(from, here, at(91), at(1_000));
        // It crosses no link.
        judge.ordinary(from, 1, at(500), at(1_000));
        disturbances.begin(at(2_000), Sites::one(2));
        judge.ordinary(from, here, at(500), at(2_100));
        judge.ordinary(from, 2, at(500), at(2_100));
        judge.ordinary(from.and(Sites::one(2)), here, at(500), at(2_100));
        judge.ordinary(from, 2, at(10), at(2_100));
        assert_eq!(judge.positions(), InTime { in_time: 2, late: 2, while_down: 2 });
        assert_eq!((judge.positions().share(), InTime::default().share()), (Some(5_000), None));
        let all_but_one = InTime { in_time: 99_999, late: 1, while_down: 0 };
        assert_eq!(all_but_one.share(), Some(9_999), "it is rounded down");
    }
}
