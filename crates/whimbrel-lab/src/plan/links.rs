//! The choice of links between many brokers, computed from the delays between them.
//!
//! The greedy spanner of Althöfer, Das, Dobkin, Joseph and Soares, "On Sparse Spanners of Weighted
//! Graphs", Discrete & Computational Geometry 9 (1993): pairs are examined from the nearest to the
//! farthest, and two brokers are linked where the path over the links so far is longer than the
//! stretch times the direct one. No spanner with that bound is known to need fewer links in
//! general. The spanner may depend on a single broker, so each broker that alone connects others is
//! then bypassed by the shortest links that do.

use std::collections::BTreeSet;
use std::time::Duration;

/// The greatest number of brokers. With n of them the table of paths takes 8 n² bytes, and each
/// link n² steps.
pub const BROKERS_MAX: usize = 1024;

/// The default bound of the ratio of a path to the direct one: with it a broker has three to four
/// links, some have ten.
pub const STRETCH: f64 = 1.5;

/// Two brokers, and the delay between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// The delay of one direction.
    pub delay: Duration,
    /// Their numbers, the smaller one first.
    pub ends: [usize; 2],
}

/// Links, and the paths over them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pairs of brokers, in order, the smaller number of each first.
    pub links: Vec<[usize; 2]>,
    /// Brokers without which others do not reach each other: there is no pair that would bypass
    /// them.
    pub holding: Vec<usize>,
    ways: Ways,
}

impl Plan {
    /// Finds links among a number of brokers, of which the given pairs can be linked. Of two pairs
    /// with equal delays the one with the smaller numbers comes first, so the same pairs in any
    /// order give the same links. For each pair a path is at most `stretch` times as long as the
    /// direct one.
    ///
    /// # Panics
    /// When there are more than [`BROKERS_MAX`] brokers, or a pair is not of two of them in order.
    pub fn new(brokers: usize, mut pairs: Vec<Pair>, stretch: f64) -> Plan {
        assert!(brokers <= BROKERS_MAX, "links are found for {BROKERS_MAX} brokers at most");
        pairs.sort_unstable();
        let mut ways = Ways::new(brokers);
        let mut links = BTreeSet::new();
        for pair in &pairs {
            let [one, other] = pair.ends;
            assert!(one < other && other < brokers, "a pair is of two brokers, in order");
            if !ways.is_within(pair, stretch) {
                links.insert(pair.ends);
                ways.link(pair);
            }
        }
        let mut holding = Vec::new();
        for gone in 0..brokers {
            let is_left = |ends: &[usize; 2]| !ends.contains(&gone);
            let mut parts = Parts::without_one(brokers);
            links.iter().filter(|ends| is_left(ends)).for_each(|ends| _ = parts.join(*ends));
            for pair in pairs.iter().filter(|pair| is_left(&pair.ends)) {
                if parts.count > 1 && parts.join(pair.ends) {
                    links.insert(pair.ends);
                    ways.link(pair);
                }
            }
            if parts.count > 1 {
                holding.push(gone);
            }
        }
        Plan { links: links.into_iter().collect(), holding, ways }
    }

    /// The plan with other links, in order, of the same pairs: with them the same brokers hold
    /// others together.
    pub fn relinked(&self, pairs: &[Pair], links: Vec<[usize; 2]>) -> Plan {
        let mut ways = Ways::new(self.ways.brokers);
        pairs.iter().filter(|pair| links.binary_search(&pair.ends).is_ok()).for_each(|pair| ways.link(pair));
        Plan { links, holding: self.holding.clone(), ways }
    }

    /// Whether for each pair the path is at most `stretch` times as long as the direct one.
    pub fn is_within(&self, pairs: &[Pair], stretch: f64) -> bool {
        pairs.iter().all(|pair| self.ways.is_within(pair, stretch))
    }

    /// The delay from one broker to another over the links; `None`: there is no path.
    pub fn way(&self, one: usize, other: usize) -> Option<Duration> {
        self.ways.between(one, other)
    }

    /// The neighbours of a broker, in order.
    pub fn neighbours(&self, broker: usize) -> Vec<usize> {
        let other = |[one, other]: &[usize; 2]| match broker {
            broker if broker == *one => Some(*other),
            broker if broker == *other => Some(*one),
            _ => None,
        };
        self.links.iter().filter_map(other).collect()
    }
}

/// The delays between each two brokers, nanoseconds.
#[derive(Clone, Debug)]
struct Ways {
    brokers: usize,
    /// Row by row; [`u64::MAX`]: there is no path.
    spans: Vec<u64>,
}

impl Ways {
    fn new(brokers: usize) -> Ways {
        let mut spans = vec![u64::MAX; brokers * brokers];
        (0..brokers).for_each(|broker| spans[broker * brokers + broker] = 0);
        Ways { brokers, spans }
    }

    fn span(&self, one: usize, other: usize) -> u64 {
        self.spans[one * self.brokers + other]
    }

    fn between(&self, one: usize, other: usize) -> Option<Duration> {
        Some(self.span(one, other)).filter(|span| *span < u64::MAX).map(Duration::from_nanos)
    }

    /// Whether the path between two is at most `stretch` times as long as the direct one.
    fn is_within(&self, pair: &Pair, stretch: f64) -> bool {
        let is_near = |way: Duration| way.as_secs_f64() <= stretch * pair.delay.as_secs_f64();
        self.between(pair.ends[0], pair.ends[1]).is_some_and(is_near)
    }

