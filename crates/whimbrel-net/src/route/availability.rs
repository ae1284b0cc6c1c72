//! How available links and brokers have been, as far as their link states told.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::LOSS_MAX;

use super::graph::Graph;

/// Outages count for at least this time, and for at most twice as long.
pub const OUTAGES_KEPT: Duration = Duration::from_secs(3_600);

/// Most links and brokers whose outages are remembered; of further ones none is known.
pub const OUTAGES_MAX: usize = 4_096;

/// What a link or a broker without an outage is believed to have been out of order, beside what
/// was seen, and in which time: one part in 10,000, when nothing has been seen yet.
const BELIEVED_OUT: Duration = Duration::from_millis(60);

/// See [`BELIEVED_OUT`].
const BELIEVED_TIME: Duration = Duration::from_secs(600);

/// A link, by its lower and its higher end; a broker stands for itself as both.
type MapPart = [HostId; 2];

/// The outages of a link or a broker.
#[derive(Clone, Copy, Debug, Default)]
struct PartOutages {
    /// In the present and in the last period: the time out of order, nanoseconds; with a loss, as
    /// much of it as was lost.
    out_ns: [u64; 2],
    /// The share that is lost now, thousandths.
    loss: u16,
    /// Since when everything is lost, if it is.
    lost: Option<Time>,
}

impl PartOutages {
    /// What is lost in a time, nanoseconds.
    fn lost_ns(&self, time: Duration) -> u64 {
        time.as_nanos() as u64 / u64::from(LOSS_MAX) * u64::from(self.loss)
    }
}

/// The outages of all links and brokers, in the present period and the last one, each
/// [`OUTAGES_KEPT`] long.
///
/// A link is out of order while it is gone, and in part while it loses something. While a broker
/// has no links at all, the broker is out of order and its links are not. A link that is gone for
/// two whole periods is forgotten. Takes some 60 bytes for each link and broker with an outage, at
/// most [`OUTAGES_MAX`], and 16 for each link.
#[derive(Debug, Default)]
pub struct MapOutages {
    by_part: BTreeMap<MapPart, PartOutages>,
    /// The links when they were last looked at, in order.
    links: Vec<MapPart>,
    /// When the first look was.
    began: Option<Time>,
    /// When the present period began, and when the last look was.
    period: Time,
    seen: Time,
    /// The number of looks.
    looks: u64,
}

/// All links of a graph in order.
fn links_of(graph: &Graph) -> Vec<MapPart> {
    let brokers = 0..graph.hosts.len() as u32;
    let of = |broker: u32| {
        let higher = graph.edges(broker).iter().filter(move |edge| edge.to > broker);
        higher.map(move |edge| [graph.hosts[broker as usize], graph.hosts[edge.to as usize]])
    };
    brokers.flat_map(of).collect()
}

impl MapOutages {
    /// Looks at the links as they are from now on. Takes a step for each link.
    pub(super) fn observe(&mut self, now: Time, graph: &Graph) {
        if self.began.is_none() {
            (self.began, self.period, self.seen) = (Some(now), now, now);
        }
        self.settle(now);
        self.looks += 1;
        let before: BTreeMap<MapPart, Time> =
            self.by_part.iter().filter_map(|(part, known)| Some((*part, known.lost?))).collect();
        self.by_part.values_mut().for_each(|part| (part.loss, part.lost) = (0, None));
        let links = links_of(graph);
        let is_alone = |host: &HostId| graph.index(*host).is_none_or(|broker| graph.edges(broker).is_empty());
        // Both lists are in order: a link that is in the old one only is gone.
        let mut present = links.iter().peekable();
        let was = core::mem::take(&mut self.links);
        let mut gone: Vec<MapPart> = Vec::new();
        for link in &was {
            while present.next_if(|other| *other < link).is_some() {}
            if present.next_if(|other| *other == link).is_none() {
                gone.push(*link);
            }
        }
        gone.extend(self.by_part.keys().filter(|part| part[0] != part[1] && links.binary_search(part).is_err()));
        for link in gone {
            let ends = link.iter().filter(|end| is_alone(end)).count();
            self.set_loss(link, if ends == 0 { LOSS_MAX } else { 0 });
            for end in link.iter().filter(|end| is_alone(end)) {
                self.set_loss([*end, *end], LOSS_MAX);
            }
        }
        for broker in 0..graph.hosts.len() as u32 {
            for edge in graph.edges(broker).iter().filter(|edge| edge.to > broker && edge.loss > 0) {
                self.set_loss([graph.hosts[broker as usize], graph.hosts[edge.to as usize]], edge.loss);
            }
        }
        for (part, known) in self.by_part.iter_mut().filter(|(_, known)| known.loss == LOSS_MAX) {
            known.lost = before.get(part).copied().or(Some(now));
        }
        self.links = links;
    }

