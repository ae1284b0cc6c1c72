//! Paths from this broker to others.
//!
//! The path of an event is chosen where it is published and travels with it, so these paths are
//! from the own broker only and need not agree with those of other brokers.

mod availability;
mod available;
mod cached;
mod copies;
pub(crate) mod cost;
mod disjoint;
mod graph;
mod joint;
mod pair;
mod paths;
mod planned;
mod targeted;
mod trees;

use std::collections::BTreeSet;

use whimbrel_event::{DomainLabel, HostId, Time};

use cached::Cached;
use copies::{OwnPairs, PathsWanted, PlanGround};
use graph::Graph;
use paths::{Paths, Wanted};

pub use availability::{MapOutages, OUTAGES_KEPT, OUTAGES_MAX};
pub use available::{AVAILABLE_PATHS_MAX, Availability};
pub use cached::{TREES_MAX, TREES_SIZE_MAX};
pub use copies::{CopyTrees, TopicPaths};
pub use cost::{DARK_COST_US, HOP_COST_US, LOSS_COUNTED_MAX, cost_us};
pub use planned::{EventPath, PathsTo};
pub use trees::{TREE_DEPTH_MAX, TREE_NODES_MAX, Tree, TreeNode, Trees};

use crate::pace::Routing;
use crate::topology::{BROKERS_MAX, Topology};

/// Most detours that are cached for the present topology; the oldest is replaced first.
pub const DETOURS_MAX: usize = 16;

/// The shortest paths in a topology, as it was at the last [`Routes::update`].
///
/// Invariants: the paths to all brokers form one tree, so an event for many takes each link once.
/// After an update each path costs at most 1 / (1 - threshold) of the cheapest one, and exactly
/// that much if no path was known before. With [`Routing::Direct`] a broker that is or was a
/// neighbour is behind no other one, and nowhere in the tree while there is no link to it.
///
/// Takes per broker some 80 bytes, and 40 again for each of [`DETOURS_MAX`]; 16 bytes per link; and
/// for the trees at most 8 bytes × [`TREES_SIZE_MAX`].
#[derive(Debug)]
pub struct Routes {
    own: HostId,
    /// They lead over the brokers that may carry what has this label.
    label: Box<str>,
    /// Version of the topology and of its structure; `None` before the first update.
    version: Option<u64>,
    structure: Option<u64>,
    held: HeldChanges,
    routing: Routing,
    /// See [`Pace::threshold_percent`](crate::Pace::threshold_percent).
    threshold_percent: u8,
    /// With [`Routing::Direct`]: the brokers that are or were neighbours, at most [`BROKERS_MAX`].
    met: BTreeSet<HostId>,
    graph: Graph,
    /// The paths of events, which carry the rest of their path.
    paths: Paths,
    /// The version of the topology that `paths` are of.
    followed: Option<u64>,
    /// The paths of least cost in the present graph, without threshold and pause, if they may
    /// differ.
    shared: Option<Paths>,
    /// Grows when the paths have changed.
    epoch: u64,
    trees: Cached<Trees>,
    /// Trees in which destinations stand twice.
    copies: Cached<CopyTrees>,
    /// The pairs of paths in the graph of this version, once they are asked for.
    pairs: Option<(u64, OwnPairs)>,
    detours: Vec<Detour>,
    /// The place of the detour that is replaced next.
    oldest: usize,
}

/// The changes of the topology that leave the paths as they are: they are taken together later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldChanges {
    /// None.
    Nothing,
    /// Those of costs, as long as no broker and no link is new or gone.
    Costs,
    /// All.
    All,
}

#[derive(Debug)]
struct Detour {
    avoided: Box<[HostId]>,
    dead: Box<[HostId]>,
    paths: Paths,
}

/// Shortest paths from the own broker.
#[derive(Clone, Copy, Debug)]
pub struct Ways<'a> {
    own: HostId,
    graph: &'a Graph,
    paths: &'a Paths,
}

