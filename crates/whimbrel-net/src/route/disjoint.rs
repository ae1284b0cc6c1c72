//! Pairs of paths from one broker to all others that have as little in common as possible.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::Graph;
use super::paths::Paths;

/// No node.
const NONE: u32 = u32::MAX;

/// What it adds to the weight of a pair that both paths use a link: more than all links of a path
/// cost, so that of pairs with the same brokers in common the one is least that shares fewest
/// links.
pub(super) const SHARED_LINK: u64 = 1 << 43;

/// What it adds to the weight of a pair that both paths visit a broker: more than all links in
/// common.
pub(super) const SHARED_BROKER: u64 = 1 << 53;

/// Two paths to one broker, each from the source to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PathPair {
    /// Brokers on each path, by their indices.
    pub(super) paths: [Vec<u32>; 2],
}

/// For each broker the pair of paths from the source that shares the fewest brokers, of these pairs
/// the fewest links, and of these the one of the least sum of costs, after Suurballe and Tarjan, "A
/// Quick Method for Finding Shortest Pairs of Disjoint Paths" (1984).
///
/// The method finds pairs without a common arc. Here each broker is an arc from the node where its
/// links arrive, twice its index, to the node where they leave, one more; and each arc of the tree
/// of shortest paths exists a second time, at the price of [`SHARED_LINK`] or [`SHARED_BROKER`] on
/// top. So a pair exists for every broker that is reached, and no cut broker is a special case.
/// Other arcs need no second one: both paths of a least pair use an arc only if it is on the
/// shortest path.
///
/// Takes m log n steps for n brokers and m links, and one more for each level of the tree.
#[derive(Debug)]
pub(super) struct DisjointPairs {
    source: u32,
    /// The arc over which each node is reached beside the tree, if it is.
    side_arcs: Vec<SideArc>,
}

/// How the pair of a node differs from the pair of another one.
#[derive(Clone, Copy, Debug)]
struct SideArc {
    /// The node from which an arc beside the tree leads to this one.
    from: u32,
    /// The node whose removal has separated the two: its pair goes on with that arc.
    behind: u32,
}

/// Node of a broker at which its links arrive; one more is where they leave.
fn arrival(broker: u32) -> u32 {
    2 * broker
}

fn departure(broker: u32) -> u32 {
    2 * broker + 1
}

/// The node before another one in the tree of shortest paths.
fn parent(tree: &Paths, node: u32) -> u32 {
    if node % 2 == 1 { node - 1 } else { departure(tree.spots[node as usize / 2].previous) }
}

/// The state of the search: the nodes without a label form pieces, which are connected parts of
/// the tree; each label that is given divides one.
struct Labelling<'a> {
    graph: &'a Graph,
    tree: &'a Paths,
    weights: Vec<u64>,
    side_arcs: Vec<SideArc>,
    is_labelled: Vec<bool>,
    /// By node: the nodes behind it in the tree.
    children: Vec<Vec<u32>>,
    /// By node: its number of nodes without a label that are connected to it from below, itself
    /// included.
    sizes: Vec<u32>,
    /// By node: its piece.
    pieces: Vec<u32>,
    /// By piece: the division that has made it.
    divisions: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl DisjointPairs {
    /// The pairs from a source, of which `tree` has the paths of least cost in the graph. Brokers
    /// that the tree does not reach are on no path.
    pub(super) fn new(graph: &Graph, tree: &Paths, source: u32) -> DisjointPairs {
        let mut labelling = Labelling::new(graph, tree, source);
        labelling.weights[departure(source) as usize] = 0;
        labelling.heap.push(Reverse((0, departure(source))));
        while let Some(Reverse((weight, node))) = labelling.heap.pop() {
            if !labelling.is_labelled[node as usize] && weight == labelling.weights[node as usize] {
                labelling.label(node);
            }
        }
        DisjointPairs { source, side_arcs: labelling.side_arcs }
    }

    /// The pair of a broker that the tree reaches, other than the source.
    pub(super) fn pair(&self, tree: &Paths, broker: u32) -> Option<PathPair> {
        tree.spot(broker).filter(|spot| spot.depth > 0)?;
        let root = departure(self.source);
        let mut marked = Vec::new();
        let mut node = arrival(broker);
        while node != root {
            marked.push(node);
            node = self.side_arcs[node as usize].behind;
        }
        let path = |marked: &mut Vec<u32>| {
            let mut brokers = vec![broker];
            let mut node = arrival(broker);
            while node != root {
                node = match marked.iter().position(|known| *known == node) {
                    Some(at) => {
                        marked.swap_remove(at);
                        self.side_arcs[node as usize].from
                    }
                    None => parent(tree, node),
                };
                // A broker on the way is two nodes.
                if node % 2 == 1 {
                    brokers.push(node / 2);
                }
            }
            brokers.reverse();
            brokers
        };
        Some(PathPair { paths: [path(&mut marked), path(&mut marked)] })
    }
}

