//! Trees lead to each destination once, and over the paths.

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_event::HostId;
use whimbrel_net::route::{Routes, TREE_DEPTH_MAX, TREE_NODES_MAX, TREES_MAX, Tree, Trees, Ways};
use whimbrel_net::topology::{Learned, LinkState, Topology};
use whimbrel_wire::Protocol;

use crate::world::{World, at, end, host, routes, some_of, state, world};

/// Follows the ports from node to node through the brokers' link states: all destinations with the
/// hosts on the way.
fn walk(topology: &Topology, tree: &Tree) -> Vec<(u16, Vec<HostId>)> {
    let mut found = Vec::new();
    // The way to the present node, and how many children of each node on it are to come, with the
    // port of the last one.
    let mut way: Vec<(HostId, u16, Option<u16>)> = Vec::new();
    for (place, node) in tree.nodes.iter().enumerate() {
        if place == 0 {
            way.push((topology.own(), node.children, None));
        } else {
            while way.last().expect("there is a parent").1 == 0 {
                way.pop();
            }
            let (parent, children, last) = way.last_mut().expect("there is a parent");
            *children -= 1;
            assert!(last.is_none_or(|last| last < node.port), "children are in the order of ports");
            *last = Some(node.port);
            let parent = topology.get(*parent).expect("a broker");
            let link = parent.neighbours.iter().find(|link| link.port == node.port).expect("a link");
            assert!(topology.link(parent.host, link.host).is_some(), "both ends name it");
            way.push((link.host, node.children, None));
        }
        assert!(node.destination.is_some() || node.children > 0, "every leaf is a destination");
        found.extend(node.destination.map(|number| (number, way.iter().map(|(host, ..)| *host).collect())));
    }
    assert!(way.iter().all(|(_, children, _)| *children == 0), "all children are there");
    assert!(tree.nodes.len() <= TREE_NODES_MAX);
    found
}

fn check(topology: &Topology, ways: Ways<'_>, set: &[HostId], trees: &Trees) {
    let mut found: Vec<(u16, Vec<HostId>)> = trees.trees.iter().flat_map(|tree| walk(topology, tree)).collect();
    found.sort_unstable();
    let is_near = |path: &Vec<HostId>| !path.is_empty() && path.len() <= usize::from(TREE_DEPTH_MAX) + 1;
    let all = (0..).zip(set).map(|(number, host)| (number, ways.path(*host)));
    let (near, far): (Vec<_>, Vec<_>) = all.partition(|(_, path)| is_near(path));
    assert_eq!(found, near);
    assert_eq!(trees.unreachable, far.into_iter().map(|(number, _)| number).collect::<Vec<u16>>());
}

const BROKERS: u64 = 12;

proptest! {
    #[test]
    fn each_destination_is_there_once_at_the_end_of_its_path(
        world in world(BROKERS, 40),
        sets in proptest::collection::vec(some_of(BROKERS), 1..6),
        avoided in some_of(BROKERS),
    ) {
        let topology = world.topology();
        let mut routes = routes(&topology);
        for set in &sets {
            let trees = routes.trees(set).clone();
            check(&topology, routes.ways(), set, &trees);
            prop_assert_eq!(routes.trees(set), &trees);
            prop_assert!(trees.trees.len() <= 1);
            let detour = routes.avoiding(&avoided, &[]);
            check(&topology, detour, set, &detour.trees(set));
        }
    }

    #[test]
    fn remembered_trees_are_those_of_the_present_paths(
        worlds in proptest::collection::vec(world(BROKERS, 40), 2..5),
        set in some_of(BROKERS),
    ) {
        let mut topology = Topology::new(host(0));
        let mut routes = Routes::new(host(0));
        for (sequence, world) in (1..).zip(&worlds) {
            for mut state in world.states() {
                state.sequence = sequence;
                if state.host == host(0) {
                    topology.announce(at(0), state).expect("a good state");
                } else {
                    topology.learn(at(0), state, core::time::Duration::ZERO);
                }
            }
            routes.update(&topology);
            let trees = routes.trees(&set).clone();
            check(&topology, routes.ways(), &set, &trees);
        }
    }
}

#[test]
fn what_is_too_far_off_is_unreachable() {
    let last = u64::from(TREE_DEPTH_MAX) + 1;
    let links: Vec<(u64, u64, u32)> = (0..last).map(|from| (from, from + 1, 100)).collect();
    let topology = World::new(last + 1, &links).topology();
    let mut routes = routes(&topology);
    let set: Vec<HostId> = (0..=last).map(host).collect();
    let trees = routes.trees(&set).clone();
    assert_eq!(trees.unreachable, [last as u16]);
    check(&topology, routes.ways(), &set, &trees);
    assert!(routes.is_reachable(host(last)), "but not by a tree");
}

/// A star of rays, all of one length.
fn rays(rays: u64, length: u64) -> World {
    let node = |ray, depth| if depth == 0 { 0 } else { 1 + ray * length + (depth - 1) };
    let ray = |ray| (1..=length).map(move |depth| (node(ray, depth - 1), node(ray, depth), 100));
    World::new(1 + rays * length, &(0..rays).flat_map(ray).collect::<Vec<_>>())
}

