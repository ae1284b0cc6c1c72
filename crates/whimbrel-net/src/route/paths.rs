//! Shortest paths from one broker to all others.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

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
/// broker.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) spots: Vec<PathStep>,
}

impl Paths {
    /// Paths from `own` that visit none of `avoided` and do not begin with a link to one of `dead`.
    /// Nothing is reached if `own` is not in the graph.
    pub(super) fn new(graph: &Graph, own: HostId, avoided: &[HostId], dead: &[HostId]) -> Paths {
        let Some(source) = graph.index(own) else {
            return Paths { spots: vec![UNREACHED; graph.hosts.len()] };
        };
        let mut search = PathSearch::new(graph, source, avoided);
        let dead: Vec<u32> = dead.iter().filter_map(|host| graph.index(*host)).collect();
        for edge in graph.edges(source).iter().filter(|edge| !dead.contains(&edge.to)) {
            search.relax(source, edge);
        }
        while let Some(Reverse((cost, node))) = search.heap.pop() {
            if cost == search.spots[node as usize].cost {
                for edge in graph.edges(node) {
                    search.relax(node, edge);
                }
            }
        }
        let mut paths = Paths { spots: search.spots };
        paths.rank(source);
        paths
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

struct PathSearch {
    spots: Vec<PathStep>,
    /// It has at most one entry for each edge.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    banned: Vec<bool>,
}

impl PathSearch {
    fn new(graph: &Graph, source: u32, avoided: &[HostId]) -> PathSearch {
        let mut banned = vec![false; graph.hosts.len()];
        for node in avoided.iter().filter_map(|host| graph.index(*host)) {
            banned[node as usize] = true;
        }
        let mut spots = vec![UNREACHED; graph.hosts.len()];
        spots[source as usize] = PathStep { cost: 0, previous: source, first: source, ..UNREACHED };
        PathSearch { spots, heap: BinaryHeap::new(), banned }
    }

    /// Relaxes an edge from a broker whose path is final. As every hop has a positive cost, a
    /// broker whose path becomes better, or equal with a smaller host, is not final yet.
    fn relax(&mut self, from: u32, edge: &GraphEdge) {
        if self.banned[edge.to as usize] {
            return;
        }
        let PathStep { cost, first, depth, .. } = self.spots[from as usize];
        let cost = cost + edge.cost;
        let to = &mut self.spots[edge.to as usize];
        if cost > to.cost || (cost == to.cost && from > to.previous) {
            return;
        }
        if cost < to.cost {
            self.heap.push(Reverse((cost, edge.to)));
        }
        let first = if depth == 0 { edge.to } else { first };
        *to = PathStep { cost, previous: from, first, rank: NONE, port: edge.port, depth: depth + 1 };
    }
}
