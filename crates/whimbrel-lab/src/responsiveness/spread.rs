//! Versions that are computed, without brokers: each event is sent over fixed links, whatever their
//! trouble. Loss is drawn by event and link, so that all of these versions meet the same.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_sim::random::Random;

use super::area::{Area, AreaFlow};
use super::judge::EventKey;
use super::truth::Truth;
use crate::cores::START;
use crate::plan::disjoint::HOP_TIME;
use crate::plan::paths::{Barred, SearchDepth, TimedLinks};

/// Random shares are drawn in this many steps.
const STEPS: u64 = 1 << 40;

/// Spread the parts of a key over all bits of a seed.
const STRIDES: [u64; 3] = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9];

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LinkWay {
    from: usize,
    to: usize,
    /// The index of the link.
    link: usize,
    /// The side that sends.
    side: usize,
}

/// Directions of links over which a broker passes an event on when it has it first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaySet(BTreeSet<LinkWay>);

/// What becomes of one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// By broker: when it arrives first; `None`: never.
    pub arrivals: Vec<Option<Time>>,
    /// The times that it is sent over a link.
    pub crossings: u64,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Spreader<'a> {
    /// The truth of the links.
    pub truth: &'a Truth,
    /// The number of brokers.
    pub brokers: usize,
    /// The seed of all loss.
    pub seed: u64,
}

impl Spreader<'_> {
    fn ways(&self) -> impl Iterator<Item = LinkWay> {
        let both = |(link, ends): (usize, [usize; 2])| {
            [0, 1].map(|side| LinkWay { from: ends[side], to: ends[1 - side], link, side })
        };
        self.truth.links.iter().map(|link| link.ends).enumerate().flat_map(both)
    }

    /// Flooding: all directions of all links.
    pub fn all(&self) -> WaySet {
        WaySet(self.ways().collect())
    }

    /// The directions on some paths.
    pub fn on(&self, paths: &[Vec<usize>]) -> WaySet {
        let is_on = |way: &LinkWay| paths.iter().any(|path| path.windows(2).any(|hop| hop == [way.from, way.to]));
        WaySet(self.ways().filter(is_on).collect())
    }

    /// Whether an event is lost that is sent in a direction. Each event is lost there or not,
    /// whichever version sends it, as long as the link loses the same share.
    fn is_lost(&self, key: EventKey, way: LinkWay, loss: f64) -> bool {
        let number = key.number as u64;
        let parts = [key.topic as u64 + 1, number + 1, (2 * way.link + way.side) as u64 + 1];
        let mixed = parts
            .into_iter()
            .zip(STRIDES)
            .fold(self.seed, |mixed, (part, stride)| Random::new(mixed ^ part.wrapping_mul(stride)).next());
        loss >= 1.0 || loss > 0.0 && (Random::new(mixed).below(STEPS) as f64) < loss * STEPS as f64
    }

    /// Sends an event from a broker at a moment. A broker passes it on once, when it has it first,
    /// but not back to where it has it from.
    pub fn send(&self, key: EventKey, from: usize, at: Time, over: &WaySet) -> Spread {
        let mut arrivals: Vec<Option<Time>> = vec![None; self.brokers];
        let (mut crossings, mut is_done) = (0, vec![false; self.brokers]);
        arrivals[from] = Some(at);
        let mut open = BinaryHeap::from([Reverse((at, from, from))]);
        // Bounded by the directions: each is pushed once.
        while let Some(Reverse((now, node, before))) = open.pop() {
            if std::mem::replace(&mut is_done[node], true) {
                continue;
            }
            let first = LinkWay { from: node, to: 0, link: 0, side: 0 };
            let ways = over.0.range(first..).take_while(|way| way.from == node);
            for way in ways.filter(|way| way.to != before || node == from) {
                let truth = self.truth.links[way.link].courses[way.side].at(now);
                crossings += 1;
                let arrival = now + truth.delay;
                if !self.is_lost(key, *way, truth.loss) && arrivals[way.to].is_none_or(|known| arrival < known) {
                    arrivals[way.to] = Some(arrival);
                    open.push(Reverse((arrival, way.to, node)));
                }
            }
        }
        Spread { arrivals, crossings }
    }
}

/// The paths of a flow that are chosen once, by the delays of links without trouble.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FixedPaths {
    /// The shortest one.
    pub one: Vec<usize>,
    /// Two with no broker and no link in common, both in time if there are such, of the least sum
    /// of times; the shortest one alone where there are none.
    pub two: Vec<Vec<usize>>,
}

