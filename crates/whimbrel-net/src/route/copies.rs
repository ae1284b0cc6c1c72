//! Trees in which each destination stands twice, kept as long as their links stay what they were.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use whimbrel_event::{HostId, Time};

use super::availability::MapOutages;
use super::available::{Availability, AvailableSearch};
use super::cached::CachedPlan;
use super::disjoint::{DisjointPairs, PathPair};
use super::graph::Graph;
use super::joint::{JointPaths, SHARING_WORK_MAX};
use super::pair::PairSearch;
use super::paths::{Paths, Wanted};
use super::targeted::TroubleView;
use super::trees::{self, Trees};

/// By how much a link of a plan may cost more or less than it did beside the threshold,
/// microseconds.
const CHANGED_US: u64 = 2_000;

/// Most pairs under a deadline that are kept of one graph; beyond that all are sought anew.
const PAIRS_MAX: usize = 4_096;

/// Paths for an availability are sought anew after this time, when the topology changes.
const AVAILABILITY_EVERY: Duration = Duration::from_secs(60);

/// A longer deadline, microseconds, is planned with as this one: some 13 days.
const DEADLINE_PLANNED_MAX_US: u64 = (1 << 40) - 1;

/// A deadline is rounded down to a multiple of its size divided by this: events whose deadlines
/// differ by less have one plan.
const DEADLINE_STEPS: u64 = 8;

/// The paths that an event takes to each destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TopicPaths {
    /// One.
    #[default]
    One,
    /// Two that share as little as can be, if there are two.
    Two,
    /// As two, and around a source or a destination that has trouble every one that is in time.
    Targeted,
    /// The fewest that are available as often together.
    Available(Availability),
}

impl fmt::Display for TopicPaths {
    /// As a topic's profile says it: `1`, `2`, `targeted`, or `for` an availability.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicPaths::One => f.write_str("1"),
            TopicPaths::Two => f.write_str("2"),
            TopicPaths::Targeted => f.write_str("targeted"),
            TopicPaths::Available(availability) => write!(f, "for {}", f64::from(availability.ppm()) / 1e6),
        }
    }
}

impl TopicPaths {
    /// What plans of several paths within a deadline, microseconds, are known by in the cache:
    /// those with the same number are the same for one set of destinations.
    fn plan_number(self, deadline_us: u64) -> u64 {
        let kind = match self {
            TopicPaths::One | TopicPaths::Two => 0,
            TopicPaths::Targeted => 1,
            TopicPaths::Available(availability) => u64::from(availability.ppm()),
        };
        deadline_us.min(DEADLINE_PLANNED_MAX_US) | kind << DEADLINE_PLANNED_MAX_US.count_ones()
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
    /// Of the brokers at the ends those that had trouble; looked at for [`TopicPaths::Targeted`].
    troubled: Option<Box<[HostId]>>,
    /// When they were made, if they depend on availability.
    made: Option<Time>,
    /// The version of the topology in which they were last looked at, with the number of looks at
    /// outages; and that of its structure.
    checked: Option<(u64, u64)>,
    structure: Option<u64>,
}

/// The graph that a plan is made in, or looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanGround<'a> {
    pub(super) own: HostId,
    pub(super) graph: &'a Graph,
    pub(super) outages: &'a MapOutages,
    /// The version of the topology, and of its structure.
    pub(super) version: Option<u64>,
    pub(super) structure: Option<u64>,
}

impl<'a> PlanGround<'a> {
    fn view(self) -> TroubleView<'a> {
        TroubleView { graph: self.graph, outages: self.outages }
    }
}

impl CachedPlan for CopyTrees {
    fn size(&self) -> usize {
        let troubled = self.troubled.as_ref().map_or(0, |troubled| troubled.len());
        self.trees.size() + self.slowest_us.len() + 3 * self.links.len() + troubled
    }
}

impl CopyTrees {
    /// Whether they have further paths around an end that has trouble.
    pub fn is_around_trouble(&self) -> bool {
        self.troubled.as_ref().is_some_and(|troubled| !troubled.is_empty())
    }

