//! Shortest paths from one broker to all others.

use core::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use whimbrel_event::HostId;

use super::graph::{Graph, GraphEdge};

/// No broker.
const NONE: u32 = u32::MAX;

/// The end of the path to one broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathStep {
    /// Microseconds; [`u64::MAX`] if it cannot be reached.
    pub(super) cost: u64,
    /// The broker before it on the path; itself at the source.
    pub(super) previous: u32,
    /// The first broker on the path after the source.
    first: u32,
    /// Its place in the tree of all paths in pre-order, children in the order of their ports.
    pub(super) rank: u32,
    /// The previous broker's number of the link.
    pub(super) port: u16,
    /// Number of links on the path.
    pub(super) depth: u16,
}

const UNREACHED: PathStep = PathStep { cost: u64::MAX, previous: NONE, first: NONE, rank: NONE, port: 0, depth: 0 };

impl PathStep {
    pub(super) fn is_reached(&self) -> bool {
        self.previous != NONE
    }
}

/// Shortest paths from one broker to all others, after Dijkstra, "A Note on Two Problems in
/// Connexion with Graphs" (1959).
///
/// Of several shortest paths to a broker, the one whose last broker but one has the smallest host
/// id is taken, and so on towards the source. So the same links give the same paths at every
/// broker that had none before.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) spots: Vec<PathStep>,
}

impl Paths {
    /// Paths from `own` as they are wanted. Nothing is reached if `own` is not in the graph.
    pub(super) fn new(graph: &Graph, own: HostId, wanted: Wanted<'_>) -> Paths {
        let Some(source) = graph.index(own) else {
            return Paths { spots: vec![UNREACHED; graph.hosts.len()] };
        };
        let mut search = PathSearch::new(graph, source, wanted);
        let dead: Vec<u32> = wanted.dead.iter().filter_map(|host| graph.index(*host)).collect();
        for edge in graph.edges(source).iter().filter(|edge| !dead.contains(&edge.to)) {
            search.relax(source, edge);
        }
        search.is_behind_source = true;
        while let Some(Reverse((weight, node))) = search.heap.pop() {
            if weight == search.weights[node as usize] {
                for edge in graph.edges(node) {
                    search.relax(node, edge);
                }
            }
        }
        let mut paths = Paths { spots: search.spots };
        paths.rank(source);
        paths
    }

    /// By broker of `later`: the broker before it on the path here, of `graph`, as an index in
    /// `later`; [`NONE`] where there is none. One step for each broker, and in addition log n where
    /// the brokers differ.
    pub(super) fn previous_in(&self, graph: &Graph, later: &Graph) -> Vec<u32> {
        let before = |(node, host): (usize, &HostId)| {
            let is_same = graph.hosts.get(node) == Some(host);
            let spot = self.spot(if is_same { node as u32 } else { graph.index(*host)? })?;
            let previous = graph.hosts[spot.previous as usize];
            let is_same = later.hosts.get(spot.previous as usize) == Some(&previous);
            if is_same { Some(spot.previous) } else { later.index(previous) }
        };
        later.hosts.iter().enumerate().map(|of| before(of).unwrap_or(NONE)).collect()
    }

    /// Numbers the tree of all paths in pre-order.
    fn rank(&mut self, source: u32) {
        let mut children: Vec<(u32, u16, u32)> = Vec::with_capacity(self.spots.len());
        for (node, spot) in self.spots.iter().enumerate() {
            if spot.is_reached() && node as u32 != source {
                children.push((spot.previous, spot.port, node as u32));
            }
        }
        children.sort_unstable();
        let mut begins = vec![0; self.spots.len() + 1];
        for (previous, _, _) in &children {
            begins[*previous as usize + 1] += 1;
        }
        for node in 0..self.spots.len() {
            begins[node + 1] += begins[node];
        }
        let mut open = vec![source];
        let mut rank = 0;
        while let Some(node) = open.pop() {
            self.spots[node as usize].rank = rank;
            rank += 1;
            let below = &children[begins[node as usize]..begins[node as usize + 1]];
            open.extend(below.iter().rev().map(|(_, _, child)| *child));
        }
    }