    fn set_loss(&mut self, part: MapPart, loss: u16) {
        if self.by_part.len() < OUTAGES_MAX || self.by_part.contains_key(&part) {
            self.by_part.entry(part).or_default().loss = loss.min(LOSS_MAX);
        }
    }

    /// Adds the time since the last look to what is out of order.
    fn settle(&mut self, now: Time) {
        let kept_ns = OUTAGES_KEPT.as_nanos() as u64;
        let periods = now.since(self.period).as_nanos() as u64 / kept_ns;
        let present = Time::from_nanos(self.period.as_nanos() + periods * kept_ns);
        let last = Time::from_nanos(present.as_nanos().saturating_sub(kept_ns));
        let in_present = now.since(self.seen.max(present));
        let in_last = present.since(self.seen.max(last));
        for part in self.by_part.values_mut().filter(|part| periods > 0 || part.loss > 0) {
            if periods > 0 {
                part.out_ns = [0, if periods == 1 { part.out_ns[0] } else { 0 }];
                part.out_ns[1] += part.lost_ns(in_last);
            }
            part.out_ns[0] += part.lost_ns(in_present);
        }
        if periods > 0 {
            let is_over = |part: &PartOutages| part.lost.is_some_and(|lost| now.since(lost) >= 2 * OUTAGES_KEPT);
            self.by_part.retain(|_, part| !is_over(part) && (part.loss > 0 || part.out_ns != [0, 0]));
        }
        (self.period, self.seen) = (present, now);
    }

    /// The share of time in which the link between two brokers was out of order; of one broker, if
    /// both are the same.
    pub(super) fn share_out(&self, one: HostId, other: HostId) -> f64 {
        let part = [one.min(other), one.max(other)];
        let out_ns = self.by_part.get(&part).map_or(0, |part| part.out_ns[0] + part.out_ns[1]);
        let began = self.began.unwrap_or(self.seen);
        let last = Time::from_nanos(self.period.as_nanos().saturating_sub(OUTAGES_KEPT.as_nanos() as u64)).max(began);
        let seen_ns = self.seen.since(last).as_nanos() as u64;
        let (believed_ns, time_ns) = (BELIEVED_OUT.as_nanos() as u64, BELIEVED_TIME.as_nanos() as u64);
        (out_ns + believed_ns) as f64 / (seen_ns + time_ns) as f64
    }

    /// The number of looks so far, and when the last one was.
    pub(super) fn last_look(&self) -> (u64, Time) {
        (self.looks, self.seen)
    }