impl Ways<'_> {
    /// The neighbour over which a host is reached, and the own broker's number of the link to it.
    /// `None` for an unreachable host and for the own one.
    pub fn next_hop(&self, host: HostId) -> Option<(HostId, u16)> {
        let (first, port) = self.paths.first(self.graph.index(host)?)?;
        Some((self.graph.hosts[first as usize], port))
    }

    /// The cost of the path to a host, microseconds; `None` if there is none.
    pub fn cost_us(&self, host: HostId) -> Option<u64> {
        Some(self.paths.spot(self.graph.index(host)?)?.cost)
    }

    /// The time of the path to a host, microseconds: as [`Ways::cost_us`], without the surcharges
    /// of its links, which decide which path is taken.
    pub fn time_us(&self, host: HostId) -> Option<u64> {
        let mut at = self.graph.index(host)?;
        let mut time_us = self.paths.spot(at)?.cost;
        while let Some(spot) = self.paths.spot(at).filter(|spot| spot.depth > 0) {
            time_us = time_us.saturating_sub(self.graph.surcharge_us(spot.previous, at));
            at = spot.previous;
        }
        Some(time_us)
    }

    /// The brokers on the way to a host, from the own one to that host; empty if there is no path.
    pub fn path(&self, host: HostId) -> Vec<HostId> {
        let mut path = Vec::new();
        let mut at = self.graph.index(host);
        while let Some((node, spot)) = at.and_then(|node| Some((node, self.paths.spot(node)?))) {
            path.push(self.graph.hosts[node as usize]);
            at = (spot.depth > 0).then_some(spot.previous);
        }
        path.reverse();
        path
    }

    /// The trees of paths to a set of hosts. They are not cached, see [`Routes::trees`].
    ///
    /// # Panics
    /// When the set is not sorted, or has a host twice.
    pub fn trees(&self, set: &[HostId]) -> Trees {
        trees::merge(self, set)
    }
}

impl Routes {
    /// The routes of a host over the paths of least cost, without a threshold; no host is reachable
    /// before the first [`Routes::update`].
    pub fn new(own: HostId) -> Routes {
        Routes::following(own, Routing::Best, 0)
    }

    /// The routes of a host by a way of choosing them. `threshold_percent`: see
    /// [`Pace::threshold_percent`](crate::Pace::threshold_percent).
    ///
    /// # Panics
    /// When the threshold is not below 100: a present path would cost nothing.
    pub fn following(own: HostId, routing: Routing, threshold_percent: u8) -> Routes {
        Routes::within(own, routing, threshold_percent, DomainLabel::ANY)
    }

    /// As [`Routes::following`], over the brokers that may carry what has this label.
    ///
    /// # Panics
    /// As [`Routes::following`].
    pub fn within(own: HostId, routing: Routing, threshold_percent: u8, label: DomainLabel<'_>) -> Routes {
        assert!(threshold_percent < 100, "a present path costs something");
        let (graph, paths) = (Graph::default(), Paths::default());
        // The sets are of hosts, whose ids are random: an attacker does not choose them.
        let (trees, copies) = (Cached::new(own.as_u64()), Cached::new(own.as_u64()));
        Routes {
            own,
            label: label.as_str().into(),
            version: None,
            structure: None,
            held: HeldChanges::Nothing,
            routing,
            threshold_percent,
            met: BTreeSet::new(),
            graph,
            paths,
            followed: None,
            shared: None,
            epoch: 0,
            trees,
            copies,
            pairs: None,
            detours: Vec::new(),
            oldest: 0,
        }
    }

