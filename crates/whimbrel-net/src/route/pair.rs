//! The pair of paths to one broker under a deadline.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cost::HOP_COST_US;
use super::disjoint::{DisjointPairs, PathPair, SHARED_BROKER, SHARED_LINK, is_link_of};
use super::graph::{Graph, GraphEdge};
use super::paths::Paths;

/// A pair is exact if at most this many brokers, beside its ends, are on paths within the deadline:
/// on every map of up to 16 brokers.
pub(super) const EXACT_MAX: usize = 14;

/// How many times longer the links count by which a path would share something with another one, in
/// the order in which that is tried. The first path that is in time is taken.
const REPELLED: [u64; 5] = [256, 64, 16, 4, 2];

/// How good a pair is, the best first: how many of its paths miss the deadline, how many brokers
/// and links they share, and the sum of their costs.
pub(super) type PairRank = (usize, (usize, usize), u64);

/// Pairs of paths from one broker under a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairSearch<'a> {
    pub(super) graph: &'a Graph,
    /// The paths of least cost from the source, and its pairs.
    pub(super) tree: &'a Paths,
    pub(super) pairs: &'a DisjointPairs,
    pub(super) source: u32,
    /// The longest time of a path that is in time, microseconds.
    pub(super) deadline_us: u64,
}

/// Whether a broker is on a path to `to`, before its end.
fn is_broker_of(path: &[u32], to: u32, broker: u32) -> bool {
    broker != to && path.contains(&broker)
}

impl PairSearch<'_> {
    /// The best pair to a broker other than the source, see [`PairRank`]; `None` if it is not
    /// reached.
    ///
    /// The shortest pair is the best one unless its longer path misses the deadline. Then finding
    /// the best is hard (Li, McCormick, Simchi-Levi 1990): up to [`EXACT_MAX`] brokers all sets of
    /// them are examined, beyond that some pairs. Of two such pairs that share as many brokers, but
    /// not as many links, the shorter one may be found.
    pub(super) fn best(&self, to: u32) -> Option<PathPair> {
        let shortest = self.pairs.pair(self.tree, to)?;
        if self.rank(&shortest).0 == 0 {
            return Some(shortest);
        }
        let by_time = |_, edge: &GraphEdge| Some(edge.time_us());
        let to_end = self.search(to, by_time);
        if to_end[self.source as usize].0 > self.deadline_us {
            return Some(shortest);
        }
        let from_source = self.search(self.source, by_time);
        let is_within = |broker: u32| {
            let ((before, _), (behind, _)) = (from_source[broker as usize], to_end[broker as usize]);
            before.saturating_add(behind) <= self.deadline_us
        };
        let is_inner = |broker: &u32| *broker != self.source && *broker != to && is_within(*broker);
        let inner: Vec<u32> = (0..self.graph.hosts.len() as u32).filter(is_inner).collect();
        let quickest = self.followed(to, &from_source)?;
        let found = if inner.len() <= EXACT_MAX {
            BrokerSets::new(self, to, &inner).best()
        } else {
            self.candidate(to, [&shortest.paths[0], &shortest.paths[1], &quickest], is_within)
        };
        let apart = self.apart(to, &quickest);
        let one_in_time = PathPair { paths: [quickest, apart] };
        found.into_iter().chain([one_in_time, shortest]).min_by_key(|pair| self.rank(pair))
    }

    /// See [`PairRank`].
    pub(super) fn rank(&self, pair: &PathPair) -> PairRank {
        let missed = pair.paths.iter().filter(|path| !self.is_in_time(path)).count();
        (missed, pair.shared(), pair.paths.iter().map(|path| self.cost(path)).sum())
    }

    /// The part of the rank that tells whether two paths are as safe as two others.
    pub(super) fn safety(&self, pair: &PathPair) -> (usize, (usize, usize)) {
        let (missed, shared, _) = self.rank(pair);
        (missed, shared)
    }

    pub(super) fn is_in_time(&self, path: &[u32]) -> bool {
        self.time_us(path) <= self.deadline_us
    }

    /// The cost of a path, microseconds.
    pub(super) fn cost(&self, path: &[u32]) -> u64 {
        self.sum(path, |edge| edge.cost)
    }

    /// The time of a path, microseconds.
    pub(super) fn time_us(&self, path: &[u32]) -> u64 {
        self.sum(path, GraphEdge::time_us)
    }

    /// The delays of the links of a path, and the work of its brokers, microseconds.
    pub(super) fn delay_us(&self, path: &[u32]) -> u64 {
        self.sum(path, |edge| u64::from(edge.delay_us) + HOP_COST_US)
    }

    fn sum(&self, path: &[u32], of: impl Fn(&GraphEdge) -> u64) -> u64 {
        let edge = |link: &[u32]| self.graph.edge(link[0], link[1]).expect("a path is over links");
        path.windows(2).map(|link| of(edge(link))).sum()
    }

    /// By broker: the least sum of weights over a path from this one, [`u64::MAX`] without a path,
    /// and the broker before it. A link without a weight is not taken.
    pub(super) fn search(&self, from: u32, weigh: impl Fn(u32, &GraphEdge) -> Option<u64>) -> Vec<(u64, u32)> {
        let mut least = vec![(u64::MAX, from); self.graph.hosts.len()];
        least[from as usize].0 = 0;
        let mut heap = BinaryHeap::from([Reverse((0_u64, from))]);
        while let Some(Reverse((sum, at))) = heap.pop() {
            if sum > least[at as usize].0 {
                continue;
            }
            for edge in self.graph.edges(at) {
                let Some(sum) = weigh(at, edge).map(|weight| sum + weight) else { continue };
                if sum < least[edge.to as usize].0 {
                    least[edge.to as usize] = (sum, at);
                    heap.push(Reverse((sum, edge.to)));
                }
            }
        }
        least
    }

    /// The path to a broker that shares least with another one, at any time.
    fn apart(&self, to: u32, first: &[u32]) -> Vec<u32> {
        let path = self.path(to, |from, edge| {
            let broker = if is_broker_of(first, to, edge.to) { SHARED_BROKER } else { 0 };
            let link = if is_link_of(first, &[from, edge.to]) { SHARED_LINK } else { 0 };
            Some(edge.cost + broker + link)
        });
        path.expect("there is the other one")
    }

    /// The path of least weight from the source.
    pub(super) fn path(&self, to: u32, weigh: impl Fn(u32, &GraphEdge) -> Option<u64>) -> Option<Vec<u32>> {
        self.followed(to, &self.search(self.source, weigh))
    }

    /// The path to a broker in the result of a search from the source.
    fn followed(&self, to: u32, least: &[(u64, u32)]) -> Option<Vec<u32>> {
        self.followed_from(self.source, to, least)
    }

    /// The path to a broker in the result of a search from another one.
    pub(super) fn followed_from(&self, from: u32, to: u32, least: &[(u64, u32)]) -> Option<Vec<u32>> {
        let mut path = vec![to];
        while let Some(at) = path.last().copied().filter(|at| *at != from) {
            let (sum, before) = least[at as usize];
            path.push(Some(before).filter(|_| sum < u64::MAX)?);
        }
        path.reverse();
        Some(path)
    }

    /// The best of some pairs: each of these paths, if it is in time, with one that shares nothing
    /// with it, or else little.
    fn candidate(&self, to: u32, firsts: [&Vec<u32>; 3], is_within: impl Fn(u32) -> bool) -> Option<PathPair> {
        let pair = |first: &Vec<u32>| {
            let repelled = |by: Option<u64>| {
                let path = self.path(to, |from, edge| {
                    let is_shared = is_broker_of(first, to, edge.to) || is_link_of(first, &[from, edge.to]);
                    let by = if is_shared { by? } else { 1 };
                    is_within(edge.to).then(|| edge.time_us() * by)
                });
                path.filter(|path| path != first && self.is_in_time(path))
            };
            let near = || REPELLED.into_iter().find_map(|by| repelled(Some(by)));
            repelled(None).or_else(near).map(|other| PathPair { paths: [first.clone(), other] })
        };
        firsts.into_iter().filter(|path| self.is_in_time(path)).filter_map(pair).min_by_key(|pair| self.rank(pair))
    }
}

