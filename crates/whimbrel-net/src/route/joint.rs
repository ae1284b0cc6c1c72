//! Two paths to each broker of a set, in one tree.

use std::collections::{BTreeMap, BTreeSet};

use super::disjoint::{DisjointPairs, PathPair};
use super::graph::{Graph, GraphEdge};
use super::pair::PairSearch;
use super::paths::{Paths, Wanted};

/// What a broker that is no destination adds to the weight of a path, so that destinations relay
/// for each other: more than the links of a path cost, and less than a link that is shared.
const RELAY: u64 = 1 << 33;

/// Most links of the graph times destinations for which paths are shared. Beyond that each
/// destination has its shortest pair, whatever its deadline.
pub(super) const SHARING_WORK_MAX: usize = 1 << 16;

/// Most orders that are tried.
const ORDERS_MAX: usize = 3;

/// Most paths to one broker: two, and twice as many behind each link without which a part of the
/// graph is cut off.
const PATHS_MAX: usize = 8;

/// Paths from a source to a set of brokers, two to each, that have no broker in common if there are
/// two such paths within the deadline: redundant trees, after Itai and Rodeh, "The Multi-Tree
/// Approach to Reliability in Distributed Networks" (1988), grown by ears.
///
/// The brokers have an order, in which the source is both the first and the last one. Each has a
/// low path, over brokers before it, and a high path, over brokers behind it. So the two have
/// nothing in common for all brokers at once, and no link is crossed twice in one direction,
/// whichever brokers relay for others. An ear is a path over new brokers whose ends are placed; its
/// brokers are put into the order between these.
///
/// Behind a cut broker there is an order of its own, in which that broker is the first and the last
/// one. Behind a bridge all paths go on over all paths that lead to the bridge: its first broker
/// passes on what arrives first.
#[derive(Debug)]
pub(super) struct JointPaths<'a> {
    search: PairSearch<'a>,
    destinations: BTreeSet<u32>,
    placed: BTreeMap<u32, PlacedBroker>,
    blocks: Vec<OrderBlock>,
}

