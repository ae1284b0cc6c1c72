//! More paths around a source or a destination that has trouble, after Babay, Wagner, Dinitz and
//! Amir, "Timely, Reliable, and Cost-Effective Internet Transport Service Using Dissemination
//! Graphs" (2017): links that fail briefly fail mostly together, at one end of the paths, where no
//! pair of paths avoids them; one of all links there may still carry the event.

use core::time::Duration;

use whimbrel_event::HostId;

use super::availability::MapOutages;
use super::cost::HOP_COST_US;
use super::graph::{Graph, GraphEdge};
use super::pair::PairSearch;

/// The loss from which on a link is in trouble, thousandths.
const TROUBLE_LOSS: u16 = 50;

/// The number of links in trouble from which on their broker has trouble: a single one is avoided
/// by one of two paths.
const TROUBLE_LINKS: usize = 2;

/// A link that is gone counts as one in trouble for this time.
const TROUBLE_AFTER_GONE: Duration = Duration::from_secs(30);

/// Most paths that are added at one end, the quickest first.
const ADDED_MAX: usize = 16;

/// Where trouble is seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct TroubleView<'a> {
    pub(super) graph: &'a Graph,
    pub(super) outages: &'a MapOutages,
}

impl TroubleView<'_> {
    /// Whether a broker has trouble.
    pub(super) fn has_trouble(self, broker: u32) -> bool {
        let is_bad = |edge: &&GraphEdge| edge.loss >= TROUBLE_LOSS;
        let bad = self.graph.edges(broker).iter().filter(is_bad).take(TROUBLE_LINKS).count();
        let gone = || self.outages.lately_gone(self.graph.hosts[broker as usize], TROUBLE_AFTER_GONE);
        bad == TROUBLE_LINKS || bad + gone() >= TROUBLE_LINKS
    }

    /// The brokers of a set, and the source, that have trouble.
    pub(super) fn troubled(self, source: HostId, set: &[HostId]) -> Vec<HostId> {
        let is_in_trouble = |host: &HostId| self.graph.index(*host).is_some_and(|broker| self.has_trouble(broker));
        [source].iter().chain(set).copied().filter(is_in_trouble).collect()
    }

    /// The paths that are added to those of a destination: over each link of an end that has
    /// trouble, the quickest one that is in time by the delays of the links of that end, whatever
    /// these lose.
    pub(super) fn added(self, search: PairSearch<'_>, to: u32) -> Vec<Vec<u32>> {
        let source = search.source;
        let has_trouble = [source, to].map(|end| self.has_trouble(end));
        let mut paths = Vec::new();
        if has_trouble[0] {
            paths = around(search, source, (to, has_trouble[1]));
            paths.iter_mut().for_each(|path| path.reverse());
        }
        if has_trouble[1] {
            paths.extend(around(search, to, (source, has_trouble[0])));
        }
        paths
    }
}

