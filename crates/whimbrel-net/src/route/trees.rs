//! The paths to a set of brokers, merged.

use std::collections::BTreeMap;

use whimbrel_event::HostId;
use whimbrel_wire::Protocol;

use super::Ways;
use super::cached::CachedPlan;
use super::graph::Graph;

/// Most nodes of one tree, its root included; a set that needs more gets several trees.
pub const TREE_NODES_MAX: usize = 4_096;

/// Most links between the root of a tree and any of its nodes. A broker farther away is
/// unreachable.
pub const TREE_DEPTH_MAX: u16 = whimbrel_wire::DEPTH_MAX as u16;

/// A broker in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Its parent's number of the link to it; 0 at the root.
    pub port: u16,
    /// Number of its children.
    pub children: u16,
    /// Its index in the set of destinations, if it is one.
    pub destination: Option<u16>,
}

/// Shortest paths, merged. Every leaf is a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// In pre-order, so the own broker is first; children in the order of their ports. At most
    /// [`TREE_NODES_MAX`].
    pub nodes: Vec<TreeNode>,
    /// What all brokers of the tree speak: a frame goes along it in a form that all of them know.
    pub protocol: Protocol,
}

impl Tree {
    /// The parts of the tree for each neighbour of its root: each begins with the neighbour's node.
    pub fn parts(&self) -> impl Iterator<Item = &[TreeNode]> {
        let mut rest = &self.nodes[1..];
        core::iter::from_fn(move || {
            let (part, behind) = rest.split_at(end_of_part(rest)?);
            rest = behind;
            Some(part)
        })
    }

    /// The indices of destinations in the parts behind other ports than these.
    pub(crate) fn destinations_but(&self, ports: &[u16]) -> impl Iterator<Item = u16> {
        let parts = self.parts().filter(|part| !ports.contains(&part[0].port));
        parts.flatten().filter_map(|node| node.destination)
    }
}

/// The number of nodes of the part that begins here, in pre-order; `None`: there is none.
fn end_of_part(nodes: &[TreeNode]) -> Option<usize> {
    let mut left = 1_usize;
    let ends = nodes.iter().position(|node| {
        left = left - 1 + usize::from(node.children);
        left == 0
    });
    ends.map(|last| last + 1)
}

/// The trees of paths to a set of brokers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trees {
    /// One tree; several if one would be too large, none if no broker is reached. Each
    /// reachable destination is in exactly one of them.
    pub trees: Vec<Tree>,
    /// Indices of the destinations that cannot be reached, in order.
    pub unreachable: Vec<u16>,
}

impl CachedPlan for Trees {
    fn size(&self) -> usize {
        self.trees.iter().map(|tree| tree.nodes.len()).sum::<usize>() + self.unreachable.len()
    }
}

/// A tree that is built in pre-order.
struct Growing {
    nodes: Vec<TreeNode>,
    protocol: Protocol,
    /// The path from the root to the node added last: index of the broker, place among the nodes.
    way: Vec<(u32, usize)>,
}

const ROOT: TreeNode = TreeNode { port: 0, children: 0, destination: None };

impl Growing {
    fn new(source: u32) -> Growing {
        Growing { nodes: vec![ROOT], protocol: Protocol::OWN, way: vec![(source, 0)] }
    }

    /// Collects the brokers between a node and the path, from below. Cuts the path off behind the
    /// branch.
    fn missing(&mut self, ways: &Ways<'_>, node: u32, missing: &mut Vec<u32>) {
        missing.clear();
        let mut at = node;
        loop {
            let spot = &ways.paths.spots[at as usize];
            if self.way.get(usize::from(spot.depth)).is_some_and(|(known, _)| *known == at) {
                self.way.truncate(usize::from(spot.depth) + 1);
                return;
            }
            missing.push(at);
            at = spot.previous;
        }
    }

    fn push(&mut self, node: u32, port: u16, protocol: Protocol) {
        self.protocol = self.protocol.common(protocol);
        let (_, parent) = *self.way.last().expect("the root stays");
        self.nodes[parent].children += 1;
        self.way.push((node, self.nodes.len()));
        self.nodes.push(TreeNode { port, ..ROOT });
    }

    fn finish(self) -> Tree {
        Tree { nodes: self.nodes, protocol: self.protocol }
    }
}