/// The quickest path to one broker over each set of other brokers, after Held and Karp (1962).
/// Takes 2^n n^2 steps for n brokers.
#[derive(Debug)]
struct BrokerSets<'a> {
    search: &'a PairSearch<'a>,
    to: u32,
    inner: &'a [u32],
    /// By set and its broker that is last on the path: the time up to there, microseconds.
    times_us: Vec<u64>,
    /// By set: the time of the path to the end.
    whole_us: Vec<u64>,
}

impl<'a> BrokerSets<'a> {
    fn new(search: &'a PairSearch<'a>, to: u32, inner: &'a [u32]) -> BrokerSets<'a> {
        let count = inner.len();
        let mut sets = BrokerSets { search, to, inner, times_us: vec![u64::MAX; count << count], whole_us: Vec::new() };
        for (last, broker) in inner.iter().enumerate() {
            sets.times_us[(1 << last) * count + last] = sets.link_us(search.source, *broker);
        }
        let links_us: Vec<u64> = inner
            .iter()
            .flat_map(|one| inner.iter().map(|other| (*one, *other)))
            .map(|(one, other)| sets.link_us(one, other))
            .collect();
        for set in 1..1_usize << count {
            for last in (0..count).filter(|last| set >> last & 1 == 1) {
                let time_us = sets.times_us[set * count + last];
                for next in (0..count).filter(|next| set >> next & 1 == 0) {
                    let time_us = time_us.saturating_add(links_us[last * count + next]);
                    let known = &mut sets.times_us[(set | 1 << next) * count + next];
                    *known = time_us.min(*known);
                }
            }
        }
        sets.whole_us = (0..1 << count).map(|set| sets.last_of(set).0).collect();
        sets
    }

    fn link_us(&self, from: u32, to: u32) -> u64 {
        self.search.graph.edge(from, to).map_or(u64::MAX, GraphEdge::time_us)
    }

    /// The time of the path over a set to the end, and its last broker before that.
    fn last_of(&self, set: usize) -> (u64, usize) {
        if set == 0 {
            return (self.link_us(self.search.source, self.to), 0);
        }
        let count = self.inner.len();
        let members = (0..count).filter(|last| set >> last & 1 == 1);
        let time = |last: usize| {
            let (time_us, link_us) = (self.times_us[set * count + last], self.link_us(self.inner[last], self.to));
            (time_us.saturating_add(link_us), last)
        };
        members.map(time).min().expect("the set is not empty")
    }

    /// The pair of paths in time with the fewest brokers in common, and of these the quickest.
    fn best(&self) -> Option<PathPair> {
        let (count, all) = (self.inner.len(), (1 << self.inner.len()) - 1);
        let deadline_us = self.search.deadline_us;
        let is_in_time = |set: usize| self.whole_us[set] <= deadline_us;
        // By set: the quickest path over brokers of it, and over as many others as the turns of the
        // loop below allow. The direct link is left out: a pair has it once, as the first path.
        let mut seconds: Vec<(u64, usize)> = self.whole_us.iter().copied().zip(0..).collect();
        seconds[0].0 = u64::MAX;
        for member in 0..count {
            for set in (0..=all).filter(|set| set >> member & 1 == 1) {
                seconds[set] = seconds[set].min(seconds[set ^ 1 << member]);
            }
        }
        for _ in 0..=count {
            let pair = |first: usize| {
                let (second_us, second) = seconds[all & !first];
                let is_pair = second != first && second_us <= deadline_us;
                is_pair.then(|| (self.whole_us[first] + second_us, first, second))
            };
            if let Some((_, first, second)) = (0..=all).filter(|set| is_in_time(*set)).filter_map(pair).min() {
                return Some(PathPair { paths: [self.path(first), self.path(second)] });
            }
            // One more broker may be shared. A greater set has not been changed before a smaller
            // one.
            for set in 0..=all {
                for member in (0..count).filter(|member| set >> member & 1 == 0) {
                    seconds[set] = seconds[set].min(seconds[set | 1 << member]);
                }
            }
        }
        None
    }

    /// The quickest path over a set.
    fn path(&self, mut set: usize) -> Vec<u32> {
        let count = self.inner.len();
        let mut path = vec![self.to];
        let mut last = self.last_of(set).1;
        while set != 0 {
            path.push(self.inner[last]);
            let (before, time_us) = (set & !(1 << last), self.times_us[set * count + last]);
            let is_before = |other: &usize| {
                let link_us = self.link_us(self.inner[*other], self.inner[last]);
                before >> other & 1 == 1 && self.times_us[before * count + other].saturating_add(link_us) == time_us
            };
            last = (0..count).find(is_before).unwrap_or(last);
            set = before;
        }
        path.push(self.search.source);
        path.reverse();
        path
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::disjoint::tests::{all_paths, graphs};
    use crate::route::paths::Wanted;

    /// With the search from a broker of a graph.
    pub(crate) fn with_search<T>(
        graph: &Graph,
        source: u32,
        deadline_us: u64,
        with: impl FnOnce(PairSearch<'_>) -> T,
    ) -> T {
        let tree = Paths::new(graph, graph.hosts[source as usize], Wanted::default());
        let pairs = DisjointPairs::new(graph, &tree, source);
        with(PairSearch { graph, tree: &tree, pairs: &pairs, source, deadline_us })
    }

    proptest! {
        #[test]
        fn no_pair_is_in_time_with_fewer_brokers_in_common(graph in graphs(7), deadline_us in 0..150_u64) {
            with_search(&graph, 0, deadline_us, |search| {
                for to in 1..graph.hosts.len() as u32 {
                    let all = all_paths(&graph, 0, to);
                    let every = all.iter().flat_map(|one| all.iter().map(move |other| (one, other)));
                    let every = every
                        .filter(|(one, other)| one != other || all.len() == 1)
                        .map(|(one, other)| search.rank(&PathPair { paths: [one.clone(), other.clone()] }));
                    let pair = search.best(to);
                    let (best, found) = (every.min(), pair.as_ref().map(|pair| search.rank(pair)));
                    // Of those that share brokers, not always the one with the fewest links; and if
                    // one path is in time, the other is as far from that as can be.
                    let known = |(missed, (brokers, links), sum)| match missed {
                        0 if brokers > 0 => (missed, brokers, 0, 0),
                        1 => (missed, 0, 0, 0),
                        _ => (missed, brokers, links, sum),
                    };
                    prop_assert_eq!(best.map(known), found.map(known), "to {} within {}: {:?}", to, deadline_us, pair);
                    for path in pair.iter().flat_map(|pair| &pair.paths) {
                        prop_assert!(all.contains(path), "{:?} is no simple path to {}", path, to);
                    }
                }
                Ok(())
            })?;
        }
    }
}