    /// Whether no link of the graph is new or gone, none of the own ones costs so much more or less
    /// that another plan may be better, and the same ends have trouble, where that matters. `set`:
    /// the destinations.
    pub(super) fn are_good(&mut self, ground: PlanGround<'_>, set: &[HostId], threshold_percent: u8) -> bool {
        let PlanGround { own, graph, version, structure, .. } = ground;
        let (looks, seen) = ground.outages.last_look();
        let look = version.map(|version| (version, looks));
        if self.checked == look {
            return true;
        }
        if self.made.is_some_and(|made| seen.since(made) >= AVAILABILITY_EVERY) {
            return false;
        }
        let has_other_trouble = || {
            let troubled = self.troubled.as_ref();
            troubled.is_some_and(|troubled| **troubled != *ground.view().troubled(own, set))
        };
        if self.structure != structure || has_other_trouble() {
            return false;
        }
        let kept = 100 - u64::from(threshold_percent);
        let is_good = |(from, to, cost): &(HostId, HostId, u64)| {
            let edge = graph.index(*from).zip(graph.index(*to)).and_then(|(from, to)| graph.edge(from, to));
            let is_near = |one: u64, other: u64| one.saturating_mul(kept) <= (other + CHANGED_US).saturating_mul(100);
            edge.is_some_and(|edge| is_near(edge.cost, *cost) && is_near(*cost, edge.cost))
        };
        let are_good = self.links.iter().all(is_good);
        self.checked = look.filter(|_| are_good);
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
    pub(super) fn trees(&mut self, ground: PlanGround<'_>, set: &[HostId], wanted: PathsWanted) -> CopyTrees {
        let PathsWanted { paths: kind, deadline_us } = wanted;
        let PlanGround { own, graph, outages, version, structure } = ground;
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
        let (_, links) = graph.size();
        let is_small = links * destinations.len() <= SHARING_WORK_MAX;
        let mut found = match kind {
            TopicPaths::Available(target) if is_small => {
                let available = AvailableSearch { search, outages, target };
                destinations.iter().map(|to| available.best(*to)).collect()
            }
            _ => JointPaths::find(search, &destinations, &mut best),
        };
        let is_targeted = kind == TopicPaths::Targeted;
        if is_targeted && is_small {
            for (to, paths) in destinations.iter().zip(&mut found) {
                let added = ground.view().added(search, *to).into_iter().filter(|path| !paths.contains(path));
                let added: Vec<Vec<u32>> = added.collect();
                paths.extend(added);
            }
        }
        let mut found = found.into_iter();
        let paths: Vec<Vec<Vec<u32>>> =
            known.iter().map(|known| known.and_then(|_| found.next()).unwrap_or_default()).collect();
        // A path that is late by the repetitions of its links counts by their delays.
        let takes_us = |path: &Vec<u32>| {
            let times_us = [search.time_us(path), search.delay_us(path)];
            times_us.into_iter().find(|time_us| *time_us <= deadline_us)
        };
        let slowest = |paths: &Vec<Vec<u32>>| paths.iter().filter_map(takes_us).max().unwrap_or(0);
        let slowest_us = paths.iter().map(|paths| u32::try_from(slowest(paths)).unwrap_or(u32::MAX)).collect();
        let all = paths.iter().flatten().flat_map(|path| path.windows(2).map(|link| (link[0], link[1])));
        let mut planned: Vec<(HostId, HostId, u64)> = all
            .map(|(from, to)| {
                let cost = graph.edge(from, to).expect("a path is over links").cost;
                (graph.hosts[from as usize], graph.hosts[to as usize], cost)
            })
            .collect();
        planned.sort_unstable();
        planned.dedup();
        let troubled = is_targeted.then(|| ground.view().troubled(own, set).into());
        let trees = trees::join(graph, *source, &paths);
        let (looks, seen) = outages.last_look();
        let made = matches!(kind, TopicPaths::Available(_)).then_some(seen);
        let checked = version.map(|version| (version, looks));
        CopyTrees { trees, slowest_us, links: planned, troubled, made, checked, structure }
    }
}

/// The paths that a plan is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathsWanted {
    paths: TopicPaths,
    /// The longest time of a path that is in time, microseconds.
    deadline_us: u64,
}

impl PathsWanted {
    /// Those of a topic within a deadline, which is rounded down, see [`DEADLINE_STEPS`].
    pub(super) fn new(paths: TopicPaths, deadline_us: u64) -> PathsWanted {
        let step = (deadline_us.checked_ilog2().map_or(1, |log| 1 << log) / DEADLINE_STEPS).max(1);
        PathsWanted { paths, deadline_us: deadline_us / step * step }
    }

    /// What its plans are known by in the cache, beside their destinations.
    pub(super) fn number(self) -> u64 {
        self.paths.plan_number(self.deadline_us)
    }
}