    /// How many links of a broker are gone, since at most `lately`.
    pub(super) fn lately_gone(&self, host: HostId, lately: Duration) -> usize {
        let is_it = |(part, known): &(&MapPart, &PartOutages)| {
            let is_late = || known.lost.is_some_and(|lost| self.seen.since(lost) <= lately);
            part[0] != part[1] && part.contains(&host) && is_late() && self.links.binary_search(part).is_err()
        };
        self.by_part.iter().filter(is_it).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = OUTAGES_KEPT;

    fn graph(links: &[(u32, u32, u64)]) -> Graph {
        Graph::of_links(4, links)
    }

    fn at(time: Duration) -> Time {
        Time::from_nanos(1) + time
    }

    fn host(broker: u32) -> HostId {
        graph(&[]).hosts[broker as usize]
    }

    /// The time out of order of a part, of a time in which it was seen, as a share.
    fn share(out: Duration, seen: Duration) -> f64 {
        (out + BELIEVED_OUT).as_secs_f64() / (seen + BELIEVED_TIME).as_secs_f64()
    }

    fn assert_near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-6, "{one} and {other}");
    }

    const RING: [(u32, u32, u64); 5] = [(0, 1, 10), (1, 2, 10), (2, 3, 10), (3, 0, 10), (0, 2, 10)];

    #[test]
    fn a_link_that_is_gone_or_loses_is_out_of_order_for_so_long() {
        let mut outages = MapOutages::default();
        outages.observe(at(Duration::ZERO), &graph(&RING));
        outages.observe(at(HOUR / 10), &graph(&RING[1..]));
        outages.observe(at(HOUR / 5), &graph(&RING).with_losses(|one, other| u16::from((one, other) == (1, 2)) * 500));
        outages.observe(at(HOUR / 2), &graph(&RING));
        assert_near(outages.share_out(host(1), host(0)), share(HOUR / 10, HOUR / 2));
        assert_near(outages.share_out(host(1), host(2)), share(HOUR * 3 / 20, HOUR / 2));
        assert_near(outages.share_out(host(2), host(3)), share(Duration::ZERO, HOUR / 2));
        // In the second hour it is another one's turn; in the third the first is forgotten.
        outages.observe(at(HOUR * 3 / 2), &graph(&RING));
        assert_near(outages.share_out(host(0), host(1)), share(HOUR / 10, HOUR * 3 / 2));
        outages.observe(at(HOUR * 9 / 4), &graph(&RING));
        assert_near(outages.share_out(host(0), host(1)), share(Duration::ZERO, HOUR * 5 / 4));
        assert_eq!(outages.by_part.len(), 0);
    }

    #[test]
    fn while_a_broker_has_no_links_it_is_out_of_order_and_they_are_not() {
        let mut outages = MapOutages::default();
        outages.observe(at(Duration::ZERO), &graph(&RING));
        outages.observe(at(HOUR / 4), &graph(&RING[..2]));
        outages.observe(at(HOUR / 2), &graph(&RING));
        assert_near(outages.share_out(host(3), host(3)), share(HOUR / 4, HOUR / 2));
        assert_near(outages.share_out(host(2), host(3)), share(Duration::ZERO, HOUR / 2));
        assert_near(outages.share_out(host(0), host(2)), share(HOUR / 4, HOUR / 2));
    }

    #[test]
    fn a_link_that_stays_away_is_forgotten() {
        let mut outages = MapOutages::default();
        outages.observe(at(Duration::ZERO), &graph(&RING));
        for hours in 1..6 {
            outages.observe(at(HOUR * hours), &graph(&RING[1..]));
            assert_eq!(outages.by_part.len(), usize::from(hours < 3), "after {hours}");
        }
        outages.observe(at(HOUR * 9), &graph(&RING));
        assert_near(outages.share_out(host(0), host(1)), share(Duration::ZERO, HOUR));
    }

    #[test]
    fn outages_have_a_bound() {
        let links: Vec<(u32, u32, u64)> =
            (1..200).flat_map(|one| (0..one).map(move |other| (other, one, 10))).collect();
        let mut outages = MapOutages::default();
        outages.observe(at(Duration::ZERO), &Graph::of_links(200, &links).with_losses(|_, _| 10));
        outages.observe(at(HOUR / 2), &Graph::of_links(200, &links[..1]));
        assert!(links.len() > OUTAGES_MAX && outages.by_part.len() == OUTAGES_MAX);
    }
}