    /// Whether all paths go over the same brokers and ports, whatever their costs. Both must be of
    /// the same set of brokers.
    pub(super) fn is_same_way(&self, other: &Paths) -> bool {
        let way = |spot: &PathStep| (spot.previous, spot.port);
        self.spots.iter().map(way).eq(other.spots.iter().map(way))
    }

    /// The path to the broker with that index, if it is reached.
    pub(super) fn spot(&self, node: u32) -> Option<&PathStep> {
        self.spots.get(node as usize).filter(|spot| spot.is_reached())
    }

    /// The first broker on the path to another one, and the source's number of the link to it.
    /// `None` for the source itself.
    pub(super) fn first(&self, node: u32) -> Option<(u32, u16)> {
        let first = self.spot(node).filter(|spot| spot.depth > 0)?.first;
        Some((first, self.spots[first as usize].port))
    }
}

/// What is wanted of paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// The brokers that no path visits.
    pub(super) avoided: &'a [HostId],
    /// The neighbours with links to which no path begins.
    pub(super) dead: &'a [HostId],
    /// By broker: the one before it on the present path, [`NONE`] without one; empty: there are no
    /// present paths.
    pub(super) kept: &'a [u32],
    /// By how much an edge of a present path counts less, per cent.
    pub(super) threshold_percent: u8,
    /// The brokers that are reached over the source's own links only, while other paths take the
    /// fewest links; `None`: all paths take the least cost.
    pub(super) direct_to: Option<&'a BTreeSet<HostId>>,
}

struct PathSearch<'a> {
    spots: Vec<PathStep>,
    /// By broker: the sum that the search minimizes, of the edges' weights.
    weights: Vec<u64>,
    /// It has at most one entry for each edge.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Brokers that no path visits.
    banned: Vec<bool>,
    /// Brokers that are reached from the source only.
    met: Vec<bool>,
    wanted: Wanted<'a>,
    /// The source's own links are relaxed.
    is_behind_source: bool,
}

impl<'a> PathSearch<'a> {
    fn new(graph: &Graph, source: u32, wanted: Wanted<'a>) -> PathSearch<'a> {
        let size = graph.hosts.len();
        let marked = |hosts: &mut dyn Iterator<Item = &HostId>| {
            let mut marks = vec![false; size];
            for node in hosts.filter_map(|host| graph.index(*host)) {
                marks[node as usize] = true;
            }
            marks
        };
        let banned = marked(&mut wanted.avoided.iter());
        let met = marked(&mut wanted.direct_to.into_iter().flatten());
        let mut spots = vec![UNREACHED; size];
        spots[source as usize] = PathStep { cost: 0, previous: source, first: source, ..UNREACHED };
        let mut weights = vec![u64::MAX; size];
        weights[source as usize] = 0;
        PathSearch { spots, weights, heap: BinaryHeap::new(), banned, met, wanted, is_behind_source: false }
    }

    /// What an edge adds to the sum that is minimized; positive.
    fn weight(&self, from: u32, edge: &GraphEdge) -> u64 {
        if self.wanted.direct_to.is_some() {
            return 1;
        }
        match self.wanted.kept.get(edge.to as usize) {
            Some(previous) if *previous == from => {
                edge.cost - edge.cost * u64::from(self.wanted.threshold_percent) / 100
            }
            _ => edge.cost,
        }
    }

    /// Relaxes an edge from a broker whose path is final. As every hop has a positive cost, a
    /// broker whose path becomes better, or equal with a smaller host, is not final yet.
    fn relax(&mut self, from: u32, edge: &GraphEdge) {
        if self.banned[edge.to as usize] || (self.is_behind_source && self.met[edge.to as usize]) {
            return;
        }
        let weight = self.weights[from as usize] + self.weight(from, edge);
        let PathStep { cost, first, depth, .. } = self.spots[from as usize];
        let (least, to) = (&mut self.weights[edge.to as usize], &mut self.spots[edge.to as usize]);
        if weight > *least || (weight == *least && from > to.previous) {
            return;
        }
        if weight < *least {
            self.heap.push(Reverse((weight, edge.to)));
        }
        *least = weight;
        let first = if depth == 0 { edge.to } else { first };
        *to = PathStep { cost: cost + edge.cost, previous: from, first, rank: NONE, port: edge.port, depth: depth + 1 };
    }
}