/// The paths that go on from a broker, by the port and the broker that is next.
#[derive(Debug, Default)]
struct Branches {
    next: BTreeMap<(u16, u32), Branches>,
    destination: Option<u16>,
}

impl Branches {
    /// Adds a path, from its second broker on. Returns how many nodes that takes.
    fn add(&mut self, graph: &Graph, path: &[u32], number: u16) -> usize {
        let [from, rest @ ..] = path else { return 0 };
        let Some(to) = rest.first() else {
            self.destination = Some(number);
            return 0;
        };
        let port = graph.edge(*from, *to).expect("a path is over links").port;
        let is_new = !self.next.contains_key(&(port, *to));
        usize::from(is_new) + self.next.entry((port, *to)).or_default().add(graph, rest, number)
    }

    /// Writes what is below a node that has been written.
    fn write(&self, graph: &Graph, tree: &mut Tree) {
        for ((port, broker), below) in &self.next {
            let (children, destination) = (below.next.len() as u16, below.destination);
            tree.protocol = tree.protocol.common(graph.protocols[*broker as usize]);
            tree.nodes.push(TreeNode { port: *port, children, destination });
            below.write(graph, tree);
        }
    }

    fn finish(&self, graph: &Graph) -> Tree {
        let root = TreeNode { children: self.next.len() as u16, ..ROOT };
        let mut tree = Tree { nodes: vec![root], protocol: Protocol::OWN };
        self.write(graph, &mut tree);
        tree
    }
}

/// Joins several paths from a source to each destination of a set, which are in the order of the
/// set. A path that is longer than [`TREE_DEPTH_MAX`] is left out.
pub(super) fn join(graph: &Graph, source: u32, paths: &[Vec<Vec<u32>>]) -> Trees {
    let mut result = Trees::default();
    let (mut branches, mut nodes) = (Branches::default(), 1);
    for (number, paths) in (0..).zip(paths) {
        let fits = |path: &&Vec<u32>| path.len() <= usize::from(TREE_DEPTH_MAX) + 1 && path.first() == Some(&source);
        let paths: Vec<&Vec<u32>> = paths.iter().filter(fits).collect();
        if paths.is_empty() {
            result.unreachable.push(number);
        }
        if nodes + paths.iter().map(|path| path.len()).sum::<usize>() > TREE_NODES_MAX {
            result.trees.push(core::mem::take(&mut branches).finish(graph));
            nodes = 1;
        }
        nodes += paths.into_iter().map(|path| branches.add(graph, path, number)).sum::<usize>();
    }
    if nodes > 1 {
        result.trees.push(branches.finish(graph));
    }
    result
}

/// Merges the paths to a set of brokers, which is sorted and at most as large as the topology can
/// be.
pub(super) fn merge(ways: &Ways<'_>, set: &[HostId]) -> Trees {
    assert!(set.len() <= usize::from(u16::MAX), "a set has at most as many brokers as there are");
    assert!(set.is_sorted_by(|one, other| one < other), "sets are sorted and without repetition");
    let mut result = Trees::default();
    let mut wanted: Vec<(u32, u32, u16)> = Vec::with_capacity(set.len());
    for (number, host) in (0..).zip(set) {
        let node = ways.graph.index(*host);
        match node.and_then(|node| Some((node, ways.paths.spot(node)?))) {
            Some((node, spot)) if spot.depth <= TREE_DEPTH_MAX => wanted.push((spot.rank, node, number)),
            _ => result.unreachable.push(number),
        }
    }
    let Some(source) = ways.graph.index(ways.own).filter(|_| !wanted.is_empty()) else { return result };
    wanted.sort_unstable();
    let mut tree = Growing::new(source);
    let mut missing = Vec::new();
    for (_, node, number) in wanted {
        tree.missing(ways, node, &mut missing);
        if tree.nodes.len() + missing.len() > TREE_NODES_MAX {
            result.trees.push(tree.finish());
            tree = Growing::new(source);
            tree.missing(ways, node, &mut missing);
        }
        for node in missing.iter().rev() {
            let (port, protocol) = (ways.paths.spots[*node as usize].port, ways.graph.protocols[*node as usize]);
            tree.push(*node, port, protocol);
        }
        let (_, place) = *tree.way.last().expect("the root stays");
        tree.nodes[place].destination = Some(number);
    }
    result.trees.push(tree.finish());
    result
}
