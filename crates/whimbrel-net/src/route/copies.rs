//! Trees in which each destination stands twice, kept as long as their links stay what they were.

use whimbrel_event::HostId;

use super::cached::CachedPlan;
use super::disjoint::DisjointPairs;
use super::graph::Graph;
use super::joint::JointPaths;
use super::pair::PairSearch;
use super::paths::{Paths, Wanted};
use super::trees::{self, Trees};

/// By how much a link of a plan may cost more than it did beside the threshold, microseconds.
const GROWN_US: u64 = 2_000;

/// A deadline is rounded down to a multiple of its size divided by this: events whose deadlines
/// differ by less have one plan.
const DEADLINE_STEPS: u64 = 8;

/// How many paths an event takes to each destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TopicPaths {
    /// One.
    #[default]
    One,
    /// Two that share as little as can be, if there are two.
    Two,
}

/// The trees of an event of which copies take several paths to each destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyTrees {
    /// The trees: a destination may stand in one of them several times.
    pub trees: Trees,
    /// By destination: the time of its slowest path, microseconds; 0 for one that is not reached.
    pub slowest_us: Vec<u32>,
    /// The links of all paths with what they cost, microseconds.
    links: Vec<(HostId, HostId, u64)>,
    /// The version of the topology in which they were last looked at.
    checked: Option<u64>,
}

impl CachedPlan for CopyTrees {
    fn size(&self) -> usize {
        self.trees.size() + self.slowest_us.len() + 3 * self.links.len()
    }
}

impl CopyTrees {
    /// Whether none of the links is gone, or costs so much more that another plan may be better.
    pub(super) fn are_good(&mut self, graph: &Graph, version: Option<u64>, threshold_percent: u8) -> bool {
        if self.checked == version {
            return true;
        }
        let kept = 100 - u64::from(threshold_percent);
        let is_good = |(from, to, cost): &(HostId, HostId, u64)| {
            let edge = graph.index(*from).zip(graph.index(*to)).and_then(|(from, to)| graph.edge(from, to));
            edge.is_some_and(|edge| edge.cost * kept <= (cost + GROWN_US) * 100)
        };
        let are_good = self.links.iter().all(is_good);
        self.checked = version.filter(|_| are_good);
        are_good
    }
}

/// The pairs of paths from the own broker, as they are in one graph.
#[derive(Debug)]
pub(super) struct OwnPairs {
    source: u32,
    tree: Paths,
    pairs: DisjointPairs,
}

impl OwnPairs {
    /// `None` if the own broker is not in the graph.
    pub(super) fn new(graph: &Graph, own: HostId) -> Option<OwnPairs> {
        let source = graph.index(own)?;
        let tree = Paths::new(graph, own, Wanted::default());
        let pairs = DisjointPairs::new(graph, &tree, source);
        Some(OwnPairs { source, tree, pairs })
    }

    /// The trees to a set of brokers, which is sorted. `version`: of the graph.
    pub(super) fn trees(&self, graph: &Graph, version: Option<u64>, set: &[HostId], deadline_us: u64) -> CopyTrees {
        let OwnPairs { source, tree, pairs } = self;
        let search = PairSearch { graph, tree, pairs, source: *source, deadline_us };
        let known: Vec<Option<u32>> = set.iter().map(|host| graph.index(*host).filter(|to| to != source)).collect();
        let destinations: Vec<u32> = known.iter().flatten().copied().collect();
        let mut found = JointPaths::find(search, &destinations).into_iter();
        let paths: Vec<Vec<Vec<u32>>> =
            known.iter().map(|known| known.and_then(|_| found.next()).unwrap_or_default()).collect();
        let slowest = |paths: &Vec<Vec<u32>>| paths.iter().map(|path| search.time_us(path)).max().unwrap_or(0);
        let slowest_us = paths.iter().map(|paths| u32::try_from(slowest(paths)).unwrap_or(u32::MAX)).collect();
        let all = paths.iter().flatten().flat_map(|path| path.windows(2).map(|link| (link[0], link[1])));
        let mut links: Vec<(HostId, HostId, u64)> = all
            .map(|(from, to)| {
                let cost = graph.edge(from, to).expect("a path is over links").cost;
                (graph.hosts[from as usize], graph.hosts[to as usize], cost)
            })
            .collect();
        links.sort_unstable();
        links.dedup();
        CopyTrees { trees: trees::join(graph, *source, &paths), slowest_us, links, checked: version }
    }
}

/// A deadline as plans know it, see [`DEADLINE_STEPS`].
pub(super) fn rounded_us(deadline_us: u64) -> u64 {
    let step = (deadline_us.checked_ilog2().map_or(1, |log| 1 << log) / DEADLINE_STEPS).max(1);
    deadline_us / step * step
}