impl<'a> Labelling<'a> {
    fn new(graph: &'a Graph, tree: &'a Paths, source: u32) -> Labelling<'a> {
        let count = 2 * tree.spots.len();
        let mut children = vec![Vec::new(); count];
        let mut by_depth: Vec<u32> = Vec::with_capacity(tree.spots.len());
        for broker in (0..tree.spots.len() as u32).filter(|broker| tree.spot(*broker).is_some()) {
            by_depth.push(broker);
            if broker != source {
                children[parent(tree, arrival(broker)) as usize].push(arrival(broker));
                children[arrival(broker) as usize].push(departure(broker));
            }
        }
        by_depth.sort_unstable_by_key(|broker| Reverse(tree.spots[*broker as usize].depth));
        let mut sizes = vec![1; count];
        for broker in by_depth.into_iter().filter(|broker| *broker != source) {
            sizes[arrival(broker) as usize] += sizes[departure(broker) as usize];
            sizes[parent(tree, arrival(broker)) as usize] += sizes[arrival(broker) as usize];
        }
        Labelling {
            graph,
            tree,
            weights: vec![u64::MAX; count],
            side_arcs: vec![SideArc { from: NONE, behind: NONE }; count],
            is_labelled: vec![false; count],
            children,
            sizes,
            pieces: vec![0; count],
            divisions: vec![0],
            heap: BinaryHeap::new(),
        }
    }

    /// Labels the node of least weight: takes it out of its piece, and relaxes all arcs between
    /// what is left of that.
    fn label(&mut self, node: u32) {
        self.is_labelled[node as usize] = true;
        let weight = self.weights[node as usize];
        let piece = self.pieces[node as usize];
        let division = self.divisions.len() as u32;
        let total = self.take_out(node);
        let below: Vec<u32> =
            self.children[node as usize].iter().copied().filter(|child| !self.is_labelled[*child as usize]).collect();
        let above = total - 1 - below.iter().map(|child| self.sizes[*child as usize]).sum::<u32>();
        // The largest part keeps the number of the piece and is not looked at, so that each node
        // is looked at once for each halving of its piece.
        let largest = below.iter().copied().max_by_key(|child| self.sizes[*child as usize]);
        let largest = largest.filter(|child| self.sizes[*child as usize] >= above);
        let mut moved = Vec::new();
        if largest.is_some() && above > 0 {
            self.collect(parent(self.tree, node), node, &mut moved);
            self.renumber(&moved, division);
        }
        for child in below.iter().copied().filter(|child| Some(*child) != largest) {
            let from = moved.len();
            self.collect(child, node, &mut moved);
            let part: Vec<u32> = moved[from..].to_vec();
            self.renumber(&part, division);
        }
        for child in below {
            let shared = if child % 2 == 1 { SHARED_BROKER } else { SHARED_LINK };
            self.relax(weight, (node, node), child, shared);
        }
        self.relax_links_of(node, weight, (piece, division), node, false);
        for other in moved {
            self.relax_links_of(other, weight, (piece, division), node, true);
        }
    }

    /// Takes a labelled node out of the sizes of its piece. Returns the size that this had with it.
    fn take_out(&mut self, node: u32) -> u32 {
        let size = self.sizes[node as usize];
        let mut total = size;
        let mut at = node;
        let root = |at: u32| at % 2 == 1 && self.tree.spots[at as usize / 2].depth == 0;
        while !root(at) {
            at = parent(self.tree, at);
            if self.is_labelled[at as usize] {
                break;
            }
            total = self.sizes[at as usize];
            self.sizes[at as usize] -= size;
        }
        total
    }

    /// Collects the nodes without a label that are connected with one, without going over `apart`.
    fn collect(&self, begin: u32, apart: u32, found: &mut Vec<u32>) {
        let mut open = vec![(begin, apart)];
        while let Some((node, before)) = open.pop() {
            found.push(node);
            let up = (!self.is_root(node)).then(|| parent(self.tree, node));
            let around = self.children[node as usize].iter().copied().chain(up);
            let is_next = |other: &u32| *other != before && !self.is_labelled[*other as usize];
            open.extend(around.filter(is_next).map(|other| (other, node)));
        }
    }

    fn is_root(&self, node: u32) -> bool {
        node % 2 == 1 && self.tree.spots[node as usize / 2].depth == 0
    }

    fn renumber(&mut self, nodes: &[u32], division: u32) {
        let piece = self.divisions.len() as u32;
        self.divisions.push(division);
        for node in nodes {
            self.pieces[*node as usize] = piece;
        }
    }

    /// Relaxes the links beside the tree between a node and the rest of the piece that a division
    /// has parted; `both`: those to the node, too.
    fn relax_links_of(&mut self, node: u32, weight: u64, parted: (u32, u32), behind: u32, both: bool) {
        let (graph, tree) = (self.graph, self.tree);
        let broker = node / 2;
        let cost_to = |broker: u32| tree.spots[broker as usize].cost;
        for edge in graph.edges(broker) {
            if tree.spot(edge.to).is_none() {
                continue;
            }
            // A link is an arc of either direction, at the same cost.
            let (from, to) = if node % 2 == 1 { (broker, edge.to) } else { (edge.to, broker) };
            let is_wanted = node % 2 == 1 || both;
            let is_in_tree = tree.spots[to as usize].previous == from || tree.spots[to as usize].depth == 0;
            let other = if node % 2 == 1 { arrival(edge.to) } else { departure(edge.to) };
            if is_wanted && !is_in_tree && self.is_parted(node, other, parted, behind) {
                let excess = cost_to(from) + edge.cost - cost_to(to);
                self.relax(weight, (departure(from), behind), arrival(to), excess);
            }
        }
    }

    /// Whether two nodes were in a piece before its division, and are not in one part after it.
    fn is_parted(&self, node: u32, other: u32, (piece, division): (u32, u32), behind: u32) -> bool {
        let was_in = |node: u32| {
            let at = self.pieces[node as usize];
            at == piece || self.divisions[at as usize] == division
        };
        let is_open = |node: u32| node == behind || !self.is_labelled[node as usize];
        let is_apart = node == behind || other == behind || self.pieces[node as usize] != self.pieces[other as usize];
        is_open(node) && is_open(other) && was_in(node) && was_in(other) && is_apart
    }

    /// Relaxes an arc, whose first node and the one that was labelled are `by`.
    fn relax(&mut self, weight: u64, (from, behind): (u32, u32), to: u32, excess: u64) {
        let weight = weight + excess;
        if !self.is_labelled[to as usize] && weight < self.weights[to as usize] {
            self.weights[to as usize] = weight;
            self.side_arcs[to as usize] = SideArc { from, behind };
            self.heap.push(Reverse((weight, to)));
        }
    }
}

