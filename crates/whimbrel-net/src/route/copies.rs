//! Trees in which each destination stands twice, kept as long as their links stay what they were.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use whimbrel_event::HostId;

use super::cached::CachedPlan;
use super::disjoint::{DisjointPairs, PathPair};
use super::graph::Graph;
use super::joint::JointPaths;
use super::pair::PairSearch;
use super::paths::{Paths, Wanted};
use super::trees::{self, Trees};

/// By how much a link of a plan may cost more or less than it did beside the threshold,
/// microseconds.
const CHANGED_US: u64 = 2_000;

/// Most pairs under a deadline that are kept of one graph; beyond that all are sought anew.
const PAIRS_MAX: usize = 4_096;

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

impl TopicPaths {
    /// How many they are.
    pub fn count(self) -> u8 {
        match self {
            TopicPaths::One => 1,
            TopicPaths::Two => 2,
        }
    }

    /// Those of which there are that many; `None`: there may not be.
    pub fn of_count(count: u64) -> Option<TopicPaths> {
        [TopicPaths::One, TopicPaths::Two].into_iter().find(|paths| u64::from(paths.count()) == count)
    }
}

/// The trees of an event of which copies take several paths to each destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyTrees {
    /// The trees: a destination may stand in one of them several times.
    pub trees: Trees,
    /// By destination: the time of its slowest path that is in time, microseconds; 0 without one.
    pub slowest_us: Vec<u32>,
    /// The links of all paths with what they cost, microseconds.
    links: Vec<(HostId, HostId, u64)>,
    /// The version of the topology in which they were last looked at, and of its structure.
    checked: Option<u64>,
    structure: Option<u64>,
}

/// The graph that a plan is made in, or looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanGround<'a> {
    pub(super) graph: &'a Graph,
    /// The version of the topology, and of its structure.
    pub(super) version: Option<u64>,
    pub(super) structure: Option<u64>,
}

impl CachedPlan for CopyTrees {
    fn size(&self) -> usize {
        self.trees.size() + self.slowest_us.len() + 3 * self.links.len()
    }
}

impl CopyTrees {
    /// Whether no link of the graph is new or gone, and none of the own ones costs so much more or
    /// less that another plan may be better.
    pub(super) fn are_good(&mut self, ground: PlanGround<'_>, threshold_percent: u8) -> bool {
        let PlanGround { graph, version, structure } = ground;
        if self.checked == version {
            return true;
        }
        if self.structure != structure {
            return false;
        }
        let kept = 100 - u64::from(threshold_percent);
        let is_good = |(from, to, cost): &(HostId, HostId, u64)| {
            let edge = graph.index(*from).zip(graph.index(*to)).and_then(|(from, to)| graph.edge(from, to));
            let is_near = |one: u64, other: u64| one.saturating_mul(kept) <= (other + CHANGED_US).saturating_mul(100);
            edge.is_some_and(|edge| is_near(edge.cost, *cost) && is_near(*cost, edge.cost))
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
    /// Those under a deadline, microseconds, by the broker that they lead to.
    within: BTreeMap<(u32, u64), PathPair>,
}

impl OwnPairs {
    /// `None` if the own broker is not in the graph.
    pub(super) fn new(graph: &Graph, own: HostId) -> Option<OwnPairs> {
        let source = graph.index(own)?;
        let tree = Paths::new(graph, own, Wanted::default());
        let pairs = DisjointPairs::new(graph, &tree, source);
        Some(OwnPairs { source, tree, pairs, within: BTreeMap::new() })
    }

    /// The trees to a set of brokers, which is sorted. `ground`: with the graph of the pairs.
    pub(super) fn trees(&mut self, ground: PlanGround<'_>, set: &[HostId], deadline_us: u64) -> CopyTrees {
        let PlanGround { graph, version, structure } = ground;
        let OwnPairs { source, tree, pairs, within } = self;
        let search = PairSearch { graph, tree, pairs, source: *source, deadline_us };
        let known: Vec<Option<u32>> = set.iter().map(|host| graph.index(*host).filter(|to| to != source)).collect();
        let destinations: Vec<u32> = known.iter().flatten().copied().collect();
        if within.len() + destinations.len() > PAIRS_MAX {
            within.clear();
        }
        let mut best = |to: u32| {
            let pair = match within.entry((to, deadline_us)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(search.best(to)?),
            };
            Some(pair.clone())
        };
        let mut found = JointPaths::find(search, &destinations, &mut best).into_iter();
        let paths: Vec<Vec<Vec<u32>>> =
            known.iter().map(|known| known.and_then(|_| found.next()).unwrap_or_default()).collect();
        let slowest = |paths: &Vec<Vec<u32>>| {
            let times = paths.iter().map(|path| search.time_us(path));
            times.filter(|time_us| *time_us <= deadline_us).max().unwrap_or(0)
        };
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
        CopyTrees { trees: trees::join(graph, *source, &paths), slowest_us, links, checked: version, structure }
    }
}

/// A deadline as plans know it, see [`DEADLINE_STEPS`].
pub(super) fn rounded_us(deadline_us: u64) -> u64 {
    let step = (deadline_us.checked_ilog2().map_or(1, |log| 1 << log) / DEADLINE_STEPS).max(1);
    deadline_us / step * step
}
