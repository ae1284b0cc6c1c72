//! The paths of an event to each of its destinations, as its trees have them.

use std::collections::BTreeMap;

use whimbrel_event::HostId;

use super::graph::Graph;
use super::trees::Tree;
use super::{MapOutages, Routes, TopicPaths};

/// A path of an event from this broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventPath {
    /// The brokers on it, from this one to the destination.
    pub hosts: Vec<HostId>,
    /// How long it takes, microseconds: delays, hops and losses of its links, without surcharges.
    pub time_us: u64,
}

/// The paths of an event to one broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathsTo {
    /// The broker.
    pub host: HostId,
    /// The quickest path first; empty if the broker is not reached. At most as many as the trees
    /// have nodes, see [`TREE_NODES_MAX`](super::TREE_NODES_MAX).
    pub paths: Vec<EventPath>,
    /// The brokers before the destination that all paths visit, if there are several paths.
    pub shared_brokers: Vec<HostId>,
    /// The links that all paths take, if there are several, in the direction of the first path.
    pub shared_links: Vec<[HostId; 2]>,
}

impl PathsTo {
    fn new(host: HostId, mut paths: Vec<EventPath>) -> PathsTo {
        paths.sort_by(|one, other| (one.time_us, &one.hosts).cmp(&(other.time_us, &other.hosts)));
        let (mut shared_brokers, mut shared_links) = (Vec::new(), Vec::new());
        if let [first, others @ ..] = &*paths
            && !others.is_empty()
            && let [_, inner @ .., _] = &*first.hosts
        {
            let are_all_over = |broker: &&HostId| others.iter().all(|path| path.hosts.contains(*broker));
            shared_brokers.extend(inner.iter().filter(are_all_over));
            let links = first.hosts.windows(2).map(|link| [link[0], link[1]]);
            shared_links.extend(links.filter(|link| others.iter().all(|path| path.takes(*link))));
        }
        PathsTo { host, paths, shared_brokers, shared_links }
    }
}

impl EventPath {
    /// Whether it takes a link, in any direction.
    fn takes(&self, [one, other]: [HostId; 2]) -> bool {
        self.hosts.windows(2).any(|link| link == [one, other] || link == [other, one])
    }
}

impl Routes {
    /// The paths of an event to each broker of a set, in the order of the set. `copied_within_us`:
    /// the deadline of [`Routes::copies`]; `None`: it takes those of [`Routes::trees`].
    ///
    /// # Panics
    /// When the set is not sorted, or has a host twice.
    pub(crate) fn planned(
        &mut self,
        set: &[HostId],
        paths: TopicPaths,
        copied_within_us: Option<u64>,
        outages: &MapOutages,
    ) -> Vec<PathsTo> {
        let trees = match copied_within_us {
            Some(deadline_us) => self.copies(set, paths, deadline_us, outages).trees.clone(),
            None => self.trees(set).clone(),
        };
        let mut paths: BTreeMap<u16, Vec<EventPath>> = BTreeMap::new();
        if let Some(source) = self.graph.index(self.own) {
            trees.trees.iter().for_each(|tree| follow(&self.graph, source, tree, &mut paths));
        }
        let of = |(number, host): (u16, &HostId)| PathsTo::new(*host, paths.remove(&number).unwrap_or_default());
        (0..).zip(set).map(of).collect()
    }
}

/// A broker between the root of a tree and the node that is read.
#[derive(Clone, Copy)]
struct TreeStep {
    /// Its index and the time up to it, microseconds; `None` behind a link that is gone.
    at: Option<(u32, u64)>,
    /// Nodes right below it that are not read yet.
    left: u16,
}