#[test]
fn a_set_with_too_many_nodes_gets_several_trees() {
    let (count, length) = (1_000, 5);
    let topology = rays(count, length).topology();
    let mut routes = routes(&topology);
    let all: Vec<HostId> = topology.hosts().collect();
    let trees = routes.trees(&all).clone();
    assert_eq!(trees.trees.len(), 2);
    assert_eq!(trees.trees[0].nodes.len(), TREE_NODES_MAX);
    check(&topology, routes.ways(), &all, &trees);
    // Only the ends of the rays: no tree has a part of a ray that leads nowhere.
    let ends: Vec<HostId> = (1..=count).map(|ray| host(ray * length)).collect();
    let trees = routes.trees(&ends).clone();
    assert_eq!(trees.trees.len(), 2);
    assert_eq!(trees.trees[0].nodes.len(), TREE_NODES_MAX, "the root and 819 rays");
    check(&topology, routes.ways(), &ends, &trees);
}

#[test]
fn a_path_that_two_trees_share_is_in_both() {
    // The first tree ends in the middle of a ray.
    let topology = rays(700, 6).topology();
    let mut routes = routes(&topology);
    let all: Vec<HostId> = topology.hosts().collect();
    let trees = routes.trees(&all).clone();
    let sizes: Vec<usize> = trees.trees.iter().map(|tree| tree.nodes.len()).collect();
    assert_eq!((sizes[0], sizes.len()), (TREE_NODES_MAX, 2));
    assert_eq!(sizes[1], 1 + 700 * 6 - (TREE_NODES_MAX - 1) + 3, "a root, what is left, and the shared half of a ray");
    check(&topology, routes.ways(), &all, &trees);
}

#[test]
fn as_many_nodes_as_there_can_be_are_one_tree() {
    let topology = rays(819, 5).topology();
    let mut routes = routes(&topology);
    let all: Vec<HostId> = topology.hosts().collect();
    assert_eq!(all.len(), TREE_NODES_MAX);
    let trees = routes.trees(&all).clone();
    assert_eq!(trees.trees.len(), 1);
    check(&topology, routes.ways(), &all, &trees);
}

#[test]
fn more_sets_than_are_remembered_have_the_right_trees() {
    let topology = rays(40, 3).topology();
    let mut routes = routes(&topology);
    let hosts: Vec<HostId> = topology.hosts().collect();
    let pairs = || (0..hosts.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
    assert!(pairs().count() > TREES_MAX + TREES_MAX / 2);
    for _ in 0..2 {
        for (one, other) in pairs() {
            let set = [hosts[one], hosts[other]];
            let trees = routes.trees(&set).clone();
            check(&topology, routes.ways(), &set, &trees);
        }
    }
}

#[test]
fn the_own_broker_is_the_root() {
    let mut routes = World::new(2, &[(0, 1, 100)]).routes();
    let trees = routes.trees(&[host(0)]);
    assert_eq!((trees.trees.len(), trees.trees[0].nodes[0].destination), (1, Some(0)));
    assert_eq!(trees.trees[0].nodes.len(), 1);
    assert_eq!(routes.trees(&[]), &Trees::default());
    assert_eq!(routes.trees(&[host(7)]), &Trees { trees: vec![], unreachable: vec![0] });
}

#[test]
fn a_port_that_changes_changes_the_tree() {
    let world = World::new(3, &[(0, 1, 100), (1, 2, 100)]);
    let mut topology = world.topology();
    let mut routes = routes(&topology);
    let before = routes.trees(&[host(2)]).clone();
    let mut there = end(1, 2, 100, 0);
    there.port += 1;
    topology.learn(at(0), state(1, 1, 2, vec![end(1, 0, 100, 0), there]), core::time::Duration::ZERO);
    assert!(routes.update(&topology));
    let after = routes.trees(&[host(2)]);
    assert_ne!(&before, after);
    assert_eq!(after.trees[0].nodes[2].port, there.port);
}

#[test]
fn a_tree_speaks_what_all_its_brokers_speak() {
    let line = World::new(4, &[(0, 1, 100), (1, 2, 100), (0, 3, 100)]);
    let mut known = line.topology();
    let mut routes = routes(&known);
    let protocol = |routes: &mut Routes, to| routes.trees(&[host(to)]).trees[0].protocol;
    assert_eq!([1, 2, 3].map(|to| protocol(&mut routes, to)), [Protocol::OWN; 3]);
    // Another program is started on the way: the trees that are remembered do not count any more.
    let neighbours = line.states()[1].neighbours.clone();
    let older = LinkState { protocol: Protocol::UNTOLD, ..state(1, 2, 1, neighbours) };
    assert_eq!(known.learn(at(1), older, Duration::ZERO), Learned::New);
    routes.update(&known);
    let untold = [Protocol::UNTOLD, Protocol::UNTOLD, Protocol::OWN];
    assert_eq!([1, 2, 3].map(|to| protocol(&mut routes, to)), untold, "it is on the way to the second");
}

#[test]
#[should_panic(expected = "sorted")]
fn a_set_that_is_not_sorted_is_a_defect() {
    World::new(3, &[]).routes().trees(&[host(2), host(1)]);
}