    /// Links two brokers, and shortens all paths that are shorter over this link.
    fn link(&mut self, pair: &Pair) {
        let [one, other] = pair.ends;
        let delay = u64::try_from(pair.delay.as_nanos()).unwrap_or(u64::MAX);
        let to: [Vec<u64>; 2] = [other, one].map(|end| (0..self.brokers).map(|node| self.span(end, node)).collect());
        for from in 0..self.brokers {
            for (near, beyond) in [one, other].into_iter().zip(&to) {
                let before = self.span(from, near).saturating_add(delay);
                let row = &mut self.spans[from * self.brokers..(from + 1) * self.brokers];
                for (span, beyond) in row.iter_mut().zip(beyond) {
                    *span = (*span).min(before.saturating_add(*beyond));
                }
            }
        }
    }
}

/// The sets of brokers that reach each other while one is gone.
struct Parts {
    /// Another broker of the same part, or the broker itself for one of each part.
    parents: Vec<usize>,
    count: usize,
}

impl Parts {
    /// No two are joined yet, and the broker that is gone belongs to no part.
    fn without_one(brokers: usize) -> Parts {
        Parts { parents: (0..brokers).collect(), count: brokers - 1 }
    }

    fn root(&mut self, mut node: usize) -> usize {
        // Each step halves the rest of the path.
        while self.parents[node] != node {
            self.parents[node] = self.parents[self.parents[node]];
            node = self.parents[node];
        }
        node
    }

    /// Joins two parts; returns whether they were different.
    fn join(&mut self, ends: [usize; 2]) -> bool {
        let [one, other] = ends.map(|end| self.root(end));
        self.parents[one] = other;
        self.count -= usize::from(one != other);
        one != other
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_sim::cities::RoundTrips;
    use whimbrel_sim::random::Random;

    use super::*;

    fn pair(one: usize, other: usize, millis: u64) -> Pair {
        Pair { delay: Duration::from_millis(millis), ends: [one, other] }
    }

    /// The pairs of a number of cities, with their real delays.
    fn cities(count: usize, seed: u64) -> Vec<Pair> {
        let trips = RoundTrips::reckoned().choose(count, &mut Random::new(seed));
        let pairs = (0..count).flat_map(|other| (0..other).map(move |one| [one, other]));
        pairs.map(|ends| Pair { delay: trips.span(ends[0], ends[1]) / 2, ends }).collect()
    }

    /// Whether the other brokers reach each other without one of them.
    fn reach_each_other(brokers: usize, links: &[[usize; 2]], gone: usize) -> bool {
        let mut parts = Parts::without_one(brokers);
        links.iter().filter(|ends| !ends.contains(&gone)).for_each(|ends| _ = parts.join(*ends));
        parts.count <= 1
    }

    #[test]
    fn a_pair_is_linked_where_the_way_is_too_long() {
        // 0 - 1 - 2 in a line, and 3 far off to the side.
        let pairs =
            vec![pair(0, 1, 10), pair(1, 2, 10), pair(0, 2, 19), pair(1, 3, 50), pair(0, 3, 52), pair(2, 3, 52)];
        let plan = Plan::new(4, pairs.clone(), 1.2);
        // The last one so that 3 does not depend on 1; and 0 and 2, so that they do not either.
        assert_eq!(plan.links, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3]]);
        assert_eq!(plan.way(0, 2), Some(Duration::from_millis(19)));
        assert_eq!(plan.way(2, 3), Some(Duration::from_millis(60)));
        assert_eq!((plan.neighbours(3), plan.holding), (vec![0, 1], vec![]));
        assert_eq!(Plan::new(4, pairs, 1.0).links.len(), 6);
    }

    #[test]
    fn ways_are_no_longer_than_was_asked_for_and_nobody_alone_holds_others_together() {
        for (brokers, seed) in [(2, 1), (3, 1), (10, 1), (50, 1), (50, 2)] {
            let pairs = cities(brokers, seed);
            for stretch in [1.0, 1.5, 3.0] {
                let plan = Plan::new(brokers, pairs.clone(), stretch);
                for Pair { delay, ends: [one, other] } in &pairs {
                    let way = plan.way(*one, *other).expect("all reach each other");
                    assert!(way.as_secs_f64() <= stretch * delay.as_secs_f64() + 1e-12);
                    assert!(way >= *delay || stretch > 1.0);
                }
                assert!((0..brokers).all(|gone| reach_each_other(brokers, &plan.links, gone)));
                assert!(plan.holding.is_empty());
            }
            let links = Plan::new(brokers, pairs.clone(), STRETCH).links;
            assert!(links.len() <= 2 * brokers, "{} links of {brokers}", links.len());
            let turned = pairs.into_iter().rev().collect();
            assert_eq!(Plan::new(brokers, turned, STRETCH).links, links, "whatever the order");
        }
    }

    #[test]
    fn who_cannot_be_gone_around_is_told() {
        let plan = Plan::new(3, vec![pair(0, 1, 5), pair(1, 2, 5)], STRETCH);
        assert_eq!((plan.links.len(), plan.holding), (2, vec![1]));
        // The last broker has no links.
        let plan = Plan::new(3, vec![pair(0, 1, 5)], STRETCH);
        assert_eq!((plan.way(0, 2), plan.holding), (None, vec![0, 1]));
        assert_eq!(Plan::new(1, Vec::new(), STRETCH).links, [] as [[usize; 2]; 0]);
    }
}
