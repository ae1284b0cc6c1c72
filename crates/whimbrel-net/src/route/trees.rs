//! The paths to a set of brokers, merged.

use std::collections::{BTreeMap, BTreeSet};

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
pub(super) fn end_of_part(nodes: &[TreeNode]) -> Option<usize> {
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

/// Paths from one source, joined: what is behind a link is the same wherever that link stands in
/// the tree. So a broker that passes each part on once sends an event over each link once, and what
/// is behind it is reached over any of the paths to it.
#[derive(Debug, Default)]
struct JoinedPaths {
    /// By link: the brokers to which some path goes on.
    next: BTreeMap<(u32, u32), BTreeSet<u32>>,
    /// By link: the destination whose path ends with it.
    ends: BTreeMap<(u32, u32), u16>,
    /// The brokers to which paths begin.
    first: BTreeSet<u32>,
}

impl JoinedPaths {
    fn add(&mut self, path: &[u32], number: u16) {
        let [source, first, ..] = path else { return };
        self.first.insert(*first);
        for links in path.windows(3) {
            self.next.entry((links[0], links[1])).or_default().insert(links[2]);
        }
        let [.., before, last] = path else { return };
        self.ends.insert((*before, *last), number);
        debug_assert!(path[1..].iter().all(|broker| broker != source), "a path visits no broker twice");
    }

    /// The tree of all paths; `None` if it has more nodes than [`TREE_NODES_MAX`].
    fn tree(&self, graph: &Graph, source: u32) -> Option<Tree> {
        let mut left = TREE_NODES_MAX - 1;
        let mut way = vec![source];
        let next = self.branches(graph, &self.first, &mut way, &mut left)?;
        Some(Branches { next, destination: None }.finish(graph))
    }

    /// What goes on from the last broker of a way, without links that are on it: paths could lead
    /// in a circle together.
    fn branches(
        &self,
        graph: &Graph,
        brokers: &BTreeSet<u32>,
        way: &mut Vec<u32>,
        left: &mut usize,
    ) -> Option<BTreeMap<(u16, u32), Branches>> {
        const NONE: &BTreeSet<u32> = &BTreeSet::new();
        let from = *way.last().expect("a way begins at the source");
        let mut found = BTreeMap::new();
        for to in brokers {
            if way.windows(2).any(|link| link == [from, *to]) || way.len() > usize::from(TREE_DEPTH_MAX) {
                continue;
            }
            *left = left.checked_sub(1)?;
            way.push(*to);
            let next = self.branches(graph, self.next.get(&(from, *to)).unwrap_or(NONE), way, left)?;
            way.pop();
            let destination = self.ends.get(&(from, *to)).copied();
            let port = graph.edge(from, *to).expect("a path is over links").port;
            if destination.is_some() || !next.is_empty() {
                found.insert((port, *to), Branches { next, destination });
            }
        }
        Some(found)
    }
}

/// Joins several paths from a source to each destination of a set, which are in the order of the
/// set. A path that is longer than [`TREE_DEPTH_MAX`] is left out.
pub(super) fn join(graph: &Graph, source: u32, paths: &[Vec<Vec<u32>>]) -> Trees {
    let fits = |path: &&Vec<u32>| (2..=usize::from(TREE_DEPTH_MAX) + 1).contains(&path.len());
    let mut result = Trees::default();
    let mut wanted: Vec<(u16, &[Vec<u32>])> = Vec::new();
    for (number, paths) in (0..).zip(paths) {
        if paths.iter().any(|path| fits(&path)) {
            wanted.push((number, paths));
        } else {
            result.unreachable.push(number);
        }
    }
    // Destinations are divided until the tree of each part is small enough.
    let mut open = vec![wanted];
    while let Some(part) = open.pop().filter(|part| !part.is_empty()) {
        let mut joined = JoinedPaths::default();
        for (number, paths) in &part {
            paths.iter().filter(fits).for_each(|path| joined.add(path, *number));
        }
        match joined.tree(graph, source) {
            Some(tree) => result.trees.push(tree),
            None if part.len() > 1 => {
                let (one, other) = part.split_at(part.len() / 2);
                open.extend([other.to_vec(), one.to_vec()]);
            }
            None => {
                // There are too many paths to this one: two, or else one.
                let few = |most: usize| {
                    let mut few = JoinedPaths::default();
                    for (number, paths) in &part {
                        paths.iter().filter(fits).take(most).for_each(|path| few.add(path, *number));
                    }
                    few.tree(graph, source)
                };
                result.trees.extend(few(2).or_else(|| few(1)));
            }
        }
    }
    result.unreachable.sort_unstable();
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