impl PathPair {
    /// How many brokers are on both paths beside their ends, and how many links.
    pub(super) fn shared(&self) -> (usize, usize) {
        let [one, other] = &self.paths;
        let inner = |path: &'_ Vec<u32>| 1..path.len() - 1;
        let brokers = one[inner(one)].iter().filter(|broker| other[inner(other)].contains(broker)).count();
        let links = one.windows(2).filter(|link| is_link_of(other, link)).count();
        (brokers, links)
    }
}

/// Whether a path is over a link, in this direction.
pub(super) fn is_link_of(path: &[u32], link: &[u32]) -> bool {
    path.windows(2).any(|of| of == link)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::paths::Wanted;

    /// All simple paths from one broker to another.
    pub(crate) fn all_paths(graph: &Graph, from: u32, to: u32) -> Vec<Vec<u32>> {
        fn go_on(graph: &Graph, path: &mut Vec<u32>, to: u32, found: &mut Vec<Vec<u32>>) {
            let at = *path.last().expect("a path begins somewhere");
            if at == to {
                found.push(path.clone());
                return;
            }
            for edge in graph.edges(at) {
                if !path.contains(&edge.to) {
                    path.push(edge.to);
                    go_on(graph, path, to, found);
                    path.pop();
                }
            }
        }
        let mut found = Vec::new();
        go_on(graph, &mut vec![from], to, &mut found);
        found
    }

    pub(crate) fn cost_of(graph: &Graph, path: &[u32]) -> u64 {
        let cost = |link: &[u32]| {
            graph.edges(link[0]).iter().find(|edge| edge.to == link[1]).expect("a link of the graph").cost
        };
        path.windows(2).map(cost).sum()
    }

    fn rank(graph: &Graph, pair: &PathPair) -> ((usize, usize), u64) {
        (pair.shared(), pair.paths.iter().map(|path| cost_of(graph, path)).sum())
    }

    /// Connected or not: brokers, and links with their costs.
    pub(crate) fn graphs(brokers: u32) -> impl Strategy<Value = Graph> {
        let links = proptest::collection::vec((0..brokers, 0..brokers, 1_u64..50), 1..20);
        (2..=brokers, links).prop_map(|(count, links)| {
            let links: Vec<(u32, u32, u64)> =
                links.into_iter().map(|(one, other, cost)| (one % count, other % count, cost)).collect();
            Graph::of_links(count, &links)
        })
    }

    proptest! {
        #[test]
        fn no_pair_shares_less_and_of_those_none_is_shorter(graph in graphs(7)) {
            let tree = Paths::new(&graph, graph.hosts[0], Wanted::default());
            let pairs = DisjointPairs::new(&graph, &tree, 0);
            for to in 1..graph.hosts.len() as u32 {
                let all = all_paths(&graph, 0, to);
                let every = all.iter().flat_map(|one| {
                    all.iter().map(|other| rank(&graph, &PathPair { paths: [one.clone(), other.clone()] }))
                });
                let pair = pairs.pair(&tree, to);
                prop_assert_eq!(pair.as_ref().map(|pair| rank(&graph, pair)), every.min());
                for path in pair.iter().flat_map(|pair| &pair.paths) {
                    prop_assert!(all.contains(path), "{:?} is no simple path to {}", path, to);
                }
            }
        }
    }
}