/// A part of the graph that no single broker cuts off.
#[derive(Debug)]
struct OrderBlock {
    root: u32,
    /// Its other brokers that are placed.
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
struct PlacedBroker {
    /// The block in which it has its place.
    block: usize,
    low: Side,
    high: Side,
}

/// The paths to a broker on one side, from the source to it.
#[derive(Clone, Debug)]
struct Side {
    paths: Vec<Vec<u32>>,
    /// Of the first of them, microseconds.
    time_us: u64,
}

impl Side {
    fn beyond(&self, broker: u32, edge: &GraphEdge) -> Side {
        let beyond = |path: &Vec<u32>| path.iter().copied().chain([broker]).collect();
        Side { paths: self.paths.iter().map(beyond).collect(), time_us: self.time_us + edge.time_us() }
    }
}

/// A path over brokers without a place, to a new destination and beyond, between two placed ones.
#[derive(Debug)]
struct Ear {
    block: EarBlock,
    /// Its brokers, from the low end to the high one.
    brokers: Vec<u32>,
    low_end: u32,
    high_end: u32,
    /// The times of both paths to the destination, microseconds.
    times_us: [u64; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EarBlock {
    Known(usize),
    /// One behind a broker that has none behind it so far.
    Behind(u32),
    /// A single link behind this broker.
    Bridge(u32),
}

impl<'a> JointPaths<'a> {
    /// The paths to each of these brokers, in their order; none to one that is not reached.
    ///
    /// A destination that has worse paths than its own pair would be goes first, and the order is
    /// made anew; where that does not help it has its own pair.
    /// `best`: see [`PairSearch::best`]; it is asked for where paths are shared.
    pub(super) fn find(
        search: PairSearch<'a>,
        destinations: &[u32],
        best: &mut impl FnMut(u32) -> Option<PathPair>,
    ) -> Vec<Vec<Vec<u32>>> {
        let (_, links) = search.graph.size();
        if links * destinations.len() > SHARING_WORK_MAX {
            let shortest =
                |to: &u32| search.pairs.pair(search.tree, *to).map_or_else(Vec::new, |pair| pair.paths.into());
            return destinations.iter().map(shortest).collect();
        }
        let own: BTreeMap<u32, PathPair> = destinations.iter().filter_map(|to| Some((*to, best(*to)?))).collect();
        let pair = |to: &u32| own.get(to).map_or_else(Vec::new, |own| own.paths.to_vec());
        let mut order: Vec<u32> = own.keys().copied().collect();
        order.sort_by_key(|to| search.tree.spots[*to as usize].cost);
        let mut fewest: Option<(usize, JointPaths<'a>)> = None;
        for _ in 0..ORDERS_MAX {
            let joint = JointPaths::of(search, &order);
            let worse: BTreeSet<u32> =
                own.iter().filter(|(to, own)| !joint.is_as_good(**to, own)).map(|(to, _)| *to).collect();
            order.sort_by_key(|to| !worse.contains(to));
            if fewest.as_ref().is_none_or(|(count, _)| worse.len() < *count) {
                fewest = Some((worse.len(), joint));
            }
            if worse.is_empty() {
                break;
            }
        }
        let Some((_, joint)) = fewest else { return Vec::new() };
        let paths = |to: &u32| match own.get(to) {
            Some(own) if joint.is_as_good(*to, own) => joint.placed[to].paths(),
            _ => pair(to),
        };
        destinations.iter().map(paths).collect()
    }

    /// Places brokers, in this order.
    fn of(search: PairSearch<'a>, destinations: &[u32]) -> JointPaths<'a> {
        let mut joint = JointPaths::new(search, destinations);
        destinations.iter().for_each(|to| joint.place(*to));
        joint
    }

    /// Whether as many paths to a broker are in time as with a pair, and share as little.
    fn is_as_good(&self, to: u32, pair: &PathPair) -> bool {
        let least = self.search.safety(pair);
        self.placed.get(&to).is_some_and(|placed| self.search.safety(&placed.pair()) <= least)
    }

    fn new(search: PairSearch<'a>, destinations: &[u32]) -> JointPaths<'a> {
        let source = search.source;
        let side = Side { paths: vec![vec![source]], time_us: 0 };
        let root = PlacedBroker { block: usize::MAX, low: side.clone(), high: side };
        JointPaths {
            search,
            destinations: destinations.iter().copied().collect(),
            placed: [(source, root)].into(),
            blocks: vec![OrderBlock { root: source, order: Vec::new() }],
        }
    }

    /// Gives a broker its places, and brokers that cut it off theirs before.
    fn place(&mut self, to: u32) {
        let mut found: Option<Ear> = None;
        for relay in [RELAY, 0] {
            if self.placed.contains_key(&to) {
                return;
            }
            let ear = match self.ear(to, relay) {
                Ok(ear) => ear,
                Err(cut) => {
                    // It is nearer to the source, and on all pairs of paths to this one.
                    self.place(cut);
                    if self.placed.contains_key(&to) {
                        return;
                    }
                    self.ear(to, relay).ok().flatten()
                }
            };
            if let Some(ear) = ear
                && found.as_ref().is_none_or(|found| self.late_sides(&ear) < self.late_sides(found))
            {
                found = Some(ear);
            }
            if found.as_ref().is_some_and(|found| self.late_sides(found) == 0) {
                break;
            }
        }
        if let Some(ear) = found {
            self.insert(&ear);
        }
    }

    /// The ear on which a broker gets its place: of those that share least the one with the least
    /// weight. `Err`: a broker without a place that is on both paths, and has to be placed before;
    /// `None`: there is no place for it in the order.
    fn ear(&self, to: u32, relay: u64) -> Result<Option<Ear>, u32> {
        let graph = self.graph(relay);
        let source = self.search.source;
        let tree = Paths::new(&graph, graph.hosts[source as usize], Wanted::default());
        let Some(pair) = DisjointPairs::new(&graph, &tree, source).pair(&tree, to) else { return Ok(None) };
        let [one, other] = pair.paths.map(|path| {
            let end = path.iter().rposition(|broker| self.placed.contains_key(broker)).unwrap_or(0);
            (path[end], path[end + 1..path.len() - 1].to_vec())
        });
        // The last one: the others are on all pairs of paths to that.
        if let Some(cut) = one.1.iter().rev().find(|broker| other.1.contains(broker)) {
            return Err(*cut);
        }
        let flipped = [(&one, &other), (&other, &one)];
        let ears = flipped.into_iter().filter_map(|(low, high)| self.oriented(to, low, high));
        Ok(ears.min_by_key(|ear| (self.late_sides(ear), ear.times_us.iter().sum::<u64>())))
    }

    /// How many of the paths to an ear's destination miss the deadline.
    fn late_sides(&self, ear: &Ear) -> usize {
        ear.times_us.iter().filter(|time| **time > self.search.deadline_us).count()
    }

    /// The graph in which ears are found: the source has a link to each placed broker that costs
    /// what the quicker path to it does.
    fn graph(&self, relay: u64) -> Graph {
        let source = self.search.source;
        let times = self.placed.iter().filter(|(broker, _)| **broker != source);
        let times = times.map(|(broker, placed)| (*broker, placed.low.time_us.min(placed.high.time_us)));
        let is_relay = |broker: u32| !self.destinations.contains(&broker) && !self.placed.contains_key(&broker);
        // Half of it for each of the two links over which a path visits a broker.
        let weight = |broker: u32| if is_relay(broker) { relay / 2 } else { 0 };
        self.search.graph.with_links_of(source, &times.collect(), weight)
    }

    /// The ear with these ways as its low and its high part; `None` if the order does not allow it.
    fn oriented(&self, to: u32, low: &(u32, Vec<u32>), high: &(u32, Vec<u32>)) -> Option<Ear> {
        let (low_end, high_end) = (low.0, high.0);
        let is_bridge = low_end == high_end && low.1.is_empty() && high.1.is_empty();
        let block = if is_bridge { EarBlock::Bridge(low_end) } else { self.block_of(low_end, high_end)? };
        let brokers: Vec<u32> = low.1.iter().copied().chain([to]).chain(high.1.iter().rev().copied()).collect();
        let time = |end: u32, side: fn(&PlacedBroker) -> &Side, way: &[u32]| {
            let path: Vec<u32> = [end].into_iter().chain(way.iter().copied()).chain([to]).collect();
            side(&self.placed[&end]).time_us + self.search.time_us(&path)
        };
        let times_us = [time(low_end, |placed| &placed.low, &low.1), time(high_end, |placed| &placed.high, &high.1)];
        Some(Ear { block, brokers, low_end, high_end, times_us })
    }

    /// The block in which an ear has these ends, if the first one is before the second one there.
    fn block_of(&self, low_end: u32, high_end: u32) -> Option<EarBlock> {
        let block = |broker: u32| self.placed[&broker].block;
        if low_end == high_end {
            let known = self.blocks.iter().position(|block| block.root == low_end);
            return Some(known.map_or(EarBlock::Behind(low_end), EarBlock::Known));
        }
        let root = |broker: u32| self.blocks.get(block(broker)).map(|block| block.root);
        if block(low_end) == block(high_end) {
            let order = &self.blocks.get(block(low_end))?.order;
            let place = |broker: u32| order.iter().position(|known| *known == broker);
            return (place(low_end) < place(high_end)).then_some(EarBlock::Known(block(low_end)));
        }
        if root(high_end) == Some(low_end) {
            return Some(EarBlock::Known(block(high_end)));
        }
        (root(low_end) == Some(high_end)).then(|| EarBlock::Known(block(low_end)))
    }

    /// Places the brokers of an ear.
    fn insert(&mut self, ear: &Ear) {
        let block = match ear.block {
            EarBlock::Known(block) => block,
            EarBlock::Behind(root) => {
                self.blocks.push(OrderBlock { root, order: Vec::new() });
                self.blocks.len() - 1
            }
            EarBlock::Bridge(root) => return self.insert_bridge(root, ear.brokers[0]),
        };
        let order = &mut self.blocks[block].order;
        let place = |broker: u32| order.iter().position(|known| *known == broker);
        let at = place(ear.low_end).map(|place| place + 1).or(place(ear.high_end)).unwrap_or(0);
        order.splice(at..at, ear.brokers.iter().copied());
        let sides = |end: u32, side: fn(&PlacedBroker) -> &Side, brokers: &mut dyn Iterator<Item = u32>| {
            let (mut before, mut last) = (side(&self.placed[&end]).clone(), end);
            let mut found = BTreeMap::new();
            for broker in brokers {
                let edge = self.search.graph.edge(last, broker).expect("an ear is a path");
                (before, last) = (before.beyond(broker, edge), broker);
                found.insert(broker, before.clone());
            }
            found
        };
        let low = sides(ear.low_end, |placed| &placed.low, &mut ear.brokers.iter().copied());
        let high = sides(ear.high_end, |placed| &placed.high, &mut ear.brokers.iter().rev().copied());
        let placed =
            low.into_iter().zip(high).map(|((broker, low), (_, high))| (broker, PlacedBroker { block, low, high }));
        self.placed.extend(placed);
    }

    /// Places a broker behind a single link.
    fn insert_bridge(&mut self, root: u32, broker: u32) {
        let edge = self.search.graph.edge(root, broker).expect("a bridge is a link");
        let before = &self.placed[&root];
        let both = |side: &Side| Side { paths: before.paths(), ..*side }.beyond(broker, edge);
        let placed = PlacedBroker { block: usize::MAX, low: both(&before.low), high: both(&before.high) };
        self.placed.insert(broker, placed);
    }
}

impl PlacedBroker {
    /// All paths to it, each once, at most [`PATHS_MAX`].
    fn paths(&self) -> Vec<Vec<u32>> {
        let mut paths = self.low.paths.clone();
        paths.extend(self.high.paths.iter().filter(|path| !self.low.paths.contains(path)).cloned());
        paths.truncate(PATHS_MAX);
        paths
    }

    fn pair(&self) -> PathPair {
        PathPair { paths: [self.low.paths[0].clone(), self.high.paths.last().expect("each side has a path").clone()] }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::disjoint::tests::graphs;
    use crate::route::pair::tests::with_search;
    use crate::route::trees;

    /// How often each link is crossed in each direction, if each broker passes a part of the tree
    /// on only once.
    fn crossings(graph: &Graph, source: u32, paths: &[Vec<Vec<u32>>]) -> BTreeMap<[u32; 2], usize> {
        let trees = trees::join(graph, source, paths).trees;
        let mut parts: BTreeMap<[u32; 2], BTreeSet<String>> = BTreeMap::new();
        for tree in &trees {
            // From each node: its broker, and the end of its part.
            let mut open = vec![(0, source)];
            while let Some((at, broker)) = open.pop() {
                let mut child = at + 1;
                for _ in 0..tree.nodes[at].children {
                    let end = child + trees::end_of_part(&tree.nodes[child..]).expect("a child is there");
                    let port = tree.nodes[child].port;
                    let to = graph.edges(broker).iter().find(|edge| edge.port == port).expect("a link").to;
                    let part = format!("{:?}", &tree.nodes[child..end]);
                    parts.entry([broker, to]).or_default().insert(part);
                    open.push((child, to));
                    child = end;
                }
            }
        }
        parts.into_iter().map(|(link, parts)| (link, parts.len())).collect()
    }

    proptest! {
        #[test]
        fn each_destination_has_what_its_own_pair_would_give_it(
            graph in graphs(8), deadline_us in 20..200_u64, set in proptest::collection::btree_set(1_u32..8, 1..5),
        ) {
            let set: Vec<u32> = set.into_iter().filter(|to| (*to as usize) < graph.hosts.len()).collect();
            with_search(&graph, 0, deadline_us, |search| {
                let found = JointPaths::find(search, &set, &mut |to| search.best(to));
                for (to, paths) in set.iter().zip(&found) {
                    let own = search.best(*to);
                    prop_assert_eq!(own.is_none(), paths.is_empty());
                    let Some(own) = own else { continue };
                    for path in paths {
                        let brokers: BTreeSet<u32> = path.iter().copied().collect();
                        prop_assert!(brokers.len() == path.len() && path[0] == 0 && path.last() == Some(to), "{:?}", path);
                        prop_assert!(path.windows(2).all(|link| graph.edge(link[0], link[1]).is_some()));
                    }
                    let pair = |one: &Vec<u32>, other: &Vec<u32>| {
                        search.safety(&PathPair { paths: [one.clone(), other.clone()] })
                    };
                    let best = paths.iter().flat_map(|one| paths.iter().map(move |other| pair(one, other))).min();
                    prop_assert!(best.is_some_and(|best| best <= search.safety(&own)), "{:?} to {}, own {:?}", paths, to, own);
                }
                Ok(())
            })?;
        }

        #[test]
        fn no_link_is_crossed_twice_in_one_direction(
            graph in graphs(8), deadline_us in 20..200_u64, set in proptest::collection::btree_set(1_u32..8, 1..5),
        ) {
            let set: Vec<u32> = set.into_iter().filter(|to| (*to as usize) < graph.hosts.len()).collect();
            with_search(&graph, 0, deadline_us, |search| {
                let found = JointPaths::find(search, &set, &mut |to| search.best(to));
                for (link, times) in crossings(&graph, 0, &found) {
                    prop_assert_eq!(times, 1, "{:?}: {:?}", link, found);
                }
                Ok(())
            })?;
        }
    }

    /// The links of the mesh of the paper, at 0.3 ms more for the work of a broker.
    fn mesh() -> Graph {
        let links = [
            (1, 2, 16),
            (1, 3, 20),
            (3, 4, 15),
            (2, 5, 12),
            (3, 5, 15),
            (4, 5, 15),
            (1, 5, 6),
            (2, 4, 5),
            (1, 4, 25),
            (2, 3, 18),
        ];
        let links: Vec<(u32, u32, u64)> =
            links.into_iter().map(|(one, other, ms)| (one - 1, other - 1, ms * 1_000 + 300)).collect();
        Graph::of_links(5, &links)
    }

    #[test]
    fn in_the_mesh_of_the_paper_two_paths_cross_twice_as_many_links_as_one() {
        for (source, set) in [(1, [0, 4]), (2, [0, 3]), (3, [2, 4])] {
            let graph = mesh();
            let found =
                with_search(&graph, source, 50_000, |search| JointPaths::find(search, &set, &mut |to| search.best(to)));
            let crossed: usize = crossings(&graph, source, &found).values().sum();
            assert_eq!(crossed, 4, "{source}: {found:?}");
        }
    }
}