/// Collects the paths of a tree by their destinations. A part behind a link that the graph does not
/// have any more is left out.
fn follow(graph: &Graph, source: u32, tree: &Tree, paths: &mut BTreeMap<u16, Vec<EventPath>>) {
    let Some((root, nodes)) = tree.nodes.split_first() else { return };
    let mut way = vec![TreeStep { at: Some((source, 0)), left: root.children }];
    for node in nodes {
        while way.pop_if(|step| step.left == 0).is_some() {}
        let Some(before) = way.last_mut() else { return };
        before.left -= 1;
        let beyond = |(broker, time_us): (u32, u64)| {
            let edge = graph.edges(broker).iter().find(|edge| edge.port == node.port)?;
            Some((edge.to, time_us + edge.time_us()))
        };
        let at = before.at.and_then(beyond);
        way.push(TreeStep { at, left: node.children });
        if let (Some(number), Some((_, time_us))) = (node.destination, at) {
            let hosts = way.iter().filter_map(|step| step.at).map(|(broker, _)| graph.hosts[broker as usize]);
            paths.entry(number).or_default().push(EventPath { hosts: hosts.collect(), time_us });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::paths::{Paths, Wanted};

    /// The routes of broker 0 over links of these costs.
    fn routes(brokers: u32, links: &[(u32, u32, u64)]) -> Routes {
        let graph = Graph::of_links(brokers, links);
        let mut routes = Routes::new(graph.hosts[0]);
        routes.paths = Paths::new(&graph, graph.hosts[0], Wanted::default());
        (routes.version, routes.structure, routes.graph) = (Some(1), Some(1), graph);
        routes
    }

    /// The paths to a broker with their times, the brokers that they share, and how many links; by
    /// numbers of brokers.
    type Numbered = (Vec<(Vec<u32>, u64)>, Vec<u32>, usize);

    /// The paths to brokers.
    fn planned(routes: &mut Routes, to: &[u32], within_us: Option<u64>) -> Vec<Numbered> {
        let set: Vec<HostId> = to.iter().map(|to| routes.graph.hosts[*to as usize]).collect();
        let found = routes.planned(&set, TopicPaths::Two, within_us, &MapOutages::default());
        assert!(found.iter().map(|paths| paths.host).eq(set), "in the order of the set");
        let number = |host: &HostId| routes.graph.index(*host).expect("it is in the graph");
        let numbers = |hosts: &Vec<HostId>| hosts.iter().map(number).collect::<Vec<u32>>();
        let known = |paths: &PathsTo| {
            let all = paths.paths.iter().map(|path| (numbers(&path.hosts), path.time_us)).collect();
            (all, numbers(&paths.shared_brokers), paths.shared_links.len())
        };
        found.iter().map(known).collect()
    }

    /// Broker 3 behind brokers 1 and 2, broker 4 behind broker 3 alone, broker 5 is not reached.
    const DIAMOND: [(u32, u32, u64); 5] = [(0, 1, 2), (0, 2, 20), (1, 3, 2), (2, 3, 20), (3, 4, 5)];

    #[test]
    fn both_paths_to_each_destination_are_told_with_what_they_share() {
        let found = planned(&mut routes(6, &DIAMOND), &[3, 4, 5], Some(100));
        let to_3 = vec![(vec![0, 1, 3], 4), (vec![0, 2, 3], 40)];
        let to_4 = vec![(vec![0, 1, 3, 4], 9), (vec![0, 2, 3, 4], 45)];
        assert_eq!(found, [(to_3, vec![], 0), (to_4, vec![3], 1), (vec![], vec![], 0)]);
    }

    #[test]
    fn destinations_that_relay_for_each_other_are_on_each_others_paths() {
        let found = planned(&mut routes(4, &DIAMOND[..4]), &[1, 2, 3], Some(100));
        assert_eq!(found[0].0, [(vec![0, 1], 2), (vec![0, 2, 3, 1], 42)]);
        assert_eq!(found[1].0, [(vec![0, 2], 20), (vec![0, 1, 3, 2], 24)]);
        assert_eq!(found[2].0, [(vec![0, 1, 3], 4), (vec![0, 2, 3], 40)]);
    }

    #[test]
    fn without_copies_there_is_one_path_and_nothing_is_shared() {
        let found = planned(&mut routes(6, &DIAMOND), &[2, 4], None);
        assert_eq!(found, [(vec![(vec![0, 2], 20)], vec![], 0), (vec![(vec![0, 1, 3, 4], 9)], vec![], 0)]);
        let only = planned(&mut routes(3, &[(0, 1, 2), (1, 2, 3)]), &[2], Some(100));
        assert_eq!(only, [(vec![(vec![0, 1, 2], 5)], vec![], 0)], "there is no other one");
    }
}