impl FixedPaths {
    /// The paths of a flow.
    ///
    /// # Panics
    /// When nothing leads to the subscriber.
    pub fn of(area: &Area, truth: &Truth, flow: AreaFlow) -> FixedPaths {
        let mut links = TimedLinks::new(area.brokers);
        for link in &truth.links {
            links.add(link.ends, nanos(link.courses[0].at(START).delay + HOP_TIME));
        }
        let ends = [area.from(flow), flow.to];
        let one = links.quickest(ends, Barred::default(), u64::MAX).path(flow.to).expect("brokers are linked");
        let in_time = links.two_paths(ends, nanos(area.deadline), SearchDepth::Thorough).found;
        let two = in_time.or_else(|| links.shortest_two(ends)).map(|two| two.paths.to_vec());
        FixedPaths { two: two.unwrap_or_else(|| vec![one.clone()]), one }
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::super::scene::{ALL_PAIRS, MESH};
    use super::*;
    use crate::cores::wire::WayTruth;

    const MILLI: Duration = Duration::from_millis(1);

    const NODES: usize = 5;

    /// Some links that lose a half of all events.
    fn random_truth(random: &mut Random) -> Truth {
        let all = (0..NODES).flat_map(|one| (one + 1..NODES).map(move |other| [one, other]));
        let some: Vec<[usize; 2]> = all.filter(|_| random.chance(700)).collect();
        let links = some.into_iter().map(|ends| (ends, MILLI * random.between(1, 20) as u32));
        Truth::steady(links).map(|way| WayTruth { loss: 0.5, ..way })
    }

    /// The earliest arrival at each broker over all simple paths on which nothing is lost.
    fn naive(spreader: &Spreader<'_>, key: EventKey, path: &mut Vec<usize>, at: Time, best: &mut [Option<Time>]) {
        let node = *path.last().expect("a path has a beginning");
        if best[node].is_none_or(|known| at < known) {
            best[node] = Some(at);
        }
        for way in spreader.ways().filter(|way| way.from == node).collect::<Vec<_>>() {
            if !path.contains(&way.to) && !spreader.is_lost(key, way, 0.5) {
                path.push(way.to);
                let delay = spreader.truth.way(way.from, way.to, at).delay;
                naive(spreader, key, path, at + delay, best);
                path.pop();
            }
        }
    }

    #[test]
    fn flooding_is_the_best_of_all_simple_paths_on_which_nothing_is_lost() {
        let mut random = Random::new(5);
        let mut lost = 0;
        for world in 0..200 {
            let truth = random_truth(&mut random);
            let spreader = Spreader { truth: &truth, brokers: NODES, seed: world };
            let key = EventKey { topic: 1, number: 7 };
            let mut best = vec![None; NODES];
            naive(&spreader, key, &mut vec![0], START, &mut best);
            let spread = spreader.send(key, 0, START, &spreader.all());
            assert_eq!(spread.arrivals, best, "world {world}: {truth:?}");
            lost += spread.arrivals.iter().filter(|arrival| arrival.is_none()).count();
        }
        assert!((50..700).contains(&lost), "{lost} of 1,000");
    }

    #[test]
    fn an_event_on_paths_takes_the_first_one_on_which_it_is_not_lost_and_no_version_beats_flooding() {
        let mut random = Random::new(6);
        for world in 0..200 {
            let truth = Truth::mesh().map(|way| WayTruth { loss: 0.4, ..way });
            let spreader = Spreader { truth: &truth, brokers: NODES, seed: random.next() };
            let area = Area::mesh();
            let flow = area.flows[world % area.flows.len()];
            let FixedPaths { two, .. } = FixedPaths::of(&area, &truth, flow);
            let key = EventKey { topic: flow.topic, number: world };
            let over = |path: &Vec<usize>| {
                let mut at = START;
                for hop in path.windows(2) {
                    let way = spreader.ways().find(|way| [way.from, way.to] == hop).expect("they are linked");
                    if spreader.is_lost(key, way, 0.4) {
                        return None;
                    }
                    at = at + truth.way(hop[0], hop[1], at).delay;
                }
                Some(at)
            };
            let best = two.iter().filter_map(over).min();
            let spread = spreader.send(key, area.from(flow), START, &spreader.on(&two));
            assert_eq!(spread.arrivals[flow.to], best, "world {world}");
            let flood = spreader.send(key, area.from(flow), START, &spreader.all());
            assert!(flood.crossings >= spread.crossings);
            assert!(best.is_none() || flood.arrivals[flow.to] <= best, "world {world}");
        }
    }

    #[test]
    fn fixed_paths_of_the_mesh_begin_with_the_direct_one_and_loss_is_as_often_as_the_link_says() {
        let (area, truth) = (Area::mesh(), Truth::mesh());
        for (flow, pair) in area.flows.iter().zip(ALL_PAIRS) {
            let FixedPaths { one, two } = FixedPaths::of(&area, &truth, *flow);
            assert_eq!(one, [area.from(*flow), pair.to], "{}", pair.name);
            assert_eq!((two.len(), two.contains(&one)), (2, true), "{}: {two:?}", pair.name);
        }
        let spreader = Spreader { truth: &truth, brokers: NODES, seed: 3 };
        let ways: Vec<LinkWay> = spreader.ways().collect();
        assert_eq!(ways.len(), 2 * MESH.len());
        let lost = |number| {
            let key = EventKey { topic: 0, number };
            ways.iter().filter(|way| spreader.is_lost(key, **way, 0.1)).count()
        };
        let lost: usize = (0..5_000).map(lost).sum();
        assert!((9_700..10_300).contains(&lost), "{lost} of 100,000");
    }
}