/// The quickest paths from another broker, of which is said whether it has trouble, to an end: one
/// over each link of the end that is in time.
fn around(search: PairSearch<'_>, end: u32, (other, has_trouble): (u32, bool)) -> Vec<Vec<u32>> {
    let PairSearch { graph, deadline_us, .. } = search;
    let bare_us = |edge: &GraphEdge| u64::from(edge.delay_us) + HOP_COST_US;
    let least = search.search(other, |from, edge| {
        let time_us = if has_trouble && from == other { bare_us(edge) } else { edge.time_us() };
        (edge.to != end).then_some(time_us)
    });
    let way = |edge: &GraphEdge| {
        let (before_us, _) = least[edge.to as usize];
        let time_us = before_us.saturating_add(bare_us(edge));
        (time_us <= deadline_us).then_some((time_us, edge.to))
    };
    let mut ways: Vec<(u64, u32)> = graph.edges(end).iter().filter_map(way).collect();
    ways.sort_unstable();
    ways.truncate(ADDED_MAX);
    let path = |(_, neighbour): (u64, u32)| {
        let mut path = search.followed_from(other, neighbour, &least)?;
        path.push(end);
        Some(path)
    };
    ways.into_iter().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_event::Time;

    use super::*;
    use crate::route::disjoint::tests::{all_paths, graphs};
    use crate::route::pair::tests::with_search;

    /// The time of a path, with the bare delays of the links of these ends.
    fn time_us(graph: &Graph, path: &[u32], bare: &[u32]) -> u64 {
        let time_us = |link: &[u32]| {
            let edge = graph.edge(link[0], link[1]).expect("a link of the graph");
            let is_bare = bare.iter().any(|end| link.contains(end));
            if is_bare { u64::from(edge.delay_us) + HOP_COST_US } else { edge.time_us() }
        };
        path.windows(2).map(time_us).sum()
    }

    proptest! {
        #[test]
        fn each_link_of_an_end_in_trouble_has_its_quickest_path_in_time(
            graph in graphs(6), losses in proptest::collection::vec(0_usize..4, 36), deadline_us in 300..3_000_u64,
        ) {
            let graph = graph.with_losses(|one, other| [0, 30, 400, 1_000][losses[(one * 6 + other) as usize]]);
            let view = TroubleView { graph: &graph, outages: &MapOutages::default() };
            with_search(&graph, 0, deadline_us, |search| {
                for to in 1..graph.hosts.len() as u32 {
                    let found = view.added(search, to);
                    let ends = [0, to].map(|end| Some(end).filter(|end| view.has_trouble(*end)));
                    let bare: Vec<u32> = ends.iter().flatten().copied().collect();
                    let all = all_paths(&graph, 0, to);
                    let mut wanted = 0;
                    for end in &bare {
                        for edge in graph.edges(*end) {
                            let over = |path: &&Vec<u32>| if *end == 0 {
                                path[1] == edge.to
                            } else {
                                path[path.len() - 2] == edge.to
                            };
                            let least = all.iter().filter(over).map(|path| time_us(&graph, path, &bare)).min();
                            let Some(least) = least.filter(|least| *least <= deadline_us) else { continue };
                            wanted += 1;
                            let is_it = |path: &&Vec<u32>| over(path) && time_us(&graph, path, &bare) == least;
                            prop_assert!(found.iter().any(|path| is_it(&path)), "over {}-{}: {:?}", end, edge.to, found);
                        }
                    }
                    prop_assert_eq!(found.len(), wanted, "to {}: {:?}", to, &found);
                    prop_assert!(found.iter().all(|path| all.contains(path)), "{:?} are not all paths", &found);
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn a_single_bad_link_is_no_trouble_and_two_are() {
        let graph = |bad: u32| {
            let links = [(0, 1, 10), (0, 2, 10), (0, 3, 10), (1, 3, 10), (2, 3, 10)];
            Graph::of_links(4, &links).with_losses(|one, other| u16::from(one == 0 && other <= bad) * 500)
        };
        let outages = MapOutages::default();
        let has_trouble = [0, 1, 2, 3].map(|bad| TroubleView { graph: &graph(bad), outages: &outages }.has_trouble(0));
        assert_eq!(has_trouble, [false, false, true, true]);
        let host = |broker: u32| graph(0).hosts[broker as usize];
        let view = TroubleView { graph: &graph(2), outages: &outages };
        assert_eq!(view.troubled(host(0), &[host(1), host(3)]), [host(0)]);
    }

    #[test]
    fn a_link_that_has_just_gone_counts_as_one_in_trouble() {
        let links = [(0, 1, 10), (0, 2, 10), (0, 3, 10), (1, 3, 10), (2, 3, 10)];
        let at = |seconds: u64| Time::from_nanos(1) + Duration::from_secs(seconds);
        let one_bad = |links: &[(u32, u32, u64)]| {
            Graph::of_links(4, links).with_losses(|one, other| u16::from([one, other] == [0, 2]) * 500)
        };
        let mut outages = MapOutages::default();
        outages.observe(at(0), &one_bad(&links));
        let graph = one_bad(&links[1..]);
        for (seconds, is_expected) in [(10, true), (40, true), (41, false)] {
            outages.observe(at(seconds), &graph);
            let view = TroubleView { graph: &graph, outages: &outages };
            assert_eq!([0, 1, 3].map(|broker| view.has_trouble(broker)), [is_expected, false, false], "{seconds} s");
        }
    }
}