    /// The label of what all brokers on the paths may carry.
    pub(crate) fn label(&self) -> DomainLabel<'_> {
        DomainLabel::checked(&self.label)
    }

    /// Sets which changes of the topology leave the paths as they are.
    pub fn hold(&mut self, held: HeldChanges) {
        self.held = held;
    }

    /// Computes the paths anew if the version of the topology differs from the last one, unless the
    /// change is held. Returns whether any path has changed: the brokers on it, the ports and the
    /// protocol of these, not its cost.
    ///
    /// An edge of the present tree of paths counts with its cost less the threshold, so that
    /// another path is taken only if it is better by that much; the costs that are told are whole.
    ///
    /// # Panics
    /// When it is the topology of another broker.
    pub fn update(&mut self, topology: &Topology) -> bool {
        assert_eq!(topology.own(), self.own, "routes follow from the topology of their broker");
        let version = Some(topology.version());
        if self.held == HeldChanges::All || self.followed == version {
            return false;
        }
        let has_same_links = self.structure == Some(topology.structure());
        let is_held = self.held == HeldChanges::Costs && has_same_links;
        if self.version == version {
            return !is_held && self.follow(version, None);
        }
        let graph = Graph::new(topology, DomainLabel::checked(&self.label));
        (self.version, self.structure) = (version, Some(topology.structure()));
        self.detours.clear();
        self.meet(&graph);
        let is_separate = self.routing != Routing::Direct && (self.threshold_percent > 0 || is_held);
        self.shared = is_separate.then(|| Paths::new(&graph, self.own, Wanted::default()));
        if is_held {
            // The same brokers and ports: the paths remain valid in it.
            self.graph = graph;
            return false;
        }
        self.follow(version, Some(graph))
    }

    /// Computes the paths of events anew, in another graph if there is one. Returns whether any has
    /// changed.
    fn follow(&mut self, version: Option<u64>, graph: Option<Graph>) -> bool {
        self.followed = version;
        let later = graph.as_ref().unwrap_or(&self.graph);
        let kept = self.paths.previous_in(&self.graph, later);
        let wanted = Wanted { kept: &kept, threshold_percent: self.threshold_percent, ..self.wanted() };
        let paths = Paths::new(later, self.own, wanted);
        let is_same_set = later.hosts == self.graph.hosts && later.protocols == self.graph.protocols;
        let is_same = is_same_set && paths.is_same_way(&self.paths);
        self.paths = paths;
        if let Some(graph) = graph {
            self.graph = graph;
        }
        self.epoch += u64::from(!is_same);
        !is_same
    }

    /// Notes the present neighbours, where it matters that they were neighbours.
    fn meet(&mut self, graph: &Graph) {
        let Some(own) = graph.index(self.own).filter(|_| self.routing == Routing::Direct) else { return };
        let room = BROKERS_MAX.saturating_sub(self.met.len());
        let hosts = graph.edges(own).iter().map(|edge| graph.hosts[edge.to as usize]);
        let unmet: Vec<HostId> = hosts.filter(|host| !self.met.contains(host)).take(room).collect();
        self.met.extend(unmet);
    }

    /// What is wanted of every path.
    fn wanted(&self) -> Wanted<'_> {
        Wanted { direct_to: (self.routing == Routing::Direct).then_some(&self.met), ..Wanted::default() }
    }

    /// Records which links and brokers are out of order from now on, as the last update has shown.
    pub fn record_outages(&self, now: Time, outages: &mut MapOutages) {
        outages.observe(now, &self.graph);
    }

    /// How many brokers, links and nodes of trees are remembered, and how many bytes they take,
    /// about.
    pub fn size(&self) -> (usize, usize) {
        let (hosts, links) = self.graph.size();
        let spots = hosts * (1 + usize::from(self.shared.is_some()) + self.detours.len());
        let trees = self.trees.size() + self.copies.size();
        let bytes = hosts * size_of::<HostId>()
            + links * size_of::<graph::GraphEdge>()
            + spots * size_of::<paths::PathStep>()
            + trees * 8;
        (hosts + links + spots + trees, bytes)
    }

    /// The shortest paths.
    pub fn ways(&self) -> Ways<'_> {
        Ways { own: self.own, graph: &self.graph, paths: &self.paths }
    }

    /// The neighbour to which messages and nacks to a host go: [`Ways::next_hop`] of the path of
    /// least cost. Each broker on their way chooses the next one by itself. As thresholds and
    /// pauses depend on what a broker saw before, paths that have them could lead in a circle;
    /// these do not once all brokers have the same topology.
    pub fn next_hop(&self, host: HostId) -> Option<(HostId, u16)> {
        let paths = self.shared.as_ref().unwrap_or(&self.paths);
        Ways { paths, ..self.ways() }.next_hop(host)
    }

    /// [`Ways::cost_us`] of the shortest path.
    pub fn cost_us(&self, host: HostId) -> Option<u64> {
        self.ways().cost_us(host)
    }

    /// [`Ways::time_us`] of the shortest path.
    pub fn time_us(&self, host: HostId) -> Option<u64> {
        self.ways().time_us(host)
    }

    /// [`Ways::path`] of the shortest path.
    pub fn path(&self, host: HostId) -> Vec<HostId> {
        self.ways().path(host)
    }

    /// Whether there is a path.
    pub fn is_reachable(&self, host: HostId) -> bool {
        self.cost_us(host).is_some()
    }

    /// The shortest paths to a set of hosts, merged. Those of the [`TREES_MAX`] sets that were
    /// asked for last cost one look-up, as long as no path changes.
    ///
    /// # Panics
    /// When the set is not sorted, or has a host twice.
    pub fn trees(&mut self, set: &[HostId]) -> &Trees {
        let ways = Ways { own: self.own, graph: &self.graph, paths: &self.paths };
        self.trees.get((set, 0), self.epoch, |_| true, || trees::merge(&ways, set))
    }

    /// The trees in which each broker of a set stands twice, as far as there are two paths to it,
    /// or more often as `paths` says, for events that should be there within `deadline_us`. They
    /// stay until a path of [`Routes::trees`] changes, a link is new or gone, one of theirs costs
    /// more or less than a threshold allows, or an end has trouble or no more. `outages`: those of
    /// all brokers and links.
    ///
    /// # Panics
    /// When the set is not sorted, or has a host twice.
    pub fn copies(&mut self, set: &[HostId], paths: TopicPaths, deadline_us: u64, outages: &MapOutages) -> &CopyTrees {
        assert!(set.is_sorted_by(|one, other| one < other), "sets are sorted and without repetition");
        let Routes { own, version, structure, graph, pairs, copies, threshold_percent, epoch, .. } = self;
        let wanted = PathsWanted::new(paths, deadline_us);
        let ground = PlanGround { own: *own, graph, outages, version: *version, structure: *structure };
        let is_good = |known: &mut CopyTrees| known.are_good(ground, set, *threshold_percent);
        copies.get((set, wanted.number()), *epoch, is_good, || {
            let of_version = version.unwrap_or(0);
            if pairs.as_ref().is_none_or(|(known, _)| *known != of_version) {
                *pairs = OwnPairs::new(graph, *own).map(|pairs| (of_version, pairs));
            }
            let pairs = pairs.as_mut().map(|(_, pairs)| pairs);
            pairs.map_or_else(CopyTrees::default, |pairs| pairs.trees(ground, set, wanted))
        })
    }

    /// The shortest paths that visit none of the `avoided` brokers, and do not begin with a link to
    /// one of the `dead` neighbours, which may be reached by other ways. That the own broker is
    /// avoided changes nothing. The last [`DETOURS_MAX`] are remembered.
    pub fn avoiding(&mut self, avoided: &[HostId], dead: &[HostId]) -> Ways<'_> {
        let is_it = |detour: &Detour| *detour.avoided == *avoided && *detour.dead == *dead;
        let at = self.detours.iter().position(is_it).unwrap_or_else(|| self.detour(avoided, dead));
        Ways { own: self.own, graph: &self.graph, paths: &self.detours[at].paths }
    }

    fn detour(&mut self, avoided: &[HostId], dead: &[HostId]) -> usize {
        let paths = Paths::new(&self.graph, self.own, Wanted { avoided, dead, ..self.wanted() });
        let detour = Detour { avoided: avoided.into(), dead: dead.into(), paths };
        if self.detours.len() < DETOURS_MAX {
            self.detours.push(detour);
            return self.detours.len() - 1;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % DETOURS_MAX;
        self.detours[at] = detour;
        at
    }
}
